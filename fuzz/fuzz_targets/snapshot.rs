//! See `ebbtide::fuzzing::snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ebbtide::fuzzing::snapshot(bytes));
