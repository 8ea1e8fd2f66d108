//! The codes of errors: those of [`Code`], and two of the interface from 1000 on, where the engine
//! has none.

use engine::Code;
use std::ffi::c_int;

/// The operating system refused an operation, for another reason than a full disk.
pub const EBBTIDE_IO: c_int = 1;
/// The disk is full, or a quota exhausted. Nothing is lost; the same handle writes again once there
/// is space.
pub const EBBTIDE_FULL_DISK: c_int = 2;
/// A file of the filter has invalid content. The message names the file, the offset and the remedy.
pub const EBBTIDE_DAMAGED: c_int = 3;
/// A file was written by another version of the format.
pub const EBBTIDE_VERSION: c_int = 4;
/// There is no filter in this directory.
pub const EBBTIDE_NOT_A_FILTER: c_int = 5;
/// A filter exists where a new one should be created.
pub const EBBTIDE_EXISTS: c_int = 6;
/// A file of another program has the name of one of the filter's.
pub const EBBTIDE_OCCUPIED: c_int = 7;
/// The filter exists, and differs from the spec or the options.
pub const EBBTIDE_MISMATCH: c_int = 8;
/// A parameter, an option or a setting of a call has a value that is not allowed.
pub const EBBTIDE_PARAMETER: c_int = 9;
/// Another handle has been opening, closing or recovering the filter for a minute, or has it open
/// where that is not allowed (ebbtide_restore of an open filter).
pub const EBBTIDE_LOCKED: c_int = 10;
/// The filter has as many open handles as it can have.
pub const EBBTIDE_CROWDED: c_int = 11;
/// The handle was opened before this process was forked off. Open the filter again in the child.
pub const EBBTIDE_FORKED: c_int = 12;
/// The handle is closed.
pub const EBBTIDE_CLOSED: c_int = 13;
/// The filter was closed, recovered or replaced by others meanwhile. Close the handle and open the
/// filter again.
pub const EBBTIDE_RETIRED: c_int = 14;
/// The filter refuses writes, because a sync failed or a thread panicked. Close every handle and
/// open the filter again.
pub const EBBTIDE_POISONED: c_int = 15;
/// The given time is too far ahead of the clock.
pub const EBBTIDE_TIME_AHEAD: c_int = 16;
/// The filter's kind, or the handle (one from ebbtide_reader_open), does not have this operation.
pub const EBBTIDE_UNSUPPORTED: c_int = 17;
/// The call would have to wait, and has the flag EBBTIDE_WITHOUT_WAITING, or longer than wait_us
/// says. Nothing has happened; of a call with several keys, those before the one that would wait
/// are inserted.
pub const EBBTIDE_WOULD_WAIT: c_int = 18;
/// A record does not continue a filter in memory. No function of this library returns it.
pub const EBBTIDE_DIVERGED: c_int = 19;
/// An error that this version does not distinguish.
pub const EBBTIDE_OTHER: c_int = 20;
/// A key that ebbtide_batch_check_and_insert answered as new was inserted by another caller before
/// ebbtide_batch_commit, or by now is a false positive. Nothing of the batch has been written:
/// clear it and take the same messages again.
pub const EBBTIDE_CONFLICT: c_int = 21;
/// The claim is over: its lease has ended, or it was confirmed or released. Nothing has happened.
pub const EBBTIDE_LEASE_LOST: c_int = 22;
/// The filter holds as many claims as it can. Nothing has happened: confirm or release some, or
/// wait until a lease is over.
pub const EBBTIDE_CLAIMS_FULL: c_int = 23;
/// A moment of the past that the log does not reach.
pub const EBBTIDE_NOT_KEPT: c_int = 24;
/// An argument is not allowed, such as a NULL pointer. Nothing has happened.
pub const EBBTIDE_ARGUMENT: c_int = 1000;
/// The library itself has a defect and panicked. Close the handle, and please report the message.
pub const EBBTIDE_PANIC: c_int = 1001;

/// The codes of the engine.
const ENGINE: &[(c_int, Code)] = &[
    (EBBTIDE_IO, Code::Io),
    (EBBTIDE_FULL_DISK, Code::FullDisk),
    (EBBTIDE_DAMAGED, Code::Damaged),
    (EBBTIDE_VERSION, Code::Version),
    (EBBTIDE_NOT_A_FILTER, Code::NotAFilter),
    (EBBTIDE_EXISTS, Code::Exists),
    (EBBTIDE_OCCUPIED, Code::Occupied),
    (EBBTIDE_MISMATCH, Code::Mismatch),
    (EBBTIDE_PARAMETER, Code::Parameter),
    (EBBTIDE_LOCKED, Code::Locked),
    (EBBTIDE_CROWDED, Code::Crowded),
    (EBBTIDE_FORKED, Code::Forked),
    (EBBTIDE_CLOSED, Code::Closed),
    (EBBTIDE_RETIRED, Code::Retired),
    (EBBTIDE_POISONED, Code::Poisoned),
    (EBBTIDE_TIME_AHEAD, Code::TimeAhead),
    (EBBTIDE_UNSUPPORTED, Code::Unsupported),
    (EBBTIDE_WOULD_WAIT, Code::WouldWait),
    (EBBTIDE_DIVERGED, Code::Diverged),
    (EBBTIDE_OTHER, Code::Other),
    (EBBTIDE_CONFLICT, Code::Conflict),
    (EBBTIDE_LEASE_LOST, Code::LeaseLost),
    (EBBTIDE_CLAIMS_FULL, Code::ClaimsFull),
    (EBBTIDE_NOT_KEPT, Code::NotKept),
];

// The numbers are written out, for the header; they are those of the engine, and all of them.
const _: () = {
    assert!(ENGINE.len() == Code::ALL.len(), "a code is missing");
    let mut at = 0;
    while at < ENGINE.len() {
        let (number, code) = ENGINE[at];
        assert!(number as u32 == code.number() && number < EBBTIDE_ARGUMENT, "another number");
        at += 1;
    }
};
