//! The exported functions that work on a filter as a whole: clear, backup, restore, plan. Their
//! comments become those of the header; what holds for `interface` holds here.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::failure::Failure;
use crate::handle::{Handle, plan, restore};
use crate::pointers::{self, hand_out, handle, run};
use std::ffi::{c_char, c_int};
use std::ptr;

/// Removes all keys in one durable step, which all processes see at once. Positions of sources
/// stay: they are of the stream, not of the keys. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_clear(filter: *mut Handle, error: *mut *mut Failure) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, -1, || handle(filter)?.clear().map(|()| 0)) }
}

/// Copies the filter to a directory that does not exist, while others use it. All operations that
/// had returned are in the copy, which is on the disk when the function returns, and is a filter of
/// its own: open it, or bring it back by ebbtide_restore. Copies of the files of an open filter are
/// none. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_backup(
    filter: *mut Handle,
    path: *const c_char,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let filter = handle(filter)?;
            filter.backup(pointers::path(path)?).map(|()| 0)
        })
    }
}

/// Copies a backup, or any filter that no process has open, to a directory that does not exist. The
/// copy continues the old filter. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_restore(
    backup: *const c_char,
    path: *const c_char,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            restore(pointers::path(backup)?, pointers::path(path)?)?;
            Ok(0)
        })
    }
}

/// Returns what a filter of this spec and these options (NULL for the defaults) will take of memory
/// and disk, and its false-positive rate, as one object of JSON, with the members of
/// `ebbtide plan --json`. Nothing is created. Returns NULL on an error. Release the text with
/// ebbtide_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_plan(
    spec: *const c_char,
    options: *const c_char,
    error: *mut *mut Failure,
) -> *mut c_char {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, ptr::null_mut(), || {
            plan(pointers::spec(spec)?, pointers::options(options)?).and_then(hand_out)
        })
    }
}
