//! Windows, rates and costs of timing Bloom filters: pure functions of numbers.
//!
//! Symbols as in the Inferential paper, section 3: a window of `w` inserts, batches of `B` inserts,
//! `m` timers of which an insert touches `k`, padding `P`, and `b` inserts into the open batch.
//! Blocks are those of this library, over which keys are spread unevenly.

use crate::kinds::bloom;

/// Returns the greatest age, in ticks, of a timestamp that may belong to a key of the last `window`
/// inserts: `⌈(w-b)/B⌉`, one less than the age at which definition 9 calls it expired.
#[must_use]
#[inline]
pub fn reach(window: u64, batch: u64, into_batch: u64) -> u64 {
    let closed = window.saturating_sub(into_batch);
    // With a tick for each insert this is called for each: saves a division.
    if batch <= 1 { closed } else { closed.div_ceil(batch) }
}

/// Returns the least number of inserts since a key whose timestamp has this age in ticks (section
/// 3.2.2).
#[must_use]
#[inline]
pub fn least_inserts_since(age: u64, batch: u64, into_batch: u64) -> u64 {
    match age.checked_sub(1) {
        Some(closed) => closed.saturating_mul(batch).saturating_add(into_batch),
        None => 0,
    }
}

/// Returns the latest inserts whose timestamps count as not expired: at least `w`, and all of the
/// batch in which the window begins.
#[must_use]
pub fn covered(window: u64, batch: u64, into_batch: u64) -> u64 {
    reach(window, batch, into_batch).saturating_mul(batch).saturating_add(into_batch)
}

/// Returns the greatest value of [`covered`]: `w+B-1`.
#[must_use]
pub fn most_covered(window: u64, batch: u64) -> u64 {
    window.saturating_add(batch.saturating_sub(1))
}

/// The greatest number of touches of a filter's timers, one for each key and function, for which
/// [`fpr`] processes them one by one.
const MOST_COUNTED: f64 = 4096.0;

/// Returns the probability that a key never inserted is reported as one of the window, when the
/// keys of `covered` inserts are distinct and spread over `blocks` blocks: all its timers were
/// touched by others (section 3.1.2). Equal hashes add to it ([`bloom::same_hash`]).
///
/// The paper raises the mean share of touched timers to the power `k`. The mean of the power is
/// greater, because the share varies. At a rate of 0.001 it is more than twice as great for a
/// window of one insert, and 1 % greater for one of 100. Few touches are therefore counted exactly,
/// and for more the first term of the difference is added.
///
/// Of keys that were inserted, all those between `w` and [`covered`] inserts ago are reported as
/// keys of the window too.
#[must_use]
pub fn fpr(covered: f64, timers: f64, k: u32, blocks: f64) -> f64 {
    let (blocks, touches) = (blocks.max(1.0), f64::from(k) * covered);
    let timers = (timers / blocks).max(1.0);
    if touches <= MOST_COUNTED {
        return counted_fpr(covered as u64, timers, k, blocks);
    }
    bloom::mean_over_blocks(bloom::variance_over_blocks(covered, blocks), |x| {
        bloom::mean_of_power(touches * x / blocks, timers, k)
    })
}

/// Returns [`fpr`] exactly, for `timers` in each block.
fn counted_fpr(keys: u64, timers: f64, k: u32, blocks: f64) -> f64 {
    let mut chain = bloom::Chain::new(timers, k);
    // Only one key in `blocks` comes to this block.
    (0..keys).for_each(|_| chain.add_key(1.0 / blocks));
    chain.rate()
}

/// Returns the same from the measured share of timers that are not expired, whatever keys touched
/// them.
#[must_use]
pub fn fpr_of_fill(fill: f64, timers: f64, k: u32, blocks: f64) -> f64 {
    bloom::fpr_of_fill(fill, timers, k, blocks)
}

/// Returns the number of timer values that a window takes: ages up to `⌈w/B⌉ + P`, one more that is
/// certainly expired, one spare as in the paper (`T_Ω + 1 = ⌈w/B⌉ + P + 2` timestamps), and the
/// mark of an expired timer.
#[must_use]
pub fn values(window: u64, batch: u64, padding: u64) -> u64 {
    window.div_ceil(batch.max(1)).saturating_add(padding).saturating_add(3)
}

/// Returns the bits of a timer that can hold [`values`] values.
#[must_use]
pub fn least_bits(values: u64) -> u32 {
    values.max(2).next_power_of_two().trailing_zeros()
}

/// Returns the timers that must be swept before `timers` of them advance by `ticks`: `⌈m·Δ/(P+1)⌉`,
/// or all.
///
/// Each one is then swept once in `P+1` ticks, and is at most `⌈w/B⌉+P` ticks old at that point.
#[must_use]
#[inline]
pub fn swept(timers: u64, ticks: u64, padding: u64) -> u64 {
    if ticks > padding {
        timers
    } else {
        timers.saturating_mul(ticks).div_ceil(padding.saturating_add(1)).min(timers)
    }
}

/// Returns the mean number of timers that an insert sweeps to find expired ones: `m/(B(P+1))`
/// (sections 3.1.3, 3.2.3).
///
/// A block rounds up at each advance, which adds at most one timer to an insert.
#[must_use]
pub fn swept_per_insert(timers: f64, batch: f64, padding: f64) -> f64 {
    timers / (batch * (padding + 1.0))
}

/// Returns the bits for each key of the window when half of the timers are in use at the worst
/// moment: `bits·k/ln 2·(1+B/w)`.
#[must_use]
pub fn bits_a_key(bits: u32, k: u32, window: f64, batch: f64) -> f64 {
    f64::from(bits) * f64::from(k) / std::f64::consts::LN_2 * (1.0 + batch / window)
}
