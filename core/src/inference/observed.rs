//! `D(j)`, learnt from the stream itself.
//!
//! The learner keeps a sample of keys by their hashes, with the latest insert of each. For each
//! insert of a sampled key it therefore detects whether the key is new in its stretch of 2, 4, 8,
//! ... inserts. This gives the number of distinct keys in these stretches.

use super::Distinct;
use crate::hash::{KeyHash, KeyHasher};
use std::collections::HashMap;

/// The binary logarithm of the shortest stretch that is observed.
const SHORTEST: u32 = 3;
/// The binary logarithm of the longest stretch.
const LONGEST: u32 = 44;

/// The default number of keys held, and the least one. There are no more hashes than the least with
/// 58 leading zeros, so halving ends before the bits run out.
const CAPACITY: usize = 4096;
const LEAST_CAPACITY: usize = 64;

/// The number of sampled keys that a point must rest on.
const ENOUGH: f64 = 32.0;
/// The weight that earlier runs keep after each further run.
const KEPT: f64 = 7.0 / 8.0;

/// Learns how the keys of a stream repeat: pass every insert to [`note`](Self::note), and read
/// `D(j)` from time to time.
///
/// Each *run* is as many inserts as the horizon (the next power of two). It begins with all keys
/// and keeps fewer and fewer, selected by their hashes, so that never more than the capacity are
/// held. Within it `D(2^i)` is the mean over all stretches of `2^i` inserts that begin at a
/// multiple of that; those in which fewer keys were kept weigh less. The weight of a run falls to
/// 7/8 with each further one, so a burst does not dominate and the estimate follows a stream that
/// changes. At the default capacity, standard errors are about 2 % for the longest stretches, and a
/// few percent for others in the first run. Between powers of two, [`Distinct::sampled`] is up to 3
/// % too low where the last keys are being met.
///
/// The state lives in the memory of the process, not in the filter. After a restart it learns
/// again, unless the caller kept its [`points`](Self::points), which [`Distinct::sampled`] accepts.
/// Most inserts cost a hash and a comparison; while all keys are kept, an access to a hash table.
/// Threads that insert together use one each (with a part of the stream, in which keys repeat
/// differently) or one behind a lock. The hashes are not secret: an attacker who chooses the keys
/// can mislead it.
///
/// ```
/// use ebbtide_core::inference::Observed;
/// let mut observed = Observed::new(10_000);
/// for insert in 0..10_000_u32 {
///     // 100 keys, one after the other.
///     observed.note(&(insert % 100).to_le_bytes());
/// }
/// let distinct = observed.distinct();
/// assert!((distinct.of(64.0) - 64.0).abs() < 0.1);
/// assert!((distinct.of(5000.0) - 100.0).abs() < 0.1);
/// ```
#[derive(Debug, Clone)]
pub struct Observed {
    capacity: usize,
    /// By the length of its stretches, from 2^[`SHORTEST`] on. The last one is the run.
    levels: Vec<Level>,
    /// Sampled keys, by their hashes, with the latest insert of each in the run.
    last: HashMap<u64, u64>,
    /// Keys are sampled if their hashes have at least this many leading zeros.
    halvings: u32,
    /// Inserts of this run so far.
    inserts: u64,
    /// The seed of the hashes, different in each run, so that each run samples other keys.
    run: u64,
}

/// Stretches of the same length.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// The distinct keys of the stretch in progress, estimated from the sample.
    open: f64,
    /// The weighted sum over the complete stretches, and the sum of their weights.
    distinct: f64,
    weight: f64,
    /// The number of sampled keys behind these sums.
    sampled: f64,
}

impl Observed {
    /// Creates a learner for queries that reach back `horizon` inserts: a filter's window, or the
    /// longest window that is queried.
    #[must_use]
    pub fn new(horizon: u64) -> Self {
        let longest = horizon.clamp(1 << SHORTEST, 1 << LONGEST).next_power_of_two().ilog2();
        Self {
            capacity: CAPACITY,
            levels: vec![Level::default(); (longest - SHORTEST) as usize + 1],
            last: HashMap::new(),
            halvings: 0,
            inserts: 0,
            run: 0,
        }
    }

    /// Sets the greatest number of keys held, each of 16 bytes plus the overhead of a hash table.
    /// Default 4096, and at least 64; errors are proportional to one over its square root.
    #[must_use]
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys.max(LEAST_CAPACITY);
        self
    }

    /// Records an insert.
    #[inline]
    pub fn note(&mut self, key: &[u8]) {
        let hash = KeyHasher::new(KeyHash::Fast, self.run.into()).hash(key);
        if hash <= u64::MAX >> self.halvings {
            self.sample(hash);
        }
        self.inserts += 1;
        if self.inserts.is_multiple_of(1 << SHORTEST) {
            self.end_stretches();
        }
    }

    fn sample(&mut self, hash: u64) {
        let before = self.last.insert(hash, self.inserts);
        // The key is new in the stretches that have begun since its last insert: those shorter than
        // the highest bit that differs.
        let differ = before.map_or(u64::MAX, |before| before ^ self.inserts);
        let begun = (u64::BITS - differ.leading_zeros()).saturating_sub(SHORTEST) as usize;
        let keys = share(self.halvings).recip();
        self.levels.iter_mut().take(begun).for_each(|level| level.open += keys);
        while self.last.len() > self.capacity {
            self.halvings += 1;
            let most = u64::MAX >> self.halvings;
            self.last.retain(|&hash, _| hash <= most);
        }
    }

    fn end_stretches(&mut self) {
        let share = share(self.halvings);
        // Not the share itself: the stretches of a run sample the same few keys repeatedly.
        let weight = share * share;
        let over = (self.inserts.trailing_zeros() - SHORTEST) as usize + 1;
        for level in self.levels.iter_mut().take(over) {
            let distinct = std::mem::take(&mut level.open);
            level.distinct += distinct * weight;
            level.weight += weight;
            level.sampled += distinct * share;
        }
        if over >= self.levels.len() {
            self.end_run();
        }
    }

    fn end_run(&mut self) {
        for level in &mut self.levels {
            for sum in [&mut level.distinct, &mut level.weight, &mut level.sampled] {
                *sum *= KEPT;
            }
        }
        self.last.clear();
        (self.halvings, self.inserts, self.run) = (0, 0, self.run.wrapping_add(1));
    }

    /// Returns what was learnt so far as points `(j, D(j))`: at powers of two, and in the first run
    /// at its present length. Empty while there are too few keys.
    #[must_use]
    pub fn points(&self) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        let (mut before, mut least) = (1.0, 1.0);
        let mut add = |j: f64, d: f64, sampled: f64| {
            if sampled >= ENOUGH && j > before {
                // Chance can make it fall, or grow faster than j. No stream does.
                let d = d.clamp(least, (least * (j / before)).min(j));
                (before, least) = (j, d);
                points.push((j, d));
            }
        };
        let mut length = (1_u64 << SHORTEST) as f64;
        for level in &self.levels {
            add(length, level.distinct / level.weight, level.sampled);
            length *= 2.0;
        }
        if let Some(run) = self.levels.last()
            && run.weight == 0.0
        {
            add(self.inserts as f64, run.open, run.open * share(self.halvings));
        }
        points
    }

    /// Returns `D(j)` as learnt so far; [`Distinct::ALL`] while there are too few keys. Building
    /// its table takes less than 0.1 ms: build it for many queries, not for each.
    #[must_use]
    pub fn distinct(&self) -> Distinct {
        // The only possible error of these points is that there are none.
        Distinct::sampled(&self.points()).unwrap_or(Distinct::ALL)
    }
}

/// Returns the share of keys that is left after `halvings` halvings.
fn share(halvings: u32) -> f64 {
    1.0 / (1_u64 << halvings) as f64
}

#[cfg(test)]
mod tests {
    use super::super::distinct_in_insertions;
    use super::*;
    use crate::hash::mix;

    /// Keys drawn with the probabilities of these weights.
    struct Draws {
        /// Cumulative probabilities.
        sums: Vec<f64>,
        probabilities: Vec<f64>,
        drawn: u64,
    }

    impl Draws {
        fn new(weights: impl Iterator<Item = f64>) -> Self {
            let weights: Vec<f64> = weights.collect();
            let all: f64 = weights.iter().sum();
            let probabilities: Vec<f64> = weights.iter().map(|weight| weight / all).collect();
            let sums = probabilities.iter().scan(0.0, |sum, p| {
                *sum += p;
                Some(*sum)
            });
            Self { sums: sums.collect(), probabilities, drawn: 0 }
        }

        fn next(&mut self) -> u64 {
            self.drawn += 1;
            let random = (mix(self.drawn ^ (77 << 40)) >> 11) as f64 / (1_u64 << 53) as f64;
            self.sums.partition_point(|&sum| sum <= random) as u64
        }

        fn feed(&mut self, observed: &mut Observed, inserts: u64) {
            (0..inserts).for_each(|_| observed.note(&self.next().to_le_bytes()));
        }

        /// Compares with equation 15 from 100 up to `most`, and returns the greatest relative
        /// error.
        fn error_of(&self, observed: &Observed, most: f64) -> f64 {
            let found = observed.distinct();
            let places = (0..).map(|step| 100.0 * 1.7_f64.powi(step)).take_while(|&j| j < most);
            let errors = places.chain([most]).map(|j| {
                let expected = distinct_in_insertions::of_each(&self.probabilities, j);
                println!("D({j:.0}) = {expected:.1}, observed {:.1}", found.of(j));
                (found.of(j) / expected - 1.0).abs()
            });
            errors.fold(0.0, f64::max)
        }
    }

    fn uniform() -> Draws {
        Draws::new((0..1 << 16).map(|_| 1.0))
    }

    fn zipf(exponent: f64) -> Draws {
        Draws::new((1..=1 << 16).map(|rank| f64::from(rank).powf(-exponent)))
    }

    #[test]
    fn d_is_learnt_within_a_tenth_from_four_runs() {
        // Standard errors are 1 to 2 %; the tolerance is six of them.
        for mut draws in [uniform(), zipf(0.7), zipf(1.0), zipf(1.5)] {
            let mut observed = Observed::new(1 << 18);
            draws.feed(&mut observed, 1 << 20);
            assert!(observed.last.len() <= CAPACITY);
            assert!(draws.error_of(&observed, 262_144.0) < 0.1);
        }
    }

    #[test]
    fn a_stream_that_has_not_reached_the_horizon_tells_as_far_as_it_goes() {
        for mut draws in [uniform(), zipf(1.0)] {
            let mut observed = Observed::new(1 << 24);
            draws.feed(&mut observed, 300_000);
            let last = observed.points().pop().expect("a point");
            assert_eq!(last.0, 300_000.0, "where it stands");
            assert!(draws.error_of(&observed, 300_000.0) < 0.1);
        }
    }

    #[test]
    fn too_little_to_say_is_a_stream_without_repetitions() {
        let mut observed = Observed::new(1000);
        assert_eq!(observed.distinct(), Distinct::ALL);
        observed.note(b"a");
        observed.note(b"a");
        assert_eq!((observed.points(), observed.distinct()), (vec![], Distinct::ALL));
    }

    #[test]
    fn while_all_keys_are_kept_it_is_the_mean_over_aligned_stretches() {
        let mut draws = Draws::new((1..=300).map(|rank| 1.0 / f64::from(rank)));
        let mut observed = Observed::new(1 << 10);
        let keys: Vec<u64> = (0..1 << 10).map(|_| draws.next()).collect();
        keys.iter().for_each(|key| observed.note(&key.to_le_bytes()));
        let points = observed.points();
        assert_eq!(points.len(), 8, "{points:?}");
        for (j, d) in points {
            let stretches = keys.chunks(j as usize).map(|stretch| {
                let distinct: std::collections::HashSet<_> = stretch.iter().collect();
                distinct.len() as f64
            });
            let mean = stretches.sum::<f64>() / (1024.0 / j);
            assert!((d - mean).abs() < 1e-9, "D({j}) = {mean}, observed {d}");
        }
    }

    #[test]
    fn a_stream_that_changes_is_followed() {
        let mut observed = Observed::new(1 << 12).capacity(0);
        (0..1_u64 << 14).for_each(|insert| observed.note(&insert.to_le_bytes()));
        assert!((observed.distinct().of(4096.0) / 4096.0 - 1.0).abs() < 0.5, "64 keys at most");
        (0..1_u64 << 18).for_each(|insert| observed.note(&(insert % 10).to_le_bytes()));
        // The first four runs weigh 2^-12 after 64 more: 4096 keys count as one.
        let found = observed.distinct().of(4096.0);
        assert!((10.0..11.5).contains(&found), "{found}");
    }

    #[test]
    fn its_points_make_a_d_whatever_the_stream_moment_and_horizon() {
        for horizon in [0, 1, 8, 9, 100, 5000, 1 << 44, u64::MAX] {
            let mut observed = Observed::new(horizon).capacity(100);
            for insert in 0..10_000_u64 {
                // A burst of one key, then many keys, then a burst again.
                let key = if insert / 1000 % 2 == 0 { 7 } else { mix(insert) };
                observed.note(&key.to_le_bytes());
                assert!(observed.last.len() <= 100);
                if insert % 23 != 0 {
                    continue;
                }
                let points = observed.points();
                assert!(points.is_empty() || Distinct::sampled(&points).is_ok(), "{points:?}");
            }
        }
    }
}
