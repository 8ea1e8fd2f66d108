//! Ends that are only raised.

use crate::primitives::{AtomicU64, Ordering};

/// An LSN that is only raised, once something was done for all records below: they are durable, or
/// have space, or are in a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Watermark<'a>(&'a AtomicU64);

impl<'a> Watermark<'a> {
    /// Creates the watermark in this word.
    #[must_use]
    #[inline]
    pub fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Returns the LSN, for a caller that relies on what was done.
    #[must_use]
    #[inline]
    pub fn read(self) -> u64 {
        // Acquire: pairs with the Release in `raise`.
        self.0.load(Ordering::Acquire)
    }

    /// Returns the LSN for a caller that compares it only, or knows its writers to be dead.
    #[must_use]
    #[inline]
    pub fn hint(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the LSN, after it was done.
    #[inline]
    pub fn raise(self, to: u64) {
        // Release: pairs with the Acquire in `read`. A process that sees the LSN sees what was
        // done. Acquire: whoever raises it further also passes on what was done before.
        self.0.fetch_max(to, Ordering::AcqRel);
    }

    /// Sets the LSN, for a caller with exclusive access to the image.
    pub fn begin_at(self, lsn: u64) {
        // Release: the durable end is the last word of a rebuilt image.
        self.0.store(lsn, Ordering::Release);
    }
}
