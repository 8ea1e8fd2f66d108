//! The specs of all kinds, from their folders in `ebbtide-core`, with examples of filters.

#[doc(inline)]
pub use ebbtide_core::kinds::spec::{
    Ages, Any, Counts, CountsDistinct, Decays, Infers, Removes, Spec, Weighs,
};
pub use ebbtide_core::kinds::spectral::Policy;

#[doc(inline)]
pub use ebbtide_core::kinds::age_partitioned::spec::AgePartitioned;

#[doc(inline)]
pub use ebbtide_core::kinds::bloom::spec::Bloom;

/// About the last N insertions.
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
#[doc(inline)]
pub use ebbtide_core::kinds::buffering::spec::DoubleBuffering;

/// About the last N insertions.
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
#[doc(inline)]
pub use ebbtide_core::kinds::buffering::spec::TwoBuffer;

/// Counts up to a maximum, and removes keys.
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
#[doc(inline)]
pub use ebbtide_core::kinds::counting::spec::Counting;

/// Counts that decay.
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
///
/// Other functions of the age: polynomial, a window, or a table of weights.
///
/// ```
/// # use ebbtide::{Decaying, Filter, Options, Timestamp};
/// # use std::time::Duration;
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("filter");
/// let hour = Duration::from_secs(3600);
/// // 1/(1+x) after x hours, for a year.
/// let spec = Decaying::polynomial(1000, 1.0, 8760, hour);
/// let filter = Filter::create(&dir, spec, Options::new())?;
/// let at = |hour: u64| filter.call().time(Timestamp::from_unix_millis(3_600_000 * hour));
/// at(0).times(8).insert("a")?;
/// let count = at(3).estimate("a")?.count;
/// assert!((2.0..2.06).contains(&count));
/// // Full for two hours, then a half and a quarter.
/// let _ = Decaying::weights(1000, &[1.0, 1.0, 0.5, 0.25], hour);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ebbtide_core::kinds::decaying::spec::Decaying;

/// Counts that decay, in less memory.
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
#[doc(inline)]
pub use ebbtide_core::kinds::decaying_optimized::spec::DecayingOptimized;

/// Counts of any size, and removes keys.
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
#[doc(inline)]
pub use ebbtide_core::kinds::dynamic_count::spec::DynamicCount;

/// Random decay that spares important keys.
///
/// ```
/// # use ebbtide::{Filter, Importance2c, Options};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("filter");
/// let spec = Importance2c::cells(100_000, 7, 5, 20).importance_max(100.0);
/// let filter = Filter::create(&dir, spec, Options::new())?;
/// filter.call().importance(90.0).insert("a")?;
/// assert!(filter.contains("a")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ebbtide_core::kinds::importance::spec::Importance2c;

/// Random decay by the importance of keys, which spares high values.
///
/// ```
/// # use ebbtide::{Filter, ImportanceH, Options};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("filter");
/// let spec = ImportanceH::cells(100_000, 7, 5, 20).importance_max(100.0);
/// let filter = Filter::create(&dir, spec, Options::new())?;
/// filter.call().importance(90.0).insert("a")?;
/// assert!(filter.contains("a")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ebbtide_core::kinds::importance::spec::ImportanceH;

/// Random decay by the importance of keys.
///
/// ```
/// # use ebbtide::{Filter, ImportanceMc, Options};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("filter");
/// let spec = ImportanceMc::cells(100_000, 7, 5, 20).importance_max(100.0);
/// let filter = Filter::create(&dir, spec, Options::new())?;
/// filter.call().importance(90.0).insert("a")?;
/// assert!(filter.contains("a")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ebbtide_core::kinds::importance::spec::ImportanceMc;

/// Counts of any size, with a choice of policies.
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
#[doc(inline)]
pub use ebbtide_core::kinds::spectral::spec::Spectral;

/// Random decay at a steady rate.
///
/// ```
/// # use ebbtide::{Filter, Options, Stable};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("filter");
/// let filter = Filter::create(&dir, Stable::cells(100_000, 7, 5, 100), Options::new())?;
/// filter.insert("a")?;
/// assert!(filter.contains("a")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ebbtide_core::kinds::stable::spec::Stable;

#[doc(inline)]
pub use ebbtide_core::kinds::time_limited::spec::TimeLimited;

/// The last N insertions, in the least memory.
///
/// ```
/// # use ebbtide::{Age, Filter, Fingerprint, Options, Within};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("filter");
/// let filter = Filter::create(&dir, Fingerprint::last(1000), Options::new())?;
/// filter.insert("a")?;
/// assert_eq!(filter.age("a")?, Some(Age::Items(0)));
/// assert!(filter.seen_within("a", Within::Items(1))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ebbtide_core::kinds::fingerprint::spec::Fingerprint;

/// The last N insertions, with exact ages.
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
#[doc(inline)]
pub use ebbtide_core::kinds::timing::spec::Timing;

/// The last N insertions, with ages in batches.
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
#[doc(inline)]
pub use ebbtide_core::kinds::timing::spec::BlockTiming;
