//! The simple baselines, two alternating Bloom filters: an approximate window of the last `N`
//! insert operations.
//!
//! - **Two-buffer** (A2, "active-active"; Yoon, *Aging Bloom filter with two active buffers for
//!   dynamic sets*, 2010; "Buffering" in the Time-limited paper, section 4.1): an insert goes to
//!   the active buffer, even for a key found in the aged one, which so moves it; a query reads
//!   both. When the active buffer has taken `N` inserts, the aged one is cleared and the two
//!   switch.
//! - **Double buffering** (Chang, Feng, Li, *Approximate caches for packet classification*, 2004;
//!   the same section): a query reads the active buffer only, which takes every insert. From the
//!   moment it is half full, which is after `N` inserts, the warm-up buffer takes them too. When it
//!   is full, after `2N`, the two switch, and the former active one is cleared. The new active one
//!   is half full at once, so from then on every insert is written twice.
//!
//! Both reduce to generations of `N` inserts, including duplicates. Insert number `i` (from 0) is
//! in generation `g = i / N`, and its key is present until the generation `g+2` begins, before
//! insert `(g+2)·N`. That is for at least `N` further inserts, and at most `2N-1`, without false
//! negatives before, and absent except for false positives after. Generation `g` begins by clearing
//! buffer `g mod 2`. Inserts of two-buffer ageing write that one alone. Those of double buffering
//! also write the other one, which is the active one (in generation 0 nothing warms up yet, and
//! buffer 0 is the active one).
//!
//! Full means a number of inserts, here as in all windows of inserts, where the papers count
//! distinct keys: `N` is then a guarantee that holds on every stream. Double buffering takes about
//! twice the bits of two-buffer ageing for the same window and rate, because its active buffer has
//! to hold `2N` keys.
//!
//! A swap changes no block ([`CountedGenerations`]); blocks catch up when they are next touched
//! (`buffers`).

mod buffers;
mod distinct;
mod evidence;
mod plan;
pub mod spec;
pub mod theory;

#[cfg(test)]
mod tests;

use crate::block::{Block, Geometry, Layout, UndoRoom};
use crate::error::Result;
use crate::inference::KeptScatter;
use crate::kind::{
    CountedGenerations, Describe, DistinctKeys, Events, GenerationFill, Inference, Kind, Moment,
    Operation, Parameters, Query, Sample, SingleBlock, State,
};
use buffers::{BOTH, PLACES, Set, caught_up, cleared_for};
use plan::Plan;
use std::sync::Arc;

/// The name of double buffering.
pub const DOUBLE: &str = "double-buffering";

/// The name of two-buffer ageing.
pub const TWO: &str = "two-buffer";

/// The parameters of both kinds.
const KNOWN: [&str; 4] = ["window-items", "fpr", "bits", "k"];

/// The scheme by which the buffers alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Double,
    Two,
}

/// A filter of two buffers.
#[derive(Debug, Clone, PartialEq)]
struct Buffering {
    scheme: Scheme,
    plan: Plan,
    generations: CountedGenerations,
    /// The scattering of keys over one buffer, computed on first use.
    scatter: KeptScatter,
}

/// Builds double buffering from `window-items` and `fpr` (0.001 if absent); `bits` (of both
/// buffers) and `k` override what would be derived from these.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for unknown names, for values out of bounds, and
/// if no filter of at most 8 TiB reaches the rate.
pub fn build_double(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    Scheme::Double.build(parameters)
}

/// Builds two-buffer ageing from the same parameters.
///
/// # Errors
/// As [`build_double`].
pub fn build_two(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    Scheme::Two.build(parameters)
}

impl Scheme {
    fn build(self, parameters: &Parameters) -> Result<Arc<dyn Kind>> {
        parameters.only(self.name(), &KNOWN)?;
        let worst = |window: f64, bits, k, blocks| match self {
            Self::Double => theory::double_buffering_fpr(2.0 * window, bits, k, blocks),
            Self::Two => theory::two_buffer_fpr(window, window, bits, k, blocks),
        };
        let plan = Plan::from_parameters(parameters, worst)?;
        let generations = CountedGenerations { length: plan.window };
        Ok(Arc::new(Buffering { scheme: self, plan, generations, scatter: KeptScatter::default() }))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Double => DOUBLE,
            Self::Two => TWO,
        }
    }

    /// Returns the buffers that an insert writes.
    #[inline]
    fn written(self, generation: u64) -> Set {
        match self {
            Self::Double if generation > 0 => BOTH,
            Self::Double | Self::Two => cleared_for(generation),
        }
    }

    /// Returns the buffers that a query reads.
    #[inline]
    fn asked(self, generation: u64) -> Set {
        match self {
            Self::Double if generation > 0 => BOTH & !cleared_for(generation),
            Self::Double => cleared_for(generation),
            Self::Two => BOTH,
        }
    }

    /// Returns the inserts that the buffers have taken: first the one that is queried, or filled
    /// now, then the other.
    fn inserts(self, generation: u64, window: f64, open: f64) -> [f64; 2] {
        match self {
            Self::Double if generation > 0 => [window + open, open],
            Self::Two if generation > 0 => [open, window],
            Self::Double | Self::Two => [open, 0.0],
        }
    }
}

impl Buffering {
    /// Returns the theoretical rate with these numbers of keys in the two buffers.
    fn fpr(&self, layout: Layout, geometry: Geometry, [first, other]: [f64; 2]) -> f64 {
        let bits = buffer_bits(layout, geometry);
        let (k, blocks) = (self.plan.k, layout.blocks(geometry) as f64);
        match self.scheme {
            Scheme::Double => theory::double_buffering_fpr(first, bits, k, blocks),
            Scheme::Two => theory::two_buffer_fpr(first, other, bits, k, blocks),
        }
    }
}

/// Returns the bits of one buffer.
fn buffer_bits(layout: Layout, geometry: Geometry) -> f64 {
    layout.words(geometry).saturating_mul(PLACES) as f64
}

impl Describe for Buffering {
    fn name(&self) -> &'static str {
        self.scheme.name()
    }

    fn parameters(&self) -> Parameters {
        self.plan.parameters()
    }

    fn undo_room(&self) -> UndoRoom {
        UndoRoom::None
    }

    fn first_words(&self) -> u64 {
        self.plan.bits.div_ceil(64)
    }

    fn step(&self, state: &State<'_>, _: &Moment) -> Option<u64> {
        Some(CountedGenerations::current(state))
    }

    /// The buffer that was cleared last, then the other one.
    fn generation_fills(
        &self,
        state: &State<'_>,
        _: usize,
        block: &Block<'_>,
        moment: &Moment,
    ) -> Vec<GenerationFill> {
        let generation = CountedGenerations::current(state).max(caught_up(block));
        let last = cleared_for(generation);
        let both = [last, BOTH & !last].into_iter().zip(0..);
        let fill = |(buffer, age)| {
            let (used, cells) = buffers::used(block, buffer);
            let began = self.generations.began(state, &moment.totals, age);
            GenerationFill { began, used, cells }
        };
        both.map(fill).collect()
    }

    /// Computed from the inserts that each buffer has taken; the fill of both gives the share of
    /// new keys among them.
    fn estimated_fpr(
        &self,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        sample: &Sample,
    ) -> f64 {
        let Some(bank) = state.bank(0) else {
            return 0.0;
        };
        let open = CountedGenerations::open_inserts(state, &moment.totals) as f64;
        let window = self.plan.window as f64;
        let inserts = self.scheme.inserts(CountedGenerations::current(state), window, open);
        let bits = buffer_bits(layout, bank.geometry);
        let share = theory::distinct_share(sample.fill(), inserts, bits, self.plan.k);
        self.fpr(layout, bank.geometry, inserts.map(|inserts| share * inserts))
    }

    /// Returns the rate just before a swap, when it is highest, with distinct keys.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let window = self.plan.window as f64;
        let inserts = self.scheme.inserts(1, window, window);
        self.fpr(layout, layout.geometry(self.first_words()), inserts)
    }

    /// A step is a swap (or, for double buffering, once, the beginning of the warm-up).
    fn events(&self) -> Option<&dyn Events> {
        Some(&self.generations)
    }

    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        Some(self)
    }

    fn inference(&self) -> Option<&dyn Inference> {
        Some(self)
    }
}

impl SingleBlock for Buffering {
    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        buffers::fetch(block, self.plan.k, hash);
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        // Another thread may have swapped since the step was read, and written here first.
        let generation = operation.step.max(caught_up(block));
        let written = self.scheme.written(generation);
        buffers::insert(block, self.plan.k, generation, written, operation.hash);
    }

    #[inline]
    fn contains(&self, state: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        let generation = CountedGenerations::current(state).max(caught_up(block));
        let found = buffers::found(block, self.plan.k, generation, query.hash);
        found & self.scheme.asked(generation) != 0
    }

    fn settle(&self, state: &State<'_>, block: &Block<'_>, _: &Moment) {
        buffers::catch_up(block, CountedGenerations::current(state));
    }
}
