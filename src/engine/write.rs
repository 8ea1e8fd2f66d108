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
use crate::error::Result;
use crate::locks::stripes::StripeGuard;
use ebbtide_core::block::prefetch_write;
use ebbtide_core::kind::{
    BankMask, Decision, Estimate, Kind, Moment, State, Totals, WritePlan, plan, records,
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
    write: WritePlan,
    /// Whether the filter's time must be recorded first: see
    /// [`Events::grace`](ebbtide_core::kind::Events::grace).
    ahead: bool,
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
        let located = banks.locate(BankMask::MAX, hash);
        located.prefetch_headers_to_write();
        self.shared.meta.kind.prefetch(&located.blocks, hash);
    }

    /// Inserts or removes a key, after checking its precondition. Best after
    /// [`Writer::prefetch_to_write`]: the cache misses on the cells then overlap with acquiring the
    /// stripe and writing the record.
    pub(crate) fn write(&self, request: &Request<'_>) -> Result<WriteOutcome> {
        self.shared.check_usable()?;
        let given = request.time;
        let index = self.shared.image.layout().stripe_of(request.hash) + 1;
        let newest = || self.shared.image.header().snapshot().hint();
        let mut waited_after = None;
        loop {
            if self.backpressure.is_requested() {
                if request.waits.never() {
                    return Err(self.shared.would_wait("a checkpoint"));
                }
                // Removed files take space for as long as this handle has them mapped.
                self.log_writer.unmap_durable();
                self.backpressure.wait();
            }
            let mut stripe = self.stripes.lock_unless_closed(index, request.waits)?;
            self.shared.check_writable()?;
            // Under the stripe, so that the clock's times within a stripe never decrease.
            let stamp = self.time.stamp(given)?;
            let end = self.shared.log.mapped_end();
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
                    if let (Some(count), Checked::New) = (request.count, written.checked) {
                        count.set(
                            self.queries.estimate_held(request.hash, &self.time.moment(stamp))?,
                        );
                    }
                    return Ok(written);
                }
                // No step was recorded: see `attempt`.
                Ok(Attempt::NoRoom) if request.waits.never() => {
                    Err(self.shared.would_wait("more log or memory to be allocated"))
                }
                // Still under the stripe. A step may have been recorded for this insert, and counts
                // only if a record follows it. If this process dies here, the process that takes
                // the stripe over ensures that.
                Ok(Attempt::NoRoom) => self.log_writer.make_room(end),
                // Nothing has happened.
                Err(error) => Err(error),
            };
            match made {
                // A checkpoint removes log; but do not wait for the same one twice.
                Err(error)
                    if error.is_full()
                        && waited_after != Some(newest())
                        && self.backpressure.request() =>
                {
                    waited_after = Some(newest());
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
        let (kind, image) = (&*self.shared.meta.kind, &self.shared.image);
        let (mut ask, mut present, mut waits) = (request.ask, None, request.waits);
        let plan = loop {
            let mut plan = self.plan(kind, request, &self.time.moment(stamp), ask)?;
            if let Some(checked) = plan.write.unchanged(ask) {
                if plan.write.decision == Decision::TooLate {
                    image.header().refused().add();
                }
                // No record: the data that the answer rests on is durable when the stripe's last
                // record is.
                return Ok(Attempt::Done(WriteOutcome { checked, lsn: stripe.entry().lsn() }));
            }
            // The answer is that of the first plan. It has none if the insert itself tells; then no
            // step comes before it.
            present = present.or(plan.write.present);
            ask = Precondition::Nothing;
            if !plan.write.due && !plan.ahead {
                break plan;
            }
            // Steps come directly before the insert that needs them, and only then. By the exact
            // sums none may be due. That is the answer only if it is based on the state of the
            // plan: the words of an older state are overwritten.
            let due = kind.due(&plan.state, image.layout(), &self.time.exact_moment(stamp));
            let stepped = match due {
                _ if !image.header().state_block().unchanged(plan.version) => StepOutcome::Applied,
                // A step may allocate a bank, and must be followed by the insert that needs it.
                due if waits.never() && (due.is_some() || plan.ahead) => {
                    return Err(self.shared.would_wait("the filter's next step"));
                }
                Some(_) => self.steps.step(stamp, waits)?,
                None if plan.ahead => self.steps.record_time(stamp, waits)?,
                None => break plan,
            };
            match stepped {
                StepOutcome::NoRoom => return Ok(Attempt::NoRoom),
                // The insert must follow, however long it takes.
                StepOutcome::Applied => waits = Waits::Always,
                StepOutcome::PutOff(step) => {
                    plan.write.decision = Decision::Insert { step };
                    plan.write.mask = kind.touches(&plan.state, step);
                    break plan;
                }
            }
        };
        let applied = self.apply(stripe, request, stamp, &plan, present)?;
        Ok(applied.map_or(Attempt::NoRoom, Attempt::Done))
    }

    /// Checks the precondition of a request whose stripe is held. Returns whether the key was
    /// found, and the answer if it leaves the filter unchanged.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(bool, Option<Checked>)> {
        loop {
            let stamp = self.time.stamp(request.time)?;
            let moment = self.time.moment(stamp);
            let plan = self.plan(&*self.shared.meta.kind, request, &moment, request.ask)?.write;
            let unchanged = plan.unchanged(request.ask);
            if unchanged == Some(Checked::TooLate) {
                if request.time.is_none() && !stamp.stream {
                    // As in `write`.
                    continue;
                }
                self.shared.image.header().refused().add();
            }
            let present = match plan.present {
                Some(present) => present,
                None => self.queries.contains_held(request.hash, &moment)?,
            };
            return Ok((present, unchanged));
        }
    }

    /// Decides an insert, and queries the key, against one version of the state block. The stripe
    /// is held, so the key's blocks cannot change meanwhile.
    #[inline]
    fn plan(
        &self,
        kind: &dyn Kind,
        request: &Request<'_>,
        moment: &Moment,
        precondition: Precondition,
    ) -> Result<Plan<'_>> {
        let header = self.shared.image.header();
        let state_block = header.state_block();
        loop {
            // Before the version is read: if another writer has recorded its time by then, its
            // event is either in this version, or yet to be decided.
            let ahead = self.steps.is_ahead(moment.time);
            let version = state_block.version();
            let state = state_block.state(version);
            let Some(banks) = self.shared.image.banks_of(&state, version) else {
                self.shared.image.follow()?;
                continue;
            };
            let layout = self.shared.image.layout();
            let (ask, mut is_countable) = (request.under(precondition), true);
            let count = |there: Option<Estimate>| {
                is_countable = there.is_some();
                if let (Some(count), Some(there)) = (request.count, there) {
                    count.set(Some(there));
                }
            };
            let kind = (kind, ahead);
            let write = plan::decide(kind, &state, layout, moment, &ask, &*banks, count);
            if !is_countable {
                return Err(self.shared.unsupported("estimate"));
            }
            if state_block.unchanged(version) {
                return Ok(Plan { version, state, write, ahead });
            }
        }
    }

    /// Records an operation, publishes it, applies it. Whether its key was there before is
    /// `present`, or what the insert finds. `None` if there is no room in the log, or none in a
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
        plan: &Plan<'_>,
        mut present: Option<bool>,
    ) -> Result<Option<WriteOutcome>> {
        let (kind, state) = (&*self.shared.meta.kind, plan.state);
        let operation = &request.operation(stamp.time, plan.write.step());
        let banks = self.shared.image.banks_near(&state);
        let located = banks.locate(plan.write.mask, operation.hash);
        let record = records::of_operation(kind, &state, &located.blocks, operation, stamp.stream);
        let may_allocate = !request.waits.never();
        let room = match located.blocks.get(0) {
            Some(block) => {
                self.shared.image.make_room(kind, &banks, block, operation, may_allocate)?
            }
            None => Some(0),
        };
        let Some(room) = room else { return Ok(None) };
        // Every block to be changed is marked before the record exists: a process that finds this
        // stripe without its owner can then identify the blocks to rebuild.
        located.begin();
        let lsn = self.log_writer.append(&mut stripe.segment, &record);
        if lsn.is_some() {
            match present {
                Some(_) => records::change(kind, &state, &located.blocks, operation),
                None => {
                    let (blocks, new_bits) = (&located.blocks, record.argument);
                    present = Some(kind.insert_and_check(&state, blocks, operation, new_bits));
                }
            }
        }
        located.end(lsn);
        let Some(lsn) = lsn else { return Ok(None) };
        // Last: until then a process that takes the stripe over applies the record again.
        self.count(stripe, lsn, stamp, records::counts(self.shared.weighs, &record));
        self.shared.image.give_back_room(kind, &banks, &located.blocks, room);
        Ok(Some(WriteOutcome { checked: Checked::of(present == Some(true)), lsn }))
    }

    /// Counts an operation that has been applied: exactly in its stripe, and in the filter's sums,
    /// which are caches.
    #[inline]
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
