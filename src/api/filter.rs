//! The public interface of an open filter.

use crate::api::config::{Any, Spec};
#[cfg(shuttle)]
use crate::engine::background;
use crate::engine::background::Tasks;
use crate::engine::close::Opened;
use crate::engine::details::Details;
use crate::engine::stats::{Digest, Stat};
use crate::engine::{Engine, clear, open};
use crate::error::{Error, Result};
use crate::media::Media;
use crate::options::Options;
use ebbtide_core::kind::Parameters;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open filter of kind `K`; [`Any`] if the kind is known at run time only.
///
/// All operations take `&self` and may be called from any number of threads. Answers are exact with
/// respect to the records. After an insert has returned, every later query within the window finds
/// the key, also after a restart or the death of the process.
///
/// Keys are bytes: anything that is `AsRef<[u8]>`. Give integers as bytes of a fixed order,
/// `filter.insert(id.to_le_bytes())`, and other values in an encoding that never changes.
/// [`std::hash::Hash`] is not such an encoding: its bytes may differ between platforms and
/// versions. Methods block while they wait for the disk; `docs/async.md` says which ones, and how
/// to call them from async code.
///
/// ```
/// use ebbtide::{AgePartitioned, Checked, Filter, Options};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let seen = Filter::open_or_create(&dir, AgePartitioned::last(10_000), Options::new())?;
/// assert_eq!(seen.check_and_insert("order 17")?, Checked::New);
/// assert_eq!(seen.check_and_insert("order 17")?, Checked::Present);
/// seen.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Filter<K = Any> {
    // First, so that the handle is closed before the engine is dropped.
    opened: Opened,
    pub(crate) engine: Arc<Engine>,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Filter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.engine.shared;
        let mut handle = f.debug_struct("Filter");
        handle.field("path", &shared.media.path()).field("kind", &shared.meta.kind.name());
        handle.finish_non_exhaustive()
    }
}

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
        let engine = open::open(media, options)?;
        engine.shared.check_kind(K::KIND)?;
        Self::start(engine)
    }

    pub(crate) fn start(engine: Engine) -> Result<Self> {
        let engine = Arc::new(engine);
        let path = engine.shared.media.path().to_path_buf();
        let tasks = Tasks::start(engine.clone()).map_err(Error::io("start a thread for", path))?;
        Ok(Self { opened: Opened::new(engine.clone(), tasks), engine, kind: PhantomData })
    }

    /// Checks that the filter matches `spec`. Only parameters that `spec` names are compared:
    /// another version may derive the others differently.
    pub(crate) fn check_same(self, spec: &K) -> Result<Self> {
        let kind = &self.engine.shared.meta.kind;
        if kind.name() != spec.name() {
            return Err(self.engine.shared.mismatch("kind", spec.name(), kind.name()));
        }
        let (found, wanted) = (kind.parameters(), spec.kind()?.parameters());
        for (name, _) in spec.parameters().iter() {
            let [has, value] = [&found, &wanted].map(|all| all.get(name).unwrap_or("nothing"));
            if has != value {
                return Err(self.engine.shared.mismatch(name, value, has));
            }
        }
        Ok(self)
    }
}

impl<K> Filter<K> {
    /// Removes all keys in one step, which all processes see at once and which is durable on
    /// return. Earlier inserts are gone, later ones stay. [`Stat::inserts`] restarts at 0; the
    /// filter's time continues. Meanwhile writers wait, for as long as it takes to allocate the
    /// filter's initial memory again.
    ///
    /// Use this to reset a filter. Removing its directory while a process has it open leads to two
    /// filters.
    ///
    /// ```
    /// use ebbtide::{AgePartitioned, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, AgePartitioned::last(10_000), Options::new())?;
    /// seen.insert("order 17")?;
    /// seen.clear()?;
    /// assert!(!seen.contains("order 17")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] (a full disk: nothing has changed; old and new memory are briefly needed
    /// together), [`Error::Poisoned`], [`Error::Retired`].
    pub fn clear(&self) -> Result<()> {
        let _busy = self.engine.shared.enter()?;
        clear::clear(&self.engine.writer)
    }

    /// Returns the position of a source, as set by the last [`Batch`](crate::Batch) that was
    /// committed and set it; `None` if none did.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Closed`], [`Error::Poisoned`] if the system could not write back
    /// the live image.
    pub fn position(&self, source: u64) -> Result<Option<u64>> {
        let _busy = self.engine.shared.enter()?;
        self.engine.shared.check_trusted()?;
        let found = self.engine.positions().into_iter().find(|(of, _)| *of == source);
        Ok(found.map(|(_, position)| position))
    }

    /// Returns the positions of all sources, by source.
    ///
    /// # Errors
    /// As [`Filter::position`].
    pub fn positions(&self) -> Result<Vec<(u64, u64)>> {
        let _busy = self.engine.shared.enter()?;
        self.engine.shared.check_trusted()?;
        Ok(self.engine.positions())
    }

    /// Waits until all operations so far are durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync fails or has failed.
    pub fn sync(&self) -> Result<()> {
        let _busy = self.engine.shared.enter()?;
        self.engine.commits.commit_all()
    }

    /// Returns the LSN below which all records are durable, for callers that keep a queue of their
    /// own of operations, by [`Ticket::lsn`](crate::Ticket::lsn). Costs one load.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn durable_upto(&self) -> Result<u64> {
        self.engine.shared.check_process()?;
        Ok(self.engine.shared.durable())
    }

    /// Writes a snapshot (unless the newest one is up to date) and removes log that is no longer
    /// needed. Other operations continue meanwhile. Returns the LSN at which the newest snapshot
    /// starts; 0 for a filter that has never changed and needs none.
    ///
    /// # Errors
    /// [`Error::Io`] (a full disk, although the space of the older snapshot was taken),
    /// [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<u64> {
        let _busy = self.engine.shared.enter()?;
        self.engine.checkpoints.checkpoint()
    }

    /// Returns a hash of the logical state. It is equal for filters with the same parameters, hash,
    /// seed and stripes after the same operations with the same times, however often their
    /// processes were killed in between. Writers wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`].
    pub fn digest(&self) -> Result<Digest> {
        let _busy = self.engine.shared.enter()?;
        self.engine.digest()
    }

    /// Returns statistics of the filter.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat(&self) -> Result<Stat> {
        let _busy = self.engine.shared.enter()?;
        self.engine.stat()
    }

    /// Returns figures for operators: fill by generation and by block, ends of the log, handles,
    /// held stripes. It takes no lock and changes nothing.
    ///
    /// # Errors
    /// As [`Filter::stat`].
    pub fn details(&self) -> Result<Details> {
        let _busy = self.engine.shared.enter()?;
        self.engine.details()
    }

    /// Returns how far the filter's time is ahead of the handle's clock (of the system's for a
    /// handle without one); `None` if it is less than a second, and if the kind does not use time.
    ///
    /// The filter's time is ahead if the clock was ahead once and has been corrected, or if a key
    /// came with a future time (see [`Options::max_lead`](crate::Options::max_lead)). Keys without
    /// a time expire after their window nevertheless. Keys with times of their own appear older
    /// than they are by the lead, and may be refused as too late. See `docs/time.md`.
    #[must_use]
    pub fn clock_lead(&self) -> Option<Duration> {
        self.engine.time.clock_lead()
    }

    /// Runs the tasks of the background threads once.
    ///
    /// # Errors
    /// As [`Filter::checkpoint`].
    #[cfg(shuttle)]
    #[doc(hidden)]
    pub fn do_tasks(&self) -> Result<()> {
        background::do_tasks(&self.engine)
    }

    /// Returns the filter's directory, as passed when the handle was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.engine.shared.media.path()
    }

    /// Converts into the same handle without its type.
    #[must_use]
    pub fn into_any(self) -> Filter<Any> {
        Filter { opened: self.opened, engine: self.engine, kind: PhantomData }
    }

    /// Returns the kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.engine.shared.meta.kind.name()
    }

    /// Returns all parameters of the kind.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.engine.shared.meta.kind.parameters()
    }

    /// Writes a snapshot and closes the filter cleanly, so that the next opening has nothing to
    /// replay. Dropping the handle does the same but cannot return the error.
    ///
    /// Takes `&self`, so that one of several owners of an `Arc<Filter>` can close it. Waits for
    /// operations that other threads have begun; later ones fail with [`Error::Closed`]. A second
    /// call waits for the first and returns `Ok`. The filter can be opened again at once. Memory
    /// mappings and file descriptors stay until the handle is dropped, as does the disk space of
    /// files that were removed meanwhile.
    ///
    /// ```
    /// # use ebbtide::{AgePartitioned, Error, Filter, Options};
    /// # use std::sync::Arc;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Arc::new(Filter::create(&dir, AgePartitioned::last(1000), Options::new())?);
    /// let worker = seen.clone();
    /// seen.insert("a")?;
    /// seen.close()?;
    /// assert!(matches!(worker.insert("b"), Err(Error::Closed { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::checkpoint`]; the filter is closed nevertheless, and only the snapshot is
    /// missing.
    pub fn close(&self) -> Result<()> {
        self.opened.close()
    }
}

impl Filter<Any> {
    /// Converts into the same handle with the type of its kind, for operations that only some kinds
    /// have.
    ///
    /// ```
    /// use ebbtide::{Any, Counting, DynamicCount, Filter, Options, Parameters};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let by_name = Any::new("counting", Parameters::new().with("capacity", 1000));
    /// let filter = Filter::create(&dir, by_name, Options::new())?;
    /// let filter = filter.typed::<DynamicCount>().expect_err("it is of another kind");
    /// let filter: Filter<Counting> = filter.typed().expect("its own kind");
    /// filter.insert("a")?;
    /// assert_eq!(filter.estimate("a")?.count, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The unchanged handle, if the filter is of another kind than `K`.
    pub fn typed<K: Spec>(self) -> std::result::Result<Filter<K>, Self> {
        if self.engine.shared.check_kind(K::KIND).is_err() {
            return Err(self);
        }
        Ok(Filter { opened: self.opened, engine: self.engine, kind: PhantomData })
    }
}
