//! What the structures on bare arrays have in common.

use super::runs::K;
use ebbtide_testkit::random::mix;

/// A filter that counts, on plain memory.
pub trait Structure {
    /// Returns the value of a counter.
    fn counter(&self, at: usize) -> u64;
    /// Adds occurrences of a key.
    fn add(&mut self, key: u32, times: u64);
    /// Removes occurrences that were added.
    fn remove(&mut self, key: u32, times: u64);
    /// Returns the bits of counters and indexes.
    fn bits(&self) -> usize;
    /// Returns the number of rebuilds in the paper's sense: of the OFV, of one counter.
    fn rebuilds(&self) -> u64;
    /// Returns how often all counters were spread anew.
    fn spreads(&self) -> u64;
    /// Makes all counters wide enough for a value, and keeps them so.
    fn keep_width(&mut self, most: u64);
}

/// Returns the counters of a key.
#[inline]
pub fn positions(key: u32, cells: usize) -> [usize; K as usize] {
    let hash = mix(u64::from(key) + 1);
    std::array::from_fn(|function| {
        let step = (function as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The upper half of a product: a number below `cells`, without a division.
        ((u128::from(mix(hash.wrapping_add(step))) * cells as u128) >> 64) as usize
    })
}
