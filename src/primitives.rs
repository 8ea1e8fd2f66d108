//! The synchronisation primitives of the crate: the usual ones, loom's atomics under `--cfg loom`,
//! or those of a schedule under `--cfg shuttle`.
//!
//! All code that takes part in a protocol over shared memory imports its atomics, fences and spin
//! hints only from here. The same code then runs on a mapped file and in the models of
//! `tests/loom/`. The same holds for mutexes held while other threads are waited for, sleeps, and
//! the clock of waits: in the schedules of `tests/schedules/` each of them lets other threads run.
//!
//! A forked child can reach all of this, so nothing here waits or wakes through a table of the
//! process: see `docs/protocols/sessions.md`, "Fork".

mod hint;
mod latch;
#[cfg(loom)]
mod modelled;
pub mod mutex;
#[cfg(shuttle)]
pub mod scheduled;
mod watermark;

pub use ebbtide_core::atomic::{AtomicU64, Ordering, fence};
pub use hint::{Hint, next_number};
pub use latch::Latch;
#[cfg(loom)]
pub use loom::sync::MutexGuard;
#[cfg(loom)]
pub use modelled::Mutex;
#[cfg(not(any(loom, shuttle)))]
pub use mutex::Mutex;
#[cfg(shuttle)]
pub use scheduled::{Instant, Mutex, sleep, spin_hint, yield_now};
#[cfg(not(loom))]
pub use std::sync::MutexGuard;
#[cfg(not(shuttle))]
pub use std::thread::{sleep, yield_now};
#[cfg(not(shuttle))]
pub use std::time::Instant;
pub use watermark::Watermark;

/// Returns the time to wait for other processes. Almost zero under the fuzzers, where no other
/// process is active and the state of dead ones must be found at once.
#[must_use]
pub const fn patience(time: std::time::Duration) -> std::time::Duration {
    if cfg!(fuzzing) { std::time::Duration::from_nanos(1) } else { time }
}

/// Hints to the processor (or loom's scheduler) that this thread waits for another one.
#[cfg(not(shuttle))]
pub fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
