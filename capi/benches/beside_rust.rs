//! The price of a call from C beside the same call from Rust.

fn main() {}
