//! A filter in memory: a state machine with one owner, for hosts that bring their own durability.
//!
//! A [`Machine`] decides as the engine `ebbtide` with one thread does, and answers as it: for the
//! same operations it has the same digest. It has no files, threads, clocks or locks. Each change
//! is a record of 32 bytes, which the host gets before it is applied. Another machine of the same
//! [identity](Machine::identity) that applies all records is in the same state, and decides and
//! hashes nothing for it. A machine saves and restores itself bit by bit, in pieces of 1 MiB. State
//! is a pure function of the identity and the records in the order of their LSNs.

mod chunks;
mod claims;
mod content;
mod distinct;
mod ledger;
mod options;
mod parts;
mod pieces;
mod restore;
mod stat;
pub(crate) mod write;

#[cfg(test)]
mod tests;

pub use claims::ClaimAnswer;
pub use content::Content;
pub use ledger::{Logged, Position};
pub use options::MachineOptions;
pub use pieces::{PieceCursor, Pieces};
pub use stat::MachineStat;
pub use write::Written;

use crate::atomic::AtomicU64;
use crate::block::Layout;
use crate::claims::{Claimant, HeldClaim, LeaseTime};
use crate::error::{Error, Result};
use crate::identity::{Build, Identity, KINDS};
use crate::inference::{AgePosterior, Form, Prior};
use crate::kind::decide::unsupported;
use crate::kind::posterior::{PosteriorOptions, PosteriorQuery};
use crate::kind::{
    Admission, Age, Checked, Estimate, KeyAges, Kind, Micros, Precondition, Request, Since, Within,
    records,
};
use crate::time::OperationTime;
#[cfg(any(test, feature = "testing"))]
pub(crate) use chunks::absent_blocks_are_zero;
use parts::Parts;
use restore::Restoration;
use std::sync::Arc;

/// A filter in memory.
///
/// ```
/// use ebbtide_core::kinds::registry;
/// use ebbtide_core::machine::{Machine, MachineOptions};
/// use ebbtide_core::{Checked, Parameters, Since};
///
/// let kind = registry::build("age-partitioned", &Parameters::new().with("window-items", 1000))?;
/// // Secret and uuid come from the host's random numbers.
/// let mut seen = Machine::create(kind, &MachineOptions::new(), 0x5eed, 4711)?;
/// let mut replica = Machine::from_identity(&seen.identity())?;
///
/// let (hash, now) = (seen.hash(b"message 1"), seen.time(Some(1_700_000_000_000_000), None)?);
/// let mut records = Vec::new();
/// let checked =
///     seen.check_and_insert(hash, Since::LastSeen, now, &mut |record| records.push(record))?;
/// assert_eq!(checked, Checked::New);
///
/// for record in &records {
///     replica.apply(record)?;
/// }
/// assert_eq!(replica.position(), seen.position());
/// assert_eq!(replica.digest(), seen.digest());
/// # Ok::<(), ebbtide_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Machine {
    pub(crate) parts: Parts,
}

impl Machine {
    /// Creates an empty filter. The host draws `secret` (of the key hash) and `uuid` at random.
    ///
    /// # Errors
    /// [`Error::Parameter`] for settings out of bounds.
    pub fn create(
        kind: Arc<dyn Kind>,
        options: &MachineOptions,
        secret: u128,
        uuid: u128,
    ) -> Result<Self> {
        Self::new(options.identity(kind, secret, uuid)?)
    }

    /// Creates the empty filter of an identity.
    ///
    /// # Errors
    /// [`Error::Parameter`] if its kind cannot have this layout.
    pub fn new(identity: Identity) -> Result<Self> {
        Ok(Self { parts: Parts::new(identity)? })
    }

    /// Returns the encoded identity, from which others create an empty twin, with the secret.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        self.parts.identity.encode()
    }

    /// Returns what never changes of the filter.
    #[must_use]
    pub fn as_identity(&self) -> &Identity {
        &self.parts.identity
    }

    /// Creates an empty filter from an encoded identity, of a kind of this crate.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Version`], and as [`Machine::new`].
    pub fn from_identity(bytes: &[u8]) -> Result<Self> {
        Self::from_identity_with(bytes, KINDS)
    }

    /// As [`Machine::from_identity`], for kinds that `build` builds.
    ///
    /// # Errors
    /// Those of [`Machine::from_identity`].
    pub fn from_identity_with(bytes: &[u8], build: Build<'_>) -> Result<Self> {
        Self::new(Identity::decode(bytes, build)?)
    }

    /// Returns the kind.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> &dyn Kind {
        self.parts.kind()
    }

    /// Returns the number of stripes and the size of blocks.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.parts.identity.layout
    }

    /// Returns the hash of a key.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.parts.identity.hasher.hash(key)
    }

    /// Returns the time of an operation, from the reading of a wall clock (`None` without one) and
    /// the time that the caller gives, if it gives one. All in microseconds since the Unix epoch.
    ///
    /// A given time may lie before the filter's, and ahead of the wall clock by no more than the
    /// maximal lead. Without one it is the wall clock's, never before the filter's time. A filter
    /// whose latest time was given takes none from a clock.
    ///
    /// # Errors
    /// [`Error::TimeAhead`].
    pub fn time(&self, wall: Option<Micros>, given: Option<Micros>) -> Result<OperationTime> {
        match given {
            Some(time) => OperationTime::given(time, wall, self.parts.identity.max_lead),
            None if self.kind().uses_time() => Ok(self.latest().by_clock(wall)),
            None => Ok(OperationTime { time: wall.unwrap_or(0), stream: false }),
        }
    }

    /// Returns the filter's latest time; the epoch for kinds that do not use time.
    #[must_use]
    pub fn latest(&self) -> OperationTime {
        self.parts.ledger.latest()
    }

    /// Prefetches the memory that an operation on a key will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.kind().prefetch(&self.parts.blocks(hash), hash);
    }

    /// Checks a precondition and writes a key. Passes every record to `log` before it is applied:
    /// the events that must come first, then the operation. A write that changes nothing has no
    /// record. (If an event makes the key too late, which a kind may do, only events are passed.)
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what the kind does not do, [`Error::Parameter`] for a weight out
    /// of bounds: then nothing has changed. [`Error::Damaged`] for a state from outside in which
    /// events do not end: those that `log` received have been applied.
    pub fn write(
        &mut self,
        request: &Request,
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<Written> {
        write::check(self.kind(), request)?;
        write::write(&mut self.parts, request, (time, 0), false, log, records::change)
    }

    /// Inserts a key; false if its time lies before the window.
    ///
    /// # Errors
    /// As [`Machine::write`].
    pub fn insert(
        &mut self,
        hash: u64,
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<bool> {
        Ok(self.write(&Request::insert(hash), time, log)?.checked != Checked::TooLate)
    }

    /// Checks whether a key is in the window, and inserts it.
    ///
    /// # Errors
    /// As [`Machine::write`].
    pub fn check_and_insert(
        &mut self,
        hash: u64,
        since: Since,
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<Checked> {
        let request = Request::insert(hash).under(Precondition::Present(since));
        Ok(self.write(&request, time, log)?.checked)
    }

    /// Inserts a key `weight` times unless its count would then be above `limit`.
    ///
    /// # Errors
    /// As [`Machine::write`], and [`Error::Parameter`] for a limit that is no number.
    pub fn insert_up_to(
        &mut self,
        (hash, weight): (u64, u64),
        limit: f64,
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<Admission> {
        let request = Request::insert(hash).weighing(weight).under(Precondition::up_to(limit)?);
        let Written { checked, estimate } = self.write(&request, time, log)?;
        let estimate = estimate.ok_or_else(|| unsupported(self.kind(), "estimate"))?;
        Ok(Admission::new(checked, estimate))
    }

    /// Removes a key `weight` times; false if it is not contained that often.
    ///
    /// # Errors
    /// As [`Machine::write`].
    pub fn remove(
        &mut self,
        (hash, weight): (u64, u64),
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<bool> {
        let request = Request::remove(hash, weight);
        Ok(self.write(&request, time, log)?.checked == Checked::Present)
    }

    /// Removes all keys. The filter's time, and the numbers of its banks, continue.
    pub fn clear(&mut self, time: OperationTime, log: &mut impl FnMut(Logged)) {
        write::emit_clear(&mut self.parts, time, log);
    }

    /// Claims a key that is not in the window, for a caller that works on it. `time` is that of the
    /// question. See [`claims`](crate::claims).
    ///
    /// # Errors
    /// [`Error::ClaimsFull`]: then nothing has changed.
    pub fn claim(
        &mut self,
        claimant: &Claimant,
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<ClaimAnswer> {
        claims::claim(&mut self.parts, claimant, time, log)
    }

    /// Inserts a key, and ends its claim, which the caller must hold at `now`, by the time of
    /// leases. A key that is too late is not inserted.
    ///
    /// # Errors
    /// [`Error::LeaseLost`]: then nothing has changed. As [`Machine::write`].
    pub fn confirm(
        &mut self,
        (hash, token): (u64, u64),
        now: Micros,
        time: OperationTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<()> {
        claims::confirm(&mut self.parts, (hash, token), now, time, log)
    }

    /// Ends a claim without an insert, if the caller holds it. Returns whether it did.
    pub fn release(
        &mut self,
        (hash, token): (u64, u64),
        now: Micros,
        log: &mut impl FnMut(Logged),
    ) -> bool {
        claims::release(&mut self.parts, (hash, token), now, log)
    }

    /// Renews a claim that the caller holds. Returns its new deadline, by the time of leases.
    ///
    /// # Errors
    /// [`Error::LeaseLost`]: then nothing has changed.
    pub fn extend(
        &mut self,
        (hash, token): (u64, u64),
        now: Micros,
        lease: LeaseTime,
        log: &mut impl FnMut(Logged),
    ) -> Result<Micros> {
        claims::extend(&mut self.parts, (hash, token), (now, lease), log)
    }

    /// Returns the claims, held or not, by hash.
    pub fn claims(&self) -> impl ExactSizeIterator<Item = &HeldClaim> {
        self.parts.claims.iter()
    }

    /// Applies a record that a twin has emitted.
    ///
    /// # Errors
    /// [`Error::Diverged`] if it is not the next one of this filter: then nothing has changed.
    pub fn apply(&mut self, logged: &Logged) -> Result<()> {
        write::apply(&mut self.parts, logged)
    }

    /// Returns whether a key is in the window at a time. A time before the filter's stands for the
    /// filter's, here and in all questions.
    #[must_use]
    #[inline]
    pub fn contains(&self, hash: u64, now: Micros) -> bool {
        self.kind().contains(
            &self.parts.state(),
            &self.parts.blocks(hash),
            &self.parts.query(hash, now),
        )
    }

    /// Returns how long ago a key was seen, at least; `None` if it is not in the window.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for kinds that do not know ages.
    pub fn age(&self, hash: u64, now: Micros) -> Result<Option<Age>> {
        let ages = self.ages("age")?;
        Ok(ages.age(&self.parts.state(), &self.parts.blocks(hash), &self.parts.query(hash, now)))
    }

    /// Returns whether a key was seen within a part of the window.
    ///
    /// # Errors
    /// As [`Machine::age`], and [`Error::Parameter`] for a reach in another unit than the window's.
    pub fn seen_within(&self, hash: u64, now: Micros, within: Within) -> Result<bool> {
        let (ages, query) = (self.ages("seen_within")?, self.parts.query(hash, now));
        within.check("within", self.kind().uses_time())?;
        Ok(ages.contains_within(&self.parts.state(), &self.parts.blocks(hash), &query, within))
    }

    fn ages(&self, operation: &'static str) -> Result<&dyn KeyAges> {
        self.kind().ages().ok_or_else(|| unsupported(self.kind(), operation))
    }

    /// Returns how often a key was inserted.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for kinds that do not count.
    pub fn estimate(&self, hash: u64, now: Micros) -> Result<Estimate> {
        let query = self.parts.query(hash, now);
        let estimate = self.kind().estimate(&self.parts.state(), &self.parts.blocks(hash), &query);
        estimate.ok_or_else(|| unsupported(self.kind(), "estimate"))
    }

    /// Returns the frequency of a key: its decayed count, normalised.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for kinds whose counts do not decay.
    pub fn frequency(&self, hash: u64, now: Micros) -> Result<Estimate> {
        let normaliser = self.kind().counts().and_then(|counts| counts.normaliser());
        let normaliser = normaliser.ok_or_else(|| unsupported(self.kind(), "frequency"))?;
        let Estimate { count, at_least } = self.estimate(hash, now)?;
        Ok(Estimate { count: count * normaliser, at_least })
    }

    /// Returns the probability that a key is in the window.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for kinds without evidence, [`Error::Parameter`] for a window in
    /// another unit than the filter's own, and for a prior that is not one.
    pub fn posterior<P: Prior + ?Sized>(
        &self,
        key: &[u8],
        now: Micros,
        options: PosteriorOptions,
        prior: &P,
    ) -> Result<f64> {
        let (kind, hash) = (self.kind(), self.hash(key));
        let asked = PosteriorQuery::new(kind, "posterior", key, options, prior)?;
        let query = self.parts.query(hash, now);
        Ok(asked.in_window(&self.parts.state(), &self.parts.blocks(hash), &query))
    }

    /// Returns the distribution of a key's age.
    ///
    /// # Errors
    /// As [`Machine::posterior`].
    pub fn age_posterior<P: Prior + ?Sized>(
        &self,
        key: &[u8],
        now: Micros,
        form: Form,
        prior: &P,
    ) -> Result<AgePosterior> {
        let (kind, hash) = (self.kind(), self.hash(key));
        let options = PosteriorOptions { window: None, form };
        let asked = PosteriorQuery::new(kind, "age_posterior", key, options, prior)?;
        Ok(asked.ages(&self.parts.state(), &self.parts.blocks(hash), &self.parts.query(hash, now)))
    }

    /// Returns which records have been applied.
    #[must_use]
    pub fn position(&self) -> Position {
        self.parts.ledger.position()
    }

    /// Returns a hash of the logical state: the engine's, for the same identity and operations.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.content().digest_with(&[])
    }

    /// Returns statistics at a time. Fill and rates are measured on at most this number of blocks
    /// of each bank; 0 measures none.
    #[must_use]
    pub fn stat(&self, now: Micros, blocks: u64) -> MachineStat {
        MachineStat::of(&self.parts, now, blocks)
    }

    /// Returns the metrics of the kind: names and sums over all blocks, each of which is visited.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let metrics = self.kind().metrics().iter();
        metrics.map(|metric| (metric.name, self.parts.sum(metric.word))).collect()
    }

    /// Returns the bytes of memory that are allocated.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self) + self.parts.allocated_bytes()
    }

    /// Returns the bytes of memory when all of the present banks is used.
    #[must_use]
    pub fn planned_bytes(&self) -> u64 {
        size_of_val(self) as u64 + self.parts.planned_bytes()
    }

    /// Returns the state, part by part.
    pub fn content(&self) -> Content<'_> {
        Content::new(&self.parts)
    }

    /// Returns the pieces from which [`Machine::restore`] makes this filter, in its present state.
    /// Each is at most 1 MiB and checksummed, and the last one seals all. They hold the secret of
    /// the key hash.
    #[must_use]
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces::new(&self.parts)
    }

    /// Returns the pieces from a place on, which [`Pieces::cursor`] of this filter has returned. If
    /// the filter has changed since, the pieces are not those of one state: compare its
    /// [position](Machine::position).
    #[must_use]
    pub fn pieces_from(&self, cursor: &PieceCursor) -> Pieces<'_> {
        Pieces::from(&self.parts, cursor.clone())
    }

    /// Passes each allocation of at most this number of bytes that holds words to `relocate`, which
    /// returns it or another one with the same content: for hosts that defragment their memory.
    pub fn relocate(
        &mut self,
        most_bytes: usize,
        mut relocate: impl FnMut(Box<[AtomicU64]>) -> Box<[AtomicU64]>,
    ) {
        self.parts.memory.each_allocation(|words| {
            if size_of_val(&**words) <= most_bytes {
                let moved = relocate(std::mem::take(words));
                *words = moved;
            }
        });
    }

    /// Makes a filter, of a kind of this crate, from all of its pieces. See [`Restore`] for pieces
    /// that come one by one, and for other kinds.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Version`].
    pub fn restore<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut pieces = pieces.into_iter();
        let first = pieces.next().ok_or_else::<Error, _>(restore::no_pieces)?;
        let mut restore = Restore::begin(first.as_ref())?;
        pieces.try_for_each(|piece| restore.add(piece.as_ref()))?;
        restore.finish()
    }
}

/// A filter in memory whose pieces come one by one.
///
/// ```
/// # use ebbtide_core::kinds::registry;
/// # use ebbtide_core::machine::{Machine, MachineOptions, Restore};
/// # use ebbtide_core::Parameters;
/// # let kind = registry::build("bloom", &Parameters::new().with("capacity", 1000))?;
/// # let saved = Machine::create(kind, &MachineOptions::new(), 1, 2)?;
/// let mut pieces = saved.pieces();
/// let first = pieces.next().expect("there are two at least");
/// let mut restore = Restore::begin(&first)?;
/// for piece in pieces {
///     restore.add(&piece)?;
/// }
/// assert_eq!(restore.finish()?.digest(), saved.digest());
/// # Ok::<(), ebbtide_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Restore(Restoration);

impl Restore {
    /// Begins with the first piece, of a filter of a kind of this crate.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Version`], [`Error::Memory`].
    pub fn begin(first: &[u8]) -> Result<Self> {
        Self::begin_with(first, KINDS)
    }

    /// As [`Restore::begin`], for kinds that `build` builds.
    ///
    /// # Errors
    /// Those of [`Restore::begin`].
    pub fn begin_with(first: &[u8], build: Build<'_>) -> Result<Self> {
        Ok(Self(Restoration::begin(first, build)?))
    }

    /// Adds the next piece. After an error the filter cannot be restored.
    ///
    /// # Errors
    /// As [`Restore::begin`].
    pub fn add(&mut self, piece: &[u8]) -> Result<()> {
        self.0.add(piece)
    }

    /// Returns the number of the next piece; the first one has 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Returns whether the last piece has been added.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.sealed
    }

    /// Returns what never changes of the filter.
    #[must_use]
    pub fn as_identity(&self) -> &Identity {
        &self.0.parts.identity
    }

    /// Returns the pieces that were added, without the last one. A host that is itself saved before
    /// all pieces have come saves these, and continues from them.
    #[must_use]
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces::unsealed(&self.0.parts)
    }

    /// Returns the bytes of memory that are allocated.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self) + self.0.parts.allocated_bytes()
    }

    /// Returns what [`Machine::planned_bytes`] will return: the first piece decides it.
    #[must_use]
    pub fn planned_bytes(&self) -> u64 {
        size_of::<Machine>() as u64 + self.0.parts.planned_bytes()
    }

    /// Returns the filter.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the last piece is missing.
    pub fn finish(self) -> Result<Machine> {
        Ok(Machine { parts: self.0.finish()? })
    }
}
