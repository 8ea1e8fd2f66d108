//! Writing one operation; the protocol is in `docs/protocols/insert.md`.
//!
//! Everything an operation depends on is decided under its stripe before its LSN is reserved. It is
//! then written in the record, the record is published, and only then is it applied. A killed
//! process therefore leaves either no record, or a record that replay applies. Some operations need
//! several records, which are one batch. `events_first` writes the batch if events must come
//! first; `batch::staging` and `batch::append_staged` write it if the weight takes several records.

use crate::engine::batch::append_staged;
use crate::engine::batch::overlay::BlockAccess;
use crate::engine::batch::staging::{EventHandling, Host, Staging, Unstaged};
use crate::engine::checkpoints::backpressure::Waited;
use crate::engine::shared::Local;
use crate::engine::stripes::Wait;
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::decide_and_apply::{
    Attempt, Basis, apply, basis, decide, is_outdated, leave,
};
use crate::engine::write::events_first;
use crate::engine::write::request::{Checked, Request, WriteOutcome};
use crate::engine::write::writer::{Tried, Writer};
use crate::error::Result;
use crate::locks::handle_stripes::StripeGuard;
use ebbtide_core::kind::{Change, Decision, MOST_WEIGHT};

/// Inserts or removes a key, after checking its precondition. Call [`Writer::prefetch_to_write`]
/// first: the key's cells then load while the stripe is acquired and the record is written.
#[inline]
pub(crate) fn write(writer: &Writer, request: &Request<'_>) -> Result<WriteOutcome> {
    write_by::<false>(writer, request)
}

/// As [`write`], with the time that another filter's log has [recorded](Request::recorded).
pub(crate) fn write_recorded(writer: &Writer, request: &Request<'_>) -> Result<WriteOutcome> {
    write_by::<true>(writer, request)
}

#[inline]
fn write_by<const RECORDED: bool>(writer: &Writer, request: &Request<'_>) -> Result<WriteOutcome> {
    writer.shared.check_usable()?;
    let mut waited = Waited::default();
    loop {
        if let Some(written) = write_once::<RECORDED>(writer, request, &mut waited)? {
            writer.stripes.be_courteous(1, request.waits);
            return Ok(written);
        }
    }
}

/// Makes one attempt. Returns `None` if it has only prepared the next attempt, for example made
/// room in the log. `waited` counts the checkpoints that this operation has waited for on a full
/// disk.
// If this were inlined into the loop of `write`, the compiler would compute values of rare paths at
// each insert.
#[inline(never)]
fn write_once<const RECORDED: bool>(
    writer: &Writer,
    request: &Request<'_>,
    waited: &mut Waited,
) -> Result<Option<WriteOutcome>> {
    // A caller that has met a full disk always waits for the requested checkpoint.
    if waited.any() || !writer.backpressure.lets_write() {
        writer.wait_for_checkpoint(request.waits)?;
    }
    match write_under_stripe::<RECORDED>(writer, request) {
        Ok(Tried::Done(written)) => Ok(Some(written)),
        undone => writer.before_next_attempt(undone, request.waits, waited).map(|()| None),
    }
}

/// Writes under the key's stripe, and releases it.
#[inline(always)]
fn write_under_stripe<const RECORDED: bool>(
    writer: &Writer,
    request: &Request<'_>,
) -> Result<Tried<WriteOutcome>> {
    let index = writer.shared.stripe_of(request.asked.hash);
    let mut stripe = writer.stripes.acquire(index, Wait::Operation(request.waits))?;
    writer.shared.check_writable()?;
    // Under the stripe, so that the clock's times within a stripe never decrease.
    let stamp = if RECORDED { request.recorded_time() } else { writer.time.stamp(request.time)? };
    let attempt = match write_one_record(writer, &mut stripe, request, stamp)? {
        Attempt::Done(written) => return complete(writer, written, request, stamp),
        Attempt::NeedsStripe0 { can_be_put_off } => {
            events_first::write(writer, &mut stripe, request, stamp, can_be_put_off)?
        }
        Attempt::Heavy => return write_heavy(writer, stripe, request, stamp),
        other => other,
    };
    match attempt.tried() {
        Tried::Done(written) => complete(writer, written, request, stamp),
        undone => Ok(undone),
    }
}

/// Completes a write under its stripe.
#[inline]
fn complete(
    writer: &Writer,
    written: WriteOutcome,
    request: &Request<'_>,
    stamp: Stamp,
) -> Result<Tried<WriteOutcome>> {
    match (written.checked, request.count) {
        (Checked::TooLate, _) if is_outdated(request, stamp) => {
            return Ok(Tried::Again);
        }
        // Still under the stripe: no other insert of the key can come in between.
        (Checked::New, Some(count)) => {
            let moment = writer.time.moment(stamp);
            count.set(writer.queries.estimate_held(request.asked.hash, &moment)?);
        }
        _ => {}
    }
    Ok(Tried::Done(written))
}

/// Writes an operation of one record, if no event must come first.
#[inline(always)]
fn write_one_record(
    writer: &Writer,
    stripe: &mut StripeGuard<'_, Local>,
    request: &Request<'_>,
    stamp: Stamp,
) -> Result<Attempt> {
    if request.asked.weight > MOST_WEIGHT.into() {
        return Ok(Attempt::Heavy);
    }
    let moment = &writer.time.moment(stamp);
    let Some(basis) = basis(writer, moment) else {
        writer.shared.image.follow()?;
        return Ok(Attempt::Again);
    };
    let plan = decide(writer, &basis, request, moment);
    if !basis.has_count.get() {
        return Err(writer.shared.unsupported("estimate"));
    }
    // An event may have changed the state meanwhile.
    if !basis.state_block.unchanged(basis.version) {
        return Ok(Attempt::Again);
    }
    if let Some(checked) = plan.unchanged(request.asked.precondition) {
        let is_late = plan.decision == Decision::TooLate;
        let is_late = is_late && !is_outdated(request, stamp);
        return Ok(Attempt::Done(leave(writer, stripe, is_late, checked)));
    }
    if (plan.due || basis.ahead)
        && let Some(other) = needs_event(writer, &basis, stamp)
    {
        return Ok(other);
    }
    let on = (&basis.state, &*basis.banks, &plan);
    apply(writer, stripe, request, stamp, on, |last, record| {
        writer.log_writer.append(last, record).map_err(Attempt::NoRoom)
    })
}

/// Checks with the exact sums whether an event is due, or the filter's time must be recorded.
/// Returns how the write continues then; `None` if neither.
#[cold]
fn needs_event(writer: &Writer, basis: &Basis<'_>, stamp: Stamp) -> Option<Attempt> {
    let (kind, layout) = (writer.shared.kind(), writer.shared.layout());
    let moment = writer.time.exact_moment(stamp);
    let due = kind.due(&basis.state, layout, &moment);
    let without = kind.events().and_then(|events| events.step_without(&basis.state, &moment));
    // An event may have changed the state, and overwritten its words.
    if !basis.state_block.unchanged(basis.version) {
        return Some(Attempt::Again);
    }
    let can_be_put_off = due.is_some() && without.is_some();
    (due.is_some() || basis.ahead).then_some(Attempt::NeedsStripe0 { can_be_put_off })
}

/// Writes an operation whose weight needs several records, as one batch with its events.
#[cold]
fn write_heavy<'w>(
    writer: &'w Writer,
    stripe: StripeGuard<'w, Local>,
    request: &Request<'_>,
    stamp: Stamp,
) -> Result<Tried<WriteOutcome>> {
    let (mut held, mut events) = (vec![stripe], EventHandling::Missing);
    loop {
        writer.shared.check_writable()?;
        // The parts of a removal end when nothing is left.
        let reads = request.asked.change == Change::Remove;
        let mut staging = Staging::new(writer, reads)?;
        let host = Host { writer, access: BlockAccess::Held, events };
        let performed = match staging.add(host, &request.asked, stamp, request.count) {
            Ok(performed) => performed,
            Err(Unstaged::NeedsStripe0 { can_be_put_off }) => {
                let stripe_0 = append_staged::lock_stripe_0(writer, can_be_put_off, request.waits)?;
                events =
                    if stripe_0.is_some() { EventHandling::Staged } else { EventHandling::PutOff };
                held.extend(stripe_0);
                continue;
            }
            Err(Unstaged::Outdated) => return Ok(Tried::Again),
            Err(Unstaged::Failed(error)) => return Err(error),
        };
        let checked = performed.checked;
        if !performed.is_recorded {
            return Ok(Tried::Done(leave(writer, &held[0], performed.is_late, checked)));
        }
        if request.waits.never() && staging.needs_space() {
            return Err(writer.shared.would_wait("memory to be allocated"));
        }
        match append_staged::commit(writer, &staging, false, &mut held)? {
            Tried::Done(lsn) => {
                return complete(writer, WriteOutcome { checked, lsn }, request, stamp);
            }
            Tried::NoRoom(lack) => return Ok(Tried::NoRoom(lack)),
            Tried::Again => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
