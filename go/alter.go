package ebbtide

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// Altered is what Filter.Alter has done.
type Altered struct {
	// LSN is that of the alteration: as of it the filter has the new parameters.
	LSN uint64
	// Operations is how many insertions and removals of the log the filter now has.
	Operations uint64
	// Since is the time of the first of them, or zero.
	Since time.Time
	// Stopped is for how long writers were stopped at the end.
	Stopped time.Duration
	// IsWhole is whether the log reaches back to the creation of the filter.
	IsWhole bool
}

// Alter gives the filter another window, rate, capacity or kind, while this and other processes use
// it, from the log that is kept. Parameters that the spec does not name have their defaults.
// Writers wait at the end, about two seconds for each GiB of the filter. With forget, keys of which
// the log has no record any more are forgotten; without it the filter stays as it is if some of
// them would be in the new window (ErrNotKept).
func (f *Filter) Alter(spec string, forget bool) (Altered, error) {
	found := C.struct_ebbtide_altered{size: C.sizeof_struct_ebbtide_altered}
	var flags C.uint32_t
	if forget {
		flags = C.EBBTIDE_FORGET
	}
	err := texts(func(t []*C.char) error {
		return f.h.with(func(c *C.struct_ebbtide_filter, failed **C.struct_ebbtide_error) {
			C.ebbtide_alter(c, t[0], flags, &found, failed)
		})
	}, [2]string{"spec", spec})
	if err != nil {
		return Altered{}, err
	}
	return Altered{
		LSN: uint64(found.lsn), Operations: uint64(found.operations),
		Since: since(found.has_since, found.since_us), Stopped: micros(found.stopped_us),
		IsWhole: found.is_whole == 1,
	}, nil
}

func since(there C.uint32_t, micros C.uint64_t) time.Time {
	if there == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(micros))
}

// AlterationPlan is what Filter.Alter would take.
type AlterationPlan struct {
	// Records is how many records of the log it reads.
	Records uint64
	// FirstLSN is that of the first of them; 1 if the log reaches back to the filter's creation.
	FirstLSN uint64
	// Since is the time of the first operation, or zero.
	Since time.Time
	// MemoryBefore is the bytes of memory that the filter takes with the parameters that it has.
	MemoryBefore uint64
	// MemoryAfter is the same with the new ones.
	MemoryAfter uint64
	// HasWindow is whether the log has the whole new window, and no removals that the new kind
	// cannot make; otherwise Alter needs forget.
	HasWindow bool
}

// PlanAlteration returns what Filter.Alter would take. It changes nothing.
func PlanAlteration(path, spec string) (AlterationPlan, error) {
	found := C.struct_ebbtide_alteration_plan{size: C.sizeof_struct_ebbtide_alteration_plan}
	err := texts(func(t []*C.char) error {
		var failed *C.struct_ebbtide_error
		C.ebbtide_plan_alteration(t[0], t[1], &found, &failed)
		return takenIf(failed)
	}, [2]string{"path", path}, [2]string{"spec", spec})
	if err != nil {
		return AlterationPlan{}, err
	}
	return AlterationPlan{
		Records: uint64(found.records), FirstLSN: uint64(found.first_lsn),
		Since:        since(found.has_since, found.since_us),
		MemoryBefore: uint64(found.memory_before), MemoryAfter: uint64(found.memory_after),
		HasWindow: found.has_window == 1,
	}, nil
}

// Share is one of some equal shares of all keys, divided by their hash. The zero value is all keys.
type Share struct {
	// Number is its number, from 0.
	Number uint64
	// Of is how many shares there are; 0 for all keys.
	Of uint64
}

// ShareOf returns the number of the share that a key hash belongs to.
func ShareOf(hash, shares uint64) (uint64, error) {
	var share C.uint64_t
	var failed *C.struct_ebbtide_error
	C.ebbtide_share_of(C.uint64_t(hash), C.uint64_t(shares), &share, &failed)
	return uint64(share), takenIf(failed)
}

// Remade is what Remake has made.
type Remade struct {
	// Operations is how many insertions and removals the new filter has taken.
	Operations uint64
	// Since is the time of the first of them, or zero.
	Since time.Time
	// IsWhole is whether the logs reach back to the creation of each filter.
	IsWhole bool
}

// Remake makes a filter in a directory that does not exist from the logs of others: of one filter
// the same with other parameters, of several with one hash-seed their union.
func Remake(filters []string, path, spec string, share Share, options ...Option) (Remade, error) {
	if len(filters) == 0 {
		return Remade{}, argument("Remake: expected a filter or more, found none")
	}
	found := C.struct_ebbtide_remade{size: C.sizeof_struct_ebbtide_remade}
	named := [][2]string{
		{"path", path}, {"spec", spec}, {"options", joined(options)},
	}
	for _, filter := range filters {
		named = append(named, [2]string{"filter", filter})
	}
	err := texts(func(t []*C.char) error {
		// An array of C: cgo allows no pointer in Go's memory to be passed.
		all := (**C.char)(C.calloc(C.size_t(len(filters)), C.size_t(unsafe.Sizeof(t[0]))))
		defer C.free(unsafe.Pointer(all))
		copy(unsafe.Slice(all, len(filters)), t[3:])
		var failed *C.struct_ebbtide_error
		C.ebbtide_remake(all, C.size_t(len(filters)), t[0], t[1], t[2], C.uint64_t(share.Number),
			C.uint64_t(share.Of), &found, &failed)
		return takenIf(failed)
	}, named...)
	if err != nil {
		return Remade{}, err
	}
	return Remade{
		Operations: uint64(found.operations), Since: since(found.has_since, found.since_us),
		IsWhole: found.is_whole == 1,
	}, nil
}
