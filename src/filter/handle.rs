//! The public face of an open filter.

use super::call::Call;
use super::duties::Duties;
use super::engine::Engine;
use super::operate::Checked;
use super::spec::{Ages, Any, Counts, Decays, Infers, Removes, Spec};
use super::stat::{Digest, Stat};
use crate::error::{Error, Result};
use crate::hash::KeyHasher;
use crate::inference::{AgePosterior, Penalty, Prior};
use crate::kinds::{Age, Estimate, Parameters, Within};
use crate::media::Media;
use crate::options::Options;
use std::marker::PhantomData;
use std::sync::Arc;

/// An open filter of kind `K`; [`Any`] if the kind is known at run time only.
///
/// All operations take `&self` and may be called from any number of threads. Answers are exact with respect to the
/// records: a key whose insert has returned is found by every later query within the window, without
/// exception, also after a restart or the death of the process.
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
#[derive(Debug)]
pub struct Filter<K = Any> {
    // Stopped before the engine is closed.
    duties: Duties,
    pub(super) engine: Arc<Engine>,
    closed: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Spec> Filter<K> {
    /// As [`Filter::create`], on a medium of the caller's.
    ///
    /// # Errors
    /// As [`Filter::create`].
    pub fn create_on(media: Arc<dyn Media>, spec: K, options: Options) -> Result<Self> {
        Self::start(Engine::create(media, spec.kind()?, options)?)
    }

    /// As [`Filter::open`], on a medium of the caller's.
    ///
    /// # Errors
    /// As [`Filter::open`].
    pub fn open_on(media: Arc<dyn Media>, options: Options) -> Result<Self> {
        let engine = Engine::open(media, options)?;
        engine.check_kind(K::KIND)?;
        Self::start(engine)
    }

    pub(super) fn start(engine: Engine) -> Result<Self> {
        let engine = Arc::new(engine);
        let path = engine.media.path().to_path_buf();
        let duties =
            Duties::start(engine.clone()).map_err(Error::io("start a thread for", path))?;
        Ok(Self { duties, engine, closed: false, kind: PhantomData })
    }

    /// Makes sure that the filter is what `spec` asks for; what the kind has derived from it may differ from what
    /// another version would derive.
    pub(super) fn check_same(self, spec: &K) -> Result<Self> {
        let kind = &self.engine.meta.kind;
        if kind.name() != spec.name() {
            return Err(mismatch(&self.engine, "kind", spec.name(), kind.name()));
        }
        let (meta, options) = (&self.engine.meta, &self.engine.options);
        let has = meta.hasher.function();
        if let Some(wanted) = options.key_hash.filter(|&wanted| wanted != has) {
            return Err(mismatch(&self.engine, "hash", &wanted.to_string(), &has.to_string()));
        }
        let other = |seed| KeyHasher::from_seed(has, seed) != meta.hasher;
        if options.hash_seed.is_some_and(other) {
            // Seeds are never told: who knows one can choose keys that collide.
            return Err(mismatch(&self.engine, "hash-seed", "the one given", "another"));
        }
        if let Some(stripes) = options.stripes.filter(|&stripes| stripes != meta.layout.stripes) {
            let [wanted, has] = [stripes, meta.layout.stripes].map(|stripes| stripes.to_string());
            return Err(mismatch(&self.engine, "stripes", &wanted, &has));
        }
        let (found, wanted) = (kind.parameters(), spec.kind()?.parameters());
        for (name, _) in spec.parameters().iter() {
            let [has, value] = [&found, &wanted].map(|all| all.get(name).unwrap_or("nothing"));
            if has != value {
                return Err(mismatch(&self.engine, name, value, has));
            }
        }
        Ok(self)
    }
}

fn mismatch(engine: &Engine, what: &str, expected: &str, found: &str) -> Error {
    Error::Mismatch {
        path: engine.media.path().to_path_buf(),
        what: what.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

impl<K> Filter<K> {
    /// Inserts a key. False if its time lies before the window, and nothing was changed.
    ///
    /// # Errors
    /// [`Error::Io`] (a full disk: nothing has changed, try again once there is space), [`Error::Poisoned`].
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().insert(key)
    }

    /// Whether a key is in the window. Never false for one that is; true for one that is not at the filter's
    /// false-positive rate.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a thread panicked in the middle of changing the key's block.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().contains(key)
    }

    /// Asks for a key and inserts it, in one step: of any number of threads with a new key exactly one gets [`Checked::New`].
    ///
    /// # Errors
    /// As [`Filter::insert`].
    #[inline]
    pub fn check_and_insert(&self, key: impl AsRef<[u8]>) -> Result<Checked> {
        self.call().check_and_insert(key)
    }

    /// Inserts keys in order; they become durable together. Much faster than one by one where the filter is larger than the
    /// processor's caches. Returns how many were inserted: all but those that were too late.
    ///
    /// # Errors
    /// As [`Filter::insert`]; the keys before the failing one are inserted.
    pub fn insert_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<usize> {
        self.call().insert_all(keys)
    }

    /// Asks for many keys; faster than one by one, as [`Filter::insert_all`].
    ///
    /// # Errors
    /// As [`Filter::contains`].
    pub fn contains_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<bool>> {
        self.call().contains_all(keys)
    }

    /// Asks for and inserts keys in order, each in one step; they become durable together. Faster than one by one, as
    /// [`Filter::insert_all`]. Answers are added to `answers`.
    ///
    /// # Errors
    /// As [`Filter::insert`]; `answers` then tells of the keys before the failing one, which are inserted.
    pub fn check_and_insert_all<T: AsRef<[u8]>>(
        &self,
        keys: &[T],
        answers: &mut Vec<Checked>,
    ) -> Result<()> {
        self.call().check_and_insert_all(keys, answers)
    }

    /// The same operations with settings of their own.
    #[must_use]
    #[inline]
    pub fn call(&self) -> Call<'_, K> {
        Call::new(self)
    }

    /// Forgets all keys, in one step that all processes see at once and that is durable when this returns. What was
    /// inserted before is gone, what is inserted after stays; [`Stat::inserts`] begins at 0 again, the filter's time
    /// goes on. Writers wait meanwhile, as long as allocating the filter's first memory anew takes.
    ///
    /// This is the way to reset a filter: removing its directory beside a process that has it open makes two.
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
    /// [`Error::Io`] (a full disk: nothing has changed, for a moment old and new memory are both needed),
    /// [`Error::Poisoned`], [`Error::Retired`].
    pub fn clear(&self) -> Result<()> {
        self.engine.clear()
    }

    /// Returns once everything so far is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync fails or has failed.
    pub fn sync(&self) -> Result<()> {
        self.engine.commit_all()
    }

    /// Writes a snapshot (unless the newest says everything already) and removes log that is no longer needed. Others go on
    /// meanwhile. Returns the LSN at which the newest snapshot starts; 0 for a filter that has never changed and needs none.
    ///
    /// # Errors
    /// [`Error::Io`] (a full disk, although the space of the older snapshot was taken), [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<u64> {
        self.engine.checkpoint()
    }

    /// A hash of the logical state: equal for filters with the same parameters, hash, seed and stripes that were fed the same
    /// operations with the same times, however often they were killed on the way. Writers wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`].
    pub fn digest(&self) -> Result<Digest> {
        self.engine.digest()
    }

    /// What there is to know about the filter.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat(&self) -> Result<Stat> {
        self.engine.stat()
    }

    /// What the background threads do, once.
    ///
    /// # Errors
    /// As [`Filter::checkpoint`].
    #[cfg(shuttle)]
    #[doc(hidden)]
    pub fn do_duties(&self) -> Result<()> {
        self.engine.do_duties()
    }

    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.engine.meta.kind.name()
    }

    /// All parameters of the kind.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.engine.meta.kind.parameters()
    }

    /// Writes a snapshot and closes the filter cleanly, so that the next opening has nothing to replay. Dropping does the same
    /// but cannot say what went wrong.
    ///
    /// # Errors
    /// As [`Filter::checkpoint`]; the filter is closed all the same and nothing is lost but the snapshot.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        self.closed = true;
        if self.engine.check_process().is_err() {
            // A child made by fork: the threads are not here, the mappings neither, and the locks are the parent's.
            self.duties.abandon();
            std::mem::forget(self.engine.clone());
            return self.engine.check_process();
        }
        self.duties.stop();
        self.engine.close()
    }
}

impl<K: Ages> Filter<K> {
    /// How long ago a key was seen, at least; `None` if it is not in the window.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind knows no ages.
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.call().age(key)
    }

    /// Whether a key was seen within less than the window. Never false for one that was; true also for some that are a
    /// little older.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind knows no ages.
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.call().seen_within(key, within)
    }
}

impl<K: Infers> Filter<K> {
    /// The probability that a key is in the window, given what the filter has kept of it and what was believed of it before.
    ///
    /// The other side of [`Filter::contains`]: "yes" comes as a number near 1 or far from it, "no" as 0. It is as good as
    /// the prior; `docs/inference.md` tells when it helps.
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
    /// [`Error::Parameter`] if the prior is not a probability; [`Error::Unsupported`] if the kind tells no posteriors;
    /// [`Error::Poisoned`].
    #[inline]
    pub fn posterior<P: Prior + ?Sized>(&self, key: impl AsRef<[u8]>, prior: &P) -> Result<f64> {
        self.call().posterior(key, prior)
    }

    /// Whether to take a key for one of the window, so that the expected penalty is least (section 2.6 of the Inferential
    /// paper).
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
    /// As [`Filter::posterior`], and [`Error::Parameter`] for penalties below 0.
    #[inline]
    pub fn contains_with<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
        penalty: Penalty,
    ) -> Result<bool> {
        self.call().contains_with(key, prior, penalty)
    }

    /// How long ago a key was inserted, as a distribution: in inserts, or in microseconds where the window is a time.
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
    /// How often a key was inserted (less how often it was removed), by estimate: never too low but for what the kind says,
    /// and too high where all cells of the key are other keys' too.
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
    /// [`Error::Poisoned`]; [`Error::Unsupported`] if the kind does not count.
    #[inline]
    pub fn estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.call().estimate(key)
    }
}

impl<K: Decays> Filter<K> {
    /// The estimate, normalised: what the key comes to in an epoch, as a weighted mean over all epochs.
    ///
    /// ```
    /// # use ebbtide::{Decaying, Filter, Options, Timestamp};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let day = Duration::from_secs(86_400);
    /// let visits = Filter::create(&dir, Decaying::capacity(1000, 0.9, day), Options::new())?;
    /// visits.call().time(Timestamp::from_unix_millis(0)).insert("site")?;
    /// // A day later: the estimate is 0.9, and times 1 - 0.9 it is the frequency. Both are a little rounded up.
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
    /// Removes a key once. False, and nothing changes, if it is not there.
    ///
    /// Removing a key that was never inserted, and only seems to be there, harms others: they may be missed then.
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
    /// As [`Filter::insert`], and [`Error::Unsupported`] if nothing can be removed from the filter.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().remove(key)
    }
}

impl<K> Drop for Filter<K> {
    fn drop(&mut self) {
        if !self.closed {
            // Whoever wants to know calls `close`; the log has everything anyway.
            let _ = self.shut();
        }
    }
}

impl Engine {
    /// Makes sure that the filter is of this kind, if one is wanted.
    pub(super) fn check_kind(&self, wanted: Option<&'static str>) -> Result<()> {
        let found = self.meta.kind.name();
        match wanted {
            Some(wanted) if wanted != found => Err(mismatch(self, "kind", wanted, found)),
            _ => Ok(()),
        }
    }
}
