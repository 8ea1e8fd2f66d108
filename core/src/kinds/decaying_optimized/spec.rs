//! The spec of this kind.

use crate::kinds::decaying::spec::decayed;
use crate::kinds::spec::{Counts, Decays, fpr, spec};
use core::time::Duration;

spec! {
    /// An optimized time-decaying Bloom filter (O-TBF): as
    /// [`Decaying`](crate::kinds::decaying::spec::Decaying), with small counters that borrow digits
    /// from a pool.
    DecayingOptimized, super::NAME
}

impl DecayingOptimized {
    /// Plans for `keys` distinct keys; at the end of each epoch `lambda` (between 0 and 1) of every
    /// count is left.
    #[must_use]
    pub fn capacity(keys: u64, lambda: f64, epoch: Duration) -> Self {
        Self(decayed(keys, lambda, epoch))
    }

    fpr!();

    /// Sets the share of keys that may be counted too high by more than promised, because they
    /// share all their counters. Default 0.03, or the false-positive rate if that is higher. The
    /// false-positive rate is that of absent keys.
    #[must_use]
    pub fn error(self, share: f64) -> Self {
        Self(self.0.with("error", share))
    }
}

impl Counts for DecayingOptimized {}
impl Decays for DecayingOptimized {}
