//! See `ebbtide::fuzzing::log`.
#![no_main]

use ebbtide_fuzz::limit;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    limit::within(limit::OF_LOG, || ebbtide::fuzzing::log(bytes));
});
