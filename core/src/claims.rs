//! Claims: keys that somebody is working on, kept exactly beside a filter.
//!
//! A claim is a key's hash, a token and a deadline. It begins, and is renewed, by a record
//! [`Op::Claim`]; it ends by a record [`Op::Release`], which stands alone, or behind the insert of
//! the key if the work was done. A claim whose deadline has passed is not held any more, but stays
//! until another one takes its place: no record depends on a clock at replay.
//!
//! Hosts keep the claims: a filter in memory as [`ClaimList`], the engine in memory that processes
//! share. Both decide by [`Claimant::decide`].

use crate::error::{Error, Result};
use crate::event::Micros;
use crate::log_record::{Op, Record};
use core::time::Duration;
use std::collections::BTreeMap;

/// The most claims of a filter at a time.
pub const MOST_CLAIMS: usize = if cfg!(any(loom, miri, shuttle, fuzzing)) { 64 } else { 1 << 16 };

/// The longest lease: 97 days.
pub const LONGEST_LEASE: Duration = Duration::from_secs((IN_SECONDS - 1) as u64);

/// Marks a lease in seconds; the others are in milliseconds.
const IN_SECONDS: u32 = 1 << 23;

/// A claim of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HeldClaim {
    /// The key's hash.
    pub hash: u64,
    /// The token: greater than that of every earlier claim of the filter.
    pub token: u64,
    /// When it began, by the time of leases.
    pub since: Micros,
    /// From when on it is not held any more, by the time of leases.
    pub deadline: Micros,
}

/// The length of a lease as a record stores it: in milliseconds below 2.3 hours, otherwise in
/// seconds; rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTime(u32);

impl LeaseTime {
    /// Creates the length of a lease.
    ///
    /// # Errors
    /// [`Error::Parameter`] for zero, and above [`LONGEST_LEASE`].
    pub fn new(lease: Duration) -> Result<Self> {
        if lease.is_zero() || lease > LONGEST_LEASE {
            return Err(Error::parameter("lease", "1ms to 97 days", format!("{lease:?}")));
        }
        let millis = lease.as_nanos().div_ceil(1_000_000);
        if millis < IN_SECONDS.into() {
            return Ok(Self(millis as u32));
        }
        Ok(Self(lease.as_nanos().div_ceil(1_000_000_000) as u32 | IN_SECONDS))
    }

    /// Returns the length.
    #[must_use]
    pub fn micros(self) -> Micros {
        let number = u64::from(self.0 & !IN_SECONDS);
        number * if self.0 & IN_SECONDS == 0 { 1000 } else { 1_000_000 }
    }
}

impl HeldClaim {
    /// Returns the claim that a record begins or renews. A renewed one keeps its beginning.
    #[must_use]
    pub fn of_record(record: &Record) -> Self {
        let Record { payload: hash, step: token, time: since, argument, .. } = *record;
        let deadline = since.saturating_add(LeaseTime(argument).micros());
        Self { hash, token, since, deadline }
    }

    /// Returns the record that begins or renews a claim at this time.
    #[must_use]
    pub fn record(hash: u64, token: u64, now: Micros, lease: LeaseTime) -> Record {
        Record {
            payload: hash,
            step: token,
            time: now,
            argument: lease.0,
            ..Record::new(Op::Claim)
        }
    }

    /// Returns the record that ends the claim.
    #[must_use]
    pub fn release(&self) -> Record {
        Record { payload: self.hash, step: self.token, ..Record::new(Op::Release) }
    }
}

/// Who claims a key, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Claimant {
    /// The key's hash.
    pub hash: u64,
    /// The time of leases.
    pub now: Micros,
    /// The length of the lease.
    pub lease: LeaseTime,
    /// A number below the token. A host whose latest records may be lost gives one that is greater
    /// than all that were given before the loss, or a random one: then no token is given twice.
    pub above: u64,
}

/// The answer to a claimant of a key that is not in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// Somebody else holds the claim until this time.
    InProgress(Micros),
    /// The claim begins with this record.
    Begins(Record),
}

impl Claimant {
    /// Decides about a key that is not in the window: `held` is its claim so far, held or not,
    /// `latest` that of the filter.
    #[must_use]
    pub fn decide(&self, held: Option<HeldClaim>, latest: LatestClaim) -> Decided {
        let now = latest.time.max(self.now);
        if let Some(held) = held.filter(|held| held.deadline > now) {
            return Decided::InProgress(held.deadline);
        }
        let token = latest.token.max(self.above).saturating_add(1);
        Decided::Begins(HeldClaim::record(self.hash, token, now, self.lease))
    }
}

/// Returns the claim with this token if it is held at this time.
#[must_use]
pub fn still_held(
    claim: Option<HeldClaim>,
    token: u64,
    (now, latest): (Micros, LatestClaim),
) -> Option<HeldClaim> {
    claim.filter(|claim| claim.token == token && claim.deadline > now.max(latest.time))
}

/// The latest claim that a filter has given: no later one has a smaller time or token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatestClaim {
    /// The time of leases when a claim began or was renewed last; 0 without one.
    pub time: Micros,
    /// The greatest token; 0 without one.
    pub token: u64,
}

impl LatestClaim {
    /// Returns the latest claim after one more.
    #[must_use]
    pub fn after(self, claim: &HeldClaim) -> Self {
        Self { time: self.time.max(claim.since), token: self.token.max(claim.token) }
    }
}

/// The claims of a filter with one owner.
#[derive(Debug, Clone, Default)]
pub struct ClaimList {
    latest: LatestClaim,
    claims: BTreeMap<u64, HeldClaim>,
}

impl ClaimList {
    /// Creates the list of these claims; `None` if there are too many, or two of one key.
    #[must_use]
    pub fn from_claims(
        latest: LatestClaim,
        claims: impl Iterator<Item = HeldClaim>,
    ) -> Option<Self> {
        let mut list = Self { latest, claims: BTreeMap::new() };
        for claim in claims {
            let is_full = list.claims.len() == MOST_CLAIMS;
            if is_full || list.claims.insert(claim.hash, claim).is_some() {
                return None;
            }
        }
        Some(list)
    }

    /// Returns the latest claim.
    #[must_use]
    pub fn latest(&self) -> LatestClaim {
        self.latest
    }

    /// Returns the claim of a key, held or not.
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<HeldClaim> {
        self.claims.get(&hash).copied()
    }

    /// Returns all claims, by hash, held or not.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &HeldClaim> {
        self.claims.values()
    }

    /// Returns whether a claim of this key has room.
    #[must_use]
    pub fn has_room_for(&self, hash: u64) -> bool {
        self.claims.len() < MOST_CLAIMS || self.claims.contains_key(&hash)
    }

    /// Returns whether a filter with these claims emits this record of a claim.
    #[must_use]
    pub fn fits(&self, record: &Record) -> bool {
        let claim = HeldClaim::of_record(record);
        let is_there = self.get(claim.hash).is_some_and(|held| held.token == claim.token);
        let may_begin = claim.token > self.latest.token && self.has_room_for(claim.hash);
        match record.op {
            Op::Claim => claim.since >= self.latest.time && (is_there || may_begin),
            _ => is_there,
        }
    }

    /// Applies a record of a claim.
    pub fn apply(&mut self, record: &Record) {
        let claim = HeldClaim::of_record(record);
        match record.op {
            Op::Claim => {
                self.latest = self.latest.after(&claim);
                let before = self.claims.get(&claim.hash).copied();
                self.claims.insert(claim.hash, renewed(before, claim));
            }
            Op::Release if self.fits(record) => drop(self.claims.remove(&claim.hash)),
            _ => {}
        }
    }
}

/// Returns a claim as it is after one of its key before: one that is renewed keeps its beginning.
#[must_use]
pub fn renewed(before: Option<HeldClaim>, claim: HeldClaim) -> HeldClaim {
    let before = before.filter(|before| before.token == claim.token);
    HeldClaim { since: before.map_or(claim.since, |before| before.since), ..claim }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_record::{ARGUMENT_MAX, Decoded};
    use proptest::prelude::*;

    fn lease(millis: u64) -> LeaseTime {
        LeaseTime::new(Duration::from_millis(millis)).expect("a lease")
    }

    proptest! {
        #[test]
        fn a_lease_is_stored_exactly_or_rounded_up_by_less_than_its_unit(
            nanos in 1..=8_388_607_000_000_000_u64,
        ) {
            let asked = Duration::from_nanos(nanos);
            let stored = LeaseTime::new(asked).expect("within bounds");
            prop_assert!(stored.0 <= ARGUMENT_MAX);
            let kept = Duration::from_micros(stored.micros());
            let is_short = asked < Duration::from_secs(8388);
            let unit = Duration::from_millis(if is_short { 1 } else { 1000 });
            prop_assert!(kept >= asked && kept < asked + unit, "{kept:?}");
        }

        #[test]
        fn a_claim_reads_back_from_its_record(
            hash: u64, token: u64, now in 0..u64::MAX / 2, millis in 1..100_000_000_u64,
        ) {
            let record = HeldClaim::record(hash, token, now, lease(millis));
            let Decoded::Valid(read) = Record::decode(record.encode(3, 9), 3, 9) else {
                panic!("{record:?}");
            };
            let claim = HeldClaim::of_record(&read);
            let deadline = now + lease(millis).micros();
            prop_assert_eq!(claim, HeldClaim { hash, token, since: now, deadline });
            let release = claim.release();
            let found = (release.op, release.payload, release.step);
            prop_assert_eq!(found, (Op::Release, hash, token));
        }
    }

    #[test]
    fn leases_of_no_time_and_of_more_than_the_longest_are_refused() {
        for wrong in [Duration::ZERO, LONGEST_LEASE + Duration::from_nanos(1), Duration::MAX] {
            assert!(matches!(LeaseTime::new(wrong), Err(Error::Parameter { .. })), "{wrong:?}");
        }
        assert_eq!(LeaseTime::new(LONGEST_LEASE).map(LeaseTime::micros), Ok(8_388_607_000_000));
    }

    fn claimant(hash: u64, now: Micros) -> Claimant {
        Claimant { hash, now, lease: lease(10), above: 0 }
    }

    fn begin(list: &mut ClaimList, hash: u64, now: Micros) -> Option<u64> {
        match claimant(hash, now).decide(list.get(hash), list.latest()) {
            Decided::InProgress(_) => None,
            Decided::Begins(record) => {
                list.apply(&record);
                Some(record.step)
            }
        }
    }

    #[test]
    fn a_key_is_claimed_once_until_it_is_released_or_its_lease_is_over() {
        let mut list = ClaimList::default();
        let first = begin(&mut list, 7, 1000).expect("it is free");
        assert_eq!(begin(&mut list, 7, 10_999), None);
        let second = begin(&mut list, 7, 11_000).expect("the lease is over");
        assert!(second > first);
        // The first one is late: it neither holds the key nor can it end the other's claim.
        let now = (11_000, list.latest());
        assert_eq!(still_held(list.get(7), first, now), None);
        let late = HeldClaim { hash: 7, token: first, since: 0, deadline: 0 }.release();
        list.apply(&late);
        let held = still_held(list.get(7), second, now).expect("it is held");
        list.apply(&held.release());
        assert!(begin(&mut list, 7, 11_000).is_some_and(|third| third > second));
    }

    #[test]
    fn a_clock_that_is_set_back_prolongs_no_lease_by_more_than_its_length() {
        let mut list = ClaimList::default();
        begin(&mut list, 1, 1_000_000_000).expect("it is free");
        begin(&mut list, 2, 5).expect("it is free");
        assert_eq!(list.get(2).map(|claim| claim.deadline), Some(1_000_010_000));
    }

    #[test]
    fn a_renewed_claim_keeps_its_token_and_its_beginning() {
        let mut list = ClaimList::default();
        let token = begin(&mut list, 7, 1000).expect("it is free");
        list.apply(&HeldClaim::record(7, token, 5000, lease(10)));
        let expected = HeldClaim { hash: 7, token, since: 1000, deadline: 15_000 };
        assert_eq!(list.get(7), Some(expected));
        assert_eq!(list.latest(), LatestClaim { time: 5000, token });
    }

    #[test]
    fn tokens_grow_and_are_above_the_given_number() {
        let held = LatestClaim { time: 0, token: 9 };
        for (above, expected) in [(0, 10), (9, 10), (100, 101)] {
            let decided = Claimant { above, ..claimant(7, 0) }.decide(None, held);
            let Decided::Begins(record) = decided else { panic!("{decided:?}") };
            assert_eq!(record.step, expected);
        }
    }

    #[test]
    fn a_list_has_room_for_the_most_claims_and_for_a_key_that_it_has() {
        let claim = |hash| HeldClaim { hash, token: hash + 1, since: 0, deadline: 1 };
        let latest = LatestClaim::default();
        let all = || (0..MOST_CLAIMS as u64).map(claim);
        let list = ClaimList::from_claims(latest, all()).expect("as many as there may be");
        assert!(list.has_room_for(0) && !list.has_room_for(MOST_CLAIMS as u64));
        let more = all().chain([claim(MOST_CLAIMS as u64)]);
        assert!(ClaimList::from_claims(latest, more).is_none());
        assert!(ClaimList::from_claims(latest, [claim(1), claim(1)].into_iter()).is_none());
    }
}
