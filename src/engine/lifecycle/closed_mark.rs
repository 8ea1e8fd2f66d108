//! The mark of a closed handle, and the operations that closing waits for.
//!
//! Operations that change a block are found by the stripe they hold, because counting them would
//! cost each of them too much. All others are counted here, except queries that take no stripe.

use crate::primitives::{AtomicU64, Mutex, MutexGuard, Ordering};

/// Whether a handle is closed, and the operations that must end first.
#[derive(Debug, Default)]
pub struct Closing {
    /// 1 from the beginning of closing.
    closed: AtomicU64,
    /// The number of operations in progress, except those found by their stripe, and queries
    /// without one.
    busy: AtomicU64,
    /// Held by the thread that closes.
    closer: Mutex<()>,
}

/// An operation that closing waits for.
#[derive(Debug)]
pub(crate) struct Busy<'a>(&'a Closing);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // Release: pairs with the SeqCst load in `is_busy`, which is an Acquire.
        self.0.busy.fetch_sub(1, Ordering::Release);
    }
}

impl Closing {
    /// Returns whether the handle is closed, or about to be. Exact under a stripe and after
    /// [`Closing::enter`], otherwise a hint.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: under a stripe the Acquire of its lock sees what the closing thread did before
        // its Release.
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Begins an operation that closing waits for; `None` if the handle is closed.
    pub(crate) fn enter(&self) -> Option<Busy<'_>> {
        // SeqCst, here and below: either the closing thread sees this operation, or the operation
        // sees that the handle is closed.
        self.busy.fetch_add(1, Ordering::SeqCst);
        let busy = Busy(self);
        (self.closed.load(Ordering::SeqCst) == 0).then_some(busy)
    }

    /// Marks the handle as closed. Returns false if it was marked before.
    pub(crate) fn mark(&self) -> bool {
        // SeqCst: see `enter`.
        self.closed.fetch_or(1, Ordering::SeqCst) == 0
    }

    /// Returns whether a counted operation is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        // SeqCst: see `enter`.
        self.busy.load(Ordering::SeqCst) != 0
    }

    /// Waits for a thread that closes the handle, and keeps others from closing it.
    pub(crate) fn exclude(&self) -> MutexGuard<'_, ()> {
        self.closer.lock()
    }
}
