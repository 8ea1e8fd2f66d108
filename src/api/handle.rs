//! The handle of an open filter, and what runs calls.

use crate::api::config::{Any, Spec};
use crate::api::current::Current;
use crate::engine::Engine;
use crate::engine::lifecycle::{open, options_match};
use crate::engine::read::query::Queries;
use crate::engine::write::request::Waits;
use crate::error::Result;
use crate::media::Media;
use crate::options::Options;
use ebbtide_core::kind::Kind;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

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
    pub(crate) current: Current,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Filter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.engine().shared;
        let mut handle = f.debug_struct("Filter");
        handle.field("path", &shared.path()).field("kind", &shared.kind().name());
        handle.finish_non_exhaustive()
    }
}

impl<K: Spec> Filter<K> {
    pub(crate) fn start(engine: Engine) -> Result<Self> {
        Ok(Self { current: Current::new(engine, K::KIND)?, kind: PhantomData })
    }

    /// Opens the filter if it is of the kind of this type, and `check` accepts its path and kind.
    pub(crate) fn open_if(
        media: Arc<dyn Media>,
        options: Options,
        check: &dyn Fn(&Path, &dyn Kind) -> Result<()>,
    ) -> Result<Self> {
        let path = media.path().to_path_buf();
        Self::start(open::open(media, options, &|meta| {
            options_match::check_kind(&path, &*meta.kind, K::KIND)?;
            check(&path, &*meta.kind)
        })?)
    }
}

impl<K> Filter<K> {
    /// Converts into the same handle without its type.
    #[must_use]
    pub fn into_any(self) -> Filter<Any> {
        Filter { current: self.current.wanting(None), kind: PhantomData }
    }

    /// Returns the engine in use.
    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.current.engine()
    }

    /// Returns the engine in use, after the handle has taken note of an alteration.
    pub(crate) fn present_engine(&self) -> &Arc<Engine> {
        // Whoever uses the handle next gets the error.
        let _ = self.run(|engine| {
            engine.shared.check_process()?;
            engine.shared.check_unaltered()
        });
        self.engine()
    }

    /// As [`Filter::run`], for a function that looks at the image, and that closing waits for.
    pub(crate) fn look<T>(&self, mut look: impl FnMut(&Engine) -> Result<T>) -> Result<T> {
        self.run(|engine| {
            let _busy = engine.shared.enter()?;
            let seen = look(engine)?;
            engine.shared.check_unaltered()?;
            Ok(seen)
        })
    }

    /// Calls a function with the engine in use; see [`Current::run`].
    #[inline]
    pub(crate) fn run<T>(&self, call: impl FnMut(&Engine) -> Result<T>) -> Result<T> {
        self.current.run(Waits::Always, call)
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
        // By an alteration it may be of another kind since the last call.
        if self.present_engine().shared.check_kind(K::KIND).is_err() {
            return Err(self);
        }
        Ok(Filter { current: self.current.wanting(K::KIND), kind: PhantomData })
    }
}

/// A handle that runs calls: a [`Filter`] or a [`Reader`](crate::Reader).
pub trait Handle: sealed::Handle {
    /// The kind, as a type.
    type Kind;
}

pub(crate) mod sealed {
    use super::{Queries, Result, Waits};

    pub trait Handle {
        /// Runs a query on the engine that has the filter's state; if that state was retired
        /// meanwhile, again on another one (unless the caller must not wait).
        fn ask<T>(&self, waits: Waits, ask: impl FnMut(&Queries) -> Result<T>) -> Result<T>;
    }
}

impl<K> Handle for Filter<K> {
    type Kind = K;
}

impl<K> sealed::Handle for Filter<K> {
    #[inline]
    fn ask<T>(&self, waits: Waits, mut ask: impl FnMut(&Queries) -> Result<T>) -> Result<T> {
        self.current.run(waits, |engine| ask(&engine.queries))
    }
}
