//! Kinds that count: permanently, or with counts that decay.

use crate::api::config::{Counts, Decays, Removes};
use ebbtide_core::kind::Parameters;
use ebbtide_core::kinds::{counting, decaying, decaying_optimized, dynamic_count, spectral};
use std::time::Duration;

spec! {
    /// A counting Bloom filter: keys can be removed, and counts are small.
    ///
    /// ```
    /// # use ebbtide::{Counting, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let spec = Counting::capacity(1000).counter_bits(4);
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// filter.call().times(20).insert("often")?;
    /// let estimate = filter.estimate("often")?;
    /// assert_eq!((estimate.count, estimate.at_least), (15.0, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Counting, counting::NAME
}

impl Counting {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// Sets the bits of a counter, from 1 to 32. Default 4: a counter that has reached 15 stays
    /// there.
    #[must_use]
    pub fn counter_bits(self, bits: u32) -> Self {
        Self(self.0.with("counter-bits", bits))
    }
}

impl Counts for Counting {}
impl Removes for Counting {}

/// The counting policy of a [`Spectral`] filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// The least counter of a key is its count. Keys can be removed.
    MinimumSelection,
    /// Raises only the least counters of a key: fewer errors, but nothing can be removed.
    MinimalIncrease,
    /// Counts keys whose least counter is not shared a second time. A few keys may be undercounted.
    RecurringMinimum,
}

spec! {
    /// A spectral Bloom filter: counts of any size, in counters with as many bits as needed.
    ///
    /// ```
    /// # use ebbtide::{Filter, Options, Policy, Spectral};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let spec = Spectral::capacity(1000).policy(Policy::MinimalIncrease);
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// filter.call().times(1_000_000).insert("often")?;
    /// filter.insert("once")?;
    /// assert_eq!(filter.estimate("often")?.count, 1_000_000.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Spectral, spectral::NAME
}

impl Spectral {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// Sets the counting policy. Default [`Policy::MinimumSelection`].
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
/// Except [`Policy::MinimalIncrease`], which returns [`crate::Error::Unsupported`].
impl Removes for Spectral {}

spec! {
    /// A dynamic count filter: counts of any size, in two vectors, the second of which is as wide
    /// as needed.
    ///
    /// ```
    /// # use ebbtide::{DynamicCount, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let spec = DynamicCount::capacity(1000).mean_count(3.0);
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// filter.insert_all(&["a", "b", "a"])?;
    /// filter.remove("b")?;
    /// assert_eq!((filter.estimate("a")?.count, filter.estimate("b")?.count), (2.0, 0.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    DynamicCount, dynamic_count::NAME
}

impl DynamicCount {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// Sets the mean count of a key; it determines the width of the first vector.
    #[must_use]
    pub fn mean_count(self, count: f64) -> Self {
        Self(self.0.with("mean-count", count))
    }
}

impl Counts for DynamicCount {}
impl Removes for DynamicCount {}

spec! {
    /// A time-decaying Bloom filter (B-TBF): after each epoch, `lambda` of every count is left.
    ///
    /// ```
    /// # use ebbtide::{Decaying, Filter, Options, Timestamp};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// // Each minute leaves a half.
    /// let spec = Decaying::capacity(1000, 0.5, Duration::from_secs(60));
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// let at = |minute: u64| filter.call().time(Timestamp::from_unix_millis(60_000 * minute));
    /// at(0).times(8).insert("a")?;
    /// at(2).insert("a")?;
    /// assert_eq!(at(2).estimate("a")?.count, 3.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Decaying, decaying::NAME
}

impl Decaying {
    /// Plans for `keys` distinct keys; at the end of each epoch `lambda` (between 0 and 1) of every
    /// count is left.
    #[must_use]
    pub fn capacity(keys: u64, lambda: f64, epoch: Duration) -> Self {
        Self(decayed(keys, lambda, epoch))
    }

    fpr!();
}

impl Counts for Decaying {}
impl Decays for Decaying {}

spec! {
    /// An optimized time-decaying Bloom filter (O-TBF): as [`Decaying`], with small counters that
    /// borrow digits from a pool.
    ///
    /// ```
    /// # use ebbtide::{DecayingOptimized, Filter, Options, Timestamp};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// // Each minute leaves a half.
    /// let spec = DecayingOptimized::capacity(1000, 0.5, Duration::from_secs(60));
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// let at = |minute: u64| filter.call().time(Timestamp::from_unix_millis(60_000 * minute));
    /// at(0).times(8).insert("a")?;
    /// at(2).insert("a")?;
    /// assert_eq!(at(2).estimate("a")?.count, 3.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    DecayingOptimized, decaying_optimized::NAME
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

fn decayed(keys: u64, lambda: f64, epoch: Duration) -> Parameters {
    let parameters = Parameters::new().with("capacity", keys).with("lambda", lambda);
    parameters.with("epoch", epoch.as_micros())
}
