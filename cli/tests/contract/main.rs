//! The contract of the `ebbtide` command, tested on the binary.

#![forbid(unsafe_code)]

mod answers;
mod beside;
mod dedup;
mod exact;
mod examples;
mod filters;
mod interruptions;
mod read_only;
mod real_streams;
mod support;
