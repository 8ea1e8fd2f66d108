//! An operation as requested by the caller, and its outcome.

use ebbtide_core::kind::{self, Change, Estimate, MOST_WEIGHT, Micros, Operation};
use ebbtide_core::time::OperationTime;
use std::cell::Cell;
use std::time::Duration;

pub use ebbtide_core::kind::{Admission, Checked, Precondition, Since};

/// An operation as requested by the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// What the kind decides.
    pub(crate) asked: kind::Request,
    /// The operation's time, if it is not the clock's.
    pub(crate) time: Option<Micros>,
    /// Receives the key's count, for callers that need it.
    pub(crate) count: Option<&'a Cell<Option<Estimate>>>,
    pub(crate) waits: Waits,
}

/// Passes a key's count on to the caller, if it needs that. Returns whether the kind has counts.
#[inline]
pub(crate) fn pass_count(there: Option<Estimate>, count: Option<&Cell<Option<Estimate>>>) -> bool {
    if let (Some(_), Some(count)) = (there, count) {
        count.set(there);
    }
    there.is_some()
}

/// How long an operation waits for what it needs, before it fails with
/// [`Error::WouldWait`](crate::Error::WouldWait).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waits {
    /// As long as it takes.
    #[default]
    Always,
    /// About this long for a live owner of a lock, as long as it takes for anything else.
    AtMost(Duration),
    /// Not at all.
    Never,
}

impl Waits {
    /// Returns whether nothing may be waited for.
    #[inline]
    pub(crate) fn never(self) -> bool {
        matches!(self, Self::Never)
    }

    /// Returns what is left of it after this time.
    pub(crate) fn after(self, waited: Duration) -> Self {
        match self {
            Self::AtMost(limit) => Self::AtMost(limit.saturating_sub(waited)),
            other => other,
        }
    }
}

/// The settings of a query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Given {
    /// The time of the query, if it is not the clock's.
    pub(crate) time: Option<Micros>,
    pub(crate) waits: Waits,
}

impl Request<'static> {
    /// Creates a request without a wish for the key's count.
    // Built in its place: to move it would cost each insert 60 instructions.
    #[inline(always)]
    pub(crate) fn new(
        hash: u64,
        time: Option<Micros>,
        weight: u64,
        precondition: Precondition,
        waits: Waits,
    ) -> Self {
        let (change, is_timed) = (Change::Insert, time.is_some());
        let asked = kind::Request { change, hash, weight, precondition, is_timed };
        Self { asked, time, count: None, waits }
    }

    /// Creates the request to remove a key with a weight, if it is there with at least that.
    pub(crate) fn remove(hash: u64, time: Option<Micros>, weight: u64, waits: Waits) -> Self {
        let removal = kind::Request::remove(hash, weight);
        let asked = kind::Request { is_timed: time.is_some(), ..removal };
        Self { asked, time, count: None, waits }
    }
}

impl Request<'_> {
    /// Returns the request at a time from another filter's log, which is neither checked nor
    /// changed.
    pub(crate) fn recorded(self, time: OperationTime) -> Self {
        let asked = kind::Request { is_timed: time.stream, ..self.asked };
        Self { asked, time: Some(time.time), ..self }
    }

    /// Returns the time of a [recorded](Self::recorded) request.
    #[inline]
    pub(crate) fn recorded_time(&self) -> OperationTime {
        OperationTime { time: self.time.unwrap_or(0), stream: self.asked.is_timed }
    }

    /// Returns the operation at this time, under this step.
    #[inline]
    pub(crate) fn operation(&self, time: Micros, step: u64) -> Operation {
        let kind::Request { change, hash, weight, .. } = self.asked;
        // Greater ones are staged.
        let weight = weight.min(MOST_WEIGHT.into()) as u32;
        Operation { change, hash, step, time, weight }
    }
}

/// An operation's answer, and the LSN up to which the log must be durable for the answer to be
/// durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteOutcome {
    pub(crate) checked: Checked,
    pub(crate) lsn: u64,
}
