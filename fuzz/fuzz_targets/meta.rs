//! See `ebbtide::fuzzing::meta`.
#![no_main]

use ebbtide_fuzz::limit;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    limit::of_reading(bytes, || ebbtide::fuzzing::meta(bytes));
});
