//! The operations that filters of all kinds have. Each operation on a key is a [`Call`] with the
//! settings of its filter.

use crate::api::batch::Batch;
use crate::api::call::Call;
use crate::api::config::Spec;
use crate::api::entry::Entry;
use crate::api::handle::Filter;
use crate::api::ticket::Ticket;
use crate::engine::lifecycle::open;
use crate::engine::write::request::Checked;
use crate::error::Result;
use crate::media::Media;
use crate::options::Options;
use crate::primitives::Hint;
use ebbtide_core::kind::Parameters;
use std::path::Path;
use std::sync::Arc;

impl<K: Spec> Filter<K> {
    /// As [`Filter::create`], on a medium provided by the caller.
    ///
    /// # Errors
    /// As [`Filter::create`].
    pub fn create_on(media: Arc<dyn Media>, spec: K, options: Options) -> Result<Self> {
        Self::start(open::create(media, spec.kind()?, options)?)
    }

    /// As [`Filter::open`], on a medium provided by the caller.
    ///
    /// # Errors
    /// As [`Filter::open`].
    pub fn open_on(media: Arc<dyn Media>, options: Options) -> Result<Self> {
        Self::open_if(media, options, &|_, _| Ok(()))
    }
}

impl<K> Filter<K> {
    /// Begins a batch: inserts and positions of which all count or none, in whatever way the
    /// process ends. See [`Batch`], which has an example.
    #[must_use]
    pub fn batch(&self) -> Batch<'_, K> {
        Batch::new(self.call())
    }

    /// Inserts a key. Returns false if its time lies before the window; then nothing has changed.
    ///
    /// A key that the caller has hashed is inserted as the bytes of its hash,
    /// `insert(hash.to_le_bytes())`, and asked for in the same way. The filter hashes them again,
    /// with its own function and seed, in about two nanoseconds: the bits need not be uniform (an
    /// identifier will do), and false positives of filters with different seeds stay independent.
    /// Keys with the same hash are one key, which adds `n / 2^64` to the false-positive rate of `n`
    /// keys for a good 64-bit hash. The function must return the same value in every process and
    /// version that uses the filter, which that of `std` does not.
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
    /// settings of their own. None of them waits for a sync, but for the first record since the
    /// filter was opened, which begins a new log; with
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
        Ok(Ticket::new(&self.engine().tickets, last.get(), answer))
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

    /// Returns the same operations with settings of their own.
    #[must_use]
    #[inline]
    pub fn call(&self) -> Call<'_, Self> {
        Call::new(self)
    }

    /// Returns the filter's directory, as passed when the handle was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.engine().path()
    }

    /// Returns the kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.present_engine().shared.kind().name()
    }

    /// Returns all parameters of the kind.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.present_engine().shared.kind().parameters()
    }
}
