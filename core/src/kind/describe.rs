//! What a kind is, apart from its operations: parameters, size, expected rates, capabilities.

use super::{
    DistinctKeys, Events, GenerationFill, Growth, Inference, KeyAges, KeyCounts, KeyWeights,
    Micros, Moment, Parameters, Removal, Sample, State, WholeCounts,
};
use crate::block::UndoRoom;
use crate::block::{Block, Geometry, Layout, load};
use crate::error::{Error, Result};
use std::fmt::Debug;

/// The ratio of the expected to the planned false-positive rate above which a filter is saturated.
/// A filter that is as full as planned does not reach twice the rate by chance, unless it is
/// planned for fewer than some 50 keys. With ten hash functions it is reached at 1.1 to 1.2 times
/// the planned number of keys.
pub const TOO_FULL: f64 = 2.0;

/// A kind metric that `Stat` reports for some kinds: the sum of one kind word over all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindMetric {
    /// The metric's name, as `ebbtide stat` prints it.
    pub name: &'static str,
    /// The index of the kind word in the block's header.
    pub word: usize,
}

/// A part of a planned filter's memory, and the rate for which it is needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedPart {
    /// The part's name.
    pub name: &'static str,
    /// Bits of memory.
    pub bits: f64,
    /// The parameter that this part keeps, together with the parts before it.
    pub keeps: &'static str,
    /// The expected value of that parameter when the filter is as full as planned.
    pub rate: f64,
}

/// The description of a kind with its parameters.
pub trait Describe: Debug + Send + Sync {
    /// Returns the kind's name, as on the command line.
    fn name(&self) -> &'static str;

    /// Returns all parameters, completed; [`registry::build`](crate::kinds::registry::build) builds
    /// the same kind from them.
    fn parameters(&self) -> Parameters;

    /// Returns whether the time of operations affects the state. The time is then kept as a maximum
    /// over all threads, and read precisely.
    fn uses_time(&self) -> bool {
        false
    }

    /// Returns whether decisions and answers need the exact sums over the filter, not sums that may
    /// be slightly too high.
    fn counts_inserts(&self) -> bool {
        false
    }

    /// Returns the room for the notes by which an operation is undone that was interrupted, before
    /// it is applied again. All changes must go through the methods of [`Block`], in one block.
    /// [`UndoRoom::Notes`] for kinds that make changes of many words in parts
    /// ([`Undo::keep`](crate::block::undo_log::Undo::keep)). [`UndoRoom::None`] for kinds whose
    /// operations are idempotent: interrupted anywhere, they may be applied again with the same
    /// result.
    fn undo_room(&self) -> UndoRoom {
        UndoRoom::Block
    }

    /// Returns the number of words of cells that the first bank should have.
    fn first_words(&self) -> u64;

    /// Returns the size of the first bank.
    fn geometry(&self, layout: Layout) -> Geometry {
        layout.geometry(self.first_words())
    }

    /// Returns the target size of a block in words if the user names none.
    fn default_block_words(&self) -> u32 {
        Layout::PLANNED_BLOCK_WORDS
    }

    /// Returns the number of stripes if the user names none: enough that threads rarely contend.
    fn default_stripes(&self, block_words: u32) -> u32 {
        (self.first_words() / u64::from(block_words.max(1))).clamp(1, 64) as u32
    }

    /// Returns the filter's current step, for kinds that have steps.
    fn step(&self, state: &State<'_>, moment: &Moment) -> Option<u64> {
        let _ = (state, moment);
        None
    }

    /// Returns how many cells of a settled block are in use, and how many there are: `stat` reports
    /// them as the fill.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let set = block.cells.iter().map(|word| u64::from(load(word).count_ones())).sum();
        (set, block.cells.len() as u64 * 64)
    }

    /// Returns the cells of a settled block of bank `slot` by generation, the open one first; empty
    /// for kinds without generations. All blocks of a filter have the same generations at the same
    /// moment.
    fn generation_fills(
        &self,
        state: &State<'_>,
        slot: usize,
        block: &Block<'_>,
        moment: &Moment,
    ) -> Vec<GenerationFill> {
        let _ = (state, slot, block, moment);
        Vec::new()
    }

    /// Returns the metrics of this kind.
    fn metrics(&self) -> &'static [KindMetric] {
        &[]
    }

    /// Returns the false-positive rate when the filter is as full as planned, by theory.
    fn planned_fpr(&self, layout: Layout) -> f64;

    /// Returns the parts of the memory that different parameters determine, which `plan` prints;
    /// empty if one rate determines all.
    fn planned_parts(&self, layout: Layout) -> Vec<PlannedPart> {
        let _ = layout;
        Vec::new()
    }

    /// Returns the false-positive rate to expect now, by theory, from the filter-wide state or from
    /// the sampled blocks.
    fn estimated_fpr(
        &self,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        sample: &Sample,
    ) -> f64;

    /// Returns the limit of memory that a filter keeps which would otherwise grow, in bytes: of its
    /// banks with all that an image has besides.
    fn max_memory(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes that the kind itself has allocated, for tables that each filter has.
    fn table_bytes(&self) -> usize {
        0
    }

    /// Returns the least such limit in this layout; 0 for kinds that do not grow.
    fn least_max_memory(&self, _: Layout) -> u64 {
        0
    }

    /// Returns whether the filter is saturated: the expected rate is more than [`TOO_FULL`] times
    /// the planned one.
    fn is_saturated(
        &self,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        sample: &Sample,
    ) -> bool {
        self.estimated_fpr(state, layout, moment, sample) > TOO_FULL * self.planned_fpr(layout)
    }

    /// Returns the events of this kind, if it has generations.
    fn events(&self) -> Option<&dyn Events> {
        None
    }

    /// Returns the queries for ages.
    fn ages(&self) -> Option<&dyn KeyAges> {
        None
    }

    /// Returns the evidence for posteriors.
    fn inference(&self) -> Option<&dyn Inference> {
        None
    }

    /// Returns the number of distinct keys.
    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        None
    }

    /// Returns the queries for counts.
    fn counts(&self) -> Option<&dyn KeyCounts> {
        None
    }

    /// Returns the removal of keys. Only kinds that count have it: removals are counted in place of
    /// the new bits.
    fn removal(&self) -> Option<&dyn Removal> {
        None
    }

    /// Returns the weights of keys, which the record stores in place of the new bits. Kinds that
    /// count take [`WholeCounts`].
    fn weights(&self) -> Option<&dyn KeyWeights> {
        self.counts().map(|_| &WholeCounts as &dyn KeyWeights)
    }

    /// Returns the growth of blocks, if they start small.
    fn growth(&self) -> Option<&dyn Growth> {
        None
    }

    /// Returns the weight of a key from the count or importance that the caller passes. No kind
    /// overrides this.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind has no [weights](Describe::weights), otherwise those of
    /// [`KeyWeights::weight`].
    fn weight(&self, given: f64) -> Result<u64> {
        let unsupported = Error::Unsupported { kind: self.name(), operation: "a weight" };
        self.weights().ok_or(unsupported)?.weight(given)
    }

    /// Returns [`Events::grace`]; unlimited for kinds without events. No kind overrides this.
    fn grace(&self) -> Micros {
        self.events().map_or(Micros::MAX, Events::grace)
    }

    /// Returns the words of cells in use when the filter is as full as planned, which `plan` counts
    /// as memory: all words, except for kinds with [`Growth`]. No kind overrides this.
    fn planned_words(&self, layout: Layout) -> u64 {
        match self.growth() {
            Some(growth) => growth.planned_words(layout),
            None => layout.words(self.geometry(layout)),
        }
    }
}
