//! Kinds that answer whether a key has been seen: ever, or within a window.

use crate::api::config::{Ages, Infers};
use ebbtide_core::kind::Parameters;
use ebbtide_core::kinds::{age_partitioned, bloom, buffering, time_limited, timing};
use std::time::Duration;

spec! {
    /// A Bloom filter: keeps every key permanently.
    Bloom, bloom::NAME
}

impl Bloom {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();
}

impl Infers for Bloom {}

spec! {
    /// An age-partitioned Bloom filter: keeps the last N insertions.
    AgePartitioned, age_partitioned::NAME
}

impl AgePartitioned {
    /// Keeps a key for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();

    /// Sets `k` hash functions and `l` further slices, with memory as in the paper, instead of the
    /// planner's choice.
    #[must_use]
    pub fn slices(self, k: u32, l: u32) -> Self {
        Self(self.0.with("k", k).with("l", l))
    }
}

impl Ages for AgePartitioned {}
impl Infers for AgePartitioned {}

spec! {
    /// A time-limited Bloom filter: keeps keys for a fixed time, whatever the rate.
    ///
    /// A late key, with a time before the filter's (`Call::time`), is present for the rest of its
    /// window, and refused if that is over. It expires about `window / 50` after that, like other
    /// keys. If more keys of its time arrive than the filter has room for there, the key counts as
    /// of now: it may be present for a full window from its arrival. The false-positive rate
    /// therefore stays within the planned one. It was at most 0.0026, with 0.003 planned, in
    /// streams in which all keys are late by up to a window: at an even rate, at a rate that rises
    /// fourfold, and in bursts (`docs/papers.md`). `Stat::estimated_fpr` is of the set bits, late
    /// keys included.
    TimeLimited, time_limited::NAME
}

impl TimeLimited {
    /// Keeps a key for at least this long.
    #[must_use]
    pub fn window(window: Duration) -> Self {
        Self(Parameters::new().with("window", window.as_micros()))
    }

    fpr!();

    /// Sets the expected number of new keys per second at the start. Default: few; the filter grows
    /// with the rate.
    #[must_use]
    pub fn rate(self, keys_per_second: f64) -> Self {
        Self(self.0.with("rate", keys_per_second))
    }
}

impl Ages for TimeLimited {}
impl Infers for TimeLimited {}

spec! {
    /// A timing Bloom filter: keeps the last N insertions, and for each key the number of
    /// insertions since.
    ///
    /// ```
    /// # use ebbtide::{Age, Filter, Options, Timing};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, Timing::last(1000), Options::new())?;
    /// filter.insert_all(&["a", "b", "c"])?;
    /// assert_eq!(filter.age("a")?, Some(Age::Items(2)));
    /// assert_eq!(filter.age("d")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Timing, timing::NAME
}

impl Timing {
    /// Keeps a key for exactly this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}

impl Ages for Timing {}
impl Infers for Timing {}

spec! {
    /// A block timing Bloom filter: as [`Timing`], with insertions in batches that share a tick,
    /// and a fifth of the memory.
    ///
    /// ```
    /// # use ebbtide::{BlockTiming, Filter, Options, Within};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, BlockTiming::last(1000).batch(10), Options::new())?;
    /// filter.insert_all(&["a", "b"])?;
    /// assert!(filter.seen_within("a", Within::Items(2))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    BlockTiming, timing::BLOCK_NAME
}

impl BlockTiming {
    /// Keeps a key for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();

    /// Sets the insertions per batch, instead of the value with the least memory.
    #[must_use]
    pub fn batch(self, insertions: u64) -> Self {
        Self(self.0.with("block-size", insertions))
    }
}

impl Ages for BlockTiming {}
impl Infers for BlockTiming {}

spec! {
    /// Double buffering: two Bloom filters, one of which answers while the other warms up. A
    /// baseline.
    ///
    /// ```
    /// # use ebbtide::{DoubleBuffering, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, DoubleBuffering::last(1000), Options::new())?;
    /// filter.insert("a")?;
    /// assert!(filter.contains("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    DoubleBuffering, buffering::DOUBLE
}

impl DoubleBuffering {
    /// Keeps a key for at least this many insertions.
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}

spec! {
    /// Two buffers (A2): an active and an aged Bloom filter, both of which answer. A baseline.
    ///
    /// ```
    /// # use ebbtide::{TwoBuffer, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, TwoBuffer::last(1000), Options::new())?;
    /// filter.insert("a")?;
    /// assert!(filter.contains("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    TwoBuffer, buffering::TWO
}

impl TwoBuffer {
    /// Keeps a key for at least this many insertions.
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}
