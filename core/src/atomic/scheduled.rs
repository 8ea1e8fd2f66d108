//! Words at whose every step the harness of a schedule chooses which process continues or dies.
//!
//! The engine lays its atomics over mapped words, so they stay words; all that is added is a call
//! of the harness before each. Memory is thus sequentially consistent: what weaker orderings allow
//! is for the models of `tests/loom/`.

use std::sync::OnceLock;
use std::sync::atomic::{self, Ordering};

static STEP: OnceLock<fn() -> bool> = OnceLock::new();

/// Has `step` called before each step on shared words, for good. It returns false if the process is
/// dead, and the step must not be.
pub fn install(step: fn() -> bool) {
    // The first one stays; a program has one.
    let _ = STEP.set(step);
}

/// Lets the harness choose; false if the step must not be.
#[inline]
pub fn step() -> bool {
    STEP.get().is_none_or(|step| step())
}

/// As [`std::sync::atomic::AtomicU64`], and of the same form.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicU64(atomic::AtomicU64);

#[expect(missing_docs, reason = "all is as in the standard library")]
impl AtomicU64 {
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }

    /// One step that changes the word, and returns what it was.
    #[inline]
    fn change(&self, change: impl FnOnce(&atomic::AtomicU64) -> u64) -> u64 {
        if step() { change(&self.0) } else { self.0.load(Ordering::Relaxed) }
    }

    pub fn load(&self, order: Ordering) -> u64 {
        step();
        self.0.load(order)
    }

    pub fn store(&self, value: u64, order: Ordering) {
        if step() {
            self.0.store(value, order);
        }
    }

    pub fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        if step() {
            self.0.compare_exchange(current, new, success, failure)
        } else {
            Err(self.0.load(Ordering::Relaxed))
        }
    }

    pub fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        // It never fails for no reason.
        self.compare_exchange(current, new, success, failure)
    }

    pub fn fetch_update(
        &self,
        success: Ordering,
        failure: Ordering,
        update: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        if step() {
            self.0.fetch_update(success, failure, update)
        } else {
            Err(self.0.load(Ordering::Relaxed))
        }
    }

    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.change(|word| word.fetch_add(value, order))
    }

    pub fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.change(|word| word.fetch_sub(value, order))
    }

    pub fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.change(|word| word.swap(value, order))
    }

    pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.change(|word| word.fetch_or(value, order))
    }

    pub fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.change(|word| word.fetch_max(value, order))
    }

    pub fn fetch_min(&self, value: u64, order: Ordering) -> u64 {
        self.change(|word| word.fetch_min(value, order))
    }
}
