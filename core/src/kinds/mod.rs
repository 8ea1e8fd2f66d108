//! The filter algorithms, each a [`Kind`](crate::kind::Kind): a pure function over blocks.
//!
//! A new kind is a folder here and a line in [`registry`].

pub mod age_partitioned;
pub mod bloom;
pub mod buffering;
mod columns;
pub mod counting;
pub mod decaying;
pub mod decaying_optimized;
pub mod dynamic_count;
pub mod importance;
pub mod registry;
mod runs;
pub mod spec;
pub mod spectral;
pub mod stable;
pub mod time_limited;
pub mod timing;
