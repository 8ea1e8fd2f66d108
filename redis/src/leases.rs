//! Leases: their time, and the tokens of the claims that this server gives.
//!
//! A lease is a promise of real time. Its time is not that of items, which may come with their own,
//! nor the wall clock's, which may be set: it is the wall clock's when the filter came here, and
//! again when the server becomes a primary or a replica, and advances with the server's monotonic
//! clock from then on. While no claim of a filter is held, a wall clock that was set forward since
//! is read again: it was wrong, and other servers would take deadlines for earlier ones. A filter
//! whose claims are of a later time, because they come from a server whose clock is ahead, or
//! because the clock was set back before it was read, continues from there. The filter itself never
//! takes a time before its latest claim.

use crate::arguments::clock;
use crate::ffi::{Roles, monotonic, random, role};
use ebbtide_core::Result as Decided;
use ebbtide_core::claims::{Claimant, LeaseTime};
use ebbtide_core::kind::Micros;
use ebbtide_core::machine::{ClaimAnswer, Logged, Machine};
use ebbtide_core::time::{LATEST, OperationTime};
use std::sync::atomic::{AtomicU64, Ordering};

/// The greatest token that a clock leads to, in the year 2112: with what is added later, tokens
/// stay below 2^53, so that numbers in Lua and JavaScript hold them.
const MOST_BY_CLOCK: u64 = 1 << 52;

/// More claims than the records that a server loses when it is killed, or that a replica lacks
/// when it becomes the primary.
const MOST_LOST: u64 = 1 << 24;

/// Returns a number that is greater than all tokens that were given so far, by servers whose claims
/// this one may not have got: `latest` is the greatest one that it has.
///
/// The first token of a server is the time, in microseconds since 1970. No server gives more than
/// one token in a microsecond, so tokens that are given later by another one are greater, whether
/// or not that one has heard of these. A clock that is behind the tokens says nothing: then more
/// is added than claims may be lost. A part of that is random, because two servers may continue
/// from the same state, one after the other.
fn above_all(latest: u64) -> u64 {
    let by_clock = clock().min(MOST_BY_CLOCK);
    if by_clock > latest {
        return by_clock;
    }
    latest.saturating_add(MOST_LOST + random() as u64 % MOST_LOST)
}

/// How far the wall clock must be ahead of the time of leases to be taken for one that was set.
const STEP: u64 = 1_000_000;

/// The wall clock less the monotonic clock, when the server got its role.
static OF_ROLE: AtomicU64 = AtomicU64::new(0);

/// Returns the wall clock less the monotonic clock.
fn base() -> u64 {
    clock().wrapping_sub(monotonic())
}

/// Begins the time of leases of all filters that are here: reads the wall clock.
pub fn begin() {
    OF_ROLE.store(base(), Ordering::Relaxed);
}

/// The wall clock, which is read again at a failover: it may have been wrong when a replica was
/// started.
pub struct WallClock;

impl Roles for WallClock {
    fn changed() {
        begin();
    }
}

/// What this server knows of the claims of a filter. All of it is about this server: nothing is
/// saved or replicated.
#[derive(Debug, Clone, Copy)]
pub struct Leases {
    /// The wall clock less the monotonic clock, when the wall clock was read for this filter, and
    /// the role of the server then. In a later role, that of the role counts.
    base: (u64, u64),
    /// The latest time that the claims have reached, less the monotonic clock then. So that time
    /// advances as the server's does, and whatever is read from the wall clock later.
    ahead: Micros,
    /// The role in which this server gave the latest token, if it did: as long as it has this role,
    /// that is the latest token anywhere. Otherwise another primary may have given tokens that this
    /// server never got.
    token_known_in: Option<u64>,
}

impl Leases {
    /// Begins the time of a filter that comes to this server: reads the wall clock. That of the
    /// start may have been wrong.
    #[must_use]
    pub fn begin() -> Self {
        Self { base: (base(), role()), ahead: 0, token_known_in: None }
    }

    /// Returns what is known after records of another server.
    #[must_use]
    pub fn of_another(self) -> Self {
        Self { token_known_in: None, ..self }
    }

    /// Notes the time that the claims of the filter have reached, here or on another server.
    pub fn learn_time(&mut self, machine: &Machine) {
        self.reached(machine.content().latest_claim().time);
    }

    /// Notes a time that the claims have reached.
    fn reached(&mut self, time: Micros) {
        self.ahead = self.ahead.max(time.saturating_sub(monotonic()));
    }

    /// Returns the time of leases now.
    #[must_use]
    pub fn now(&self) -> Micros {
        let monotonic = monotonic();
        let (base, since) = self.base;
        let base = if since == role() { base } else { OF_ROLE.load(Ordering::Relaxed) };
        let of_server = monotonic.wrapping_add(base);
        of_server.max(monotonic.saturating_add(self.ahead)).min(LATEST)
    }

    /// Reads the wall clock again if it was set forward, unless a claim is held.
    fn follow_clock(&mut self, machine: &Machine) {
        let now = self.now();
        if clock() > now.saturating_add(STEP) && machine.claims().all(|of| of.deadline <= now) {
            self.base = (base(), role());
        }
    }

    /// Claims a key; see [`Machine::claim`].
    ///
    /// # Errors
    /// As there.
    pub fn claim(
        &mut self,
        machine: &mut Machine,
        (hash, lease): (u64, LeaseTime),
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Decided<ClaimAnswer> {
        self.follow_clock(machine);
        let (role, latest) = (Some(role()), machine.content().latest_claim().token);
        let above = if self.token_known_in == role { 0 } else { above_all(latest) };
        let claimant = Claimant { hash, now: self.now(), lease, above };
        let answer = machine.claim(&claimant, time, log)?;
        if let ClaimAnswer::Yours(held) = answer {
            self.reached(held.since);
            self.token_known_in = role;
        }
        Ok(answer)
    }

    /// Renews a claim; see [`Machine::extend`].
    ///
    /// # Errors
    /// As there.
    pub fn extend(
        &mut self,
        machine: &mut Machine,
        key: (u64, u64),
        lease: LeaseTime,
        log: &mut impl FnMut(Logged),
    ) -> Decided<()> {
        let deadline = machine.extend(key, self.now(), lease, log)?;
        self.reached(deadline.saturating_sub(lease.micros()));
        Ok(())
    }
}
