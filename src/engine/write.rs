//! Inserting, step by step; the protocol is in `docs/architecture.md`.
//!
//! Everything an insert depends on is decided under its stripe before its LSN is reserved. It is
//! then written in the record, the record is published, and only then is it applied. A killed
//! process therefore leaves either no record, or a record that replay applies.

use crate::engine::background::{BEAT, RECORDS_A_RING};
use crate::engine::backpressure::RESTRAINED;
use crate::engine::outcome::{Checked, Precondition, Request, Since, WriteOutcome};
use crate::engine::time::Stamp;
use crate::engine::{Engine, Local};
use crate::error::Result;
use crate::image::shared::{change_block, counts_of, stamp as stripe_time};
use crate::locks::stripes::StripeGuard;
use crate::options::Durability;
use crate::sync::Ordering;
use crate::wal::record::ARGUMENT_MAX;
use crate::wal::slot::reserve;
use crate::wal::{Op, Record, Segment};
use ebbtide_core::block::prefetch_write;
use ebbtide_core::event;
use ebbtide_core::kind::{
    BankMask, Change, Decision, Event, Kind, Micros, Moment, Operation, Query, State, Totals,
};
use std::sync::Arc;

/// The outcome of one attempt under the stripe.
enum Attempt {
    Done(WriteOutcome),
    /// There is no room in the log that this handle has mapped.
    NoRoom,
}

/// The decision for an insert.
struct Plan<'a> {
    /// The version of the state block that the decision is based on; its state follows.
    version: u64,
    state: State<'a>,
    decision: Decision,
    mask: BankMask,
    present: bool,
    /// Whether a step must come first.
    due: bool,
    /// Whether the filter's time must be recorded first: see [`Events::grace`](ebbtide_core::kind::Events::grace).
    ahead: bool,
}

impl Engine {
    /// Prefetches the memory that a query for a key will read.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let banks = self.image.recent_banks();
        let located = banks.locate(BankMask::MAX, hash);
        located.prefetch_headers();
        self.meta.kind.prefetch(&located.blocks, hash);
    }

    /// As [`Engine::prefetch`] for an insert, which also changes memory that another core may have
    /// changed last.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, hash: u64) {
        let stripe = self.image.layout().stripe_of(hash) + 1;
        prefetch_write(self.image.header().stripe(stripe).lock_word());
        let banks = self.image.recent_banks();
        let located = banks.locate(BankMask::MAX, hash);
        located.prefetch_headers_to_write();
        self.meta.kind.prefetch(&located.blocks, hash);
    }

    /// Inserts or removes a key, after checking its precondition. Best after
    /// [`Engine::prefetch_to_write`]: the cache misses on the cells then overlap with acquiring the
    /// stripe and writing the record.
    pub(crate) fn write(&self, request: &Request<'_>) -> Result<WriteOutcome> {
        self.check_usable()?;
        let given = request.time;
        let index = self.image.layout().stripe_of(request.hash) + 1;
        let mut waited_after = None;
        loop {
            if self.is_checkpoint_wanted() {
                self.wait_for_checkpoint();
            }
            let mut stripe = self.lock_unless_closed(index)?;
            self.check_writable()?;
            // Under the stripe, so that the clock's times within a stripe never decrease.
            let stamp = self.stamp(given)?;
            let end = self.log.mapped_end();
            let attempt = self.attempt(&mut stripe, request, stamp);
            let made = match attempt {
                // Too late by this handle's own clock: the process was stopped after the clock was
                // read.
                Ok(Attempt::Done(WriteOutcome { checked: Checked::TooLate, .. }))
                    if given.is_none() && !stamp.stream =>
                {
                    Ok(())
                }
                Ok(Attempt::Done(written)) => {
                    // Still under the stripe: no other insert of the key can come in between.
                    if let (Some(told), Checked::New) = (request.told, written.checked) {
                        told.set(self.estimate_held(request.hash, &self.moment(stamp))?);
                    }
                    return Ok(written);
                }
                // Still under the stripe. A step may have been recorded for this insert, and counts
                // only if a record follows it. If this process dies here, the process that takes
                // the stripe over ensures that.
                Ok(Attempt::NoRoom) => self.make_room(end),
                // Nothing has happened.
                Err(error) => Err(error),
            };
            match made {
                // A checkpoint removes log; but do not wait for the same one twice.
                Err(error)
                    if error.is_full()
                        && waited_after != Some(self.newest_snapshot())
                        && self.want_checkpoint() =>
                {
                    waited_after = Some(self.newest_snapshot());
                }
                made => made?,
            }
        }
    }

    fn attempt(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        request: &Request<'_>,
        stamp: Stamp,
    ) -> Result<Attempt> {
        let kind = &*self.meta.kind;
        let header = self.image.header();
        let Request { hash, weight, ask, .. } = *request;
        let mut plan = self.plan(kind, request, &self.moment(stamp), ask)?;
        let present = plan.present;
        let checked = if present { Checked::Present } else { Checked::New };
        if plan.decision == Decision::TooLate {
            header.refused().fetch_add(1, Ordering::Relaxed);
            // The operation's own time is before the window, but the key may have been seen since.
            // (Nothing was removed.)
            let seen = present && ask != Precondition::Removable;
            let checked = if seen { Checked::Present } else { Checked::TooLate };
            return Ok(Attempt::Done(WriteOutcome { checked, lsn: stripe.entry().lsn() }));
        }
        let unchanged = match ask {
            Precondition::Nothing
            | Precondition::Estimate
            | Precondition::Present(Since::LastSeen) => false,
            Precondition::Present(Since::LastAccepted) | Precondition::UpTo(_) => present,
            Precondition::Removable => !present,
        };
        if unchanged {
            // No record: the data that the answer rests on is durable when the stripe's last record
            // is.
            return Ok(Attempt::Done(WriteOutcome { checked, lsn: stripe.entry().lsn() }));
        }
        // Steps come directly before the insert that needs them, and only then.
        while plan.due || plan.ahead {
            // By the exact sums none may be due. That is the answer only if it is based on the
            // state of the plan: the words of an older state are overwritten.
            let due = kind.due(&plan.state, self.image.layout(), &self.exact_moment(stamp));
            let current = header.state_block().unchanged(plan.version);
            let stepped = match due {
                _ if !current => StepOutcome::Applied,
                Some(_) => self.step(stamp)?,
                None if plan.ahead => self.tell_time(stamp)?,
                None => break,
            };
            match stepped {
                StepOutcome::NoRoom => return Ok(Attempt::NoRoom),
                StepOutcome::Applied => {
                    plan = self.plan(kind, request, &self.moment(stamp), Precondition::Nothing)?;
                }
                StepOutcome::PutOff(step) => {
                    plan.decision = Decision::Insert { step };
                    plan.mask = kind.touches(&plan.state, step);
                    break;
                }
            }
        }
        let Decision::Insert { step } = plan.decision else {
            // A step has made it too late.
            header.refused().fetch_add(1, Ordering::Relaxed);
            return Ok(Attempt::Done(WriteOutcome { checked: Checked::TooLate, lsn: 0 }));
        };
        let change = request.change();
        let operation = Operation { change, hash, step, time: stamp.time, weight };
        Ok(match self.apply(stripe, kind, &operation, stamp, &plan)? {
            Some(lsn) => Attempt::Done(WriteOutcome { checked, lsn }),
            None => Attempt::NoRoom,
        })
    }

    /// Decides an insert, and queries the key, against one version of the state block. The stripe
    /// is held, so the key's blocks cannot change meanwhile.
    #[inline]
    fn plan(
        &self,
        kind: &dyn Kind,
        request: &Request<'_>,
        moment: &Moment,
        ask: Precondition,
    ) -> Result<Plan<'_>> {
        let hash = request.hash;
        let header = self.image.header();
        let state_block = header.state_block();
        loop {
            // Before the version is read: if another writer has recorded its time by then, its
            // event is either in this version, or yet to be decided.
            let ahead = self.is_ahead(moment.time);
            let version = state_block.version();
            let state = state_block.state(version);
            let Some(banks) = self.image.banks_of(&state, version) else {
                self.image.follow()?;
                continue;
            };
            let mut decision = kind.decide(&state, moment);
            let mut mask = match decision {
                Decision::Insert { step } => kind.touches(&state, step),
                Decision::TooLate => 0,
            };
            // A key with the clock's time is not late, except for the time that passes while
            // threads overtake each other.
            if let Decision::Insert { step } = &mut decision
                && request.time.is_some_and(|time| time < moment.now)
            {
                *step = kind.step_of_late(&state, &banks.locate(mask, hash).blocks, hash, *step);
                mask = kind.touches(&state, *step);
            }
            let query = Query { hash, now: moment.now, totals: moment.totals };
            let located = || banks.locate(BankMask::MAX, hash);
            let present = match ask {
                Precondition::Nothing => false,
                Precondition::Present(_) => kind.contains(&state, &located().blocks, &query),
                Precondition::Removable => {
                    let there = kind.estimate(&state, &located().blocks, &query);
                    there.is_some_and(|there| there.holds(request.weight))
                }
                Precondition::Estimate | Precondition::UpTo(_) => {
                    let there = kind.estimate(&state, &located().blocks, &query);
                    let there = there.ok_or_else(|| self.unsupported("estimate"))?;
                    request.is_over(there)
                }
            };
            let due = kind.due(&state, self.image.layout(), moment).is_some();
            if state_block.unchanged(version) {
                return Ok(Plan { version, state, decision, mask, present, due, ahead });
            }
        }
    }

    /// Records an operation, publishes it, applies it. `None` if there is no room in the log; then
    /// nothing has happened.
    ///
    /// # Errors
    /// [`crate::Error::Io`] without room for a block that grows; then nothing has happened either.
    // Out of line, this and `append` cost every insert 70 ns (measured in pairs).
    #[inline(always)]
    fn apply(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        kind: &dyn Kind,
        operation: &Operation,
        stamp: Stamp,
        plan: &Plan<'_>,
    ) -> Result<Option<u64>> {
        let state = plan.state;
        let banks = self.image.banks_near(&state);
        let located = banks.locate(plan.mask, operation.hash);
        let argument = if kind.weights().is_some() {
            operation.weight
        } else {
            kind.new_bits(&state, &located.blocks, operation).min(ARGUMENT_MAX)
        };
        let op = match operation.change {
            Change::Insert => Op::Insert,
            Change::Remove => Op::Remove,
        };
        let record = Record {
            op,
            argument,
            stream: stamp.stream,
            payload: operation.hash,
            time: stamp.time,
            step: operation.step,
        };
        let room = match located.blocks.get(0) {
            Some(block) => self.image.make_room(kind, &banks, block, operation)?,
            None => 0,
        };
        // Every block to be changed is marked before the record exists: a process that finds this
        // stripe without its owner can then identify the blocks to rebuild.
        located.begin();
        let lsn = self.append(&mut stripe.segment, &record);
        if lsn.is_some() {
            change_block(kind, &state, &located.blocks, operation);
        }
        located.end(lsn);
        let Some(lsn) = lsn else { return Ok(None) };
        // Last: until then a process that takes the stripe over applies the record again.
        self.count(stripe, lsn, stamp, counts_of(kind, &record));
        self.image.give_back_room(kind, &banks, &located.blocks, room);
        Ok(Some(lsn))
    }

    /// Counts an operation that has been applied: exactly in its stripe, and in the filter's sums,
    /// which are caches.
    #[inline]
    fn count(&self, stripe: &StripeGuard<'_, Local>, lsn: u64, stamp: Stamp, counts: Totals) {
        let time = stripe_time(stamp.time, stamp.stream);
        stripe.entry().count(lsn, time, counts);
        // After the record is published: at most one operation late after a death, never early.
        self.image.header().counters().count(self.shard(), counts.inserts, counts.new_bits);
        self.raise_time(time);
    }

    /// Raises the filter's time, for kinds that use it.
    pub(crate) fn raise_time(&self, time: u64) {
        let latest = self.image.header().time();
        if self.uses_time && latest.load(Ordering::Relaxed) < time {
            latest.fetch_max(time, Ordering::Relaxed);
        }
    }

    /// Reserves a slot and publishes a record there. `last` is the segment that the caller wrote to
    /// last. `None` without room.
    #[inline(always)]
    pub(crate) fn append(&self, last: &mut Option<Arc<Segment>>, record: &Record) -> Option<u64> {
        loop {
            let lsn = reserve(self.image.header().tail(), self.log.mapped_end())?;
            if !last.as_ref().is_some_and(|segment| segment.holds(lsn)) {
                *last = self.log.segment(lsn);
                // Only if no further segment is ready, and segments are shorter than what is
                // written between two wakeups: woken threads compete with inserts
                // for the processor.
                let (end, capacity) = (self.log.mapped_end(), self.log.capacity());
                if capacity < RECORDS_A_RING && end.saturating_sub(lsn) <= capacity {
                    self.bell.ring();
                }
            }
            if lsn.is_multiple_of(RECORDS_A_RING) {
                self.bell.ring();
                if self.checkpoint_due(RESTRAINED) {
                    self.restrain_writers();
                }
            }
            // A segment exists below the mapped end, unless this thread slept: then the slot is
            // void, and the log continued.
            let segment = last.as_ref()?;
            // Otherwise another process voided the slot after its patience ended: nothing has
            // happened, and the next slot is used.
            if self.log.write(segment, lsn, record) {
                return Some(lsn);
            }
        }
    }

    /// Applies the next event that is due, under stripe 0: first its record, then the state block.
    fn step(&self, stamp: Stamp) -> Result<StepOutcome> {
        let header = self.image.header();
        let kind = &*self.meta.kind;
        // Waits for stripe 0, or the step would depend on other concurrent writers; but not for a
        // stopped process, if the kind can do without. Always acquired after an ordinary stripe.
        let (state_block, moment) = (header.state_block(), self.exact_moment(stamp));
        let version = state_block.version();
        let state = state_block.state(version);
        // Due by this very state, or another handle has applied it since.
        if kind.due(&state, self.image.layout(), &moment).is_none() {
            return Ok(StepOutcome::Applied);
        }
        let events = kind.events();
        let mut stripe = match events.and_then(|events| events.step_without(&state, &moment)) {
            None => self.lock(0),
            Some(step) => match self.lock_events() {
                Some(stripe) => stripe,
                None if state_block.unchanged(version) => return Ok(StepOutcome::PutOff(step)),
                None => return Ok(StepOutcome::Applied),
            },
        };
        // Checked again: another thread may have applied it since.
        let due = kind.due(&header.state(), self.image.layout(), &self.exact_moment(stamp));
        let Some(due) = due else {
            return Ok(StepOutcome::Applied);
        };
        self.image.prepare(&due)?;
        self.apply_event(&mut stripe, &due, stamp)
    }

    /// Returns whether a time is ahead of the last one recorded in stripe 0 by more than the kind's
    /// grace.
    #[inline]
    fn is_ahead(&self, time: Micros) -> bool {
        let told = || self.image.header().stripe(0).time() >> 1;
        self.grace < Micros::MAX && time > told().saturating_add(self.grace)
    }

    /// Records the filter's time under stripe 0, so that no event decided later counts from an
    /// earlier time. The event enters no step, and so counts only if a record follows it.
    fn tell_time(&self, stamp: Stamp) -> Result<StepOutcome> {
        let mut stripe = self.lock(0);
        // Another thread may have recorded it since.
        if !self.is_ahead(stamp.time) {
            return Ok(StepOutcome::Applied);
        }
        let told = Event::Step { step: 0, time: stamp.time, word: 0 };
        self.apply_event(&mut stripe, &told, stamp)
    }

    fn apply_event(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        due: &Event,
        stamp: Stamp,
    ) -> Result<StepOutcome> {
        // The insert that needs the event must find a slot as well. If no room could be made for
        // it, recovery would drop a step that queries have seen. (Other writers may still take the
        // slot.)
        let tail = self.image.header().tail().load(Ordering::Relaxed);
        if self.log.mapped_end().saturating_sub(tail) < 2 {
            return Ok(StepOutcome::NoRoom);
        }
        let mut record = event::to_record(due, stamp.stream);
        if record.time > stamp.time {
            // A late key: the time is the filter's, and so is its source. Otherwise replay would
            // treat it as a stream's time.
            record.stream = self.image.header().time().load(Ordering::Relaxed) & 1 != 0;
        }
        let Some(lsn) = self.append_for_stripe_0(stripe, &record) else {
            return Ok(StepOutcome::NoRoom);
        };
        self.image.apply_event(&*self.meta.kind, lsn, due);
        let time = stripe_time(record.time, record.stream);
        stripe.entry().note(lsn, time);
        // Even if the insert fails after all: replay applies the event.
        self.raise_time(time);
        Ok(StepOutcome::Applied)
    }

    /// Stores the earliest possible slot of the record, for a process that takes stripe 0 over,
    /// then appends the record. If there is no room, [`Engine::make_room`] makes some or returns
    /// the reason.
    pub(crate) fn append_for_stripe_0(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        record: &Record,
    ) -> Option<u64> {
        let header = self.image.header();
        // Checked again: an event of a dead owner that could not be repaired counts for recovery,
        // but has not been applied here.
        if header.refuses() {
            return None;
        }
        // Relaxed: comes before the Release of `reserve`; others read it only after this process
        // has died.
        header.events_from().store(header.tail().load(Ordering::Relaxed), Ordering::Relaxed);
        self.append(&mut stripe.segment, record)
    }

    /// Records that the filter was alive now, unless another process just did.
    pub(crate) fn heartbeat(&self) -> Result<()> {
        let (stamp, latest) = (self.now(), self.latest());
        // Nothing has happened yet, or time comes with the keys: there is no lifetime to record.
        let lives = latest.time > 0 && !stamp.stream;
        let fresh = u128::from(stamp.time.saturating_sub(latest.time)) < BEAT.as_micros() / 2;
        if !lives || fresh || self.image.header().refuses() {
            return Ok(());
        }
        if let Some(mut stripe) = self.lock_events() {
            // If there is no room, the next insert makes some; a heartbeat can wait.
            let _ = self.append_heartbeat(&mut stripe, stamp);
        }
        Ok(())
    }

    /// Appends a heartbeat. Returns whether there was room for it.
    fn append_heartbeat(&self, stripe: &mut StripeGuard<'_, Local>, stamp: Stamp) -> bool {
        let record =
            Record { time: stamp.time, stream: stamp.stream, ..Record::new(Op::Heartbeat) };
        let Some(lsn) = self.append_for_stripe_0(stripe, &record) else {
            return false;
        };
        let time = stripe_time(stamp.time, stamp.stream);
        stripe.entry().note(lsn, time);
        self.raise_time(time);
        true
    }

    /// Makes the recorded events of a dead process count: recovery drops events that no record
    /// follows, because their insert is missing. A heartbeat without a new time is appended after
    /// them.
    pub(crate) fn confirm_events(&self, stripe: &mut StripeGuard<'_, Local>) {
        loop {
            let (time, end) = (stripe.entry().sums().time, self.log.mapped_end());
            let stamp = Stamp { time: time >> 1, stream: time & 1 != 0 };
            // If no room can be made either, no process can insert. The next process that can
            // insert confirms them by a record that follows.
            if self.append_heartbeat(stripe, stamp) || self.make_room(end).is_err() {
                return;
            }
        }
    }

    /// Waits for the durability of an operation's record.
    pub(crate) fn settle(&self, lsn: u64, durability: Option<Durability>) -> Result<()> {
        match durability.unwrap_or(self.meta.durability) {
            Durability::Always => self.commit_applied(lsn.saturating_add(1)),
            Durability::Interval(every) => {
                self.bell.request(every);
                Ok(())
            }
            Durability::Never => Ok(()),
        }
    }
}

enum StepOutcome {
    /// An event was applied, here or elsewhere, or the time was recorded: check again.
    Applied,
    /// A process that makes no progress holds stripe 0: insert under this step without it.
    PutOff(u64),
    /// There is no room in the log.
    NoRoom,
}

#[cfg(all(test, not(loom)))]
mod tests;
