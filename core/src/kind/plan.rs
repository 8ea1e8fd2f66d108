//! The decision about one write: a pure function of the state, the key's blocks and the request.
//!
//! A host reads the state, calls [`WritePlan::new`], and acts on the result: it answers without a
//! change, records the event that is due, or writes the operation's record. All hosts decide here,
//! so all of them write the same records. Nothing here changes a word.

use super::{
    BankMask, Checked, Decision, Kind, Moment, Precondition, Query, Request, Since, State,
};
use crate::block::{Blocks, Layout};
use crate::error::{Error, Result};
use crate::kind::Estimate;

/// The decision about a write.
#[derive(Debug, Clone, Copy)]
pub struct WritePlan {
    /// The step that the record will carry, or that the key is too late.
    pub decision: Decision,
    /// The banks that the operation will change; none if the key is too late.
    pub mask: BankMask,
    /// Whether the precondition found the key: in the window, with the count to be removed, or with
    /// a count that leaves no room below the limit.
    pub present: bool,
    /// The key's count before the write, if the precondition read it.
    pub estimate: Option<Estimate>,
    /// Whether an event must come first.
    pub due: bool,
}

impl WritePlan {
    /// Decides a write. `locate` returns the key's blocks in the banks of a mask, in whatever form
    /// the host has them: to move them out of it would copy them at each insert.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the precondition needs a count and the kind has none.
    // Out of line it would cost every insert of the engine.
    #[inline(always)]
    pub fn new<'a, L: AsRef<Blocks<'a>>>(
        kind: &dyn Kind,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        request: &Request,
        locate: impl Fn(BankMask) -> L,
    ) -> Result<Self> {
        let hash = request.hash;
        let mut decision = kind.decide(state, moment);
        let mut mask = match decision {
            Decision::Insert { step } => kind.touches(state, step),
            Decision::TooLate => 0,
        };
        if let Decision::Insert { step } = &mut decision
            && request.is_timed
            && moment.time < moment.now
        {
            *step = kind.step_of_late(state, locate(mask).as_ref(), hash, *step);
            mask = kind.touches(state, *step);
        }
        let query = Query { hash, now: moment.now, totals: moment.totals };
        let count = || kind.estimate(state, locate(BankMask::MAX).as_ref(), &query);
        let mut estimate = None;
        let present = match request.precondition {
            Precondition::Nothing => false,
            Precondition::Present(_) => {
                kind.contains(state, locate(BankMask::MAX).as_ref(), &query)
            }
            Precondition::Removable => count().is_some_and(|count| count.holds(request.weight)),
            Precondition::Estimate | Precondition::UpTo(_) => {
                estimate = count();
                let count = estimate.ok_or_else(|| unsupported(kind, "estimate"))?;
                is_over(request, count)
            }
        };
        let due = kind.due(state, layout, moment).is_some();
        Ok(Self { decision, mask, present, estimate, due })
    }

    /// Returns the answer of a write that changes nothing and leaves no record; `None` if it goes
    /// ahead.
    #[must_use]
    #[inline]
    pub fn unchanged(&self, precondition: Precondition) -> Option<Checked> {
        if self.decision == Decision::TooLate {
            // The operation's own time is before the window, but the key may have been seen since.
            // (Nothing was removed.)
            let seen = self.present && precondition != Precondition::Removable;
            return Some(if seen { Checked::Present } else { Checked::TooLate });
        }
        let is_unchanged = match precondition {
            Precondition::Nothing
            | Precondition::Estimate
            | Precondition::Present(Since::LastSeen) => false,
            Precondition::Present(Since::LastAccepted) | Precondition::UpTo(_) => self.present,
            Precondition::Removable => !self.present,
        };
        is_unchanged.then_some(self.checked())
    }

    /// Returns the answer of a write that goes ahead.
    #[must_use]
    #[inline]
    pub fn checked(&self) -> Checked {
        if self.present { Checked::Present } else { Checked::New }
    }
}

/// Returns whether the limit, if there is one, leaves no room for the operation above the present
/// count. A saturated count may stand for any higher one.
fn is_over(request: &Request, count: Estimate) -> bool {
    match request.precondition {
        Precondition::UpTo(limit) => {
            count.at_least || count.count + f64::from(request.weight) > limit
        }
        _ => false,
    }
}

/// Creates the error for an operation that the kind does not have.
#[must_use]
pub fn unsupported(kind: &dyn Kind, operation: &'static str) -> Error {
    Error::Unsupported { kind: kind.name(), operation }
}
