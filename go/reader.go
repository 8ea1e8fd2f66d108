package ebbtide

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/json"
	"time"
	"unsafe"
)

// Reader is a handle for queries. One from OpenReader needs no write permission and changes
// nothing.
type Reader struct{ h *handle }

// OpenReader returns a handle for queries. It answers from the live state while other processes
// have the filter open, also from the files alone.
func OpenReader(ctx context.Context, path string, options ...Option) (*Reader, error) {
	return openReader(ctx, path, func(filter **C.struct_ebbtide_filter) error {
		return texts(func(t []*C.char) error {
			var failed *C.struct_ebbtide_error
			*filter = C.ebbtide_reader_open(t[0], t[1], &failed)
			return takenIf(failed)
		}, [2]string{"path", path}, [2]string{"options", joined(options)})
	})
}

// OpenReaderAt returns a handle for queries to a filter as it was at a moment of its past, from the
// log that is kept. Its time stands still at the moment's last operation.
func OpenReaderAt(ctx context.Context, path string, at Moment, options ...Option) (*Reader, error) {
	return openReader(ctx, path, func(filter **C.struct_ebbtide_filter) error {
		return texts(func(t []*C.char) error {
			var failed *C.struct_ebbtide_error
			moment, err := at.c()
			if err == nil {
				*filter = C.ebbtide_reader_open_at(t[0], &moment, t[1], &failed)
				err = takenIf(failed)
			}
			return err
		}, [2]string{"path", path}, [2]string{"options", joined(options)})
	})
}

func openReader(ctx context.Context, path string,
	open func(**C.struct_ebbtide_filter) error) (*Reader, error) {
	h, err := openHandle(ctx, path, open)
	if err != nil {
		return nil, err
	}
	return &Reader{h}, nil
}

// Close closes the handle. One that is closed: nothing.
func (r *Reader) Close() error { return r.h.close() }

// Path returns the path with which the filter was opened.
func (r *Reader) Path() string { return r.h.path }

// Checked is the answer of CheckAndInsert.
type Checked uint8

// The answers of CheckAndInsert.
const (
	// Present: the key was in the window, or is a false positive.
	Present Checked = C.EBBTIDE_PRESENT
	// New: the key was not in the window; it is now.
	New Checked = C.EBBTIDE_NEW
	// TooLate: the key's time lies before the window. Nothing was changed.
	TooLate Checked = C.EBBTIDE_TOO_LATE
	// Unanswered: an error came before this key of a bulk operation.
	Unanswered Checked = C.EBBTIDE_NO_ANSWER
)

// String returns the name of the answer.
func (c Checked) String() string {
	switch c {
	case Present:
		return "present"
	case New:
		return "new"
	case TooLate:
		return "too late"
	}
	return "unanswered"
}

// one runs an operation on one key. The key is not copied, and C does not keep it.
func (h *handle) one(operation C.int, key *C.uint8_t, length int, first, second uint64,
	options []CallOption) (C.struct_shim_answer, error) {
	call, err := settings(options)
	if err != nil {
		return C.struct_shim_answer{}, err
	}
	if err := h.enter(); err != nil {
		return C.struct_shim_answer{}, err
	}
	answer := C.shim_key(operation, h.number(), key, C.size_t(length), C.uint64_t(first),
		C.uint64_t(second), call)
	h.leave()
	return answer, failure(answer)
}

func (h *handle) bytes(operation C.int, key []byte,
	options []CallOption) (C.struct_shim_answer, error) {
	return h.one(operation, first(key), len(key), 0, 0, options)
}

// text is the same for a string, without a copy.
func (h *handle) text(operation C.int, key string,
	options []CallOption) (C.struct_shim_answer, error) {
	// A string begins with the pointer to its bytes. (unsafe.StringData needs Go 1.20.)
	data := *(**C.uint8_t)(unsafe.Pointer(&key))
	return h.one(operation, data, len(key), 0, 0, options)
}

// Contains returns whether a key is in the window. The answer is never false for a key that is,
// and true for other keys at the filter's false-positive rate.
func (r *Reader) Contains(key []byte, options ...CallOption) (bool, error) {
	answer, err := r.h.bytes(C.SHIM_CONTAINS, key, options)
	return answer.value == 1, err
}

// ContainsString is Contains for a string, which is not copied.
func (r *Reader) ContainsString(key string, options ...CallOption) (bool, error) {
	answer, err := r.h.text(C.SHIM_CONTAINS, key, options)
	return answer.value == 1, err
}

// Age is a lower bound of how long ago a key was seen, in the unit of the filter's window.
type Age struct {
	// Amount is a number of insert operations, or of microseconds.
	Amount uint64
	// IsItems is whether it counts insert operations.
	IsItems bool
}

// Duration returns the age of a filter whose window is a span of time, otherwise 0.
func (a Age) Duration() time.Duration {
	if a.IsItems {
		return 0
	}
	return time.Duration(a.Amount) * time.Microsecond
}

// Age returns how long ago a key was seen (kinds with ages); false if it is not in the window.
func (r *Reader) Age(key []byte, options ...CallOption) (Age, bool, error) {
	answer, err := r.h.bytes(C.SHIM_AGE, key, options)
	if err != nil || answer.value == 0 {
		return Age{}, false, err
	}
	return Age{uint64(answer.number), answer.second == C.EBBTIDE_ITEMS}, true, nil
}

// SeenWithin returns whether a key was seen within a span that is shorter than the window (kinds
// with ages). Never false for a key that was, and also true for some that are slightly older. A
// filter with a window in items refuses it (ErrParameter).
func (r *Reader) SeenWithin(key []byte, d time.Duration, options ...CallOption) (bool, error) {
	if d < 0 {
		return false, argument("SeenWithin: expected a span from 0 on, found %v", d)
	}
	return r.within(key, uint64(d.Microseconds()), C.EBBTIDE_MICROSECONDS, options)
}

// SeenWithinItems is the same for a window in items: within this many insert operations.
func (r *Reader) SeenWithinItems(key []byte, items uint64, options ...CallOption) (bool, error) {
	return r.within(key, items, C.EBBTIDE_ITEMS, options)
}

func (r *Reader) within(key []byte, amount, unit uint64, options []CallOption) (bool, error) {
	answer, err := r.h.one(C.SHIM_SEEN_WITHIN, first(key), len(key), amount, unit, options)
	return answer.value == 1, err
}

// Estimate is how often a key was inserted, less how often it was removed.
type Estimate struct {
	// Count is the count; for decaying kinds the part of it that remains.
	Count float64
	// AtLeast is whether a counter is saturated: the key may have been inserted more often.
	AtLeast bool
}

// Estimate returns how often a key was inserted (kinds that count).
func (r *Reader) Estimate(key []byte, options ...CallOption) (Estimate, error) {
	answer, err := r.h.bytes(C.SHIM_ESTIMATE, key, options)
	if err != nil {
		return Estimate{}, err
	}
	return Estimate{float64(answer.count), answer.value == 1}, nil
}

// Cardinality is an estimate of how many distinct keys are in the window or in a part of it.
type Cardinality struct {
	// Keys is the estimated number.
	Keys float64
	// StandardError is its standard error, in keys.
	StandardError float64
	// Reach is how far back the keys were counted, in the unit of the filter's window: insert
	// operations or microseconds. It is up to one generation more than what was asked for.
	Reach uint64
}

// Distinct returns how many distinct keys are in the window, for kinds whose cells say it; others
// refuse it (ErrUnsupported). It reads all blocks of the filter, where Stat looks at a sample.
func (r *Reader) Distinct(options ...CallOption) (Cardinality, error) {
	return r.distinct(options, func(c *C.struct_ebbtide_filter, into *cardinality,
		call *C.struct_ebbtide_call, failed **C.struct_ebbtide_error) {
		C.ebbtide_distinct(c, &into.keys, &into.standardError, &into.reach, call, failed)
	})
}

// DistinctWithin returns how many distinct keys came within a span of time that is shorter than the
// window. No key of it is left out; keys that are up to one generation older count too. A filter
// with a window in items refuses it (ErrParameter).
func (r *Reader) DistinctWithin(d time.Duration, options ...CallOption) (Cardinality, error) {
	if d < 0 {
		return Cardinality{}, argument("DistinctWithin: expected a span from 0 on, found %v", d)
	}
	return r.distinctWithin(uint64(d.Microseconds()), C.EBBTIDE_MICROSECONDS, options)
}

// DistinctWithinItems is the same for a window in items: within this many insert operations.
func (r *Reader) DistinctWithinItems(items uint64, options ...CallOption) (Cardinality, error) {
	return r.distinctWithin(items, C.EBBTIDE_ITEMS, options)
}

func (r *Reader) distinctWithin(amount uint64, unit C.uint32_t,
	options []CallOption) (Cardinality, error) {
	return r.distinct(options, func(c *C.struct_ebbtide_filter, into *cardinality,
		call *C.struct_ebbtide_call, failed **C.struct_ebbtide_error) {
		C.ebbtide_distinct_within(c, C.uint64_t(amount), unit, &into.keys, &into.standardError,
			&into.reach, call, failed)
	})
}

// cardinality is what C stores.
type cardinality struct {
	keys, standardError C.double
	reach               C.uint64_t
}

func (r *Reader) distinct(options []CallOption, count func(*C.struct_ebbtide_filter, *cardinality,
	*C.struct_ebbtide_call, **C.struct_ebbtide_error)) (Cardinality, error) {
	call, err := settings(options)
	if err != nil {
		return Cardinality{}, err
	}
	var into cardinality
	err = r.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
		count(c, &into, &call, failed)
	})
	if err != nil {
		return Cardinality{}, err
	}
	return Cardinality{float64(into.keys), float64(into.standardError), uint64(into.reach)}, nil
}

// Position returns how far a source was read, as the committed batches say; false if it has no
// position.
func (r *Reader) Position(source uint64) (uint64, bool, error) {
	var position C.uint64_t
	var found C.int
	err := r.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
		found = C.ebbtide_position(c, C.uint64_t(source), &position, failed)
	})
	return uint64(position), found == 1, err
}

// Digest returns a hash of the logical state as 32 hexadecimal digits: equal for filters with equal
// parameters after equal operations at equal times. Writers wait meanwhile.
func (r *Reader) Digest() (string, error) {
	var digest string
	err := r.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
		digest = handedOut(C.ebbtide_digest(c, failed))
	})
	return digest, err
}

// Stat returns statistics, as the object of JSON that the command `ebbtide stat --json` prints.
func (r *Reader) Stat() (json.RawMessage, error) {
	var stat string
	err := r.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
		stat = handedOut(C.ebbtide_stat(c, failed))
	})
	return json.RawMessage(stat), err
}
