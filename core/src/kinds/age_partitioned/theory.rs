//! False-positive rates of age-partitioned filters: pure functions of numbers.
//!
//! Slices are counted by age from the youngest, 0. `k` slices take each insert, `l` more only age.
//! The load `L = k·g/W` is the number of times that a full slice of `W` bits was written, for each
//! of its bits. A false positive is a run of `k` ones among the `k+l` independent bits of a key.

use crate::kinds::bloom::mean_over_blocks;

/// The moment in a filter's life for which a rate is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Generations closed since the filter was empty.
    pub closed: u64,
    /// The part of the open generation that is complete, 0 to 1.
    pub fraction: f64,
}

impl Phase {
    /// Just before a shift, long after the start: the rate is highest here (the paper's equation
    /// 2).
    pub const WORST: Self = Self { closed: u64::MAX, fraction: 1.0 };
}

/// Returns how many generations' inserts the slice of this age has taken.
///
/// `min(i+f, k)` in the steady state; in the first generations slices that are older than the
/// filter took less.
#[must_use]
pub fn generations_in(age: u32, k: u32, phase: Phase) -> f64 {
    let (i, k, closed) = (f64::from(age), f64::from(k), phase.closed as f64);
    if u64::from(age) <= phase.closed {
        (i + phase.fraction).min(k)
    } else {
        (closed + phase.fraction).min(k - i + closed).max(0.0)
    }
}

/// Returns the fill of a slice that has taken `generations` generations, at this load.
#[must_use]
pub fn fill(generations: f64, k: u32, load: f64) -> f64 {
    -(-load * generations / f64::from(k)).exp_m1()
}

/// Returns the probability of a run of `k` ones among independent bits that are one with the given
/// probabilities.
#[must_use]
pub fn fpr_run(fills: impl IntoIterator<Item = f64>, k: u32) -> f64 {
    // runs[r]: no run of k so far, and exactly r ones at the end.
    let mut runs = vec![0.0; k.max(1) as usize];
    runs[0] = 1.0;
    let mut found = 0.0;
    for fill in fills {
        let broken = (1.0 - fill) * runs.iter().sum::<f64>();
        let mut carried = broken;
        for run in &mut runs {
            carried = std::mem::replace(run, carried) * fill;
        }
        found += carried;
    }
    found
}

/// Returns the rate of a filter with slices of one size at a phase.
#[must_use]
pub fn fpr(k: u32, l: u32, load: f64, phase: Phase) -> f64 {
    fpr_run((0..k + l).map(|age| fill(generations_in(age, k, phase), k, load)), k)
}

/// Returns the rate of the query "within the last `generations` closed generations or the open
/// one".
///
/// Such a run lies within the youngest `generations + k` slices.
#[must_use]
pub fn sub_window_fpr(k: u32, l: u32, generations: u32, load: f64, phase: Phase) -> f64 {
    fpr(k, generations.min(l), load, phase)
}

/// Returns [`fpr`] with blocks that hold `block_keys` keys of each generation on average, Poisson
/// distributed.
///
/// The keys of `2k-1` generations affect a run, the middle ones most; the variance of their
/// weighted mean is `(2k²+1)/(3k³)` of one generation's.
#[must_use]
pub fn fpr_in_blocks(k: u32, l: u32, load: f64, phase: Phase, block_keys: f64) -> f64 {
    let functions = f64::from(k);
    let weight = (2.0 * functions * functions + 1.0) / (3.0 * functions.powi(3));
    let variance = if block_keys > 0.0 { weight / block_keys } else { 0.0 };
    mean_over_blocks(variance, |x| fpr(k, l, load * x, phase))
}
