//! The exported functions of claims; as `interface`.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::batch::Pending;
use crate::call::Settings;
use crate::failure::Failure;
use crate::handle::{Claimed, Handle};
use crate::history::micros;
use crate::pointers::{self, handle, pending, put, run, with_settings};
use std::ffi::{c_int, c_void};

/// Answer of ebbtide_claim: the key was in the window, or is a false positive. The work was done.
pub const EBBTIDE_SEEN: c_int = 0;
/// Answer of ebbtide_claim: the key is the caller's to work on, and nobody else's.
pub const EBBTIDE_YOURS: c_int = 1;
/// Answer of ebbtide_claim: somebody else is working on the key.
pub const EBBTIDE_IN_PROGRESS: c_int = 2;

/// A claim that is held, from ebbtide_claims. This structure has the same members in all versions.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// The hash of the key: ebbtide_key_hash.
    pub hash: u64,
    /// The token.
    pub token: u64,
    /// How long ago the claim began, in microseconds.
    pub age_us: u64,
    /// When it ends if it is not renewed, in microseconds from now.
    pub remaining_us: u64,
}

/// Claims a key for work that may fail, for lease_ms milliseconds, from 1 to 97 days. Of any number
/// of callers in all threads and processes one receives EBBTIDE_YOURS; it works, and then calls
/// ebbtide_confirm, which inserts the key, or ebbtide_release. Nothing is released automatically:
/// what is neither confirmed nor released, nor renewed by ebbtide_extend, ends with its lease.
///
/// With EBBTIDE_YOURS, *token is the number of the claim, which is greater than that of every
/// earlier one of the filter; any thread or process that knows key and token may continue. With
/// EBBTIDE_IN_PROGRESS, *until_us is when the lease of the other caller ends if it is not renewed,
/// in microseconds since the Unix epoch by the clock as it is now; until_us may be NULL. Otherwise
/// token and until_us are not written. A time of the call is that of the question.
///
/// Returns EBBTIDE_SEEN, EBBTIDE_YOURS or EBBTIDE_IN_PROGRESS, or -1 on an error, such as
/// EBBTIDE_CLAIMS_FULL: a filter holds up to 65536 claims at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_claim(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    lease_ms: u64,
    token: *mut u64,
    until_us: *mut u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            if token.is_null() {
                return Err(Failure::argument("the place of the token is NULL"));
            }
            match with_settings(call, |call| filter.claim(key, lease_ms, call))? {
                Claimed::Seen => Ok(EBBTIDE_SEEN),
                Claimed::Yours { token: given } => {
                    put(token, given);
                    Ok(EBBTIDE_YOURS)
                }
                Claimed::InProgress { until } => {
                    put(until_us, until);
                    Ok(EBBTIDE_IN_PROGRESS)
                }
            }
        })
    }
}

/// Inserts a claimed key and ends its claim, both in one atomic step. A time of the call is that of
/// the insert; if it is too late for the window, the claim ends, and the key is not inserted.
///
/// Returns 0, or -1 on an error. After EBBTIDE_LEASE_LOST the key is not inserted: the lease was
/// over, and somebody else may be working on the key. After EBBTIDE_POISONED it is not known
/// whether it is inserted and the claim has ended: the filter, opened again, says so. After other
/// errors the claim stays, and may be confirmed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_confirm(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    token: u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            with_settings(call, |call| filter.confirm((key, token), call).map(|()| 0))
        })
    }
}

/// Ends a claim without an insert: the key may be claimed again at once. Returns 1, or 0 if the
/// claim was not held any more, so that nothing was changed, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_release(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    token: u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            with_settings(call, |call| Ok(c_int::from(filter.release((key, token), call)?)))
        })
    }
}

/// Renews a claim: its lease ends lease_ms milliseconds after now. Stores when in *until_us, as
/// ebbtide_claim, unless that is NULL. Returns 0, or -1 on an error, such as EBBTIDE_LEASE_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_extend(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    token: u64,
    lease_ms: u64,
    until_us: *mut u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            let until = with_settings(call, |call| filter.extend((key, token), lease_ms, call))?;
            put(until_us, until);
            Ok(0)
        })
    }
}

/// Ends the claim of a key, whoever holds it, if its holder is known to be gone. Returns 1, or 0 if
/// there was none, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_end_claim(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            with_settings(call, |call| Ok(c_int::from(filter.end_claim(key, call)?)))
        })
    }
}

/// Lists the claims that are held, the oldest first: stores up to room of them in the array claims,
/// which may be NULL if room is 0. Returns how many are held, which may be more than room, or -1 on
/// an error. A filter holds up to 65536.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_claims(
    filter: *mut Handle,
    claims: *mut Held,
    room: usize,
    error: *mut *mut Failure,
) -> i64 {
    // SAFETY: the header demands valid pointers, and an array with room for the claims.
    unsafe {
        run(error, -1, || {
            let filter = handle(filter)?;
            if claims.is_null() && room != 0 {
                return Err(Failure::argument("the array of claims is NULL"));
            }
            let held = filter.claims()?;
            for (at, claim) in held.iter().take(room).enumerate() {
                let (age_us, remaining_us) = (micros(claim.age), micros(claim.remaining));
                let (hash, token) = (claim.hash, claim.token);
                put(claims.add(at), Held { hash, token, age_us, remaining_us });
            }
            Ok(held.len() as i64)
        })
    }
}

/// Adds to a batch the insert of a claimed key, and the end of its claim: as ebbtide_confirm,
/// together with the rest of the batch. Of the call, which may be NULL, the time counts. The claim
/// is the batch's then: one that is cleared or freed releases the key. The claim must be one of the
/// batch's filter: another filter may have given the same token to somebody else.
///
/// Returns 0, or -1 on an error. Any error other than EBBTIDE_ARGUMENT ends the claim, too: the key
/// is released, and is to be claimed again. Such errors are EBBTIDE_PARAMETER, if the batch has no
/// room, and EBBTIDE_TIME_AHEAD. If the lease is over before the commit, that fails with
/// EBBTIDE_LEASE_LOST, and nothing of the batch is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_batch_confirm(
    batch: *mut Pending,
    key: *const c_void,
    length: usize,
    token: u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (batch, key) = (pending(batch)?, pointers::key(key, length)?);
            with_settings(call, |call| batch.confirm((key, token), call).map(|()| 0))
        })
    }
}
