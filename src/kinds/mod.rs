//! The filter algorithms, each a pure function over blocks.
//!
//! A kind never sees files, clocks, locks or global randomness. It is asked before each insert whether
//! an event is due, decides what the record of an operation says, and applies records: live, in replay
//! and in repair by the same code. So the state is a pure function of the parameters and the records.
//!
//! A new kind is a folder here and a line in [`registry`].

pub mod age_partitioned;
pub mod bloom;
mod columns;
#[cfg(test)]
pub(crate) mod conformance;
pub mod parameters;
pub mod registry;
pub mod state;
pub mod time_limited;

pub use parameters::Parameters;
pub use state::{BankEntry, State};

use crate::cells::{Block, Blocks, Geometry, Layout};
use std::fmt::Debug;

/// Microseconds since the Unix epoch.
pub type Micros = u64;

/// A set of bank slots, one bit each.
pub type BankMask = u8;

/// Filter-wide sums, as read: another thread's latest insert may be missing, never one too many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Insert operations applied since creation.
    pub inserts: u64,
    /// The sum of [`Kind::novelty`] over all inserts since creation.
    pub novelty: u64,
}

/// A change of the filter-wide state. It is recorded before it is applied, carries absolute values, and
/// is applied as a maximum, so that applying it twice is applying it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The filter enters `step` (generation, epoch, tick).
    Step {
        /// The step entered.
        step: u64,
        /// When.
        time: Micros,
        /// What else the kind wants to know at replay.
        word: u64,
    },
    /// A bank begins; it holds slices of steps from `since` on.
    OpenBank {
        /// The bank's number, from [`State::next_bank`]; never used again.
        id: u32,
        /// Its size.
        geometry: Geometry,
        /// The first step that it serves.
        since: u64,
        /// When.
        time: Micros,
    },
    /// A bank ends: nothing in it is alive any more.
    CloseBank {
        /// The bank's number.
        id: u32,
        /// When.
        time: Micros,
    },
}

/// What is known when an insert is decided.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The key's own time; it may lie before `now`.
    pub time: Micros,
    /// The filter's time.
    pub now: Micros,
    /// Sums over the filter: exact where an event is made of them, else perhaps a little too high.
    pub totals: Totals,
}

/// What a kind decided about an insert, before its record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Insert under this step.
    Insert {
        /// The step (generation, tick, …) that the record carries.
        step: u64,
    },
    /// The key's time lies before the window: nothing is changed.
    TooLate,
}

/// An insert as its record tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The key's hash.
    pub hash: u64,
    /// The step that was decided.
    pub step: u64,
    /// The key's time.
    pub time: Micros,
}

/// A question about one key.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// The key's hash.
    pub hash: u64,
    /// The time at which it is asked.
    pub now: Micros,
    /// Sums over the filter; for [`Kind::contains`] perhaps a little too high.
    pub totals: Totals,
}

/// How far back a question reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// The last so many insert operations.
    Items(u64),
    /// The last so many microseconds.
    Time(Micros),
}

/// How long ago a key was seen: a lower bound, in the unit of the kind's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// At least so many insert operations ago.
    Items(u64),
    /// At least so many microseconds ago.
    Time(Micros),
}

/// A filter algorithm with its parameters.
///
/// Methods get blocks of any content (a query may see a block in the middle of a change, and asks again
/// when it finds out), so none may panic or index by a word it has read without masking it.
pub trait Kind: Debug + Send + Sync {
    /// The kind's name, as on the command line.
    fn name(&self) -> &'static str;

    /// All parameters, completed; [`registry::build`] gives the same kind back.
    fn parameters(&self) -> Parameters;

    /// Whether the time of operations matters to the state (it is then kept as a maximum for all threads,
    /// and read precisely).
    fn uses_time(&self) -> bool {
        false
    }

    /// Words of cells the first bank should have.
    fn first_words(&self) -> u64;

    /// The number of stripes when the user names none: enough that threads rarely meet.
    fn default_stripes(&self, block_words: u32) -> u32 {
        (self.first_words() / u64::from(block_words.max(1))).clamp(1, 64) as u32
    }

    /// Fills the filter-wide state of a new filter, which is all zero, and opens its first bank.
    fn start(&self, state: &State<'_>, layout: Layout);

    /// Whether banks may open and close after the start.
    fn changes_banks(&self) -> bool {
        false
    }

    /// Asks the processor for the words that an insert of this key will touch, before its stripe is taken.
    fn prefetch(&self, blocks: &Blocks<'_>, hash: u64) {
        let _ = (blocks, hash);
    }

    /// The event that must come before an insert at `moment`, if any. Asked again until there is none. Called
    /// without stripe 0 first, as a hint with sums that may be too high, then under it: with higher sums something
    /// must be due that is due with lower ones.
    fn due(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> Option<Event> {
        let _ = (state, layout, moment);
        None
    }

    /// Applies an event to the filter-wide state. The bank table has been updated already.
    fn apply(&self, state: &State<'_>, layout: Layout, event: &Event) {
        let _ = (state, layout, event);
    }

    /// Decides an insert.
    fn decide(&self, state: &State<'_>, moment: &Moment) -> Decision;

    /// A step to insert under although an event is due, because a stopped process holds the event up and may do so for any
    /// length of time; `None` if the insert must wait. The event may be decided already or only later: the key must not
    /// be forgotten too early in either case, and the record alone must tell what the insert does to its blocks.
    fn step_without(&self, state: &State<'_>, moment: &Moment) -> Option<u64> {
        let _ = (state, moment);
        None
    }

    /// The banks that an insert under `step` touches.
    fn touches(&self, state: &State<'_>, step: u64) -> BankMask {
        let _ = (state, step);
        1
    }

    /// How much an insert is about to change, in the kind's unit, for kinds that steer by it; it is recorded
    /// with the insert, so that sums of it are exact after a recovery.
    fn novelty(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32 {
        let _ = (state, blocks, operation);
        0
    }

    /// Applies an insert to the key's blocks (those of `touches` that `blocks` holds): catches them up to the
    /// operation's step, then sets the cells.
    ///
    /// `state` may be later than the operation (in replay, when block 0 was copied after the block):
    /// the result depends on the operation and the blocks, and on `state` only for which bank a step
    /// belongs to.
    ///
    /// Cut off anywhere by the death of its process and done again, it comes to the same as done once.
    fn insert(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation);

    /// Whether the key is in the window.
    fn contains(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> bool;

    /// Whether the kind answers [`Kind::age`] and [`Kind::contains_within`].
    fn knows_age(&self) -> bool {
        false
    }

    /// How long ago the key was seen, at least; `None` if it is not in the window.
    fn age(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age> {
        let _ = (state, blocks, query);
        None
    }

    /// Whether the key was seen within less than the window.
    fn contains_within(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool {
        let _ = within;
        self.contains(state, blocks, query)
    }

    /// Brings a private copy of a block of bank `slot` to the filter's step and into the one form in which equal
    /// logical states are equal words. What `digest` hashes.
    fn settle(&self, state: &State<'_>, slot: usize, block: &Block<'_>);

    /// The step the filter is in, where the kind has steps.
    fn step(&self, state: &State<'_>) -> Option<u64> {
        let _ = state;
        None
    }

    /// The false-positive rate when the filter is as full as planned, by theory.
    fn planned_fpr(&self, layout: Layout) -> f64;

    /// The false-positive rate to expect now, by theory, from the filter-wide state.
    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> f64;
}
