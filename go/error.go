package ebbtide

// #include "shim.h"
import "C"

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Code is what failed. The constants Err… are codes, so that errors.Is(err, ErrLocked) asks for
// one. A later version of the library may return codes that are not listed here.
type Code int

// The codes of errors.
const (
	// ErrIO: the operating system refused an operation, for another reason than a full disk.
	ErrIO Code = C.EBBTIDE_IO
	// ErrFullDisk: the disk is full. Nothing is lost; the same filter writes again once there is
	// space. errors.Is also finds syscall.ENOSPC.
	ErrFullDisk Code = C.EBBTIDE_FULL_DISK
	// ErrDamaged: a file has invalid content. The message names it, the offset and the remedy.
	ErrDamaged Code = C.EBBTIDE_DAMAGED
	// ErrVersion: a file was written by another version of the format.
	ErrVersion Code = C.EBBTIDE_VERSION
	// ErrNotAFilter: there is no filter in this directory. errors.Is also finds fs.ErrNotExist.
	ErrNotAFilter Code = C.EBBTIDE_NOT_A_FILTER
	// ErrExists: a filter exists where a new one should be created. Also fs.ErrExist.
	ErrExists Code = C.EBBTIDE_EXISTS
	// ErrOccupied: a file of another program has the name of one of the filter's.
	ErrOccupied Code = C.EBBTIDE_OCCUPIED
	// ErrMismatch: the filter exists, and differs from the spec or the options.
	ErrMismatch Code = C.EBBTIDE_MISMATCH
	// ErrParameter: a parameter or an option has a value that is not allowed.
	ErrParameter Code = C.EBBTIDE_PARAMETER
	// ErrLocked: another handle has been opening, closing or recovering the filter for a minute, or
	// has it open where that is not allowed.
	ErrLocked Code = C.EBBTIDE_LOCKED
	// ErrCrowded: the filter has as many open handles as it can have.
	ErrCrowded Code = C.EBBTIDE_CROWDED
	// ErrForked: the handle was opened before this process was forked off.
	ErrForked Code = C.EBBTIDE_FORKED
	// ErrClosed: the filter, batch or history is closed. Also fs.ErrClosed.
	ErrClosed Code = C.EBBTIDE_CLOSED
	// ErrRetired: the filter was closed, recovered or replaced by others meanwhile. Close it and
	// open it again.
	ErrRetired Code = C.EBBTIDE_RETIRED
	// ErrPoisoned: writes are refused because a sync failed. Close all handles and open it again.
	ErrPoisoned Code = C.EBBTIDE_POISONED
	// ErrTimeAhead: the given time is too far ahead of the clock.
	ErrTimeAhead Code = C.EBBTIDE_TIME_AHEAD
	// ErrUnsupported: the filter's kind, or a reader, does not have this operation.
	ErrUnsupported Code = C.EBBTIDE_UNSUPPORTED
	// ErrWouldWait: the call would have to wait, and has WithoutWaiting. Nothing has happened; of a
	// call with several keys, those before the one that would wait are inserted.
	ErrWouldWait Code = C.EBBTIDE_WOULD_WAIT
	// ErrConflict: a key that Batch.CheckAndInsert answered as new was inserted by another caller
	// before the commit. Nothing of the batch was written: clear it, take the same messages again.
	ErrConflict Code = C.EBBTIDE_CONFLICT
	// ErrLeaseLost: the claim is over. Nothing has happened.
	ErrLeaseLost Code = C.EBBTIDE_LEASE_LOST
	// ErrClaimsFull: the filter holds as many claims as it can. Nothing has happened.
	ErrClaimsFull Code = C.EBBTIDE_CLAIMS_FULL
	// ErrNotKept: a moment of the past that the log does not reach.
	ErrNotKept Code = C.EBBTIDE_NOT_KEPT
	// ErrArgument: an argument is not allowed. Nothing has happened.
	ErrArgument Code = C.EBBTIDE_ARGUMENT
	// ErrPanic: the library has a defect. Close the filter, and please report the message.
	ErrPanic Code = C.EBBTIDE_PANIC
)

var names = map[Code]string{
	ErrIO: "the operating system refused an operation", ErrFullDisk: "the disk is full",
	ErrDamaged: "a file is damaged", ErrVersion: "another version of the format",
	ErrNotAFilter: "not a filter", ErrExists: "the filter exists",
	ErrOccupied: "a file of another program", ErrMismatch: "the filter differs",
	ErrParameter: "a parameter is not allowed", ErrLocked: "the filter is locked",
	ErrCrowded: "too many handles", ErrForked: "opened before a fork", ErrClosed: "closed",
	ErrRetired: "the handle is retired", ErrPoisoned: "the filter refuses writes",
	ErrTimeAhead: "a time ahead of the clock", ErrUnsupported: "no such operation",
	ErrWouldWait: "the call would wait", ErrConflict: "a key was inserted meanwhile",
	ErrLeaseLost: "the claim is over", ErrClaimsFull: "too many claims",
	ErrNotKept: "the log does not reach that moment", ErrArgument: "an argument is not allowed",
	ErrPanic: "internal error",
}

// Error returns what the code means, in a few words.
func (c Code) Error() string {
	if name, ok := names[c]; ok {
		return "ebbtide: " + name
	}
	return fmt.Sprintf("ebbtide: error %d", int(c))
}

// Is returns whether the code means the same as an error of package fs or syscall.
func (c Code) Is(target error) bool {
	switch c {
	case ErrNotAFilter:
		return target == fs.ErrNotExist
	case ErrExists:
		return target == fs.ErrExist
	case ErrClosed:
		return target == fs.ErrClosed
	case ErrFullDisk:
		return target == syscall.ENOSPC
	}
	return false
}

// Error is every error of the library. errors.As finds one, errors.Is its code.
type Error struct {
	// Code is what failed.
	Code Code
	// Message is a sentence with the file, what was expected, what was found, and the remedy.
	Message string
	// Path is the file or directory that the error is about, or empty.
	Path string
}

// Error returns the message.
func (e *Error) Error() string { return "ebbtide: " + e.Message }

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

// taken turns an error of C, which is not nil, into one of Go, and releases it.
func taken(failure *C.struct_ebbtide_error) error {
	defer C.ebbtide_error_free(failure)
	found := &Error{
		Code:    Code(C.ebbtide_error_code(failure)),
		Message: C.GoString(C.ebbtide_error_message(failure)),
	}
	if path := C.ebbtide_error_path(failure); path != nil {
		found.Path = C.GoString(path)
	}
	return found
}

// argument returns the error for a wrong argument.
func argument(format string, values ...any) error {
	return &Error{Code: ErrArgument, Message: fmt.Sprintf(format, values...)}
}

// failure returns the error of an answer, if it has one.
func failure(answer C.struct_shim_answer) error {
	if answer.error != nil {
		return taken(answer.error)
	}
	return nil
}

// noNul refuses a text with a NUL byte, which would end it too early in C.
func noNul(name, text string) error {
	if at := strings.IndexByte(text, 0); at >= 0 {
		return argument("%s: expected no NUL byte, found one at offset %d", name, at)
	}
	return nil
}
