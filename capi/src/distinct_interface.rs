//! The exported functions about the number of distinct keys; as `interface`.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::call::Settings;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::interface::within;
use crate::pointers::{handle, put, run, with_settings};
use engine::Cardinality;
use std::ffi::c_int;

/// Counts the distinct keys in the window, for kinds whose cells say how many there are. Stores
/// their estimated number in *keys, its standard error, in keys, in *standard_error, and in *reach
/// how far back they were counted, in the unit of the filter's window: up to one generation further
/// than the window. Each of the three may be NULL. All blocks of the filter are read; the members
/// distinct_keys and distinct_keys_error of ebbtide_stat are of a sample. Returns 0, or -1 on an
/// error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_distinct(
    filter: *mut Handle,
    keys: *mut f64,
    standard_error: *mut f64,
    reach: *mut u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let filter = handle(filter)?;
            let answer = with_settings(call, |call| filter.distinct(None, call))?;
            let Cardinality { keys: number, standard_error: its_error, reach: back } = answer;
            put(keys, number);
            put(standard_error, its_error);
            put(reach, back.width());
            Ok(0)
        })
    }
}

/// Counts the distinct keys in a part of the window, as ebbtide_distinct: in the latest amount of
/// insert operations (EBBTIDE_ITEMS) or of microseconds (EBBTIDE_MICROSECONDS), as in
/// ebbtide_seen_within. No key of that part is left out; keys that are up to one generation older
/// count too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_distinct_within(
    filter: *mut Handle,
    amount: u64,
    unit: u32,
    keys: *mut f64,
    standard_error: *mut f64,
    reach: *mut u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, within) = (handle(filter)?, within(amount, unit)?);
            let answer = with_settings(call, |call| filter.distinct(Some(within), call))?;
            let Cardinality { keys: number, standard_error: its_error, reach: back } = answer;
            put(keys, number);
            put(standard_error, its_error);
            put(reach, back.width());
            Ok(0)
        })
    }
}
