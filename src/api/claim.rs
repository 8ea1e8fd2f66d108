//! Claims: keys that somebody is working on.

use crate::api::call::Call;
use crate::api::config::Any;
use crate::api::handle::Filter;
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::engine::time::lease_time::ClaimedKey;
use crate::engine::write::claims::{self, ClaimAnswer};
use crate::engine::write::request::Waits;
use crate::error::{Error, Result};
use crate::primitives::{Hint, Instant};
use ebbtide_core::claims::{HeldClaim, LeaseTime};
use std::fmt;
use std::time::Duration;

/// The longest total wait for a lock when leases are dropped. After it they expire by time.
const DROPPED_WAIT: Duration = Duration::from_secs(1);

/// The answer of [`Filter::claim`].
pub enum Claim<'a, K = Any> {
    /// The key is in the window (or a false positive): its work counts as done.
    Seen,
    /// Somebody else is working on the key.
    InProgress {
        /// When that lease ends, by the wall clock, if it is not renewed.
        until: Timestamp,
    },
    /// The key is the caller's to work on, and nobody else's.
    Yours(Lease<'a, K>),
}

/// The right to work on a key, and to say when that is done; see [`Filter::claim`].
///
/// It ends with [`confirm`](Lease::confirm), with [`release`](Lease::release), when it is dropped
/// (which releases the key), or when its time is over. After that, others may have the key, and
/// this lease can do nothing any more.
#[must_use = "a lease that is dropped releases the key"]
pub struct Lease<'a, K = Any> {
    filter: &'a Filter<K>,
    key: ClaimedKey,
    /// 1 if dropping must not release the key: the lease has ended, or `into_token` was called.
    ended: Hint,
}

impl<K> fmt::Debug for Claim<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seen => f.write_str("Seen"),
            Self::InProgress { until } => write!(f, "InProgress {{ until: {until:?} }}"),
            Self::Yours(lease) => write!(f, "Yours({lease:?})"),
        }
    }
}

impl<K> fmt::Debug for Lease<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filter, key, .. } = self;
        f.debug_struct("Lease").field("filter", filter).field("key", key).finish_non_exhaustive()
    }
}

impl<'a, K> Lease<'a, K> {
    /// Returns the token: a number that is greater than that of every earlier claim of the filter.
    /// A database that keeps the greatest token, and refuses smaller ones, is safe from a handler
    /// that continues after its lease is over.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.key.token
    }

    /// Inserts the key and ends the claim, both in one atomic step, which is as durable as the
    /// filter requires.
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost) if the time was over: the key is not inserted,
    /// and somebody else may be working on it. After
    /// [`Error::Poisoned`](crate::Error::Poisoned) it is not known whether the key is inserted and
    /// the claim has ended: the filter, opened again, says so. Otherwise as [`Filter::insert`]; the
    /// lease stays then, and may be confirmed again.
    pub fn confirm(&self) -> Result<()> {
        self.filter.call().confirm(self)
    }

    /// Ends the claim without an insert: the key may be claimed again at once. Returns whether it
    /// was still held. Whatever the filter's durability, it does not wait for a sync: a power cut
    /// may bring the claim back, for the rest of its time ([`Filter::sync`] prevents that).
    ///
    /// # Errors
    /// As [`Filter::insert`].
    pub fn release(&self) -> Result<bool> {
        self.release_within(Waits::Always)
    }

    fn release_within(&self, waits: Waits) -> Result<bool> {
        let release = |engine: &Engine| claims::release(&engine.writer, self.key, waits);
        let released = self.filter.current.run(waits, release)?;
        self.note_end();
        Ok(released)
    }

    /// Renews the lease: it ends this long after now. Returns when, by the wall clock. It does not
    /// wait for a sync: a power cut may take the renewal back.
    ///
    /// # Errors
    /// As [`Lease::confirm`], and [`Error::Parameter`](crate::Error::Parameter) as
    /// [`Filter::claim`].
    pub fn extend(&self, lease: Duration) -> Result<Timestamp> {
        self.extend_within(lease, Waits::Always)
    }

    fn extend_within(&self, lease: Duration, waits: Waits) -> Result<Timestamp> {
        let lease = LeaseTime::new(lease)?;
        self.filter.current.run(waits, |engine| {
            let deadline = claims::extend(&engine.writer, self.key, lease, waits)?;
            Ok(Timestamp::from_unix_micros(engine.leases.on_wall(deadline)))
        })
    }

    /// Detaches the claim from this value, and returns its token. [`Filter::resume_claim`]
    /// continues it with the token, in this or another process.
    pub fn into_token(self) -> u64 {
        self.note_end();
        self.key.token
    }

    /// Notes that the lease has ended, or is somebody else's.
    pub(crate) fn note_end(&self) {
        self.ended.set(1);
    }

    pub(crate) fn key(&self) -> ClaimedKey {
        self.key
    }

    /// Checks that the lease belongs to this filter's handle.
    pub(crate) fn check_handle(&self, filter: &Filter<K>) -> Result<()> {
        if self.filter.current.is(&filter.current) {
            return Ok(());
        }
        Err(Error::parameter("lease", "one of this filter's handle", "another"))
    }
}

impl<K> Drop for Lease<'_, K> {
    fn drop(&mut self) {
        if self.ended.get() == 0 {
            // If this fails, the claim ends with its time.
            let _ = self.release_within(Waits::AtMost(DROPPED_WAIT));
        }
    }
}

/// Drops leases. The total wait is at most that of one lease.
pub(crate) fn drop_all<'a, K: 'a>(leases: impl Iterator<Item = Lease<'a, K>>) {
    let begun = Instant::now();
    for lease in leases.filter(|lease| lease.ended.get() == 0) {
        let left = DROPPED_WAIT.saturating_sub(begun.elapsed());
        let waits = if left.is_zero() { Waits::Never } else { Waits::AtMost(left) };
        let _ = lease.release_within(waits);
        lease.note_end();
    }
}

/// A claim that is held; see [`Filter::claims`] and [`Reader::claims`](crate::Reader::claims).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OpenClaim {
    /// The key's hash.
    pub hash: u64,
    /// The token.
    pub token: u64,
    /// How long ago the claim began.
    pub age: Duration,
    /// How long until it ends, if it is not renewed.
    pub remaining: Duration,
}

impl OpenClaim {
    /// Returns those of these claims that are held at this time of leases, the oldest first.
    pub(crate) fn all(now: u64, mut held: Vec<HeldClaim>) -> Vec<Self> {
        held.retain(|claim| claim.deadline > now);
        held.sort_unstable_by_key(|claim| claim.token);
        let micros = |from: u64, to: u64| Duration::from_micros(to.saturating_sub(from));
        let open = held.into_iter().map(|claim| Self {
            hash: claim.hash,
            token: claim.token,
            age: micros(claim.since, now),
            remaining: micros(now, claim.deadline),
        });
        open.collect()
    }
}

impl<K> Filter<K> {
    /// Claims a key for work that may fail, for the time of `lease`: any time above zero, up to 97
    /// days, rounded up to a millisecond (from 2.3 hours on, to a second).
    ///
    /// [`Filter::check_and_insert`] remembers a key before the work is done. If the work then
    /// fails, its retry is suppressed as a repetition. A claim remembers the key only when its
    /// holder confirms that the work is done. Of any number of callers, in all threads and
    /// processes, one receives [`Claim::Yours`]; the others receive [`Claim::InProgress`],
    /// until it is confirmed (then the key is [`Claim::Seen`], for the window), released, or the
    /// lease is over. `docs/handlers.md` shows the way from a handler to this.
    ///
    /// Claims are exact and logged, and survive restarts and a crash of the process. A call that
    /// gives one does not wait for a sync: a power cut ends the holders anyway. Leases always use
    /// the machine's clock, or the handle's [`ManualClock`](crate::ManualClock), even if keys have
    /// their own times (`docs/time.md`). A filter holds up to 65,536 claims, which take 4 MiB from
    /// the first one on. Other operations, including [`Filter::clear`], neither see nor end them.
    ///
    /// ```
    /// use ebbtide::{Claim, Filter, Fingerprint, Options};
    /// use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, Fingerprint::last(100_000), Options::new())?;
    /// let deliver = |attempt: u32| -> Result<&str, Box<dyn std::error::Error>> {
    ///     match seen.claim("order 17", Duration::from_secs(30))? {
    ///         Claim::Seen => Ok("done before"),
    ///         Claim::InProgress { until } => Ok("try again after {until}"),
    ///         Claim::Yours(lease) => {
    ///             if attempt == 1 {
    ///                 return Err("the payment service does not answer".into());
    ///             }
    ///             lease.confirm()?;
    ///             Ok("done")
    ///         }
    ///     }
    /// };
    /// assert!(deliver(1).is_err());
    /// // The failure has released the key, so the sender's retry is not taken for a repetition.
    /// assert_eq!(deliver(2)?, "done");
    /// assert_eq!(deliver(3)?, "done before");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ClaimsFull`](crate::Error::ClaimsFull), [`Error::Parameter`](crate::Error) for a
    /// lease out of bounds; otherwise as [`Filter::insert`].
    pub fn claim(&self, key: impl AsRef<[u8]>, lease: Duration) -> Result<Claim<'_, K>> {
        self.call().claim(key, lease)
    }

    /// Returns the lease of a claim that [`Lease::into_token`] has detached, in any process.
    /// Nothing is checked before the lease is used.
    pub fn resume_claim(&self, key: impl AsRef<[u8]>, token: u64) -> Lease<'_, K> {
        let hash = self.engine().shared.hash(key.as_ref());
        Lease { filter: self, key: ClaimedKey { hash, token }, ended: Hint::default() }
    }

    /// Returns the claims that are held now, the oldest first.
    ///
    /// # Errors
    /// As [`Filter::position`].
    pub fn claims(&self) -> Result<Vec<OpenClaim>> {
        self.look(|engine| {
            let claims = engine.claims()?;
            Ok(OpenClaim::all(engine.leases.now(), claims))
        })
    }

    /// Ends the claim of a key, whoever holds it, for an operator who knows that the holder is
    /// gone. Returns whether there was one. It does not wait for a sync, as [`Lease::release`].
    ///
    /// # Errors
    /// As [`Filter::insert`].
    pub fn end_claim(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.call().end_claim(key)
    }
}

impl<'a, K> Call<'a, Filter<K>> {
    /// See [`Filter::claim`]. A given [time](Call::time) is used to check whether the key is in the
    /// window. Of [`Claim::Seen`] the durability is that of the key: with
    /// [`Durability::Always`](crate::Durability::Always) the call waits for it, and with
    /// [`Filter::issue`] the ticket reports it.
    ///
    /// # Errors
    /// Those of [`Filter::claim`].
    pub fn claim(&self, key: impl AsRef<[u8]>, lease: Duration) -> Result<Claim<'a, K>> {
        self.check_durability()?;
        let lease = LeaseTime::new(lease)?;
        let hash = self.hash(key.as_ref());
        let claimed = self.run(|engine| {
            claims::prefetch(&engine.writer, hash);
            claims::claim(&engine.writer, hash, lease, (self.given_time(), self.waits()))
        });
        match claimed? {
            ClaimAnswer::Seen(lsn) => self.ensure_durability(lsn).map(|()| Claim::Seen),
            ClaimAnswer::InProgress(until) => {
                let until = Timestamp::from_unix_micros(self.engine().leases.on_wall(until));
                Ok(Claim::InProgress { until })
            }
            ClaimAnswer::Yours(claim) => {
                let key = ClaimedKey { hash, token: claim.token };
                let filter = self.filter();
                Ok(Claim::Yours(Lease { filter, key, ended: Hint::default() }))
            }
        }
    }

    /// See [`Lease::confirm`]. A given [time](Call::time) is the time of the insert. With
    /// [`Filter::issue`] the ticket reports its durability.
    ///
    /// A key whose own time is too late for the window is not inserted, as by [`Call::insert`], and
    /// the claim ends without an error: the filter would not know the key any more. The next claim
    /// of it is [`Claim::Yours`].
    ///
    /// # Errors
    /// Those of [`Lease::confirm`].
    pub fn confirm(&self, lease: &Lease<'_, K>) -> Result<()> {
        self.check_durability()?;
        lease.check_handle(self.filter())?;
        let with = (self.given_time(), self.waits());
        let lsn = self.run(|engine| claims::confirm(&engine.writer, lease.key(), with))?;
        lease.note_end();
        self.ensure_durability(lsn)
    }

    /// See [`Lease::release`].
    ///
    /// # Errors
    /// As there, and [`Error::Parameter`](crate::Error::Parameter) for a lease of another handle.
    pub fn release(&self, lease: &Lease<'_, K>) -> Result<bool> {
        lease.check_handle(self.filter())?;
        lease.release_within(self.waits())
    }

    /// See [`Lease::extend`].
    ///
    /// # Errors
    /// As there, and [`Error::Parameter`](crate::Error::Parameter) for a lease of another handle.
    pub fn extend(&self, lease: &Lease<'_, K>, time: Duration) -> Result<Timestamp> {
        lease.check_handle(self.filter())?;
        lease.extend_within(time, self.waits())
    }

    /// See [`Filter::end_claim`].
    ///
    /// # Errors
    /// Those of [`Filter::end_claim`].
    pub fn end_claim(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let hash = self.hash(key.as_ref());
        Ok(self.run(|engine| claims::end(&engine.writer, hash, self.waits()))?.is_some())
    }
}

/// Compiles the example of `docs/handlers.md`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/handlers.md")]
struct Handlers;
