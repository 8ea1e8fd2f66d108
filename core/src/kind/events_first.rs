//! The steps of one write: decide, record the events that must come first, decide again, record
//! the operation.
//!
//! A filter in memory applies each record at once. The engine's `staging` and `write::events_first`
//! only collect them, and apply all when all are in the log. All write the same records for the
//! same operations, because [`perform`] decides which. (An operation that needs no event is short
//! enough for the engine to write it without this; see its `engine/write/single.rs`.)

use super::request::{Checked, Precondition, Request, WritePlan};
use super::split_weight::split_weight;
use super::{Change, Decision, Event, Kind};
use crate::error::Error;

/// The most events before one operation: far more than any sound state needs. State words from
/// outside may be such that an event is due after each event.
const MOST_EVENTS: u32 = 1 << 16;

/// What one operation is recorded in: a filter as its records so far leave it.
pub trait Recorder {
    /// Why nothing more was recorded.
    type Error: From<Error>;

    /// Returns the filter's kind.
    fn kind(&self) -> &dyn Kind;

    /// Decides the operation, of whose weight `weight` is to be recorded next. With `early`, the
    /// answer is determined before the insert, also for kinds whose insert would give it.
    ///
    /// # Errors
    /// If the kind has no counts, and the precondition reads one.
    fn decide(
        &mut self,
        request: &Request,
        weight: u32,
        early: bool,
    ) -> Result<WritePlan, Self::Error>;

    /// Returns the event that must come before an operation that was decided so.
    ///
    /// # Errors
    /// If events cannot be recorded now.
    fn event_before(&mut self, plan: &WritePlan) -> Result<Option<Event>, Self::Error>;

    /// Records an event.
    ///
    /// # Errors
    /// If the event opens a bank of no possible size.
    fn record_event(&mut self, event: &Event) -> Result<(), Self::Error>;

    /// Records the operation as it was decided last. Returns whether its key was in the window, if
    /// the plan left that to the insert.
    fn record_operation(&mut self, request: &Request, weight: u32, plan: &WritePlan) -> bool;
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Performed {
    /// What its precondition found.
    pub checked: Checked,
    /// Whether it was recorded.
    pub is_recorded: bool,
    /// Whether its own time is too late.
    pub is_late: bool,
}

/// Records an operation, if its precondition allows it: one record for each part of its
/// weight ([`split_weight`]), and before each record the events that it needs. `early` is as for
/// [`Recorder::decide`].
///
/// # Errors
/// Those of the recorder; [`Error::Damaged`] if events are due without end.
#[inline]
pub fn perform<R: Recorder>(
    recorder: &mut R,
    request: &Request,
    early: bool,
) -> Result<Performed, R::Error> {
    if request.weight <= super::MOST_WEIGHT.into() {
        return perform_part(recorder, request, request.weight as u32, early);
    }
    perform_parts(recorder, request)
}

/// The precondition is checked for the whole weight, before the first record. A removal ends when
/// nothing is left: where all functions of the key have one counter, each part lowers it by a
/// multiple of its weight.
#[cold]
fn perform_parts<R: Recorder>(recorder: &mut R, request: &Request) -> Result<Performed, R::Error> {
    let mut weights = split_weight(recorder.kind(), request.weight);
    let first = weights.next().unwrap_or(1);
    let performed = perform_part(recorder, request, first, true)?;
    let part = request.under(match request.change {
        Change::Insert => Precondition::Nothing,
        Change::Remove => Precondition::AtLeast(1),
    });
    for weight in weights {
        if !performed.is_recorded || !perform_part(recorder, &part, weight, true)?.is_recorded {
            break;
        }
    }
    Ok(performed)
}

#[inline]
fn perform_part<R: Recorder>(
    recorder: &mut R,
    request: &Request,
    weight: u32,
    early: bool,
) -> Result<Performed, R::Error> {
    let mut plan = recorder.decide(request, weight, early)?;
    if let Some(checked) = plan.unchanged(request.precondition) {
        return Ok(unrecorded(&plan, checked));
    }
    let mut event = recorder.event_before(&plan)?;
    if event.is_some() && plan.present.is_none() {
        // The answer is that of the state before the event.
        plan = recorder.decide(request, weight, true)?;
    }
    let present = plan.present;
    // Events come directly before the operation that needs them, and only then.
    let mut events = 0;
    while let Some(due) = event {
        events += 1;
        if events > MOST_EVENTS {
            return Err(too_many_events().into());
        }
        recorder.record_event(&due)?;
        plan = recorder.decide(&request.under(Precondition::Nothing), weight, true)?;
        if plan.decision == Decision::TooLate {
            // An event has made it too late.
            return Ok(unrecorded(&plan, Checked::TooLate));
        }
        event = recorder.event_before(&plan)?;
    }
    let answered = recorder.record_operation(request, weight, &plan);
    let checked = Checked::of(present.unwrap_or(answered));
    Ok(Performed { checked, is_recorded: true, is_late: false })
}

fn unrecorded(plan: &WritePlan, checked: Checked) -> Performed {
    let is_late = plan.decision == Decision::TooLate;
    Performed { checked, is_recorded: false, is_late }
}

#[cold]
fn too_many_events() -> Error {
    Error::Damaged {
        what: "the state of the filter".to_owned(),
        expected: format!("at most {MOST_EVENTS} events before an operation"),
        found: "more".to_owned(),
    }
}
