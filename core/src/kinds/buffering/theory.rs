//! False-positive rates of two buffers: pure functions of numbers.
//!
//! `bits` are those of *one* buffer, in `blocks` blocks. Keys are distinct ones; [`distinct_share`]
//! derives from a measured fill how many of the inserts were distinct.

use crate::kinds::bloom;

/// Returns the false-positive rate of two-buffer ageing (A2). Either of two buffers, which hold
/// different keys and so err independently, may report an absent key. Just before a swap both hold
/// a window of keys, and the rate is about twice that of one buffer.
#[must_use]
pub fn two_buffer_fpr(active: f64, aged: f64, bits: f64, k: u32, blocks: f64) -> f64 {
    let [active, aged] = [active, aged].map(|keys| bloom::fpr(keys, bits, k, blocks));
    active + aged - active * aged
}

/// Returns the false-positive rate of double buffering: only the active buffer is queried. Just
/// before a swap it holds two windows of keys.
#[must_use]
pub fn double_buffering_fpr(active: f64, bits: f64, k: u32, blocks: f64) -> f64 {
    bloom::fpr(active, bits, k, blocks)
}

/// Returns the share of inserts that were of keys new to their buffers, such that two buffers with
/// these inserts have this share of their bits, taken together, set. From 0 to 1; 1 if it cannot be
/// derived.
#[must_use]
pub fn distinct_share(fill: f64, inserts: [f64; 2], bits: f64, k: u32) -> f64 {
    let set = |share: f64| -> f64 {
        let fills = inserts.map(|keys| -(-f64::from(k) * share * keys / bits).exp_m1());
        (fills[0] + fills[1]) / 2.0
    };
    if fill >= set(1.0) {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if set(middle) < fill { low = middle } else { high = middle }
    }
    high
}
