//! The decision about one write: a pure function of the state, the key's blocks and the request.
//!
//! A host reads the state, calls [`decide`], and acts on the result: it answers without a
//! change, records the event that is due, or writes the operation's record. All hosts decide here,
//! so all of them write the same records. Nothing here changes a word.

use super::request::{Precondition, Request, Since, WritePlan};
use super::{BankMask, Decision, Estimate, Kind, Moment, Query, State};
use crate::block::{Blocks, Layout};
use crate::error::Error;

/// Where a host keeps the blocks of its keys.
pub trait Locate {
    /// A key's blocks, with what else the host has of them: to move them out of it would copy them
    /// at each insert.
    type Located<'a>: AsRef<Blocks<'a>>
    where
        Self: 'a;

    /// Returns the key's blocks in the banks of `mask`.
    fn locate(&self, mask: BankMask, hash: u64) -> Self::Located<'_>;
}

/// Decides a write. If the precondition reads the key's count, `count` gets it; `None` means
/// that the kind has no counts, and the host must refuse the write. `early` wants the answer
/// before the insert in any case.
// Out of line it would cost every insert of the engine.
#[inline(always)]
pub fn decide(
    (kind, early): (&dyn Kind, bool),
    state: &State<'_>,
    layout: Layout,
    moment: &Moment,
    request: &Request,
    banks: &impl Locate,
    count: impl FnOnce(Option<Estimate>),
) -> WritePlan {
    let hash = request.hash;
    let mut plan = kind.plan(state, layout, moment);
    if let Decision::Insert { step } = &mut plan.decision
        && request.is_timed
        && moment.time < moment.now
    {
        let blocks = banks.locate(plan.mask, hash);
        *step = kind.step_of_late(state, blocks.as_ref(), hash, *step);
        plan.mask = kind.touches(state, *step);
        plan.present = Some(false);
    }
    let query = Query { hash, now: moment.now, totals: moment.totals };
    let located = || banks.locate(BankMask::MAX, hash);
    let estimate = || kind.estimate(state, located().as_ref(), &query);
    plan.present = match request.precondition {
        Precondition::Nothing => Some(false),
        Precondition::Present(Since::LastSeen) if plan.present.is_none() && !early => None,
        Precondition::Present(_) => Some(kind.contains(state, located().as_ref(), &query)),
        Precondition::Removable => {
            Some(estimate().is_some_and(|there| there.holds(request.weight)))
        }
        Precondition::Estimate | Precondition::UpTo(_) => {
            let there = estimate();
            count(there);
            Some(there.is_some_and(|there| is_over(request, there)))
        }
    };
    plan
}

/// Returns whether the limit, if there is one, leaves no room for the operation above the present
/// count. A saturated count may stand for any higher one.
fn is_over(request: &Request, count: Estimate) -> bool {
    match request.precondition {
        Precondition::UpTo(limit) => count.at_least || count.count + request.weight as f64 > limit,
        _ => false,
    }
}

/// Creates the error for an operation that the kind does not have.
#[must_use]
pub fn unsupported(kind: &dyn Kind, operation: &'static str) -> Error {
    Error::Unsupported { kind: kind.name(), operation }
}
