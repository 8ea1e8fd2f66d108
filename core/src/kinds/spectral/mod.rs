//! The spectral Bloom filter (S. Cohen, Y. Matias: *Spectral Bloom Filters*, SIGMOD 2003; section
//! 2.2 of the DCF paper): counts the inserts of a key with counters of variable width.
//!
//! A key has `k` counters of its block. The *policy* determines how they are used:
//!
//! - `ms`, minimum selection: an insert raises all, a removal lowers all, the estimate is the
//!   least. Never too low; removals of keys that were inserted are sound. Too high with the
//!   probability [`overestimate`].
//! - `mi`, minimal increase: an insert raises only the least ones. Never too low, and far less
//!   often too high; but nothing can be removed, because that would reduce other keys' counts.
//! - `rm`, recurring minimum: as `ms`, but a key whose least counter occurs only once is also
//!   counted in a *secondary part* from then on, because that counter is likely to be wrong. The
//!   secondary part has half as many counters, in the same block, and the estimate of such a key is
//!   read from there. As published, a few keys are undercounted: those whose minimum recurred at
//!   some inserts or removals and not at others, so that the secondary part missed some. They are
//!   never missed altogether: a key that was not removed is contained. Two deviations: an estimate
//!   is never higher than that of the primary part; and the optional Bloom filter of the paper, in
//!   front of the secondary part, is left out.
//!
//! Counters lie in a store (`store.rs`) that grows with them, so blocks start small and get room on
//! demand. No counter saturates below `2^64 - 1`; there it stays, and the estimate is marked "at
//! least".

mod header;
mod policy;
pub mod spec;
mod store;
mod theory;

#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;

pub use policy::Policy;
pub use theory::{mean_bits, overestimate, single_minimum};

use super::bloom::{Plan, fpr, fpr_of_fill};
use super::distinct_by_fill::ByFill;
use crate::block::{Block, Geometry, Layout};
use crate::error::Result;
use crate::kind::{
    Change, Describe, DistinctKeys, Estimate, Growth, KeyCounts, Kind, KindMetric, Moment,
    Operation, Parameters, Query, Removal, Sample, SingleBlock, State,
};
use policy::Parts;
use std::sync::Arc;
use store::Store;

/// The kind's name.
pub const NAME: &str = "spectral";

/// The parameters of this kind.
const KNOWN: [&str; 5] = ["capacity", "fpr", "cells", "k", "policy"];

/// Default blocks of a stripe: a stripe's undo area is as large as several blocks in normal use.
const BLOCKS_PER_STRIPE: u64 = 4;

/// Blocks begin on a page, because room is allocated by pages.
const PAGE_WORDS: u32 = 512;

/// Inserts of each key in plans of memory: the default of `dynamic-count`.
const PLANNED_COUNT: f64 = 2.0;

/// A spectral Bloom filter.
#[derive(Debug, Clone, PartialEq)]
struct Spectral {
    plan: Plan,
    policy: Policy,
}

/// Builds the kind from `capacity` and `fpr` (0.001 if absent); `cells` (of the primary part) and
/// `k` override what would be derived from these. `policy` is `ms` (if absent), `mi` or `rm`.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for unknown names, for values out of bounds, and
/// if no filter of at most 2^46 counters reaches the rate.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let policy = parameters.get("policy").map_or(Ok(Policy::MinimumSelection), str::parse)?;
    let plan = Plan::in_blocks(parameters, "cells", most_primary(policy).into())?;
    Ok(Arc::new(Spectral { plan, policy }))
}

/// Returns the counters of a block's secondary part for `primary` counters of its primary one.
fn secondary(policy: Policy, primary: u32) -> u32 {
    if policy == Policy::RecurringMinimum { primary.div_ceil(2) } else { 0 }
}

/// Returns the greatest number of counters of a block's primary part: as many as fit at 64 bits
/// each.
fn most_primary(policy: Policy) -> u32 {
    let all = Store::MOST_COUNTERS as u32;
    if policy == Policy::RecurringMinimum { all / 3 * 2 } else { all }
}

impl Spectral {
    /// Returns the counters of a block that is one of `blocks`.
    #[inline]
    fn parts(&self, blocks: u64) -> Parts {
        let most = most_primary(self.policy);
        let each = self.plan.cells.div_ceil(blocks.max(1));
        let primary = each.min(most.into()) as u32;
        let secondary = secondary(self.policy, primary);
        let k = self.plan.k;
        let changes = if secondary > 0 { 2 * k } else { k };
        let store = Store::new((primary + secondary) as usize, changes as usize);
        Parts { policy: self.policy, store, k, primary, secondary }
    }

    /// Returns the number of counters of all primary parts.
    fn cells(&self, blocks: u64) -> f64 {
        blocks as f64 * f64::from(self.parts(blocks).primary)
    }
}

impl Describe for Spectral {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        self.plan.parameters("cells").with("policy", self.policy)
    }

    /// Blocks of as many counters as fit, so that the unused words of a block are few beside the
    /// used ones.
    fn geometry(&self, layout: Layout) -> Geometry {
        let stripes = u64::from(layout.stripes.max(1));
        let each = self.plan.cells.div_ceil(stripes);
        let blocks = each.div_ceil(most_primary(self.policy).into()).clamp(1, u32::MAX.into());
        let words = self.parts(stripes * blocks).store.most_words() as u32;
        Geometry {
            blocks_per_stripe: blocks as u32,
            words_per_block: words.next_multiple_of(PAGE_WORDS),
        }
    }

    fn first_words(&self) -> u64 {
        let layout = Layout { stripes: 1, block_words: Layout::MOST_BLOCK_WORDS };
        layout.words(self.geometry(layout))
    }

    fn default_stripes(&self, _: u32) -> u32 {
        let blocks = self.plan.cells / u64::from(most_primary(self.policy));
        (blocks / BLOCKS_PER_STRIPE).clamp(1, 64) as u32
    }

    /// Counts the counters of the primary part that are not 0.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let parts = self.parts(block.of);
        if store::room_now(block) == 0 {
            return (0, parts.primary.into());
        }
        let used = (0..parts.primary as usize).filter(|&at| parts.store.get(block, at) > 0).count();
        (used as u64, parts.primary.into())
    }

    fn metrics(&self) -> &'static [KindMetric] {
        &[
            KindMetric { name: "live_words", word: store::LIVE },
            KindMetric { name: "expansions", word: store::EXPANSIONS },
            KindMetric { name: "rebuilds", word: store::REBUILDS },
            KindMetric { name: "rewritten_cells", word: store::REWRITTEN },
        ]
    }

    /// Returns the rate at capacity.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let blocks = layout.blocks(self.geometry(layout));
        fpr(self.plan.capacity as f64, self.cells(blocks), self.plan.k, blocks as f64)
    }

    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> f64 {
        let Some(bank) = state.bank(0) else {
            return 0.0;
        };
        let blocks = layout.blocks(bank.geometry);
        fpr_of_fill(sample.fill(), self.cells(blocks), self.plan.k, blocks as f64)
    }

    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        Some(self)
    }

    fn counts(&self) -> Option<&dyn KeyCounts> {
        Some(self)
    }

    fn removal(&self) -> Option<&dyn Removal> {
        (self.policy != Policy::MinimalIncrease).then_some(self as &dyn Removal)
    }

    fn growth(&self) -> Option<&dyn Growth> {
        Some(self)
    }
}

impl ByFill for Spectral {
    fn cells_of_a_key(&self) -> u32 {
        self.plan.k
    }
}

impl SingleBlock for Spectral {
    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        self.parts(block.of).prefetch(block, hash);
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        self.parts(block.of).insert(block, operation.hash, operation.weight.into());
    }

    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.parts(block.of).contains(block, query.hash)
    }
}

impl KeyCounts for Spectral {
    fn estimate(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> Estimate {
        let count = self.parts(block.of).estimate(block, query.hash);
        Estimate { count: count as f64, at_least: count == u64::MAX }
    }
}

impl Removal for Spectral {
    fn remove(&self, block: &Block<'_>, operation: &Operation) {
        self.parts(block.of).remove(block, operation.hash, operation.weight.into());
    }
}

impl Growth for Spectral {
    fn room(&self, block: &Block<'_>, operation: &Operation) -> usize {
        match operation.change {
            Change::Insert => self.parts(block.of).store.room(block),
            Change::Remove => store::room_now(block),
        }
    }

    fn room_now(&self, block: &Block<'_>) -> usize {
        store::room_now(block)
    }

    /// Returns the words at capacity, if every key was inserted [`PLANNED_COUNT`] times; less with
    /// minimal increase. Hot keys cost little: only their counters are wide.
    fn planned_words(&self, layout: Layout) -> u64 {
        let blocks = layout.blocks(self.geometry(layout));
        let parts = self.parts(blocks);
        let (primary, secondary) = (f64::from(parts.primary), f64::from(parts.secondary));
        let (keys, k) = (self.plan.capacity as f64, self.plan.k);
        let bits = |keys: f64, counters: f64| {
            let load = f64::from(k) * keys / (counters * blocks as f64);
            counters * mean_bits(load, PLANNED_COUNT)
        };
        let mut all = bits(keys, primary);
        if secondary > 0.0 {
            let single = single_minimum(keys, self.cells(blocks), k, blocks as f64);
            all += bits(keys * single, secondary);
        }
        let words = parts.store.words_at(all / (primary + secondary)) as u64;
        blocks * words.next_multiple_of(PAGE_WORDS.into())
    }
}
