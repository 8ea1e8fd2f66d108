//! Batches: keys and positions that are written all or not at all.

use crate::api::call::{AHEAD, Call, fetch};
use crate::api::config::Any;
use crate::api::entry::{Entry, Item};
use crate::api::filter::Filter;
use crate::engine::batch::{Contents, commit, query};
use crate::engine::outcome::{Checked, Given, Request};
use crate::engine::staging::{Answered, BatchOperation};
use crate::error::{Error, Result};
use crate::image::positions::MOST_SOURCES;
use ebbtide_core::kind::{self, Change, count_parts};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Keys and positions that are written in one atomic step; see [`Filter::batch`].
///
/// A batch is a set of changes in memory. Nothing of it is written, and no other caller sees any of
/// it, before [`Batch::commit`]. After that all of it counts, and is durable together; if the
/// commit fails, or the process dies before it has ended, either all counts or nothing. A batch
/// that is dropped has done nothing.
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
#[derive(Debug)]
pub struct Batch<'a, K = Any> {
    call: Call<'a, Filter<K>>,
    /// How far back an own key counts as present.
    reach: Reach,
    operations: Vec<BatchOperation>,
    /// The batch's own keys, by hash: the number and the time of the operation that wrote it last.
    own: HashMap<u64, Own, BuildHasherDefault<Hashed>>,
    positions: Vec<(u64, u64)>,
    /// The number of records that the operations take.
    records: u64,
}

/// When a batch wrote a key.
#[derive(Debug, Clone, Copy)]
struct Own {
    number: usize,
    time: Option<u64>,
}

/// How far back a filter remembers.
#[derive(Debug, Clone, Copy)]
enum Reach {
    Inserts(u64),
    Micros(u64),
    Always,
}

/// The hasher of numbers that are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<'a, K> Batch<'a, K> {
    /// The most operations of a batch. One with a weight above 16,777,215 counts as several.
    pub const MOST_OPERATIONS: usize = 1 << 16;

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
        let parameters = call.engine().shared.meta.kind.parameters();
        let number = |name| parameters.get(name).and_then(|value| value.parse().ok());
        let reach = match (number("window-items"), number("window")) {
            (Some(inserts), _) => Reach::Inserts(inserts),
            (None, Some(micros)) => Reach::Micros(micros),
            (None, None) => Reach::Always,
        };
        let (operations, own, positions) = (Vec::new(), HashMap::default(), Vec::new());
        Self { call, reach, operations, own, positions, records: 0 }
    }

    /// Returns the number of operations that the commit will write.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether there is nothing to commit, no position either.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.positions.is_empty()
    }

    /// Adds the insert of a key, at the time of the commit or that of the call.
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
        if operation.time.is_some() {
            // Now, while the caller knows the key.
            self.call.engine().writer.time.stamp(operation.time)?;
        }
        self.add(operation);
        Ok(())
    }

    /// Answers whether a key is new to the filter and to this batch, and adds its insert. Whether a
    /// key that is present is inserted again depends on [`Call::since`].
    ///
    /// The answer is that of the filter as it is now. If another caller inserts the key before the
    /// commit, the commit fails.
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
        self.own.reserve(keys.len());
        self.operations.reserve(keys.len());
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
        let mut operation = self.operation(item)?;
        if self.is_own(&operation) {
            if self.call.is_renewed() {
                self.add(operation);
            }
            return Ok(Checked::Present);
        }
        let given = Given { time: operation.time, waits: self.call.waits() };
        let (checked, lsn) = query(&self.call.engine().writer, operation.hash, given)?;
        match checked {
            Checked::New => operation.answered = Answered::NewAt(lsn),
            Checked::Present if self.call.is_renewed() => {}
            Checked::Present | Checked::TooLate => return Ok(checked),
        }
        self.add(operation);
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

    /// Applies the batch: all of it, or nothing. Returns when it is as durable as the call or the
    /// filter requires. Inside [`Filter::issue`] the ticket tells when it is durable.
    ///
    /// Afterwards the batch is empty, and can be filled again. If nothing has happened, it is as it
    /// was: after [`Error::WouldWait`] the commit may be repeated.
    ///
    /// Queries of others may see a part of the keys during the commit, and see all of them after
    /// it. A commit waits for the stripes of all its keys, and writers of these stripes wait for
    /// it. If its process is stopped in the middle, they wait as for any operation; nobody else
    /// does, except steps of the window if the batch sets positions or enters a step itself.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another caller inserted a key that was answered as new:
    /// [clear](Batch::clear) the batch, and take the same messages again. [`Error::Io`] for a full
    /// disk, [`Error::Parameter`] if the filter would have more than 256 sources; nothing has
    /// happened then. [`Error::Poisoned`] if the sync fails: as of any operation, the batch counts,
    /// but may not survive a power cut. [`Error::Closed`], [`Error::Forked`], [`Error::Retired`],
    /// [`Error::WouldWait`].
    pub fn commit(&mut self) -> Result<()> {
        self.call.check_durability()?;
        if self.is_empty() {
            return Ok(());
        }
        let Self { operations, positions, .. } = &*self;
        let contents = Contents { operations, positions, waits: self.call.waits() };
        let lsn = commit(&self.call.engine().writer, contents)?;
        self.clear();
        self.call.settle(lsn)
    }

    /// Forgets all operations and positions of the batch, which can then be filled again.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.own.clear();
        self.positions.clear();
        self.records = 0;
    }

    fn operation(&self, item: &impl Item) -> Result<BatchOperation> {
        let Request { asked: kind::Request { hash, weight, .. }, time, .. } =
            self.call.request_of(item)?;
        let records = self.records.saturating_add(self.count_parts(weight));
        if records > Self::MOST_OPERATIONS as u64 {
            let expected = format!("at most {} operations in a batch", Self::MOST_OPERATIONS);
            return Err(Error::parameter("batch", expected, "another one"));
        }
        let (change, answered) = (Change::Insert, Answered::Settled);
        Ok(BatchOperation { change, hash, weight, time, answered })
    }

    fn add(&mut self, operation: BatchOperation) {
        let own = Own { number: self.operations.len(), time: operation.time };
        self.own.insert(operation.hash, own);
        self.records += self.count_parts(operation.weight);
        self.operations.push(operation);
    }

    fn count_parts(&self, weight: u64) -> u64 {
        count_parts(&*self.call.engine().shared.meta.kind, weight)
    }

    /// Returns whether the batch itself has inserted a key, and the filter would still remember it
    /// if each operation were done separately.
    fn is_own(&self, operation: &BatchOperation) -> bool {
        let Some(own) = self.own.get(&operation.hash) else { return false };
        match (self.reach, own.time, operation.time) {
            (Reach::Inserts(window), ..) => (self.operations.len() - own.number) as u64 <= window,
            (Reach::Micros(window), Some(before), Some(now)) => {
                now.saturating_sub(before) <= window
            }
            // Without times of their own all operations have that of the commit.
            (Reach::Micros(_) | Reach::Always, ..) => true,
        }
    }
}
