//! Expected values of an optimized time-decaying filter, as pure functions of numbers: rates,
//! memory, and the digits that a pool needs.

use super::pool::digits_of;
use super::shape::{DIGIT_BITS, ENTRY_BITS, LINE, MARK_BITS, SLOT_BITS};
use crate::kinds::bloom::{fpr_of_cells, mean_over_blocks, same_hash, variance_over_blocks};

/// The fill of the counters and the front.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Distinct keys of which the counters still hold something.
    pub keys: f64,
    /// Counters in all.
    pub counters: f64,
    /// Counters of a key.
    pub k: u32,
    /// Distinct keys that each buffer of the front contains.
    pub front_keys: [f64; 2],
    /// Bits of a front buffer; 0 if there is none.
    pub front_bits: f64,
    /// Bits of a key in a front buffer.
    pub front_k: u32,
    /// Blocks.
    pub blocks: f64,
}

/// Returns the probability that all places of an absent key are in use by chance, when `keys` keys
/// use `k` of `places` places each (eq. 5, where places are not few).
fn all_used(keys: f64, places: f64, k: u32) -> f64 {
    fpr_of_cells(keys, places, k, 1.0)
}

/// Returns the rate at which keys of which nothing is left, and which are not in the front, are
/// reported as present: all of their counters are above zero and all of their bits set in a buffer
/// of the front, by chance (eq. 5 for each; their hash functions differ), or their hash is that of
/// another key.
#[must_use]
pub fn fpr(load: &Load) -> f64 {
    let by_chance = over_blocks(load, |x| {
        let counters = counters_used(load, x);
        let front_bits = load.front_bits / load.blocks.max(1.0);
        let passes =
            |keys: f64| all_used(keys * x / load.blocks.max(1.0), front_bits, load.front_k);
        let front = match load.front_bits {
            0.0 => 1.0,
            _ => passing(load.front_keys.map(passes)),
        };
        counters * front
    });
    (by_chance + same_hash(load.keys)).min(1.0)
}

/// Returns the share of keys whose estimate contains something of other keys: in all of their
/// counters they have met others (eq. 5). It is also the rate of absent keys that pass the front.
#[must_use]
pub fn error(load: &Load) -> f64 {
    over_blocks(load, |x| counters_used(load, x))
}

/// Returns the probability that all counters of an absent key are in use in a block with this
/// multiple of the mean number of keys.
fn counters_used(load: &Load, x: f64) -> f64 {
    let blocks = load.blocks.max(1.0);
    all_used(load.keys.min(MOST_KEYS) * x / blocks, load.counters / blocks, load.k)
}

/// Returns the probability that a key passes one of two buffers, from those of each.
#[must_use]
pub fn passing([first, second]: [f64; 2]) -> f64 {
    first + second - first * second
}

fn over_blocks(load: &Load, rate: impl Fn(f64) -> f64) -> f64 {
    mean_over_blocks(variance_over_blocks(load.keys.min(MOST_KEYS), load.blocks), rate)
}

/// A bound above the number of keys of any filter.
const MOST_KEYS: f64 = 1e30;

/// Returns the number of distinct keys that raise a share `fill` of all counters above zero.
#[must_use]
pub fn keys_of_fill(fill: f64, counters: f64, k: u32) -> f64 {
    if fill >= 1.0 {
        return MOST_KEYS;
    }
    -(-fill.max(0.0)).ln_1p() * counters / f64::from(k)
}

/// Returns `ε = 2^-F`: an estimate is too small by less than this, and 0 only if the exact decayed
/// count is below it, as long as the pool is not exhausted.
#[must_use]
pub fn epsilon(fraction_bits: u32) -> f64 {
    1.0 / (1_u64 << fraction_bits.min(63)) as f64
}

/// Returns the half-lives of a lifetime of the front, for counters of at most `counter_bits` bits:
/// one more than the bits, after which any counter is zero. (Not a count that exceeded a counter.)
#[must_use]
pub fn lifetime(counter_bits: u32) -> u64 {
    u64::from(counter_bits) + 1
}

/// Bits for each counter, as in Fig. 3. The basic filter takes its `counter-bits`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// The front, in all its buffers.
    pub front: f64,
    /// The base counter with its two marks.
    pub base: f64,
    /// The lookup table's share.
    pub table: f64,
    /// The pool's share.
    pub pool: f64,
}

impl Memory {
    /// Returns the sum of all parts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.front + self.base + self.table + self.pool
    }
}

/// Returns the memory of a counter with `fraction_bits` binary places, `pool` digits in the pool
/// and `front` front bits (in all buffers together).
#[must_use]
pub fn memory(fraction_bits: u32, pool: f64, front: f64) -> Memory {
    Memory {
        front,
        base: f64::from(DIGIT_BITS + fraction_bits + MARK_BITS),
        table: f64::from(ENTRY_BITS) / LINE as f64,
        pool: (pool * LINE as f64).ceil() * f64::from(SLOT_BITS) / LINE as f64,
    }
}

/// Returns how many digits of the pool a decayed count takes in each counter of its key: one for
/// each 4 bits beyond the first 4. Just before a grid point a counter holds up to `1/λ^H` times the
/// count, so it may be one more.
#[must_use]
pub fn digits(count: u64) -> usize {
    digits_of(count >> DIGIT_BITS)
}

/// Returns the digits for each counter that a Zipf distribution needs (section 4.3). It has
/// `inserts` inserts (decayed ones, so at most `x/(1-λ)` at `x` an epoch) on `distinct` keys, the
/// `i`-th of which has its share `C/i^exponent`, with `k` counters each out of `counters`.
///
/// The digits of each key are counted in each of its counters: too many where keys share counters,
/// too few where their sum takes one more.
#[must_use]
pub fn zipf_digits(inserts: f64, distinct: u64, exponent: f64, k: u32, counters: f64) -> f64 {
    let most = inserts / harmonic(distinct, exponent);
    let mut digits = 0.0;
    let mut least = 16.0;
    while least <= most {
        // The ranks with a count of at least `least`.
        let ranks = if exponent > 0.0 {
            (most / least).powf(1.0 / exponent).floor()
        } else {
            distinct as f64
        };
        digits += ranks.min(distinct as f64);
        least *= 16.0;
    }
    digits * f64::from(k) / counters
}

/// Returns `H_n(z)`, the sum of `1/i^z` up to `n`: the first terms one by one, the rest by the
/// Euler–Maclaurin integral.
fn harmonic(n: u64, z: f64) -> f64 {
    const FIRST: u64 = 1000;
    let term = |i: f64| i.powf(-z);
    let first: f64 = (1..=n.min(FIRST)).map(|i| term(i as f64)).sum();
    if n <= FIRST {
        return first;
    }
    let (from, to) = (FIRST as f64, n as f64);
    let integral = if (z - 1.0).abs() < 1e-9 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - z) - from.powf(1.0 - z)) / (1.0 - z)
    };
    first + integral + (term(to) - term(from)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sums_of_powers_are_those_of_their_terms() {
        for n in [1, 999, 1000, 1001, 20_000] {
            for z in [0.5, 1.0, 1.2, 2.5] {
                let sum: f64 = (1..=n).map(|i| (i as f64).powf(-z)).sum();
                let part = harmonic(n, z) / sum;
                // The next term of the formula is below z / 12 · 1000^(-z - 1).
                assert!((part - 1.0).abs() < 1e-6, "{n}, {z}: {part}");
            }
        }
    }
}
