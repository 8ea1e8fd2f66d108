//! Questions to a reader with settings of their own: a time, a window, formulas.

use super::call::{AHEAD, fetch};
use super::engine::Engine;
use super::infer::Asking;
use super::reader::Reader;
use super::spec::{Ages, Any, Counts, Decays, Infers};
use crate::clock::Timestamp;
use crate::error::Result;
use ebbtide_core::inference::{AgePosterior, Form, Penalty, Prior, decide};
use ebbtide_core::kind::{Age, Estimate, Micros, Within};

/// Questions with a time of their own; see [`Reader::call`].
#[derive(Debug)]
pub struct ReaderCall<'a, K = Any> {
    reader: &'a Reader<K>,
    time: Option<u64>,
    asking: Asking,
}

impl<K> Clone for ReaderCall<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for ReaderCall<'_, K> {}

impl<'a, K> ReaderCall<'a, K> {
    /// With the reader's settings.
    pub(super) fn new(reader: &'a Reader<K>) -> Self {
        Self { reader, time: None, asking: Asking::default() }
    }

    /// At this time instead of the clock's.
    #[must_use]
    pub fn time(mut self, time: Timestamp) -> Self {
        self.time = Some(time.as_unix_micros());
        self
    }

    /// Asks the engine about a key.
    fn ask<T>(
        &self,
        key: impl AsRef<[u8]>,
        ask: impl Fn(&Engine, u64, Option<Micros>) -> Result<T>,
    ) -> Result<T> {
        self.reader.with(|engine| ask(engine, engine.meta.hasher.hash(key.as_ref()), self.time))
    }

    /// Asks the engine about each of many keys, whose cells are fetched ahead.
    fn ask_all<T: AsRef<[u8]>, A>(
        &self,
        keys: &[T],
        ask: impl Fn(&Engine, u64, Option<Micros>) -> Result<A>,
    ) -> Result<Vec<A>> {
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AHEAD) {
            // Each of these answers is of one state; between them the reader may turn to another
            // one.
            answers.extend(self.reader.with(|engine| {
                let hashes = fetch(engine, keys, Engine::prefetch);
                let asked = hashes[..keys.len()].iter().map(|&hash| ask(engine, hash, self.time));
                asked.collect::<Result<Vec<A>>>()
            })?);
        }
        Ok(answers)
    }

    /// See [`Reader::contains_all`].
    ///
    /// # Errors
    /// As there.
    pub fn contains_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<bool>> {
        self.ask_all(keys, Engine::contains)
    }

    /// See [`Reader::contains_hash`].
    ///
    /// # Errors
    /// As there.
    pub fn contains_hash(&self, hash: u64) -> Result<bool> {
        self.contains(hash.to_le_bytes())
    }

    /// See [`Reader::contains`].
    ///
    /// # Errors
    /// As there.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.ask(key, Engine::contains)
    }
}

impl<K: Ages> ReaderCall<'_, K> {
    /// See [`Reader::age`].
    ///
    /// # Errors
    /// As there.
    pub fn age(&self, key: impl AsRef<[u8]>) -> Result<Option<Age>> {
        self.ask(key, Engine::age)
    }

    /// See [`Reader::seen_within`].
    ///
    /// # Errors
    /// As there.
    pub fn seen_within(&self, key: impl AsRef<[u8]>, within: Within) -> Result<bool> {
        self.ask(key, |engine, hash, time| engine.seen_within(hash, time, within))
    }
}

impl<K: Infers> ReaderCall<'_, K> {
    /// Posteriors of another window than the filter's own, shorter or longer.
    #[must_use]
    pub fn window(mut self, window: Within) -> Self {
        self.asking.window = Some(window);
        self
    }

    /// Posteriors by these formulas.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.asking.form = form;
        self
    }

    /// See [`Reader::posterior`].
    ///
    /// # Errors
    /// As there, and [`Error::Parameter`](crate::Error::Parameter) for a window in another unit than the filter's.
    pub fn posterior<P: Prior + ?Sized>(&self, key: impl AsRef<[u8]>, prior: &P) -> Result<f64> {
        let key = key.as_ref();
        self.ask(key, |engine, hash, time| engine.posterior(key, hash, time, self.asking, prior))
    }

    /// See [`Reader::contains_with`].
    ///
    /// # Errors
    /// As there, and as [`ReaderCall::posterior`].
    pub fn contains_with<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
        penalty: Penalty,
    ) -> Result<bool> {
        Ok(decide(self.posterior(key, prior)?, penalty)?)
    }

    /// See [`Reader::age_posterior`].
    ///
    /// # Errors
    /// As there.
    pub fn age_posterior<P: Prior + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        prior: &P,
    ) -> Result<AgePosterior> {
        let (key, form) = (key.as_ref(), self.asking.form);
        self.ask(key, |engine, hash, time| engine.age_posterior(key, hash, time, form, prior))
    }
}

impl<K: Counts> ReaderCall<'_, K> {
    /// See [`Reader::estimate`].
    ///
    /// # Errors
    /// As there.
    pub fn estimate(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.ask(key, Engine::estimate)
    }
}

impl<K: Counts> ReaderCall<'_, K> {
    /// See [`Reader::estimate_all`].
    ///
    /// # Errors
    /// As there.
    pub fn estimate_all<T: AsRef<[u8]>>(&self, keys: &[T]) -> Result<Vec<Estimate>> {
        self.ask_all(keys, Engine::estimate)
    }
}

impl<K: Decays> ReaderCall<'_, K> {
    /// See [`Reader::frequency`].
    ///
    /// # Errors
    /// As there.
    pub fn frequency(&self, key: impl AsRef<[u8]>) -> Result<Estimate> {
        self.ask(key, Engine::frequency)
    }
}
