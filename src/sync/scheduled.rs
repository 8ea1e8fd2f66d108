//! Primitives whose every step is a choice of the harness that runs a schedule: who goes on, who dies, what time it is.
//!
//! The words themselves are those of [`ebbtide_core::atomic::scheduled`].
//!
//! A process that was killed changes nothing any more. Its threads come here from destructors only, which must come to an end.

use ebbtide_core::atomic::scheduled as words;
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
    words::install(harness.step);
    // The first one stays; a program has one.
    let _ = HARNESS.set(harness);
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

/// As [`crate::sync::mutex::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until nobody else holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        words::step();
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
                Err(TryLockError::WouldBlock) => spin_hint(),
            }
        }
    }
}
