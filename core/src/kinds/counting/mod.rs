//! The counting Bloom filter (L. Fan et al.: *Summary Cache*, 1998; section 2.1 of the DCF paper):
//! a Bloom filter from which keys can be removed.
//!
//! Each bit becomes a counter of a few bits. An insert raises the key's `k` counters, a removal
//! lowers them, and the least of them is the key's count. The count is never too low while only
//! keys are removed that were inserted.
//!
//! *Saturation.* A counter that reaches its maximum stays there permanently: it is never lowered
//! again, because its excess is unknown. A key is therefore never missed; it may stay after its
//! removal, and its estimate is marked "at least". The kind metric `saturated_cells` counts the
//! counters at their maximum, and [`overflow`] gives the number to expect.
//!
//! *One counter twice.* Two functions may give one key the same counter. It is then raised once for
//! each, and lowered likewise: a removal is the exact inverse of its insert.

mod evidence;
pub mod spec;
mod theory;

#[cfg(test)]
mod tests;

pub use theory::overflow;

use super::bloom::{Plan, fpr, fpr_of_fill};
use super::distinct_by_fill::ByFill;
use crate::block::packed::{Packed, words_for};
use crate::block::{Block, Layout};
use crate::error::Result;
use crate::hash::Positions;
use crate::inference::KeptScatter;
use crate::kind::{
    Describe, DistinctKeys, Estimate, Inference, KeyCounts, Kind, KindMetric, Moment, Operation,
    Parameters, Query, Removal, Sample, SingleBlock, State,
};
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "counting";

/// The parameters of this kind.
const KNOWN: [&str; 5] = ["capacity", "fpr", "cells", "k", "counter-bits"];

/// The default bits of a counter: as in the literature, enough for 15.
const DEFAULT_BITS: u64 = 4;

/// The greatest number of bits of a counter.
const MOST_BITS: u64 = 32;

/// The kind word with the number of counters at their maximum.
const SATURATED: usize = 0;

/// A counting Bloom filter.
#[derive(Debug, Clone, PartialEq)]
struct Counting {
    plan: Plan,
    bits: u32,
    /// The scattering of keys over the filter's blocks, computed on first use.
    scatter: KeptScatter,
}

/// Builds the kind from `capacity` and `fpr` (0.001 if absent); `cells` and `k` override what would
/// be derived from these. `counter-bits` is 4 if absent.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for unknown names, for values out of bounds, and
/// if no filter of at most 2^46 counters reaches the rate.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let bits = parameters.count("counter-bits", "bits of a counter", MOST_BITS)?;
    let bits = bits.unwrap_or(DEFAULT_BITS) as u32;
    let plan = Plan::of_bits(parameters, "cells", bits.into())?;
    Ok(Arc::new(Counting { plan, bits, scatter: KeptScatter::default() }))
}

impl Counting {
    /// Returns the layout of a block's counters.
    #[inline]
    fn counters(&self, block: &Block<'_>) -> Packed {
        let fit = block.cells.len() as u64 * 64 / u64::from(self.bits);
        let cells = self.plan.cells.div_ceil(block.of.max(1)).min(fit) as usize;
        Packed { first: 0, bits: self.bits, cells }
    }

    /// Visits the counters of a key, by number.
    #[inline]
    fn each(&self, hash: u64, counters: &Packed, visit: impl FnMut(usize)) {
        let positions = Positions::new(hash, counters.cells as u32);
        positions.each(self.plan.k, visit);
    }

    /// Returns the least counter of a key.
    #[inline]
    fn least(&self, block: &Block<'_>, hash: u64) -> u64 {
        let counters = self.counters(block);
        // All are loaded, so that their misses overlap.
        let mut least = counters.most();
        self.each(hash, &counters, |at| least = least.min(counters.get(block, at)));
        least
    }
}

impl Describe for Counting {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        self.plan.parameters("cells").with("counter-bits", self.bits)
    }

    fn first_words(&self) -> u64 {
        words_for(self.plan.cells, self.bits)
    }

    /// Counts the counters that are not 0.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let counters = self.counters(block);
        let used = (0..counters.cells).filter(|&at| counters.get(block, at) > 0).count();
        (used as u64, counters.cells as u64)
    }

    fn metrics(&self) -> &'static [KindMetric] {
        &[KindMetric { name: "saturated_cells", word: SATURATED }]
    }

    /// Returns the rate at capacity.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let blocks = layout.blocks(self.geometry(layout)) as f64;
        fpr(self.plan.capacity as f64, self.plan.cells as f64, self.plan.k, blocks)
    }

    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> f64 {
        let blocks = state.bank(0).map_or(1, |bank| layout.blocks(bank.geometry));
        fpr_of_fill(sample.fill(), self.plan.cells as f64, self.plan.k, blocks as f64)
    }

    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        Some(self)
    }

    fn inference(&self) -> Option<&dyn Inference> {
        Some(self)
    }

    fn counts(&self) -> Option<&dyn KeyCounts> {
        Some(self)
    }

    fn removal(&self) -> Option<&dyn Removal> {
        Some(self)
    }
}

impl ByFill for Counting {
    fn cells_of_a_key(&self) -> u32 {
        self.plan.k
    }
}

impl SingleBlock for Counting {
    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let counters = self.counters(block);
        self.each(hash, &counters, |at| counters.prefetch(block, at));
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        let (counters, weight) = (self.counters(block), u64::from(operation.weight));
        let most = counters.most();
        let mut saturated = 0;
        self.each(operation.hash, &counters, |at| {
            let before = counters.get(block, at);
            let after = before.saturating_add(weight).min(most);
            saturated += u64::from(after == most && before < most);
            counters.set(block, at, after);
        });
        if saturated > 0 {
            block.set_own(SATURATED, block.own(SATURATED).wrapping_add(saturated));
        }
    }

    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.least(block, query.hash) > 0
    }
}

impl KeyCounts for Counting {
    fn estimate(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> Estimate {
        let least = self.least(block, query.hash);
        Estimate { count: least as f64, at_least: least == self.counters(block).most() }
    }

    fn fills(&self) -> Option<u64> {
        Some(u64::MAX >> (64 - self.bits))
    }
}

impl Removal for Counting {
    fn remove(&self, block: &Block<'_>, operation: &Operation) {
        let (counters, weight) = (self.counters(block), u64::from(operation.weight));
        self.each(operation.hash, &counters, |at| {
            let before = counters.get(block, at);
            if before < counters.most() {
                // Below zero only if a key was removed that had not been inserted.
                counters.set(block, at, before.saturating_sub(weight));
            }
        });
    }
}
