package ebbtide

// #include "shim.h"
import "C"

// Insert inserts a key. It returns false if its time lies before the window, so that nothing was
// changed.
func (f *Filter) Insert(key []byte, options ...CallOption) (bool, error) {
	answer, err := f.h.bytes(C.SHIM_INSERT, key, options)
	return answer.value == 1, err
}

// InsertString is Insert for a string, which is not copied.
func (f *Filter) InsertString(key string, options ...CallOption) (bool, error) {
	answer, err := f.h.text(C.SHIM_INSERT, key, options)
	return answer.value == 1, err
}

// CheckAndInsert queries and inserts a key in one step: of concurrent callers with the same new
// key, in any number of processes, exactly one receives New.
func (f *Filter) CheckAndInsert(key []byte, options ...CallOption) (Checked, error) {
	answer, err := f.h.bytes(C.SHIM_CHECK_AND_INSERT, key, options)
	return checked(answer, err)
}

// CheckAndInsertString is CheckAndInsert for a string, which is not copied.
func (f *Filter) CheckAndInsertString(key string, options ...CallOption) (Checked, error) {
	answer, err := f.h.text(C.SHIM_CHECK_AND_INSERT, key, options)
	return checked(answer, err)
}

func checked(answer C.struct_shim_answer, err error) (Checked, error) {
	if err != nil {
		return Unanswered, err
	}
	return Checked(answer.value), nil
}

// Remove removes a key once (kinds that count). It returns false if the key is not there. Remove
// only keys that were inserted: removing a false positive may make other keys disappear.
func (f *Filter) Remove(key []byte, options ...CallOption) (bool, error) {
	answer, err := f.h.bytes(C.SHIM_REMOVE, key, options)
	return answer.value == 1, err
}

// KeyHash returns the hash by which the log and Claims name a key. It depends on the filter's
// secret seed: do not show it to those who could choose keys by it.
func (f *Filter) KeyHash(key []byte) (uint64, error) {
	answer, err := f.h.bytes(C.SHIM_KEY_HASH, key, nil)
	return uint64(answer.number), err
}
