//! What a filter algorithm is: the trait [`Kind`] and its parts.
//!
//! A kind never sees files, clocks, locks or global randomness. Before each insert the engine
//! queries it for an event that is due. The kind decides the content of an operation's record and
//! applies records: live, in replay and in repair by the same code. The state is therefore a pure
//! function of the parameters and the records.
//!
//! | trait | states | implemented by |
//! |---|---|---|
//! | [`Describe`] | parameters, size, expected rates, which parts there are | every kind |
//! | [`SingleBlock`] | inserts and queries in a key's only block | kinds with one bank |
//! | [`Kind`] | inserts and queries in a key's blocks of all banks | kinds whose banks change |
//! | [`Events`] | changes of the filter-wide state | kinds with generations |
//! | [`KeyAges`] | how long ago a key was seen | kinds that keep it |
//! | [`Inference`] | the evidence of a key's cells about its age | kinds with posteriors |
//! | [`DistinctKeys`] | how many distinct keys a window has | kinds whose cells say it |
//! | [`KeyCounts`] | how often a key was inserted | kinds that count |
//! | [`Removal`] | the removal of a key | some kinds that count |
//! | [`KeyWeights`] | the weight of a key | kinds of counts or importance |
//! | [`Growth`] | the room that a block needs now | kinds whose blocks start small |
//!
//! A simple kind implements [`Describe`] and [`SingleBlock`], which makes it a [`Kind`]; the other
//! parts are optional, and [`Describe`] returns them. A new kind is a folder in [`crate::kinds`]
//! and a line in its registry.

mod answer;
mod capabilities;
pub mod copy;
pub mod decide;
mod describe;
pub mod distinct_in_block;
pub mod distinct_query;
pub mod events_first;
mod generation_fill;
mod generations;
mod operation;
pub mod parameters;
pub mod posterior;
pub mod records;
pub mod request;
pub mod sample;
mod single_block;
pub mod split_weight;

pub use crate::event::{Event, Micros};
pub use crate::state::{BankEntry, BankMask, State};
pub use answer::{Age, Cardinality, Estimate, Within};
pub use capabilities::{
    Events, Growth, Inference, KeyAges, KeyCounts, KeyWeights, Removal, WholeCounts,
};
pub use describe::{Describe, KindMetric, PlannedPart, TOO_FULL};
pub use distinct_in_block::{ComparedBanks, DistinctKeys};
pub use generation_fill::GenerationFill;
pub use generations::CountedGenerations;
pub use operation::{Change, Decision, MOST_COUNT, MOST_WEIGHT, Moment, Operation, Query, Totals};
pub use parameters::Parameters;
pub use request::{Admission, Checked, Precondition, Request, Since, WritePlan};
pub use sample::Sample;
pub use single_block::SingleBlock;

use crate::block::{Block, Blocks, Layout};
use crate::log_record::ARGUMENT_MAX;
use crate::state::SMALL_STATE_WORDS;

/// A filter algorithm with its parameters, as the engine calls it for every operation.
///
/// Methods must accept blocks of any content: a query may see a block in the middle of a change,
/// and repeats when it detects this. No method may panic, or index by a word it has read without
/// masking it.
///
/// Kinds with one bank implement [`SingleBlock`] instead.
pub trait Kind: Describe {
    /// Returns the words of the filter-wide state that the kind uses: the table of banks, and its
    /// kind words.
    fn state_words(&self) -> usize {
        SMALL_STATE_WORDS
    }

    /// Fills the filter-wide state of a new filter, which is all zero, and opens its first bank.
    fn start(&self, state: &State<'_>, layout: Layout) {
        let geometry = self.geometry(layout);
        state.apply_banks(&Event::OpenBank { id: state.next_bank(), geometry, since: 0, time: 0 });
    }

    /// Returns whether banks may open and close after the start.
    fn changes_banks(&self) -> bool {
        false
    }

    /// Prefetches the words that an insert of this key will touch, before its stripe is acquired.
    fn prefetch(&self, blocks: &Blocks<'_>, hash: u64);

    /// Prefetches more words that an insert of this key will probably touch. It finds them by
    /// reading the words that [`Kind::prefetch`] has fetched. Called for keys that are inserted
    /// together, when [`Kind::prefetch`] has been called for all of them.
    fn prefetch_further(&self, blocks: &Blocks<'_>, hash: u64) {
        let _ = (blocks, hash);
    }

    /// Decides the step of an insert, or rejects it as too late.
    fn decide(&self, state: &State<'_>, moment: &Moment) -> Decision;

    /// [`Kind::decide`] chose `step` for an insert whose time is before the filter's. Returns that
    /// step or the filter's current one, depending on the key's blocks.
    fn step_of_late(&self, state: &State<'_>, blocks: &Blocks<'_>, hash: u64, step: u64) -> u64 {
        let _ = (state, blocks, hash);
        step
    }

    /// Returns the banks that an insert under `step` touches.
    fn touches(&self, state: &State<'_>, step: u64) -> BankMask {
        let _ = (state, step);
        1
    }

    /// Returns whether the record of an insert depends on the key's blocks, by [`Kind::new_bits`]
    /// or [`Kind::step_of_late`]. If not, many inserts can be recorded before any of them is
    /// applied.
    fn measures(&self) -> bool {
        true
    }

    /// Returns how much an insert is about to change, in the kind's unit, for kinds that steer by
    /// it. The value is recorded with the insert, so that its sums are exact after a recovery.
    fn new_bits(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32;

    /// Applies an insert to the key's blocks (those of `touches` that `blocks` holds): catches them
    /// up to the operation's step, then sets the cells.
    ///
    /// `state` may be later than the operation (in replay, when the state block was copied after
    /// the block). The result depends on the operation and the blocks, and on `state` only for
    /// the bank that a step belongs to.
    fn insert(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation);

    /// Returns whether the key is in the window.
    fn contains(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> bool;

    /// Returns whether [`Kind::insert_and_check`] answers, so that no query is needed before it.
    fn checks_on_insert(&self) -> bool {
        false
    }

    /// As [`Kind::insert`]; also returns what [`Kind::contains`] returned just before, for an
    /// insert in the current step. `new_bits` is what [`Kind::new_bits`] returned for it.
    fn insert_and_check(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        operation: &Operation,
        new_bits: u32,
    ) -> bool {
        let _ = new_bits;
        self.insert(state, blocks, operation);
        false
    }

    /// Brings a private copy of a block of bank `slot` to the filter's step, at `moment`, and into
    /// its canonical form, in which equal logical states are equal words. `digest` hashes the
    /// result.
    fn settle(&self, state: &State<'_>, slot: usize, block: &Block<'_>, moment: &Moment);

    /// Returns the false-positive rate of the keys of one settled block of bank `slot`, computed
    /// from its cells, for kinds whose estimate needs it.
    fn block_fpr(&self, state: &State<'_>, slot: usize, block: &Block<'_>, moment: &Moment) -> f64 {
        let _ = (state, slot, block, moment);
        0.0
    }

    // No kind overrides the following. As methods of this trait they are compiled for each kind,
    // where its parts are known: a call through `dyn Kind` is one virtual call, not two.

    /// Returns the plan of an insert without a precondition, at the filter's time or a clock's.
    fn plan(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> WritePlan {
        let decision = self.decide(state, moment);
        let mask = match decision {
            Decision::Insert { step } => self.touches(state, step),
            Decision::TooLate => 0,
        };
        let due = self.due(state, layout, moment).is_some();
        let is_checked_on_insert = mask != 0 && !due && self.checks_on_insert();
        let present = (!is_checked_on_insert).then_some(false);
        WritePlan { decision, mask, present, due }
    }

    /// Returns the argument of an operation's record: its weight, or the new bits.
    fn argument(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32 {
        if self.weights().is_some() {
            operation.weight
        } else {
            self.new_bits(state, blocks, operation).min(ARGUMENT_MAX)
        }
    }

    /// Returns the event that must come before an insert at `moment`: [`Events::due`].
    fn due(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> Option<Event> {
        self.events()?.due(state, layout, moment)
    }

    /// Returns how often the key was inserted ([`KeyCounts::estimate`]); `None` for kinds that do
    /// not count.
    fn estimate(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Estimate> {
        Some(self.counts()?.estimate(state, blocks.get(0)?, query))
    }

    /// Applies a removal ([`Removal::remove`]); kinds without removals change nothing.
    fn remove(&self, blocks: &Blocks<'_>, operation: &Operation) {
        if let (Some(removal), Some(block)) = (self.removal(), blocks.get(0)) {
            removal.remove(block, operation);
        }
    }
}
