//! What only some kinds have: a trait each, which [`Describe`](super::Describe) returns.

use super::parameters::whole_count;
use super::{Age, Estimate, Event, Micros, Moment, Operation, Query, State, Totals, Within};
use crate::block::{Block, Blocks, Layout};
use crate::error::Result;
use crate::inference::{Belief, Piece};
use std::fmt::Debug;

/// The events of a kind with generations: steps, and banks that open and close.
pub trait Events {
    /// Returns the event that must come before an insert at `moment`, if any. The caller repeats
    /// the call until it returns `None`. The first call is made without stripe 0, as a hint, with
    /// sums that may be too high; the next ones under it. An event that is due at some sums must
    /// therefore also be due at higher ones.
    fn due(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> Option<Event>;

    /// Applies an event to the filter-wide state. The bank table has been updated already.
    fn apply(&self, state: &State<'_>, layout: Layout, event: &Event);

    /// Returns a step to insert under although an event is due, because a stopped process delays
    /// the event for an unbounded time; `None` if the insert must wait. The event may have been
    /// decided already or may be decided later. In either case the key must not expire too early,
    /// and the record alone must determine what the insert does to its blocks.
    fn step_without(&self, state: &State<'_>, moment: &Moment) -> Option<u64> {
        let _ = (state, moment);
        None
    }

    /// A process that does not know a key's time may decide, at the same time, the event that ends
    /// the key's step. Returns by how much the key's time may then be later than that event. An
    /// insert that is further ahead of the time in stripe 0 first records its time there. Unlimited
    /// where events end no step before its time.
    fn grace(&self) -> Micros {
        Micros::MAX
    }
}

/// How long ago keys were seen, for kinds that keep it.
pub trait KeyAges {
    /// Returns a lower bound of the key's age; `None` if it is not in the window.
    fn age(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age>;

    /// Returns whether the key was seen within a part of the window; never within one of length 0.
    fn contains_within(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool;
}

/// The evidence of a key's cells, for kinds with posteriors.
pub trait Inference: Debug {
    /// Returns the window of [`Kind::contains`](super::Kind::contains), to which posteriors refer
    /// by default.
    fn window(&self, totals: &Totals) -> Within;

    /// Returns the age of the filter's first insert, or an upper bound of it, in the unit of
    /// [`Inference::window`]. No key is older, except those that were never inserted.
    fn history(&self, state: &State<'_>, query: &Query) -> u64 {
        let _ = state;
        query.totals.inserts
    }

    /// Returns the age from which on a key with these blocks counts as never inserted; at most
    /// [`Inference::history`]. Less than that where few keys only can be as old, and these blocks
    /// do not look as if they had such a key.
    fn history_of(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> u64 {
        let _ = blocks;
        self.history(state, query)
    }

    /// Passes to `tell` how likely the key's cells are to be as they are at each age, piece by
    /// piece from the youngest age on. The last piece covers all ages about which the cells contain
    /// no information. Ages are in the unit of [`Inference::window`].
    fn evidence(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    );
}

/// How often keys were inserted, for kinds that count: permanently, or with counts that decay. They
/// have one bank.
pub trait KeyCounts {
    /// Returns how often the key was inserted.
    fn estimate(&self, state: &State<'_>, block: &Block<'_>, query: &Query) -> Estimate;

    /// Returns the factor that turns an estimate of a decaying kind into a frequency: the mean over
    /// the inserts of an epoch if they continue at the same rate.
    fn normaliser(&self) -> Option<f64> {
        None
    }

    /// Returns the weight that fills every counter of a key, whatever they held, for kinds whose
    /// full counters remember nothing of what was added beyond: a greater weight leaves the same
    /// counters. `None` if a greater weight may make a difference.
    fn fills(&self) -> Option<u64> {
        None
    }
}

/// The removal of keys, for kinds that count and support it.
pub trait Removal: KeyCounts {
    /// Applies a removal to the key's block. The caller has checked with [`KeyCounts::estimate`]
    /// that the key may be contained that often.
    fn remove(&self, block: &Block<'_>, operation: &Operation);
}

/// The weights of keys: a count or an importance.
pub trait KeyWeights {
    /// Returns the weight of a key from the count or importance that the caller passes.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) for a number that is not a weight.
    fn weight(&self, given: f64) -> Result<u64>;
}

/// Weights that are counts: whole numbers from 1 to [`MOST_COUNT`](super::MOST_COUNT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeCounts;

impl KeyWeights for WholeCounts {
    fn weight(&self, given: f64) -> Result<u64> {
        whole_count(given)
    }
}

/// The growth of blocks. The blocks of other kinds have all their room from the start.
pub trait Growth {
    /// Returns for how many of its words of cells a block must have room before this operation is
    /// applied. Room beyond [`Growth::room_now`] may be taken away again; its words then read as
    /// zero.
    fn room(&self, block: &Block<'_>, operation: &Operation) -> usize;

    /// Returns how many of its words of cells a block uses now; all words beyond are zero.
    fn room_now(&self, block: &Block<'_>) -> usize;

    /// Returns the words of cells that the blocks are expected to need when the filter is as full
    /// as planned.
    fn planned_words(&self, layout: Layout) -> u64;
}
