//! See `ebbtide::fuzzing::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ebbtide::fuzzing::record(bytes));
