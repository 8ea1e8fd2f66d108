//! Windows, rates and costs of timing Bloom filters: pure functions of numbers.
//!
//! Symbols as in the Inferential paper, section 3: a window of `w` inserts, batches of `B` inserts, `m` timers of which an insert
//! touches `k`, padding `P`, and `b` inserts into the open batch. Where blocks are meant, they are those of this library, in
//! which keys are spread unevenly.

use crate::kinds::bloom;

/// The greatest age, in ticks, of a timestamp that may belong to a key of the last `window` inserts: `⌈(w-b)/B⌉`, one less than
/// where definition 9 calls it expired.
#[must_use]
#[inline]
pub fn reach(window: u64, batch: u64, into_batch: u64) -> u64 {
    let closed = window.saturating_sub(into_batch);
    // Where each insert ticks it is asked for each: a division less.
    if batch <= 1 { closed } else { closed.div_ceil(batch) }
}

/// The least number of inserts since a key whose timestamp has this age in ticks (section 3.2.2).
#[must_use]
#[inline]
pub fn least_inserts_since(age: u64, batch: u64, into_batch: u64) -> u64 {
    match age.checked_sub(1) {
        Some(closed) => closed.saturating_mul(batch).saturating_add(into_batch),
        None => 0,
    }
}

/// The latest inserts whose timestamps count as not expired: at least `w`, and all of the batch that the window begins in.
#[must_use]
pub fn covered(window: u64, batch: u64, into_batch: u64) -> u64 {
    reach(window, batch, into_batch).saturating_mul(batch).saturating_add(into_batch)
}

/// The most that [`covered`] becomes: `w+B-1`.
#[must_use]
pub fn most_covered(window: u64, batch: u64) -> u64 {
    window.saturating_add(batch.saturating_sub(1))
}

/// The probability that a key never inserted is taken for one of the window, when the keys of `covered` inserts are distinct and
/// spread over so many blocks: all its timers were touched by others (section 3.1.2).
///
/// Of keys that were inserted, all those between `w` and [`covered`] inserts ago are taken for one of the window too.
#[must_use]
pub fn fpr(covered: f64, timers: f64, k: u32, blocks: f64) -> f64 {
    bloom::fpr(covered, timers, k, blocks)
}

/// The same when a known share of the timers is not expired, whatever keys did it.
#[must_use]
pub fn fpr_of_fill(fill: f64, timers: f64, k: u32, blocks: f64) -> f64 {
    bloom::fpr_of_fill(fill, timers, k, blocks)
}

/// The values of a timer that a window takes: ages up to `⌈w/B⌉ + P`, one more that is surely expired, one to spare as in the
/// paper (`T_Ω + 1 = ⌈w/B⌉ + P + 2` timestamps), and the mark of an expired timer.
#[must_use]
pub fn values(window: u64, batch: u64, padding: u64) -> u64 {
    window.div_ceil(batch.max(1)).saturating_add(padding).saturating_add(3)
}

/// The bits of a timer that has room for so many [`values`].
#[must_use]
pub fn least_bits(values: u64) -> u32 {
    values.max(2).next_power_of_two().trailing_zeros()
}

/// The timers that must be looked at before `timers` of them go `ticks` on: `⌈m·Δ/(P+1)⌉`, or all.
///
/// So each one is looked at once in `P+1` ticks, and is at most `⌈w/B⌉+P` ticks old then.
#[must_use]
#[inline]
pub fn swept(timers: u64, ticks: u64, padding: u64) -> u64 {
    if ticks > padding {
        timers
    } else {
        timers.saturating_mul(ticks).div_ceil(padding.saturating_add(1)).min(timers)
    }
}

/// The timers that an insert looks at to find expired ones, on average: `m/(B(P+1))` (sections 3.1.3, 3.2.3).
///
/// A block that goes on rounds up, which adds at most one timer to an insert.
#[must_use]
pub fn swept_per_insert(timers: f64, batch: f64, padding: f64) -> f64 {
    timers / (batch * (padding + 1.0))
}

/// Bits a key of the window when half of the timers are in use at the worst moment: `bits·k/ln 2·(1+B/w)`.
#[must_use]
pub fn bits_a_key(bits: u32, k: u32, window: f64, batch: f64) -> f64 {
    f64::from(bits) * f64::from(k) / std::f64::consts::LN_2 * (1.0 + batch / window)
}
