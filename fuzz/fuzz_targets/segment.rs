//! See `ebbtide::fuzzing::segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ebbtide::fuzzing::segment(bytes));
