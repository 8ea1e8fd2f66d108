//! What handles of some kinds can do besides: ages, posteriors, counts, removals.

use crate::api::config::{Ages, Counts, Decays, Infers, Removes};
use crate::api::filter::Filter;
use crate::engine::outcome::Admission;
use crate::error::Result;
use ebbtide_core::inference::{AgePosterior, Penalty, Prior};
use ebbtide_core::kind::{Age, Estimate, Within};

impl<K: Ages> Filter<K> {
    /// How long ago a key was seen, at least; `None` if it is not in the window.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind knows no ages.
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.call().age(key)
    }

    /// Whether a key was seen within less than the window. Never false for one that was; true also
    /// for some that are a little older.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind knows no ages.
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.call().seen_within(key, within)
    }
}

impl<K: Infers> Filter<K> {
    /// The probability that a key is in the window, given what the filter has kept of it and what
    /// was believed of it before.
    ///
    /// The other side of [`Filter::contains`]: "yes" comes as a number near 1 or far from it, "no"
    /// as 0. It is as good as the prior; `docs/inference.md` tells when it helps.
    ///
    /// ```
    /// # use ebbtide::{Filter, Options, Timing};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, Timing::last(1000), Options::new())?;
    /// filter.insert("a")?;
    /// // Each insert was believed to be of this key once in a million.
    /// assert!(filter.posterior("a", &1e-6)? > 0.99);
    /// assert_eq!(filter.posterior("b", &1e-6)?, 0.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) if the prior is not a probability;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind tells no posteriors;
    /// [`Error::Poisoned`](crate::Error::Poisoned).
    #[inline]
    pub fn posterior<P: Prior + ?Sized>(&self, key: impl AsRef<[u8]>, prior: &P) -> Result<f64> {
        self.call().posterior(key, prior)
    }

    /// Whether to take a key for one of the window, so that the expected penalty is least (section
    /// 2.6 of the Inferential paper).
    ///
    /// ```
    /// # use ebbtide::{Filter, Options, Penalty, Timing};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, Timing::last(1000), Options::new())?;
    /// filter.insert("a")?;
    /// let penalty = Penalty { false_positive: 10.0, false_negative: 1.0 };
    /// assert!(filter.contains_with("a", &1e-6, penalty)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::posterior`], and [`Error::Parameter`](crate::Error::Parameter) for penalties
    /// below 0.
    #[inline]
    pub fn contains_with<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
        penalty: Penalty,
    ) -> Result<bool> {
        self.call().contains_with(key, prior, penalty)
    }

    /// How long ago a key was inserted, as a distribution: in inserts, or in microseconds where the
    /// window is a time.
    ///
    /// # Errors
    /// As [`Filter::posterior`].
    pub fn age_posterior<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
    ) -> Result<AgePosterior> {
        self.call().age_posterior(key, prior)
    }
}

impl<K: Counts> Filter<K> {
    /// How often a key was inserted (less how often it was removed), by estimate: never too low but
    /// for what the kind says, and too high where all cells of the key are other keys' too.
    ///
    /// ```
    /// # use ebbtide::{DynamicCount, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let words = Filter::create(&dir, DynamicCount::capacity(1000), Options::new())?;
    /// words.insert_all(&["to", "be", "or", "not", "to", "be"])?;
    /// assert_eq!(words.estimate("be")?.count, 2.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned);
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind does not count.
    #[inline]
    pub fn estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().estimate(key)
    }

    /// How often each of many keys was inserted; faster than one by one, as
    /// [`Filter::contains_all`].
    ///
    /// # Errors
    /// As [`Filter::estimate`].
    pub fn estimate_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<Estimate>> {
        self.call().estimate_all(keys)
    }

    /// Inserts a key and returns how often it was inserted, this time included, in one step: of
    /// concurrent callers in any number of processes each gets a count of its own. (Up to the
    /// estimate's errors: other keys may raise it too.)
    ///
    /// A key that comes too late changes nothing, and its count is returned as it is.
    ///
    /// ```
    /// # use ebbtide::{DynamicCount, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let visits = Filter::create(&dir, DynamicCount::capacity(1000), Options::new())?;
    /// assert_eq!(visits.insert_and_estimate("site")?.count, 1.0);
    /// assert_eq!(visits.call().times(9).insert_and_estimate("site")?.count, 10.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::insert`], and [`Error::Unsupported`](crate::Error::Unsupported), before
    /// anything has changed, if the kind does not count.
    pub fn insert_and_estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().insert_and_estimate(key)
    }

    /// Inserts a key unless that would raise its count above `limit`, in one step: of concurrent
    /// callers in any number of processes no more are admitted than the limit has room for. Refused
    /// attempts are not counted.
    ///
    /// With [`Call::times`](crate::Call::times) a key needs room for all of its weight. Estimates
    /// that other keys raise make a limit lower, never higher. A count that has reached the end of
    /// its counter (`at_least`) is refused, for it may be any higher one: choose counters wide
    /// enough for the limit.
    ///
    /// ```
    /// # use ebbtide::{Decaying, Filter, Options};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// // Of each count an epoch of a second leaves nine tenths: 100 are refilled at 10 a second, at most.
    /// let spec = Decaying::capacity(1000, 0.9, Duration::from_secs(1));
    /// let requests = Filter::create(&dir, spec, Options::new())?;
    /// if requests.insert_up_to("client 7", 100.0)?.admitted {
    ///     println!("serve it");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::insert_and_estimate`], and [`Error::Parameter`](crate::Error::Parameter) for a
    /// limit that is NaN.
    pub fn insert_up_to(&self, key: impl AsRef<[u8]>, limit: f64) -> Result<Admission> {
        self.call().insert_up_to(key, limit)
    }
}

impl<K: Decays> Filter<K> {
    /// The estimate, normalised: what the key comes to in an epoch, as a weighted mean over all
    /// epochs.
    ///
    /// ```
    /// # use ebbtide::{Decaying, Filter, Options, Timestamp};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let day = Duration::from_secs(86_400);
    /// let visits = Filter::create(&dir, Decaying::capacity(1000, 0.9, day), Options::new())?;
    /// visits.call().time(Timestamp::from_unix_millis(0)).insert("site")?;
    /// // A day later: the estimate is 0.9, and times 1 - 0.9 it is the frequency. Both are a little rounded up.
    /// let later = visits.call().time(Timestamp::from_unix_millis(86_400_000));
    /// assert!((later.estimate("site")?.count - 0.9).abs() < 0.01);
    /// assert!((later.frequency("site")?.count - 0.09).abs() < 0.001);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::estimate`].
    pub fn frequency(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().frequency(key)
    }
}

impl<K: Removes> Filter<K> {
    /// Removes a key once. False, and nothing changes, if it is not there.
    ///
    /// Removing a key that was never inserted, and only seems to be there, harms others: they may
    /// be missed then.
    ///
    /// ```
    /// # use ebbtide::{Counting, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let open = Filter::create(&dir, Counting::capacity(1000), Options::new())?;
    /// open.insert("session 7")?;
    /// assert!(open.remove("session 7")?);
    /// assert!(!open.remove("session 7")?, "it is not there any more");
    /// assert!(!open.contains("session 7")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::insert`], and [`Error::Unsupported`](crate::Error::Unsupported) if nothing can
    /// be removed from the filter.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().remove(key)
    }
}
