//! Claims: giving keys to those that work on them; the protocol is in
//! `docs/protocols/claims.md`.
//!
//! Claims are written under stripe 0, as events and positions are. Who claims or confirms a key
//! holds the key's stripe as well, so that no insert of the key comes between the question and the
//! claim. A confirmation is a batch: the insert, and the end of the claim.

use crate::engine::batch::before_commit::Prepared;
use crate::engine::batch::commit::{self, Settings};
use crate::engine::batch::staging::BatchOperation;
use crate::engine::log::append::Appended;
use crate::engine::shared::Local;
use crate::engine::stripes::Wait;
use crate::engine::time::clock_copy::When;
use crate::engine::time::filter_time::Stamp;
use crate::engine::time::lease_time::ClaimedKey;
use crate::engine::write::decide_and_apply::{self, Attempt, basis};
use crate::engine::write::request::{Checked, Precondition, Request, Waits};
use crate::engine::write::stripe_0_records;
use crate::engine::write::writer::{Tried, Writer};
use crate::error::{Error, Result};
use crate::locks::handle_stripes::StripeGuard;
use crate::wal::Record;
use ebbtide_core::claims::{Claimant, Decided, HeldClaim, LeaseTime, MOST_CLAIMS};
use ebbtide_core::kind::{Change, Micros};

/// The most claims no longer held that are ended at once to make room.
const ENDED_AT_ONCE: usize = 256;

/// The bits of a token below the number of the timeline. A token that a power cut took from the end
/// of a timeline is not given again, because the next timeline's number is greater.
const TOKEN_BITS: u32 = 40;
/// The number of timelines with that many bits. They use half of all tokens.
const MANY_TIMELINES: u64 = 1 << 23;
/// The bits of a token below the number of a later timeline.
const LATER_TOKEN_BITS: u32 = 24;

/// The answer to a claimant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClaimAnswer {
    /// The key is in the window; the answer is durable when the log is up to this LSN.
    Seen(u64),
    /// Somebody else works on it until this time of leases.
    InProgress(Micros),
    /// The claim.
    Yours(HeldClaim),
}

/// Prefetches the memory that a claim of a key will probably touch.
pub(crate) fn prefetch(writer: &Writer, hash: u64) {
    // It reads words, and a forked child has no mapping.
    if writer.shared.check_usable().is_ok() {
        writer.shared.header().claims().prefetch(hash);
        writer.prefetch_to_write(hash);
    }
}

/// Claims a key that is not in the window. `when` is the time of the question, if it is not the
/// clock's, and how long to wait.
///
/// # Errors
/// [`Error::ClaimsFull`], [`Error::WouldWait`], [`Error::Io`] and others: nothing has happened.
pub(crate) fn claim(
    writer: &Writer,
    hash: u64,
    lease: LeaseTime,
    when: (Option<Micros>, Waits),
) -> Result<ClaimAnswer> {
    writer.while_space_is_made(when.1, || claim_once(writer, hash, lease, when))
}

fn claim_once(
    writer: &Writer,
    hash: u64,
    lease: LeaseTime,
    (time, waits): (Option<Micros>, Waits),
) -> Result<Tried<ClaimAnswer>> {
    // Work whose confirmation would be refused is not given away.
    time.map(|time| writer.time.check_lead(time)).transpose()?;
    let [stripe, mut stripe_0] = lock(writer, hash, waits)?;
    let now = writer.time.now().time.max(time.unwrap_or(0));
    let moment = writer.time.moment(Stamp { time: now, stream: false });
    if writer.queries.contains_held(hash, &moment)? {
        return Ok(Tried::Done(ClaimAnswer::Seen(stripe.entry().lsn())));
    }
    let header = writer.shared.header();
    let (claims, above) = (header.claims(), tokens_above(header.identity().timeline));
    let claimant = Claimant { hash, now: writer.leases.now(), lease, above };
    let record = match claimant.decide(claims.get(hash), claims.latest()) {
        Decided::InProgress(until) => return Ok(Tried::Done(ClaimAnswer::InProgress(until))),
        Decided::Begins(record) => record,
    };
    if waits.never() && !claims.has_space() {
        return Err(writer.shared.would_wait("room for claims"));
    }
    writer.shared.image.allocate_claims()?;
    let answer = ClaimAnswer::Yours(HeldClaim::of_record(&record));
    if claims.has_room_for(hash) {
        return Ok(append(writer, &mut stripe_0, &[record], answer));
    }
    let mut records = over(writer, hash, record.time)?;
    records.push(record);
    Ok(append(writer, &mut stripe_0, &records, answer))
}

/// Returns the records that make room for the claim of a key: they end some of the claims which are
/// not held any more at this time of leases.
///
/// # Errors
/// [`Error::ClaimsFull`] if all are held.
#[cold]
fn over(writer: &Writer, hash: u64, now: Micros) -> Result<Vec<Record>> {
    let claims = writer.shared.header().claims().in_the_way_of(hash);
    let over = claims.iter().filter(|claim| claim.deadline <= now);
    let records: Vec<_> = over.take(ENDED_AT_ONCE).map(HeldClaim::release).collect();
    if records.is_empty() {
        let path = writer.shared.path().to_path_buf();
        return Err(Error::ClaimsFull { path, most: MOST_CLAIMS });
    }
    Ok(records)
}

/// Returns the least token of a timeline, less one. The tokens of earlier timelines, also those
/// that a power cut has taken, are not above it.
fn tokens_above(timeline: u64) -> u64 {
    match timeline.checked_sub(MANY_TIMELINES) {
        None => timeline << TOKEN_BITS,
        Some(more) => (MANY_TIMELINES << TOKEN_BITS) + (more.min(1 << 38) << LATER_TOKEN_BITS),
    }
}

/// Takes a key's stripe, and stripe 0.
fn lock(writer: &Writer, hash: u64, waits: Waits) -> Result<[StripeGuard<'_, Local>; 2]> {
    writer.stripes.be_courteous(1, waits);
    let index = writer.shared.stripe_of(hash);
    let stripe = |waits| writer.stripes.acquire(index, Wait::Operation(waits));
    let (stripe, stripe_0) = writer.stripes.acquire_with_stripe_0(waits, stripe)?;
    writer.shared.check_writable()?;
    Ok([stripe, stripe_0])
}

/// Appends records of claims and applies them, then returns `answer`.
fn append<T>(
    writer: &Writer,
    stripe_0: &mut StripeGuard<'_, Local>,
    records: &[Record],
    answer: T,
) -> Tried<T> {
    let header = writer.shared.header();
    let appended = if let [record] = records {
        stripe_0_records::append(writer, stripe_0, record)
            .map_or_else(Appended::NoRoom, Appended::At)
    } else {
        let announce = |tail| header.events_from().announce(tail);
        writer.log_writer.append_batch(&mut stripe_0.segment, records, announce)
    };
    if let Appended::At(first) = appended {
        (first..).zip(records).for_each(|(lsn, record)| apply(writer, stripe_0, lsn, record));
    }
    header.events_from().end();
    match appended {
        Appended::At(_) => Tried::Done(answer),
        Appended::NoRoom(lack) => Tried::NoRoom(lack),
        Appended::Voided => Tried::Again,
    }
}

fn apply(writer: &Writer, stripe_0: &StripeGuard<'_, Local>, lsn: u64, record: &Record) {
    writer.shared.header().claims().apply(lsn, record);
    stripe_0.entry().note(lsn, 0);
}

/// Inserts a claimed key and ends its claim, both or neither. A key that is too late is not
/// inserted. Returns the LSN up to which the log must be durable.
///
/// # Errors
/// [`Error::LeaseLost`], [`Error::WouldWait`], [`Error::Io`] and others: nothing has happened.
pub(crate) fn confirm(
    writer: &Writer,
    key: ClaimedKey,
    (time, waits): (Option<Micros>, Waits),
) -> Result<u64> {
    let request = Request::new(key.hash, time, 1, Precondition::Nothing, waits);
    let confirmed = writer.while_space_is_made(waits, || {
        let [mut stripe, mut stripe_0] = lock(writer, key.hash, waits)?;
        let claim = writer.leases.check_held(key)?;
        let stamp = writer.time.stamp(time)?;
        Ok(match insert(writer, [&mut stripe, &mut stripe_0], &request, stamp, &claim)? {
            Attempt::Done(written) if written.checked != Checked::TooLate => {
                Tried::Done(Some(written.lsn + 1))
            }
            Attempt::NoRoom(lack) => Tried::NoRoom(lack),
            Attempt::Again => Tried::Again,
            // Events must come first, or the key is too late.
            _ => Tried::Done(None),
        })
    })?;
    if let Some(lsn) = confirmed {
        return Ok(lsn);
    }
    let mut batch = Prepared::default();
    let when = time.map_or_else(|| writer.time.read_clock(), When::Given);
    let (change, hash) = (Change::Insert, key.hash);
    batch.insert(BatchOperation { change, hash, weight: 1, when, is_new: false });
    commit::commit(writer, &mut batch, Settings { positions: &[], confirms: &[key], waits })
}

/// Inserts a claimed key and ends its claim, if no event must come first.
fn insert(
    writer: &Writer,
    [stripe, stripe_0]: [&mut StripeGuard<'_, Local>; 2],
    request: &Request<'_>,
    stamp: Stamp,
    claim: &HeldClaim,
) -> Result<Attempt> {
    let moment = writer.time.moment(stamp);
    let Some(basis) = basis(writer, &moment) else {
        writer.shared.image.follow()?;
        return Ok(Attempt::Again);
    };
    let plan = decide_and_apply::decide(writer, &basis, request, &moment);
    if plan.due || basis.ahead || plan.unchanged(Precondition::Nothing).is_some() {
        return Ok(Attempt::NeedsStripe0 { can_be_put_off: false });
    }
    let events_from = writer.shared.header().events_from();
    let on = (&basis.state, &*basis.banks, &plan);
    let attempt = decide_and_apply::apply(writer, stripe, request, stamp, on, |last, record| {
        let records = [*record, claim.release()];
        let announce = |tail| events_from.announce(tail);
        match writer.log_writer.append_batch(last, &records, announce) {
            Appended::NoRoom(lack) => Err(Attempt::NoRoom(lack)),
            Appended::Voided => Err(Attempt::Again),
            Appended::At(first) => {
                apply(writer, stripe_0, first + 1, &records[1]);
                Ok(first)
            }
        }
    });
    events_from.end();
    attempt
}

/// Ends a claim without an insert. Returns whether it was held.
///
/// # Errors
/// As [`confirm`].
pub(crate) fn release(writer: &Writer, key: ClaimedKey, waits: Waits) -> Result<bool> {
    under_stripe_0(writer, waits, || match writer.leases.check_held(key) {
        Ok(claim) => Ok(Some(claim.release())),
        Err(Error::LeaseLost { .. }) => Ok(None),
        Err(error) => Err(error),
    })
    .map(|ended| ended.is_some())
}

/// Renews a claim. Returns its new deadline, by the time of leases.
///
/// # Errors
/// As [`confirm`].
pub(crate) fn extend(
    writer: &Writer,
    key: ClaimedKey,
    lease: LeaseTime,
    waits: Waits,
) -> Result<Micros> {
    let renewed = under_stripe_0(writer, waits, || {
        let HeldClaim { hash, token, .. } = writer.leases.check_held(key)?;
        Ok(Some(HeldClaim::record(hash, token, writer.leases.now(), lease)))
    })?;
    Ok(renewed.map_or(0, |record| HeldClaim::of_record(&record).deadline))
}

/// Ends the claim of a key, whoever holds it. Returns the claim, if there was one.
///
/// # Errors
/// As [`confirm`], except [`Error::LeaseLost`].
pub(crate) fn end(writer: &Writer, hash: u64, waits: Waits) -> Result<Option<HeldClaim>> {
    let ended = under_stripe_0(writer, waits, || {
        let claim = writer.shared.header().claims().get(hash);
        Ok(claim.map(|claim| claim.release()))
    })?;
    Ok(ended.map(|record| HeldClaim::of_record(&record)))
}

/// Writes the record that is decided under stripe 0, if there is one, and returns it.
fn under_stripe_0(
    writer: &Writer,
    waits: Waits,
    decide: impl Fn() -> Result<Option<Record>>,
) -> Result<Option<Record>> {
    writer.while_space_is_made(waits, || {
        let mut stripe_0 = writer.stripes.acquire(0, Wait::Operation(waits))?;
        writer.shared.check_writable()?;
        let Some(record) = decide()? else { return Ok(Tried::Done(None)) };
        Ok(append(writer, &mut stripe_0, &[record], Some(record)))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_each_timeline_begin_above_millions_of_the_one_before() {
        for timeline in (1..100).chain(MANY_TIMELINES - 9..MANY_TIMELINES + 9).chain([1 << 30]) {
            let (before, begin) = (tokens_above(timeline - 1), tokens_above(timeline));
            assert!(begin - before >= 1 << LATER_TOKEN_BITS, "{timeline}");
        }
        assert_eq!(tokens_above(2), 2 << 40);
        assert!(tokens_above(u64::MAX) > tokens_above(1 << 37), "and nothing overflows");
    }
}
