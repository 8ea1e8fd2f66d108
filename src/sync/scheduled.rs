//! Primitives whose every step is a choice of the harness that runs a schedule: who goes on, who dies, what time it is.
//!
//! The engine lays its atomics over mapped words, so they stay words; all that is added is a call of the harness before
//! each. Memory is thus sequentially consistent: what weaker orderings allow is for the models of `tests/loom/`.
//!
//! A process that was killed changes nothing any more. Its threads come here from destructors only, which must come to an end.

use std::sync::atomic::{self, Ordering};
use std::sync::{self, MutexGuard, OnceLock, TryLockError};
use std::time::Duration;

/// What runs a schedule.
#[derive(Debug)]
pub struct Harness {
    /// Comes before each step on shared words. False if the process is dead, and the step must not be.
    pub step: fn() -> bool,
    /// Lets others run, until so much time is up or (if that may be) somebody wakes us: then true.
    pub pause: fn(time: Duration, may_wake: bool) -> bool,
    /// The time since some beginning.
    pub now: fn() -> Duration,
}

static HARNESS: OnceLock<Harness> = OnceLock::new();

/// Has all steps chosen by this harness, for good.
pub fn install(harness: Harness) {
    // The first one stays; a program has one.
    let _ = HARNESS.set(harness);
}

#[inline]
fn step() -> bool {
    HARNESS.get().is_none_or(|harness| (harness.step)())
}

/// Waits as a futex does: until somebody wakes us, which is what true means, or the time is up.
pub fn wait(time: Duration) -> bool {
    HARNESS.get().is_some_and(|harness| (harness.pause)(time, true))
}

/// As [`std::thread::sleep`].
pub fn sleep(time: Duration) {
    if let Some(harness) = HARNESS.get() {
        (harness.pause)(time, false);
    }
}

/// As [`std::thread::yield_now`]; takes so long that whoever waits by yielding has soon waited long enough.
pub fn yield_now() {
    sleep(Duration::from_millis(4));
}

/// As [`std::hint::spin_loop`], likewise.
pub fn spin_hint() {
    sleep(Duration::from_micros(60));
}

/// As [`std::time::Instant`].
#[derive(Debug, Clone, Copy)]
pub struct Instant(Duration);

impl Instant {
    /// The time of the schedule.
    #[must_use]
    pub fn now() -> Self {
        Self(HARNESS.get().map_or(Duration::ZERO, |harness| (harness.now)()))
    }

    /// How long ago that was.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// As [`super::mutex::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until nobody else holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        step();
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
                Err(TryLockError::WouldBlock) => spin_hint(),
            }
        }
    }
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
