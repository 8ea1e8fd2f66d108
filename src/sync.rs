//! The synchronisation primitives of the crate: the standard library's, or loom's under `--cfg loom`.
//!
//! Everything that takes part in a protocol over shared memory imports its atomics, fences and spin
//! hints from here and from nowhere else, so that the same code that runs on a mapped file runs in
//! the models of `tests/loom/`.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Tells the processor (or loom's scheduler) that this thread waits for another one.
pub fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
