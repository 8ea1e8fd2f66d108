//! `D(j)`, learnt from the stream itself.
//!
//! A sample of keys by their hashes, and for each the insert it came with last: so it is known of each insert of a sampled key
//! whether the key is new in the stretch of 2, 4, 8, ... inserts that it falls into, and how many distinct keys these stretches have.

use super::Distinct;
use crate::hash::{KeyHash, KeyHasher};
use std::collections::HashMap;

/// The binary logarithm of the shortest stretch that is looked at.
const SHORTEST: u32 = 3;
/// That of the longest.
const LONGEST: u32 = 44;

/// How many keys are held unless another number is given, and the least one: there are no more hashes than that with 58 leading zeros,
/// so halving ends before the bits do.
const CAPACITY: usize = 4096;
const LEAST_CAPACITY: usize = 64;

/// What a point must rest on: so many sampled keys that were counted.
const ENOUGH: f64 = 32.0;
/// What is left after each run of what earlier ones told.
const KEPT: f64 = 7.0 / 8.0;

/// Learns how the keys of a stream repeat, from the stream: tell it of every insert, and ask for `D(j)` now and then.
///
/// Each *run* of as many inserts as the horizon (the next power of two) begins with all keys and keeps fewer and fewer, by their
/// hashes, so that never more than the capacity are held. Within it `D(2^i)` is the mean over all stretches of `2^i`
/// inserts that begin at a multiple of that; those in which fewer keys were kept weigh less. A run tells 7/8 as much after
/// each further one: a burst does not decide, and a stream that changes is followed. Standard errors are about 2 % for the longest
/// stretches, at the default capacity, and a few percent for others in the first run; between powers of two, [`Distinct::sampled`]
/// is up to 3 % too low where the last keys are being met.
///
/// It lives in the memory of the process, not in the filter: after a restart it learns again, unless its [`points`](Self::points)
/// were kept, which [`Distinct::sampled`] takes. Most inserts cost a hash and a comparison; while all keys are kept, an access to a
/// hash table. Threads that insert together have one each (with a part of the stream, in which keys repeat in another way) or one
/// behind a lock. The hashes are no secret: who chooses the keys can mislead it.
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
    /// Sampled keys, by their hashes, and the insert of the run they came with last.
    last: HashMap<u64, u64>,
    /// Keys are sampled whose hashes have so many leading zeros.
    halvings: u32,
    /// Inserts of this run so far.
    inserts: u64,
    /// The seed of the hashes, another one in each run, so that not the same keys decide again.
    run: u64,
}

/// Stretches of the same length.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// The distinct keys of the stretch under way, by the sample.
    open: f64,
    /// The sum of those that are over, by weight, and the weights.
    distinct: f64,
    weight: f64,
    /// The sampled keys that this rests on.
    sampled: f64,
}

impl Observed {
    /// For questions that go so many inserts back: a filter's window, or the longest one that is asked for.
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

    /// Holds so many keys at most, 16 bytes and what a hash table needs each. Default 4096, and at least 64; errors go with one over
    /// the square root.
    #[must_use]
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys.max(LEAST_CAPACITY);
        self
    }

    /// Learns of an insert.
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
        // The key is new in the stretches that have begun since: those shorter than the highest bit that differs.
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
        // Not the share itself: stretches of a run see the same few keys again and again.
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

    /// What was learnt so far, as points `(j, D(j))`: at powers of two, and in the first run where it stands. None as long as there
    /// is too little to say.
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

    /// `D(j)` by what was learnt so far; [`Distinct::ALL`] as long as there is too little to say. It is a table, made in less than
    /// 0.1 ms: for many questions, not for each.
    #[must_use]
    pub fn distinct(&self) -> Distinct {
        // The only error that these points can be is that there are none.
        Distinct::sampled(&self.points()).unwrap_or(Distinct::ALL)
    }
}

/// The share of keys that is left after so many halvings.
fn share(halvings: u32) -> f64 {
    1.0 / (1_u64 << halvings) as f64
}

#[cfg(test)]
mod tests {
    use super::super::distinct;
    use super::*;
    use crate::hash::mix;

    /// Keys drawn with the probabilities of these weights.
    struct Draws {
        /// Sums of probabilities.
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

        /// Compares with equation 15 from 100 up to `most`, and returns the greatest relative error.
        fn error_of(&self, observed: &Observed, most: f64) -> f64 {
            let found = observed.distinct();
            let places = (0..).map(|step| 100.0 * 1.7_f64.powi(step)).take_while(|&j| j < most);
            let errors = places.chain([most]).map(|j| {
                let expected = distinct::of_each(&self.probabilities, j);
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
        // Standard errors are 1 to 2 %: six of them.
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
        // What the first four runs told weighs 2^-12 after 64 more: 4096 keys are one.
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
