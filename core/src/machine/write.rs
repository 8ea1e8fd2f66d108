//! How a filter in memory changes: by its own decisions, and by records.

use super::ledger::Logged;
use super::parts::Parts;
use crate::block::Blocks;
use crate::error::{Error, Result};
use crate::event;
use crate::kind::decide::{self, unsupported};
use crate::kind::events_first::{Performed, Recorder, perform};
use crate::kind::{
    Change, Checked, Estimate, Event, Kind, MOST_COUNT, Micros, Moment, Operation, Request, State,
    WritePlan, records,
};
use crate::log_record::{Op, Record};
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
    if request.change == Change::Remove && kind.removal().is_none() {
        return Err(unsupported(kind, "remove"));
    }
    match request.weight {
        1 => Ok(()),
        2..=MOST_COUNT if kind.weights().is_some() => Ok(()),
        2..=MOST_COUNT => Err(unsupported(kind, "a weight")),
        found => Err(Error::parameter("weight", format!("a number from 1 to {MOST_COUNT}"), found)),
    }
}

/// A filter in memory while it performs one write: each record is applied at once.
struct Performing<'a, L, A> {
    parts: &'a mut Parts,
    time: OperationTime,
    now: Micros,
    /// The key's count, if the precondition read it.
    estimate: Option<Estimate>,
    log: &'a mut L,
    apply: A,
}

impl<L: FnMut(Logged), A: Apply> Recorder for Performing<'_, L, A> {
    type Error = Error;

    #[inline]
    fn kind(&self) -> &dyn Kind {
        self.parts.kind()
    }

    #[inline]
    fn decide(&mut self, request: &Request, _: u32, early: bool) -> Result<WritePlan> {
        let (plan, estimate) = decide(self.parts, request, (self.time, self.now), early)?;
        self.estimate = estimate.or(self.estimate);
        Ok(plan)
    }

    #[inline]
    fn event_before(&mut self, plan: &WritePlan) -> Result<Option<Event>> {
        Ok(next_event(self.parts, plan, self.time, self.now))
    }

    fn record_event(&mut self, event: &Event) -> Result<()> {
        emit_event(self.parts, event, self.time, self.log)
    }

    #[inline]
    fn record_operation(&mut self, request: &Request, weight: u32, plan: &WritePlan) -> bool {
        let Request { change, hash, .. } = *request;
        let operation = Operation { change, hash, step: plan.step(), time: self.time.time, weight };
        let checks = plan.present.is_none();
        emit_operation(self.parts, &operation, self.time, checks, self.log, self.apply)
    }
}

/// Decides a write and performs it, in a filter whose time is `now` or later. With `early`,
/// the answer is determined before the insert, also for kinds whose insert would give it.
#[inline]
pub(crate) fn write(
    parts: &mut Parts,
    request: &Request,
    (time, now): (OperationTime, Micros),
    early: bool,
    log: &mut impl FnMut(Logged),
    apply: impl Apply,
) -> Result<Written> {
    let mut performing = Performing { parts, time, now, estimate: None, log, apply };
    let Performed { checked, is_recorded, .. } = perform(&mut performing, request, early)?;
    let estimate = match performing.estimate {
        Some(_) if is_recorded && checked == Checked::New => {
            count(parts, request.hash, time.time.max(now))
        }
        estimate => estimate,
    };
    Ok(Written { checked, estimate })
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
    let plan = decide::decide((kind, early), &state, layout, &moment, request, memory, count);
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
    is_ahead.then_some(Event::time(time.time))
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
    let record = records::of_event(event, time, parts.ledger.latest());
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
    let state = parts.memory.state();
    // Not in a tuple, out of which it would be copied.
    let blocks = parts.memory.locate(mask, hash);
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
        match record.op {
            Op::Clear => clear(parts, &record),
            Op::Claim | Op::Release => parts.claims.apply(&record),
            // An operation or an event, above; or a record that was refused.
            Op::Insert
            | Op::Remove
            | Op::Step
            | Op::OpenBank
            | Op::CloseBank
            | Op::Heartbeat
            | Op::Position
            | Op::Durable
            | Op::Void
            | Op::Batch => {}
        }
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
            // The last part of a heavy removal may be of more than is left.
            let there = count(parts, record.payload, record.time);
            let is_there = there.is_some_and(|there| there.holds(1));
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
        Op::Claim | Op::Release if !parts.claims.fits(record) => {
            refused("a claim that may begin, or the end of one that is there")
        }
        Op::Insert | Op::Step | Op::CloseBank | Op::Clear | Op::Claim | Op::Release => Ok(()),
        Op::Heartbeat | Op::Durable | Op::Void | Op::Batch | Op::Position => {
            refused("an operation, an event or a clear")
        }
    }
}
