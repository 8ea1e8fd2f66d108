//! Error rates of a spectral Bloom filter in blocks: pure functions of numbers.
//!
//! A counter is *touched* if a key other than the queried one has raised it. With `keys` others,
//! the touched counters are a share `1 - e^(-k·keys/cells)` of all; in a block it varies with the
//! number of its keys, and rates are means over blocks.

use crate::kinds::bloom::{fpr, mean_over_blocks, variance_over_blocks};

/// Returns the probability that the minimum-selection estimate of a key is higher than its true
/// count: all its counters are touched. It is the false-positive rate of a Bloom filter, whatever
/// the counts; the DCF paper's *accuracy* (section 4, Table 2) is 1 minus it. Minimal increase
/// never has a higher one.
///
/// `keys` are those in the filter, including the queried one; `cells` those of the primary part.
#[must_use]
pub fn overestimate(keys: f64, cells: f64, k: u32, blocks: f64) -> f64 {
    fpr((keys - 1.0).max(0.0), cells, k, blocks)
}

/// Returns the greatest share of keys whose least counter does not recur: those that recurring
/// minimum counts in its secondary part too.
///
/// A key with two untouched counters has a recurring minimum. The share is therefore the
/// probability of at most one of them, `r^k + k·(1 - r)·r^(k-1)`, where `r` is the touched share.
/// (Of keys with no such counter some have a recurring minimum by chance, a wrong one: those are
/// the remaining errors of the method.)
#[must_use]
pub fn single_minimum(keys: f64, cells: f64, k: u32, blocks: f64) -> f64 {
    let others = (keys - 1.0).max(0.0);
    let load = f64::from(k) * others / cells;
    mean_over_blocks(variance_over_blocks(others, blocks), |x| {
        let clean = (-load * x).exp();
        let touched = 1.0 - clean;
        let all_but_one = touched.powi(k.max(1) as i32 - 1);
        (all_but_one * (touched + f64::from(k) * clean)).min(1.0)
    })
}

/// Returns the mean bits of a counter: as many as its value takes, at least 1. A counter has a
/// Poisson number of keys, `load` on average, each of which was inserted `count` times.
///
/// Summed over numbers of keys; above a load of 500 all counters are treated as the mean one.
#[must_use]
pub fn mean_bits(load: f64, count: f64) -> f64 {
    let bits = |keys: f64| (keys * count).max(1.0).log2().floor() + 1.0;
    if load > 500.0 {
        return bits(load).min(64.0);
    }
    let (mut share, mut sum) = ((-load).exp(), 0.0);
    for keys in 0..2000 {
        sum += share * bits(f64::from(keys)).min(64.0);
        share *= load / f64::from(keys + 1);
    }
    sum
}
