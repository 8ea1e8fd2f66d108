//! Batches: keys, positions and ends of claims that are written all or not at all.

use crate::api::call::Call;
use crate::api::claim::{self, Lease};
use crate::api::config::Any;
use crate::api::entry::{AHEAD, Entry, Item, fetch};
use crate::api::handle::Filter;
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::engine::batch::before_commit::Prepared;
use crate::engine::batch::commit::{Settings, commit};
use crate::engine::batch::staging::BatchOperation;
use crate::engine::time::clock_copy::When;
use crate::engine::write::request::{Checked, Precondition, Request};
use crate::error::{Error, Result};
use crate::image::positions::MOST_SOURCES;
use ebbtide_core::kind::split_weight::count_records;
use ebbtide_core::kind::{self, Change, Kind};
use std::fmt;

/// The most operations of a batch.
const MOST: u64 = 1 << 16;

/// Keys and positions that are written in one atomic step; see [`Filter::batch`].
///
/// A batch is a set of changes in memory. Nothing of it is written, and no other caller sees any of
/// it, before [`Batch::commit`]. After that all of it counts, and is durable together; if the
/// commit fails, or the process dies before it has ended, either all counts or nothing. A batch
/// that is dropped has done nothing.
///
/// A batch takes up to 64 MiB of memory, plus a few hundred bytes for each operation. It copies
/// each block that two of its keys share: an operation costs least if a batch has far fewer keys
/// than the filter has blocks, or far more and all blocks together take less than these 64 MiB.
///
/// A *position* is a number that belongs to a source, such as the offset in a file or the sequence
/// of a stream's message. Positions are part of the filter's state. After a crash
/// [`Filter::position`] returns the value that belongs to exactly the keys that the filter
/// remembers, so a consumer continues from there, and neither loses a message nor takes one twice.
///
/// ```
/// use ebbtide::{Filter, Fingerprint, Options};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let seen = Filter::open_or_create(&dir, Fingerprint::last(100_000), Options::new())?;
/// let messages = ["a", "b", "a"]; // of partition 3
/// let next = seen.position(3)?.unwrap_or(0);
///
/// let mut batch = seen.batch();
/// let mut new = Vec::new();
/// for (offset, message) in (0..).zip(messages).skip(next as usize) {
///     if batch.check_and_insert(message)?.is_new() {
///         new.push(message);
///     }
///     batch.set_position(3, offset + 1)?;
/// }
/// assert!(!seen.contains("a")?); // nothing is visible yet
/// // Where `new` goes to is written before the commit, or in a transaction with the position.
/// batch.commit()?;
/// assert_eq!(new, ["a", "b"]);
/// assert_eq!(seen.position(3)?, Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batch<'a, K = Any> {
    call: Call<'a, Filter<K>>,
    prepared: Prepared,
    positions: Vec<(u64, u64)>,
    /// Claims that end with the commit.
    leases: Vec<Lease<'a, K>>,
    /// The number of records that the operations take.
    records: u64,
    /// What the weights of its operations mean.
    weights: Weights,
}

impl<K> fmt::Debug for Batch<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut batch = f.debug_struct("Batch");
        batch.field("call", &self.call).field("operations", &self.len());
        batch.field("positions", &self.positions).finish_non_exhaustive()
    }
}

impl<'a, K> Batch<'a, K> {
    /// The most operations of a batch. One with a weight above 16,777,215 counts as several.
    pub const MOST_OPERATIONS: usize = MOST as usize;

    /// Creates an empty batch whose operations have the settings of this call; see
    /// [`Filter::batch`].
    ///
    /// ```
    /// use ebbtide::{Batch, Bloom, Durability, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, Bloom::capacity(1000), Options::new())?;
    /// let mut batch = Batch::new(seen.call().durability(Durability::Always));
    /// batch.insert("order 17")?;
    /// batch.commit()?; // as durable as the disk can make it
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(call: Call<'a, Filter<K>>) -> Self {
        let (positions, leases) = (Vec::new(), Vec::new());
        let weights = Weights::of(call.engine().shared.kind());
        Self { call, prepared: Prepared::default(), positions, leases, records: 0, weights }
    }

    /// Returns the number of operations that the commit will write.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prepared.operations().len()
    }

    /// Returns whether there is nothing to commit, no position either.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.positions.is_empty() && self.leases.is_empty()
    }

    /// Adds the insert of a key, at the time of this call of `insert`, or that of the
    /// batch's [`Call`].
    ///
    /// # Errors
    /// [`Error::TimeAhead`]; [`Error::Parameter`] for the operation after
    /// [`Batch::MOST_OPERATIONS`].
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.insert_item(&key)
    }

    /// As [`Batch::insert`], for a key with a time or weight of its own.
    ///
    /// # Errors
    /// As [`Batch::insert`].
    pub fn insert_entry<T: AsRef<[u8]>>(&mut self, entry: &Entry<T, K>) -> Result<()> {
        self.insert_item(entry)
    }

    fn insert_item(&mut self, item: &impl Item) -> Result<()> {
        let operation = self.operation(item)?;
        self.records += self.count_records(operation.weight);
        self.prepared.insert(operation);
        Ok(())
    }

    /// Answers whether a key is new, and adds its insert. Whether a key that is present is inserted
    /// again depends on [`Call::since`].
    ///
    /// The answer is that of [`Filter::check_and_insert`], if each earlier operation of the batch
    /// had been a single one: own keys are present, and advance the window. What other callers
    /// write while the batch is filled counts as well. If another caller inserts a key that was
    /// answered as new, the commit fails. The answer that a key is present stays, even if others
    /// write so much before the commit that the key leaves the window.
    ///
    /// # Errors
    /// As [`Batch::insert`], and as [`Filter::contains`].
    pub fn check_and_insert(&mut self, key: impl AsRef<[u8]>) -> Result<Checked> {
        self.check_and_insert_item(&key)
    }

    /// As [`Batch::check_and_insert`], for a key with a time or weight of its own.
    ///
    /// # Errors
    /// As [`Batch::check_and_insert`].
    pub fn check_and_insert_entry<T: AsRef<[u8]>>(
        &mut self,
        entry: &Entry<T, K>,
    ) -> Result<Checked> {
        self.check_and_insert_item(entry)
    }

    /// As [`Batch::check_and_insert`] for each key in order; the answers are added to `answers`.
    /// Faster, because the memory of several keys is fetched at once.
    ///
    /// # Errors
    /// As [`Batch::check_and_insert`]; the keys before the failing one are in the batch.
    pub fn check_and_insert_all<T: AsRef<[u8]>>(
        &mut self,
        keys: &[T],
        answers: &mut Vec<Checked>,
    ) -> Result<()> {
        answers.reserve(keys.len());
        self.prepared.reserve(keys.len());
        for keys in keys.chunks(AHEAD) {
            let writer = &self.call.engine().writer;
            fetch(&writer.shared, keys, |hash| writer.prefetch_to_write(hash));
            for key in keys {
                answers.push(self.check_and_insert_item(key)?);
            }
        }
        Ok(())
    }

    fn check_and_insert_item(&mut self, item: &impl Item) -> Result<Checked> {
        let operation = self.operation(item)?;
        let (call, waits) = (self.call, self.call.waits());
        let (checked, is_added) =
            call.run(|engine| self.prepared.check(&engine.writer, operation, call.kept(), waits))?;
        if is_added {
            self.records += self.count_records(operation.weight);
        }
        Ok(checked)
    }

    /// Sets the position of a source when the batch is committed. The last value of a source
    /// counts. A filter keeps the positions of 256 sources; [`Filter::clear`] keeps them, too.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more than 256 sources of one batch.
    pub fn set_position(&mut self, source: u64, position: u64) -> Result<()> {
        let known = self.positions.iter().position(|&(of, _)| of == source);
        match known {
            Some(at) => self.positions[at].1 = position,
            None if self.positions.len() == MOST_SOURCES => {
                let expected = format!("at most {MOST_SOURCES} sources");
                return Err(Error::parameter("position", expected, "another one"));
            }
            None => self.positions.push((source, position)),
        }
        Ok(())
    }

    /// Adds the insert of a key that the caller has claimed, and the end of its claim: as
    /// [`Lease::confirm`], together with the rest of the batch. A batch that is cleared or dropped
    /// releases the key.
    ///
    /// ```
    /// use ebbtide::{Claim, Filter, Fingerprint, Options};
    /// # use std::time::Duration;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::open_or_create(&dir, Fingerprint::last(100_000), Options::new())?;
    /// let mut batch = seen.batch();
    /// if let Claim::Yours(lease) = seen.claim("message 41", Duration::from_secs(30))? {
    ///     // The work is done here; then the message, and how far its partition was read.
    ///     batch.confirm(lease)?;
    ///     batch.set_position(3, 42)?;
    /// }
    /// batch.commit()?;
    /// assert_eq!((seen.contains("message 41")?, seen.position(3)?), (true, Some(42)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for a lease of another handle, and as [`Batch::insert`]; the lease is
    /// released.
    pub fn confirm(&mut self, lease: Lease<'a, K>) -> Result<()> {
        let time = self.call.given_time();
        self.confirm_with(lease, time)
    }

    /// As [`Batch::confirm`], for a key with a time of its own. If that is too late for the window
    /// when the batch is committed, the claim ends, and the key is not inserted.
    ///
    /// # Errors
    /// As [`Batch::confirm`].
    pub fn confirm_at(&mut self, lease: Lease<'a, K>, time: Timestamp) -> Result<()> {
        self.confirm_with(lease, Some(time.as_unix_micros()))
    }

    fn confirm_with(&mut self, lease: Lease<'a, K>, time: Option<u64>) -> Result<()> {
        lease.check_handle(self.call.filter())?;
        let (hash, waits) = (lease.key().hash, self.call.waits());
        let request = Request::new(hash, time, 1, Precondition::Nothing, waits);
        // A claim's end is a record, too.
        let call = self.call;
        let operation = self.operation_of(call.engine(), &request, 1)?;
        self.records += 2;
        self.prepared.insert(operation);
        self.leases.push(lease);
        Ok(())
    }

    /// Applies the batch: all of it, or nothing. Returns when it is as durable as the call or the
    /// filter requires. Inside [`Filter::issue`] the ticket tells when it is durable.
    ///
    /// Afterwards the batch is empty, and can be filled again. If nothing has happened, it is as it
    /// was: after [`Error::WouldWait`] the commit may be repeated.
    ///
    /// Queries of others may see a part of the keys during the commit, and see all of them after
    /// it. A commit waits for the stripes of all its keys, and writers of these stripes wait for
    /// it. If its process is stopped in the middle, only these writers wait; if the batch sets
    /// positions or makes a step, so does the next step of the window.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another caller inserted a key that was answered as new:
    /// [clear](Batch::clear) the batch, and take the same messages again. [`Error::LeaseLost`] if a
    /// claim that it confirms is not held any more. [`Error::Io`] for a full
    /// disk, [`Error::Parameter`] if the filter would have more than 256 sources, or if an
    /// alteration made a batch of large counts one of more than [`Batch::MOST_OPERATIONS`]; nothing
    /// has happened then. [`Error::Poisoned`] if the sync fails: as of any operation, the batch
    /// counts, but may not survive a power cut. [`Error::Closed`], [`Error::Forked`],
    /// [`Error::Retired`], [`Error::WouldWait`].
    pub fn commit(&mut self) -> Result<()> {
        self.call.check_durability()?;
        if self.is_empty() && !self.prepared.has_asked() {
            return Ok(());
        }
        let confirms: Vec<_> = self.leases.iter().map(Lease::key).collect();
        let (positions, waits) = (&*self.positions, self.call.waits());
        let with = Settings { positions, confirms: &confirms, waits };
        let (call, prepared, weights) = (self.call, &mut self.prepared, &mut self.weights);
        let lsn = call.run(|engine| {
            keep_weights(engine.shared.kind(), prepared, weights);
            check_records(engine.shared.kind(), prepared.operations(), confirms.len())?;
            commit(&engine.writer, prepared, with)
        })?;
        self.leases.iter().for_each(Lease::note_end);
        self.clear();
        self.call.ensure_durability(lsn)
    }

    /// Forgets all operations and positions of the batch, and releases the keys that it would have
    /// confirmed. It can then be filled again.
    pub fn clear(&mut self) {
        self.prepared.clear();
        self.positions.clear();
        claim::drop_all(self.leases.drain(..));
        self.records = 0;
    }

    fn count_records(&self, weight: u64) -> u64 {
        count_records(self.call.engine().shared.kind(), weight)
    }

    fn operation(&mut self, item: &impl Item) -> Result<BatchOperation> {
        // Another thread may open the handle again meanwhile.
        let call = self.call;
        let engine = call.engine();
        let key = (item, call.hash(item.key()));
        let request = call.request(&engine.shared, key, Precondition::Nothing)?;
        self.operation_of(engine, &request, 0)
    }

    /// Returns an operation, beside which the batch gets this many records more.
    fn operation_of(
        &mut self,
        engine: &Engine,
        request: &Request<'_>,
        beside: u64,
    ) -> Result<BatchOperation> {
        let Request { asked: kind::Request { hash, weight, .. }, time, .. } = *request;
        let kind = engine.shared.kind();
        keep_weights(kind, &mut self.prepared, &mut self.weights);
        let more = count_records(kind, weight).saturating_add(beside);
        if self.records.saturating_add(more) > MOST {
            return Err(too_many());
        }
        let clock = &engine.writer.time;
        let when = match time {
            Some(time) => {
                // Checked now, while the caller knows the key.
                clock.stamp(Some(time))?;
                When::Given(time)
            }
            None => clock.read_clock(),
        };
        Ok(BatchOperation { change: Change::Insert, hash, weight, when, is_new: false })
    }
}

/// Returns the error for the operation after the last that a batch takes.
fn too_many() -> Error {
    Error::parameter("batch", format!("at most {MOST} operations in a batch"), "another one")
}

/// What weights mean to a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Weights {
    /// It has none.
    None,
    Counts,
    Importances,
}

impl Weights {
    pub(in crate::api) fn of(kind: &dyn Kind) -> Self {
        match (kind.weights(), kind.counts()) {
            (None, _) => Self::None,
            (Some(_), Some(_)) => Self::Counts,
            (Some(_), None) => Self::Importances,
        }
    }
}

/// Takes account of an alteration to a kind since operations were added: as in the log, a weight
/// that means something else now, or nothing, is left out.
fn keep_weights(kind: &dyn Kind, prepared: &mut Prepared, weights: &mut Weights) {
    let before = std::mem::replace(weights, Weights::of(kind));
    if before != Weights::None && before != *weights {
        prepared.leave_weights();
    }
}

/// Checks that the filter can take a batch that ends this many claims: since the batch was filled,
/// the filter may have become one that counts otherwise.
fn check_records(kind: &dyn Kind, operations: &[BatchOperation], confirms: usize) -> Result<()> {
    let records = operations.iter().map(|of| count_records(kind, of.weight));
    let records = records.fold(confirms as u64, u64::saturating_add);
    if records > MOST { Err(too_many()) } else { Ok(()) }
}

impl<K> Drop for Batch<'_, K> {
    fn drop(&mut self) {
        claim::drop_all(self.leases.drain(..));
    }
}
