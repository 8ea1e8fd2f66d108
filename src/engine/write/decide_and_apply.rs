//! The steps of one operation under its stripe: read the state, decide, record, apply.
//!
//! `single` and `claims` call [`basis`], [`decide()`] and [`apply`] in this order.
//! `events_first` calls [`basis`] and [`apply`]; between them it decides through `perform`,
//! which places events first. Each passes how the record is appended.

use crate::engine::log::append::Lack;
use crate::engine::shared::Local;
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::request::{Checked, Request, WriteOutcome, pass_count};
use crate::engine::write::writer::{Tried, Writer};
use crate::error::Result;
use crate::image::mapped_banks::Banks;
use crate::image::state_block::StateBlock;
use crate::image::{BankSet, block_growth};
use crate::locks::handle_stripes::StripeGuard;
use crate::wal::{Record, Segment};
use ebbtide_core::kind::{Moment, State, Totals, WritePlan, decide, records};
use std::cell::Cell;
use std::sync::Arc;

/// The outcome of one attempt under the stripe.
pub(crate) enum Attempt {
    Done(WriteOutcome),
    /// There is no room in the log that this handle has mapped. Nothing has happened.
    NoRoom(Lack),
    /// Nothing has happened, and another attempt may succeed: the state has changed, banks had to
    /// be mapped, or a slot of the batch was voided.
    Again,
    /// Its weight takes several records.
    Heavy,
    /// An event must come first, under stripe 0.
    NeedsStripe0 {
        /// Whether the kind can do [without](ebbtide_core::kind::Events::step_without) it.
        can_be_put_off: bool,
    },
}

impl Attempt {
    /// Converts the attempt for the retry loop.
    pub(crate) fn tried(self) -> Tried<WriteOutcome> {
        match self {
            Self::Done(written) => Tried::Done(written),
            Self::NoRoom(lack) => Tried::NoRoom(lack),
            _ => Tried::Again,
        }
    }
}

/// What a write is decided on: a version of the state block, with its state and banks.
pub(crate) struct Basis<'a> {
    pub(crate) state_block: StateBlock<'a>,
    pub(crate) version: u64,
    pub(crate) state: State<'a>,
    pub(crate) banks: Banks<'a>,
    /// Whether the filter's time must be recorded first: see
    /// [`is_ahead`](crate::engine::time::filter_time::Time::is_ahead).
    pub(crate) ahead: bool,
    /// Whether the kind has the count that a precondition reads.
    pub(crate) has_count: Cell<bool>,
}

/// Returns what a write is decided on now; `None` if banks must be mapped.
#[inline(always)]
pub(crate) fn basis<'a>(writer: &'a Writer, moment: &Moment) -> Option<Basis<'a>> {
    let image = &writer.shared.image;
    // Read before the version. If another writer's time is visible here, its event is in this
    // version or is decided later.
    let ahead = writer.time.is_ahead(moment.time);
    let state_block = image.header().state_block();
    let version = state_block.version();
    let state = state_block.state(version);
    let banks = image.banks_of(&state, version)?;
    Some(Basis { state_block, version, state, banks, ahead, has_count: Cell::new(true) })
}

/// Decides an operation from the key's blocks in the image.
#[inline(always)]
pub(crate) fn decide(
    writer: &Writer,
    basis: &Basis<'_>,
    request: &Request<'_>,
    moment: &Moment,
) -> WritePlan {
    let (kind, layout) = (writer.shared.kind(), writer.shared.layout());
    let count = |there| basis.has_count.set(pass_count(there, request.count));
    let (kind, state) = ((kind, basis.ahead), &basis.state);
    decide::decide(kind, state, layout, moment, &request.asked, &*basis.banks, count)
}

/// Ends a write without a record. The returned LSN is that of the stripe's last record: once it is
/// durable, everything that the answer depends on is durable.
pub(crate) fn leave(
    writer: &Writer,
    stripe: &StripeGuard<'_, Local>,
    is_late: bool,
    checked: Checked,
) -> WriteOutcome {
    if is_late {
        writer.shared.header().refused().add();
    }
    WriteOutcome { checked, lsn: stripe.entry().lsn() }
}

/// Returns whether an operation that is too late got its time from the clock: the process was
/// stopped after it read the clock, so the operation is tried again at a new time.
#[inline]
pub(crate) fn is_outdated(request: &Request<'_>, stamp: Stamp) -> bool {
    request.time.is_none() && !stamp.stream
}

/// Records an operation by `append`, then applies it.
///
/// # Errors
/// [`crate::Error::Io`] if a block cannot grow, [`crate::Error::WouldWait`] if the caller must not
/// wait for that; nothing has happened then.
// Out of line, this and `append` cost every insert 70 ns (measured in pairs).
#[inline(always)]
pub(crate) fn apply(
    writer: &Writer,
    stripe: &mut StripeGuard<'_, Local>,
    request: &Request<'_>,
    stamp: Stamp,
    (state, banks, plan): (&State<'_>, &BankSet, &WritePlan),
    append: impl FnOnce(&mut Option<Arc<Segment>>, &Record) -> std::result::Result<u64, Attempt>,
) -> Result<Attempt> {
    let shared = &writer.shared;
    let (kind, image) = (shared.kind(), &shared.image);
    let operation = &request.operation(stamp.time, plan.step());
    let located = banks.locate(plan.mask, operation.hash);
    let blocks = &located.blocks;
    let record = records::of_operation(kind, state, blocks, operation, stamp.stream);
    let may_allocate = !request.waits.never();
    let room = match blocks.get(0) {
        Some(block) => block_growth::allocate(image, kind, banks, block, operation, may_allocate)?,
        None => Some(0),
    };
    let Some(room) = room else { return Err(shared.would_wait("memory to be allocated")) };
    // Marks the blocks as being changed before the record exists. From here on queries retry, and a
    // repairer finds the old words in the undo area.
    located.begin();
    let lsn = match append(&mut stripe.segment, &record) {
        Ok(lsn) => lsn,
        Err(attempt) => {
            located.end(None);
            return Ok(attempt);
        }
    };
    let present = match plan.present {
        Some(present) => {
            records::change(kind, state, blocks, operation);
            present
        }
        None => kind.insert_and_check(state, blocks, operation, record.argument),
    };
    located.end(Some(lsn));
    // After the blocks are whole: until this, a process that takes the stripe over applies the
    // record again.
    count(writer, stripe, lsn, stamp, records::counts(shared.weighs, &record));
    block_growth::free(kind, banks, blocks, room);
    Ok(Attempt::Done(WriteOutcome { checked: Checked::of(present), lsn }))
}

/// Counts an applied operation: in the stripe's exact sums and in the filter's cached sums.
#[inline(always)]
fn count(writer: &Writer, stripe: &StripeGuard<'_, Local>, lsn: u64, stamp: Stamp, counts: Totals) {
    let time = stamp.word();
    stripe.entry().count(lsn, time, counts);
    // After the record is published: after a death the sums lack at most one operation.
    writer.shared.header().counters().count(writer.shared.shard(), counts.inserts, counts.new_bits);
    writer.time.raise(time);
}
