//! Kinds that answer whether a key has been seen: ever, or within a window.

use crate::api::config::{Ages, Infers};
use ebbtide_core::kind::Parameters;
use ebbtide_core::kinds::{age_partitioned, bloom, buffering, time_limited, timing};
use std::time::Duration;

spec! {
    /// A Bloom filter: remembers every key for ever.
    Bloom, bloom::NAME
}

impl Bloom {
    /// For so many distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();
}

impl Infers for Bloom {}

spec! {
    /// An age-partitioned Bloom filter: remembers the last N insertions.
    AgePartitioned, age_partitioned::NAME
}

impl AgePartitioned {
    /// A key stays for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();

    /// Instead of what the planner finds best: `k` hash functions and `l` further slices, memory as in the paper.
    #[must_use]
    pub fn slices(self, k: u32, l: u32) -> Self {
        Self(self.0.with("k", k).with("l", l))
    }
}

impl Ages for AgePartitioned {}
impl Infers for AgePartitioned {}

spec! {
    /// A time-limited Bloom filter: remembers for a time, whatever the rate.
    ///
    /// A key that comes late, with a time before the filter's (`Call::time`), is present for the rest of its window, and refused if that
    /// is over. It is gone about `window / 50` after that, as others are; but if more keys of its time came than the filter
    /// has room for there, it counts as of now: it may be present for a window from when it came. So the false-positive rate keeps
    /// to the one asked for: 0.0026 at most, of 0.003, in streams of which all keys come late by up to a window, at an even rate, at one that
    /// rises fourfold and in bursts (`docs/papers.md`). `Stat::estimated_fpr` is of the bits that are set, late keys included.
    TimeLimited, time_limited::NAME
}

impl TimeLimited {
    /// A key stays for at least this long.
    #[must_use]
    pub fn window(window: Duration) -> Self {
        Self(Parameters::new().with("window", window.as_micros()))
    }

    fpr!();

    /// How many new keys to expect per second at first. Default: few; the filter grows with the rate.
    #[must_use]
    pub fn rate(self, keys_per_second: f64) -> Self {
        Self(self.0.with("rate", keys_per_second))
    }
}

impl Ages for TimeLimited {}
impl Infers for TimeLimited {}

spec! {
    /// A timing Bloom filter: remembers the last N insertions, and knows for each key how many ago it was.
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
    /// A key stays for exactly this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}

impl Ages for Timing {}
impl Infers for Timing {}

spec! {
    /// A block timing Bloom filter: as [`Timing`], with insertions in batches that share a tick, in a fifth of the memory.
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
    /// A key stays for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();

    /// Insertions in a batch, instead of what takes the least memory.
    #[must_use]
    pub fn batch(self, insertions: u64) -> Self {
        Self(self.0.with("block-size", insertions))
    }
}

impl Ages for BlockTiming {}
impl Infers for BlockTiming {}

spec! {
    /// Double buffering: two Bloom filters, of which one answers while the other warms up. A baseline.
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
    /// A key stays for at least this many insertions.
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
    /// A key stays for at least this many insertions.
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}
