//! Leases: their time, and the tokens of the claims that this server gives.
//!
//! A lease is a promise of real time. Its time is not that of items, which may come with their own,
//! nor the wall clock's, which may be set: it is the wall clock's when the module is loaded, and
//! advances with the server's monotonic clock from then on. A filter whose claims are of a later
//! time, because they come from a server whose clock is ahead, or because the clock was set back
//! before this server was started, continues from there. The filter itself never takes a time
//! before its latest claim.

use crate::arguments::clock;
use crate::ffi::{monotonic, random};
use ebbtide_core::Result as Decided;
use ebbtide_core::claims::{Claimant, LeaseTime};
use ebbtide_core::kind::Micros;
use ebbtide_core::machine::{ClaimAnswer, Logged, Machine};
use ebbtide_core::time::{LATEST, OperationTime};
use std::sync::atomic::{AtomicU64, Ordering};

/// More claims than the records that a server loses when it is killed, or that a replica lacks
/// when it becomes the primary. Tokens that begin with at most twice this number, and advance by as
/// much at a failover, stay below 2^53, so that numbers in Lua and JavaScript hold them.
const MOST_LOST: u64 = 1 << 24;

/// The wall clock less the monotonic clock, when the module was loaded.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Begins the time of leases.
pub fn begin() {
    BASE.store(clock().wrapping_sub(monotonic()), Ordering::Relaxed);
}

/// Returns the time of leases of this server.
fn of_server() -> Micros {
    monotonic().wrapping_add(BASE.load(Ordering::Relaxed))
}

/// What this server knows of the claims of a filter. All of it is about this server: nothing is
/// saved or replicated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leases {
    /// How far the time of the claims is ahead of this server's.
    lead: Micros,
    /// Whether the latest token was given by this server: then it is the latest one anywhere.
    is_token_known: bool,
}

impl Leases {
    /// Returns what is known after records of another server.
    #[must_use]
    pub fn of_another(self) -> Self {
        Self { is_token_known: false, ..self }
    }

    /// Notes the time that the claims of the filter have reached, here or on another server.
    pub fn learn_time(&mut self, machine: &Machine) {
        self.reached(machine.content().latest_claim().time);
    }

    /// Notes a time that the claims have reached.
    fn reached(&mut self, time: Micros) {
        self.lead = self.lead.max(time.saturating_sub(of_server()));
    }

    /// Returns the time of leases now.
    #[must_use]
    pub fn now(&self) -> Micros {
        of_server().saturating_add(self.lead).min(LATEST)
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
        let claimant = Claimant { hash, now: self.now(), lease, above: 0 };
        let answer = machine.claim(&claimant, time, log)?;
        let ClaimAnswer::Yours(first) = answer else { return Ok(answer) };
        self.reached(first.since);
        if self.is_token_known {
            return Ok(answer);
        }
        // Holders may have tokens whose records were lost with another server, or with this one
        // before it was started again. The first claim here tells the latest token that is known;
        // it is made again, with a token that is greater than all that may have been lost. A part
        // is random, because two servers may continue from the same state, one after the other.
        let lost = MOST_LOST + random() as u64 % MOST_LOST;
        let above = first.token.saturating_add(lost);
        machine.release((hash, first.token), first.since, log);
        self.is_token_known = true;
        machine.claim(&Claimant { above, ..claimant }, time, log)
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
