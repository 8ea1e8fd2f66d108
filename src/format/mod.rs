//! What is fixed about the files: names, headers with their versions, and `meta`.

pub mod header;
pub mod meta;
pub mod names;
