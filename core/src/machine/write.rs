//! How a filter in memory changes: by its own decisions, and by records.

use super::ledger::Logged;
use super::{Machine, Written};
use crate::block::Blocks;
use crate::error::{Error, Result};
use crate::event;
use crate::kind::plan::{self, unsupported};
use crate::kind::{
    Checked, Decision, Estimate, Event, Kind, MOST_WEIGHT, Micros, Moment, Operation, Precondition,
    Query, Request, State, WritePlan, records,
};
use crate::record::{Op, Record};
use crate::time::{LATEST, OperationTime};

/// Applies an operation to its blocks: [`records::change`], or a function that also checks it.
pub(crate) trait Apply: Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Operation) {}

impl<F: Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Operation)> Apply for F {}

/// Checks that the kind has what a request needs.
pub(super) fn check(kind: &dyn Kind, request: &Request) -> Result<()> {
    if request.precondition == Precondition::Removable && kind.removal().is_none() {
        return Err(unsupported(kind, "remove"));
    }
    match request.weight {
        1 => Ok(()),
        2..=MOST_WEIGHT if kind.weights().is_some() => Ok(()),
        2..=MOST_WEIGHT => Err(unsupported(kind, "a weight")),
        found => {
            Err(Error::parameter("weight", format!("a number from 1 to {MOST_WEIGHT}"), found))
        }
    }
}

/// Decides a write and performs it, in a filter whose time is `now` or later.
#[inline]
pub(crate) fn perform(
    machine: &mut Machine,
    request: &Request,
    (time, now): (OperationTime, Micros),
    log: &mut impl FnMut(Logged),
    apply: impl Apply,
) -> Result<Written> {
    let (mut plan, estimate) = decide(machine, request, time, now)?;
    if let Some(checked) = plan.unchanged(request.precondition) {
        return Ok(Written { checked, estimate });
    }
    let checked = Checked::of(plan.present == Some(true));
    // Events come directly before the operation that needs them, and only then.
    while let Some(event) = next_event(machine, &plan, time, now) {
        emit_event(machine, &event, time, log)?;
        (plan, _) = decide(machine, &request.under(Precondition::Nothing), time, now)?;
    }
    let Decision::Insert { step } = plan.decision else {
        // An event has made it too late.
        return Ok(Written { checked: Checked::TooLate, estimate });
    };
    let Request { hash, weight, precondition, .. } = *request;
    let change = precondition.change();
    let operation = Operation { change, hash, step, time: time.time, weight };
    emit_operation(machine, &operation, time, log, apply);
    if estimate.is_none() || checked != Checked::New {
        return Ok(Written { checked, estimate });
    }
    Ok(Written { checked, estimate: count(machine, hash, time.time.max(now)) })
}

/// Returns how often a key was inserted.
fn count(machine: &Machine, hash: u64, now: Micros) -> Option<Estimate> {
    let now = now.max(machine.ledger.latest().time);
    let query = Query { hash, now, totals: machine.ledger.totals() };
    machine.kind().estimate(&machine.memory.state(), &machine.blocks(hash), &query)
}

fn moment(machine: &Machine, time: OperationTime, now: Micros) -> Moment {
    let now = now.max(time.time).max(machine.ledger.latest().time);
    Moment { time: time.time, now, totals: machine.ledger.totals() }
}

/// Decides a write against the present state. Returns the key's count as well, if the precondition
/// reads it.
#[inline]
pub(crate) fn decide(
    machine: &Machine,
    request: &Request,
    time: OperationTime,
    now: Micros,
) -> Result<(WritePlan, Option<Estimate>)> {
    let (state, moment) = (machine.memory.state(), moment(machine, time, now));
    let (kind, layout, memory) = (machine.kind(), machine.identity.layout, &machine.memory);
    let mut read = None;
    let count = |count| read = Some(count);
    let plan = plan::decide((kind, true), &state, layout, &moment, request, memory, count);
    match read {
        Some(None) => Err(unsupported(kind, "estimate")),
        read => Ok((plan, read.flatten())),
    }
}

/// Returns the event that must come before a write that was decided so.
#[inline]
fn next_event(
    machine: &Machine,
    plan: &WritePlan,
    time: OperationTime,
    now: Micros,
) -> Option<Event> {
    if plan.due {
        let moment = moment(machine, time, now);
        return machine.kind().due(&machine.memory.state(), machine.identity.layout, &moment);
    }
    // Of a filter with a grace, events must not count from a time that is too long ago.
    let told = machine.ledger.event_time();
    let is_ahead = machine.grace < Micros::MAX && time.time > told.saturating_add(machine.grace);
    is_ahead.then_some(Event::Step { step: 0, time: time.time, word: 0 })
}

/// Emits an event of this filter's own, and applies it.
pub(crate) fn emit_event(
    machine: &mut Machine,
    event: &Event,
    time: OperationTime,
    log: &mut impl FnMut(Logged),
) -> Result<()> {
    if let Event::OpenBank { geometry, .. } = event {
        machine.identity.layout.check(*geometry)?;
    }
    let mut record = event::to_record(event, time.stream);
    if record.time > time.time {
        // A late key: the time is the filter's, and so is its source.
        record.stream = machine.ledger.latest().stream;
    }
    log(machine.ledger.append(&record));
    apply_event(machine, event, &record);
    Ok(())
}

/// Emits an operation that was decided, and applies it.
#[inline]
pub(crate) fn emit_operation(
    machine: &mut Machine,
    operation: &Operation,
    time: OperationTime,
    log: &mut impl FnMut(Logged),
    apply: impl Apply,
) {
    let (kind, hash) = (&*machine.identity.kind, operation.hash);
    let mask = kind.touches(&machine.memory.state(), operation.step);
    machine.memory.allocate(mask, hash);
    let (state, blocks) = (machine.memory.state(), machine.memory.locate(mask, hash));
    let record = records::of_operation(kind, &state, &blocks, operation, time.stream);
    log(machine.ledger.append(&record));
    apply(kind, &state, &blocks, operation);
    let stripe = machine.identity.layout.stripe_of(hash) + 1;
    machine.ledger.count(stripe, time, records::counts(kind.weights().is_some(), &record));
}

/// Emits the record of a clear, and applies it.
pub(super) fn emit_clear(machine: &mut Machine, time: OperationTime, log: &mut impl FnMut(Logged)) {
    let record = Record { time: time.time, stream: time.stream, ..Record::new(Op::Clear) };
    log(machine.ledger.append(&record));
    clear(machine, &record);
}

fn time_of(record: &Record) -> OperationTime {
    OperationTime { time: record.time, stream: record.stream }
}

fn apply_event(machine: &mut Machine, event: &Event, record: &Record) {
    let state = machine.memory.state();
    state.apply_banks(event);
    if let Some(events) = machine.identity.kind.events() {
        events.apply(&state, machine.identity.layout, event);
    }
    machine.memory.follow();
    machine.ledger.note(time_of(record));
}

fn clear(machine: &mut Machine, record: &Record) {
    machine.memory.clear(&*machine.identity.kind);
    machine.ledger.clear(time_of(record));
}

/// Applies a record that another filter emitted.
///
/// # Errors
/// [`Error::Diverged`]: then nothing has changed.
pub(super) fn apply(machine: &mut Machine, logged: &Logged) -> Result<()> {
    let record = machine.ledger.check(logged)?;
    check_record(machine, &record)?;
    machine.ledger.accept(logged);
    let kind = &*machine.identity.kind;
    if let Some(operation) = records::operation(kind, &record) {
        let mask = kind.touches(&machine.memory.state(), operation.step);
        machine.memory.allocate(mask, operation.hash);
        let blocks = machine.memory.locate(mask, operation.hash);
        records::change(kind, &machine.memory.state(), &blocks, &operation);
        let stripe = machine.identity.layout.stripe_of(operation.hash) + 1;
        machine.ledger.count(
            stripe,
            time_of(&record),
            records::counts(kind.weights().is_some(), &record),
        );
    } else if let Some(event) = event::from_record(&record) {
        apply_event(machine, &event, &record);
    } else {
        clear(machine, &record);
    }
    Ok(())
}

/// Checks that a record with a sound checksum is one that a filter of this kind emits in this
/// state.
fn check_record(machine: &Machine, record: &Record) -> Result<()> {
    let kind = machine.kind();
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
            let there = count(machine, record.payload, record.time);
            let is_there = there.is_some_and(|there| there.holds(record.argument));
            if is_there { Ok(()) } else { refused("the removal of a key that is there") }
        }
        Op::OpenBank => match event::from_record(record) {
            Some(Event::OpenBank { geometry, .. })
                if machine.identity.layout.check(geometry).is_err() =>
            {
                refused("a bank of a sound size")
            }
            _ => Ok(()),
        },
        Op::Insert | Op::Step | Op::CloseBank | Op::Clear => Ok(()),
        Op::Heartbeat | Op::Durable | Op::Void => refused("an operation, an event or a clear"),
    }
}
