//! Operations with settings of their own: a time, a durability, a weight, a window.
//!
//! Each read is written once, for filters and readers; a [`Handle`] runs it.

use crate::api::config::{Ages, Any, Counts, Decays, Infers, Removes, Weighs};
use crate::api::entry::{AHEAD, Entry, Item, fetch};
use crate::api::handle::{Filter, Handle};
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::engine::read::infer::{self, PosteriorOptions};
use crate::engine::read::query::Queries;
use crate::engine::shared::Shared;
use crate::engine::write::request::{
    Admission, Checked, Given, Precondition, Request, Since, Waits,
};
use crate::engine::write::single;
use crate::error::Result;
use crate::options::Durability;
use crate::primitives::Hint;
use ebbtide_core::inference::{AgePosterior, Form, Penalty, Prior, decide};
use ebbtide_core::kind::{Age, Estimate, Within};
use std::cell::Cell;
use std::time::Duration;

/// Operations with settings of their own; see [`Filter::call`] and
/// [`Reader::call`](crate::Reader::call).
#[derive(Debug)]
pub struct Call<'a, H = Filter<Any>> {
    handle: &'a H,
    time: Option<u64>,
    durability: Option<Durability>,
    since: Since,
    weight: Option<f64>,
    asking: PosteriorOptions,
    /// Receives the LSN of the last record, instead of a wait until it is durable.
    issued: Option<&'a Hint>,
    waits: Waits,
}

impl<H> Clone for Call<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Call<'_, H> {}

impl<'a, H: Handle> Call<'a, H> {
    /// Creates a call with the handle's settings.
    #[inline]
    pub(crate) fn new(handle: &'a H) -> Self {
        Self {
            handle,
            time: None,
            durability: None,
            since: Since::LastSeen,
            weight: None,
            asking: PosteriorOptions::default(),
            issued: None,
            waits: Waits::Always,
        }
    }

    /// Uses this time instead of the clock's. As long as all inserts have such times, no clock
    /// moves the filter. The first insert without one starts the clock from the filter's latest
    /// time.
    #[must_use]
    pub fn time(mut self, time: Timestamp) -> Self {
        self.time = Some(time.as_unix_micros());
        self
    }

    /// Makes the call fail with [`Error::WouldWait`](crate::Error::WouldWait) where it would have
    /// to wait. For threads that must not block, such as one that holds an interpreter's lock: they
    /// repeat the call, without this setting, where they may block.
    ///
    /// A call would wait if another process or thread keeps the key's lock or its block for longer
    /// than an insert takes, if a checkpoint must come first, if log or memory must be allocated
    /// (as for the first record after an opening), if the filter's next step is due (at most once
    /// in a fraction of the window), and if the durability is [`Durability::Always`]. A reader
    /// would also wait to open the filter again.
    ///
    /// The operation has then not happened at all. Of a bulk call the keys before the failing one
    /// are inserted, as after any error.
    ///
    /// ```
    /// use ebbtide::{AgePartitioned, Checked, Durability, Error, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, AgePartitioned::last(10_000), Options::new())?;
    /// let quick = seen.call().without_waiting();
    /// let answer = match quick.check_and_insert("order 17") {
    ///     Err(Error::WouldWait { .. }) => seen.check_and_insert("order 17")?,
    ///     answer => answer?,
    /// };
    /// assert_eq!(answer, Checked::New);
    /// // A sync would be waited for.
    /// let refused = quick.durability(Durability::Always).insert("order 18");
    /// assert!(matches!(refused, Err(Error::WouldWait { .. })));
    /// assert!(!seen.contains("order 18")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.waits = Waits::Never;
        self
    }

    /// Makes the call fail with [`Error::WouldWait`](crate::Error::WouldWait) after it has waited
    /// about this long, and at least 10 ms, for a live owner of a lock that it needs, such as a
    /// stopped process. For callers that must look at something else in between, and then repeat
    /// the call. The operation has then not happened at all.
    ///
    /// The call waits as long as it takes for what makes progress: a sync, a checkpoint, the
    /// allocation of log or memory, the repair of what a dead process left.
    #[must_use]
    pub fn waiting_at_most(mut self, limit: Duration) -> Self {
        self.waits = Waits::AtMost(limit);
        self
    }

    /// Returns the settings of a query.
    #[inline]
    fn given(&self) -> Given {
        Given { time: self.time, waits: self.waits }
    }

    /// Queries the engine for a key.
    #[inline]
    fn ask<T>(
        &self,
        key: impl AsRef<[u8]>,
        ask: impl Fn(&Queries, u64, Given) -> Result<T>,
    ) -> Result<T> {
        let (key, given) = (key.as_ref(), self.given());
        self.handle.ask(given.waits, |queries| ask(queries, queries.shared.hash(key), given))
    }

    /// Queries the engine for all keys together.
    pub(super) fn ask_all_keys<T>(&self, ask: impl Fn(&Queries, Given) -> Result<T>) -> Result<T> {
        let given = self.given();
        self.handle.ask(given.waits, |queries| ask(queries, given))
    }

    /// Queries the engine for each of many keys, whose cells are prefetched.
    fn ask_all<T: AsRef<[u8]>, A>(
        &self,
        keys: &[T],
        ask: impl Fn(&Queries, u64, Given) -> Result<A>,
    ) -> Result<Vec<A>> {
        let given = self.given();
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AHEAD) {
            // These answers are of one state; between chunks a reader may switch to another one.
            let before = answers.len();
            self.handle.ask(given.waits, |queries| {
                answers.truncate(before);
                let hashes = fetch(&queries.shared, keys, |hash| queries.prefetch(hash));
                hashes[..keys.len()].iter().try_for_each(|&hash| {
                    answers.push(ask(queries, hash, given)?);
                    Ok(())
                })
            })?;
        }
        Ok(answers)
    }

    /// See [`Filter::contains`].
    ///
    /// # Errors
    /// As there, and of a reader as [`Reader::contains`](crate::Reader::contains).
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.ask(key, Queries::contains)
    }

    /// See [`Filter::contains_all`].
    ///
    /// # Errors
    /// As [`Call::contains`].
    pub fn contains_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<bool>> {
        self.ask_all(keys, Queries::contains)
    }
}

impl<'a, K> Call<'a, Filter<K>> {
    /// Uses this durability instead of the filter's.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets when a key counts as seen, for [`Call::check_and_insert`].
    #[must_use]
    pub fn since(mut self, since: Since) -> Self {
        self.since = since;
        self
    }

    /// Notes LSNs instead of waiting until they are durable.
    pub(crate) fn issuing(mut self, issued: &'a Hint) -> Self {
        self.issued = Some(issued);
        self
    }

    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    pub(crate) fn given_time(&self) -> Option<u64> {
        self.time
    }

    pub(crate) fn filter(&self) -> &'a Filter<K> {
        self.handle
    }

    /// Returns when a key counts as seen.
    pub(crate) fn kept(&self) -> Since {
        self.since
    }

    /// Waits until a record is durable, if the caller wants that now.
    #[inline]
    pub(crate) fn ensure_durability(&self, lsn: u64) -> Result<()> {
        let Some(issued) = self.issued else {
            return self.engine().commits.ensure_durability(lsn, self.durability);
        };
        issued.raise(lsn);
        self.engine().commits.ensure_durability_later(self.durability);
        Ok(())
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.handle.current.engine()
    }

    /// Calls a function with the engine in use; see [`Filter::run`].
    #[inline]
    pub(crate) fn run<T>(&self, call: impl FnMut(&Engine) -> Result<T>) -> Result<T> {
        self.handle.current.run(self.waits, call)
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.engine().shared.hash(key)
    }

    #[inline]
    fn write(
        &self,
        key: &[u8],
        ask: Precondition,
        count: Option<&Cell<Option<Estimate>>>,
    ) -> Result<Checked> {
        self.write_request(|shared| {
            let (hash, weight) = (shared.hash(key), shared.weigh(self.weight)?);
            let request = Request::new(hash, self.time, weight, ask, self.waits);
            Ok(Request { count, ..request })
        })
    }

    /// Writes the request that `of` returns, on the engine in use.
    #[inline]
    fn write_request<'r>(&self, of: impl Fn(&Shared) -> Result<Request<'r>>) -> Result<Checked> {
        let written = self.run(|engine| {
            self.check_durability_of(&engine.shared)?;
            let request = of(&engine.shared)?;
            engine.writer.prefetch_to_write(request.asked.hash);
            single::write(&engine.writer, &request)
        })?;
        self.ensure_durability(written.lsn)?;
        Ok(written.checked)
    }

    /// Checks that a call that must not wait need not wait for a sync.
    pub(crate) fn check_durability(&self) -> Result<()> {
        self.check_durability_of(&self.engine().shared)
    }

    #[inline]
    fn check_durability_of(&self, shared: &Shared) -> Result<()> {
        let durability = self.durability.unwrap_or(shared.durability);
        if self.waits.never() && self.issued.is_none() && durability == Durability::Always {
            return Err(shared.would_wait("a sync of the log"));
        }
        Ok(())
    }

    /// Writes a key, and returns its count together with the answer.
    fn write_and_count(&self, key: &[u8], ask: Precondition) -> Result<(Checked, Estimate)> {
        let count = Cell::new(None);
        let checked = self.write(key, ask, Some(&count))?;
        let estimate = count.get().ok_or_else(|| self.engine().shared.unsupported("estimate"))?;
        Ok((checked, estimate))
    }

    /// Returns the request to insert an item with these settings and its own.
    #[inline]
    pub(crate) fn request(
        &self,
        shared: &Shared,
        (item, hash): (&impl Item, u64),
        ask: Precondition,
    ) -> Result<Request<'_>> {
        let (time, weight) = item.settings();
        let weight = shared.weigh(weight.or(self.weight))?;
        Ok(Request::new(hash, time.or(self.time), weight, ask, self.waits))
    }

    /// Writes keys in order and passes on each answer. Keys written before an error become durable
    /// nevertheless.
    fn write_all<T: Item>(
        &self,
        items: &[T],
        ask: Precondition,
        mut tell: impl FnMut(Checked),
    ) -> Result<()> {
        self.check_durability()?;
        let mut last = 0;
        let mut write = |item: &T, hash| {
            let written = self.run(|engine| {
                let request = self.request(&engine.shared, (item, hash), ask)?;
                single::write(&engine.writer, &request)
            })?;
            last = last.max(written.lsn);
            tell(written.checked);
            Ok(())
        };
        let written = items.chunks(AHEAD).try_for_each(|items| {
            let writer = &self.engine().writer;
            let hashes = fetch(&writer.shared, items, |hash| writer.prefetch_to_write(hash));
            writer.prefetch_further(&hashes[..items.len()]);
            items.iter().zip(hashes).try_for_each(|(item, hash)| write(item, hash))
        });
        self.ensure_durability(last)?;
        written
    }

    /// See [`Filter::insert`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.write(key.as_ref(), Precondition::Nothing, None)? != Checked::TooLate)
    }

    /// See [`Filter::check_and_insert`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    #[inline]
    pub fn check_and_insert(&self, key: impl AsRef<[u8]>) -> Result<Checked> {
        self.write(key.as_ref(), Precondition::Present(self.since), None)
    }

    /// See [`Filter::insert_all`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    pub fn insert_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<usize> {
        self.count_inserted(keys)
    }

    /// As [`Call::insert_all`], and tells of each key in order whether it was inserted. After an
    /// error the caller knows those before it, and may continue behind them.
    #[doc(hidden)]
    pub fn insert_all_telling<T: AsRef<[u8]>>(
        &self,
        keys: &[T],
        mut tell: impl FnMut(bool),
    ) -> Result<()> {
        self.write_all(keys, Precondition::Nothing, |checked| tell(checked != Checked::TooLate))
    }

    /// See [`Filter::insert_entries`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    pub fn insert_entries<T: AsRef<[u8]>>(&self, entries: &[Entry<T, K>]) -> Result<usize> {
        self.count_inserted(entries)
    }

    fn count_inserted<T: Item>(&self, items: &[T]) -> Result<usize> {
        let mut inserted = 0;
        self.write_all(items, Precondition::Nothing, |checked| {
            inserted += usize::from(checked != Checked::TooLate);
        })?;
        Ok(inserted)
    }

    /// See [`Filter::check_and_insert_all`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    pub fn check_and_insert_all<T: AsRef<[u8]>>(
        &self,
        keys: &[T],
        answers: &mut Vec<Checked>,
    ) -> Result<()> {
        answers.reserve(keys.len());
        self.write_all(keys, Precondition::Present(self.since), |checked| answers.push(checked))
    }

    /// See [`Filter::check_and_insert_entries`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    pub fn check_and_insert_entries<T: AsRef<[u8]>>(
        &self,
        entries: &[Entry<T, K>],
        answers: &mut Vec<Checked>,
    ) -> Result<()> {
        answers.reserve(entries.len());
        self.write_all(entries, Precondition::Present(self.since), |checked| answers.push(checked))
    }
}

impl<H: Handle<Kind: Ages>> Call<'_, H> {
    /// See [`Filter::age`].
    ///
    /// # Errors
    /// Those of [`Filter::age`].
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.ask(key, Queries::age)
    }

    /// See [`Filter::seen_within`].
    ///
    /// # Errors
    /// Those of [`Filter::seen_within`].
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.ask(key, |queries, hash, given| queries.seen_within(hash, given, within))
    }
}

impl<H: Handle<Kind: Infers>> Call<'_, H> {
    /// Sets a window for posteriors instead of the filter's own, shorter or longer.
    #[must_use]
    pub fn window(mut self, window: Within) -> Self {
        self.asking.window = Some(window);
        self
    }

    /// Sets the formulas for posteriors.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.asking.form = form;
        self
    }

    /// See [`Filter::posterior`].
    ///
    /// # Errors
    /// As there, and [`Error::Parameter`](crate::Error::Parameter) for a window in another unit
    /// than the filter's.
    #[inline]
    pub fn posterior<P: Prior + ?Sized>(&self, key: impl AsRef<[u8]>, prior: &P) -> Result<f64> {
        let key = key.as_ref();
        self.ask(key, |queries, hash, given| {
            infer::posterior(queries, key, hash, given, self.asking, prior)
        })
    }

    /// See [`Filter::contains_with`].
    ///
    /// # Errors
    /// As there, and as [`Call::posterior`].
    #[inline]
    pub fn contains_with<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
        penalty: Penalty,
    ) -> Result<bool> {
        Ok(decide(self.posterior(key, prior)?, penalty)?)
    }

    /// See [`Filter::age_posterior`].
    ///
    /// # Errors
    /// Those of [`Filter::age_posterior`].
    pub fn age_posterior<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
    ) -> Result<AgePosterior> {
        let (key, form) = (key.as_ref(), self.asking.form);
        self.ask(key, |queries, hash, given| {
            infer::age_posterior(queries, key, hash, given, form, prior)
        })
    }
}

impl<H: Handle<Kind: Counts>> Call<'_, H> {
    /// See [`Filter::estimate`].
    ///
    /// # Errors
    /// Those of [`Filter::estimate`].
    #[inline]
    pub fn estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.ask(key, Queries::estimate)
    }

    /// See [`Filter::estimate_all`].
    ///
    /// # Errors
    /// Those of [`Filter::estimate_all`].
    pub fn estimate_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<Estimate>> {
        self.ask_all(keys, Queries::estimate)
    }
}

impl<K: Counts> Call<'_, Filter<K>> {
    /// Counts each key `count` times, as if it were inserted that often at once: from 1 to
    /// 1,099,511,562,240. Above 2^24 - 1 the log gets several records; all count, or none.
    ///
    /// ```
    /// # use ebbtide::{Counting, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("sold");
    /// let sold = Filter::create(&dir, Counting::capacity(1000).counter_bits(8), Options::new())?;
    /// sold.call().times(12).insert("apples")?;
    /// sold.call().times(2).remove("apples")?;
    /// assert_eq!(sold.estimate("apples")?.count, 10.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.weight = Some(count as f64);
        self
    }

    /// See [`Filter::insert_and_estimate`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    pub fn insert_and_estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        Ok(self.write_and_count(key.as_ref(), Precondition::Estimate)?.1)
    }

    /// See [`Filter::insert_up_to`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    pub fn insert_up_to(&self, key: impl AsRef<[u8]>, limit: f64) -> Result<Admission> {
        let (checked, estimate) =
            self.write_and_count(key.as_ref(), Precondition::up_to(limit)?)?;
        Ok(Admission::new(checked, estimate))
    }
}

impl<H: Handle<Kind: Decays>> Call<'_, H> {
    /// See [`Filter::frequency`].
    ///
    /// # Errors
    /// Those of [`Filter::frequency`].
    pub fn frequency(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.ask(key, Queries::frequency)
    }
}

impl<K: Removes> Call<'_, Filter<K>> {
    /// See [`Filter::remove`].
    ///
    /// # Errors
    /// As there, and [`Error::TimeAhead`](crate::Error::TimeAhead).
    #[inline]
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let removed = self.write_request(|shared| {
            if shared.kind().removal().is_none() {
                return Err(shared.unsupported("remove"));
            }
            let (hash, weight) = (shared.hash(key.as_ref()), shared.weigh(self.weight)?);
            Ok(Request::remove(hash, self.time, weight, self.waits))
        })?;
        Ok(removed.is_present())
    }
}

impl Call<'_, Filter<Any>> {
    /// Sets the weight of each key: its count or its importance, depending on the filter's kind.
    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = Some(weight);
        self
    }
}

impl<K: Weighs> Call<'_, Filter<K>> {
    /// Sets the importance of each key, on the scale from 0 to the kind's `importance-max`. A key
    /// without it is of the lowest level.
    #[must_use]
    pub fn importance(mut self, importance: f64) -> Self {
        self.weight = Some(importance);
        self
    }
}
