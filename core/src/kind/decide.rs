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
    /// A key's blocks, with whatever else the host keeps beside them. The host returns both
    /// together, because taking the blocks out would copy them at each insert.
    type Located<'a>: AsRef<Blocks<'a>>
    where
        Self: 'a;

    /// Returns the key's blocks in the banks of `mask`.
    fn locate(&self, mask: BankMask, hash: u64) -> Self::Located<'_>;
}

/// Decides a write. If the precondition reads the key's count, `count` gets it; `None` means
/// that the kind has no counts, and the host must refuse the write. With `early`, the answer is
/// determined before the insert, also for kinds whose insert would give it.
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
    let mut plan = kind.plan(state, layout, moment);
    if request.is_timed && moment.time < moment.now {
        decide_late(kind, state, request.hash, banks, &mut plan);
    }
    plan.present = match request.precondition {
        Precondition::Nothing => Some(false),
        Precondition::Present(Since::LastSeen) if plan.present.is_none() && !early => None,
        _ => Some(answer(kind, state, moment, request, banks, count)),
    };
    plan
}

/// Decides the step of an operation whose time came with its key and is not the latest.
#[inline(never)]
fn decide_late(
    kind: &dyn Kind,
    state: &State<'_>,
    hash: u64,
    banks: &impl Locate,
    plan: &mut WritePlan,
) {
    if let Decision::Insert { step } = &mut plan.decision {
        let blocks = banks.locate(plan.mask, hash);
        *step = kind.step_of_late(state, blocks.as_ref(), hash, *step);
        plan.mask = kind.touches(state, *step);
        plan.present = Some(false);
    }
}

/// If an event is due, inserts without it, under the step that
/// [`Events::step_without`](super::Events::step_without) returns.
#[inline]
pub fn put_off(plan: &mut WritePlan, kind: &dyn Kind, state: &State<'_>, step: Option<u64>) {
    if let (true, Some(step)) = (plan.due, step) {
        (plan.decision, plan.due) = (Decision::Insert { step }, false);
        plan.mask = kind.touches(state, step);
    }
}

/// Answers the precondition by a question of its own.
#[inline(never)]
fn answer(
    kind: &dyn Kind,
    state: &State<'_>,
    moment: &Moment,
    request: &Request,
    banks: &impl Locate,
    count: impl FnOnce(Option<Estimate>),
) -> bool {
    let query = Query { hash: request.hash, now: moment.now, totals: moment.totals };
    let located = banks.locate(BankMask::MAX, request.hash);
    let estimate = || kind.estimate(state, located.as_ref(), &query);
    match request.precondition {
        Precondition::Nothing => false,
        Precondition::Present(_) => kind.contains(state, located.as_ref(), &query),
        Precondition::AtLeast(count) => estimate().is_some_and(|there| there.holds(count)),
        Precondition::Estimate | Precondition::UpTo(_) => {
            let there = estimate();
            count(there);
            there.is_some_and(|there| is_over(request, there))
        }
    }
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
