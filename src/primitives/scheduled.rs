//! Primitives whose every step is chosen by the harness that runs a schedule: which thread
//! continues, which dies, and the time.
//!
//! The engine lays its atomics over mapped words, so they remain plain words; each operation only
//! calls the harness first. Memory is thus sequentially consistent: the effects of weaker orderings
//! are left to the models of `tests/loom/`.
//!
//! A killed process changes nothing any more. Its threads get here from destructors only, which
//! must terminate.

use ebbtide_core::atomic::scheduled as words;
use std::sync::{self, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The interface to the harness that runs a schedule.
#[derive(Debug)]
pub struct Harness {
    /// Called before each step on shared words. Returns false if the process is dead and the step
    /// must not happen.
    pub step: fn() -> bool,
    /// Lets other threads run until this much time has passed or, if `may_wake`, a thread wakes
    /// this one. Returns whether it was woken.
    pub pause: fn(time: Duration, may_wake: bool) -> bool,
    /// Returns the time since a fixed start.
    pub now: fn() -> Duration,
    /// Returns whether the system can start a thread.
    pub may_start: fn() -> bool,
}

static HARNESS: OnceLock<Harness> = OnceLock::new();

/// Installs the harness that chooses all steps, permanently.
pub fn install(harness: Harness) {
    words::install(harness.step);
    // The first one stays; a program has one.
    let _ = HARNESS.set(harness);
}

/// Waits as a futex does: until another thread wakes this one (returns true), or the time is up.
pub fn wait(time: Duration) -> bool {
    HARNESS.get().is_some_and(|harness| (harness.pause)(time, true))
}

/// As [`std::thread::sleep`].
pub fn sleep(time: Duration) {
    if let Some(harness) = HARNESS.get() {
        (harness.pause)(time, false);
    }
}

/// Returns whether the system can start a thread at the moment.
pub(crate) fn may_start() -> bool {
    HARNESS.get().is_none_or(|harness| (harness.may_start)())
}

/// As [`std::thread::yield_now`]; takes long enough that waits by yielding soon end.
pub fn yield_now() {
    sleep(Duration::from_millis(4));
}

/// As [`std::hint::spin_loop`], likewise.
pub fn spin_hint() {
    sleep(Duration::from_micros(60));
}

thread_local! {
    static DRAWN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns numbers in the place of random ones: what a schedule does must follow from its seed.
/// Within a thread of the system, which a schedule has for itself, they differ.
#[must_use]
pub fn random() -> u128 {
    let drawn = DRAWN.get() + 1;
    DRAWN.set(drawn);
    u128::from(drawn).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Returns the time of the system's clock in a schedule, which begins on 2023-11-14.
#[must_use]
pub fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Instant::now().0
}

/// As [`std::time::Instant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl std::ops::Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl Instant {
    /// Returns the time of the schedule.
    #[must_use]
    pub fn now() -> Self {
        Self(HARNESS.get().map_or(Duration::ZERO, |harness| (harness.now)()))
    }

    /// Returns the time since.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now() - *self
    }

    /// Returns the time from an earlier one to this, or zero.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time until the next multiple of `every` since the schedule began.
    pub(crate) fn next_tick(self, every: Duration) -> Self {
        let left = every.as_nanos() - self.0.as_nanos() % every.as_nanos().max(1);
        Self(self.0 + Duration::from_nanos(left as u64))
    }
}

/// As [`crate::primitives::mutex::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until no other thread holds it.
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
