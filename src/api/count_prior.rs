//! A prior for one filter from the counts of another.

use crate::api::config::{Any, Removes};
use crate::api::handle::Filter;
use crate::api::handle::Handle;
use crate::engine::write::request::{Given, Waits};
use crate::error::Result;
use ebbtide_core::inference::Prior;
use ebbtide_core::inference::prior::UNSEEN;
use ebbtide_core::kind::{Estimate, Totals};

/// The prior of a key from its frequency in a filter that counts; as durable and as shared between
/// processes as that filter.
///
/// `p_x = (n_x + 1/2)/(n + 1)`, where `n_x` of `n` inserts are of this key, in both cases inserts
/// less removals. A key that has not been inserted yet is therefore not impossible, and no key is
/// certain. Insert (and remove) keys one at a time: a key inserted with
/// [`times`](crate::Call::times) raises `n_x` by more than 1, but `n` by 1. Estimates, and hence
/// priors, are too high for some keys; saturated counts make them too low.
///
/// How keys repeat is modelled separately: [`Stream::new`](crate::inference::Stream::new) combines
/// both.
///
/// ```
/// # use ebbtide::{Counting, Filter, Frequencies, Options, Prior, Timing};
/// use ebbtide::inference::{Observed, Stream};
/// # let parent = tempfile::tempdir()?;
/// # let [recent, counts] = ["recent", "counts"].map(|name| parent.path().join(name));
/// let recent = Filter::create(&recent, Timing::last(100), Options::new())?;
/// let spec = Counting::capacity(1000).counter_bits(16);
/// let counts = Filter::create(&counts, spec, Options::new())?;
/// let mut observed = Observed::new(100);
/// for insert in 0..1000 {
///     let key = if insert % 2 == 0 { "often".to_owned() } else { format!("{}", insert % 200) };
///     recent.insert(&key)?;
///     counts.insert(&key)?;
///     observed.note(key.as_bytes());
/// }
/// let stream = Stream::new(Frequencies::new(&counts), observed.distinct());
/// assert!((stream.probability(b"often") - 0.5).abs() < 0.01);
/// assert!(recent.posterior("often", &stream)? > 0.99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A filter that cannot answer (poisoned, retired, forked, or of a kind that does not count) yields
/// the prior NaN, because a prior is a number. A query with it fails with
/// [`Error::Parameter`](crate::Error::Parameter), "prior: expected a probability from 0 to 1, found
/// NaN".
#[derive(Debug)]
pub struct Frequencies<'a, H = Filter<Any>> {
    counts: &'a H,
}

impl<H> Clone for Frequencies<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Frequencies<'_, H> {}

impl<'a, H: Handle<Kind: Removes>> Frequencies<'a, H> {
    /// Creates priors from the counts of this filter or reader. Every insert of the other filter
    /// must be counted there, and the counts must not decay.
    #[must_use]
    pub fn new(counts: &'a H) -> Self {
        Self { counts }
    }

    fn look_up(&self, key: &[u8]) -> Result<(Estimate, Totals)> {
        self.counts.ask(Waits::Always, |queries| {
            let hash = queries.shared.hash(key);
            Ok((
                queries.estimate(hash, Given::default())?,
                queries.shared.header().counters().sum(),
            ))
        })
    }
}

impl<H: Handle<Kind: Removes>> Prior for Frequencies<'_, H> {
    fn probability(&self, key: &[u8]) -> f64 {
        let Ok((estimate, totals)) = self.look_up(key) else {
            return f64::NAN;
        };
        // In kinds that remove, `new_bits` is the number of removals.
        let inserts = totals.inserts.saturating_sub(totals.new_bits);
        // The insert of another thread may be in one of the two and not yet in the other.
        ((estimate.count + UNSEEN) / (inserts as f64 + 1.0)).min(1.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{
        Counting, DynamicCount, Error, Options, Parameters, Reader, Spec, Spectral, Timing,
    };

    fn made<K: Spec>(spec: K) -> (Filter<K>, tempfile::TempDir) {
        let place = tempfile::TempDir::new().expect("a directory");
        let options = Options::new().hash_seed(7).background(false);
        (Filter::create(place.path().join("filter"), spec, options).expect("a filter"), place)
    }

    fn priors_follow<K: Removes>(spec: K) {
        let (filter, _place) = made(spec);
        let prior = Frequencies::new(&filter);
        assert_eq!(prior.probability(b"a"), 0.5, "nothing is known");
        for _ in 0..30 {
            filter.insert("a").expect("an insert");
        }
        for _ in 0..10 {
            filter.insert("b").expect("an insert");
        }
        assert_eq!(prior.probability(b"a"), 30.5 / 41.0);
        assert_eq!(prior.probability(b"b"), 10.5 / 41.0);
        assert_eq!(prior.probability(b"c"), 0.5 / 41.0);
        for _ in 0..10 {
            assert!(filter.remove("a").expect("a removal"));
        }
        assert_eq!(prior.probability(b"a"), 20.5 / 31.0);
        filter.call().times(1000).insert("d").expect("an insert");
        assert_eq!(prior.probability(b"d"), 1.0, "not above");
    }

    #[test]
    fn priors_follow_the_counts_of_every_kind_from_which_keys_can_be_removed() {
        priors_follow(Counting::capacity(1000).counter_bits(16));
        priors_follow(Spectral::capacity(1000));
        priors_follow(DynamicCount::capacity(1000));
    }

    #[test]
    fn a_reader_of_the_counts_has_the_same_priors_also_when_nobody_has_them_open() {
        let place = tempfile::TempDir::new().expect("a directory");
        let dir = place.path().join("counts");
        let options = || Options::new().background(false);
        let spec = Counting::capacity(1000).counter_bits(16);
        let filter = Filter::create(&dir, spec, options()).expect("a filter");
        for key in ["a", "a", "b", "a"] {
            filter.insert(key).expect("an insert");
        }
        let reader = Reader::<Counting>::open(&dir, options()).expect("a reader");
        let beside = Frequencies::new(&reader);
        assert_eq!(beside.probability(b"a"), 3.5 / 5.0);
        filter.insert("b").expect("an insert");
        assert_eq!(beside.probability(b"b"), 2.5 / 6.0);
        filter.close().expect("a clean end");
        let alone = Reader::<Counting>::open(&dir, options()).expect("a reader");
        assert_eq!(Frequencies::new(&alone).probability(b"b"), 2.5 / 6.0);
    }

    #[test]
    fn a_filter_that_cannot_answer_makes_the_question_an_error() {
        let parameters = Parameters::new().with("capacity", 1000);
        let (filter, _place) = made(Any::new("bloom", parameters));
        let prior = Frequencies::new(&filter);
        assert!(prior.probability(b"a").is_nan());
        let (recent, _beside) = made(Timing::last(100));
        let error = recent.posterior("a", &prior).expect_err("no prior");
        assert!(matches!(error, Error::Parameter { name: "prior", .. }), "{error}");
    }
}
