package ebbtide

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/json"
	"unsafe"
)

// Version returns the version of the C library, such as "0.1.0".
func Version() string { return C.GoString(C.ebbtide_version()) }

// Filter is an open filter. It has all methods of a Reader. Close it, so that the next opening has
// nothing to replay; a process that ends without loses nothing.
type Filter struct{ Reader }

// Open returns a filter, which is created if there is none at this path. Of a filter that exists
// the named parameters of the spec are compared (ErrMismatch).
//
// It waits, up to a minute, while another process opens, closes or recovers the filter, or until
// the context ends.
func Open(ctx context.Context, path, spec string, options ...Option) (*Filter, error) {
	return openFilter(ctx, path, func(filter **C.struct_ebbtide_filter) error {
		return texts(func(t []*C.char) error {
			var failed *C.struct_ebbtide_error
			*filter = C.ebbtide_open(t[0], t[1], t[2], &failed)
			return takenIf(failed)
		}, [2]string{"path", path}, [2]string{"spec", spec}, [2]string{"options", joined(options)})
	})
}

// Create returns a filter that does not exist yet: otherwise ErrExists. As Open besides.
func Create(ctx context.Context, path, spec string, options ...Option) (*Filter, error) {
	return openFilter(ctx, path, func(filter **C.struct_ebbtide_filter) error {
		return texts(func(t []*C.char) error {
			var failed *C.struct_ebbtide_error
			*filter = C.ebbtide_create(t[0], t[1], t[2], &failed)
			return takenIf(failed)
		}, [2]string{"path", path}, [2]string{"spec", spec}, [2]string{"options", joined(options)})
	})
}

// OpenExisting returns a filter that exists: otherwise ErrNotAFilter. As Open besides.
func OpenExisting(ctx context.Context, path string, options ...Option) (*Filter, error) {
	return openFilter(ctx, path, func(filter **C.struct_ebbtide_filter) error {
		return texts(func(t []*C.char) error {
			var failed *C.struct_ebbtide_error
			*filter = C.ebbtide_open_existing(t[0], t[1], &failed)
			return takenIf(failed)
		}, [2]string{"path", path}, [2]string{"options", joined(options)})
	})
}

// takenIf returns the error of C, if there is one.
func takenIf(failed *C.struct_ebbtide_error) error {
	if failed != nil {
		return taken(failed)
	}
	return nil
}

// openHandle opens by a function that stores a filter of C.
func openHandle(ctx context.Context, path string,
	open func(**C.struct_ebbtide_filter) error) (*handle, error) {
	return opened(ctx, func() (*handle, error) {
		var filter *C.struct_ebbtide_filter
		if err := open(&filter); err != nil {
			return nil, err
		}
		return newHandle(path, filter), nil
	})
}

func openFilter(ctx context.Context, path string,
	open func(**C.struct_ebbtide_filter) error) (*Filter, error) {
	h, err := openHandle(ctx, path, open)
	if err != nil {
		return nil, err
	}
	return &Filter{Reader{h}}, nil
}

// Close writes a snapshot, so that the next opening has nothing to replay, and closes the filter,
// also if it returns an error: only the snapshot is missing then. Batches of the filter that were
// not committed have no effect; claims are not released. A filter that is closed: nothing.
func (f *Filter) Close() error { return f.h.close() }

// Sync waits until all operations so far are on the disk, or until the context ends.
func (f *Filter) Sync(ctx context.Context) error {
	return waited(ctx, func() error {
		return f.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
			C.ebbtide_sync(c, failed)
		})
	})
}

// waited waits for work in the background, or until the context ends.
func waited(ctx context.Context, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return work()
	}
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// with calls C for the filter.
func (h *handle) with(call func(*C.struct_ebbtide_filter, **C.struct_ebbtide_error)) error {
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	var failed *C.struct_ebbtide_error
	call(h.filter, &failed)
	return takenIf(failed)
}

// Checkpoint writes a snapshot, unless the newest one is up to date, and removes log that is not
// needed any more. It returns the LSN at which the newest snapshot starts.
func (f *Filter) Checkpoint() (uint64, error) {
	var lsn C.uint64_t
	err := f.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
		C.ebbtide_checkpoint(c, &lsn, failed)
	})
	return uint64(lsn), err
}

// Clear removes all keys in one durable step, which all processes see at once. Positions stay.
func (f *Filter) Clear() error {
	return f.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
		C.ebbtide_clear(c, failed)
	})
}

// Backup copies the filter to a directory that does not exist, while others use it. The copy is on
// the disk when it returns. Copies of the files of an open filter are none.
func (f *Filter) Backup(path string) error {
	return texts(func(t []*C.char) error {
		return f.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
			C.ebbtide_backup(c, t[0], failed)
		})
	}, [2]string{"path", path})
}

// Restore copies a backup, or any filter that no process has open, to a directory that does not
// exist. The copy continues the old filter.
func Restore(backup, path string) error {
	return texts(func(t []*C.char) error {
		var failed *C.struct_ebbtide_error
		C.ebbtide_restore(t[0], t[1], &failed)
		return takenIf(failed)
	}, [2]string{"backup", backup}, [2]string{"path", path})
}

// Plan returns what a filter will take of memory and disk, as the object of JSON that the command
// `ebbtide plan --json` prints. Nothing is created.
func Plan(spec string, options ...Option) (json.RawMessage, error) {
	var plan string
	err := texts(func(t []*C.char) error {
		var failed *C.struct_ebbtide_error
		plan = handedOut(C.ebbtide_plan(t[0], t[1], &failed))
		return takenIf(failed)
	}, [2]string{"spec", spec}, [2]string{"options", joined(options)})
	return json.RawMessage(plan), err
}

// handedOut copies and releases a text of C, which may be NULL.
func handedOut(text *C.char) string {
	defer C.ebbtide_string_free(text)
	return C.GoString(text)
}

// first returns a pointer to the bytes of a key.
func first(key []byte) *C.uint8_t {
	if len(key) == 0 {
		return nil
	}
	return (*C.uint8_t)(unsafe.Pointer(&key[0]))
}
