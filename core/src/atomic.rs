//! The atomic words of filters: the standard library's, loom's under `--cfg loom`, or those of a
//! schedule under `--cfg shuttle`.
//!
//! Code that works on shared words imports atomics and fences from here, so that the models of
//! `tests/loom/` and the schedules of `tests/schedules/` run the code that runs on mapped files.

#[cfg(shuttle)]
#[doc(hidden)]
pub mod scheduled;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub use scheduled::AtomicU64;
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub use std::sync::atomic::{Ordering, fence};
