//! Rates and sizes of fingerprint filters: pure functions of numbers.
//!
//! A question compares one fingerprint with those of two buckets. The *load* is the share of slots
//! that are live.

use super::shape::Shape;
pub use crate::kinds::bloom::same_hash;

/// Returns the false-positive rate of buckets of `slots` fingerprints of `bits` bits at a load, a
/// share `closed` of the buckets being closed.
///
/// `2·b·α·2^-f + 1 - (1 - c)^2`, at most 1. Exact as a mean over absent keys: the load enters
/// linearly, so the spread of keys over blocks changes nothing.
#[must_use]
pub fn fpr(slots: u32, bits: u32, load: f64, closed: f64) -> f64 {
    (2.0 * f64::from(slots) * load / 2_f64.powi(bits as i32) + either(closed)).min(1.0)
}

/// Returns the probability that at least one of a key's two buckets is one of this share.
#[must_use]
pub fn either(share: f64) -> f64 {
    share * (2.0 - share)
}

/// Returns the highest load that keeps a rate without closed buckets; it may be above 1.
#[must_use]
pub fn load_of_fpr(slots: u32, bits: u32, fpr: f64) -> f64 {
    fpr * 2_f64.powi(bits as i32) / (2.0 * f64::from(slots))
}

/// Returns the rate for the last `generations` of the `all` whose keys are live, the open one
/// included: keys of a sub-window take their share of the slots.
#[must_use]
pub fn sub_window_fpr(fpr: f64, generations: u32, all: u32) -> f64 {
    fpr * f64::from(generations.min(all)) / f64::from(all.max(1))
}

/// Returns the mean rate that keys with a single bucket add, in blocks of this many buckets and
/// live keys.
///
/// A slot whose two buckets are one does not move. If more such keys of a bucket are live than it
/// has slots, it is closed, however empty the block is. Of the keys of a block, `keys / buckets²`
/// have a given bucket as both of theirs, in the mean.
#[must_use]
pub fn of_single_buckets(slots: u32, buckets: f64, keys: f64) -> f64 {
    of_pair_keys(slots, keys / (buckets * buckets))
}

/// The same from the keys that have a given pair of buckets: `2·mean^(b+1) / (b+1)!`.
fn of_pair_keys(slots: u32, mean: f64) -> f64 {
    (1..=slots + 1).fold(2.0, |product, number| product * mean / f64::from(number))
}

/// Returns the most live keys of a block for each pair of its buckets, `keys / buckets²`, at which
/// [`of_single_buckets`] is at most this.
#[must_use]
pub fn pair_keys_of(slots: u32, fpr: f64) -> f64 {
    // No root: only operations that are exact to the last bit.
    let (mut most, mut part) = (0.0, 0.5);
    for _ in 0..50 {
        if of_pair_keys(slots, most + part) <= fpr {
            most += part;
        }
        part /= 2.0;
    }
    most
}

/// Returns the load that 99 of 100 blocks of this many buckets reach before an insert finds no
/// chain of up to eight moves.
///
/// Fitted to measured blocks of 64 to 8192 buckets, filled from empty.
#[must_use]
pub fn highest_load(slots: u32, bits: u32, buckets: f64) -> f64 {
    let (large, spread) = match slots {
        0..=2 => (0.79, 0.5),
        3 => (0.953, 0.3),
        4 => (0.9765, 0.24),
        5 => (0.9868, 0.15),
        // Few fingerprints connect few buckets.
        _ if bits < 10 => (0.980, 0.03),
        _ => (0.991, 0.1),
    };
    large - spread / buckets.max(1.0).sqrt()
}

/// The same for chains of up to four moves: in filters of older versions.
#[must_use]
pub fn old_highest_load(slots: u32, buckets: f64) -> f64 {
    let (large, spread) = match slots {
        0..=2 => (0.79, 0.5),
        3 => (0.928, 0.25),
        4 => (0.966, 0.2),
        5 => (0.976, 0.1),
        _ => (0.977, 0.03),
    };
    large - spread / buckets.max(1.0).sqrt()
}

/// Returns the mean number of live keys that blocks of `buckets` buckets hold so that hardly any of
/// them overflows at a rate of `fpr`, if each of `blocks` blocks is equally likely for a key.
///
/// `μ + z·√μ` slots are used at most. `z` is larger for lower rates, because a closed bucket is
/// then a larger part of the rate, and in small blocks, where it is a larger share of them. Only
/// operations that are exact to the last bit are used, because the size of a filter follows from
/// it.
#[must_use]
pub fn mean_keys(shape: &Shape, buckets: f64, blocks: f64, fpr: f64) -> f64 {
    const DEVIATIONS: [(f64, f64); 7] = [
        (5e-4, 3.1),
        (5e-5, 3.6),
        (5e-6, 4.1),
        (5e-7, 4.6),
        (5e-8, 5.1),
        (5e-9, 5.5),
        (5e-10, 5.9),
    ];
    let of_rate = DEVIATIONS.iter().find(|(rate, _)| fpr > *rate).map_or(6.8, |(_, z)| *z);
    // Fewer blocks than one in a hundred may overflow at low rates.
    let [large, few] =
        [f64::INFINITY, buckets].map(|buckets| highest_load(shape.slots, shape.bits, buckets));
    let usual = DEVIATIONS[0].1;
    let load = large - (large - few) * of_rate / usual;
    // In the smallest blocks a few keys with the same two buckets are enough.
    let load = (load - 4.0 * (of_rate - usual) / buckets.max(1.0)).max(load / 2.0);
    let most = load * f64::from(shape.slots) * buckets;
    // A single block always has the same number of keys; but at `most` one in a hundred overflows,
    // window after window. It gets the room of one of two.
    mean_below(most, of_rate + 70.0 / buckets.max(1.0), blocks.max(2.0))
}

/// The same in filters of older versions.
#[must_use]
pub fn old_mean_keys(slots: u32, buckets: f64, blocks: f64) -> f64 {
    let most = old_highest_load(slots, buckets) * f64::from(slots) * buckets;
    mean_below(most, 3.1 + 70.0 / buckets.max(1.0), blocks)
}

/// Returns the mean number of keys of one of `blocks` blocks that is this many deviations below
/// `most`.
fn mean_below(most: f64, deviations: f64, blocks: f64) -> f64 {
    if blocks <= 1.0 {
        return most;
    }
    let deviations = deviations * (1.0 - 1.0 / blocks).sqrt();
    // `μ + z·√μ = most`, solved for `√μ`.
    let root = ((deviations * deviations + 4.0 * most).sqrt() - deviations) / 2.0;
    root * root
}

/// Returns the bits for each key of the window, headers of blocks included, when `load` of the
/// slots are live just before a shift: `bucket_bits` bits a bucket, `buckets` in a block, and keys
/// that stay for up to one generation beyond the window of `generations`.
#[must_use]
pub fn bits_a_key(slots: u32, bucket_bits: u32, buckets: f64, load: f64, generations: u32) -> f64 {
    let block = buckets * f64::from(bucket_bits) + 512.0;
    let keys = load * f64::from(slots) * buckets;
    block / keys * (1.0 + 1.0 / f64::from(generations.max(1)))
}
