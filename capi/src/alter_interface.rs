//! The exported functions that give filters other parameters; as `interface`.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::altered::{Alteration, Made, Planned};
use crate::failure::Failure;
use crate::handle::{Handle, plan_alteration, remake, share_of};
use crate::pointers::{self, Place, handle, put, run};
use std::ffi::{c_char, c_int};

/// Gives a filter another window, rate, capacity or kind, while this and other processes use it.
/// Afterwards it answers as a filter of this spec that has had all operations in its log (the
/// option keep-log). Parameters that the spec does not name have their defaults. Others write
/// meanwhile, and wait at the end for about two seconds for each GiB of the filter; their handles
/// and batches continue with the filter as it is now. Kinds with importances cannot be altered.
///
/// flags are EBBTIDE_FORGET or 0. altered may be NULL; it is written with the answer 0 only.
///
/// Returns 0, or -1 on an error: EBBTIDE_NOT_KEPT if keys in the new window would be forgotten,
/// EBBTIDE_LOCKED while another handle alters the filter, EBBTIDE_PARAMETER, EBBTIDE_MISMATCH for
/// importances, EBBTIDE_FULL_DISK; EBBTIDE_IO, also if this process cannot have the memory that the
/// altered filter takes, see ebbtide_plan_alteration. The filter is as it was then, or, if the
/// error came at the very end, altered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_alter(
    filter: *mut Handle,
    spec: *const c_char,
    flags: u32,
    altered: *mut Alteration,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, place) = (handle(filter)?, Place::of(altered)?);
            place.fill(filter.alter(pointers::spec(spec)?, flags)?);
            Ok(0)
        })
    }
}

/// Stores what ebbtide_alter would take for the filter in a directory, with this spec. Changes
/// nothing, also while the filter is in use. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_plan_alteration(
    path: *const c_char,
    spec: *const c_char,
    plan: *mut Planned,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let place = Place::of(plan)?.needed()?;
            place.fill(plan_alteration(pointers::path(path)?, pointers::spec(spec)?)?);
            Ok(0)
        })
    }
}

/// Makes a filter in a directory that does not exist from the logs of count others: it answers as
/// one of this spec and these options (NULL for the defaults) that has had all of their operations,
/// in the order of their times, since the beginning of their logs (the option keep-log). Of one
/// filter it is the same with other parameters, of several with one hash-seed their union. shares 0
/// takes all keys; otherwise the keys are divided into this number of equal shares by their hash,
/// and the new filter has those of one: share is its number, from 0.
///
/// The filters may be in use; what they do after the end of their logs was read is not there.
/// Claims are left out. Durability, downtime and max-lead are those of the first filter, unless the
/// options say otherwise. remade may be NULL; it is written with the answer 0 only.
///
/// Returns 0, or -1 on an error, such as EBBTIDE_MISMATCH if the filters differ in the hash of
/// keys; then there is no new filter, unless the error is EBBTIDE_IO and came at the very end, when
/// the directory above was synced: then it is there, and may be gone after a power cut.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_remake(
    filters: *const *const c_char,
    count: usize,
    path: *const c_char,
    spec: *const c_char,
    options: *const c_char,
    share: u64,
    shares: u64,
    remade: *mut Made,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filters, place) = (pointers::paths(filters, count)?, Place::of(remade)?);
            let (path, spec) = (pointers::path(path)?, pointers::spec(spec)?);
            let settings = (spec, pointers::options(options)?);
            place.fill(remake(&filters, path, settings, (share, shares))?);
            Ok(0)
        })
    }
}

/// Stores in *share the number of the share that a key hash belongs to, from ebbtide_key_hash or of
/// an operation, if all keys are divided into shares equal ones. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_share_of(
    hash: u64,
    shares: u64,
    share: *mut u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            put(share, share_of(hash, shares)?);
            Ok(0)
        })
    }
}
