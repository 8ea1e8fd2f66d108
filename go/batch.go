package ebbtide

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// Batch is keys and positions that are written in one atomic step. Nothing of it is written, and
// nobody sees any of it, before Commit; after that all of it counts, also if the process is killed
// meanwhile. Close it, or close its filter; what was not committed has no effect.
type Batch struct {
	h     *handle
	mu    sync.Mutex
	batch *C.struct_ebbtide_batch
}

// NewBatch returns an empty batch. The options are those of all of its operations.
func (f *Filter) NewBatch(options ...CallOption) (*Batch, error) {
	call, err := settings(options)
	if err != nil {
		return nil, err
	}
	b := &Batch{h: f.h}
	err = f.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
		b.batch = C.ebbtide_batch_new(c, &call, failed)
		if b.batch != nil {
			f.h.batchesMu.Lock()
			f.h.batches[b.batch] = struct{}{}
			f.h.batchesMu.Unlock()
		}
	})
	if err != nil {
		return nil, err
	}
	// In a goroutine, because closing its filter, which this may wait for, takes time.
	runtime.SetFinalizer(b, func(b *Batch) { go func() { _ = b.Close() }() })
	return b, nil
}

// Close releases the batch. Again, or after its filter was closed: nothing.
func (b *Batch) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.batch == nil {
		return nil
	}
	batch := b.batch
	b.batch = nil
	runtime.SetFinalizer(b, nil)
	if b.h.enter() != nil {
		return nil // The filter has released it.
	}
	defer b.h.leave()
	b.h.batchesMu.Lock()
	delete(b.h.batches, batch)
	b.h.batchesMu.Unlock()
	C.ebbtide_batch_free(batch)
	return nil
}

func (b *Batch) number() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(b.batch))) }

// with calls C for the batch, with the settings of the operation.
func (b *Batch) with(options []CallOption,
	call func(C.struct_ebbtide_call) C.struct_shim_answer) error {
	settings, err := settings(options)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.batch == nil {
		return &Error{Code: ErrClosed, Path: b.h.path, Message: b.h.path + ": the batch is closed"}
	}
	if err := b.h.enter(); err != nil {
		return err
	}
	defer b.h.leave()
	return failure(call(settings))
}

// Insert adds the insert of a key. Of the options, time and weight count. A key that is too late
// when the batch is committed is left out.
func (b *Batch) Insert(key []byte, options ...CallOption) error {
	_, err := b.one(C.SHIM_INSERT, key, options)
	return err
}

// CheckAndInsert adds the insert of a key, and answers whether it is new: as Filter.CheckAndInsert
// would if each earlier operation of the batch had been a single one. If another caller inserts a
// new key before the commit, that fails with ErrConflict.
func (b *Batch) CheckAndInsert(key []byte, options ...CallOption) (Checked, error) {
	return b.one(C.SHIM_CHECK_AND_INSERT, key, options)
}

func (b *Batch) one(operation C.int, key []byte, options []CallOption) (Checked, error) {
	end := C.uint64_t(len(key))
	found := C.uint8_t(Unanswered)
	err := b.with(options, func(call C.struct_ebbtide_call) C.struct_shim_answer {
		return C.shim_batch(operation, b.number(), first(key), &end, 1, &found, call)
	})
	return Checked(found), err
}

// InsertAll adds the inserts of keys, in one call of C. After an error the keys before the failing
// one are in the batch.
func (b *Batch) InsertAll(keys *Keys, options ...CallOption) error {
	return b.with(options, func(call C.struct_ebbtide_call) C.struct_shim_answer {
		return C.shim_batch(C.SHIM_INSERT, b.number(), first(keys.bytes), keys.firstEnd(),
			C.size_t(keys.Len()), nil, call)
	})
}

// CheckAndInsertAll is CheckAndInsert for keys, in one call of C. It returns an answer for each, in
// the memory of answers if that suffices. After an error the keys before the failing one are in the
// batch, and have answers; those of the others are Unanswered.
func (b *Batch) CheckAndInsertAll(keys *Keys, answers []Checked,
	options ...CallOption) ([]Checked, error) {
	answers = room(answers, keys.Len())
	for i := range answers {
		answers[i] = Unanswered
	}
	err := b.with(options, func(call C.struct_ebbtide_call) C.struct_shim_answer {
		return C.shim_batch(C.SHIM_CHECK_AND_INSERT, b.number(), first(keys.bytes), keys.firstEnd(),
			C.size_t(keys.Len()), first(asBytes(answers)), call)
	})
	return answers, err
}

// SetPosition sets the position of a source when the batch is committed; the last one counts. After
// a crash, Reader.Position returns the one that belongs to exactly the keys that the filter
// remembers. A filter keeps the positions of 256 sources.
func (b *Batch) SetPosition(source, position uint64) error {
	return b.plain(func(failed **C.struct_ebbtide_error) {
		C.ebbtide_batch_set_position(b.batch, C.uint64_t(source), C.uint64_t(position), failed)
	})
}

// Confirm adds the insert of a claimed key, and the end of its claim. The claim is the batch's
// then, which releases it if it is cleared or closed. Of the options, the time counts. A claim that
// the batch cannot take, as after ErrTimeAhead, is released; after ErrArgument, and ErrClosed of
// the batch, it is held as before.
func (b *Batch) Confirm(claim *Claim, options ...CallOption) error {
	if claim.h != nil && claim.h != b.h {
		return argument("Confirm: expected a claim of the batch's filter, found one of another")
	}
	return claim.ending(func() error {
		return b.with(options, func(call C.struct_ebbtide_call) C.struct_shim_answer {
			return C.shim_batch_confirm(b.batch, first(claim.key), C.size_t(len(claim.key)),
				C.uint64_t(claim.token), call)
		})
	})
}

// Commit writes all of the batch, or nothing. Afterwards it is empty, and can be filled again.
// After ErrConflict and ErrLeaseLost clear it and take the same messages again.
func (b *Batch) Commit() error {
	return b.plain(func(failed **C.struct_ebbtide_error) { C.ebbtide_batch_commit(b.batch, failed) })
}

// Clear forgets what the batch holds; it can be filled again.
func (b *Batch) Clear() error {
	return b.plain(func(failed **C.struct_ebbtide_error) { C.ebbtide_batch_clear(b.batch, failed) })
}

func (b *Batch) plain(call func(**C.struct_ebbtide_error)) error {
	return b.with(nil, func(C.struct_ebbtide_call) C.struct_shim_answer {
		var failed *C.struct_ebbtide_error
		call(&failed)
		return C.struct_shim_answer{error: failed}
	})
}
