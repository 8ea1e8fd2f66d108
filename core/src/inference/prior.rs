//! The belief about a key before the filter is queried (section 2.3.1).

use super::Distinct;
use super::distinct_in_insertions::harmonic;
use crate::error::{Error, Result};
use std::collections::HashMap;

/// The probability that an insert is of a given key, and how the keys of the stream repeat.
///
/// A bare number is the prior of the queried key, in a stream in which no key repeats; a closure
/// gives the number by key. [`Stream`] models more.
pub trait Prior {
    /// Returns `p_x`: the probability that the next insert is of this key (definition 6).
    fn probability(&self, key: &[u8]) -> f64;

    /// Returns `D(j)`: the number of distinct keys in a number of inserts.
    fn distinct(&self) -> &Distinct {
        &Distinct::ALL
    }

    /// Returns the rate of inserts of all keys together, in inserts a second. Required for filters
    /// with a time window, where ages are durations: `p_x` times this is the rate of the key.
    fn inserts_per_second(&self) -> Option<f64> {
        None
    }
}

impl Prior for f64 {
    fn probability(&self, _: &[u8]) -> f64 {
        *self
    }
}

impl<F: Fn(&[u8]) -> f64> Prior for F {
    fn probability(&self, key: &[u8]) -> f64 {
        self(key)
    }
}

/// A model of the stream: the prior of each key, how keys repeat, and their rate.
#[derive(Debug, Clone)]
pub struct Stream<P = f64> {
    prior: P,
    distinct: Distinct,
    inserts_per_second: Option<f64>,
}

impl Stream {
    /// Creates the model in which each insert is one of `universe` equally likely keys (section
    /// 5.2).
    ///
    /// # Errors
    /// [`Error::Parameter`] for a universe without keys.
    pub fn uniform(universe: u64) -> Result<Self> {
        let distinct = Distinct::uniform(universe)?;
        Ok(Self { prior: 1.0 / universe as f64, distinct, inserts_per_second: None })
    }

    /// Creates the model in which the key of rank `x` of `universe` is inserted with probability
    /// `x^-s/H`, `s` the exponent: 1 in the paper (section 5.3.1).
    ///
    /// `rank` returns the rank of a key, 1 for the most frequent one. A key of rank 0, or beyond
    /// the universe, has the prior 0.
    ///
    /// ```
    /// use ebbtide_core::Prior;
    /// use ebbtide_core::inference::Stream;
    /// let rank = |key: &[u8]| {
    ///     std::str::from_utf8(key).ok().and_then(|key| key.parse().ok()).unwrap_or(0)
    /// };
    /// let stream = Stream::power_law(100, 1.0, rank)?;
    /// // H = 5.187 for 100 keys.
    /// assert!((stream.probability(b"1") - 0.1928).abs() < 1e-4);
    /// assert!((stream.probability(b"10") - 0.0193).abs() < 1e-4);
    /// assert_eq!(stream.probability(b"no number"), 0.0);
    /// # Ok::<(), ebbtide_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Distinct::power_law`].
    pub fn power_law<F: Fn(&[u8]) -> u64>(
        universe: u64,
        exponent: f64,
        rank: F,
    ) -> Result<Stream<impl Fn(&[u8]) -> f64>> {
        let distinct = Distinct::power_law(universe, exponent)?;
        let h = harmonic(universe, exponent);
        let prior = move |key: &[u8]| match rank(key) {
            rank if (1..=universe).contains(&rank) => (rank as f64).powf(-exponent) / h,
            _ => 0.0,
        };
        Ok(Stream { prior, distinct, inserts_per_second: None })
    }
}

/// The count of a key that has never been seen.
pub const UNSEEN: f64 = 0.5;

impl Stream<Table> {
    /// Creates the model in which keys have the frequencies counted in a part of the stream or in a
    /// similar one (section 5.3.2). Each other key counts as half an insert, or as [`Stream::or`]
    /// sets it. (A key with prior 0 would be denied whatever its cells show.) The counts of a
    /// repeated key add up.
    ///
    /// ```
    /// use ebbtide_core::Prior;
    /// use ebbtide_core::inference::Stream;
    /// let stream = Stream::table([("a", 30), ("b", 10)])?.or(1e-6);
    /// assert_eq!(stream.probability(b"a"), 0.75);
    /// assert_eq!(stream.probability(b"c"), 1e-6);
    /// assert_eq!(stream.distinct().of(1000.0), 2.0);
    /// # Ok::<(), ebbtide_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if all counts are 0.
    pub fn table<K: AsRef<[u8]>>(counts: impl IntoIterator<Item = (K, u64)>) -> Result<Self> {
        let (mut probabilities, mut sum) = (HashMap::new(), 0.0);
        for (key, count) in counts {
            *probabilities.entry(Box::from(key.as_ref())).or_insert(0.0) += count as f64;
            sum += count as f64;
        }
        if sum == 0.0 {
            return Err(Error::parameter("counts", "a sum of at least 1", 0));
        }
        probabilities.values_mut().for_each(|p| *p /= sum);
        let distinct = Distinct::of_probabilities(probabilities.values().copied())?;
        let prior = Table { probabilities, others: (UNSEEN / sum).min(1.0) };
        Ok(Self { prior, distinct, inserts_per_second: None })
    }

    /// Sets the prior of each key that is not in the table. `D(j)` follows the table alone.
    #[must_use]
    pub fn or(mut self, probability: f64) -> Self {
        self.prior.others = probability;
        self
    }
}

/// The prior of each of some keys; see [`Stream::table`].
#[derive(Debug, Clone)]
pub struct Table {
    probabilities: HashMap<Box<[u8]>, f64>,
    others: f64,
}

impl Prior for Table {
    fn probability(&self, key: &[u8]) -> f64 {
        self.probabilities.get(key).copied().unwrap_or(self.others)
    }
}

impl<P: Prior> Stream<P> {
    /// Creates the model of keys with these priors that repeat according to `distinct`.
    #[must_use]
    pub fn new(prior: P, distinct: Distinct) -> Self {
        Self { prior, distinct, inserts_per_second: None }
    }

    /// Sets the rate of inserts of all keys together, in inserts a second: for filters with a time
    /// window.
    #[must_use]
    pub fn rate(mut self, inserts_per_second: f64) -> Self {
        self.inserts_per_second = Some(inserts_per_second);
        self
    }
}

impl<P> Stream<P> {
    /// Returns the same stream with another prior for the queried key.
    #[must_use]
    pub fn with(&self, probability: f64) -> KeyPrior<'_> {
        KeyPrior {
            probability,
            distinct: &self.distinct,
            inserts_per_second: self.inserts_per_second,
        }
    }
}

impl<P: Prior> Prior for Stream<P> {
    fn probability(&self, key: &[u8]) -> f64 {
        self.prior.probability(key)
    }

    fn distinct(&self) -> &Distinct {
        &self.distinct
    }

    fn inserts_per_second(&self) -> Option<f64> {
        self.inserts_per_second
    }
}

/// The prior of one key in a [`Stream`]; see [`Stream::with`].
#[derive(Debug, Clone, Copy)]
pub struct KeyPrior<'a> {
    probability: f64,
    distinct: &'a Distinct,
    inserts_per_second: Option<f64>,
}

impl Prior for KeyPrior<'_> {
    fn probability(&self, _: &[u8]) -> f64 {
        self.probability
    }

    fn distinct(&self) -> &Distinct {
        self.distinct
    }

    fn inserts_per_second(&self) -> Option<f64> {
        self.inserts_per_second
    }
}

/// Returns `p_x` of a key, checked.
///
/// # Errors
/// [`Error::Parameter`] if it is not a probability.
#[inline]
pub fn probability<P: Prior + ?Sized>(prior: &P, key: &[u8]) -> Result<f64> {
    let p = prior.probability(key);
    if (0.0..=1.0).contains(&p) {
        Ok(p)
    } else {
        Err(Error::parameter("prior", "a probability from 0 to 1", p))
    }
}

/// Returns the inserts a second of all keys, checked.
///
/// # Errors
/// [`Error::Parameter`] if no rate is given, or if it is not a finite number above 0: at a rate of
/// 0 no key would have any age.
pub fn inserts_per_second<P: Prior + ?Sized>(prior: &P) -> Result<f64> {
    let expected = "the inserts a second, of all keys, for this filter's window is a time";
    match prior.inserts_per_second() {
        Some(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        Some(rate) => Err(Error::parameter("rate", expected, rate)),
        None => Err(Error::parameter("rate", expected, "none")),
    }
}
