//! Kinds that count: for ever, or with counts that decay.

use super::{Counts, Decays, Removes};
use crate::kinds::{Parameters, counting, decaying, decaying_optimized, dynamic_count, spectral};
use std::time::Duration;

spec! {
    /// A counting Bloom filter: keys can be removed, and counts are small.
    Counting, counting::NAME
}

impl Counting {
    /// For so many distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// Bits of a counter, from 1 to 32. Default 4: a counter that has reached 15 stays there.
    #[must_use]
    pub fn counter_bits(self, bits: u32) -> Self {
        Self(self.0.with("counter-bits", bits))
    }
}

impl Counts for Counting {}
impl Removes for Counting {}

/// How a [`Spectral`] filter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The least counter of a key is its count. Keys can be removed.
    MinimumSelection,
    /// Only the least counters of a key are raised: fewer errors, but nothing can be removed.
    MinimalIncrease,
    /// Keys whose least counter is theirs alone are counted a second time. A few may be undercounted.
    RecurringMinimum,
}

spec! {
    /// A spectral Bloom filter: counts of any size, in counters that take as many bits as they need.
    Spectral, spectral::NAME
}

impl Spectral {
    /// For so many distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// How it counts. Default [`Policy::MinimumSelection`].
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        let name = match policy {
            Policy::MinimumSelection => "ms",
            Policy::MinimalIncrease => "mi",
            Policy::RecurringMinimum => "rm",
        };
        Self(self.0.with("policy", name))
    }
}

impl Counts for Spectral {}
/// But for [`Policy::MinimalIncrease`], which answers [`crate::Error::Unsupported`].
impl Removes for Spectral {}

spec! {
    /// A dynamic count filter: counts of any size, in two vectors of which the second is as wide as it must be.
    DynamicCount, dynamic_count::NAME
}

impl DynamicCount {
    /// For so many distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// How often a key comes, on average; it decides the width of the first vector.
    #[must_use]
    pub fn mean_count(self, count: f64) -> Self {
        Self(self.0.with("mean-count", count))
    }
}

impl Counts for DynamicCount {}
impl Removes for DynamicCount {}

spec! {
    /// A time-decaying Bloom filter (B-TBF): counts that an epoch leaves `lambda` of.
    Decaying, decaying::NAME
}

impl Decaying {
    /// For so many distinct keys; at the end of each epoch `lambda` (between 0 and 1) of every count is left.
    #[must_use]
    pub fn capacity(keys: u64, lambda: f64, epoch: Duration) -> Self {
        Self(decayed(keys, lambda, epoch))
    }

    fpr!();
}

impl Counts for Decaying {}
impl Decays for Decaying {}

spec! {
    /// An optimized time-decaying Bloom filter (O-TBF): as [`Decaying`], with small counters that borrow digits from a pool.
    DecayingOptimized, decaying_optimized::NAME
}

impl DecayingOptimized {
    /// For so many distinct keys; at the end of each epoch `lambda` (between 0 and 1) of every count is left.
    #[must_use]
    pub fn capacity(keys: u64, lambda: f64, epoch: Duration) -> Self {
        Self(decayed(keys, lambda, epoch))
    }

    fpr!();
}

impl Counts for DecayingOptimized {}
impl Decays for DecayingOptimized {}

fn decayed(keys: u64, lambda: f64, epoch: Duration) -> Parameters {
    let parameters = Parameters::new().with("capacity", keys).with("lambda", lambda);
    parameters.with("epoch", epoch.as_micros())
}
