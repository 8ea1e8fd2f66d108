package ebbtide

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// handle owns a filter of C, and the batches of it. Every call of C is between enter and leave,
// so that it is not closed meanwhile.
type handle struct {
	path   string
	mu     sync.RWMutex
	filter *C.struct_ebbtide_filter
	// Those that were not freed. C demands that this happens before the filter is closed. They are
	// not pointers to Batch: the filter would then keep alive what has a finalizer.
	batchesMu sync.Mutex
	batches   map[*C.struct_ebbtide_batch]struct{}
}

// newHandle takes over a filter of C. It is closed at last when nothing refers to it any more.
func newHandle(path string, filter *C.struct_ebbtide_filter) *handle {
	h := &handle{path: path, filter: filter, batches: map[*C.struct_ebbtide_batch]struct{}{}}
	runtime.SetFinalizer(h, func(h *handle) {
		// Closing writes a snapshot: other finalizers need not wait for it.
		go func() { _ = h.close() }()
	})
	return h
}

// enter begins a call. It returns ErrClosed if the filter is closed.
func (h *handle) enter() error {
	h.mu.RLock()
	if h.filter == nil {
		h.mu.RUnlock()
		return h.closed()
	}
	return nil
}

func (h *handle) leave() { h.mu.RUnlock() }

// number returns the filter as C functions take it that are called often.
func (h *handle) number() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(h.filter))) }

func (h *handle) closed() error {
	return &Error{
		Code: ErrClosed, Path: h.path,
		Message: h.path + ": the filter was closed by this program; open it again to use it",
	}
}

// close waits for the running calls, and closes the filter. Again: nothing.
func (h *handle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.filter == nil {
		return nil
	}
	runtime.SetFinalizer(h, nil)
	for batch := range h.batches {
		C.ebbtide_batch_free(batch)
	}
	h.batches = nil
	filter := h.filter
	h.filter = nil
	var failed *C.struct_ebbtide_error
	C.ebbtide_close(filter, &failed)
	if failed != nil {
		return taken(failed)
	}
	return nil
}

// text is a text of C; free it.
func text(name, value string) (*C.char, error) {
	if err := noNul(name, value); err != nil {
		return nil, err
	}
	return C.CString(value), nil
}

func free(text *C.char) { C.free(unsafe.Pointer(text)) }

// texts passes texts to a call of C. An empty one is NULL, which stands for defaults.
func texts(call func([]*C.char) error, named ...[2]string) error {
	all := make([]*C.char, len(named))
	defer func() {
		for _, one := range all {
			free(one)
		}
	}()
	for i, one := range named {
		if one[0] == "options" && one[1] == "" {
			continue
		}
		var err error
		if all[i], err = text(one[0], one[1]); err != nil {
			return err
		}
	}
	return call(all)
}

// opened opens a handle, or returns when the context ends. The opening continues then, and what it
// opens is closed.
func opened(ctx context.Context, open func() (*handle, error)) (*handle, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return open()
	}
	type result struct {
		handle *handle
		err    error
	}
	results := make(chan result, 1)
	go func() {
		handle, err := open()
		results <- result{handle, err}
	}()
	select {
	case result := <-results:
		return result.handle, result.err
	case <-ctx.Done():
		go func() {
			if result := <-results; result.handle != nil {
				_ = result.handle.close()
			}
		}()
		return nil, ctx.Err()
	}
}
