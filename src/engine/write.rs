//! Inserting, step by step; the protocol is in `docs/architecture.md`.
//!
//! Everything an insert depends on is decided under its stripe before its LSN is reserved. It is
//! then written in the record, the record is published, and only then is it applied. A killed
//! process therefore leaves either no record, or a record that replay applies.

use crate::engine::backpressure::Backpressure;
use crate::engine::event_log::EventLog;
use crate::engine::group_commit::GroupCommit;
use crate::engine::log_writer::LogWriter;
use crate::engine::outcome::{Checked, Precondition, Request, Waits, WriteOutcome};
use crate::engine::read::Queries;
use crate::engine::shared::{Local, Shared};
use crate::engine::steps::{StepOutcome, Steps};
use crate::engine::stripes::StripeLocks;
use crate::engine::time::{Stamp, Time};
use crate::error::{Error, Result};
use crate::image::shared::Banks;
use crate::image::state_block::StateBlock;
use crate::locks::stripes::StripeGuard;
use ebbtide_core::block::prefetch_write;
use ebbtide_core::kind::{
    self, Decision, Estimate, Moment, State, Totals, WritePlan, plan, records,
};
use std::cell::Cell;
use std::sync::Arc;

/// The outcome of one attempt under the stripe.
enum Attempt {
    Done(WriteOutcome),
    /// There is no room in the log that this handle has mapped.
    NoRoom,
    /// The state has changed meanwhile.
    Again,
}

/// What a write is decided on: a version of the state block, with its state and banks.
struct Basis<'a> {
    state_block: StateBlock<'a>,
    version: u64,
    state: State<'a>,
    banks: Banks<'a>,
    /// Whether the filter's time must be recorded first: see
    /// [`Events::grace`](ebbtide_core::kind::Events::grace).
    ahead: bool,
    /// Whether the kind has the count that a precondition reads.
    has_count: Cell<bool>,
}

/// The inserts and removals of a handle. Whatever else appends records uses its parts.
#[derive(Debug)]
pub struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) time: Arc<Time>,
    pub(crate) backpressure: Arc<Backpressure>,
    pub(crate) log_writer: Arc<LogWriter>,
    pub(crate) commits: Arc<GroupCommit>,
    pub(crate) events: EventLog,
    pub(crate) stripes: Arc<StripeLocks>,
    pub(crate) steps: Steps,
    pub(crate) queries: Queries,
}

impl Writer {
    /// As [`Queries::prefetch`] for an insert, which also changes memory that another core may have
    /// changed last.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, hash: u64) {
        if self.shared.image.recent_banks().prefetches() {
            self.prefetch_words(hash);
        }
    }

    #[inline(never)]
    fn prefetch_words(&self, hash: u64) {
        let banks = self.shared.image.recent_banks();
        let stripe = self.shared.image.layout().stripe_of(hash) + 1;
        prefetch_write(self.shared.image.header().stripe(stripe).lock_word());
        let located = banks.locate_to_read(hash);
        located.prefetch_headers_to_write();
        self.shared.meta.kind.prefetch(&located.blocks, hash);
    }

    /// Prefetches what inserts of these keys will probably touch beyond what
    /// [`Writer::prefetch_to_write`] has prefetched for all of them before.
    pub(crate) fn prefetch_further(&self, hashes: &[u64]) {
        // It reads words, and a forked child has no mapping.
        if self.shared.check_usable().is_err() {
            return;
        }
        let banks = self.shared.image.recent_banks();
        if banks.prefetches() {
            for &hash in hashes {
                let located = banks.locate_to_read(hash);
                self.shared.meta.kind.prefetch_further(&located.blocks, hash);
            }
        }
    }

    /// Inserts or removes a key, after checking its precondition. Best after
    /// [`Writer::prefetch_to_write`]: the cache misses on the cells then overlap with acquiring the
    /// stripe and writing the record.
    #[inline]
    pub(crate) fn write(&self, request: &Request<'_>) -> Result<WriteOutcome> {
        self.shared.check_usable()?;
        let mut waited_after = None;
        loop {
            if let Some(written) = self.write_once(request, &mut waited_after)? {
                self.stripes.be_courteous(1, request.waits);
                return Ok(written);
            }
        }
    }

    /// Writes, or does what must be done first: then `None`. `waited_after` is as for
    /// [`Writer::make_space`].
    // In the loop of `write` the compiler would compute, for each insert, what only its rare parts
    // need.
    #[inline(never)]
    fn write_once(
        &self,
        request: &Request<'_>,
        waited_after: &mut Option<u64>,
    ) -> Result<Option<WriteOutcome>> {
        // A caller that waits for space continues when there may be some.
        if waited_after.is_some() || !self.backpressure.lets_pass() {
            self.wait_for_checkpoint(request.waits)?;
        }
        let index = self.shared.image.layout().stripe_of(request.asked.hash) + 1;
        let stripe = &mut match self.stripes.try_lock(index) {
            Some(stripe) => stripe,
            None => self.stripes.lock_unless_closed(index, request.waits)?,
        };
        self.shared.check_writable()?;
        // Under the stripe, so that the clock's times within a stripe never decrease.
        let stamp = self.time.stamp(request.time)?;
        let end = self.shared.log.mapped_end();
        let failed = match self.attempt(stripe, request, stamp) {
            Ok(Attempt::Done(written)) => return self.complete(written, request, stamp),
            // Still under the stripe. A step may have been recorded for this insert, and counts
            // only if a record follows it. If this process dies here, the process that takes the
            // stripe over ensures that.
            Ok(Attempt::NoRoom) => self.make_room(request.waits, end),
            Ok(Attempt::Again) => Ok(()),
            // Nothing has happened.
            Err(error) => Err(error),
        };
        match failed {
            Ok(()) => Ok(None),
            Err(error) => self.make_space(error, waited_after).map(|()| None),
        }
    }

    /// Completes a write under its stripe; `None` if it must be repeated.
    #[inline]
    fn complete(
        &self,
        written: WriteOutcome,
        request: &Request<'_>,
        stamp: Stamp,
    ) -> Result<Option<WriteOutcome>> {
        match (written.checked, request.count) {
            // Too late by this handle's own clock: the process was stopped after the clock was
            // read.
            (Checked::TooLate, _) if request.time.is_none() && !stamp.stream => return Ok(None),
            // Still under the stripe: no other insert of the key can come in between.
            (Checked::New, Some(count)) => {
                let moment = self.time.moment(stamp);
                count.set(self.queries.estimate_held(request.asked.hash, &moment)?);
            }
            _ => {}
        }
        Ok(Some(written))
    }

    /// Waits for a checkpoint that must come before further records.
    #[inline]
    pub(crate) fn wait_for_checkpoint(&self, waits: Waits) -> Result<()> {
        if !self.backpressure.is_requested() {
            return Ok(());
        }
        if waits.never() {
            return Err(self.shared.would_wait("a checkpoint"));
        }
        // Removed files take space for as long as this handle has them mapped.
        self.log_writer.unmap_durable();
        self.backpressure.wait();
        Ok(())
    }

    /// Makes room in the log beyond `end`, the end of what this handle had mapped.
    #[cold]
    fn make_room(&self, waits: Waits, end: u64) -> Result<()> {
        // No step was recorded: see `step_before`.
        if waits.never() {
            return Err(self.shared.would_wait("more log or memory to be allocated"));
        }
        self.log_writer.make_room(end)
    }

    /// Requests a checkpoint, which removes log, if an attempt failed on a full disk; otherwise
    /// returns the error. `waited_after` is the newest snapshot when that was done last: it does
    /// not wait for the same checkpoint twice.
    #[cold]
    pub(crate) fn make_space(&self, error: Error, waited_after: &mut Option<u64>) -> Result<()> {
        let newest = || self.shared.image.header().snapshot().hint();
        if error.is_full() && *waited_after != Some(newest()) && self.backpressure.request() {
            *waited_after = Some(newest());
            return Ok(());
        }
        Err(error)
    }

    #[inline(always)]
    fn attempt(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        request: &Request<'_>,
        stamp: Stamp,
    ) -> Result<Attempt> {
        let (asked, moment) = (&request.asked, &self.time.moment(stamp));
        let Some(mut basis) = self.basis(moment) else {
            self.shared.image.follow()?;
            return Ok(Attempt::Again);
        };
        let mut plan = self.decide(&basis, request, asked, moment);
        if !self.still_holds(&basis)? {
            return Ok(Attempt::Again);
        }
        // The answer is that of the first plan. It has none if the insert itself tells; then no
        // step comes before it.
        let present = plan.present;
        if let Some(checked) = plan.unchanged(asked.precondition) {
            return Ok(self.leave(stripe, &plan, checked));
        }
        if (plan.due || basis.ahead)
            && let Some(ended) = self.step_before(stripe, request, stamp, &mut basis, &mut plan)?
        {
            return Ok(ended);
        }
        self.apply(stripe, request, stamp, (&basis, &plan), present)
    }

    /// Ends a write that leaves no record: the data that the answer rests on is durable when the
    /// stripe's last record is.
    fn leave(
        &self,
        stripe: &StripeGuard<'_, Local>,
        plan: &WritePlan,
        checked: Checked,
    ) -> Attempt {
        if plan.decision == Decision::TooLate {
            self.shared.image.header().refused().add();
        }
        Attempt::Done(WriteOutcome { checked, lsn: stripe.entry().lsn() })
    }

    /// Records the steps that must come before a write: directly before the insert that needs
    /// them, and only then. Decides the write again on their result; returns its end, if no record
    /// can follow.
    #[cold]
    fn step_before<'a>(
        &'a self,
        stripe: &StripeGuard<'_, Local>,
        request: &Request<'_>,
        stamp: Stamp,
        basis: &mut Basis<'a>,
        plan: &mut WritePlan,
    ) -> Result<Option<Attempt>> {
        let (kind, image) = (&*self.shared.meta.kind, &self.shared.image);
        let (asked, mut waits) = (request.asked.under(Precondition::Nothing), request.waits);
        while plan.due || basis.ahead {
            // By the exact sums none may be due. That is the answer only if it is based on the
            // state of the plan: the words of an older state are overwritten.
            let due = kind.due(&basis.state, image.layout(), &self.time.exact_moment(stamp));
            let stepped = match due {
                _ if !self.still_holds(basis)? => StepOutcome::Applied,
                // A step may allocate a bank, and must be followed by the insert that needs it.
                due if waits.never() && (due.is_some() || basis.ahead) => {
                    return Err(self.shared.would_wait("the filter's next step"));
                }
                Some(_) => self.steps.step(stamp, waits)?,
                None if basis.ahead => self.steps.record_time(stamp, waits)?,
                None => return Ok(None),
            };
            match stepped {
                StepOutcome::NoRoom => return Ok(Some(Attempt::NoRoom)),
                // The insert must follow, however long it takes.
                StepOutcome::Applied => waits = Waits::Always,
                StepOutcome::PutOff(step) => {
                    plan.decision = Decision::Insert { step };
                    plan.mask = kind.touches(&basis.state, step);
                    return Ok(None);
                }
            }
            (*basis, *plan) = self.plan(request, &asked, &self.time.moment(stamp))?;
            if let Some(checked) = plan.unchanged(asked.precondition) {
                return Ok(Some(self.leave(stripe, plan, checked)));
            }
        }
        Ok(None)
    }

    /// Checks the precondition of a request whose stripe is held. Returns whether the key was
    /// found, and the answer if it leaves the filter unchanged.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(bool, Option<Checked>)> {
        let asked = &request.asked;
        loop {
            let stamp = self.time.stamp(request.time)?;
            let moment = self.time.moment(stamp);
            let (_, plan) = self.plan(request, asked, &moment)?;
            let unchanged = plan.unchanged(asked.precondition);
            if unchanged == Some(Checked::TooLate) {
                if request.time.is_none() && !stamp.stream {
                    // As in `write`.
                    continue;
                }
                self.shared.image.header().refused().add();
            }
            let present = match plan.present {
                Some(present) => present,
                None => self.queries.contains_held(asked.hash, &moment)?,
            };
            return Ok((present, unchanged));
        }
    }

    /// Decides a write on one version of the state block. The stripe is held, so the key's blocks
    /// cannot change meanwhile.
    fn plan<'a>(
        &'a self,
        request: &Request<'_>,
        asked: &kind::Request,
        moment: &Moment,
    ) -> Result<(Basis<'a>, WritePlan)> {
        loop {
            let Some(basis) = self.basis(moment) else {
                self.shared.image.follow()?;
                continue;
            };
            let plan = self.decide(&basis, request, asked, moment);
            if self.still_holds(&basis)? {
                return Ok((basis, plan));
            }
        }
    }

    /// Returns what a write is decided on now; `None` if banks must be mapped.
    #[inline(always)]
    fn basis(&self, moment: &Moment) -> Option<Basis<'_>> {
        let image = &self.shared.image;
        // Before the version is read: if another writer has recorded its time by then, its event is
        // either in this version, or yet to be decided.
        let ahead = self.steps.is_ahead(moment.time);
        let state_block = image.header().state_block();
        let version = state_block.version();
        let state = state_block.state(version);
        let banks = image.banks_of(&state, version)?;
        Some(Basis { state_block, version, state, banks, ahead, has_count: Cell::new(true) })
    }

    /// Returns whether a decision is based on one state, which no event has changed meanwhile.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the decision reads a count, and the kind has none.
    #[inline(always)]
    fn still_holds(&self, basis: &Basis<'_>) -> Result<bool> {
        if !basis.has_count.get() {
            return Err(self.shared.unsupported("estimate"));
        }
        Ok(basis.state_block.unchanged(basis.version))
    }

    #[inline(always)]
    fn decide(
        &self,
        basis: &Basis<'_>,
        request: &Request<'_>,
        asked: &kind::Request,
        moment: &Moment,
    ) -> WritePlan {
        let (kind, layout) = (&*self.shared.meta.kind, self.shared.image.layout());
        let count = |there: Option<Estimate>| {
            basis.has_count.set(there.is_some());
            if let (Some(count), Some(there)) = (request.count, there) {
                count.set(Some(there));
            }
        };
        let (kind, state) = ((kind, basis.ahead), &basis.state);
        plan::decide(kind, state, layout, moment, asked, &*basis.banks, count)
    }

    /// Records an operation, publishes it, applies it. Whether its key was there before is
    /// `present`, or what the insert finds. `NoRoom` if there is no room in the log, or none in a
    /// block for a caller that must not wait; then nothing has happened.
    ///
    /// # Errors
    /// [`crate::Error::Io`] without room for a block that grows; then nothing has happened either.
    // Out of line, this and `append` cost every insert 70 ns (measured in pairs).
    #[inline(always)]
    fn apply(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        request: &Request<'_>,
        stamp: Stamp,
        (basis, plan): (&Basis<'_>, &WritePlan),
        present: Option<bool>,
    ) -> Result<Attempt> {
        let (shared, state, banks) = (&self.shared, &basis.state, &basis.banks);
        let (kind, image) = (&*shared.meta.kind, &shared.image);
        let operation = &request.operation(stamp.time, plan.step());
        let located = banks.locate(plan.mask, operation.hash);
        let blocks = &located.blocks;
        let record = records::of_operation(kind, state, blocks, operation, stamp.stream);
        let may_allocate = !request.waits.never();
        let room = match blocks.get(0) {
            Some(block) => image.make_room(kind, banks, block, operation, may_allocate)?,
            None => Some(0),
        };
        let Some(room) = room else { return Ok(Attempt::NoRoom) };
        // Every block to be changed is marked before the record exists: a process that finds this
        // stripe without its owner can then identify the blocks to rebuild.
        located.begin();
        let Some(lsn) = self.log_writer.append(&mut stripe.segment, &record) else {
            located.end(None);
            return Ok(Attempt::NoRoom);
        };
        let present = match present {
            Some(present) => {
                records::change(kind, state, blocks, operation);
                present
            }
            None => kind.insert_and_check(state, blocks, operation, record.argument),
        };
        located.end(Some(lsn));
        // Last: until then a process that takes the stripe over applies the record again.
        self.count(stripe, lsn, stamp, records::counts(shared.weighs, &record));
        image.give_back_room(kind, banks, blocks, room);
        Ok(Attempt::Done(WriteOutcome { checked: Checked::of(present), lsn }))
    }

    /// Counts an operation that has been applied: exactly in its stripe, and in the filter's sums,
    /// which are caches.
    #[inline(always)]
    fn count(&self, stripe: &StripeGuard<'_, Local>, lsn: u64, stamp: Stamp, counts: Totals) {
        let time = stamp.word();
        stripe.entry().count(lsn, time, counts);
        // After the record is published: at most one operation late after a death, never early.
        self.shared.image.header().counters().count(
            self.shared.shard(),
            counts.inserts,
            counts.new_bits,
        );
        self.time.raise(time);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
