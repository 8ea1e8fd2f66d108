//! What all files have in common: names, and headers with their versions.

pub mod header;
pub mod names;
