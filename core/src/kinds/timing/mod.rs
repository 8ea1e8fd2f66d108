//! The Timing Bloom Filter and the Block Timing Bloom Filter (Zhang and Guan; Dautrich and
//! Ravishankar, the Inferential paper's section 3): windows of the last `w` insert operations, of
//! any length, with the age of each key.
//!
//! Cells are *timers*. An insert sets `k` of them to the current timestamp; a key is in the window
//! if none of its timers has expired. Timestamps count *batches* of `B` inserts (the paper's
//! *insertion blocks*; a *block* is something else here), filter-wide, including duplicates: insert
//! number `s` has tick `⌊s/B⌋`. The Timing Bloom Filter is the one with `B = 1`: its ages are exact
//! to the insert. With larger batches a timer takes few bits, and a key expires up to `B-1` inserts
//! later than the window ends.
//!
//! No key of the window is missed, and no key is reported older than it is. (Concurrent inserts of
//! several threads may carry the same number, so a key may seem older by the number of inserts that
//! ran beside its own.)
//!
//! **Expired timestamps** are marked before their values are reused. A block keeps its own tick,
//! that of its last insert, and timers are relative to it; a query adds the ticks since. Before an
//! insert advances the block by `Δ` ticks, it *sweeps* `⌈m_b·Δ/(P+1)⌉` of the block's `m_b` timers,
//! from the end of the last sweep on, and marks those that will have expired by then. A timer that
//! was kept is at most `⌈w/B⌉` ticks old then. The next sweep reaches it before it is older than
//! `⌈w/B⌉+P`, which the ring of timestamps still distinguishes. All values stay unambiguous however
//! long a block was idle: with `Δ > P` the sweep visits all timers.
//!
//! The paper sweeps after each insert, `m/(B(P+1))` timers anywhere. Here a block sweeps its share
//! when it is touched, and the sum is the same.

mod distinct;
mod evidence;
mod plan;
pub mod spec;
mod stamps;
pub mod theory;

#[cfg(test)]
mod tests;

pub use plan::Plan;

use crate::block::packed::{Packed, words_for};
use crate::block::{Block, Blocks, Geometry, Layout};
use crate::error::Result;
use crate::hash::Positions;
use crate::inference::KeptScatter;
use crate::kind::{
    Age, Decision, Describe, DistinctKeys, GenerationFill, Inference, KeyAges, Kind, Moment,
    Operation, Parameters, Query, Sample, SingleBlock, State, Totals, Within,
};
use crate::kinds::bloom::same_hash;
use stamps::{Ring, in_use};
use std::sync::Arc;

/// The kind with batches of one insert.
pub const NAME: &str = "timing";

/// The kind with batches of any size.
pub const BLOCK_NAME: &str = "block-timing";

/// The parameters of both.
const KNOWN: [&str; 7] = ["window-items", "fpr", "bits", "k", "timers", "padding", "block-size"];

/// The parts of the window by which timers are reported.
const SHOWN: u64 = 16;

/// The kind word of a block with the tick to which its timers are relative.
const TICK: usize = 0;

/// The kind word with the timer at which the next sweep begins.
const CURSOR: usize = 1;

/// The words of a block that are used, so that its timers stay in the range of [`Positions`].
const MOST_BLOCK_WORDS: usize = Layout::MOST_BLOCK_WORDS as usize;

/// A filter of timers.
#[derive(Debug, Clone, PartialEq)]
struct Timing {
    name: &'static str,
    plan: Plan,
    ring: Ring,
    /// The scattering of keys over the filter's blocks, computed on first use.
    scatter: KeptScatter,
}

/// Builds the Timing Bloom Filter from `window-items` and `fpr` (0.001 if absent); `bits` (of a
/// timer), `padding`, `k` and `timers` (in all) override what would be derived from these.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for unknown names, for values out of bounds or
/// that do not fit each other, and for filters above 8 TiB.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    // Each insert is a batch, so this kind lacks the last parameter.
    parameters.only(NAME, &KNOWN[..KNOWN.len() - 1])?;
    Ok(Arc::new(Timing::new(NAME, Plan::from_parameters(parameters, Some(1))?)))
}

/// Builds the Block Timing Bloom Filter: as [`build`], and `block-size` is the number of inserts of
/// a batch.
///
/// # Errors
/// As [`build`].
pub fn build_block(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(BLOCK_NAME, &KNOWN)?;
    Ok(Arc::new(Timing::new(BLOCK_NAME, Plan::from_parameters(parameters, None)?)))
}

/// The moment of reading a block: `T_+` and `b` of the paper, and the tick to which the block's
/// timers are relative.
#[derive(Debug, Clone, Copy)]
struct Now {
    tick: u64,
    into_batch: u64,
    own: u64,
}

impl Timing {
    fn new(name: &'static str, plan: Plan) -> Self {
        let ring = Ring(theory::values(plan.window, plan.batch, plan.padding) - 1);
        Self { name, plan, ring, scatter: KeptScatter::default() }
    }

    /// Returns the timers of a block.
    #[inline]
    fn timers(&self, block: &Block<'_>) -> Packed {
        self.timers_in(block.cells.len(), block.of)
    }

    /// Returns the timers of a block of `words` words, one of `blocks` blocks.
    #[inline]
    fn timers_in(&self, words: usize, blocks: u64) -> Packed {
        let (bits, room) = (u64::from(self.plan.bits), words.min(MOST_BLOCK_WORDS) as u64 * 64);
        let share = self.plan.timers.div_ceil(blocks.max(1));
        // Called for each key, so a division is avoided in most cases.
        let cells = if share.saturating_mul(bits) <= room { share } else { room / bits };
        Packed { first: 0, bits: self.plan.bits, cells: cells as usize }
    }

    /// Returns the number of timers of all blocks.
    fn all_timers(&self, layout: Layout, geometry: Geometry) -> f64 {
        let blocks = layout.blocks(geometry);
        self.timers_in(geometry.words_per_block as usize, blocks).cells as f64 * blocks as f64
    }

    /// Visits the key's timers, `R_x`. A timer shared by several functions is visited once for
    /// each.
    #[inline]
    fn each_timer(&self, timers: &Packed, hash: u64, visit: impl FnMut(usize)) {
        let positions = Positions::new(hash, timers.cells as u32);
        positions.each(self.plan.k, visit);
    }

    /// Returns the tick of an insert number.
    #[inline]
    fn tick_of(&self, number: u64) -> u64 {
        if self.plan.batch == 1 { number } else { number / self.plan.batch }
    }

    /// Returns the present moment of a block. An insert that the sums do not count yet may have
    /// advanced the block to a later tick.
    #[inline]
    fn now(&self, block: &Block<'_>, totals: &Totals) -> Now {
        let (tick, own) = (self.tick_of(totals.inserts), block.own(TICK));
        if own > tick {
            return Now { tick: own, into_batch: 0, own };
        }
        Now { tick, into_batch: totals.inserts - tick * self.plan.batch, own }
    }

    /// Returns the age in ticks of the key's oldest timestamp, `λ_x` (equation 19); unlimited if
    /// one has been marked expired.
    #[inline]
    fn oldest(&self, block: &Block<'_>, hash: u64, now: Now) -> u64 {
        let timers = self.timers(block);
        let stamp = self.ring.stamp(now.own);
        let mut oldest = 0;
        // All timers are loaded, so that their misses overlap; an early exit would wait for each.
        self.each_timer(&timers, hash, |at| {
            oldest = oldest.max(self.ring.age(stamp, timers.get(block, at)));
        });
        oldest.saturating_add(now.tick - now.own)
    }

    /// Returns the age in ticks of the key's oldest timestamp, if it may have been one of the last
    /// `items` inserts, and the moment.
    #[inline]
    fn seen(&self, block: &Block<'_>, query: &Query, items: u64) -> Option<(u64, Now)> {
        let now = self.now(block, &query.totals);
        let oldest = self.oldest(block, query.hash, now);
        // Definition 9; exact to the insert if each is a batch.
        let reach = theory::reach(items, self.plan.batch, now.into_batch);
        (items > 0 && oldest <= reach).then_some((oldest, now))
    }

    /// Advances a block to a tick: marks the timers that must not stay unmarked any longer, then
    /// makes its timers relative to that tick. Returns the tick's timer value.
    #[inline]
    fn advance(&self, timers: &Packed, block: &Block<'_>, tick: u64) -> u64 {
        let own = block.own(TICK);
        let stamp = self.ring.stamp(own);
        if tick <= own {
            return stamp;
        }
        let count = theory::swept(timers.cells as u64, tick - own, self.plan.padding) as usize;
        let reach = theory::reach(self.plan.window, self.plan.batch, 0);
        let sweep = self.ring.sweep(stamp, reach.checked_sub(tick - own));
        let from = (block.own(CURSOR) as usize).min(timers.cells);
        let (end, rest) = match (from + count).checked_sub(timers.cells) {
            Some(rest) => (timers.cells, rest),
            None => (from + count, 0),
        };
        sweep.mark(timers, block, from, end);
        sweep.mark(timers, block, 0, rest);
        block.set_own(TICK, tick);
        let cursor = if end < timers.cells { end } else { rest };
        if cursor != from {
            block.set_own(CURSOR, cursor as u64);
        }
        self.ring.later(stamp, tick - own)
    }
}

impl Describe for Timing {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parameters(&self) -> Parameters {
        let all = self.plan.parameters();
        if self.name == NAME { all } else { all.with("block-size", self.plan.batch) }
    }

    fn first_words(&self) -> u64 {
        words_for(self.plan.timers, self.plan.bits)
    }

    fn counts_inserts(&self) -> bool {
        true
    }

    /// Returns the tick.
    fn step(&self, _: &State<'_>, moment: &Moment) -> Option<u64> {
        Some(self.tick_of(moment.totals.inserts))
    }

    /// Timers that have not expired.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let timers = self.timers(block);
        (in_use(&timers, block), timers.cells as u64)
    }

    /// The timers by age, in up to [`SHOWN`] parts of the window.
    fn generation_fills(
        &self,
        _: &State<'_>,
        _: usize,
        block: &Block<'_>,
        moment: &Moment,
    ) -> Vec<GenerationFill> {
        let (timers, now) = (self.timers(block), self.now(block, &moment.totals));
        let ticks = theory::reach(self.plan.window, self.plan.batch, 0).saturating_add(1);
        let part = ticks.div_ceil(SHOWN).max(1);
        let stamp = self.ring.stamp(now.own);
        let mut used = vec![0; ticks.div_ceil(part) as usize];
        for at in 0..timers.cells {
            let age =
                self.ring.age(stamp, timers.get(block, at)).saturating_add(now.tick - now.own);
            let its_part = usize::try_from(age / part).ok().and_then(|part| used.get_mut(part));
            its_part.into_iter().for_each(|used| *used += 1);
        }
        let fill = |(used, parts): (u64, u64)| {
            let batches = parts.saturating_mul(part).saturating_sub(1);
            let inserts = batches.saturating_mul(self.plan.batch).saturating_add(now.into_batch);
            let began = Age::Items(inserts.min(moment.totals.inserts));
            GenerationFill { began, used, cells: timers.cells as u64 }
        };
        used.into_iter().zip(1..).map(fill).collect()
    }

    /// Returns the rate at the end of a batch, when most inserts count, all of distinct keys.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let geometry = layout.geometry(self.first_words());
        let covered = theory::most_covered(self.plan.window, self.plan.batch) as f64;
        let timers = self.all_timers(layout, geometry);
        let blocks = layout.blocks(geometry) as f64;
        (theory::fpr(covered, timers, self.plan.k, blocks) + same_hash(covered)).min(1.0)
    }

    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> f64 {
        let Some(bank) = state.bank(0) else {
            return 0.0;
        };
        let blocks = layout.blocks(bank.geometry) as f64;
        theory::fpr_of_fill(
            sample.fill(),
            self.all_timers(layout, bank.geometry),
            self.plan.k,
            blocks,
        )
    }

    /// Returns false: a window has as many timers in use as it has inserts. The fill of a small
    /// filter varies by so much that its rate is twice the planned one at times.
    fn is_saturated(&self, _: &State<'_>, _: Layout, _: &Moment, _: &Sample) -> bool {
        false
    }

    fn ages(&self) -> Option<&dyn KeyAges> {
        Some(self)
    }

    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        Some(self)
    }

    fn inference(&self) -> Option<&dyn Inference> {
        Some(self)
    }
}

impl SingleBlock for Timing {
    /// The step is the insert's number.
    fn decide(&self, _: &State<'_>, moment: &Moment) -> Decision {
        Decision::Insert { step: moment.totals.inserts }
    }

    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let timers = self.timers(block);
        self.each_timer(&timers, hash, |at| timers.prefetch(block, at));
    }

    /// Sections 3.1.1, 3.2.1; the timestamp that they increment afterwards follows from the number
    /// of the next insert.
    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        let timers = self.timers(block);
        // Another thread with a later number may have written here first.
        let tick = self.tick_of(operation.step);
        let stamp = self.advance(&timers, block, tick);
        self.each_timer(&timers, operation.hash, |at| timers.set(block, at, stamp));
    }

    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.seen(block, query, self.plan.window).is_some()
    }

    /// Marks all timers as expired that no query at this or a later moment reaches, independent of
    /// the progress of sweeps.
    fn settle(&self, _: &State<'_>, block: &Block<'_>, moment: &Moment) {
        let timers = self.timers(block);
        let now = self.now(block, &moment.totals);
        let reach = theory::reach(self.plan.window, self.plan.batch, now.into_batch);
        let kept = reach.checked_sub(now.tick - now.own);
        self.ring.sweep(self.ring.stamp(now.own), kept).mark(&timers, block, 0, timers.cells);
        block.set_own(TICK, now.tick);
        block.set_own(CURSOR, 0);
    }
}

impl KeyAges for Timing {
    /// By the oldest timestamp, which is never older than the key: the inserts since its batch
    /// ended.
    fn age(&self, _: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age> {
        let (age, now) = self.seen(blocks.get(0)?, query, self.plan.window)?;
        Some(Age::Items(theory::least_inserts_since(age, self.plan.batch, now.into_batch)))
    }

    /// No key of the last `items` inserts is missed; with larger batches up to `B-1` older ones are
    /// accepted too. The filter has no times: [`Within::Time`] covers the whole window.
    fn contains_within(
        &self,
        _: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool {
        let items = match within {
            Within::Time(_) => self.plan.window,
            Within::Items(items) => items.min(self.plan.window),
        };
        let is_in = |block: &Block<'_>| self.seen(block, query, items).is_some();
        within.width() > 0 && blocks.get(0).is_some_and(is_in)
    }
}
