//! A lock between the threads of one handle.

use crate::primitives::{AtomicU64, Ordering};

/// A lock that one thread of a process holds at a time, and that has no wait of its own.
#[derive(Debug, Default)]
pub struct Latch(AtomicU64);

impl Latch {
    /// Takes the lock; returns false if it is held.
    #[inline]
    pub fn try_take(&self) -> bool {
        // Acquire: pairs with the Release in `release`.
        self.0.swap(1, Ordering::Acquire) == 0
    }

    /// Releases the lock, for its holder.
    #[inline]
    pub fn release(&self) {
        // Release: pairs with the Acquire in `try_take`.
        self.0.store(0, Ordering::Release);
    }
}
