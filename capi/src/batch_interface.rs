//! The exported functions of batches; as `interface`.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::batch::Pending;
use crate::call::Settings;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::interface::answer;
use crate::pointers::{self, handle, pending, put, run, with_settings};
use std::ffi::{c_int, c_void};
use std::{mem, ptr};

/// Returns an empty batch: keys and positions that are written in one atomic step. Nothing of a
/// batch is written, and nobody sees any of it, before ebbtide_batch_commit; after that all of it
/// counts. If the commit fails, or the process dies before it has ended, all or nothing does.
///
/// A position is a number of a source, such as an offset in a file. After a crash ebbtide_position
/// returns the one that belongs to exactly the keys that the filter remembers.
///
/// The call has the settings of all operations of the batch. One thread at a time uses a batch.
/// Returns NULL on an error. Release the batch with ebbtide_batch_free before the filter is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_new(
    filter: *mut Handle,
    call: *const Settings,
    error: *mut *mut Failure,
) -> *mut Pending {
    // SAFETY: the header demands valid pointers, and a filter that outlives its batches.
    unsafe {
        run(error, ptr::null_mut(), || {
            let filter: &'static Handle = handle(filter)?;
            let batch = with_settings(call, |call| Pending::new(filter, call))?;
            Ok(Box::into_raw(Box::new(batch)))
        })
    }
}

/// Adds the insert of a key of length bytes. Of the call, which may be NULL, time and weight count:
/// they are those of this key. A key that is too late when the batch is committed is left out.
/// Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_insert(
    batch: *mut Pending,
    key: *const c_void,
    length: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (batch, key) = (pending(batch)?, pointers::key(key, length)?);
            with_settings(call, |call| batch.insert(key, call).map(|()| 0))
        })
    }
}

/// Adds the insert of a key, and answers whether it is new: as ebbtide_check_and_insert would if
/// each earlier operation of the batch had been a single one. If another caller inserts a new
/// key before the commit, the commit fails with EBBTIDE_CONFLICT.
///
/// Returns EBBTIDE_NEW, EBBTIDE_PRESENT or EBBTIDE_TOO_LATE, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_check_and_insert(
    batch: *mut Pending,
    key: *const c_void,
    length: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (batch, key) = (pending(batch)?, pointers::key(key, length)?);
            with_settings(call, |call| Ok(answer(batch.check_and_insert(key, call)?)))
        })
    }
}

/// Sets the position of a source when the batch is committed; the last one counts. A filter keeps
/// the positions of 256 sources. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_set_position(
    batch: *mut Pending,
    source: u64,
    position: u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, -1, || pending(batch)?.set_position(source, position).map(|()| 0)) }
}

/// Writes the batch: all of it, or nothing. Afterwards it is empty, and can be filled again.
///
/// Returns 0, or -1 on an error. After EBBTIDE_CONFLICT and EBBTIDE_LEASE_LOST clear the batch and
/// take the same messages again; after EBBTIDE_WOULD_WAIT the commit may be repeated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_commit(
    batch: *mut Pending,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, -1, || pending(batch)?.commit().map(|()| 0)) }
}

/// Forgets what a batch holds; it can be filled again. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_clear(
    batch: *mut Pending,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            pending(batch)?.clear();
            Ok(0)
        })
    }
}

/// Releases a batch; what was not committed has no effect. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_free(batch: *mut Pending) {
    if !batch.is_null() {
        // SAFETY: the header demands a pointer that this library has returned, once.
        mem::drop(unsafe { Box::from_raw(batch) });
    }
}

/// Reads how far a source was read, as the committed batches say. Returns 1 and stores it in
/// *position, which may be NULL, or returns 0 if the source has none, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_position(
    filter: *mut Handle,
    source: u64,
    position: *mut u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let Some(found) = handle(filter)?.position(source)? else { return Ok(0) };
            put(position, found);
            Ok(1)
        })
    }
}
