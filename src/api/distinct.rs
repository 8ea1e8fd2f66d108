//! How many distinct keys a filter has: of filters and readers, with and without settings.

use crate::api::call::Call;
use crate::api::config::CountsDistinct;
use crate::api::handle::{Filter, Handle};
#[cfg(not(loom))]
use crate::api::reader::Reader;
use crate::error::Result;
use ebbtide_core::kind::{Cardinality, Within};

impl<H: Handle<Kind: CountsDistinct>> Call<'_, H> {
    /// See [`Filter::distinct`]. A given [time](Call::time) is the time as of which windows of time
    /// are counted.
    ///
    /// # Errors
    /// Those of [`Filter::distinct`].
    pub fn distinct(&self) -> Result<Cardinality> {
        self.ask_all_keys(|queries, given| queries.distinct(given, None))
    }

    /// See [`Filter::distinct_within`].
    ///
    /// # Errors
    /// Those of [`Filter::distinct_within`].
    pub fn distinct_within(&self, within: Within) -> Result<Cardinality> {
        self.ask_all_keys(|queries, given| queries.distinct(given, Some(within)))
    }
}

impl<K: CountsDistinct> Filter<K> {
    /// Returns how many distinct keys are in the window, with the standard error of that number.
    /// Of kinds without a window, how many there are at all.
    ///
    /// The keys are those that [`Filter::contains`] finds, so the window may be up to one
    /// generation longer than asked for: [`Cardinality::reach`] says how long it is. No memory is
    /// used for this: the number follows from the cells. For a million keys `fingerprint` has an
    /// error of some 0.002 to 0.01 %; `docs/inference.md` has figures for other kinds.
    ///
    /// All blocks are read, about 1 GiB a second, without a lock; others continue to write. For a
    /// figure that costs less, of a sample of the blocks, see [`Stat::distinct_keys`].
    ///
    /// ```
    /// use ebbtide::{Filter, Fingerprint, Options, Within};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, Fingerprint::last(14_000), Options::new())?;
    /// for visitor in 0..3000_u64 {
    ///     seen.insert(visitor.to_le_bytes())?;
    ///     seen.insert("a visitor who comes all the time")?;
    /// }
    /// let distinct = seen.distinct()?;
    /// assert!((distinct.keys - 3001.0).abs() <= 4.0 * distinct.standard_error + 1.0);
    /// // Of the last 1000 inserts, and of those before them in the same generation.
    /// let lately = seen.distinct_within(Within::Items(1000))?;
    /// assert!(lately.keys < distinct.keys && lately.reach.width() >= 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Stat::distinct_keys`]: crate::Stat::distinct_keys
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the kind does not know it;
    /// [`Error::Io`](crate::Error::Io) if a bank cannot be mapped.
    pub fn distinct(&self) -> Result<Cardinality> {
        self.call().distinct()
    }

    /// Returns how many distinct keys were inserted in a part of the window: in the last inserts,
    /// or within the last time. No key of that part is left out; keys that are up to one generation
    /// older count too, and [`Cardinality::reach`] says how far back the number reaches.
    ///
    /// # Errors
    /// As [`Filter::distinct`], also [`Error::Unsupported`](crate::Error::Unsupported) for kinds
    /// that cannot tell younger keys from older ones, and
    /// [`Error::Parameter`](crate::Error::Parameter) for a part in another unit than the window's.
    pub fn distinct_within(&self, within: Within) -> Result<Cardinality> {
        self.call().distinct_within(within)
    }
}

#[cfg(not(loom))]
impl<K: CountsDistinct> Reader<K> {
    /// Returns how many distinct keys are in the window; see [`Filter::distinct`].
    ///
    /// # Errors
    /// As [`Reader::contains`], and [`Error::Unsupported`](crate::Error::Unsupported) if the kind
    /// does not know it.
    pub fn distinct(&self) -> Result<Cardinality> {
        self.call().distinct()
    }

    /// Returns how many distinct keys were inserted in a part of the window; see
    /// [`Filter::distinct_within`].
    ///
    /// # Errors
    /// As [`Reader::distinct`], and as [`Filter::distinct_within`].
    pub fn distinct_within(&self, within: Within) -> Result<Cardinality> {
        self.call().distinct_within(within)
    }
}
