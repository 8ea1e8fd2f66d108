//! False-positive rates of a Bloom filter in blocks: pure functions of numbers.
//!
//! All bits of a key lie in one block, and the keys of a block vary in number (nearly a Poisson
//! variable). The rate of the whole filter is therefore the mean of the blocks' rates, which is
//! slightly above the rate of the mean block. [`mean_over_blocks`] computes that mean for any kind.
//! In blocks of few cells the mean is far above that, and is computed exactly ([`Chain`]).

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

/// The rate of blocks with fewer cells than this is computed exactly.
pub const FEW_CELLS: f64 = 1024.0;

/// The greatest load of a block whose rate is computed exactly: beyond it nearly all cells are
/// touched.
const MOST_LOAD: f64 = 8.0;

/// The most keys of a block whose rate is computed exactly: for more, a normal variable is a good
/// approximation.
const MOST_KEYS: f64 = 600.0;

/// Returns the false-positive rate of `bits` bits in `blocks` blocks after `keys` distinct keys
/// with `k` bits each: of their bits, and of equal hashes ([`same_hash`]).
#[must_use]
pub fn fpr(keys: f64, bits: f64, k: u32, blocks: f64) -> f64 {
    (fpr_of_cells(keys, bits, k, blocks) + same_hash(keys)).min(1.0)
}

/// Returns the share of absent keys that have the same 64-bit hash as one of this many keys. No
/// filter has a lower rate.
#[must_use]
pub fn same_hash(keys: f64) -> f64 {
    keys / 2_f64.powi(64)
}

/// Returns [`fpr`] as if all hashes were different.
#[must_use]
pub fn fpr_of_cells(keys: f64, cells: f64, k: u32, blocks: f64) -> f64 {
    let blocks = blocks.max(1.0);
    let load = f64::from(k) * keys / cells;
    let (cells, mean) = ((cells / blocks).max(1.0), keys / blocks);
    if cells < FEW_CELLS && load < MOST_LOAD && mean < MOST_KEYS {
        return counted_fpr(mean, cells, k, blocks > 1.0);
    }
    mean_over_blocks(variance_over_blocks(keys, blocks), |x| {
        mean_of_power(f64::from(k) * mean * x, cells, k)
    })
}

/// Returns the mean of the `k`-th power of the share of a block's cells that this number of touches
/// leaves touched: greater than the power of the mean, because the share varies. The first term of
/// the difference: a little too much, by 0.3 % for 18 keys with 40 of 1,030 cells each.
#[must_use]
pub fn mean_of_power(touches: f64, cells: f64, k: u32) -> f64 {
    if touches <= 0.0 {
        return 0.0;
    }
    let (load, mean) = (touches / cells, -(touches * (-1.0 / cells).ln_1p()).exp_m1());
    // The variance of the share is `e^-a (1 - (1+a) e^-a) / m` for a load `a`; a series where the
    // difference would be lost.
    let (left, small) = ((-load).exp(), load < 1e-3);
    if left == 0.0 {
        return 1.0;
    }
    let difference =
        if small { load * load * (0.5 - load / 3.0) } else { 1.0 - (1.0 + load) * left };
    let variance = left * difference / (cells * mean * mean);
    let k = f64::from(k);
    (mean.powf(k) * (k * (k - 1.0) / 2.0 * variance).exp()).min(1.0)
}

/// Returns the false-positive rate when a known share `fill` of all bits is set: exact except for
/// the blocks' spread, and for the number of keys, of which equal hashes ([`same_hash`]) are.
#[must_use]
pub fn fpr_of_fill(fill: f64, bits: f64, k: u32, blocks: f64) -> f64 {
    if fill >= 1.0 {
        return 1.0;
    }
    let load = -(-fill.max(0.0)).ln_1p();
    // The share of a block's bits that one key sets: less than `k` of them, where two may be one.
    let cells = (bits / blocks.max(1.0)).max(1.0);
    let by_a_key = -(f64::from(k) * (-1.0 / cells).ln_1p()).exp_m1();
    let keys = load * blocks.max(1.0) / by_a_key;
    let of_cells = if blocks <= 1.0 {
        fill.max(0.0).powi(k as i32)
    } else {
        fpr_of_cells(keys, bits, k, blocks)
    };
    (of_cells + same_hash(keys)).min(1.0)
}

/// Returns the rate of blocks of `cells` cells, each with this number of keys: a mean of Poisson
/// variables if there are several blocks.
fn counted_fpr(keys: f64, cells: f64, k: u32, is_mean: bool) -> f64 {
    let mut chain = Chain::new(cells, k);
    if !is_mean {
        (0..keys as u64).for_each(|_| chain.add_key(1.0));
        // Part of a key: as if it were there in some filters.
        chain.add_key(keys.fract());
        return chain.rate();
    }
    let (mut weight, mut count) = ((-keys).exp(), 0.0);
    let mut sum = weight * chain.rate();
    // The rest of the weights, each with a rate of at most 1, must not matter.
    while count <= keys || weight > sum * 1e-6 {
        count += 1.0;
        weight *= keys / count;
        chain.add_key(1.0);
        sum += weight * chain.rate();
    }
    sum.min(1.0)
}

/// The cells of a key that was never inserted, in a block to which other keys are added one by one:
/// the distribution of the number that they leave untouched. (Christensen, Roginsky and Jimeno, "A
/// new analysis of the false positive rate of a Bloom filter", 2010, count the same from the side
/// of the filter.)
#[derive(Debug)]
pub struct Chain {
    /// By the number of untouched cells.
    untouched: Vec<f64>,
    cells: f64,
    k: usize,
}

impl Chain {
    /// Creates a block without keys, for `k` functions.
    #[must_use]
    pub fn new(cells: f64, k: u32) -> Self {
        let k = k as usize;
        // The number of different cells that the key's own functions give.
        let mut untouched = vec![0.0; k + 1];
        untouched[0] = 1.0;
        for _ in 0..k {
            for count in (0..=k).rev() {
                let repeats = (count as f64 / cells).min(1.0);
                let before = count.checked_sub(1).map_or(0.0, |one_less| {
                    untouched[one_less] * (1.0 - one_less as f64 / cells).max(0.0)
                });
                untouched[count] = untouched[count] * repeats + before;
            }
        }
        Self { untouched, cells, k }
    }

    /// Adds a key that comes to this block with this probability.
    pub fn add_key(&mut self, probability: f64) {
        let untouched = &mut self.untouched;
        let before = untouched.clone();
        for _ in 0..self.k {
            for count in 0..=self.k {
                let hit = |count: usize| (count as f64 / self.cells).min(1.0);
                let from_above = untouched.get(count + 1).map_or(0.0, |more| more * hit(count + 1));
                untouched[count] = untouched[count] * (1.0 - hit(count)) + from_above;
            }
        }
        for (after, before) in untouched.iter_mut().zip(before) {
            *after = before + (*after - before) * probability;
        }
    }

    /// Returns the probability that all cells of the key are touched.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.untouched[0]
    }
}
