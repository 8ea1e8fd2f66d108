//! What a filter algorithm is: the trait [`Kind`], and what is said to it and by it.
//!
//! A kind never sees files, clocks, locks or global randomness. Before each insert the engine
//! queries it for an event that is due. The kind decides the content of an operation's record and
//! applies records: live, in replay and in repair by the same code. The state is therefore a pure
//! function of the parameters and the records.
//!
//! A new kind is a folder in [`crate::kinds`] and a line in its registry.

pub mod copy;
pub mod parameters;
pub mod plan;
pub mod posterior;
pub mod records;
pub mod request;
pub mod sample;

pub use crate::event::{Event, Micros};
pub use crate::state::{BankEntry, BankMask, State};
pub use parameters::Parameters;
pub use request::{Admission, Checked, Precondition, Request, Since};
pub use sample::Sample;

use crate::block::{Block, Blocks, Geometry, Layout, load};
use crate::error::{Error, Result};
use crate::inference::{Belief, Piece};
use crate::state::SMALL_STATE_WORDS;
use std::fmt::Debug;

/// Filter-wide sums, as read: another thread's latest insert may be missing, but no insert is
/// counted too often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Insert operations applied since creation.
    pub inserts: u64,
    /// The sum of [`Kind::new_bits`] over all inserts since creation; for kinds that weigh, the
    /// number of removals.
    pub new_bits: u64,
}

/// The times and sums from which an insert is decided.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The key's own time, which may lie before `now`.
    pub time: Micros,
    /// The filter's time.
    pub now: Micros,
    /// Sums over the filter: exact if they decide an event, otherwise possibly slightly too high.
    pub totals: Totals,
}

/// A kind's decision about an insert, made before its record is written.
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

/// The change that an operation makes for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The key is inserted.
    Insert,
    /// The key is removed as many times as its weight.
    Remove,
}

/// An operation as stored in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The change that is made.
    pub change: Change,
    /// The key's hash.
    pub hash: u64,
    /// The step that was decided.
    pub step: u64,
    /// The key's time.
    pub time: Micros,
    /// The key's weight: how often it counts, or how important it is. From 1 to [`MOST_WEIGHT`]; 1
    /// for kinds that do not weigh.
    pub weight: u32,
}

/// The greatest weight of a key, limited by the record's field.
pub const MOST_WEIGHT: u32 = (1 << 24) - 1;

/// A question about one key.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// The key's hash.
    pub hash: u64,
    /// The time of the query.
    pub now: Micros,
    /// Sums over the filter; for [`Kind::contains`] possibly slightly too high.
    pub totals: Totals,
}

/// How far back a query reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Within {
    /// This number of latest insert operations.
    Items(u64),
    /// This number of latest microseconds.
    Time(Micros),
}

/// How long ago a key was seen: a lower bound, in the unit of the kind's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Age {
    /// At least this number of insert operations ago.
    Items(u64),
    /// At least this number of microseconds ago.
    Time(Micros),
}

/// How often a key was inserted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Estimate {
    /// The count; for decaying kinds the part of it that remains.
    pub count: f64,
    /// Whether a cell is saturated, so that the key may have been inserted more often.
    pub at_least: bool,
}

impl Estimate {
    /// Returns whether the key may have been inserted at least `times` times.
    #[must_use]
    #[inline]
    pub fn holds(&self, times: u32) -> bool {
        self.at_least || self.count >= f64::from(times)
    }
}

/// The ratio of the expected to the planned false-positive rate above which a filter is saturated.
/// A filter that is as full as planned does not reach twice the rate by chance. With ten hash
/// functions it is reached at 1.1 to 1.2 times the planned number of keys.
pub const TOO_FULL: f64 = 2.0;

/// A kind metric that `Stat` reports for some kinds: the sum of one kind word over
/// all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// The metric's name, as `ebbtide stat` prints it.
    pub name: &'static str,
    /// The index of the kind word in the block's header.
    pub own: usize,
}

/// A filter algorithm with its parameters.
///
/// Methods must accept blocks of any content: a query may see a block in the middle of a change,
/// and repeats when it detects this. No method may panic, or index by a word it has read without
/// masking it.
pub trait Kind: Debug + Send + Sync {
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

    /// Returns the number of words of cells that the first bank should have.
    fn first_words(&self) -> u64;

    /// Returns the size of the first bank.
    fn geometry(&self, layout: Layout) -> Geometry {
        layout.geometry(self.first_words())
    }

    /// Returns the number of stripes if the user names none: enough that threads rarely contend.
    fn default_stripes(&self, block_words: u32) -> u32 {
        (self.first_words() / u64::from(block_words.max(1))).clamp(1, 64) as u32
    }

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

    /// Returns whether operations are idempotent: one that was interrupted anywhere may be applied
    /// again, with the same result. Otherwise all its changes must go through `Block::set_word` and
    /// `Block::set_own`, in one block of the first bank, so that they can be undone.
    fn idempotent(&self) -> bool {
        false
    }

    /// Returns whether decisions and answers need the exact sums over the filter, not sums that may
    /// be slightly too high.
    fn counts_inserts(&self) -> bool {
        false
    }

    /// Returns whether blocks start small and get room on demand: see [`Kind::room`].
    fn grows(&self) -> bool {
        false
    }

    /// Returns for how many of its words of cells a block must have room before this operation is
    /// applied. Called only for kinds that [grow](Kind::grows); the blocks of other kinds have all
    /// their room from the start. Room need not be kept: words beyond [`Kind::room_now`] may become
    /// zero at any time.
    fn room(&self, block: &Block<'_>, operation: &Operation) -> usize {
        let _ = operation;
        block.cells.len()
    }

    /// Returns how many of its words of cells a block uses now; all words beyond are zero.
    fn room_now(&self, block: &Block<'_>) -> usize {
        block.cells.len()
    }

    /// Returns the words of cells in use when the filter is as full as planned, which `plan` counts
    /// as memory. These are all words, except for kinds that [grow](Kind::grows), which return what
    /// their blocks are expected to need by then.
    fn planned_words(&self, layout: Layout) -> u64 {
        layout.words(self.geometry(layout))
    }

    /// Returns whether banks may open and close after the start.
    fn changes_banks(&self) -> bool {
        false
    }

    /// Prefetches the words that an insert of this key will touch, before its stripe is acquired.
    fn prefetch(&self, blocks: &Blocks<'_>, hash: u64) {
        let _ = (blocks, hash);
    }

    /// Returns the event that must come before an insert at `moment`, if any. The caller repeats
    /// the call until it returns `None`. The first call is made without stripe 0, as a hint, with
    /// sums that may be too high; the next ones under it. An event that is due at some sums must
    /// therefore also be due at higher ones.
    fn due(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> Option<Event> {
        let _ = (state, layout, moment);
        None
    }

    /// Applies an event to the filter-wide state. The bank table has been updated already.
    fn apply(&self, state: &State<'_>, layout: Layout, event: &Event) {
        let _ = (state, layout, event);
    }

    /// Decides the step of an insert, or rejects it as too late.
    fn decide(&self, state: &State<'_>, moment: &Moment) -> Decision;

    /// Returns the step of an insert whose time is before the filter's and for which
    /// [`Kind::decide`] chose `step`, in view of the blocks that this step touches. The result is
    /// `step` or the filter's current step.
    fn step_of_late(&self, state: &State<'_>, blocks: &Blocks<'_>, hash: u64, step: u64) -> u64 {
        let _ = (state, blocks, hash);
        step
    }

    /// Returns how far a key's time may lie ahead of an event that ends its key's step, if a
    /// process that did not see the key's time decided that event concurrently. An insert whose
    /// time is further ahead of the time in stripe 0 first records it there. Unlimited where events
    /// end no step before its time.
    fn grace(&self) -> Micros {
        Micros::MAX
    }

    /// Returns a step to insert under although an event is due, because a stopped process delays
    /// the event for an unbounded time; `None` if the insert must wait. The event may have been
    /// decided already or may be decided later. In either case the key must not expire too early,
    /// and the record alone must determine what the insert does to its blocks.
    fn step_without(&self, state: &State<'_>, moment: &Moment) -> Option<u64> {
        let _ = (state, moment);
        None
    }

    /// Returns the banks that an insert under `step` touches.
    fn touches(&self, state: &State<'_>, step: u64) -> BankMask {
        let _ = (state, step);
        1
    }

    /// Returns how much an insert is about to change, in the kind's unit, for kinds that steer by
    /// it. The value is recorded with the insert, so that its sums are exact after a recovery.
    fn new_bits(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32 {
        let _ = (state, blocks, operation);
        0
    }

    /// Returns whether keys have a weight, a count or an importance, which the record stores in
    /// place of the new bits.
    fn weighs(&self) -> bool {
        false
    }

    /// Returns the weight of a key from the count or importance that the caller passes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind does not weigh, [`Error::Parameter`] for a number that is
    /// not a weight.
    fn weight(&self, given: f64) -> Result<u32> {
        let _ = given;
        Err(Error::Unsupported { kind: self.name(), operation: "a weight" })
    }

    /// Returns whether keys can be removed. Only kinds that [weigh](Kind::weighs) support it:
    /// removals are counted in place of the new bits.
    fn removes(&self) -> bool {
        false
    }

    /// Applies an insert to the key's blocks (those of `touches` that `blocks` holds): catches them
    /// up to the operation's step, then sets the cells.
    ///
    /// `state` may be later than the operation (in replay, when the state block was copied after
    /// the block). The result depends on the operation and the blocks, and on `state` only for
    /// the bank that a step belongs to.
    fn insert(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation);

    /// Applies a removal, for kinds that [remove](Kind::removes). The caller has checked with
    /// [`Kind::estimate`] that the key may be contained that often.
    fn remove(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) {
        let _ = (state, blocks, operation);
    }

    /// Returns whether the key is in the window.
    fn contains(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> bool;

    /// Returns whether the kind answers [`Kind::age`] and [`Kind::contains_within`].
    fn knows_age(&self) -> bool {
        false
    }

    /// Returns a lower bound of the key's age; `None` if it is not in the window.
    fn age(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age> {
        let _ = (state, blocks, query);
        None
    }

    /// Returns whether the key was seen within a part of the window.
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

    /// Returns the window of [`Kind::contains`], to which posteriors refer by default; `None` for
    /// kinds that have no [evidence](Kind::evidence).
    fn window(&self, totals: &Totals) -> Option<Within> {
        let _ = totals;
        None
    }

    /// Returns the age of the filter's first insert, or an upper bound of it, in the unit of
    /// [`Kind::window`]. No key is older, except those that were never inserted.
    fn history(&self, state: &State<'_>, query: &Query) -> u64 {
        let _ = state;
        query.totals.inserts
    }

    /// Passes to `tell` how likely the key's cells are to be as they are at each age, piece by
    /// piece from the youngest age on. The last piece covers all ages about which the cells contain
    /// no information. Ages are in the unit of [`Kind::window`].
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

    /// Returns how often the key was inserted; `None` for kinds that do not count.
    fn estimate(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Estimate> {
        let _ = (state, blocks, query);
        None
    }

    /// Returns the factor that turns an estimate of a decaying kind into a frequency: the mean over
    /// the inserts of an epoch if they continue at the same rate.
    fn normaliser(&self) -> Option<f64> {
        None
    }

    /// Brings a private copy of a block of bank `slot` to the filter's step, at `moment`, and into
    /// its canonical form, in which equal logical states are equal words. `digest` hashes the
    /// result.
    fn settle(&self, state: &State<'_>, slot: usize, block: &Block<'_>, moment: &Moment);

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

    /// Returns the metrics of this kind.
    fn figures(&self) -> &'static [Figure] {
        &[]
    }

    /// Returns the false-positive rate when the filter is as full as planned, by theory.
    fn planned_fpr(&self, layout: Layout) -> f64;

    /// Returns the false-positive rate of the keys of one settled block of bank `slot`, computed
    /// from its cells, for kinds whose estimate needs it.
    fn block_fpr(&self, state: &State<'_>, slot: usize, block: &Block<'_>, moment: &Moment) -> f64 {
        let _ = (state, slot, block, moment);
        0.0
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
}
