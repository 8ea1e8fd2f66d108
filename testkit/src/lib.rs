//! What the tests, benchmarks and fuzzers of ebbtide share. Each file is one tool.
//!
//! Randomness and settings: [`random`], [`zipf`], [`environment`]. Filters to work on: [`samples`].
//! The comparison of a recovered filter with its operations: [`prefix`], [`copies`]. Media that
//! fail: [`failing`], the [`crash`] disk, [`write_back`] that fails, and [`space`] of adjustable
//! size. Real file systems that are small: [`mount`]. Processes of a test: [`child`].
//!
//! Nothing here is shipped. Under loom and shuttle, which replace the atomics of the engine, only
//! [`random`] exists.

#[cfg(not(any(loom, shuttle)))]
pub mod child;
#[cfg(not(any(loom, shuttle)))]
pub mod copies;
#[cfg(not(any(loom, shuttle)))]
pub mod crash;
#[cfg(not(any(loom, shuttle)))]
pub mod environment;
#[cfg(not(any(loom, shuttle)))]
pub mod failing;
#[cfg(not(any(loom, shuttle)))]
pub mod mount;
#[cfg(not(any(loom, shuttle)))]
pub mod prefix;
pub mod random;
#[cfg(not(any(loom, shuttle)))]
pub mod samples;
#[cfg(not(any(loom, shuttle)))]
pub mod space;
#[cfg(not(any(loom, shuttle)))]
pub mod write_back;
#[cfg(not(any(loom, shuttle)))]
pub mod zipf;
