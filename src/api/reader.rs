//! Reading a filter without writing to it, not even to its directory.
//!
//! A reader holds no slot. While writers live it maps their live image and answers from it, and goes on so when they have
//! died. When there is nobody to begin with it rebuilds the state in memory of its own. It finds out by itself when what
//! it shows is no longer the filter: an image says so when it is given up, and whoever opens a filter that nobody has open
//! begins a new timeline, which the file `live` names.

use crate::admin::inspect::Look;
use crate::api::call::{Call, Handle, sealed};
use crate::api::config::{Ages, Any, Counts, Decays, Infers, Spec};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::background::Wakeup;
use crate::engine::checkpoint::Snapshots;
use crate::engine::close::Closing;
use crate::engine::group_commit::GroupCommit;
use crate::engine::open::{first_segment, read_meta};
use crate::engine::stats::{Digest, Stat};
use crate::engine::time::{TimeBase, continue_time};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::{Control, Image};
use crate::locks::robust_word::Owner;
use crate::locks::session::Sessions;
use crate::locks::stripes::Stripes;
use crate::media::{Access, Disk, Media, MediaFile, Memory};
use crate::meta::Meta;
use crate::options::{Downtime, Options};
use crate::platform::fork::Guard;
use crate::recovery::{LogExtent, rebuild};
use crate::sync::{AtomicU64, Instant, Mutex, Ordering};
use crate::wal::Log;
use arc_swap::ArcSwap;
use ebbtide_core::inference::{AgePosterior, Penalty, Prior};
use ebbtide_core::kind::{Age, Estimate, Parameters, Within};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a reader looks whether what it shows is still the filter, where nothing in memory says so.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same for a state of the reader's own, which a writer who opens the filter leaves behind.
const LOOK_SOON: Duration = Duration::from_millis(10);
/// How often a look begins anew because those alive die, or files go that were listed.
const TRIES: u32 = 5;

/// A filter open for reading only: it needs no write permission, changes no file, and holds up no
/// writer.
///
/// While writers have the filter open, answers are as fresh as theirs. When nobody does, the state is rebuilt in memory,
/// which takes as long as a recovery and as much memory as the filter (if its blocks grow, as much as if all had grown to their
/// end); whoever opens the filter waits for that. A writer who
/// opens it from then on is noticed by questions that come some 10 ms later.
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
#[derive(Debug)]
pub struct Reader<K = Any> {
    media: Arc<dyn Media>,
    options: Options,
    view: ArcSwap<View>,
    /// Held by the thread that takes the next view.
    taking: Mutex<()>,
    /// The kind that the filter must have, also if it is recreated.
    wanted: Option<&'static str>,
    kind: PhantomData<fn() -> K>,
}

/// Looks at a filter's files, and again if they changed under the eyes: writers remove what is needed no more, and an
/// image may give way to another, or a filter to another, between one file and the next.
fn look<T>(media: &dyn Media, mut at: impl FnMut(Meta, Look, bool) -> Result<T>) -> Result<T> {
    let mut left = TRIES;
    loop {
        left -= 1;
        let meta = read_meta(media)?;
        let look = Look::begin(media, &meta)?;
        let living = match (look.known, &look.locks) {
            (LogExtent::Living { .. }, _) => true,
            // Without a live image there is nothing to be known of those who are alive.
            (LogExtent::Nothing, Some(locks)) => locks.anyone_else()?,
            _ => false,
        };
        match at(meta, look, living) {
            Err(Error::Damaged { .. }) if left > 0 && living => {}
            Err(error) if left > 0 && error.is_not_found() => {}
            done => return done,
        }
    }
}

fn open_meta(media: &dyn Media) -> Result<Box<dyn MediaFile>> {
    let name = FileName::Meta.to_string();
    media.open(&name, Access::Read).map_err(Error::io("open", media.path().join(name)))
}

/// What a reader reads.
#[derive(Debug)]
struct View {
    engine: Engine,
    /// The state is the reader's own, not that of living writers.
    own: bool,
    /// The timeline of the file `live`; `None` where there was none.
    timeline: Option<u64>,
    /// The file `meta`, open, so that no other file gets its number.
    meta: Box<dyn MediaFile>,
    taken: Instant,
    /// When it was last looked whether this is still the filter, in microseconds since it was taken.
    looked: AtomicU64,
}

impl View {
    /// Attaches to those who are alive, or rebuilds what those left who are not.
    fn take(
        media: &Arc<dyn Media>,
        options: &Options,
        wanted: Option<&'static str>,
    ) -> Result<Self> {
        // A reader follows the path: whatever filter is there now is the one that was meant.
        let media = &media.at_its_path().unwrap_or_else(|| media.clone());
        let view = look(&**media, |meta, look, living| {
            // Before anything else is read: what comes into its place later is noticed.
            let file = open_meta(&**media)?;
            match (living, look) {
                (true, Look { locks: Some(locks), .. }) => {
                    Self::attach(media, meta, file, options, locks)
                }
                // Held until the state is rebuilt: it keeps others from opening the filter.
                (_, look) => Self::rebuild(media, meta, file, options, &look),
            }
        })?;
        view.engine.check_kind(wanted)?;
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
        let engine = Engine::for_reading(media.clone(), meta, options, Arc::new(locks), image);
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
        let image = rebuild(&**media, &meta, look.known, &|| look.note_progress())?.image;
        let mut options = options.clone();
        if meta.downtime == Downtime::Freeze {
            // Nobody has it open: its time stands.
            options = options.clock(Clock::stream());
        }
        continue_time(&**media, &meta, &options.clock, image.header())?;
        // Nobody shares an image that is the reader's own. (The filter may have no file `lock`: one that was copied
        // here has never been open.)
        let memory = Memory::new();
        memory.make().map_err(Error::io("make", memory.path()))?;
        let nobody = Arc::new(Sessions::open(&memory, Access::Write)?);
        let engine = Engine::for_reading(media.clone(), meta, &options, nobody, image);
        Ok(Self::of(engine, true, timeline, file))
    }

    fn of(engine: Engine, own: bool, timeline: Option<u64>, meta: Box<dyn MediaFile>) -> Self {
        Self { engine, own, timeline, meta, taken: Instant::now(), looked: AtomicU64::new(0) }
    }

    /// Whether the file `meta` is still the one that was there. It is never written again, so another one is that of another
    /// filter, or of a backup of this one: with the same uuid, and perhaps with a timeline of the same number.
    fn has_its_meta(&self) -> Result<bool> {
        let media = &*self.media_at_path();
        let identity = |file: &dyn MediaFile| {
            file.identity()
                .map_err(Error::io("look at", media.path().join(FileName::Meta.to_string())))
        };
        Ok(identity(&*open_meta(media)?)? == identity(&*self.meta)?)
    }

    /// Whether it still shows the filter's state, as far as was looked lately.
    fn is_current(&self) -> Result<bool> {
        if !self.own && self.engine.image.header().is_retired() {
            return Ok(false);
        }
        let now = self.taken.elapsed().as_micros() as u64;
        // Relaxed, as below: at worst two threads look at once.
        let before = self.looked.load(Ordering::Relaxed);
        let every = if self.own { LOOK_SOON } else { LOOK_EVERY };
        if u128::from(now.saturating_sub(before)) < every.as_micros() {
            return Ok(true);
        }
        let current = if self.own { self.is_own_current()? } else { self.is_shared_current()? };
        if current {
            self.looked.store(now, Ordering::Relaxed);
        }
        Ok(current)
    }

    /// The directory that has the filter's path now.
    fn media_at_path(&self) -> Arc<dyn Media> {
        self.engine.media.at_its_path().unwrap_or_else(|| self.engine.media.clone())
    }

    /// Whether nobody has opened the filter since, or put another in its place.
    fn is_own_current(&self) -> Result<bool> {
        let (media, uuid) = (&*self.media_at_path(), self.engine.meta.uuid);
        Ok(read_meta(media)?.uuid == uuid
            && self.has_its_meta()?
            && Control::previous_timeline(media, uuid)? == self.timeline)
    }

    /// Whether the image is not that of a filter whose files were removed to make place for another.
    fn is_shared_current(&self) -> Result<bool> {
        let (media, meta) = (&*self.media_at_path(), &self.engine.meta);
        if meta.downtime == Downtime::Freeze && !self.engine.slots.anyone_else()? {
            // The time of a filter that nobody has open stands, that of the image goes on.
            return Ok(false);
        }
        if matches!(self.has_its_meta(), Ok(false)) {
            return Ok(false);
        }
        Ok(match Control::previous_timeline(media, meta.uuid)? {
            Some(timeline) => self.timeline == Some(timeline),
            // Without its files those who have the filter open go on, and so do we.
            None => read_meta(media).map_or(true, |found| found.uuid == meta.uuid),
        })
    }

    /// Whether an error says that another view is to be taken.
    fn is_over(&self, error: &Error) -> bool {
        // Whoever gives up an image removes its banks next.
        let given_up = || !self.own && self.engine.image.header().is_retired();
        matches!(error, Error::Retired { .. }) || error.is_not_found() && given_up()
    }
}

impl Engine {
    fn for_reading(
        media: Arc<dyn Media>,
        meta: Meta,
        options: &Options,
        slots: Arc<Sessions>,
        image: Image,
    ) -> Self {
        let header = image.header();
        let time_base = TimeBase::new(header, &meta, &options.clock, Access::Read);
        // Only a state of the reader's own is ever locked, and nobody else locks that.
        let owner = Owner { slot: 0, term: 1 };
        Self {
            time_base,
            stripes: Stripes::new(header.stripe_count(), owner),
            log: Log::new(media.clone(), first_segment(&meta, &image), 0, Access::Read),
            committer: GroupCommit::default(),
            snapshots: Snapshots::default(),
            bell: Wakeup::new(meta.durability),
            given_up: AtomicU64::new(0),
            uses_time: meta.kind.uses_time(),
            counts_inserts: meta.kind.counts_inserts(),
            grace: meta.kind.grace(),
            access: Access::Read,
            guard: Guard::new(),
            closing: Closing::default(),
            options: options.clone(),
            media,
            meta,
            image,
            slots,
        }
    }
}

impl<K> Handle for Reader<K> {
    type Kind = K;
}

impl<K> sealed::Handle for Reader<K> {
    fn ask<T>(&self, mut ask: impl FnMut(&Engine) -> Result<T>) -> Result<T> {
        self.with_view(|view| ask(&view.engine))
    }
}

impl<K: Spec> Reader<K> {
    /// Opens a filter for reading.
    ///
    /// # Errors
    /// [`Error::NotAFilter`], [`Error::Mismatch`] if it is not of kind `K`, [`Error::Locked`], [`Error::Damaged`],
    /// [`Error::Version`], [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_on(Arc::new(Disk::new(dir.as_ref())), options)
    }

    /// As [`Reader::open`], on a medium of the caller's.
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
    /// Runs a question on a view that shows the filter's state.
    fn with_view<T>(&self, mut ask: impl FnMut(&View) -> Result<T>) -> Result<T> {
        let mut left = TRIES;
        loop {
            let view = self.view.load();
            // Before all else: in a child made by fork the image is not there.
            view.engine.check_process()?;
            left -= 1;
            let answer = if view.is_current()? { ask(&view) } else { Err(view.engine.retired()) };
            match answer {
                Err(error) if left > 0 && view.is_over(&error) => self.renew(&view)?,
                answer => return answer,
            }
        }
    }

    /// Takes another view in the place of `old`, unless another thread just has.
    fn renew(&self, old: &Arc<View>) -> Result<()> {
        let _taking = self.taking.lock();
        if Arc::ptr_eq(&self.view.load(), old) {
            let new = View::take(&self.media, &self.options, self.wanted)?;
            self.view.store(Arc::new(new));
        }
        Ok(())
    }

    /// Whether a key is in the window; see [`Filter::contains`](crate::Filter::contains).
    ///
    /// # Errors
    /// As [`Reader::open`], for the filter may have to be opened again.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().contains(key)
    }

    /// Whether each of many keys is in the window; faster than one by one, as
    /// [`Filter::contains_all`](crate::Filter::contains_all).
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn contains_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<bool>> {
        self.call().contains_all(keys)
    }

    /// Whether a key that the caller has hashed is in the window; see
    /// [`Filter::insert_hash`](crate::Filter::insert_hash).
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn contains_hash(&self, hash: u64) -> Result<bool> {
        self.call().contains_hash(hash)
    }

    /// The same questions with a time of their own.
    #[must_use]
    pub fn call(&self) -> Call<'_, Self> {
        Call::new(self)
    }

    /// What there is to know about the filter.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn stat(&self) -> Result<Stat> {
        self.with_view(|view| view.engine.stat())
    }

    /// A hash of the logical state; see [`Filter::digest`](crate::Filter::digest). A reader cannot keep writers off: while
    /// there are any, the state is rebuilt from the files first, up to the last operation that has returned, or nearly.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn digest(&self) -> Result<Digest> {
        self.with_view(|view| {
            if view.own {
                return view.engine.digest();
            }
            let media = &view.engine.media;
            let rebuilt = look(&**media, |meta, look, _| {
                View::rebuild(media, meta, open_meta(&**media)?, &self.options, &look)
            });
            rebuilt?.engine.digest()
        })
    }

    /// The filter's directory, as it was given when the reader was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.media.path()
    }

    /// The same reader without its type. It still refuses a filter of another kind in the place of
    /// this one.
    #[must_use]
    pub fn into_any(self) -> Reader<Any> {
        let Self { media, options, view, taking, wanted, kind: _ } = self;
        Reader { media, options, view, taking, wanted, kind: PhantomData }
    }

    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.view.load().engine.meta.kind.name()
    }

    /// All parameters of the kind.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.view.load().engine.meta.kind.parameters()
    }
}

impl Reader<Any> {
    /// The same reader with the type of its kind; see [`Filter::typed`](crate::Filter::typed).
    ///
    /// # Errors
    /// The reader as it was, if the filter is of another kind than `K`.
    #[expect(clippy::result_large_err, reason = "the reader itself comes back, as from a downcast")]
    pub fn typed<K: Spec>(self) -> std::result::Result<Reader<K>, Self> {
        if self.view.load().engine.check_kind(K::KIND).is_err() {
            return Err(self);
        }
        let Self { media, options, view, taking, wanted, kind: _ } = self;
        let wanted = K::KIND.or(wanted);
        Ok(Reader { media, options, view, taking, wanted, kind: PhantomData })
    }
}

impl<K: Ages> Reader<K> {
    /// How long ago a key was seen, at least; see [`Filter::age`](crate::Filter::age).
    ///
    /// # Errors
    /// As [`Reader::contains`], and [`Error::Unsupported`] if the kind knows no ages.
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.call().age(key)
    }

    /// Whether a key was seen within less than the window; see [`Filter::seen_within`](crate::Filter::seen_within).
    ///
    /// # Errors
    /// As [`Reader::age`].
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.call().seen_within(key, within)
    }
}

impl<K: Infers> Reader<K> {
    /// The probability that a key is in the window; see [`Filter::posterior`](crate::Filter::posterior).
    ///
    /// # Errors
    /// As [`Reader::contains`], [`Error::Parameter`] if the prior is not a probability, and [`Error::Unsupported`] if the
    /// kind tells no posteriors.
    pub fn posterior<P: Prior + ?Sized>(&self, key: impl AsRef<[u8]>, prior: &P) -> Result<f64> {
        self.call().posterior(key, prior)
    }

    /// Whether to take a key for one of the window, so that the expected penalty is least; see
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

    /// How long ago a key was inserted, as a distribution; see
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
    /// How often a key was inserted; see [`Filter::estimate`](crate::Filter::estimate).
    ///
    /// # Errors
    /// As [`Reader::contains`], and [`Error::Unsupported`] if the kind does not count.
    pub fn estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().estimate(key)
    }

    /// How often each of many keys was inserted; see
    /// [`Filter::estimate_all`](crate::Filter::estimate_all).
    ///
    /// # Errors
    /// As [`Reader::estimate`].
    pub fn estimate_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<Estimate>> {
        self.call().estimate_all(keys)
    }
}

impl<K: Decays> Reader<K> {
    /// The estimate, normalised; see [`Filter::frequency`](crate::Filter::frequency).
    ///
    /// # Errors
    /// As [`Reader::estimate`].
    pub fn frequency(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().frequency(key)
    }
}
