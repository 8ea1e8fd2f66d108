//! The counters of a block, and what a decay function does to them.

use crate::block::Block;
use crate::hash::Positions;
use crate::kind::{Estimate, Parameters};
use std::fmt::Debug;

/// The kind word that counts additions that were cut short.
pub(super) const SATURATED: usize = 1;

/// The effect of a decay function on a block's counters, which are numbered from 0.
pub(super) trait Counters: Debug + Send + Sync {
    /// Adds the parameters of this decay function.
    fn describe(&self, parameters: Parameters) -> Parameters;

    /// Returns the bits of a counter.
    fn bits(&self) -> u32;

    /// Returns the bytes of tables.
    fn table_bytes(&self) -> usize {
        0
    }

    /// Returns whether nothing is left in epoch `now` of an insert in `epoch`.
    fn forgotten(&self, epoch: u64, now: u64) -> bool {
        let _ = (epoch, now);
        false
    }

    /// Catches the block up to the current epoch if it is behind, then adds to these counters.
    fn add<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, addition: Addition);

    /// Returns the least of these counters in epoch `now`; a block in a later epoch answers for
    /// that epoch.
    fn least<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, now: u64) -> Estimate;

    /// Decays all counters to epoch `now`, if the block is behind.
    fn catch_up(&self, cells: &Cells<'_>, now: u64);

    /// Returns the number of counters that are not zero, for a block caught up.
    fn in_use(&self, cells: &Cells<'_>) -> u64;

    /// Returns the probability that a key of which nothing is left is marked *at least*, for a
    /// block caught up.
    fn marked(&self, block: &Block<'_>) -> f64 {
        let _ = block;
        0.0
    }

    /// Prefetches a counter.
    fn prefetch(&self, cells: &Cells<'_>, at: u32);

    /// Returns one over the sum of the decay function over all ages, which turns a count into a
    /// frequency for each epoch.
    fn normaliser(&self) -> f64;

    /// Returns the weight that fills a counter for its whole life, so that a greater one leaves the
    /// same; `None` if there is none.
    fn fills(&self) -> Option<u64> {
        None
    }
}

/// Counts additions that were cut short.
#[cold]
pub(super) fn note_full(block: &Block<'_>, additions: u64) {
    block.set_own(SATURATED, block.own(SATURATED).wrapping_add(additions));
}

/// A block's counters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) count: u32,
}

/// The amount that an insert adds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addition {
    pub(super) weight: u32,
    /// The epoch of the key's time.
    pub(super) epoch: u64,
    /// The filter's epoch.
    pub(super) now: u64,
}

/// A key's counters, at most `N`: the positions of its hash functions.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<const N: usize> {
    pub(super) hash: u64,
    places: [u32; N],
    count: usize,
}

impl<const N: usize> At<N> {
    #[inline]
    pub(super) fn new(hash: u64, cells: u32, functions: u32) -> Self {
        let positions = Positions::new(hash, cells);
        let mut places = [0; N];
        let count = (functions as usize).min(N);
        for (pair, places) in places[..count.next_multiple_of(2)].chunks_exact_mut(2).enumerate() {
            let (even, odd) = positions.pair(pair as u32);
            places.copy_from_slice(&[even as u32, odd as u32]);
        }
        Self { hash, places, count }
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.places[..self.count].iter().copied()
    }
}
