//! See `ebbtide::fuzzing::meta`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ebbtide::fuzzing::meta(bytes));
