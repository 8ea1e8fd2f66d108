//! Reading a filter without writing to it, not even to its directory.
//!
//! A reader holds no session. While writers live, it maps their image and answers from it, and
//! continues to do so after they have died. If no process has the filter open at first, the reader
//! rebuilds the state in private memory.
//!
//! A reader detects when its view is no longer the filter. A retired image is marked as such, and
//! an opener of a filter that no process has open begins a new timeline, which the file `live`
//! names.

use crate::admin::dump_log::Entry;
use crate::admin::look::Look;
use crate::api::call::Call;
use crate::api::config::{Ages, Any, Counts, Decays, Infers, Spec};
use crate::api::explain::{self, Explained};
use crate::api::handle::{Handle, sealed};
use crate::clock::Clock;
use crate::engine::details::Details;
use crate::engine::open::{for_reading, read_meta};
use crate::engine::outcome::{Given, Waits};
use crate::engine::read::Queries;
use crate::engine::stats::{Digest, Stat};
use crate::engine::time::continue_time;
use crate::engine::{Engine, agreement};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::write_back::check_files;
use crate::image::{Control, Image};
use crate::locks::holders::locked;
use crate::locks::session::Sessions;
use crate::media::{Access, Disk, Media, MediaFile, Memory};
use crate::meta::Meta;
use crate::options::{Downtime, Options};
use crate::recovery::{LogExtent, rebuild};
use crate::sync::{Hint, Instant, Mutex};
use arc_swap::ArcSwap;
use ebbtide_core::inference::{AgePosterior, Penalty, Prior};
use ebbtide_core::kind::{Age, Estimate, Parameters, Within};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which a reader checks whether its view is still the filter, if nothing in memory
/// indicates it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same interval for a private state, which is outdated as soon as a writer opens the filter.
const LOOK_SOON: Duration = Duration::from_millis(10);
/// The number of times a look starts over because live processes die, or listed files are removed.
const TRIES: u32 = 5;

/// A filter open for reading only. It needs no write permission, changes no file, and delays no
/// writer.
///
/// While writers have the filter open, answers are as fresh as theirs. Otherwise the state is
/// rebuilt in memory. That takes as long as a recovery and as much memory as the filter (if its
/// blocks grow, as much as if all had their full size). It begins anew if the filter is opened
/// meanwhile; nobody ever waits for a reader.
/// Queries some 10 ms after a writer has opened the filter notice the writer.
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

/// Examines a filter's files, and retries if they changed meanwhile. Between one file and the next,
/// writers may remove files, replace an image, or replace the filter by another one.
fn look<T>(media: &dyn Media, mut at: impl FnMut(Meta, &mut Look, bool) -> Result<T>) -> Result<T> {
    let mut left = TRIES;
    loop {
        left -= 1;
        let meta = read_meta(media)?;
        let mut look = Look::begin(media, &meta)?;
        let living = match (look.known, &look.locks) {
            (LogExtent::Living { .. }, _) => true,
            // Without an image nothing is recorded about live processes.
            (LogExtent::Nothing, Some(locks)) => locks.anyone_else()?,
            _ => false,
        };
        let seen = at(meta.clone(), &mut look, living);
        match seen {
            Err(Error::Damaged { .. }) if left > 0 && living => {}
            Err(error) if left > 0 && error.is_not_found() => {}
            seen if living || !look.is_over(media, &meta)? => return seen,
            _ if left > 0 => {}
            _ => return Err(locked(media.path())),
        }
    }
}

fn open_meta(media: &dyn Media) -> Result<Box<dyn MediaFile>> {
    let name = FileName::Meta.to_string();
    media.open(&name, Access::Read).map_err(Error::io("open", media.path().join(name)))
}

impl<K> fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view.load();
        let mut handle = f.debug_struct("Reader");
        handle
            .field("path", &self.media.path())
            .field("kind", &view.engine.shared.meta.kind.name());
        handle.finish_non_exhaustive()
    }
}

/// The state that a reader reads.
#[derive(Debug)]
struct View {
    engine: Engine,
    /// Whether the state is private to the reader, not that of live writers.
    own: bool,
    /// The timeline of the file `live`; `None` if there was none.
    timeline: Option<u64>,
    /// The file `meta`, kept open so that no other file gets its inode number.
    meta: Box<dyn MediaFile>,
    taken: Instant,
    /// When the view was last checked to be still the filter, in microseconds since it was taken.
    looked: Hint,
}

impl View {
    /// Attaches to live processes, or rebuilds the state that dead ones left.
    fn take(
        media: &Arc<dyn Media>,
        options: &Options,
        wanted: Option<&'static str>,
    ) -> Result<Self> {
        // A reader follows the path: it reads the filter that has the path now.
        let media = &media.at_its_path().unwrap_or_else(|| media.clone());
        let view = look(&**media, |meta, look, living| {
            agreement::check(&**media, &meta, options)?;
            // Before anything else is read, so that a later replacement is noticed.
            let file = open_meta(&**media)?;
            match look.locks.take_if(|_| living) {
                Some(locks) => Self::attach(media, meta, file, options, locks),
                None => Self::rebuild(media, meta, file, options, look),
            }
        })?;
        view.engine.shared.check_kind(wanted)?;
        Ok(view)
    }

    fn attach(
        media: &Arc<dyn Media>,
        meta: Meta,
        file: Box<dyn MediaFile>,
        options: &Options,
        locks: Sessions,
    ) -> Result<Self> {
        let header = Control::attach(&**media, meta.uuid, Access::Read)?;
        let timeline = Some(header.identity().timeline);
        let image = Image::attach(media.clone(), header, meta.layout, &*meta.kind, Access::Read)?;
        let engine = for_reading(media.clone(), meta, options, Arc::new(locks), image);
        Ok(Self::of(engine, false, timeline, file))
    }

    fn rebuild(
        media: &Arc<dyn Media>,
        meta: Meta,
        file: Box<dyn MediaFile>,
        options: &Options,
        look: &Look,
    ) -> Result<Self> {
        let timeline = Control::previous_timeline(&**media, meta.uuid)?;
        let image = rebuild(&**media, &meta, look.known, &|| {})?.image;
        let mut options = options.clone();
        if meta.downtime == Downtime::Freeze {
            // No process has the filter open: its time stands still.
            options = options.clock(Clock::stream());
        }
        continue_time(&**media, &meta, &options.clock, image.header())?;
        // A private image is not shared. (The filter may have no file `lock`: a copied one has
        // never been open.)
        let memory = Memory::new();
        memory.make().map_err(Error::io("make", memory.path()))?;
        let nobody = Arc::new(Sessions::open(&memory, Access::Write)?);
        let engine = for_reading(media.clone(), meta, &options, nobody, image);
        Ok(Self::of(engine, true, timeline, file))
    }

    fn of(engine: Engine, own: bool, timeline: Option<u64>, meta: Box<dyn MediaFile>) -> Self {
        Self { engine, own, timeline, meta, taken: Instant::now(), looked: Hint::default() }
    }

    /// Returns whether the file `meta` is still the original one. It is never rewritten, so another
    /// file belongs to another filter, or to a backup of this one: with the same uuid, and perhaps
    /// with a timeline of the same number.
    fn has_its_meta(&self) -> Result<bool> {
        let media = &*self.media_at_path();
        let identity = |file: &dyn MediaFile| {
            file.identity()
                .map_err(Error::io("look at", media.path().join(FileName::Meta.to_string())))
        };
        Ok(identity(&*open_meta(media)?)? == identity(&*self.meta)?)
    }

    /// Returns whether the view still shows the filter's state, as of the latest check.
    fn is_current(&self) -> Result<bool> {
        if !self.own && self.engine.shared.image.header().is_retired() {
            return Ok(false);
        }
        let now = self.taken.elapsed().as_micros() as u64;
        // At worst two threads check at once.
        let before = self.looked.get();
        let every = if self.own { LOOK_SOON } else { LOOK_EVERY };
        if u128::from(now.saturating_sub(before)) < every.as_micros() {
            return Ok(true);
        }
        let current = if self.own { self.is_own_current()? } else { self.is_shared_current()? };
        if current {
            self.looked.set(now);
        }
        Ok(current)
    }

    /// Returns the directory that has the filter's path now.
    fn media_at_path(&self) -> Arc<dyn Media> {
        self.engine.shared.media.at_its_path().unwrap_or_else(|| self.engine.shared.media.clone())
    }

    /// Returns whether no process has opened the filter since, or put another one in its place.
    fn is_own_current(&self) -> Result<bool> {
        let (media, uuid) = (&*self.media_at_path(), self.engine.shared.meta.uuid);
        Ok(read_meta(media)?.uuid == uuid
            && self.has_its_meta()?
            && Control::previous_timeline(media, uuid)? == self.timeline)
    }

    /// Returns whether the image still belongs to the filter: false if the filter's files were
    /// replaced by those of another.
    fn is_shared_current(&self) -> Result<bool> {
        let (media, meta) = (&*self.media_at_path(), &self.engine.shared.meta);
        if meta.downtime == Downtime::Freeze && !self.engine.shared.slots.anyone_else()? {
            // The time of a filter that no process has open stands still, that of the image
            // advances.
            return Ok(false);
        }
        if matches!(self.has_its_meta(), Ok(false)) {
            return Ok(false);
        }
        // As long as handles live, they check, and must receive it.
        let image = &self.engine.shared.image;
        let is_lost = || image.header().is_distrusted() || check_files(image).is_err();
        if !self.engine.shared.slots.anyone_else()? && is_lost() {
            return Ok(false);
        }
        Ok(match Control::previous_timeline(media, meta.uuid)? {
            Some(timeline) => self.timeline == Some(timeline),
            // Without its files, handles that have the filter open continue, and so does this
            // reader.
            None => read_meta(media).map_or(true, |found| found.uuid == meta.uuid),
        })
    }

    /// Returns whether an error means that another view must be taken.
    fn is_over(&self, error: &Error) -> bool {
        // The process that retires an image removes its banks next.
        let retired = || !self.own && self.engine.shared.image.header().is_retired();
        matches!(error, Error::Retired { .. }) || error.is_not_found() && retired()
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

impl<K> Reader<K> {
    /// Runs a query on a view that shows the filter's state. Taking another view is a wait.
    fn with_view<T>(&self, waits: Waits, mut ask: impl FnMut(&View) -> Result<T>) -> Result<T> {
        let mut left = TRIES;
        loop {
            let view = self.view.load();
            // First of all: in a forked child the image is not mapped.
            view.engine.shared.check_process()?;
            left -= 1;
            let answer =
                if view.is_current()? { ask(&view) } else { Err(view.engine.shared.retired()) };
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
            let new = View::take(&self.media, &self.options, self.wanted)?;
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

    /// Returns whether a key that the caller has hashed is in the window; see
    /// [`Filter::insert_hash`](crate::Filter::insert_hash).
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn contains_hash(&self, hash: u64) -> Result<bool> {
        self.call().contains_hash(hash)
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
            Ok(view.engine.shared.image.header().positions().get(source))
        })
    }

    /// Returns the positions of all sources, by source.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn positions(&self) -> Result<Vec<(u64, u64)>> {
        self.with_view(Waits::Always, |view| {
            view.engine.shared.check_trusted()?;
            Ok(view.engine.shared.image.header().positions().all())
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
    /// As [`Reader::contains`], and [`Error::Damaged`] if the log is.
    pub fn explain<T: AsRef<[u8]>>(&self, keys: &[T], most: usize) -> Result<Explained> {
        self.with_view(Waits::Always, |view| {
            let queries = &view.engine.queries;
            let answers = keys.iter().map(|key| explain::answer(queries, key.as_ref()));
            let answers = answers.collect::<Result<Vec<_>>>()?;
            let end = view.engine.shared.image.header().tail().read();
            explain::explain(&view.engine, &answers, end, most)
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

    /// Returns the kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.view.load().engine.shared.meta.kind.name()
    }

    /// Returns all parameters of the kind.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.view.load().engine.shared.meta.kind.parameters()
    }
}

impl Reader<Any> {
    /// Converts into the same reader with the type of its kind; see
    /// [`Filter::typed`](crate::Filter::typed).
    ///
    /// # Errors
    /// The unchanged reader, if the filter is of another kind than `K`.
    #[expect(clippy::result_large_err, reason = "the reader itself comes back, as from a downcast")]
    pub fn typed<K: Spec>(self) -> std::result::Result<Reader<K>, Self> {
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
    /// As there.
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
