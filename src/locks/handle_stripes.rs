//! The stripes of one handle: the shared lock word together with the private data of each stripe.
//!
//! Data private to the handle (a mapped log segment, say) is used under the same lock as the
//! blocks. A panic while a stripe is held poisons the filter: the blocks may be torn, and recovery
//! rebuilds them.
#![expect(unsafe_code, reason = "a lock hands out exclusive access to what it guards")]

use crate::image::{Control, Stripe};
use crate::locks::stripe_lock::{self, Acquired, Owner, Released, Verdict};
use crate::locks::yielding::Yielding;
use crate::primitives::{self, Latch};
use crossbeam::utils::CachePadded;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// The private data of all stripes of a handle.
#[derive(Debug)]
pub struct Stripes<T> {
    owner: Owner,
    yielding: Yielding,
    locals: Box<[CachePadded<Local<T>>]>,
}

/// The private data of a stripe, and whether a guard has it. The lock word alone would not do: it
/// lies in a file, and shows the stripe as free if that page is lost or another program writes
/// there.
#[derive(Debug, Default)]
struct Local<T> {
    guard: Latch,
    data: UnsafeCell<T>,
}

// SAFETY: a `T` is reached only through the one `StripeGuard` that has taken `guard`, which it
// releases when it is dropped.
unsafe impl<T: Send + Sync> Sync for Local<T> {}

impl<T: Default> Stripes<T> {
    /// Creates private data for `count` stripes, for a handle with this slot and incarnation.
    #[must_use]
    pub fn new(count: usize, owner: Owner) -> Self {
        let locals = (0..count).map(|_| CachePadded::default()).collect();
        Self { owner, yielding: Yielding::default(), locals }
    }
}

impl<T> Stripes<T> {
    /// Waits for a stripe, or takes it over: then the guarded data needs repair. `None` if the
    /// judge returned `Abandon`.
    pub fn lock<'a>(
        &'a self,
        header: &'a Control,
        index: usize,
        judge: &dyn Fn(Owner) -> Verdict,
    ) -> Option<(StripeGuard<'a, T>, Acquired)> {
        let stripe = header.stripe(index);
        let acquired = stripe_lock::lock(stripe.lock_word(), self.owner, judge)?;
        Some((self.guard(header, stripe, index), acquired))
    }

    /// Takes a stripe if it is free.
    #[must_use]
    #[inline]
    pub fn try_lock<'a>(&'a self, header: &'a Control, index: usize) -> Option<StripeGuard<'a, T>> {
        let stripe = header.stripe(index);
        let taken = stripe_lock::try_lock(stripe.lock_word(), self.owner);
        taken.then(|| self.guard(header, stripe, index))
    }

    /// Takes a stripe if it becomes free within the time that an insert usually holds it; never
    /// sleeps.
    #[must_use]
    pub fn try_lock_briefly<'a>(
        &'a self,
        header: &'a Control,
        index: usize,
    ) -> Option<StripeGuard<'a, T>> {
        let stripe = header.stripe(index);
        let taken = stripe_lock::try_lock_briefly(stripe.lock_word(), self.owner);
        taken.then(|| self.guard(header, stripe, index))
    }

    /// Returns whether others wait for stripes of this handle.
    #[inline]
    pub fn yielding(&self) -> &Yielding {
        &self.yielding
    }

    /// Returns the owner of the stripes held through this.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    #[inline]
    fn guard<'a>(
        &'a self,
        header: &'a Control,
        stripe: Stripe<'a>,
        index: usize,
    ) -> StripeGuard<'a, T> {
        if !self.locals[index].guard.try_take() {
            self.wait_for_local(index);
        }
        let panicking = std::thread::panicking();
        StripeGuard { stripes: self, header, stripe, index, panicking }
    }
}

impl<T> Stripes<T> {
    /// Waits for another thread of this handle that holds the stripe, although its lock word was
    /// free.
    #[cold]
    fn wait_for_local(&self, index: usize) {
        while !self.locals[index].guard.try_take() {
            primitives::yield_now();
        }
    }

    #[inline]
    fn release_local(&self, index: usize) {
        self.locals[index].guard.release();
    }
}

/// A held stripe. Dropping it releases the stripe.
#[derive(Debug)]
pub struct StripeGuard<'a, T> {
    stripes: &'a Stripes<T>,
    header: &'a Control,
    stripe: Stripe<'a>,
    index: usize,
    /// Whether the thread was already panicking when it took the stripe: then no panic happened
    /// while it was held.
    panicking: bool,
}

impl<'a, T> StripeGuard<'a, T> {
    /// Returns the stripe's number.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Releases a stripe under which nothing was done, even if it was taken over since: the handle
    /// is closed, and all others take it for dead.
    pub fn release_unchanged(self) {
        self.stripes.release_local(self.index);
        // Lost or not: there is no change that another owner could have collided with.
        let _ = stripe_lock::unlock(self.stripe.lock_word(), self.stripes.owner);
        std::mem::forget(self);
    }

    /// Gives a stripe that was taken over, and not repaired, back to its dead owner: the next
    /// caller of any handle takes it over.
    pub fn give_back(self, dead: Owner) {
        self.stripes.release_local(self.index);
        // Lost if this handle was itself taken for dead: then it is the new owner's to repair.
        let _ = stripe_lock::give_back(self.stripe.lock_word(), self.stripes.owner, dead);
        std::mem::forget(self);
    }

    /// Returns the stripe's shared entry.
    #[must_use]
    #[inline]
    pub fn entry(&self) -> Stripe<'a> {
        self.stripe
    }
}

impl<T> Deref for StripeGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard has taken `guard`; see `Sync for Local`.
        unsafe { &*self.stripes.locals[self.index].data.get() }
    }
}

impl<T> DerefMut for StripeGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has taken `guard`, and `&mut self` is the only access through it.
        unsafe { &mut *self.stripes.locals[self.index].data.get() }
    }
}

impl<T> Drop for StripeGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicking {
            // A panic since the stripe was taken. Poison before any other thread can enter the
            // possibly torn blocks.
            self.header.status().poison();
        }
        self.stripes.release_local(self.index);
        match stripe_lock::unlock(self.stripe.lock_word(), self.stripes.owner) {
            Ok(Released::Free) => {}
            Ok(Released::Offered) => self.stripes.yielding.note_waiter(),
            // This handle was declared dead while it worked on the stripe, and another one worked
            // on it at the same time.
            Err(_) => self.header.status().poison(),
        }
    }
}
