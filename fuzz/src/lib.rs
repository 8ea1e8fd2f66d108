//! The shared parts of the fuzz targets: small filters of every kind, their files as bytes, and a
//! bound on memory.

pub mod files;
pub mod input;
pub mod limit;
pub mod model;
pub mod questions;
pub mod samples;
