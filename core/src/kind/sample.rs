//! A sample of a filter's blocks: how many cells are in use, and the false-positive rate.

use crate::block::MAX_BANKS;

/// Returns the numbers of at most this many of a bank's blocks, evenly spread.
pub fn sampled(blocks: u64, most: u64) -> impl Iterator<Item = u64> {
    let every = blocks.div_ceil(most.max(1)).max(1);
    let blocks = if most == 0 { 0 } else { blocks };
    (0..blocks).step_by(usize::try_from(every).unwrap_or(usize::MAX))
}

/// Sums over the sampled blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    used: u64,
    cells: u64,
    /// By the bank's slot: blocks, and the sum of their rates.
    banks: [(u64, f64); MAX_BANKS],
}

impl Sample {
    /// Adds a settled copy of a block of bank `slot`: its cells in use and all of them, and its
    /// false-positive rate.
    pub fn add(&mut self, slot: usize, (used, cells): (u64, u64), fpr: f64) {
        (self.used, self.cells) = (self.used + used, self.cells + cells);
        if let Some((blocks, rates)) = self.banks.get_mut(slot) {
            *blocks += 1;
            *rates += fpr;
        }
    }

    /// Returns the share of cells in use.
    #[must_use]
    pub fn fill(&self) -> f64 {
        if self.cells == 0 { 0.0 } else { self.used as f64 / self.cells as f64 }
    }

    /// Returns the probability that a key which was never inserted is found in one of its blocks:
    /// one block of each bank, all equally likely.
    #[must_use]
    pub fn fpr(&self) -> f64 {
        let looked_at = self.banks.iter().filter(|(blocks, _)| *blocks > 0);
        1.0 - looked_at.fold(1.0, |none, &(blocks, rates)| none * (1.0 - rates / blocks as f64))
    }
}
