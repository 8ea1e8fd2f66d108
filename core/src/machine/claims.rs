//! Claims of a filter in memory.

use super::ledger::Logged;
use super::parts::Parts;
use super::write;
use crate::claims::{
    ClaimList, Claimant, Decided, HeldClaim, LatestClaim, LeaseTime, MOST_CLAIMS, still_held,
};
use crate::error::{Error, Result};
use crate::kind::{Micros, Request, records};
use crate::log_record::Record;
use crate::time::{LATEST, OperationTime};

/// The claims that are no longer held and are ended together when there is no room.
const ENDED_AT_ONCE: usize = 256;

/// The answer to a claimant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The key is in the window (or is a false positive).
    Seen,
    /// Somebody else holds the claim until this time, by the time of leases.
    InProgress(Micros),
    /// The caller holds the claim.
    Yours(HeldClaim),
}

/// Claims a key; see [`Machine::claim`](super::Machine::claim).
pub(super) fn claim(
    parts: &mut Parts,
    claimant: &Claimant,
    time: OperationTime,
    log: &mut impl FnMut(Logged),
) -> Result<ClaimAnswer> {
    let query = parts.query(claimant.hash, time.time);
    if parts.kind().contains(&parts.state(), &parts.blocks(claimant.hash), &query) {
        return Ok(ClaimAnswer::Seen);
    }
    let latest = parts.claims.latest();
    match claimant.decide(parts.claims.get(claimant.hash), latest) {
        Decided::InProgress(until) => Ok(ClaimAnswer::InProgress(until)),
        Decided::Begins(record) => {
            make_room(parts, &record, log)?;
            emit(parts, &record, log);
            Ok(ClaimAnswer::Yours(HeldClaim::of_record(&record)))
        }
    }
}

/// Makes room for a claim that begins with this record: ends claims that are no longer held.
fn make_room(parts: &mut Parts, begins: &Record, log: &mut impl FnMut(Logged)) -> Result<()> {
    if parts.claims.has_room_for(begins.payload) {
        return Ok(());
    }
    let over = parts.claims.iter().filter(|claim| claim.deadline <= begins.time);
    let over: Vec<_> = over.take(ENDED_AT_ONCE).map(HeldClaim::release).collect();
    if over.is_empty() {
        return Err(Error::ClaimsFull { most: MOST_CLAIMS });
    }
    over.iter().for_each(|release| emit(parts, release, log));
    Ok(())
}

/// Emits a record of a claim, and applies it.
fn emit(parts: &mut Parts, record: &Record, log: &mut impl FnMut(Logged)) {
    log(parts.ledger.append(record));
    parts.claims.apply(record);
}

/// Returns the caller's claim.
fn held(parts: &Parts, (hash, token): (u64, u64), now: Micros) -> Result<HeldClaim> {
    let (claims, lost) = (&parts.claims, Error::LeaseLost { token });
    still_held(claims.get(hash), token, (now, claims.latest())).ok_or(lost)
}

/// Inserts a claimed key; see [`Machine::confirm`](super::Machine::confirm).
pub(super) fn confirm(
    parts: &mut Parts,
    key: (u64, u64),
    now: Micros,
    time: OperationTime,
    log: &mut impl FnMut(Logged),
) -> Result<()> {
    let held = held(parts, key, now)?;
    write::write(parts, &Request::insert(key.0), (time, 0), false, log, records::change)?;
    emit(parts, &held.release(), log);
    Ok(())
}

/// Ends a claim; see [`Machine::release`](super::Machine::release).
pub(super) fn release(
    parts: &mut Parts,
    key: (u64, u64),
    now: Micros,
    log: &mut impl FnMut(Logged),
) -> bool {
    let held = held(parts, key, now);
    if let Ok(held) = held {
        emit(parts, &held.release(), log);
    }
    held.is_ok()
}

/// Renews a claim; see [`Machine::extend`](super::Machine::extend).
pub(super) fn extend(
    parts: &mut Parts,
    key: (u64, u64),
    (now, lease): (Micros, LeaseTime),
    log: &mut impl FnMut(Logged),
) -> Result<Micros> {
    let HeldClaim { hash, token, .. } = held(parts, key, now)?;
    let record = HeldClaim::record(hash, token, parts.claims.latest().time.max(now), lease);
    emit(parts, &record, log);
    Ok(HeldClaim::of_record(&record).deadline)
}

/// Returns the claims of the pieces before and of these words, which are those of a piece.
pub(super) fn from_words(
    before: &ClaimList,
    mut words: impl Iterator<Item = u64>,
    is_whole: bool,
) -> Option<ClaimList> {
    let latest = LatestClaim { time: words.next()?, token: words.next()? };
    let mut claims: Vec<HeldClaim> = before.iter().copied().collect();
    while let Some(hash) = words.next() {
        let (token, since, deadline) = (words.next()?, words.next()?, words.next()?);
        claims.push(HeldClaim { hash, token, since, deadline });
    }
    // Claims after these would have records that no other filter applies.
    let is_sound = latest.time <= LATEST
        && claims.iter().all(|claim| claim.since <= latest.time && claim.token <= latest.token);
    ClaimList::from_claims(latest, claims.into_iter()).filter(|_| is_whole && is_sound)
}
