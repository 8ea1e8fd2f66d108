//! A value of which each process has its own: a forked child makes a new one.
//!
//! It takes the place of a lock in a `static`, which a child could inherit locked.

use crate::platform::fork::Guard;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The value of this process. Values are never freed: there is one for each process in a chain of
/// forks that used it.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<Made<T>>);

#[derive(Debug)]
struct Made<T> {
    guard: Guard,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Creates it without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process, made at its first use.
    #[expect(unsafe_code, reason = "a lock around it could be inherited locked by a forked child")]
    pub fn get(&'static self, make: impl FnOnce() -> T) -> &'static T {
        // Acquire: pairs with the Release below, which published it.
        let seen = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a value that was leaked and is never freed.
        if let Some(made) = unsafe { seen.as_ref() }.filter(|made| !made.guard.is_foreign()) {
            return &made.value;
        }
        let new = Box::into_raw(Box::new(Made { guard: Guard::new(), value: make() }));
        match self.0.compare_exchange(seen, new, Ordering::Release, Ordering::Acquire) {
            // SAFETY: leaked just now.
            Ok(_) => unsafe { &(*new).value },
            Err(theirs) => {
                // SAFETY: it came from a box just now, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: values published by other threads of this process are never freed.
                unsafe { &(*theirs).value }
            }
        }
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}
