//! Inserting, step by step; the protocol is in `docs/architecture.md`.
//!
//! Everything an insert depends on is decided under its stripe before its LSN is reserved, written in its record,
//! published, and only then applied. A killed process leaves either no record, or a record that replay
//! applies.

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

/// What came of one attempt under the stripe.
enum Attempt {
    Done(WriteOutcome),
    /// There is no room in the log that this handle has mapped.
    NoRoom,
}

/// What was decided for an insert.
struct Plan<'a> {
    /// The version of the state block that it was decided by, and that version's state.
    version: u64,
    state: State<'a>,
    decision: Decision,
    mask: BankMask,
    present: bool,
    /// Whether a step must come first.
    due: bool,
    /// Whether the filter's time must be told first: see [`Kind::grace`].
    ahead: bool,
}

impl Engine {
    /// Asks the processor for what a question about a key will touch.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let banks = self.image.recent_banks();
        let located = banks.locate(BankMask::MAX, hash);
        located.prefetch_headers();
        self.meta.kind.prefetch(&located.blocks, hash);
    }

    /// The same for an insert, which also changes what another core may have changed last.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, hash: u64) {
        let stripe = self.image.layout().stripe_of(hash) + 1;
        prefetch_write(self.image.header().stripe(stripe).lock_word());
        let banks = self.image.recent_banks();
        let located = banks.locate(BankMask::MAX, hash);
        located.prefetch_headers_to_write();
        self.meta.kind.prefetch(&located.blocks, hash);
    }

    /// Inserts or removes a key, after asking for it. Best after [`Engine::prefetch_to_write`]: the misses on the cells pass
    /// while the stripe is taken and the record is written.
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
            // Under the stripe, so that the clock's times of one stripe never run backwards.
            let stamp = self.stamp(given)?;
            let end = self.log.mapped_end();
            let attempt = self.attempt(&mut stripe, request, stamp);
            let made = match attempt {
                // Too late by our own clock: the process was stopped after it was read.
                Ok(Attempt::Done(WriteOutcome { checked: Checked::TooLate, .. }))
                    if given.is_none() && !stamp.stream =>
                {
                    Ok(())
                }
                Ok(Attempt::Done(written)) => {
                    // Still under the stripe: no other insert of the key comes in between.
                    if let (Some(told), Checked::New) = (request.told, written.checked) {
                        told.set(self.estimate_held(request.hash, &self.moment(stamp))?);
                    }
                    return Ok(written);
                }
                // Still under the stripe: a step may have been recorded for this insert, and counts only if something follows it.
                // Should we die here, whoever takes the stripe over sees to that.
                Ok(Attempt::NoRoom) => self.make_room(end),
                // Nothing has happened.
                Err(error) => Err(error),
            };
            match made {
                // A checkpoint removes log; but not the one that was waited for in vain.
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
            // Its own time is over, but it may have been seen since. (Nothing was removed.)
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
            // No record: what the answer rests on is durable when the stripe's last record is.
            return Ok(Attempt::Done(WriteOutcome { checked, lsn: stripe.entry().lsn() }));
        }
        // Steps come right before the insert that needs them, and only then.
        while plan.due || plan.ahead {
            // By the sums as they are none may be due. That is the answer only if it was asked of the state that the plan
            // was made by: an older one's words are written again.
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

    /// Decides an insert, and asks for the key, against one version of the state block. The stripe is held, so the key's
    /// blocks cannot change meanwhile.
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
            // Before the version: whose time is told by then, his event is in it, or yet to be decided.
            let ahead = self.is_ahead(moment.time);
            let version = state_block.version();
            let (state, banks) = (state_block.state(version), self.image.banks());
            if !self.image.are_listed(&banks, version) {
                self.image.follow()?;
                continue;
            }
            let mut decision = kind.decide(&state, moment);
            let mut mask = match decision {
                Decision::Insert { step } => kind.touches(&state, step),
                Decision::TooLate => 0,
            };
            // By the clock a key is not late, but for what passes while threads overtake each other.
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

    /// Records an operation, publishes it, applies it. `None` without room in the log: nothing has happened then.
    ///
    /// # Errors
    /// [`crate::Error::Io`] without room for a block that grows; nothing has happened then either.
    // Out of line, this and `append` cost every insert 70 ns (measured, in pairs).
    #[inline(always)]
    fn apply(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        kind: &dyn Kind,
        operation: &Operation,
        stamp: Stamp,
        plan: &Plan<'_>,
    ) -> Result<Option<u64>> {
        let (state, banks) = (plan.state, self.image.banks());
        let located = banks.locate(plan.mask, operation.hash);
        let argument = if kind.weighs() {
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
        // Every block that will change is marked before the record exists: whoever finds this stripe without its
        // owner knows what to rebuild.
        located.begin();
        let lsn = self.append(&mut stripe.segment, &record);
        if lsn.is_some() {
            change_block(kind, &state, &located.blocks, operation);
        }
        located.end(lsn);
        let Some(lsn) = lsn else { return Ok(None) };
        // Last: until then whoever takes the stripe over applies the record again.
        self.count(stripe, lsn, stamp, counts_of(kind, &record));
        self.image.give_back_room(kind, &banks, &located.blocks, room);
        Ok(Some(lsn))
    }

    /// Counts an operation that has been applied: its stripe exactly, the filter's sums as caches.
    #[inline]
    fn count(&self, stripe: &StripeGuard<'_, Local>, lsn: u64, stamp: Stamp, counts: Totals) {
        let time = stripe_time(stamp.time, stamp.stream);
        stripe.entry().count(lsn, time, counts);
        // After the record is published: late by one after a death, never early.
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

    /// Reserves a place and publishes a record there. `last` is the segment that the caller wrote to last.
    /// `None` without room.
    #[inline(always)]
    pub(crate) fn append(&self, last: &mut Option<Arc<Segment>>, record: &Record) -> Option<u64> {
        loop {
            let lsn = reserve(self.image.header().tail(), self.log.mapped_end())?;
            if !last.as_ref().is_some_and(|segment| segment.holds(lsn)) {
                *last = self.log.segment(lsn);
                // Only where no whole segment lies ready: most stripes enter one long after the first of them did, and those
                // that are woken take the processor away from the inserts. Not while a segment gets
                // its pieces: a busy writer rings soon enough, others need nothing ahead.
                let end = self.log.mapped_end();
                let is_whole = last.as_ref().is_some_and(|segment| segment.end() <= end);
                if is_whole && end.saturating_sub(lsn) <= self.log.capacity() {
                    self.bell.ring();
                }
            }
            if lsn.is_multiple_of(RECORDS_A_RING) {
                self.bell.ring();
                if self.checkpoint_due(RESTRAINED) {
                    self.restrain_writers();
                }
            }
            // There is one below the mapped end, unless we slept: the place is void then, and the log went on.
            let segment = last.as_ref()?;
            // Else somebody lost patience and voided the place: nothing has happened, the next one will do.
            if self.log.write(segment, lsn, record) {
                return Some(lsn);
            }
        }
    }

    /// Applies the next event that is due, under stripe 0: its record first, then the state block.
    fn step(&self, stamp: Stamp) -> Result<StepOutcome> {
        let header = self.image.header();
        let kind = &*self.meta.kind;
        // Waited for, or the step would depend on who else is at work; but not for a stopped process, where the kind can do
        // without. Always taken after an ordinary stripe.
        let (state_block, moment) = (header.state_block(), self.exact_moment(stamp));
        let version = state_block.version();
        let state = state_block.state(version);
        // Due by this very state, or another handle has applied it since.
        if kind.due(&state, self.image.layout(), &moment).is_none() {
            return Ok(StepOutcome::Applied);
        }
        let mut stripe = match kind.step_without(&state, &moment) {
            None => self.lock(0),
            Some(step) => match self.lock_events() {
                Some(stripe) => stripe,
                None if state_block.unchanged(version) => return Ok(StepOutcome::PutOff(step)),
                None => return Ok(StepOutcome::Applied),
            },
        };
        // Asked again: another thread may have applied it since.
        let due = kind.due(&header.state(), self.image.layout(), &self.exact_moment(stamp));
        let Some(due) = due else {
            return Ok(StepOutcome::Applied);
        };
        self.image.prepare(&due)?;
        self.apply_event(&mut stripe, &due, stamp)
    }

    /// Whether a time is further ahead of what stripe 0 knows than the kind's grace.
    #[inline]
    fn is_ahead(&self, time: Micros) -> bool {
        let told = || self.image.header().stripe(0).time() >> 1;
        self.grace < Micros::MAX && time > told().saturating_add(self.grace)
    }

    /// Tells the filter's time under stripe 0, so that no event that is decided from now on counts from an earlier one: by an
    /// event that enters no step, and so counts only if something follows it.
    fn tell_time(&self, stamp: Stamp) -> Result<StepOutcome> {
        let mut stripe = self.lock(0);
        // Another thread may have told it since.
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
        // The insert that needs it must find a place as well: if no room could be made for that, recovery would leave out a
        // step that queries have seen. (Others may still take the place.)
        let tail = self.image.header().tail().load(Ordering::Relaxed);
        if self.log.mapped_end().saturating_sub(tail) < 2 {
            return Ok(StepOutcome::NoRoom);
        }
        let mut record = event::to_record(due, stamp.stream);
        if record.time > stamp.time {
            // A late key: the time is the filter's, and so is its source. Else replay would take it for a stream's.
            record.stream = self.image.header().time().load(Ordering::Relaxed) & 1 != 0;
        }
        let Some(lsn) = self.append_for_stripe_0(stripe, &record) else {
            return Ok(StepOutcome::NoRoom);
        };
        self.image.apply_event(&*self.meta.kind, lsn, due);
        let time = stripe_time(record.time, record.stream);
        stripe.entry().note(lsn, time);
        // Also if the insert fails after all: replay knows the event.
        self.raise_time(time);
        Ok(StepOutcome::Applied)
    }

    /// Says where the record will lie at the earliest, for whoever takes stripe 0 over, then appends it. If it cannot,
    /// [`Engine::make_room`] mends that or says why.
    pub(crate) fn append_for_stripe_0(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        record: &Record,
    ) -> Option<u64> {
        let header = self.image.header();
        // Asked again: what a dead owner recorded, and nobody could repair, counts for recovery, but has not been applied here.
        if header.refuses() {
            return None;
        }
        // Relaxed: comes before the Release of `reserve`; read by others only after our death.
        header.events_from().store(header.tail().load(Ordering::Relaxed), Ordering::Relaxed);
        self.append(&mut stripe.segment, record)
    }

    /// Records that the filter was alive now, unless somebody else just did.
    pub(crate) fn heartbeat(&self) -> Result<()> {
        let (stamp, latest) = (self.now(), self.latest());
        // Nothing has happened yet, or time comes with the keys: there is no life to tell of.
        let lives = latest.time > 0 && !stamp.stream;
        let fresh = u128::from(stamp.time.saturating_sub(latest.time)) < BEAT.as_micros() / 2;
        if !lives || fresh || self.image.header().refuses() {
            return Ok(());
        }
        if let Some(mut stripe) = self.lock_events() {
            // Without room the next insert makes some; a heartbeat can wait.
            let _ = self.append_heartbeat(&mut stripe, stamp);
        }
        Ok(())
    }

    /// Whether there was room for it.
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

    /// Makes events that a dead process recorded count: recovery drops events that nothing follows, as their insert never
    /// came. A heartbeat that tells no new time follows them.
    pub(crate) fn confirm_events(&self, stripe: &mut StripeGuard<'_, Local>) {
        loop {
            let (time, end) = (stripe.entry().sums().time, self.log.mapped_end());
            let stamp = Stamp { time: time >> 1, stream: time & 1 != 0 };
            // If no room can be made either, nobody can insert, and whoever can again does so for a record that follows.
            if self.append_heartbeat(stripe, stamp) || self.make_room(end).is_err() {
                return;
            }
        }
    }

    /// Waits for an operation's record as its durability asks.
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
    /// An event was applied, here or elsewhere, or the time was told: ask again.
    Applied,
    /// A process that does not come on holds stripe 0: insert under this step without it.
    PutOff(u64),
    /// There is no room in the log.
    NoRoom,
}

#[cfg(all(test, not(loom)))]
mod tests;
