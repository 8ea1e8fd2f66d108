//! The Stable Bloom Filter (Deng, Rafiei; the Importance-aware paper's section II-A), and the parts
//! that the importance-aware filters share with it.
//!
//! A filter of `m` cells with values from 0 to `Max`. An insert first decrements `P` cells drawn at
//! random, if above zero, then raises the `K` cells of its key: here to `Max`, in an
//! importance-aware filter to a value by the key's importance. A key is present while none of its
//! cells is zero. After enough inserts the share of zeros is constant ([`theory`]), whatever the
//! length of the stream, and with it the false-positive rate. The price is false negatives, which
//! increase with the time since a key was seen.
//!
//! Deviation: the paper draws `P` cells of the whole filter. Here each block is drawn from in turn,
//! by numbered draws (`draws`), and settles those that are due when it is touched (`cells`). With
//! one block it is the paper's algorithm; with many the rates are the same. The decrements of an
//! insert come before its own cells are raised, as in the listing, and a cell shared by several
//! functions of a key is raised once.
//!
//! The step of a record is the number of inserts before it: its block settles the draws that are
//! due after one more. Two concurrent inserts may carry the same number; the larger of it and the
//! block's own counts, so nothing is drawn twice.

mod cells;
mod decrements_by_value;
mod draws;
mod plan;
pub mod spec;
pub mod theory;

#[cfg(test)]
mod tests;

pub use cells::Deletion;
pub(in crate::kinds) use plan::{KNOWN, Plan};

use crate::block::{Block, Layout};
use crate::error::Result;
use crate::kind::{
    Decision, Describe, KeyWeights, Kind, KindMetric, Moment, Operation, Parameters, Query, Sample,
    SingleBlock, State,
};
use cells::{DRAWN, USED};
use std::fmt::Debug;
use std::sync::Arc;
use theory::{fp_of_fill, level_shares};

/// The kind's name.
pub const NAME: &str = "stable";

/// Builds the kind from `cells`, `max` (7 if absent), `K` (5) and `P`, the decrements an insert;
/// without `P` from `fpr` (0.001): see [`theory::decrements_for`].
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for unknown names, for values out of bounds, and
/// if no `P` keeps the rate.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let plan = Plan::new(parameters, Deletion::Uniform, uniform_shares::<Stable>)?;
    Ok(Arc::new(Decremented { plan, class: Stable }))
}

/// The difference between the filters: the value to which an insert raises its cells.
pub(in crate::kinds) trait Class: Debug + Send + Sync {
    /// The kind's name.
    const NAME: &'static str;

    /// Returns the value to which a key of a level from 1 to `max` raises its cells.
    fn value(max: u32, level: u32) -> u32;

    /// Returns the levels of importances; `None` for filters whose keys all have the same
    /// importance.
    fn weights(&self) -> Option<&dyn KeyWeights> {
        None
    }

    /// Adds the parameters of this class.
    fn parameters(&self, shared: Parameters) -> Parameters {
        shared
    }
}

/// Returns the share of inserts that raise cells to 1, 2, …, `max` or more, if all levels are
/// equally frequent, as the papers assume.
pub(in crate::kinds) fn uniform_shares<C: Class>(max: u32) -> Vec<f64> {
    let mut levels = vec![0.0; max as usize];
    for level in 1..=max {
        let value = C::value(max, level).clamp(1, max);
        levels[value as usize - 1] += 1.0 / f64::from(max);
    }
    level_shares(&levels)
}

/// All keys have the same importance: every insert sets its cells to `Max`.
#[derive(Debug)]
struct Stable;

impl Class for Stable {
    const NAME: &'static str = NAME;

    fn value(max: u32, _: u32) -> u32 {
        max
    }
}

/// A filter whose cells are decremented at random.
#[derive(Debug)]
pub(in crate::kinds) struct Decremented<C> {
    pub(in crate::kinds) plan: Plan,
    pub(in crate::kinds) class: C,
}

impl<C: Class> Describe for Decremented<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn parameters(&self) -> Parameters {
        self.class.parameters(self.plan.parameters())
    }

    fn counts_inserts(&self) -> bool {
        true
    }

    fn first_words(&self) -> u64 {
        self.plan.words()
    }

    /// Counts the cells that are not zero.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let cells = self.plan.cells.in_block(block.cells.len(), block.of).cells as u64;
        (block.own(USED).min(cells), cells)
    }

    /// Draws settled so far; the rest of `inserts · P` is due in blocks that were not touched
    /// since.
    fn metrics(&self) -> &'static [KindMetric] {
        &[KindMetric { name: "draws", word: DRAWN }]
    }

    /// Returns the rate when stable, with levels of importance that are equally frequent.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let geometry = layout.geometry(self.first_words());
        let blocks = layout.blocks(geometry);
        let cells = self.plan.cells.in_block(geometry.words_per_block as usize, blocks).cells;
        let chain = self.plan.chain(cells as u64 * blocks, &uniform_shares::<C>(self.plan.max));
        chain.fp_bound(self.plan.cells.functions)
    }

    fn estimated_fpr(&self, _: &State<'_>, _: Layout, _: &Moment, sample: &Sample) -> f64 {
        fp_of_fill(sample.fill(), self.plan.cells.functions)
    }

    fn weights(&self) -> Option<&dyn KeyWeights> {
        self.class.weights()
    }
}

impl<C: Class> SingleBlock for Decremented<C> {
    fn decide(&self, _: &State<'_>, moment: &Moment) -> Decision {
        Decision::Insert { step: moment.totals.inserts }
    }

    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        self.plan.cells.prefetch(block, hash);
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        let (cells, max) = (&self.plan.cells, self.plan.max);
        cells.settle(block, operation.step.saturating_add(1));
        let value = C::value(max, operation.weight.clamp(1, max));
        cells.raise(block, operation.hash, value.into());
    }

    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.plan.cells.holds(block, query.hash, query.totals.inserts)
    }

    fn settle(&self, _: &State<'_>, block: &Block<'_>, moment: &Moment) {
        self.plan.cells.settle(block, moment.totals.inserts);
    }
}
