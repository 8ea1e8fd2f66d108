//! How a filter in memory changes: by its own decisions, and by records.

use super::ledger::Logged;
use super::parts::Parts;
use crate::block::Blocks;
use crate::error::{Error, Result};
use crate::event;
use crate::kind::plan::{self, unsupported};
use crate::kind::{
    self, Checked, Decision, Estimate, Event, Kind, MOST_COUNT, MOST_WEIGHT, Micros, Moment,
    Operation, Precondition, Request, State, WritePlan, records,
};
use crate::record::{Op, Record};
use crate::time::{LATEST, OperationTime};

/// The answer of a write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Written {
    /// What the precondition found.
    pub checked: Checked,
    /// The key's count, if the precondition read it: after the write, or before one that left the
    /// filter unchanged.
    pub estimate: Option<Estimate>,
}

/// Applies an operation to its blocks: [`records::change`], or a function that also checks it.
pub(crate) trait Apply: Copy + Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Operation) {}

impl<F: Copy + Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Operation)> Apply for F {}

/// Checks that the kind has what a request needs.
pub(super) fn check(kind: &dyn Kind, request: &Request) -> Result<()> {
    if request.precondition == Precondition::Removable && kind.removal().is_none() {
        return Err(unsupported(kind, "remove"));
    }
    match request.weight {
        1 => Ok(()),
        2..=MOST_COUNT if kind.weights().is_some() => Ok(()),
        2..=MOST_COUNT => Err(unsupported(kind, "a weight")),
        found => Err(Error::parameter("weight", format!("a number from 1 to {MOST_COUNT}"), found)),
    }
}

/// Decides a write and performs it, in a filter whose time is `now` or later. `early` wants the
/// answer before the insert, also of kinds whose insert answers.
#[inline]
pub(crate) fn perform(
    parts: &mut Parts,
    request: &Request,
    (time, now): (OperationTime, Micros),
    early: bool,
    log: &mut impl FnMut(Logged),
    apply: impl Apply,
) -> Result<Written> {
    let weight = match u32::try_from(request.weight) {
        Ok(weight @ ..=MOST_WEIGHT) => weight,
        _ => return perform_parts(parts, request, (time, now), log, apply),
    };
    let (mut plan, estimate) = decide(parts, request, (time, now), early)?;
    if let Some(checked) = plan.unchanged(request.precondition) {
        return Ok(Written { checked, estimate });
    }
    let mut event = next_event(parts, &plan, time, now);
    if event.is_some() && plan.present.is_none() {
        // The answer is that of the state before the event.
        (plan, _) = decide(parts, request, (time, now), true)?;
    }
    let present = plan.present;
    // Events come directly before the operation that needs them, and only then.
    let mut events = 0;
    while let Some(due) = event {
        events += 1;
        if events > MOST_EVENTS {
            return Err(too_many_events());
        }
        emit_event(parts, &due, time, log)?;
        let anyway = request.under(Precondition::Nothing);
        (plan, _) = decide(parts, &anyway, (time, now), true)?;
        event = next_event(parts, &plan, time, now);
    }
    let Decision::Insert { step } = plan.decision else {
        // An event has made it too late.
        return Ok(Written { checked: Checked::TooLate, estimate });
    };
    let Request { hash, precondition, .. } = *request;
    let change = precondition.change();
    let operation = Operation { change, hash, step, time: time.time, weight };
    let answered = emit_operation(parts, &operation, time, present.is_none(), log, apply);
    let checked = Checked::of(present.unwrap_or(answered));
    if estimate.is_none() || checked != Checked::New {
        return Ok(Written { checked, estimate });
    }
    Ok(Written { checked, estimate: count(parts, hash, time.time.max(now)) })
}

/// Performs a write with a weight that no record holds: as several records.
#[cold]
fn perform_parts(
    filter: &mut Parts,
    request: &Request,
    (time, now): (OperationTime, Micros),
    log: &mut impl FnMut(Logged),
    apply: impl Apply,
) -> Result<Written> {
    let (plan, estimate) = decide(filter, request, (time, now), true)?;
    if let Some(checked) = plan.unchanged(request.precondition) {
        return Ok(Written { checked, estimate });
    }
    let precondition = match request.precondition {
        Precondition::Removable => Precondition::Removable,
        _ => Precondition::Nothing,
    };
    for weight in kind::parts::parts(filter.kind(), request.weight) {
        let part = request.under(precondition).weighing(weight.into());
        perform(filter, &part, (time, now), true, log, apply)?;
    }
    let checked = Checked::of(plan.present.unwrap_or(false));
    let hash = request.hash;
    let estimate = match estimate {
        Some(_) if checked == Checked::New => count(filter, hash, time.time.max(now)),
        estimate => estimate,
    };
    Ok(Written { checked, estimate })
}

/// The most events before one operation: far more than any sound state needs. State words from
/// outside may be such that an event is due after each event.
const MOST_EVENTS: u32 = 1 << 16;

#[cold]
fn too_many_events() -> Error {
    Error::Damaged {
        what: "the state of the filter".to_owned(),
        expected: format!("at most {MOST_EVENTS} events before an operation"),
        found: "more".to_owned(),
    }
}

/// Returns how often a key was inserted.
fn count(parts: &Parts, hash: u64, now: Micros) -> Option<Estimate> {
    let query = parts.query(hash, now);
    parts.kind().estimate(&parts.state(), &parts.blocks(hash), &query)
}

fn moment(parts: &Parts, time: OperationTime, now: Micros) -> Moment {
    let now = now.max(time.time).max(parts.ledger.latest().time);
    Moment { time: time.time, now, totals: parts.ledger.totals() }
}

/// Decides a write against the present state. Returns the key's count as well, if the precondition
/// reads it.
#[inline]
pub(crate) fn decide(
    parts: &Parts,
    request: &Request,
    (time, now): (OperationTime, Micros),
    early: bool,
) -> Result<(WritePlan, Option<Estimate>)> {
    let (state, moment) = (parts.memory.state(), moment(parts, time, now));
    let (kind, layout, memory) = (parts.kind(), parts.identity.layout, &parts.memory);
    let mut read = None;
    let count = |count| read = Some(count);
    let plan = plan::decide((kind, early), &state, layout, &moment, request, memory, count);
    match read {
        Some(None) => Err(unsupported(kind, "estimate")),
        read => Ok((plan, read.flatten())),
    }
}

/// Returns the event that must come before a write that was decided so.
#[inline]
fn next_event(parts: &Parts, plan: &WritePlan, time: OperationTime, now: Micros) -> Option<Event> {
    if plan.due {
        let moment = moment(parts, time, now);
        return parts.kind().due(&parts.memory.state(), parts.identity.layout, &moment);
    }
    // Of a filter with a grace, events must not count from a time that is too long ago.
    let told = parts.ledger.event_time();
    let is_ahead = parts.grace < Micros::MAX && time.time > told.saturating_add(parts.grace);
    is_ahead.then_some(Event::Step { step: 0, time: time.time, word: 0 })
}

/// Emits an event of this filter's own, and applies it.
pub(crate) fn emit_event(
    parts: &mut Parts,
    event: &Event,
    time: OperationTime,
    log: &mut impl FnMut(Logged),
) -> Result<()> {
    if let Event::OpenBank { geometry, .. } = event {
        parts.identity.layout.check(*geometry)?;
    }
    let mut record = event::to_record(event, time.stream);
    if record.time > time.time {
        // A late key: the time is the filter's, and so is its source.
        record.stream = parts.ledger.latest().stream;
    }
    log(parts.ledger.append(&record));
    apply_event(parts, event, &record);
    Ok(())
}

/// Emits an operation that was decided, and applies it; `checks` lets the insert answer whether the
/// key was in the window. Otherwise the answer is false.
#[inline]
pub(crate) fn emit_operation(
    parts: &mut Parts,
    operation: &Operation,
    time: OperationTime,
    checks: bool,
    log: &mut impl FnMut(Logged),
    apply: impl Apply,
) -> bool {
    let (kind, hash) = (&*parts.identity.kind, operation.hash);
    let mask = kind.touches(&parts.memory.state(), operation.step);
    parts.memory.allocate(mask, hash);
    let (state, blocks) = (parts.memory.state(), parts.memory.locate(mask, hash));
    let record = records::of_operation(kind, &state, &blocks, operation, time.stream);
    log(parts.ledger.append(&record));
    let answered = checks && kind.insert_and_check(&state, &blocks, operation, record.argument);
    if !checks {
        apply(kind, &state, &blocks, operation);
    }
    let stripe = parts.identity.layout.stripe_of(hash) + 1;
    parts.ledger.count(stripe, time, records::counts(kind.weights().is_some(), &record));
    answered
}

/// Emits the record of a clear, and applies it.
pub(super) fn emit_clear(parts: &mut Parts, time: OperationTime, log: &mut impl FnMut(Logged)) {
    let record = Record { time: time.time, stream: time.stream, ..Record::new(Op::Clear) };
    log(parts.ledger.append(&record));
    clear(parts, &record);
}

fn time_of(record: &Record) -> OperationTime {
    OperationTime { time: record.time, stream: record.stream }
}

fn apply_event(parts: &mut Parts, event: &Event, record: &Record) {
    let state = parts.memory.state();
    state.apply_banks(event);
    if let Some(events) = parts.identity.kind.events() {
        events.apply(&state, parts.identity.layout, event);
    }
    parts.memory.follow();
    parts.ledger.note(time_of(record));
}

fn clear(parts: &mut Parts, record: &Record) {
    parts.memory.clear(&*parts.identity.kind);
    parts.ledger.clear(time_of(record));
}

/// Applies a record that another filter emitted.
///
/// # Errors
/// [`Error::Diverged`]: then nothing has changed.
pub(super) fn apply(parts: &mut Parts, logged: &Logged) -> Result<()> {
    let record = parts.ledger.check(logged)?;
    check_record(parts, &record)?;
    parts.ledger.accept(logged);
    let kind = &*parts.identity.kind;
    if let Some(operation) = records::operation(kind, &record) {
        let mask = kind.touches(&parts.memory.state(), operation.step);
        parts.memory.allocate(mask, operation.hash);
        let blocks = parts.memory.locate(mask, operation.hash);
        records::change(kind, &parts.memory.state(), &blocks, &operation);
        let stripe = parts.identity.layout.stripe_of(operation.hash) + 1;
        parts.ledger.count(
            stripe,
            time_of(&record),
            records::counts(kind.weights().is_some(), &record),
        );
    } else if let Some(event) = event::from_record(&record) {
        apply_event(parts, &event, &record);
    } else {
        clear(parts, &record);
    }
    Ok(())
}

/// Checks that a record with a sound checksum is one that a filter of this kind emits in this
/// state.
fn check_record(parts: &Parts, record: &Record) -> Result<()> {
    let kind = parts.kind();
    let refused = |expected: &str| {
        Err(Error::Diverged { expected: expected.to_owned(), found: format!("{record:?}") })
    };
    if record.time > LATEST {
        return refused("a time in the range of all filters");
    }
    match record.op {
        Op::Insert | Op::Remove if kind.weights().is_some() && record.argument == 0 => {
            refused("a weight of at least 1")
        }
        Op::Remove if kind.removal().is_none() => refused("no removal"),
        Op::Remove => {
            let there = count(parts, record.payload, record.time);
            let is_there = there.is_some_and(|there| there.holds(record.argument.into()));
            if is_there { Ok(()) } else { refused("the removal of a key that is there") }
        }
        Op::OpenBank => match event::from_record(record) {
            Some(Event::OpenBank { geometry, .. })
                if parts.identity.layout.check(geometry).is_err() =>
            {
                refused("a bank of a sound size")
            }
            _ => Ok(()),
        },
        Op::Insert | Op::Step | Op::CloseBank | Op::Clear => Ok(()),
        Op::Heartbeat | Op::Durable | Op::Void | Op::Batch | Op::Position => {
            refused("an operation, an event or a clear")
        }
    }
}
