//! Reading a filter without writing to it, not even to its directory.
//!
//! A reader holds no slot. While writers live it maps their live image and answers from it. When nobody is alive it rebuilds
//! the state in memory of its own. It finds out by itself when the one must give way to the other.

use super::checkpoint::Snapshots;
use super::commit::Committer;
use super::duties::Bell;
use super::engine::{Engine, TimeBase};
use super::inspect::{Look, rebuild};
use super::open::{boot_id, first_segment, read_meta};
use super::spec::{Aging, Any, Spec};
use super::stat::{Digest, Stat};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::fork::Guard;
use crate::hash::key_hash;
use crate::kinds::{Age, Parameters, Within};
use crate::live::{Image, LiveHeader};
use crate::media::{Access, Disk, Media};
use crate::meta::Meta;
use crate::options::Options;
use crate::processes::slots::Slots;
use crate::processes::stripe_lock::Owner;
use crate::processes::stripes::Stripes;
use crate::recovery::Known;
use crate::sync::{AtomicU64, Ordering};
use crate::wal::Log;
use arc_swap::ArcSwap;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a reader whose state is its own looks whether somebody has opened the filter for writing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a look begins anew because those alive die, or files go that were listed.
const TRIES: u32 = 5;

/// A filter open for reading only: it needs no write permission, changes no file, and holds up nobody.
///
/// While writers have the filter open, answers are as fresh as theirs. When nobody does, the state is rebuilt in memory,
/// which takes as long as a recovery and as much memory as the filter.
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
    kind: PhantomData<fn() -> K>,
}

/// What a reader reads.
#[derive(Debug)]
struct View {
    engine: Engine,
    /// Since when the state is the reader's own; `None` while it is that of living writers.
    own: Option<Instant>,
}

impl View {
    /// Attaches to those who are alive, or rebuilds what those left who are not.
    fn take(media: &Arc<dyn Media>, options: &Options) -> Result<Self> {
        let mut left = TRIES;
        loop {
            left -= 1;
            match Self::try_take(media, options) {
                Err(Error::Io { source, .. })
                    if left > 0 && source.kind() == std::io::ErrorKind::NotFound => {}
                taken => return taken,
            }
        }
    }

    fn try_take(media: &Arc<dyn Media>, options: &Options) -> Result<Self> {
        let meta = read_meta(&**media)?;
        let look = Look::begin(&**media, &meta)?;
        if let (Known::Living { .. }, Some(locks)) = (look.known, look.locks) {
            let boot = boot_id(&**media)?;
            let header = LiveHeader::attach(&**media, meta.uuid, boot, Access::Read)?;
            let (layout, kind) = (meta.layout, meta.kind.clone());
            let image = Image::attach(media.clone(), header, layout, &*kind, Access::Read)?;
            let engine = Engine::for_reading(media.clone(), meta, options, Arc::new(locks), image);
            return Ok(Self { engine, own: None });
        }
        let recovered = rebuild(&**media, &meta, look.known)?;
        // A filter without the file `lock` was copied here and has never been open.
        let locks = Slots::open(&**media, Access::Read)?;
        let engine =
            Engine::for_reading(media.clone(), meta, options, Arc::new(locks), recovered.image);
        Ok(Self { engine, own: Some(Instant::now()) })
    }

    /// Whether it still shows the filter's state.
    fn is_current(&self) -> Result<bool> {
        match self.own {
            None => Ok(!self.engine.image.header().is_retired()),
            Some(since) if since.elapsed() < LOOK_EVERY => Ok(true),
            Some(_) => Ok(!self.engine.slots.anyone_else()?),
        }
    }
}

impl Engine {
    fn for_reading(
        media: Arc<dyn Media>,
        meta: Meta,
        options: &Options,
        slots: Arc<Slots>,
        image: Image,
    ) -> Self {
        let header = image.header();
        let last = header.time().load(Ordering::Relaxed) >> 1;
        let [filter, elapsed] = [0, 1].map(|at| header.time_base()[at].load(Ordering::Relaxed));
        let time_base = if options.clock.is_system() && elapsed != 0 {
            TimeBase { filter, elapsed }
        } else {
            TimeBase::new(&options.clock, meta.downtime, last)
        };
        // Only a state of the reader's own is ever locked, and nobody else locks that.
        let owner = Owner { slot: 0, term: 1 };
        Self {
            time_base,
            stripes: Stripes::new(header.stripe_count(), owner),
            log: Log::new(media.clone(), first_segment(&meta, &image), 0, Access::Read),
            committer: Committer::default(),
            snapshots: Snapshots::default(),
            bell: Bell::new(meta.durability),
            given_up: AtomicU64::new(0),
            access: Access::Read,
            guard: Guard::new(),
            options: options.clone(),
            media,
            meta,
            image,
            slots,
        }
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
        let view = View::take(&media, &options)?;
        view.engine.check_kind(K::KIND)?;
        Ok(Self { media, options, view: ArcSwap::from_pointee(view), kind: PhantomData })
    }
}

impl<K> Reader<K> {
    /// Runs a question on a view that shows the filter's state.
    fn with<T>(&self, mut ask: impl FnMut(&Engine) -> Result<T>) -> Result<T> {
        let mut left = TRIES;
        loop {
            let view = self.view.load();
            left -= 1;
            let answer =
                if view.is_current()? { ask(&view.engine) } else { Err(view.engine.retired()) };
            match answer {
                Err(Error::Retired { .. }) if left > 0 => {
                    self.view.store(Arc::new(View::take(&self.media, &self.options)?));
                }
                answer => return answer,
            }
        }
    }

    /// Whether a key is in the window; see [`Filter::contains`](crate::Filter::contains).
    ///
    /// # Errors
    /// As [`Reader::open`], for the filter may have to be opened again.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().contains(key)
    }

    /// The same questions with a time of their own.
    #[must_use]
    pub fn call(&self) -> ReaderCall<'_, K> {
        ReaderCall { reader: self, time: None }
    }

    /// What there is to know about the filter.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn stat(&self) -> Result<Stat> {
        self.with(Engine::stat)
    }

    /// A hash of the logical state; see [`Filter::digest`](crate::Filter::digest). A reader cannot keep writers off, so the state is
    /// rebuilt from the files first, up to the last operation that has returned, or nearly.
    ///
    /// # Errors
    /// As [`Reader::contains`].
    pub fn digest(&self) -> Result<Digest> {
        let meta = read_meta(&*self.media)?;
        let mut left = TRIES;
        let recovered = loop {
            left -= 1;
            let look = Look::begin(&*self.media, &meta)?;
            match rebuild(&*self.media, &meta, look.known) {
                Err(Error::Io { source, .. })
                    if left > 0 && source.kind() == std::io::ErrorKind::NotFound => {}
                rebuilt => break rebuilt?,
            }
        };
        let slots = Arc::new(Slots::open(&*self.media, Access::Read)?);
        let media = self.media.clone();
        Engine::for_reading(media, meta, &self.options, slots, recovered.image).digest()
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

impl<K: Aging> Reader<K> {
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

/// Questions with a time of their own; see [`Reader::call`].
#[derive(Debug)]
pub struct ReaderCall<'a, K = Any> {
    reader: &'a Reader<K>,
    time: Option<u64>,
}

impl<K> ReaderCall<'_, K> {
    /// At this time instead of the clock's.
    #[must_use]
    pub fn time(mut self, time: Timestamp) -> Self {
        self.time = Some(time.as_unix_micros());
        self
    }

    /// See [`Reader::contains`].
    ///
    /// # Errors
    /// As there.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader.with(|engine| {
            let hash = key_hash(key.as_ref(), engine.meta.seed);
            engine.ask(hash, self.time, |kind, state, blocks, query| {
                kind.contains(state, blocks, query)
            })
        })
    }
}

impl<K: Aging> ReaderCall<'_, K> {
    /// See [`Reader::age`].
    ///
    /// # Errors
    /// As there.
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.reader.with(|engine| {
            engine.check_ages("age")?;
            let hash = key_hash(key.as_ref(), engine.meta.seed);
            engine.ask(hash, self.time, |kind, state, blocks, query| kind.age(state, blocks, query))
        })
    }

    /// See [`Reader::seen_within`].
    ///
    /// # Errors
    /// As there.
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.reader.with(|engine| {
            engine.check_ages("seen_within")?;
            let hash = key_hash(key.as_ref(), engine.meta.seed);
            engine.ask(hash, self.time, |kind, state, blocks, query| {
                kind.contains_within(state, blocks, query, within)
            })
        })
    }
}
