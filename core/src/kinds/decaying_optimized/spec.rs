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
}

impl Counts for DecayingOptimized {}
impl Decays for DecayingOptimized {}
