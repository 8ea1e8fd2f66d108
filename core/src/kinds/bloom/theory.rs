//! False-positive rates of a Bloom filter in blocks: pure functions of numbers.
//!
//! All bits of a key lie in one block, and the keys of a block vary in number (nearly a Poisson
//! variable). The rate of the whole filter is therefore the mean of the blocks' rates, which is
//! slightly above the rate of the mean block. [`mean_over_blocks`] computes that mean for any kind.

/// Nodes and weights of the seven-point Gauss-Hermite rule for a standard normal variable.
const NORMAL: [(f64, f64); 7] = [
    (-3.750_439_717_725_742, 0.000_548_268_855_972),
    (-2.366_759_410_734_541, 0.030_757_123_967_586),
    (-1.154_405_394_739_968, 0.240_123_178_605_013),
    (0.0, 0.457_142_857_142_857),
    (1.154_405_394_739_968, 0.240_123_178_605_013),
    (2.366_759_410_734_541, 0.030_757_123_967_586),
    (3.750_439_717_725_742, 0.000_548_268_855_972),
];

/// Relative variances are limited to this: the rule below has no meaning beyond it.
const MOST_VARIANCE: f64 = 0.25;

/// Returns the mean of `rate(x)`, where `x` is a Poisson variable divided by its mean and
/// `variance` is the variance of `x`, that is, one over the mean.
///
/// The variable is approximated by a normal one with the skewness of the Poisson one (the first
/// Cornish-Fisher term), summed at seven points.
#[must_use]
pub fn mean_over_blocks(variance: f64, rate: impl Fn(f64) -> f64) -> f64 {
    let variance = variance.clamp(0.0, MOST_VARIANCE);
    if variance == 0.0 {
        return rate(1.0);
    }
    let deviation = variance.sqrt();
    NORMAL
        .iter()
        .map(|(z, weight)| {
            let x = 1.0 + deviation * z + variance * (z * z - 1.0) / 6.0;
            weight * rate(x.max(0.0))
        })
        .sum()
}

/// Returns the variance of a block's share of the keys, relative to its mean: the input of
/// [`mean_over_blocks`].
#[must_use]
pub fn variance_over_blocks(keys: f64, blocks: f64) -> f64 {
    if keys > 0.0 && blocks > 1.0 { (blocks - 1.0) / keys } else { 0.0 }
}

/// Returns the false-positive rate of `bits` bits in `blocks` blocks after `keys` distinct keys
/// with `k` bits each.
#[must_use]
pub fn fpr(keys: f64, bits: f64, k: u32, blocks: f64) -> f64 {
    let load = f64::from(k) * keys / bits;
    mean_over_blocks(variance_over_blocks(keys, blocks), |x| fill(load * x).powi(k as i32))
}

/// Returns the false-positive rate when a known share `fill` of all bits is set: exact except for
/// the blocks' spread.
#[must_use]
pub fn fpr_of_fill(fill: f64, bits: f64, k: u32, blocks: f64) -> f64 {
    if fill >= 1.0 {
        return 1.0;
    }
    let load = -(-fill.max(0.0)).ln_1p();
    fpr(load * bits / f64::from(k), bits, k, blocks)
}

/// Returns the share of bits that are set when each was written `load` times on average.
fn fill(load: f64) -> f64 {
    -(-load).exp_m1()
}
