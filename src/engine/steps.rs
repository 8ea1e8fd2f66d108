//! Steps of the filter: events and the filter's time, recorded under stripe 0 and applied.

use crate::engine::event_log::EventLog;
use crate::engine::outcome::Waits;
use crate::engine::shared::{Local, Shared};
use crate::engine::stripes::StripeLocks;
use crate::engine::time::{Stamp, Time};
use crate::engine::wakeup::TICK;
use crate::error::Result;
use crate::locks::stripes::StripeGuard;
use ebbtide_core::event;
use ebbtide_core::kind::{Event, Micros};
use std::sync::Arc;

/// The outcome of an attempt to apply what must come before an insert.
pub(crate) enum StepOutcome {
    /// An event was applied, here or elsewhere, or the time was recorded: check again.
    Applied,
    /// A process that makes no progress holds stripe 0: insert under this step without it.
    PutOff(u64),
    /// There is no room in the log.
    NoRoom,
}

/// The steps that a handle applies.
#[derive(Debug, Clone)]
pub struct Steps {
    shared: Arc<Shared>,
    time: Arc<Time>,
    events: EventLog,
    stripes: Arc<StripeLocks>,
}

impl Steps {
    /// Creates the steps of a handle.
    pub(crate) fn new(
        shared: Arc<Shared>,
        time: Arc<Time>,
        events: EventLog,
        stripes: Arc<StripeLocks>,
    ) -> Self {
        Self { shared, time, events, stripes }
    }

    /// Applies the next event that is due, under stripe 0: first its record, then the state block.
    pub(crate) fn step(&self, stamp: Stamp, waits: Waits) -> Result<StepOutcome> {
        let header = self.shared.image.header();
        let kind = &*self.shared.meta.kind;
        // Waits for stripe 0, or the step would depend on other concurrent writers; but not for a
        // stopped process, if the kind can do without. Always acquired after an ordinary stripe.
        let (state_block, moment) = (header.state_block(), self.time.exact_moment(stamp));
        let version = state_block.version();
        let state = state_block.state(version);
        // Due by this very state, or another handle has applied it since.
        if kind.due(&state, self.shared.image.layout(), &moment).is_none() {
            return Ok(StepOutcome::Applied);
        }
        let events = kind.events();
        let mut stripe = match events.and_then(|events| events.step_without(&state, &moment)) {
            None => self.stripes.lock_within(0, waits)?,
            Some(step) => match self.stripes.lock_events() {
                Some(stripe) => stripe,
                None if state_block.unchanged(version) => return Ok(StepOutcome::PutOff(step)),
                None => return Ok(StepOutcome::Applied),
            },
        };
        // Checked again: another thread may have applied it since.
        let due =
            kind.due(&header.state(), self.shared.image.layout(), &self.time.exact_moment(stamp));
        let Some(due) = due else {
            return Ok(StepOutcome::Applied);
        };
        self.shared.image.prepare(&due)?;
        self.apply_event(&mut stripe, &due, stamp)
    }

    /// Returns whether a time is ahead of the last one recorded in stripe 0 by more than the kind's
    /// grace.
    #[inline]
    pub(crate) fn is_ahead(&self, time: Micros) -> bool {
        let recorded = || self.shared.image.header().stripe(0).time() >> 1;
        self.shared.grace < Micros::MAX && time > recorded().saturating_add(self.shared.grace)
    }

    /// Records the filter's time under stripe 0, so that no event decided later counts from an
    /// earlier time. The event enters no step, and so counts only if a record follows it.
    pub(crate) fn record_time(&self, stamp: Stamp, waits: Waits) -> Result<StepOutcome> {
        let mut stripe = self.stripes.lock_within(0, waits)?;
        // Another thread may have recorded it since.
        if !self.is_ahead(stamp.time) {
            return Ok(StepOutcome::Applied);
        }
        let now = Event::Step { step: 0, time: stamp.time, word: 0 };
        self.apply_event(&mut stripe, &now, stamp)
    }

    pub(crate) fn apply_event(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        due: &Event,
        stamp: Stamp,
    ) -> Result<StepOutcome> {
        // The insert that needs the event must find a slot as well. If no room could be made for
        // it, recovery would drop a step that queries have seen. (Other writers may still take the
        // slot.)
        let tail = self.shared.image.header().tail().hint();
        if self.shared.log.mapped_end().saturating_sub(tail) < 2 {
            return Ok(StepOutcome::NoRoom);
        }
        let mut record = event::to_record(due, stamp.stream);
        if record.time > stamp.time {
            // A late key: the time is the filter's, and so is its source. Otherwise replay would
            // treat it as a stream's time.
            record.stream = self.shared.image.header().time().read() & 1 != 0;
        }
        let Some(lsn) = self.events.append(stripe, &record) else {
            return Ok(StepOutcome::NoRoom);
        };
        self.shared.image.apply_event(&*self.shared.meta.kind, lsn, due);
        let time = Stamp { time: record.time, stream: record.stream }.word();
        stripe.entry().note(lsn, time);
        // Even if the insert fails after all: replay applies the event.
        self.time.raise(time);
        Ok(StepOutcome::Applied)
    }

    /// Records that the filter was alive now, unless another process just did.
    pub(crate) fn heartbeat(&self) -> Result<()> {
        let (stamp, latest) = (self.time.now(), self.time.latest());
        // Nothing has happened yet, or time comes with the keys: there is no lifetime to record.
        let lives = latest.time > 0 && !stamp.stream;
        let fresh = u128::from(stamp.time.saturating_sub(latest.time)) < TICK.as_micros() / 2;
        if !lives || fresh || self.shared.image.header().refuses() {
            return Ok(());
        }
        if let Some(mut stripe) = self.stripes.lock_events() {
            // If there is no room, the next insert makes some; a heartbeat can wait.
            let _ = self.events.append_heartbeat(&mut stripe, stamp);
        }
        Ok(())
    }
}
