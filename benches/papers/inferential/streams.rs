//! The streams of the Inferential paper: two synthetic ones, and two real ones in place of its
//! trace of source addresses, which is not public.

use super::seed::seed;
use ebbtide::Result;
use ebbtide::inference::Distinct;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::zipf::Zipf;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The number of keys from which synthetic streams draw.
pub const UNIVERSE: usize = 1 << 16;

/// The number of inserts before the first query of a synthetic stream.
const WARM_UP: usize = 1 << 20;

/// The number of positions of a real stream over which the mean is taken for `D(j)`, as in the
/// paper.
const PLACES: usize = 8;

/// The age of a key that never occurred.
const NEVER: u32 = u32::MAX;

/// A stream, with its model.
pub struct Stream {
    pub name: &'static str,
    /// The keys by number.
    pub keys: Vec<u32>,
    /// The number of keys before the first query.
    pub warm_up: usize,
    /// The age of each key at its occurrence, or [`NEVER`].
    ages: Vec<u32>,
    /// `p_x` of each key.
    pub priors: Vec<f64>,
    /// `D(j)`.
    pub distinct: Distinct,
}

impl Stream {
    fn new(
        name: &'static str,
        keys: Vec<u32>,
        warm_up: usize,
        priors: Vec<f64>,
        distinct: Distinct,
    ) -> Self {
        let mut latest: Vec<Option<u32>> = vec![None; priors.len()];
        let mut ages = Vec::with_capacity(keys.len());
        for (&key, now) in keys.iter().zip(0_u32..) {
            let last = latest[key as usize].replace(now);
            ages.push(last.map_or(NEVER, |last| now - last - 1));
        }
        Self { name, keys, warm_up, ages, priors, distinct }
    }

    /// Creates the stream of section 5.2, with this many queries.
    pub fn uniform(queries: usize) -> Result<Self> {
        let mut random = Random::new(seed());
        let keys = (0..WARM_UP + queries).map(|_| random.below(UNIVERSE as u64) as u32);
        let priors = vec![1.0 / UNIVERSE as f64; UNIVERSE];
        let distinct = Distinct::uniform(UNIVERSE as u64)?;
        Ok(Self::new("uniform", keys.collect(), WARM_UP, priors, distinct))
    }

    /// Creates the stream of section 5.3.1, with this many queries.
    pub fn power_law(queries: usize) -> Result<Self> {
        let (zipf, mut random) = (Zipf::new(UNIVERSE, 1.0), Random::new(seed()));
        let keys = (0..WARM_UP + queries).map(|_| zipf.next(&mut random) as u32);
        let distinct = Distinct::power_law(UNIVERSE as u64, 1.0)?;
        Ok(Self::new("power law", keys.collect(), WARM_UP, power_law(), distinct))
    }

    /// Reads the stream of section 5.3.2: the first field of each line of a file; returns `None`,
    /// with a notice, if it is missing. The prior of a key is its frequency in the whole file.
    pub fn real(name: &'static str, file: &str) -> Result<Option<Self>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(file);
        let Ok(text) = fs::read_to_string(&path) else {
            println!("../shared/data/{file} is missing: its rows are omitted\n");
            return Ok(None);
        };
        let (mut numbers, mut counts) = (HashMap::new(), Vec::new());
        let mut keys = Vec::new();
        for field in text.lines().filter_map(|line| line.split_whitespace().next()) {
            let key = *numbers.entry(field).or_insert(counts.len());
            counts.resize(numbers.len(), 0.0);
            counts[key] += 1.0;
            keys.push(key as u32);
        }
        let priors = counts.iter().map(|count| count / keys.len() as f64).collect();
        let distinct = Distinct::sampled(&samples(&keys))?;
        Ok(Some(Self::new(name, keys, 0, priors, distinct)))
    }

    /// Returns key, prior, and whether it is in a window, of each query.
    pub fn queries(&self, window: u64) -> impl Iterator<Item = (u32, f64, bool)> + '_ {
        let (keys, ages) = (&self.keys[self.warm_up..], &self.ages[self.warm_up..]);
        keys.iter()
            .zip(ages)
            .map(move |(&key, &age)| (key, self.priors[key as usize], u64::from(age) < window))
    }

    /// Returns the ratio of queries of keys in a window to those of other keys, as counted.
    pub fn odds(&self, window: u64) -> f64 {
        let inside = self.queries(window).filter(|query| query.2).count() as f64;
        inside / (self.queries(window).count() as f64 - inside)
    }

    /// Returns the same ratio by the priors: `p/(1-p)` with `p = Σ p_x·(1 - (1-p_x)^w)`.
    pub fn expected_odds(&self, window: u64) -> f64 {
        let outside: f64 = self.priors.iter().map(|&p| p * power(1.0 - p, window as f64)).sum();
        (1.0 - outside) / outside
    }
}

/// Returns `p_x` of the power law: `1/(x·H)`.
pub fn power_law() -> Vec<f64> {
    let harmonic: f64 = (1..=UNIVERSE).map(|x| 1.0 / x as f64).sum();
    (1..=UNIVERSE).map(|x| 1.0 / (x as f64 * harmonic)).collect()
}

fn power(base: f64, exponent: f64) -> f64 {
    (exponent * base.ln()).exp()
}

/// Returns the distinct keys among this many inserts, for 1, 10, 100, ... and all: means over
/// positions that are evenly spaced in the stream.
fn samples(keys: &[u32]) -> Vec<(f64, f64)> {
    let powers = std::iter::successors(Some(1), |j| Some(j * 10));
    let mut lengths: Vec<usize> = powers.take_while(|&j| j < keys.len()).collect();
    lengths.push(keys.len());
    let mean = |length: usize| {
        let starts = (0..PLACES).map(|place| place * (keys.len() - length) / (PLACES - 1));
        starts.map(|start| count_distinct(&keys[start..start + length])).sum::<f64>()
            / PLACES as f64
    };
    lengths.into_iter().map(|length| (length as f64, mean(length))).collect()
}

fn count_distinct(keys: &[u32]) -> f64 {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() as f64
}
