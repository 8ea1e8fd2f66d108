//! The operations of a handle, each a [`Call`] with the settings of its filter: those of all kinds,
//! then ages, posteriors, counts and removals, which only some kinds have.

use crate::api::batch::Batch;
use crate::api::call::Call;
use crate::api::config::{Ages, Counts, Decays, Infers, Removes};
use crate::api::entry::Entry;
use crate::api::filter::Filter;
use crate::api::ticket::Ticket;
use crate::engine::outcome::{Admission, Checked};
use crate::error::Result;
use crate::sync::Hint;
use ebbtide_core::inference::{AgePosterior, Penalty, Prior};
use ebbtide_core::kind::{Age, Estimate, Within};

impl<K> Filter<K> {
    /// Begins a batch: inserts and positions of which all count or none, in whatever way the
    /// process ends. See [`Batch`], which has an example.
    #[must_use]
    pub fn batch(&self) -> Batch<'_, K> {
        Batch::new(self.call())
    }

    /// Inserts a key. Returns false if its time lies before the window; then nothing has changed.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) (a full disk: nothing has changed, retry once there is
    /// space), [`Error::Poisoned`](crate::Error::Poisoned).
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().insert(key)
    }

    /// Returns whether a key is in the window. Never false for a key in the window; true for other
    /// keys at the filter's false-positive rate.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) if a thread panicked in the middle of changing
    /// the key's block.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().contains(key)
    }

    /// Atomic check-and-insert: of concurrent callers with the same new key exactly one receives
    /// [`Checked::New`].
    ///
    /// # Errors
    /// As [`Filter::insert`].
    #[inline]
    pub fn check_and_insert(&self, key: impl AsRef<[u8]>) -> Result<Checked> {
        self.call().check_and_insert(key)
    }

    /// Does what `change` does with the call that it gets, and returns its answer at once, with a
    /// [`Ticket`] for its durability. `change` may make any number of single and bulk calls, with
    /// settings of their own. None of them waits for a sync; with
    /// [`Durability::Interval`](crate::Durability::Interval) they become durable in that time even
    /// if nobody waits for the ticket.
    ///
    /// In async code a task awaits the ticket where a call with
    /// [`Durability::Always`](crate::Durability::Always) would block a thread. A thousand requests
    /// then share a sync. See `docs/async.md`.
    ///
    /// ```
    /// use ebbtide::{AgePartitioned, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, AgePartitioned::last(10_000), Options::new())?;
    /// let ticket = seen.issue(|call| call.check_and_insert("order 17"))?;
    /// assert!(ticket.answer().is_new());
    /// assert!(seen.contains("order 17")?, "at once");
    /// ticket.wait()?; // or `ticket.await?`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As of `change`. Keys that it inserted before the error stay, and become durable with the
    /// next sync.
    pub fn issue<T>(&self, change: impl FnOnce(Call<'_, Self>) -> Result<T>) -> Result<Ticket<T>> {
        let last = Hint::default();
        let answer = change(self.call().issuing(&last))?;
        Ok(Ticket::new(&self.engine.tickets, last.get(), answer))
    }

    /// Inserts keys in order; they become durable together. Much faster than single inserts if the
    /// filter is larger than the processor's caches. Returns the number of inserted keys: all
    /// except those that were too late.
    ///
    /// # Errors
    /// As [`Filter::insert`]; the keys before the failing one are inserted.
    pub fn insert_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<usize> {
        self.call().insert_all(keys)
    }

    /// Queries many keys; faster than single queries, as [`Filter::insert_all`].
    ///
    /// # Errors
    /// As [`Filter::contains`].
    pub fn contains_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<bool>> {
        self.call().contains_all(keys)
    }

    /// Checks and inserts keys in order, each atomically; they become durable together. Faster than
    /// single calls, as [`Filter::insert_all`]. Appends the answers to `answers`.
    ///
    /// # Errors
    /// As [`Filter::insert`]; `answers` then contains the answers for the keys before the failing
    /// one, which are inserted.
    pub fn check_and_insert_all<T: AsRef<[u8]>>(
        &self,
        keys: &[T],
        answers: &mut Vec<Checked>,
    ) -> Result<()> {
        self.call().check_and_insert_all(keys, answers)
    }

    /// Inserts keys in order, each with the time or the weight of its [`Entry`]; otherwise as
    /// [`Filter::insert_all`].
    ///
    /// ```
    /// use ebbtide::{Entry, Filter, Options, TimeLimited, Timestamp};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let minute = Duration::from_secs(60);
    /// let seen = Filter::create(&dir, TimeLimited::window(minute), Options::new())?;
    /// let at = |second: u64| Timestamp::from_unix_millis(1_700_000_000_000 + second * 1000);
    /// let inserted = seen.insert_entries(&[
    ///     Entry::new("a").time(at(100)),
    ///     Entry::new("b").time(at(90)),
    ///     // The filter's time is that of "a": this key's window is over.
    ///     Entry::new("c").time(at(0)),
    /// ])?;
    /// assert_eq!(inserted, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::insert_all`], [`Error::TimeAhead`](crate::Error::TimeAhead), and
    /// [`Error::Parameter`](crate::Error::Parameter) for a weight that the kind does not accept.
    pub fn insert_entries<T: AsRef<[u8]>>(&self, entries: &[Entry<T, K>]) -> Result<usize> {
        self.call().insert_entries(entries)
    }

    /// Checks and inserts keys in order, each with the time or the weight of its [`Entry`];
    /// otherwise as [`Filter::check_and_insert_all`].
    ///
    /// # Errors
    /// As [`Filter::insert_entries`]; `answers` then contains the answers for the keys before the
    /// failing one, which are inserted.
    pub fn check_and_insert_entries<T: AsRef<[u8]>>(
        &self,
        entries: &[Entry<T, K>],
        answers: &mut Vec<Checked>,
    ) -> Result<()> {
        self.call().check_and_insert_entries(entries, answers)
    }

    /// Inserts a key that the caller has hashed: exactly `insert(hash.to_le_bytes())`, as each of
    /// the methods with `_hash`.
    ///
    /// The filter hashes these 8 bytes again, with its own function and seed, in about two
    /// nanoseconds. Therefore the bits need not be uniform (an identifier will do), and false
    /// positives of filters with different seeds stay independent. The filter cannot undo a
    /// collision: keys with the same hash are one key. This adds `n / 2^64` to the false-positive
    /// rate of `n` keys for a good 64-bit hash, and more for others. For untrusted keys, hash with
    /// a secret key, or give the filter the keys themselves with
    /// [`KeyHash::Keyed`](crate::KeyHash::Keyed). The hash function must return the same value in
    /// every process and version that uses the filter, which that of `std` does not.
    ///
    /// For all other operations pass the bytes: `estimate(hash.to_le_bytes())`. A key inserted by
    /// its own bytes is not found by its hash, nor vice versa.
    ///
    /// ```
    /// # use ebbtide::{AgePartitioned, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, AgePartitioned::last(1000), Options::new())?;
    /// let order: u64 = 4711;
    /// assert!(seen.check_and_insert_hash(order)?.is_new());
    /// assert!(seen.contains_hash(order)? && seen.contains(order.to_le_bytes())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::insert`].
    #[inline]
    pub fn insert_hash(&self, hash: u64) -> Result<bool> {
        self.call().insert_hash(hash)
    }

    /// Returns whether a key that the caller has hashed is in the window; see
    /// [`Filter::insert_hash`].
    ///
    /// # Errors
    /// As [`Filter::contains`].
    #[inline]
    pub fn contains_hash(&self, hash: u64) -> Result<bool> {
        self.call().contains_hash(hash)
    }

    /// Atomic check-and-insert of a key that the caller has hashed; see [`Filter::insert_hash`].
    ///
    /// # Errors
    /// As [`Filter::check_and_insert`].
    #[inline]
    pub fn check_and_insert_hash(&self, hash: u64) -> Result<Checked> {
        self.call().check_and_insert_hash(hash)
    }

    /// Returns the same operations with settings of their own.
    #[must_use]
    #[inline]
    pub fn call(&self) -> Call<'_, Self> {
        Call::new(self)
    }
}

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
    /// // Each insert was believed to be of this key once in a million.
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
    /// enough for the limit.
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
