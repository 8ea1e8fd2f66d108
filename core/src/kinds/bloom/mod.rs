//! The plain Bloom filter, in blocks: the baseline of all others, in which keys never expire.
//!
//! A key sets `k` bits of its block. There are no steps and no filter-wide state.

mod evidence;
mod plan;
pub mod spec;
mod theory;

#[cfg(test)]
mod tests;

pub(super) use plan::{MOST_CELLS, Plan, without_same_hash};

pub use theory::{
    Chain, FEW_CELLS, fpr, fpr_of_cells, fpr_of_fill, mean_of_power, mean_over_blocks, same_hash,
    variance_over_blocks,
};

use crate::atomic::AtomicU64;
use crate::block::{Block, Layout, UndoRoom, load, prefetch, store};
use crate::error::Result;
use crate::hash::Positions;
use crate::inference::KeptScatter;
use crate::kind::{
    Describe, DistinctKeys, Inference, Kind, Moment, Operation, Parameters, Query, Sample,
    SingleBlock, State,
};
use crate::kinds::distinct_by_fill::ByFill;
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "bloom";

/// The parameters of this kind.
const KNOWN: [&str; 4] = ["capacity", "fpr", "bits", "k"];

/// The greatest number of words of a block that are used, so that its bits stay in the range of
/// [`Positions`].
const MOST_BLOCK_WORDS: usize = 1 << 20;

/// A Bloom filter.
#[derive(Debug, Clone, PartialEq)]
struct Bloom {
    plan: Plan,
    /// The scattering of keys over the filter's blocks, computed on first use.
    scatter: KeptScatter,
}

/// Builds the kind from `capacity` and `fpr` (0.001 if absent); `bits` and `k` override what would
/// be derived from these.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for unknown names, for values out of bounds, and
/// if no filter of at most 8 TiB reaches the rate.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let plan = Plan::from_parameters(parameters, "bits")?;
    Ok(Arc::new(Bloom { plan, scatter: KeptScatter::default() }))
}

impl Bloom {
    /// Returns the bits of a block.
    #[inline]
    fn bits(&self, block: &Block<'_>) -> u32 {
        block.cells.len().min(MOST_BLOCK_WORDS) as u32 * 64
    }

    /// Returns whether all of the key's bits are set.
    #[inline]
    fn all_set(&self, block: &Block<'_>, hash: u64) -> bool {
        // All words are loaded, so that their misses overlap; an early exit would wait for each.
        let mut all = 1;
        self.each_bit(block, hash, |word, shift| all &= load(word) >> shift);
        all == 1
    }

    /// Visits the key's bits: their words, and their place in them.
    #[inline]
    fn each_bit(&self, block: &Block<'_>, hash: u64, mut visit: impl FnMut(&AtomicU64, usize)) {
        let words = &block.cells[..block.cells.len().min(MOST_BLOCK_WORDS)];
        let positions = Positions::new(hash, self.bits(block));
        let at = |position: usize| {
            if let Some(word) = words.get(position / 64) {
                visit(word, position % 64);
            }
        };
        positions.each(self.plan.k, at);
    }
}

impl Describe for Bloom {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        self.plan.parameters("bits")
    }

    fn undo_room(&self) -> UndoRoom {
        UndoRoom::None
    }

    fn first_words(&self) -> u64 {
        self.plan.cells.div_ceil(64)
    }

    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, moment: &Moment, _: &Sample) -> f64 {
        let Some(bank) = state.bank(0) else {
            return 0.0;
        };
        let bits = layout.words(bank.geometry).saturating_mul(64) as f64;
        let fill = moment.totals.new_bits as f64 / bits;
        fpr_of_fill(fill, bits, self.plan.k, layout.blocks(bank.geometry) as f64)
    }

    /// Returns the rate at capacity.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let geometry = layout.geometry(self.first_words());
        let bits = layout.words(geometry).saturating_mul(64) as f64;
        fpr(self.plan.capacity as f64, bits, self.plan.k, layout.blocks(geometry) as f64)
    }

    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        Some(self)
    }

    fn inference(&self) -> Option<&dyn Inference> {
        Some(self)
    }
}

impl ByFill for Bloom {
    fn cells_of_a_key(&self) -> u32 {
        self.plan.k
    }
}

impl SingleBlock for Bloom {
    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        self.each_bit(block, hash, |word, _| prefetch(word));
    }

    #[inline]
    fn measures(&self) -> bool {
        true
    }

    /// Counts the bits that are not set yet. A new bit shared by several functions counts once for
    /// each: one key in thousands.
    fn new_bits(&self, block: &Block<'_>, operation: &Operation) -> u32 {
        let mut new = 0;
        self.each_bit(block, operation.hash, |word, shift| {
            new += !(load(word) >> shift) as u32 & 1;
        });
        new
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        // Stored even if unchanged: a branch on that would be unpredictable and cost more.
        self.each_bit(block, operation.hash, |word, shift| store(word, load(word) | 1 << shift));
    }

    fn checks_on_insert(&self) -> bool {
        true
    }

    #[inline]
    fn insert_and_check(&self, block: &Block<'_>, operation: &Operation, new_bits: u32) -> bool {
        SingleBlock::insert(self, block, operation);
        new_bits == 0
    }

    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.all_set(block, query.hash)
    }
}
