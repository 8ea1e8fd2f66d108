//! What the tests, benchmarks and fuzzers of ebbtide share. Each file is one tool.
//!
//! Randomness and settings: [`random`], [`zipf`], [`environment`]. Filters to work on: [`samples`].
//! The comparison of a recovered filter with its operations: [`prefix`], [`copies`]. Media that
//! fail: [`failing`], the [`crash`] disk, [`write_back`] that fails, and [`space`] of adjustable
//! size. A copy of what others change meanwhile: [`beside`]. Real file systems that are small:
//! [`mount`]. Processes of a test: [`child`]. What a test leaves out: [`skipped`].
//!
//! Nothing here is shipped. Under loom, which replaces the atomics of the engine, only [`random`]
//! exists. Under shuttle the rest works on the words of a schedule, and there are `schedule`s.

#[cfg(not(loom))]
pub mod beside;
#[cfg(not(loom))]
pub mod child;
#[cfg(not(loom))]
pub mod copies;
#[cfg(not(loom))]
pub mod crash;
#[cfg(not(loom))]
pub mod environment;
#[cfg(not(loom))]
pub mod failing;
#[cfg(not(loom))]
pub mod mount;
#[cfg(not(loom))]
pub mod prefix;
pub mod random;
#[cfg(not(loom))]
pub mod samples;
#[cfg(shuttle)]
pub mod schedule;
#[cfg(not(loom))]
pub mod skipped;
#[cfg(not(loom))]
pub mod space;
#[cfg(not(loom))]
pub mod write_back;
#[cfg(not(loom))]
pub mod zipf;
