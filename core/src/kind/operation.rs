//! What a kind is given and returns: moments, operations, queries, decisions.

use crate::event::Micros;

/// Filter-wide sums, as read: another thread's latest insert may be missing, but no insert is
/// counted too often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Insert operations applied since creation or the last clear.
    pub inserts: u64,
    /// The sum of [`Kind::new_bits`](super::Kind::new_bits) over all inserts since creation; for
    /// kinds with weights, the number of removals.
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
    /// for kinds without weights.
    pub weight: u32,
}

/// The greatest weight in one record, limited by its field.
pub const MOST_WEIGHT: u32 = (1 << 24) - 1;

/// The greatest count that one operation adds or removes. Above [`MOST_WEIGHT`] the operation is
/// written as several records that count together or not at all: 65,536 of them at most, and no
/// more than change something.
pub const MOST_COUNT: u64 = (MOST_WEIGHT as u64) << 16;

/// A question about one key.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// The key's hash.
    pub hash: u64,
    /// The time of the query.
    pub now: Micros,
    /// Sums over the filter; for [`Kind::contains`](super::Kind::contains) possibly slightly too
    /// high.
    pub totals: Totals,
}
