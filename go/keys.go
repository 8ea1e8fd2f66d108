package ebbtide

// #include "shim.h"
import "C"

import "unsafe"

// Keys are keys of a bulk operation, which passes all of them to C in one call. They are copied
// into one piece of memory. Reset keeps that memory, so that filling it again allocates nothing.
//
// The zero value has none. One goroutine at a time uses it.
type Keys struct {
	bytes []byte
	ends  []uint64
}

// KeysOf returns keys from strings.
func KeysOf(keys ...string) *Keys {
	k := &Keys{ends: make([]uint64, 0, len(keys))}
	for _, key := range keys {
		k.AddString(key)
	}
	return k
}

// Add adds a key.
func (k *Keys) Add(key []byte) {
	k.bytes = append(k.bytes, key...)
	k.ends = append(k.ends, uint64(len(k.bytes)))
}

// AddString adds a key from a string.
func (k *Keys) AddString(key string) {
	k.bytes = append(k.bytes, key...)
	k.ends = append(k.ends, uint64(len(k.bytes)))
}

// Len returns how many keys there are.
func (k *Keys) Len() int { return len(k.ends) }

// Reset removes all keys, and keeps the memory.
func (k *Keys) Reset() { k.bytes, k.ends = k.bytes[:0], k.ends[:0] }

func (k *Keys) firstEnd() *C.uint64_t {
	if len(k.ends) == 0 {
		return nil
	}
	return (*C.uint64_t)(unsafe.Pointer(&k.ends[0]))
}

// all runs an operation on keys. answers has room for one each, or is empty.
func (h *handle) all(operation C.int, keys *Keys, answers []byte,
	options []CallOption) (int64, error) {
	call, err := settings(options)
	if err != nil {
		return 0, err
	}
	if err := h.enter(); err != nil {
		return 0, err
	}
	answer := C.shim_all(operation, h.number(), first(keys.bytes), keys.firstEnd(),
		C.size_t(keys.Len()), first(answers), call)
	h.leave()
	if answer.value == C.SHIM_NO_MEMORY {
		return 0, argument("no memory for %d keys; pass fewer in one call", keys.Len())
	}
	return int64(answer.value), failure(answer)
}

// room returns answers with this length, in the memory of those that were given if it suffices.
func room[T ~uint8 | ~bool](answers []T, length int) []T {
	if cap(answers) < length {
		return make([]T, length)
	}
	return answers[:length]
}

// InsertAll inserts keys in order, in one call of C; they become durable together. It returns how
// many were inserted, which is all except those that were too late. After an error the keys before
// the failing one are inserted, and nothing says how many: to continue after an error without
// inserting a key twice, use CheckAndInsertAll, whose answers tell.
func (f *Filter) InsertAll(keys *Keys, options ...CallOption) (int, error) {
	count, err := f.h.all(C.SHIM_INSERT, keys, nil, options)
	if err != nil {
		return 0, err
	}
	return int(count), nil
}

// CheckAndInsertAll queries and inserts keys in order, each in one step as CheckAndInsert, in one
// call of C; they become durable together. It returns an answer for each key, in the memory of
// answers if that suffices; answers may be nil. After an error the keys before the failing one have
// answers and are inserted, and those of the others are Unanswered.
func (f *Filter) CheckAndInsertAll(keys *Keys, answers []Checked,
	options ...CallOption) ([]Checked, error) {
	answers = room(answers, keys.Len())
	for i := range answers {
		answers[i] = Unanswered
	}
	_, err := f.h.all(C.SHIM_CHECK_AND_INSERT, keys, asBytes(answers), options)
	return answers, err
}

// ContainsAll queries keys in order, in one call of C. It returns an answer for each key, in the
// memory of answers if that suffices; answers may be nil. After an error there are none.
func (r *Reader) ContainsAll(keys *Keys, answers []bool, options ...CallOption) ([]bool, error) {
	answers = room(answers, keys.Len())
	// C stores 0 and 1, as Go does for a bool; but after an error it stores EBBTIDE_NO_ANSWER.
	found := asBytes(answers)
	if _, err := r.h.all(C.SHIM_CONTAINS, keys, found, options); err != nil {
		for i := range found {
			found[i] = 0
		}
		return nil, err
	}
	return answers, nil
}

// asBytes returns the memory of answers.
func asBytes[T ~uint8 | ~bool](answers []T) []byte {
	if len(answers) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&answers[0])), len(answers))
}
