//! The optimized time-decaying Bloom filter, O-TBF (Cheng, Iwaihara, Xiang, Ushijima, section 4):
//! the counts of the basic one ([`decaying`](super::decaying)) in less memory, for streams in which
//! few keys are hot.
//!
//! Each block contains all four structures of section 4.1 (`shape`):
//!
//! | paper | here |
//! |---|---|
//! | `BF0`, a Bloom filter | `front`; two that swap unless it is `plain`, which fills up |
//! | `TBF1`, small counters | `counters`: 4 bits *and `F` fraction bits* |
//! | `FCP`, `m/2` free counters of 4 bits | `pool`: digits, shared by all counters of a block |
//! | `LT`, links both ways | `pool`: an entry for each 16 counters; each digit names its counter |
//!
//! Counters decay on the grid of half-lives of the basic filter
//! ([`half_life`](super::decaying::half_life)), and hold exactly the values that its counters would
//! have. Each carries independently, as in the listing of section 4.2. (Its text lets a key carry
//! only "if ALL" of its counters overflow, which undercounts other keys.) As long as the pool
//! suffices, an estimate is therefore that of the basic filter, with its bounds. The exception:
//! where the front proves that nothing is left, the estimate is 0 whatever the counters hold.
//!
//! **When the pool is exhausted** (`counters`), a counter that needs a digit and gets none stays at
//! its maximum. The kind metric `pool_exhaustions` counts such additions, and `counters_flagged`
//! the marked counters. The guarantee changes as follows: an estimate that depends on such a
//! counter is no longer an upper bound of the count but is marked *at least*, and
//! [`contains`](SingleBlock::contains) answers yes for it. This lasts until nothing can be left of
//! the lost weight: one to two lifetimes of the front after the last loss in the block. Other
//! estimates keep the guarantee, even in the same block. Nothing is ever lost without a mark. A
//! counter at the maximum of `counter-bits` (`saturated`) is treated the same way. What it lost may
//! be worth more than that maximum, `2^(counter-bits - F)`. The front forgets a key after a
//! lifetime even then: a count above that is forgotten as if it were that.
//!
//! **Memory** of a counter, with `F` = 8 and a pool of one half: 14 bits of base counter and marks,
//! 1.5 of table, 4 of pool, that is 19.5 ([`theory::memory`]), where the basic filter needs 32 with
//! the same fraction and range. Most of the difference to the basic filter comes from the front: it
//! keeps the rate of absent keys, so fewer counters suffice ([`plan`]). The paper's factor of two
//! (Fig. 3) counts neither fractions nor the links from digits back to counters.

mod counters;
mod front;
pub mod plan;
mod pool;
mod shape;
pub mod spec;
pub mod theory;

#[cfg(test)]
mod tests;

use super::decaying::HalfLife;
use super::decaying::half_life::steps_between;
use crate::block::{Block, Layout};
use crate::error::Result;
use crate::hash::Positions;
use crate::kind::parameters::within;
use crate::kind::{
    Decision, Describe, Estimate, KeyCounts, Kind, KindMetric, Micros, Moment, Operation,
    Parameters, PlannedPart, Query, Sample, SingleBlock, State, TOO_FULL,
};
use counters::{Counters, Least, Lost};
use front::{Front, Mode};
use plan::Plan;
use pool::Pool;
use shape::{
    EXHAUSTIONS, FLAGGED, HALF_LIFE, IN_USE, LOST, MOST_FUNCTIONS, Parts, SATURATED, Shape,
};
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "decaying-optimized";

/// An optimized filter's parameters, completed.
#[derive(Debug, Clone, PartialEq)]
struct Optimized {
    plan: Plan,
    epoch: Micros,
    half_life: HalfLife,
    counter_bits: u32,
    shape: Shape,
}

/// Builds the kind from `capacity` (the greatest number of distinct keys of which something is left
/// at one time), `fpr` and `error` (see [`plan`] for both), `lambda` and `epoch` (in microseconds).
///
/// `fraction-bits` (8 if absent) and `counter-bits` (32), the greatest size of a value, are those
/// of the basic filter. `pool` (0.5) is the number of digits in the pool for each counter, from 0
/// to 4. `front` is `swapped`, `plain` or `none`, with `front-bits` bits in each buffer and
/// `front-k` hash functions. `cells` and `k` override what would be derived from the others.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for unknown names, for values out of bounds or
/// that do not fit each other, and if no filter of at most 2^46 counters reaches the rates.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &plan::KNOWN)?;
    let epoch = parameters.required("epoch", "how long an epoch lasts, such as 60s")?;
    let epoch = within("epoch", epoch, 1, u64::MAX)?;
    let lambda = parameters.required("lambda", "what an epoch leaves of a count")?;
    let half_life = HalfLife::new(lambda, plan::fraction_bits(parameters)?)?;
    let (plan, shape) = Plan::of(parameters, half_life.fraction_bits())?;
    let counter_bits = plan::counter_bits(parameters, shape.base_bits)?;
    Ok(Arc::new(Optimized { plan, epoch, half_life, counter_bits, shape }))
}

impl Optimized {
    /// Returns the number of the epoch that contains a time.
    #[inline]
    fn epoch_of(&self, time: Micros) -> u64 {
        time / self.epoch
    }

    /// Returns the lifetime that contains a half-life.
    #[inline]
    fn lifetime_of(&self, half_life: u64) -> u64 {
        half_life / theory::lifetime(self.counter_bits)
    }

    /// Returns the layout of a block.
    #[inline]
    fn parts(&self, block: &Block<'_>) -> Parts {
        self.shape.parts(block.cells.len(), block.of)
    }

    #[inline]
    fn counters<'a>(&self, block: &'a Block<'a>, parts: &'a Parts) -> Counters<'a> {
        Counters {
            block,
            parts,
            pool: Pool::of(parts, block, self.shape.slots_a_line()),
            base_bits: self.shape.base_bits,
            most: u64::MAX >> (64 - self.counter_bits),
        }
    }

    #[inline]
    fn front(&self, parts: &Parts) -> Front {
        Front::of(self.plan.front, parts, self.plan.front_k)
    }

    /// Finds the key's counters and returns the used part of the given array.
    #[inline]
    fn positions<'p>(
        &self,
        parts: &Parts,
        hash: u64,
        at: &'p mut [u32; MOST_FUNCTIONS],
    ) -> &'p [u32] {
        let positions = Positions::new(hash, parts.base.cells as u32);
        let at = &mut at[..(self.plan.k as usize).min(MOST_FUNCTIONS)];
        for (pair, at) in at.chunks_mut(2).enumerate() {
            let (even, odd) = positions.pair(pair as u32);
            at[0] = even as u32;
            if let Some(at) = at.get_mut(1) {
                *at = odd as u32;
            }
        }
        at
    }

    /// Returns whether anything lost up to the lifetime `lost - 1` may still be alive.
    #[inline]
    fn matters(lost: u64, lifetime: u64) -> bool {
        // Inserts of one lifetime are gone when the next lifetime has ended.
        lost != 0 && lifetime <= lost
    }

    /// Decays a block to a half-life, if it is behind, and swaps its front.
    fn catch_up(&self, block: &Block<'_>, parts: &Parts, half_life: u64) {
        let reached = block.own(HALF_LIFE);
        if half_life <= reached {
            return;
        }
        let lifetime = self.lifetime_of(half_life);
        self.front(parts).catch_up(block, self.lifetime_of(reached), lifetime);
        let marks = Self::matters(block.own(LOST), lifetime);
        if !marks && block.own(LOST) != 0 {
            block.set_own(LOST, 0);
        }
        let times = steps_between(reached, half_life);
        self.counters(block, parts).decay(&self.half_life, times, marks);
        block.set_own(HALF_LIFE, half_life);
    }

    /// Counts what an insert could not add.
    #[cold]
    fn note_lost(&self, block: &Block<'_>, lost: Lost, lifetime: u64) {
        for (own, more) in [(EXHAUSTIONS, lost.exhausted), (SATURATED, lost.saturated)] {
            if more > 0 {
                block.set_own(own, block.own(own).wrapping_add(more));
            }
        }
        let latest = lifetime.saturating_add(1);
        if block.own(LOST) != latest {
            block.set_own(LOST, latest);
        }
    }

    /// Returns the least of a key's counters in an epoch, as a count; a block in a later epoch
    /// answers for that epoch.
    #[inline]
    fn least(&self, block: &Block<'_>, query: &Query) -> Estimate {
        let epoch = self.epoch_of(query.now);
        let reached = block.own(HALF_LIFE);
        let half_life = self.half_life.number(epoch).max(reached);
        let lifetime = self.lifetime_of(half_life);
        let parts = self.parts(block);
        let front = self.front(&parts);
        if !front.contains(block, query.hash, self.lifetime_of(reached), lifetime) {
            return Estimate { count: 0.0, at_least: false };
        }
        let mut at = [0; MOST_FUNCTIONS];
        let at = self.positions(&parts, query.hash, &mut at);
        // Prefetched so that their misses overlap: a read would wait for the block's kind words,
        // and takes many steps.
        for &at in at {
            parts.base.prefetch(block, at as usize);
        }
        let times = steps_between(reached, half_life);
        let marks = Self::matters(block.own(LOST), lifetime);
        let counters = self.counters(block, &parts);
        let Least { value, at_least } = counters.least(at, &self.half_life, times, marks);
        let count = self.half_life.read(value, epoch.max(self.half_life.start(half_life)));
        Estimate { count, at_least }
    }

    /// Returns the load of a filter of this layout when it is as full as planned.
    fn load(&self, layout: Layout) -> theory::Load {
        let geometry = layout.geometry(self.first_words());
        let blocks = layout.blocks(geometry);
        let parts = self.shape.parts(geometry.words_per_block as usize, blocks);
        let blocks = blocks as f64;
        let counters = parts.base.cells as f64 * blocks;
        self.plan.load(counters, f64::from(parts.front_bits) * blocks, blocks)
    }
}

impl Describe for Optimized {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        self.plan
            .parameters(&self.shape)
            .with("lambda", self.half_life.lambda())
            .with("epoch", self.epoch)
            .with("fraction-bits", self.half_life.fraction_bits())
            .with("counter-bits", self.counter_bits)
    }

    fn table_bytes(&self) -> usize {
        self.half_life.table_bytes()
    }

    fn uses_time(&self) -> bool {
        true
    }

    fn first_words(&self) -> u64 {
        self.shape.first_words()
    }

    fn step(&self, _: &State<'_>, moment: &Moment) -> Option<u64> {
        Some(self.epoch_of(moment.now))
    }

    /// Counts counters only; the front has a different fill.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let parts = self.parts(block);
        (self.counters(block, &parts).in_use(), parts.base.cells as u64)
    }

    fn metrics(&self) -> &'static [KindMetric] {
        &[
            KindMetric { name: "pool_in_use", word: IN_USE },
            KindMetric { name: "pool_exhaustions", word: EXHAUSTIONS },
            KindMetric { name: "saturated", word: SATURATED },
            KindMetric { name: "counters_flagged", word: FLAGGED },
        ]
    }

    /// Returns the rate of absent keys at the worst moment ([`plan`]).
    fn planned_fpr(&self, layout: Layout) -> f64 {
        theory::fpr(&self.load(layout))
    }

    /// Computed from the fills of counters and front ([`SingleBlock::block_fpr`]).
    fn estimated_fpr(&self, _: &State<'_>, _: Layout, _: &Moment, sample: &Sample) -> f64 {
        sample.fpr()
    }

    /// Also if the counters alone keep less than half of the planned `error`.
    fn is_saturated(
        &self,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        sample: &Sample,
    ) -> bool {
        let load = self.load(layout);
        let keys = theory::keys_of_fill(sample.fill(), load.counters, self.plan.k);
        theory::error(&theory::Load { keys, ..load }) > TOO_FULL * theory::error(&load)
            || self.estimated_fpr(state, layout, moment, sample) > TOO_FULL * theory::fpr(&load)
    }

    /// Returns the counters, which keep `error`, and the front, with which they keep `fpr`.
    fn planned_parts(&self, layout: Layout) -> Vec<PlannedPart> {
        let load = self.load(layout);
        let front = self.shape.front_bits as f64 * f64::from(self.shape.buffers);
        let all = layout.words(layout.geometry(self.first_words())) as f64 * 64.0;
        let counters = PlannedPart {
            name: "counters",
            bits: all - front,
            keeps: "error",
            rate: theory::error(&load),
        };
        let rate = theory::fpr(&load);
        vec![counters, PlannedPart { name: "front", bits: front, keeps: "fpr", rate }]
    }

    fn counts(&self) -> Option<&dyn KeyCounts> {
        Some(self)
    }
}

impl SingleBlock for Optimized {
    /// The step is the filter's epoch; the key's own epoch follows from its time.
    fn decide(&self, _: &State<'_>, moment: &Moment) -> Decision {
        Decision::Insert { step: self.epoch_of(moment.now.max(moment.time)) }
    }

    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let parts = self.parts(block);
        self.front(&parts).prefetch(block, hash);
        let mut at = [0; MOST_FUNCTIONS];
        for &at in self.positions(&parts, hash, &mut at) {
            parts.base.prefetch(block, at as usize);
        }
    }

    /// A late key, whose own time lies before the filter's, adds its remaining weight.
    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        let parts = self.parts(block);
        let own_epoch = self.epoch_of(operation.time);
        let epoch = operation.step.max(own_epoch);
        self.catch_up(block, &parts, self.half_life.number(epoch));
        let half_life = block.own(HALF_LIFE);
        let late = steps_between(self.half_life.number(own_epoch), half_life);
        let amount = self.half_life.late(self.half_life.added(operation.weight, own_epoch), late);
        let lifetime = self.lifetime_of(half_life);
        let mut at = [0; MOST_FUNCTIONS];
        let at = self.positions(&parts, operation.hash, &mut at);
        self.front(&parts).insert(block, operation.hash, lifetime);
        let lost = self.counters(block, &parts).add(at, amount);
        if lost != Lost::default() {
            self.note_lost(block, lost, lifetime);
        }
    }

    /// Returns whether anything is left of the key, or might be.
    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        let Estimate { count, at_least } = self.least(block, query);
        count > 0.0 || at_least
    }

    fn settle(&self, _: &State<'_>, block: &Block<'_>, moment: &Moment) {
        let half_life = self.half_life.number(self.epoch_of(moment.now));
        self.catch_up(block, &self.parts(block), half_life);
    }

    fn block_fpr(&self, block: &Block<'_>) -> f64 {
        let parts = self.parts(block);
        let used = self.counters(block, &parts).in_use() as f64;
        let counters = (used / (parts.base.cells as f64).max(1.0)).powi(self.plan.k as i32);
        let passes = |fill: f64| fill.powi(self.plan.front_k as i32);
        match self.plan.front {
            Mode::None => counters,
            _ => counters * theory::passing(self.front(&parts).fills(block).map(passes)),
        }
    }
}

impl KeyCounts for Optimized {
    fn estimate(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> Estimate {
        self.least(block, query)
    }

    /// Returns `1 - λ` (eq. 4).
    fn normaliser(&self) -> Option<f64> {
        Some(1.0 - self.half_life.lambda())
    }
}
