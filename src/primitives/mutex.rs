//! The standard library's mutex and condition variable, without poisoning.
//!
//! Each is only a futex word. Libraries that keep the waiting threads of a process in a table
//! (`parking_lot`) cannot be used. A forked child inherits the table, but not the threads in it,
//! and a wakeup there follows pointers into memory that is reused by now.

use std::sync::{self, MutexGuard, PoisonError};
#[cfg(not(shuttle))]
use std::time::Duration;

/// As [`std::sync::Mutex`]. A panic of its holder does not poison it: callers keep the guarded data
/// consistent at each step.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until no other thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As [`std::sync::Condvar`].
#[cfg(not(shuttle))]
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

#[cfg(not(shuttle))]
impl Condvar {
    /// Releases the mutex until woken, but at most for `timeout`; may also return spuriously.
    pub fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let (guard, _) =
            self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        guard
    }

    /// Releases the mutex until woken; may also return spuriously.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
