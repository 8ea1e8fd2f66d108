//! The synchronisation primitives of the crate: the usual ones, loom's under `--cfg loom`, or those of a schedule under
//! `--cfg shuttle`. Atomics are those of [`ebbtide_core::atomic`].
//!
//! Everything that takes part in a protocol over shared memory imports its atomics, fences and spin
//! hints from here and from nowhere else, so that the same code that runs on a mapped file runs in
//! the models of `tests/loom/`. So do mutexes that are held while others are waited for, sleeps, and the clock that waits go by:
//! in the schedules of `tests/schedules/` each of them lets others run.
//!
//! A forked child can reach all of this, so nothing here waits or wakes through a table of the process: see
//! `docs/architecture.md`, "Fork".

pub mod mutex;
#[cfg(shuttle)]
pub mod scheduled;

pub use ebbtide_core::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(shuttle))]
pub use mutex::Mutex;
#[cfg(shuttle)]
pub use scheduled::{Instant, Mutex, sleep, spin_hint, yield_now};
#[cfg(not(shuttle))]
pub use std::thread::{sleep, yield_now};
#[cfg(not(shuttle))]
pub use std::time::Instant;

/// How long others are waited for. Under the fuzzers hardly at all: there nobody else is at work, and what the dead left is
/// to be found at once.
#[must_use]
pub const fn patience(time: std::time::Duration) -> std::time::Duration {
    if cfg!(fuzzing) { std::time::Duration::from_nanos(1) } else { time }
}

/// Tells the processor (or loom's scheduler) that this thread waits for another one.
#[cfg(not(shuttle))]
pub fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
