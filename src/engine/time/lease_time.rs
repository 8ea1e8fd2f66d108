//! Leases: their time, how it continues over restarts and reboots, and whether a claim is held.
//!
//! A lease is a promise of real time, so its time is not the filter's, which may stand still, or be
//! moved by keys that have times of their own. At the first opening after a boot it is the wall
//! clock's time, or the latest claim's if that is later. From then on it advances with a monotonic
//! clock (`CLOCK_BOOTTIME`), whether the filter is open or not. Its base lies in the image, and
//! each image takes it over from the one before, like the base of the filter's
//! [time](crate::engine::time::filter_time).

use crate::clock::Clock;
use crate::engine::shared::Shared;
use crate::error::{Error, Result};
use crate::image::Control;
use crate::image::words::TimeWords;
use crate::media::Access;
use crate::primitives::AtomicU64;
use ebbtide_core::claims::{HeldClaim, still_held};
use ebbtide_core::kind::Micros;
use std::sync::Arc;
use std::time::Duration;

/// Locates the base of the time of leases of a handle.
#[derive(Debug)]
pub struct LeaseBase {
    clock: Clock,
    /// The handle's own base, if its clock is not that of the image.
    own: Option<[AtomicU64; 2]>,
}

/// Returns the clock that leases use, and its identity: that of the handle, or the system's if it
/// has none.
fn clock_of(clock: &Clock) -> (Clock, u64) {
    let clock = if clock.ticks() { clock.clone() } else { Clock::system() };
    let identity = clock.identity().unwrap_or(1);
    (clock, identity)
}

/// Copies the base from the previous image, which was made since the machine was started. Does
/// nothing if the opener uses another clock. The creator of a filter may have used a clock that
/// ended with its process: no later handle could use a base of that clock.
pub(crate) fn take_over(header: &Control, before: &Control, clock: &Clock) {
    let base = before.lease_base();
    if base.clock() == clock_of(clock).1 {
        header.lease_base().begin_with(base.base().read(), base.clock());
    }
}

/// Returns the second now by a clock that has run evenly since the machine was started: the time of
/// leases, which images take over from each other. `None` if this filter's leases have another
/// clock than the system's.
pub(crate) fn even_second(header: &Control) -> Option<u64> {
    let (clock, base) = (Clock::system(), header.lease_base());
    let is_system = clock.identity() == Some(base.clock());
    let [time, read] = is_system.then(|| base.base().read())?;
    Some(time.saturating_add(clock.elapsed().saturating_sub(read)) / 1_000_000)
}

impl LeaseBase {
    /// Creates the base of a handle on this image. The first handle initialises the image's base if
    /// it may write: it holds the opening byte, or has exclusive access. A handle without a clock
    /// uses the system's.
    #[must_use]
    pub fn new(header: &Control, clock: &Clock, access: Access) -> Self {
        let (clock, ours) = clock_of(clock);
        let found = header.lease_base().clock();
        if found == ours {
            return Self { clock, own: None };
        }
        let first = clock.wall().unwrap_or(0).max(header.claims().latest().time).max(1);
        let read = clock.elapsed();
        if found != 0 || access == Access::Read {
            return Self { clock, own: Some([AtomicU64::new(first), AtomicU64::new(read)]) };
        }
        header.lease_base().begin_with([first, read], ours);
        Self { clock, own: None }
    }

    /// Creates the base of a handle on a state of the past, whose time of leases stands still at
    /// its latest claim.
    #[must_use]
    pub fn of_past(header: &Control) -> Self {
        let latest = header.claims().latest().time;
        Self { clock: Clock::stream(), own: Some([AtomicU64::new(latest), AtomicU64::new(0)]) }
    }
}

/// A key that is claimed, by its hash, with the token of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimedKey {
    pub(crate) hash: u64,
    pub(crate) token: u64,
}

/// The leases of a filter, and their time as a handle reads it.
#[derive(Debug)]
pub struct Leases {
    shared: Arc<Shared>,
    base: LeaseBase,
}

impl Leases {
    /// Creates the leases of a handle.
    pub(crate) fn new(shared: Arc<Shared>, base: LeaseBase) -> Self {
        Self { shared, base }
    }

    /// Returns the time now: never before the latest claim, for the holder of stripe 0.
    pub(crate) fn now(&self) -> Micros {
        let header = self.shared.header();
        let of_image = || header.lease_base().base();
        let [time, read] = self.base.own.as_ref().map_or_else(of_image, TimeWords::new).read();
        let passed = self.base.clock.elapsed().saturating_sub(read);
        time.saturating_add(passed).max(header.claims().latest().time)
    }

    /// Returns the claims that are held now; exact for the holder of stripe 0.
    pub(crate) fn held(&self) -> Vec<HeldClaim> {
        let (now, mut all) = (self.now(), self.shared.header().claims().all());
        all.retain(|claim| claim.deadline > now);
        all
    }

    /// Returns the claim of a key, for the holder of stripe 0.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] if it is not held any more, or somebody else's.
    pub(crate) fn check_held(&self, key: ClaimedKey) -> Result<HeldClaim> {
        let claims = self.shared.header().claims();
        let now = (self.now(), claims.latest());
        still_held(claims.get(key.hash), key.token, now).ok_or_else(|| self.lost(key.token))
    }

    /// Returns the claims of keys that are confirmed together, for the holder of stripe 0.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] as [`Leases::check_held`], and if a claim is confirmed twice.
    pub(crate) fn check_all_held(&self, keys: &[ClaimedKey]) -> Result<Vec<HeldClaim>> {
        let mut tokens: Vec<u64> = keys.iter().map(|key| key.token).collect();
        tokens.sort_unstable();
        if let Some(twice) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.lost(twice[0]));
        }
        keys.iter().map(|&key| self.check_held(key)).collect()
    }

    fn lost(&self, token: u64) -> Error {
        Error::LeaseLost { path: self.shared.path().to_path_buf(), token }
    }

    /// Returns the time on the wall clock when this time of leases will be reached.
    pub(crate) fn on_wall(&self, time: Micros) -> Micros {
        // The time of leases of a past state is the wall clock's then.
        let wall = self.base.clock.wall().unwrap_or_else(|| self.now());
        wall.saturating_add(time.saturating_sub(self.now()))
    }

    /// Returns how long ago a time of leases was.
    pub(crate) fn since(&self, time: Micros) -> Duration {
        Duration::from_micros(self.now().saturating_sub(time))
    }
}
