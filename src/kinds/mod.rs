//! The filter algorithms, each a pure function over blocks.
//!
//! A kind never sees files, clocks, locks or global randomness. It is asked before each insert whether
//! an event is due, decides what the record of an operation says, and applies records: live, in replay
//! and in repair by the same code. So the state is a pure function of the parameters and the records.
//!
//! A new kind is a folder here and a line in [`registry`].

pub mod age_partitioned;
pub mod bloom;
pub mod buffering;
mod columns;
#[cfg(test)]
pub(crate) mod conformance;
pub mod counting;
pub mod decaying;
pub mod decaying_optimized;
pub mod dynamic_count;
pub mod importance;
mod packed;
pub mod parameters;
pub mod registry;
mod runs;
pub mod sample;
pub mod spectral;
pub mod stable;
pub mod state;
pub mod time_limited;
pub mod timing;

pub use parameters::Parameters;
pub use sample::Sample;
pub use state::{BankEntry, State};

use self::state::SMALL_STATE_WORDS;
use crate::cells::{Block, Blocks, Geometry, Layout, load};
use crate::error::{Error, Result};
use crate::inference::{Belief, Piece};
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
    /// The sum of [`Kind::novelty`] over all inserts since creation; of kinds that weigh the number of removals.
    pub novelty: u64,
}

/// A change of the filter-wide state. It is recorded before it is applied, carries absolute values, and
/// is applied as a maximum, so that applying it twice is applying it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The filter enters `step` (generation, epoch, tick).
    Step {
        /// The step entered. One that was entered before, or 0, changes nothing: the event tells the time.
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

/// What an operation does with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The key is inserted.
    Insert,
    /// The key is removed, as often as it weighs.
    Remove,
}

/// An operation as its record tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What is done.
    pub change: Change,
    /// The key's hash.
    pub hash: u64,
    /// The step that was decided.
    pub step: u64,
    /// The key's time.
    pub time: Micros,
    /// What the key weighs: how often it counts, or how important it is. From 1 to [`MOST_WEIGHT`]; 1 for kinds that do
    /// not weigh.
    pub weight: u32,
}

/// The most that a key weighs: what a record has room for.
pub const MOST_WEIGHT: u32 = (1 << 24) - 1;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Within {
    /// The last so many insert operations.
    Items(u64),
    /// The last so many microseconds.
    Time(Micros),
}

/// How long ago a key was seen: a lower bound, in the unit of the kind's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Age {
    /// At least so many insert operations ago.
    Items(u64),
    /// At least so many microseconds ago.
    Time(Micros),
}

/// How often a key was inserted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Estimate {
    /// The count; of decaying kinds what is left of it.
    pub count: f64,
    /// Whether a cell has reached its end, so that the key may have been inserted more often.
    pub at_least: bool,
}

impl Estimate {
    /// Whether the key may have been inserted so often.
    #[must_use]
    pub fn holds(&self, times: u32) -> bool {
        self.at_least || self.count >= f64::from(times)
    }
}

/// How many times the planned false-positive rate is too much. Twice is beyond what chance does to a filter that is as full as
/// planned, and with ten hash functions reached at 1.1 to 1.2 times the keys.
pub const TOO_FULL: f64 = 2.0;

/// A figure that [`Stat`](crate::Stat) tells of some kinds: the sum of one own word of all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Its name, as `ebbtide stat` prints it.
    pub name: &'static str,
    /// Which of the blocks' own words.
    pub own: usize,
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

    /// The size of the first bank.
    fn geometry(&self, layout: Layout) -> Geometry {
        layout.geometry(self.first_words())
    }

    /// The number of stripes when the user names none: enough that threads rarely meet.
    fn default_stripes(&self, block_words: u32) -> u32 {
        (self.first_words() / u64::from(block_words.max(1))).clamp(1, 64) as u32
    }

    /// Words of the filter-wide state that it uses: the table of banks, and its own ones.
    fn state_words(&self) -> usize {
        SMALL_STATE_WORDS
    }

    /// Fills the filter-wide state of a new filter, which is all zero, and opens its first bank.
    fn start(&self, state: &State<'_>, layout: Layout) {
        let geometry = self.geometry(layout);
        state.apply_banks(&Event::OpenBank { id: state.next_bank(), geometry, since: 0, time: 0 });
    }

    /// Whether an operation that was cut off anywhere may simply be done again, with the same result. Else all its changes go
    /// through `Block::set_word` and `Block::set_own`, in one block of the first bank, so that they can be taken back.
    fn repeatable(&self) -> bool {
        false
    }

    /// Whether decisions and answers need the sums over the filter as they are, not a little too high.
    fn counts_inserts(&self) -> bool {
        false
    }

    /// Whether blocks begin small and get room when they need it: see [`Kind::room`].
    fn grows(&self) -> bool {
        false
    }

    /// How many of its words of cells a block must have room for before this operation is applied. Asked of kinds that
    /// [grow](Kind::grows) only; the others' blocks have all their room from the start. What a block has once had room for it
    /// need not keep: words beyond what [`Kind::room_now`] says may be zero again at any time.
    fn room(&self, block: &Block<'_>, operation: &Operation) -> usize {
        let _ = operation;
        block.cells.len()
    }

    /// How many of its words of cells a block uses as it is; all beyond are zero.
    fn room_now(&self, block: &Block<'_>) -> usize {
        block.cells.len()
    }

    /// Words of cells in use when the filter is as full as planned: what `plan` counts as memory. All there are, but for kinds that
    /// [grow](Kind::grows), which say what their blocks are expected to need by then.
    fn planned_words(&self, layout: Layout) -> u64 {
        layout.words(self.geometry(layout))
    }

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

    /// The step of an insert that [`Kind::decide`] has placed in `step` and whose time is before the filter's, in view of the
    /// blocks that this step touches: the same, or the filter's own.
    fn step_of_late(&self, state: &State<'_>, blocks: &Blocks<'_>, hash: u64, step: u64) -> u64 {
        let _ = (state, blocks, hash);
        step
    }

    /// How far a key's time may lie ahead of an event that ends its key's step and that was decided at the same moment by somebody
    /// who did not know of it. An insert whose time is further ahead of what stripe 0 knows first tells it there. Without
    /// limit where events end no step before its time.
    fn grace(&self) -> Micros {
        Micros::MAX
    }

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

    /// Whether keys have a weight, a count or an importance, that the record keeps (in place of the novelty).
    fn weighs(&self) -> bool {
        false
    }

    /// The weight of a key from what the user says of it, a count or an importance.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind does not weigh, [`Error::Parameter`] for a number that is no weight.
    fn weight(&self, given: f64) -> Result<u32> {
        let _ = given;
        Err(Error::Unsupported { kind: self.name(), operation: "a weight" })
    }

    /// Whether keys can be removed. Only kinds that [weigh](Kind::weighs) do: removals are counted in place of the novelty.
    fn removes(&self) -> bool {
        false
    }

    /// Applies an insert to the key's blocks (those of `touches` that `blocks` holds): catches them up to the
    /// operation's step, then sets the cells.
    ///
    /// `state` may be later than the operation (in replay, when block 0 was copied after the block):
    /// the result depends on the operation and the blocks, and on `state` only for which bank a step
    /// belongs to.
    fn insert(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation);

    /// Applies a removal, for kinds that [remove](Kind::removes); [`Kind::estimate`] has said that the key may be there so often.
    fn remove(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) {
        let _ = (state, blocks, operation);
    }

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

    /// The window of [`Kind::contains`], in which posteriors are asked by default; `None` for kinds that have no
    /// [evidence](Kind::evidence).
    fn window(&self, totals: &Totals) -> Option<Within> {
        let _ = totals;
        None
    }

    /// The age of the filter's first insert, or one that is above it, in the unit of [`Kind::window`]: no key is older, but for
    /// those that were never inserted.
    fn history(&self, state: &State<'_>, query: &Query) -> u64 {
        let _ = state;
        query.totals.inserts
    }

    /// Tells how likely the key's cells are to be as they are at each age, piece by piece from the youngest age on, and at last for
    /// all ages that they know nothing of. Ages are in the unit of [`Kind::window`].
    fn evidence(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let _ = (state, blocks, query, belief, tell);
    }

    /// How often the key was inserted; `None` for kinds that do not count.
    fn estimate(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Estimate> {
        let _ = (state, blocks, query);
        None
    }

    /// What an estimate of a decaying kind is multiplied by to be a frequency: the mean over the inserts of an epoch if they go on
    /// as they were.
    fn normaliser(&self) -> Option<f64> {
        None
    }

    /// Brings a private copy of a block of bank `slot` to the filter's step, at `moment`, and into the one form in which equal
    /// logical states are equal words. What `digest` hashes.
    fn settle(&self, state: &State<'_>, slot: usize, block: &Block<'_>, moment: &Moment);

    /// The step the filter is in, where the kind has steps.
    fn step(&self, state: &State<'_>, moment: &Moment) -> Option<u64> {
        let _ = (state, moment);
        None
    }

    /// How many cells of a settled block are in use, and how many there are: what `stat` calls the fill.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let set = block.cells.iter().map(|word| u64::from(load(word).count_ones())).sum();
        (set, block.cells.len() as u64 * 64)
    }

    /// Figures of its own.
    fn figures(&self) -> &'static [Figure] {
        &[]
    }

    /// The false-positive rate when the filter is as full as planned, by theory.
    fn planned_fpr(&self, layout: Layout) -> f64;

    /// The false-positive rate of keys whose block of bank `slot` this settled one is, by its cells, for kinds whose estimate
    /// asks for it.
    fn block_fpr(&self, state: &State<'_>, slot: usize, block: &Block<'_>, moment: &Moment) -> f64 {
        let _ = (state, slot, block, moment);
        0.0
    }

    /// The false-positive rate to expect now, by theory, from the filter-wide state or from what blocks tell.
    fn estimated_fpr(
        &self,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        sample: &Sample,
    ) -> f64;

    /// Whether the filter is clearly fuller than planned: the rate to expect is more than [`TOO_FULL`] times the planned one.
    fn is_saturated(
        &self,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        sample: &Sample,
    ) -> bool {
        self.estimated_fpr(state, layout, moment, sample) > TOO_FULL * self.planned_fpr(layout)
    }
}
