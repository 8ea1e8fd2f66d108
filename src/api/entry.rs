//! The keys of a bulk operation, which may have settings of their own.

use crate::api::config::{Any, Counts, Weighs};
use crate::clock::Timestamp;
use crate::engine::shared::Shared;
use std::marker::PhantomData;

/// The keys of a bulk operation that are prefetched: their misses overlap, and all stay cached.
pub(crate) const AHEAD: usize = 32;

/// A key with a time or a weight of its own, for
/// [`Filter::insert_entries`](crate::Filter::insert_entries) and
/// [`Filter::check_and_insert_entries`](crate::Filter::check_and_insert_entries).
///
/// Settings that an entry lacks are those of the [`Call`](crate::Call). `K` is the filter's kind,
/// which the compiler infers.
///
/// ```
/// use ebbtide::{Counting, Entry, Filter, Options};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("sold");
/// let sold = Filter::create(&dir, Counting::capacity(1000).counter_bits(8), Options::new())?;
/// sold.insert_entries(&[Entry::new("apples").times(12), Entry::new("pears")])?;
/// assert_eq!(sold.estimate("apples")?.count, 12.0);
/// assert_eq!(sold.estimate("pears")?.count, 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Entry<T, K = Any> {
    pub(crate) key: T,
    pub(crate) time: Option<u64>,
    pub(crate) weight: Option<f64>,
    kind: PhantomData<fn() -> K>,
}

/// An item of a bulk operation: a key, or a key with settings of its own.
pub(crate) trait Item {
    /// Returns the key's bytes.
    fn key(&self) -> &[u8];

    /// Returns the item's own time and weight.
    fn settings(&self) -> (Option<u64>, Option<f64>);
}

impl<T: AsRef<[u8]>> Item for T {
    #[inline]
    fn key(&self) -> &[u8] {
        self.as_ref()
    }

    #[inline]
    fn settings(&self) -> (Option<u64>, Option<f64>) {
        (None, None)
    }
}

impl<T: AsRef<[u8]>, K> Item for Entry<T, K> {
    #[inline]
    fn key(&self) -> &[u8] {
        self.key.as_ref()
    }

    #[inline]
    fn settings(&self) -> (Option<u64>, Option<f64>) {
        (self.time, self.weight)
    }
}

impl<T: Clone, K> Clone for Entry<T, K> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), ..*self }
    }
}

impl<T: Copy, K> Copy for Entry<T, K> {}

impl<T: PartialEq, K> PartialEq for Entry<T, K> {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, self.time, self.weight) == (&other.key, other.time, other.weight)
    }
}

impl<T, K> From<T> for Entry<T, K> {
    fn from(key: T) -> Self {
        Self::new(key)
    }
}

impl<T, K> Entry<T, K> {
    /// Creates an entry without settings of its own.
    #[must_use]
    pub const fn new(key: T) -> Self {
        Self { key, time: None, weight: None, kind: PhantomData }
    }

    /// Sets the time; see [`Call::time`](crate::Call::time).
    #[must_use]
    pub fn time(mut self, time: Timestamp) -> Self {
        self.time = Some(time.as_unix_micros());
        self
    }
}

impl<T, K: Counts> Entry<T, K> {
    /// Counts the key `count` times; see [`Call::times`](crate::Call::times).
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.weight = Some(count as f64);
        self
    }
}

impl<T, K: Weighs> Entry<T, K> {
    /// Sets the importance; see [`Call::importance`](crate::Call::importance).
    #[must_use]
    pub fn importance(mut self, importance: f64) -> Self {
        self.weight = Some(importance);
        self
    }
}

impl<T> Entry<T, Any> {
    /// Sets the weight, in the meaning of the filter's kind; see
    /// [`Call::weight`](crate::Call::weight).
    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = Some(weight);
        self
    }
}

/// Hashes up to [`AHEAD`] keys and prefetches their cells, so that all their cache misses overlap.
#[inline]
pub(crate) fn fetch<T: Item>(shared: &Shared, items: &[T], prefetch: impl Fn(u64)) -> [u64; AHEAD] {
    let mut hashes = [0; AHEAD];
    for (hash, item) in hashes.iter_mut().zip(items) {
        *hash = shared.hash(item.key());
        prefetch(*hash);
    }
    hashes
}
