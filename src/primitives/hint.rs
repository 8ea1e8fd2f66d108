//! Numbers of one process that order nothing.

use crate::primitives::{AtomicU64, Ordering};
use std::sync::atomic::AtomicUsize;

/// A number that threads of a process share, and that orders nothing: whatever its readers conclude
/// from it must hold however late they see a change. All accesses are Relaxed.
#[derive(Debug, Default)]
pub struct Hint(AtomicU64);

impl Hint {
    /// Creates the hint with this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    /// Returns the number.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the number.
    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Raises the number to this one, unless it is greater.
    pub fn raise(&self, to: u64) {
        self.0.fetch_max(to, Ordering::Relaxed);
    }

    /// Lowers the number to this one, unless it is less.
    pub fn lower(&self, to: u64) {
        self.0.fetch_min(to, Ordering::Relaxed);
    }

    /// Raises the number by one; returns the former number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Replaces the number that the caller has seen; returns false if another thread did so first.
    pub fn replace(&self, seen: u64, new: u64) -> bool {
        self.0.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Returns a number that no other call in this process returns, counted from 0.
#[must_use]
pub fn next_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
