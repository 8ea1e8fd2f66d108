package ebbtide

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Moment is a moment of a filter's past. The zero value is the oldest one that the log has; only
// OpenHistory takes it.
type Moment struct {
	at     uint32
	number uint64
	source uint64
	// wrong is a time that no moment can have.
	wrong *time.Time
}

// MomentLSN is after the record with this LSN.
func MomentLSN(lsn uint64) Moment { return Moment{at: C.EBBTIDE_AT_LSN, number: lsn} }

// MomentTime is before the first operation that is later than this time.
func MomentTime(t time.Time) Moment {
	micros, ok := microsSince1970(t)
	if !ok {
		return Moment{wrong: &t}
	}
	return Moment{at: C.EBBTIDE_AT_TIME, number: micros}
}

// MomentPosition is before the position of a source passed this one.
func MomentPosition(source, position uint64) Moment {
	return Moment{at: C.EBBTIDE_AT_POSITION, number: position, source: source}
}

func (m Moment) c() (C.struct_ebbtide_moment, error) {
	if m.wrong != nil {
		return C.struct_ebbtide_moment{}, argument(
			"MomentTime: expected a time after 1969 and before 294247, found %v", *m.wrong)
	}
	return C.struct_ebbtide_moment{
		at: C.uint32_t(m.at), number: C.uint64_t(m.number), source: C.uint64_t(m.source),
	}, nil
}

// Kind is the kind of an operation in the log. A later version may have kinds that are not listed.
type Kind uint32

// The kinds of operations.
const (
	// OperationOther is one that this version does not distinguish.
	OperationOther Kind = C.EBBTIDE_OPERATION_OTHER
	// OperationInsert has Hash and Weight.
	OperationInsert Kind = C.EBBTIDE_OPERATION_INSERT
	// OperationRemove has Hash and Weight.
	OperationRemove Kind = C.EBBTIDE_OPERATION_REMOVE
	// OperationClear removed all keys.
	OperationClear Kind = C.EBBTIDE_OPERATION_CLEAR
	// OperationPosition has Source and Position.
	OperationPosition Kind = C.EBBTIDE_OPERATION_POSITION
	// OperationClaim is a new claim or one that was extended. It has Hash, Token and Lease.
	OperationClaim Kind = C.EBBTIDE_OPERATION_CLAIM
	// OperationRelease is the end of a claim. It has Hash and Token.
	OperationRelease Kind = C.EBBTIDE_OPERATION_RELEASE
)

// Operation is an operation in the log of a filter. Those of a batch form a commit: they come one
// after the other, and all are there as soon as the first one is. Fields that its kind does not
// have are 0.
type Operation struct {
	// Kind is its kind.
	Kind Kind
	// LSN is that of its record.
	LSN uint64
	// CommitLSN is that of the last record of its commit: continue after it.
	CommitLSN uint64
	// Timeline is the number of the opening of a filter that nobody else had open.
	Timeline uint64
	// Left is how many operations of the same commit come after this one.
	Left uint64
	// Time is when, by the filter's time; zero if the filter has no clock.
	Time time.Time
	// IsStreamTime is whether the time came with the key, and not from a clock.
	IsStreamTime bool
	// Hash is that of the key: Filter.KeyHash.
	Hash uint64
	// Weight is how often the key was inserted or removed, or its importance.
	Weight uint32
	// Source is what was read.
	Source uint64
	// Position is up to where it was read.
	Position uint64
	// Token is that of the claim.
	Token uint64
	// Lease is for how long the claim holds from Time on.
	Lease time.Duration
}

// History is the operations in the log of a filter, one by one, while others write it. No operation
// comes twice, and none is left out. One goroutine reads it, by Next or Wait with Operation and
// Err; meanwhile others may ask for its Position and close it.
//
//	for log.Wait(ctx) {
//		one := log.Operation()
//		…
//	}
//	return log.Err()
type History struct {
	path    string
	closing atomic.Bool
	// mu is held for a slice at most.
	mu      sync.Mutex
	history *C.struct_ebbtide_history
	current Operation
	err     error
}

// OpenHistory opens the log of a filter, from the first operation that had not happened at that
// moment; Moment{} is the oldest one that is kept (see WithKeptLog). With withUndurable operations
// come before they are on the disk: a power cut may take them back, and the next call then fails
// with ErrNotKept. The filter need not be open in this process.
func OpenHistory(path string, after Moment, withUndurable bool) (*History, error) {
	moment, err := after.c()
	if err != nil {
		return nil, err
	}
	var flags C.uint32_t
	if withUndurable {
		flags = C.EBBTIDE_WITH_UNDURABLE
	}
	from := &moment
	if after == (Moment{}) {
		from = nil
	}
	h := &History{path: path}
	err = texts(func(t []*C.char) error {
		var failed *C.struct_ebbtide_error
		h.history = C.ebbtide_history_open(t[0], from, flags, &failed)
		return takenIf(failed)
	}, [2]string{"path", path})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(h, func(h *History) { _ = h.Close() })
	return h, nil
}

// Close releases the history. A Wait that is running returns false. Again: nothing.
func (h *History) Close() error {
	h.closing.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	runtime.SetFinalizer(h, nil)
	C.ebbtide_history_close(h.history)
	h.history = nil
	return nil
}

// Next reads the next operation. It returns false at the present end of the log, where Err is nil,
// and on an error. Asked again later, it continues with what came since.
func (h *History) Next() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, err := h.read(0)
	h.err = err
	return found
}

// slice is how long a call of C waits: it notices the end of a context afterwards only.
const slice = 20 * time.Millisecond

// Wait reads the next operation, and waits for it to come, also while another process opens or
// closes the filter. It returns false if the context ends, which Err returns, and on an error.
func (h *History) Wait(ctx context.Context) bool {
	for {
		if done, found := h.waitOnce(ctx); done {
			return found
		}
	}
}

// waitOnce waits for a slice, and returns whether Wait is done and what it then returns. Other
// methods have their turn between two slices: a mutex for which somebody has waited for long is
// theirs next.
func (h *History) waitOnce(ctx context.Context) (done, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := ctx.Err()
	if err == nil {
		found, err = h.read(slice)
	}
	done = found || err != nil
	if done {
		h.err = err
	}
	return done, found
}

// read reads the next operation into current.
func (h *History) read(timeout time.Duration) (bool, error) {
	if h.history == nil || h.closing.Load() {
		return false, &Error{
			Code: ErrClosed, Path: h.path, Message: h.path + ": the history is closed",
		}
	}
	read := C.shim_read(h.history, C.uint64_t(timeout.Milliseconds()))
	if read.error != nil {
		return false, taken(read.error)
	}
	if read.found == 0 {
		return false, nil
	}
	one := &read.operation
	h.current = Operation{
		Kind: Kind(one.kind), LSN: uint64(one.lsn), CommitLSN: uint64(one.commit_lsn),
		Timeline: uint64(one.timeline), Left: uint64(one.left),
		IsStreamTime: one.flags&C.EBBTIDE_IS_STREAM_TIME != 0,
		Hash:         uint64(one.hash), Weight: uint32(one.weight),
		Source: uint64(one.source), Position: uint64(one.position),
		Token: uint64(one.token), Lease: micros(one.lease_us),
	}
	if one.flags&C.EBBTIDE_HAS_TIME != 0 {
		h.current.Time = time.UnixMicro(int64(one.time_us))
	}
	return true, nil
}

// Operation returns the operation that Next or Wait has read.
func (h *History) Operation() Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// Err returns the error that made the last Next or Wait return false; nil at the present end.
func (h *History) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Position returns the LSN at which reading continues. A program that is started again continues
// there with MomentLSN of one less; it begins with the first operation of a commit of which only a
// part was returned.
func (h *History) Position() (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.history == nil {
		return 0, &Error{Code: ErrClosed, Path: h.path, Message: h.path + ": the history is closed"}
	}
	var lsn C.uint64_t
	var failed *C.struct_ebbtide_error
	C.ebbtide_history_position(h.history, &lsn, &failed)
	return uint64(lsn), takenIf(failed)
}

// Restored is what RestoreAt has made.
type Restored struct {
	// NextLSN is the LSN that the next record of the new filter gets.
	NextLSN uint64
	// Inserts is how many inserts are in its state.
	Inserts uint64
}

// RestoreAt makes a filter in a directory that does not exist, which is what another one was at a
// moment of its past. Others may use that one meanwhile.
func RestoreAt(filter string, at Moment, path string) (Restored, error) {
	moment, err := at.c()
	if err != nil {
		return Restored{}, err
	}
	var lsn, inserts C.uint64_t
	err = texts(func(t []*C.char) error {
		var failed *C.struct_ebbtide_error
		C.ebbtide_restore_at(t[0], &moment, t[1], &lsn, &inserts, &failed)
		return takenIf(failed)
	}, [2]string{"filter", filter}, [2]string{"path", path})
	if err != nil {
		return Restored{}, err
	}
	return Restored{uint64(lsn), uint64(inserts)}, nil
}
