//! Writes an operation that needs events first. Events and operation are one batch. The loop
//! "decide, event, decide again" is `ebbtide_core::kind::events_first`.
//!
//! Under stripe 0 the events change the inactive copy of the state block ([next state](NextState)).
//! The copy becomes active when the batch is in the log, otherwise it is discarded.

use crate::engine::batch::append_staged;
use crate::engine::batch::staging::Unstaged;
use crate::engine::log::append::Appended;
use crate::engine::shared::Local;
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::decide_and_apply::{Attempt, Basis, apply, basis, is_outdated, leave};
use crate::engine::write::request::{Request, WriteOutcome, pass_count};
use crate::engine::write::writer::Writer;
use crate::error::Result;
use crate::image::state_block::NextState;
use crate::image::{BankSet, apply_record};
use crate::locks::handle_stripes::StripeGuard;
use crate::wal::Record;
use ebbtide_core::event;
use ebbtide_core::kind::events_first::{Recorder, perform};
use ebbtide_core::kind::{
    Estimate, Event, Kind, Micros, Moment, Request as Asked, State, WritePlan, decide, records,
};
use std::cell::Cell;
use std::mem;
use std::sync::Arc;

/// Writes an operation whose stripe is held, with the events that must come before it. With
/// `can_be_put_off`, writes the operation without its events if a stalled process holds stripe 0.
///
/// # Errors
/// [`Error::WouldWait`](crate::Error::WouldWait), [`Error::Io`](crate::Error::Io),
/// [`Error::Poisoned`](crate::Error::Poisoned): nothing has happened.
#[cold]
pub(crate) fn write(
    writer: &Writer,
    stripe: &mut StripeGuard<'_, Local>,
    request: &Request<'_>,
    stamp: Stamp,
    can_be_put_off: bool,
) -> Result<Attempt> {
    let stripe_0 = append_staged::lock_stripe_0(writer, can_be_put_off, request.waits)?;
    writer.shared.check_writable()?;
    let moment = writer.time.exact_moment(stamp);
    // Before the state: see `decide_and_apply::basis`.
    let recorded = writer.time.recorded_time();
    let Some(basis) = basis(writer, &moment) else {
        writer.shared.image.follow()?;
        return Ok(Attempt::Again);
    };
    let (puts_off, count) = (stripe_0.is_none(), request.count);
    let mut writing = Writing {
        writer,
        count,
        stamp,
        moment,
        recorded,
        puts_off,
        basis,
        next: None,
        banks: None,
        records: Vec::new(),
        plan: None,
    };
    let performed = match perform(&mut writing, &request.asked, true) {
        Ok(performed) => performed,
        Err(Unstaged::Failed(error)) => return Err(error),
        // The kind can no longer do without the event.
        Err(Unstaged::NeedsStripe0 { .. } | Unstaged::Outdated) => return Ok(Attempt::Again),
    };
    // Without stripe 0, an event may have changed the state meanwhile.
    if puts_off && !writing.basis.state_block.unchanged(writing.basis.version) {
        return Ok(Attempt::Again);
    }
    let checked = performed.checked;
    let Some(plan) = writing.plan else {
        let is_late = performed.is_late && !is_outdated(request, stamp);
        return Ok(Attempt::Done(leave(writer, stripe, is_late, checked)));
    };
    let attempt = writing.commit(request, &plan, stripe, stripe_0.as_ref());
    if stripe_0.is_some() {
        writer.shared.header().events_from().end();
    }
    Ok(match attempt? {
        Attempt::Done(written) => Attempt::Done(WriteOutcome { checked, ..written }),
        other => other,
    })
}

/// The operation while it is decided.
struct Writing<'a> {
    writer: &'a Writer,
    count: Option<&'a Cell<Option<Estimate>>>,
    stamp: Stamp,
    moment: Moment,
    /// The time that stripe 0 has recorded.
    recorded: Micros,
    puts_off: bool,
    basis: Basis<'a>,
    /// The state after the events so far, and its banks if an event opened or closed one.
    next: Option<NextState<'a>>,
    banks: Option<BankSet>,
    /// The records of the events so far.
    records: Vec<Record>,
    /// The decision, once the operation is to be recorded.
    plan: Option<WritePlan>,
}

impl<'a> Writing<'a> {
    fn state(&self) -> State<'a> {
        self.next.as_ref().map_or(self.basis.state, NextState::state)
    }

    fn banks(&self) -> &BankSet {
        self.banks.as_ref().unwrap_or(&self.basis.banks)
    }

    fn is_ahead(&self) -> bool {
        self.writer.time.is_ahead_of(self.stamp.time, || self.recorded)
    }

    /// Returns the step that replaces the due event if it is put off.
    fn step_if_put_off(&self) -> Option<u64> {
        let events = self.kind().events().filter(|_| self.puts_off)?;
        events.step_without(&self.state(), &self.moment)
    }

    /// Appends all records, and applies them.
    fn commit(
        mut self,
        request: &Request<'_>,
        plan: &WritePlan,
        stripe: &mut StripeGuard<'_, Local>,
        stripe_0: Option<&StripeGuard<'_, Local>>,
    ) -> Result<Attempt> {
        let (writer, stamp, state) = (self.writer, self.stamp, self.state());
        let mut records = mem::take(&mut self.records);
        let banks = self.banks();
        let header = writer.shared.header();
        apply(writer, stripe, request, stamp, (&state, banks, plan), |last, record| {
            records.push(*record);
            let announce = |tail| {
                if stripe_0.is_some() {
                    header.events_from().announce(tail);
                }
            };
            match writer.log_writer.append_batch(last, &records, announce) {
                Appended::NoRoom(lack) => Err(Attempt::NoRoom(lack)),
                Appended::Voided => Err(Attempt::Again),
                Appended::At(first) => {
                    let events = &records[..records.len() - 1];
                    if let (Some(next), Some(stripe_0)) = (&self.next, stripe_0) {
                        publish(writer, next, stripe_0, (first, events));
                    }
                    Ok(first + events.len() as u64)
                }
            }
        })
    }
}

/// Publishes the next state. Its events are already in the log, the first at LSN `first`.
fn publish(
    writer: &Writer,
    next: &NextState<'_>,
    stripe_0: &StripeGuard<'_, Local>,
    (first, records): (u64, &[Record]),
) {
    next.publish(first + records.len() as u64 - 1);
    for (lsn, record) in (first..).zip(records) {
        let word = Stamp { time: record.time, stream: record.stream }.word();
        stripe_0.entry().note(lsn, word);
        writer.time.raise(word);
        if let Some(event) = event::from_record(record) {
            writer.shared.image.remove_closed(&event);
        }
    }
}

impl Recorder for Writing<'_> {
    type Error = Unstaged;

    fn kind(&self) -> &dyn Kind {
        self.writer.shared.kind()
    }

    fn decide(
        &mut self,
        request: &Asked,
        _: u32,
        early: bool,
    ) -> std::result::Result<WritePlan, Unstaged> {
        let (kind, layout) = (self.kind(), self.writer.shared.layout());
        let (state, mut has_count) = (self.state(), true);
        let count = |there| has_count = pass_count(there, self.count);
        let (kind_early, banks) = ((kind, early), self.banks());
        let mut plan =
            decide::decide(kind_early, &state, layout, &self.moment, request, banks, count);
        if !has_count {
            return Err(self.writer.shared.unsupported("estimate").into());
        }
        decide::put_off(&mut plan, kind, &state, self.step_if_put_off());
        Ok(plan)
    }

    fn event_before(&mut self, plan: &WritePlan) -> std::result::Result<Option<Event>, Unstaged> {
        let is_ahead = self.is_ahead();
        if !plan.due && !is_ahead {
            return Ok(None);
        }
        if self.puts_off {
            return Err(Unstaged::NeedsStripe0 { can_be_put_off: false });
        }
        let layout = self.writer.shared.layout();
        let due = self.kind().due(&self.state(), layout, &self.moment);
        Ok(due.or_else(|| is_ahead.then_some(Event::time(self.stamp.time))))
    }

    fn record_event(&mut self, event: &Event) -> std::result::Result<(), Unstaged> {
        let (image, latest) = (&self.writer.shared.image, self.writer.time.latest());
        if !matches!(event, Event::Step { .. }) {
            // Another filter's bank in this directory may have the same name.
            self.writer.shared.check_directory()?;
        }
        let state = self.next.get_or_insert_with(|| self.basis.state_block.next_state()).state();
        match *event {
            Event::OpenBank { .. } => {
                let slot = state.free_slot().unwrap_or(0);
                let opened = image.prepare(event)?.map(Arc::new);
                self.banks = Some(self.banks().with(slot, opened));
            }
            Event::CloseBank { id, .. } => {
                if let Some(closed) = state.banks().find(|bank| bank.id == id) {
                    self.banks = Some(self.banks().with(closed.slot, None));
                }
            }
            Event::Step { .. } => {}
        }
        apply_record::change_state(image, self.kind(), &state, event);
        let record = records::of_event(event, self.stamp, latest);
        self.recorded = self.recorded.max(record.time);
        self.moment.now = self.moment.now.max(record.time);
        self.records.push(record);
        Ok(())
    }

    fn record_operation(&mut self, _: &Asked, _: u32, plan: &WritePlan) -> bool {
        self.plan = Some(*plan);
        plan.present == Some(true)
    }
}
