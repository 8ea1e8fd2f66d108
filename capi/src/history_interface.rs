//! The exported functions of the past of a filter; as `interface`.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::failure::Failure;
use crate::handle::{Handle, restore_at};
use crate::history::{Log, Logged, Moment};
use crate::interface::hand_out_handle;
use crate::pointers::{self, Place, handle, log, moment, put, run};
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;
use std::{mem, ptr};

/// Returns a handle for queries to a filter as it was at a moment of its past, from the log that is
/// kept (the option keep-log). The answers are those that the filter gave then: its time stands
/// still at the moment's last operation, and no later one changes them. The state is rebuilt in
/// memory, while others write.
///
/// Returns NULL on an error, such as EBBTIDE_NOT_KEPT if the log does not have the moment. Close
/// the handle with ebbtide_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_reader_open_at(
    path: *const c_char,
    at: *const Moment,
    options: *const c_char,
    error: *mut *mut Failure,
) -> *mut Handle {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, ptr::null_mut(), || {
            let (path, options) = (pointers::path(path)?, pointers::options(options)?);
            Ok(hand_out_handle(Handle::open_reader_at(path, moment(at)?, options)?))
        })
    }
}

/// Makes a filter in a directory that does not exist, which is what another one was at a moment of
/// its past, from the log that is kept (the option keep-log). Others may use that one meanwhile.
/// The new filter continues the old one, as after ebbtide_restore, and keeps no log until it is
/// opened with that option.
///
/// Stores in *lsn the LSN that the next record of the new filter gets, and in *inserts how many
/// inserts are in its state; both may be NULL. Returns 0, or -1 on an error, such as
/// EBBTIDE_NOT_KEPT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_restore_at(
    filter: *const c_char,
    at: *const Moment,
    path: *const c_char,
    lsn: *mut u64,
    inserts: *mut u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, path) = (pointers::path(filter)?, pointers::path(path)?);
            let (next, found) = restore_at(filter, moment(at)?, path)?;
            put(lsn, next);
            put(inserts, found);
            Ok(0)
        })
    }
}

/// Opens the log of a filter to read the operations in it one by one, while others write it: from
/// the oldest one that is kept (the option keep-log) if after is NULL, otherwise from the first one
/// that had not happened at that moment. No operation comes twice, and none is left out, whichever
/// processes write, and whether they are killed. flags are EBBTIDE_WITH_UNDURABLE or 0.
///
/// The filter need not be open in this process. One thread at a time uses a history. In a forked
/// child it returns EBBTIDE_FORKED: open another one there. Returns NULL on an error. Release it
/// with ebbtide_history_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_history_open(
    path: *const c_char,
    after: *const Moment,
    flags: u32,
    error: *mut *mut Failure,
) -> *mut Log {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, ptr::null_mut(), || {
            let log = Log::open(pointers::path(path)?, after.as_ref(), flags)?;
            Ok(Box::into_raw(Box::new(log)))
        })
    }
}

/// Reads the next operation. Returns 1, or 0 at the present end of the log: asked again later, it
/// continues with what came since. Returns -1 on an error; then, and with the answer 0, *operation
/// is as it was. EBBTIDE_NOT_KEPT: the log that comes next has been removed meanwhile.
/// EBBTIDE_LOCKED: another process is opening or closing the filter; ask again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_history_read(
    history: *mut Log,
    operation: *mut Logged,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, -1, || next(history, None, operation)) }
}

/// As ebbtide_history_read, but waits up to timeout_ms milliseconds for an operation to come, also
/// while another process opens or closes the filter. UINT64_MAX: as long as it takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_history_wait(
    history: *mut Log,
    timeout_ms: u64,
    operation: *mut Logged,
    error: *mut *mut Failure,
) -> c_int {
    let wait = Some(Duration::from_millis(timeout_ms));
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, -1, || next(history, wait, operation)) }
}

/// # Safety
/// As [`log`] and [`Place::of`].
unsafe fn next(
    history: *mut Log,
    wait: Option<Duration>,
    operation: *mut Logged,
) -> crate::failure::Result<c_int> {
    // SAFETY: as demanded above.
    let (history, place) = unsafe { (log(history)?, Place::of(operation)?) };
    let place = place.needed()?;
    let Some(found) = history.next(wait)? else { return Ok(0) };
    place.fill(found);
    Ok(1)
}

/// Stores in *lsn the LSN at which reading continues: all operations below it were returned. A
/// program that is started again continues there with EBBTIDE_AT_LSN of one less; it begins with
/// the first operation of a commit of which only a part was returned. lsn may be NULL. Returns 0,
/// or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_history_position(
    history: *mut Log,
    lsn: *mut u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            put(lsn, log(history)?.position());
            Ok(0)
        })
    }
}

/// Releases a history. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_history_close(history: *mut Log) {
    if !history.is_null() {
        // SAFETY: the header demands a pointer that this library has returned, once.
        mem::drop(unsafe { Box::from_raw(history) });
    }
}

/// Stores in *hash the hash by which the log and ebbtide_claims name a key of length bytes. It
/// depends on the filter's secret seed: do not show it to those who could choose keys by it.
/// Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_key_hash(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    hash: *mut u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            put(hash, filter.key_hash(key)?);
            Ok(0)
        })
    }
}
