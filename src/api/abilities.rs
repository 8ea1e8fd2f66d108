//! The operations on keys that only some kinds have: ages, posteriors, counts and removals. Each is
//! a [`Call`](crate::Call) with the settings of its filter.

use crate::api::config::{Ages, Counts, Decays, Infers, Removes};
use crate::api::handle::Filter;
use crate::engine::write::request::Admission;
use crate::error::Result;
use ebbtide_core::inference::{AgePosterior, Penalty, Prior};
use ebbtide_core::kind::{Age, Estimate, Within};

impl<K: Ages> Filter<K> {
    /// Returns how long ago a key was seen, at least; `None` if it is not in the window.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind keeps no ages.
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.call().age(key)
    }

    /// Returns whether a key was seen within a time shorter than the window. Never false for a key
    /// that was; also true for some keys that are slightly older.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind keeps no ages.
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.call().seen_within(key, within)
    }
}

impl<K: Infers> Filter<K> {
    /// Returns the probability that a key is in the window, given the evidence of its cells and a
    /// prior.
    ///
    /// A graded form of [`Filter::contains`]: "yes" becomes a number, near 1 or far from it, and
    /// "no" becomes 0. The result is as good as the prior; `docs/inference.md` explains when it
    /// helps.
    ///
    /// ```
    /// # use ebbtide::{Filter, Options, Timing};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, Timing::last(1000), Options::new())?;
    /// filter.insert("a")?;
    /// // The prior: one insert in a million is of this key.
    /// assert!(filter.posterior("a", &1e-6)? > 0.99);
    /// assert_eq!(filter.posterior("b", &1e-6)?, 0.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) if the prior is not a probability;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind has no posteriors;
    /// [`Error::Poisoned`](crate::Error::Poisoned).
    #[inline]
    pub fn posterior<P: Prior + ?Sized>(&self, key: impl AsRef<[u8]>, prior: &P) -> Result<f64> {
        self.call().posterior(key, prior)
    }

    /// Returns the answer with the least expected penalty for whether a key is in the window
    /// (section 2.6 of the Inferential paper).
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

    /// Returns how long ago a key was inserted, as a distribution: in inserts, or in microseconds
    /// where the window is a time.
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
    /// Estimates how often a key was inserted, less how often it was removed. The estimate is never
    /// too low except as documented for the kind, and too high if all cells of the key are shared
    /// with other keys.
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

    /// Estimates how often each of many keys was inserted; faster than single queries, as
    /// [`Filter::contains_all`].
    ///
    /// # Errors
    /// As [`Filter::estimate`].
    pub fn estimate_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<Estimate>> {
        self.call().estimate_all(keys)
    }

    /// Inserts a key and returns how often it was inserted, including this time, in one atomic
    /// step. Concurrent callers in any number of processes each receive a different count (up to
    /// the estimate's errors: other keys may raise it too).
    ///
    /// A key that is too late changes nothing, and its present count is returned.
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

    /// Inserts a key unless that would raise its count above `limit`, in one atomic step. Of
    /// concurrent callers in any number of processes, no more are admitted than the limit allows.
    /// Refused attempts are not counted.
    ///
    /// With [`Call::times`](crate::Call::times) a key needs room for all of its weight. Estimates
    /// raised by other keys make a limit effectively lower, never higher. A saturated count
    /// (`at_least`) is refused, because it may stand for any higher one: choose counters wide
    /// enough for the limit. A key that is too late is refused, too, whatever its count is.
    ///
    /// ```
    /// # use ebbtide::{Decaying, Filter, Options};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// // Each second nine tenths of every count are left, so at most 10 of the 100 are refilled
    /// // per second.
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
    /// Returns the normalised estimate: the key's inserts per epoch, as a weighted mean over all
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
    /// // A day later: the estimate is 0.9; times 1 - 0.9 it is the frequency. Both are slightly
    /// // rounded up.
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
    /// Removes a key once. Returns false, and changes nothing, if it is not there.
    ///
    /// Removing a key that was never inserted and is a false positive harms other keys: they may
    /// become false negatives.
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
