//! Reading a filter without writing to it, not even to its directory.
//!
//! A reader holds no session. While writers live, it maps their image and answers from it, and
//! continues to do so after they have died. If no process has the filter open at first, the reader
//! rebuilds the state in private memory.
//!
//! A reader detects when its view is no longer the filter. A retired image is marked as such, and
//! an opener of a filter that no process has open begins a new timeline, which the file `live`
//! names.

pub(in crate::api) mod view;

use crate::admin::dump_log::Entry;
use crate::api::call::Call;
use crate::api::claim::OpenClaim;
use crate::api::config::{Ages, Any, Counts, Decays, Infers, Spec};
use crate::api::explain::{self, Explained};
use crate::api::handle::{Handle, sealed};
use crate::api::reader::view::{TRIES, View, look, open_meta};
use crate::archive::At;
use crate::engine::Engine;
use crate::engine::read::details::Details;
use crate::engine::read::query::Queries;
use crate::engine::read::stats::{Digest, Stat};
use crate::engine::write::request::{Given, Waits};
use crate::error::{Error, Result};
use crate::media::{Disk, Media};
use crate::options::Options;
use crate::primitives::Mutex;
use arc_swap::ArcSwap;
use ebbtide_core::inference::{AgePosterior, Penalty, Prior};
use ebbtide_core::kind::{Age, Estimate, Parameters, Within};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// A filter open for reading only. It needs no write permission, changes no file, and delays no
/// writer.
///
/// While writers have the filter open, answers are as fresh as theirs. Otherwise the state is
/// rebuilt in memory. That takes as long as a recovery and as much memory as the filter (if its
/// blocks grow, as much as if all had their full size). It begins anew if the filter is opened
/// meanwhile; nobody ever waits for a reader. Queries some 10 ms after a writer has opened the
/// filter notice the writer.
///
/// ```
/// use ebbtide::{AgePartitioned, Filter, Options, Reader};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let seen = Filter::open_or_create(&dir, AgePartitioned::last(10_000), Options::new())?;
/// let reader: Reader = Reader::open(&dir, Options::new())?;
/// seen.insert("order 17")?;
/// assert!(reader.contains("order 17")?);
/// seen.close()?;
/// assert!(reader.contains("order 17")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader<K = Any> {
    media: Arc<dyn Media>,
    options: Options,
    view: ArcSwap<View>,
    /// Held by the thread that takes the next view.
    taking: Mutex<()>,
    /// The required kind of the filter, also if it is recreated.
    wanted: Option<&'static str>,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view.load();
        let mut handle = f.debug_struct("Reader");
        handle.field("path", &self.media.path()).field("kind", &view.engine.shared.kind().name());
        handle.finish_non_exhaustive()
    }
}

impl<K> Handle for Reader<K> {
    type Kind = K;
}

impl<K> sealed::Handle for Reader<K> {
    fn ask<T>(&self, waits: Waits, mut ask: impl FnMut(&Queries) -> Result<T>) -> Result<T> {
        self.with_view(waits, |view| ask(&view.engine.queries))
    }
}

impl<K: Spec> Reader<K> {
    /// Opens a filter for reading.
    ///
    /// # Errors
    /// [`Error::NotAFilter`], [`Error::Mismatch`] if it is not of kind `K`, [`Error::Locked`],
    /// [`Error::Damaged`], [`Error::Version`], [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_on(Arc::new(Disk::new(dir.as_ref())), options)
    }

    /// Opens a filter as it was at a moment of the past. The answers are those that the filter gave
    /// then: its time stands still at the moment's last operation, and no later one changes them.
    /// The state is rebuilt in memory from the log that is kept
    /// ([`Options::keep_log`](crate::Options::keep_log)), while others write.
    ///
    /// ```
    /// use ebbtide::history::At;
    /// use ebbtide::{AgePartitioned, Any, Filter, Keep, Options, Reader};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let options = Options::new().keep_log("24h".parse()?);
    /// let seen = Filter::create(&dir, AgePartitioned::last(10_000), options)?;
    /// seen.insert("order 17")?;
    /// let moment = At::Lsn(seen.stat()?.lsn - 1);
    /// seen.clear()?;
    /// assert!(!seen.contains("order 17")?);
    /// let then = Reader::<Any>::at(&dir, moment, Options::new())?;
    /// assert!(then.contains("order 17")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Reader::open`], and [`Error::NotKept`] if the log does not have the moment.
    pub fn at(dir: impl AsRef<Path>, at: At, options: Options) -> Result<Self> {
        Self::at_on(Arc::new(Disk::new(dir.as_ref())), at, options)
    }

    /// As [`Reader::at`], on a medium provided by the caller.
    ///
    /// # Errors
    /// As [`Reader::at`].
    pub fn at_on(media: Arc<dyn Media>, at: At, options: Options) -> Result<Self> {
        let view = ArcSwap::from_pointee(View::take_past(&media, &options, K::KIND, at)?);
        let (taking, wanted) = (Mutex::new(()), K::KIND);
        Ok(Self { media, options, view, taking, wanted, kind: PhantomData })
    }

    /// As [`Reader::open`], on a medium provided by the caller.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_on(media: Arc<dyn Media>, options: Options) -> Result<Self> {
        let view = ArcSwap::from_pointee(View::take(&media, &options, K::KIND)?);
        let (taking, wanted) = (Mutex::new(()), K::KIND);
        Ok(Self { media, options, view, taking, wanted, kind: PhantomData })
    }
}

impl Reader<Any> {
    /// Reads a state that its owner changes.
    pub(super) fn of_own(media: Arc<dyn Media>, options: Options, view: View) -> Self {
        let view = ArcSwap::from_pointee(view.unchecked());
        Self { media, options, view, taking: Mutex::new(()), wanted: None, kind: PhantomData }
    }

    /// Returns the number of the log.
    pub(super) fn log(&self) -> u128 {
        self.view.load().engine.shared.meta.log_uuid
    }

    /// Changes the state, which nobody reads meanwhile.
    pub(super) fn with_own<T>(&self, change: impl FnOnce(&Engine) -> T) -> T {
        change(&self.view.load().engine)
    }
}

impl<K> Reader<K> {
    /// Runs a query on a view that shows the filter's state. Taking another view is a wait.
    fn with_view<T>(&self, waits: Waits, mut ask: impl FnMut(&View) -> Result<T>) -> Result<T> {
        let mut left = TRIES;
        loop {
            let view = self.view.load();
            // First of all: in a forked child the image is not mapped.
            view.engine.shared.check_process()?;
            left -= 1;
            let retired = || -> Error { view.engine.shared.retired() };
            let answer = if view.is_current()? { ask(&view) } else { Err(retired()) };
            match answer {
                Err(error) if left > 0 && view.is_over(&error) => {
                    if waits.never() {
                        return Err(view.engine.shared.would_wait("the filter to be opened again"));
                    }
                    self.renew(&view)?;
                }
                answer => return answer,
            }
        }
    }

    /// Replaces `old` by another view, unless another thread just did.
    fn renew(&self, old: &Arc<View>) -> Result<()> {
        let _taking = self.taking.lock();
        if Arc::ptr_eq(&self.view.load(), old) {
            // It may have been altered since, with other defaults.
            let new = View::take(&self.media, &self.options.for_reopening(), self.wanted)?;
            self.view.store(Arc::new(new));
        }
        Ok(())
    }

    /// Returns whether a key is in the window; see [`Filter::contains`](crate::Filter::contains).
    ///
    /// # Errors
    /// As [`Reader::open`], because the filter may have to be opened again.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().contains(key)
    }

    /// Returns for each of many keys whether it is in the window; faster than single queries, as
    /// [`Filter::contains_all`](crate::Filter::contains_all).
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn contains_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<bool>> {
        self.call().contains_all(keys)
    }

    /// Returns the same queries with a time of their own.
    #[must_use]
    pub fn call(&self) -> Call<'_, Self> {
        Call::new(self)
    }

    /// Returns the position of a source; see [`Filter::position`](crate::Filter::position).
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn position(&self, source: u64) -> Result<Option<u64>> {
        self.with_view(Waits::Always, |view| {
            view.engine.shared.check_trusted()?;
            Ok(view.engine.header().positions().get(source))
        })
    }

    /// Returns the positions of all sources, by source.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn positions(&self) -> Result<Vec<(u64, u64)>> {
        self.with_view(Waits::Always, |view| {
            view.engine.shared.check_trusted()?;
            Ok(view.engine.header().positions().all())
        })
    }

    /// Returns the claims that are held now, or were at the moment of a past state, the oldest
    /// first.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn claims(&self) -> Result<Vec<OpenClaim>> {
        self.with_view(Waits::Always, |view| {
            view.engine.shared.check_trusted()?;
            // Without the repair of what dead owners left, which writes.
            let held = view.engine.header().claims().all();
            Ok(OpenClaim::all(view.engine.leases.now(), held))
        })
    }

    /// Returns statistics of the filter.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn stat(&self) -> Result<Stat> {
        self.with_view(Waits::Always, |view| view.engine.stat())
    }

    /// Returns figures for operators; see [`Filter::details`](crate::Filter::details). Beside
    /// writers they are those of the writers. Without any, no handle is live and no stripe held.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn details(&self) -> Result<Details> {
        self.with_view(Waits::Always, |view| view.engine.details())
    }

    /// Returns a hash of the logical state; see [`Filter::digest`](crate::Filter::digest). A reader
    /// cannot block writers. While there are any, it first rebuilds the state from the files, up to
    /// about the last operation that has returned.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn digest(&self) -> Result<Digest> {
        self.with_view(Waits::Always, |view| {
            if view.own {
                return view.engine.digest();
            }
            let media = &view.engine.shared.media;
            let rebuilt = look(&**media, |meta, look, _| {
                View::rebuild(media, meta, open_meta(&**media)?, &self.options, look)
            });
            rebuilt?.engine.digest()
        })
    }

    /// Explains the answers of [`Reader::contains`] about keys: where each key lies, how old it is,
    /// and which records of the kept log inserted it, at most `most` of the newest for each key.
    ///
    /// Records contain the hash of their key, not the key: those of another key with the same hash
    /// are among them. That one of a billion keys has the hash of a given key has a probability of
    /// 1 in 18 billion. Reads the whole log that is kept, once for all keys.
    ///
    /// ```
    /// use ebbtide::{AgePartitioned, Filter, Options, Reader};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::open_or_create(&dir, AgePartitioned::last(10_000), Options::new())?;
    /// seen.insert("order 17")?;
    /// seen.insert("order 18")?;
    /// let reader: Reader = Reader::open(&dir, Options::new())?;
    /// let explained = reader.explain(&["order 17", "order 19"], 10)?;
    /// assert!(explained.keys[0].present);
    /// assert_eq!(explained.keys[0].records[0].inserts_since, 1);
    /// // The log reaches back to the creation: this key was never inserted.
    /// assert!(explained.log.is_complete && explained.keys[1].inserts == 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Reader::contains`], and [`Error::Damaged`] if the log is damaged. If only its kept part
    /// is, the examined log begins behind the damage; as of a moment of the past this is an error
    /// too.
    pub fn explain<T: AsRef<[u8]>>(&self, keys: &[T], most: usize) -> Result<Explained> {
        self.with_view(Waits::Always, |view| {
            let queries = &view.engine.queries;
            let answers = keys.iter().map(|key| explain::answer(queries, key.as_ref()));
            let answers = answers.collect::<Result<Vec<_>>>()?;
            let end = view.engine.header().tail().read();
            explain::explain((&view.engine, view.is_past), &answers, end, most)
        })
    }

    /// Returns the filter's directory, as passed when the reader was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.media.path()
    }

    /// Converts into the same reader without its type. It still refuses a filter of another kind in
    /// the place of this one.
    #[must_use]
    pub fn into_any(self) -> Reader<Any> {
        let Self { media, options, view, taking, wanted, kind: _ } = self;
        Reader { media, options, view, taking, wanted, kind: PhantomData }
    }

    /// Returns the name of the kind that the last query found. Never waits.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.view.load().engine.shared.kind().name()
    }

    /// Returns all parameters of the kind that the last query found. Never waits.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.view.load().engine.shared.kind().parameters()
    }
}

impl Reader<Any> {
    /// Converts into the same reader with the type of its kind; see
    /// [`Filter::typed`](crate::Filter::typed). As a query, it may have to open the filter again.
    ///
    /// # Errors
    /// The unchanged reader, if the filter is of another kind than `K`.
    #[expect(clippy::result_large_err, reason = "the reader itself comes back, as from a downcast")]
    pub fn typed<K: Spec>(self) -> std::result::Result<Reader<K>, Self> {
        // By an alteration it may be of another kind since the last query. After an error the next
        // query has it.
        let _ = self.with_view(Waits::Always, |_| Ok(()));
        if self.view.load().engine.shared.check_kind(K::KIND).is_err() {
            return Err(self);
        }
        let Self { media, options, view, taking, wanted, kind: _ } = self;
        let wanted = K::KIND.or(wanted);
        Ok(Reader { media, options, view, taking, wanted, kind: PhantomData })
    }
}

impl<K: Ages> Reader<K> {
    /// Returns the age of the key of a record of this filter's log, as [`Reader::age`] does for a
    /// key; `None` if the key is absent, and for a record without a key.
    ///
    /// # Errors
    /// Those of [`Reader::age`].
    pub fn age_of_record(&self, entry: &Entry) -> Result<Option<Age>> {
        let Some(hash) = entry.key_hash() else { return Ok(None) };
        self.with_view(Waits::Always, |view| view.engine.queries.age(hash, Given::default()))
    }

    /// Returns how long ago a key was seen, at least; see [`Filter::age`](crate::Filter::age).
    ///
    /// # Errors
    /// As [`Reader::contains`], and [`Error::Unsupported`] if the kind keeps no ages.
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.call().age(key)
    }

    /// Returns whether a key was seen within a time shorter than the window; see
    /// [`Filter::seen_within`](crate::Filter::seen_within).
    ///
    /// # Errors
    /// As [`Reader::age`].
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.call().seen_within(key, within)
    }
}

impl<K: Infers> Reader<K> {
    /// Returns the probability that a key is in the window; see
    /// [`Filter::posterior`](crate::Filter::posterior).
    ///
    /// # Errors
    /// As [`Reader::contains`], [`Error::Parameter`] if the prior is not a probability, and
    /// [`Error::Unsupported`] if the kind has no posteriors.
    pub fn posterior<P: Prior + ?Sized>(&self, key: impl AsRef<[u8]>, prior: &P) -> Result<f64> {
        self.call().posterior(key, prior)
    }

    /// Returns the answer with the least expected penalty for whether a key is in the window; see
    /// [`Filter::contains_with`](crate::Filter::contains_with).
    ///
    /// # Errors
    /// As [`Reader::posterior`], and [`Error::Parameter`] for penalties below 0.
    pub fn contains_with<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
        penalty: Penalty,
    ) -> Result<bool> {
        self.call().contains_with(key, prior, penalty)
    }

    /// Returns how long ago a key was inserted, as a distribution; see
    /// [`Filter::age_posterior`](crate::Filter::age_posterior).
    ///
    /// # Errors
    /// As [`Reader::posterior`].
    pub fn age_posterior<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
    ) -> Result<AgePosterior> {
        self.call().age_posterior(key, prior)
    }
}

impl<K: Counts> Reader<K> {
    /// Returns how often a key was inserted; see [`Filter::estimate`](crate::Filter::estimate).
    ///
    /// # Errors
    /// As [`Reader::contains`], and [`Error::Unsupported`] if the kind does not count.
    pub fn estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().estimate(key)
    }

    /// Returns how often each of many keys was inserted; see
    /// [`Filter::estimate_all`](crate::Filter::estimate_all).
    ///
    /// # Errors
    /// As [`Reader::estimate`].
    pub fn estimate_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<Estimate>> {
        self.call().estimate_all(keys)
    }
}

impl<K: Decays> Reader<K> {
    /// Returns the normalised estimate; see [`Filter::frequency`](crate::Filter::frequency).
    ///
    /// # Errors
    /// As [`Reader::estimate`].
    pub fn frequency(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().frequency(key)
    }
}
