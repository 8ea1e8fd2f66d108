//! The shared words of the file `live`, each with the operations that its protocol consists of.
//!
//! This file chooses the memory orderings of its words, each with its reason and its partner. Those
//! of lock words and single-flight gates are chosen in `locks/`, of the log's tail and slots in
//! `wal/slot.rs`, of watermarks (durable end, allocated end, newest snapshot) in
//! `primitives/watermark.rs`, of words that never change in `live_file.rs`, and of tables of the
//! image in the file of each. `docs/protocols/` describes them.

use crate::primitives::{AtomicU64, Ordering, fence};

/// The starts of damaged snapshots; 0 for none. Relaxed: no other data depends on them.
#[derive(Debug, Clone, Copy)]
pub struct DamagedSnapshots<'a>(pub(super) &'a [AtomicU64]);

impl DamagedSnapshots<'_> {
    /// Returns whether the snapshot with this start is one of them.
    #[must_use]
    pub fn contains(self, start: u64) -> bool {
        self.0.iter().any(|word| word.load(Ordering::Relaxed) == start)
    }

    /// Removes a snapshot that was replaced by a sound one of the same name.
    pub fn remove(self, start: u64) {
        for word in self.0 {
            let _ = word.compare_exchange(start, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Sets the list, as far as there is room, for a caller with exclusive access to the image.
    pub fn begin_with(self, starts: impl Iterator<Item = u64>) {
        self.0.iter().zip(starts).for_each(|(word, start)| word.store(start, Ordering::Relaxed));
    }
}

/// A cache of the latest time, doubled, plus one if it came with its key. Relaxed: no other data
/// depends on it.
#[derive(Debug, Clone, Copy)]
pub struct LatestTime<'a>(pub(super) &'a AtomicU64);

impl LatestTime<'_> {
    /// Returns the time.
    #[must_use]
    #[inline]
    pub fn read(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the time.
    #[inline]
    pub fn raise(self, time: u64) {
        if self.read() < time {
            self.0.fetch_max(time, Ordering::Relaxed);
        }
    }

    /// Sets the time, for a caller with exclusive access to the image.
    pub fn begin_at(self, time: u64) {
        self.0.store(time, Ordering::Relaxed);
    }
}

/// The bit of an announcement that has not ended. LSNs are smaller than this bit.
const OPEN: u64 = 1 << 63;

/// A lower bound of the LSNs that the holder of stripe 0 is writing.
#[derive(Debug, Clone, Copy)]
pub struct EventsFrom<'a>(pub(super) &'a AtomicU64);

impl EventsFrom<'_> {
    /// Announces records of stripe 0 from this LSN on, for the holder of the stripe.
    #[inline]
    pub fn announce(self, lsn: u64) {
        // Relaxed: the Release of `Tail::reserve` orders this store before the reservation. Others
        // read it only after this process has died.
        self.0.store(lsn | OPEN, Ordering::Relaxed);
    }

    /// Ends the announcement: all of the records are applied and counted, or there are none.
    #[inline]
    pub fn end(self) {
        // Relaxed: only the holder of stripe 0 writes it. Others read it after its death, or after
        // the release of the stripe.
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns the announced LSN, if the announcement has not ended, for a process that has taken
    /// stripe 0 over.
    #[must_use]
    pub fn read(self) -> Option<u64> {
        // Relaxed: its writer is dead, and the takeover of the lock orders this load after that.
        let word = self.0.load(Ordering::Relaxed);
        (word & OPEN != 0).then_some(word & !OPEN)
    }
}

/// The bit of a request for a checkpoint because a record found no space on the disk.
const LACKS_SPACE: u64 = 1 << 62;

/// The request for a checkpoint, for which writers wait: 0 if there is none. The checkpoint
/// increments it as it works. A hint, which orders nothing.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointRequest<'a>(pub(super) &'a AtomicU64);

impl CheckpointRequest<'_> {
    /// Returns whether writers, of all handles, should wait for a checkpoint.
    #[must_use]
    #[inline]
    pub fn is_open(self) -> bool {
        self.progress() != 0
    }

    /// Returns the progress of the requested checkpoint.
    #[must_use]
    #[inline]
    pub fn progress(self) -> u64 {
        self.0.load(Ordering::Relaxed) & !LACKS_SPACE
    }

    /// Returns whether a record found no space, and not only the log is far too long.
    #[must_use]
    pub fn lacks_space(self) -> bool {
        self.0.load(Ordering::Relaxed) & LACKS_SPACE != 0
    }

    /// Opens a request, unless there is one. The handle that did so before may be dead. One that is
    /// there lacks space, too, if this one does.
    pub fn open(self, lacks_space: bool) {
        let lack = if lacks_space { LACKS_SPACE } else { 0 };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let opened = word.max(1) | lack;
            (opened != word).then_some(opened)
        });
    }

    /// Shows progress of a checkpoint that writers may wait for.
    pub fn advance(self) {
        if self.is_open() {
            // If another handle closed the request just before, this reopens it until the next
            // close.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the wait, after the checkpoint was written, or failed: writers continue.
    pub fn close(self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The LSN of the newest `Durable` record. A hint, which orders nothing.
#[derive(Debug, Clone, Copy)]
pub struct LastNote<'a>(pub(super) &'a AtomicU64);

impl LastNote<'_> {
    /// Returns the LSN.
    #[must_use]
    pub fn read(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the LSN.
    pub fn raise(self, to: u64) {
        self.0.fetch_max(to, Ordering::Relaxed);
    }
}

/// The number of slots that may be empty although no stripe is held for them: slots of batches and
/// `Durable` records, in progress or of dead writers, and of stripes released without repair.
/// Relaxed: it is read when all processes that could change it are dead.
#[derive(Debug, Clone, Copy)]
pub struct UnheldSlots<'a>(pub(super) &'a AtomicU64);

impl UnheldSlots<'_> {
    /// Adds a slot: before its reservation, or because it stays empty.
    pub fn add(self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a slot: it is published, or was not reserved.
    pub fn remove(self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds the slots of a batch, before their reservation.
    pub fn add_all(self, slots: u64) {
        self.0.fetch_add(slots, Ordering::Relaxed);
    }

    /// Removes the slots of a batch: all are published or void, or none was reserved.
    pub fn remove_all(self, slots: u64) {
        self.0.fetch_sub(slots, Ordering::Relaxed);
    }

    /// Returns their number.
    #[must_use]
    pub fn count(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Writes are refused: a sync failed, or a change was left half done.
const POISONED: u64 = 1;
/// Another image has replaced this one, or will.
const RETIRED: u64 = 2;
/// A write-back failed: any page may show older content.
const DISTRUSTED: u64 = 4;
/// With `RETIRED`: the filter is altered, and its handles open it again.
const ALTERED: u64 = 8;
/// With `POISONED`: the log could not be written back, and records above the durable end may be
/// lost.
const LOG_LOST: u64 = 16;

/// The status flags of an image; 0 in normal use.
#[derive(Debug, Clone, Copy)]
pub struct Status<'a>(&'a AtomicU64);

impl<'a> Status<'a> {
    /// Creates the status in a word.
    #[must_use]
    pub fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Refuses all further writes, permanently. Relaxed suffices: the flag guards no other data.
    pub fn poison(self) {
        self.0.fetch_or(POISONED, Ordering::Relaxed);
    }

    /// Returns whether a sync failed, or a change was left half done.
    #[must_use]
    pub fn is_poisoned(self) -> bool {
        self.0.load(Ordering::Relaxed) & POISONED != 0
    }

    /// Refuses all further writes and questions, permanently: pages may be lost. Relaxed as in
    /// [`Status::poison`].
    pub fn distrust(self) {
        self.0.fetch_or(POISONED | DISTRUSTED, Ordering::Relaxed);
    }

    /// Refuses all further writes, permanently: records above the durable end may be lost. Relaxed
    /// as in [`Status::poison`].
    pub fn lose_log(self) {
        self.0.fetch_or(POISONED | LOG_LOST, Ordering::Relaxed);
    }

    /// Returns whether records above the durable end may be lost.
    #[must_use]
    pub fn has_lost_log(self) -> bool {
        self.0.load(Ordering::Relaxed) & LOG_LOST != 0
    }

    /// Returns whether pages of the image may be lost.
    #[must_use]
    #[inline]
    pub fn is_distrusted(self) -> bool {
        self.0.load(Ordering::Relaxed) & DISTRUSTED != 0
    }

    /// Marks the image as retired: no process may write to it any more.
    pub fn retire(self) {
        self.0.fetch_or(RETIRED, Ordering::Release);
    }

    /// Retires the image because of an alteration. Later owners of a stripe see the flag through
    /// the release of its lock.
    pub fn retire_to_alter(self) {
        self.0.fetch_or(RETIRED | ALTERED, Ordering::Release);
        // Release fence: pairs with the Acquire fence in `answers`. A reader that sees a later
        // store, or freed memory, also sees the flag.
        fence(Ordering::Release);
    }

    /// Returns whether it was retired by an alteration. Acquire: as [`Status::is_retired`].
    #[must_use]
    #[inline]
    pub fn is_altered(self) -> bool {
        self.0.load(Ordering::Acquire) & ALTERED != 0
    }

    /// Returns whether values read before this call are valid. They are not after an alteration:
    /// the filter may have changed, or the memory may be freed.
    #[must_use]
    #[inline]
    pub fn answers(self) -> bool {
        // Acquire fence: pairs with the Release fence in `retire_to_alter`, if a read before this
        // fence saw what was stored after that one.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) & ALTERED == 0
    }

    /// Returns whether it was retired. Acquire: pairs with the Release in [`Status::retire`].
    #[must_use]
    #[inline]
    pub fn is_retired(self) -> bool {
        self.0.load(Ordering::Acquire) & RETIRED != 0
    }

    /// Returns whether writes are refused, for any reason. Exact for the owner of a stripe.
    #[must_use]
    #[inline]
    pub fn refuses(self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// The number of inserts refused as too late since the image was made. Relaxed: no other data
/// depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a>(pub(super) &'a AtomicU64);

impl Refused<'_> {
    /// Counts one more.
    #[inline]
    pub fn add(self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns their number.
    #[must_use]
    pub fn count(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The incarnation of a session slot: how often it was taken.
#[derive(Debug, Clone, Copy)]
pub struct Incarnation<'a>(pub(super) &'a AtomicU64);

impl Incarnation<'_> {
    /// Returns the incarnation.
    #[must_use]
    pub fn read(self) -> u64 {
        // Acquire: pairs with the Release of the process that took the slot since.
        self.0.load(Ordering::Acquire)
    }

    /// Raises the incarnation by one, for the process that has taken the slot. Returns it.
    pub fn raise(self) -> u64 {
        // Release: pairs with the Acquire in `read`, whose callers treat older incarnations as
        // dead. Acquire: pairs with the Release of the raise before.
        self.0.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }
}

/// A time base: a time of the filter (0: none yet) and the clock's reading at that time. Relaxed:
/// only the first word changes, and each of its values fits the second word.
/// `engine/time/time_over_reboots.rs` describes its use.
#[derive(Debug, Clone, Copy)]
pub struct TimeWords<'a>(&'a [AtomicU64; 2]);

impl<'a> TimeWords<'a> {
    /// Creates the base in these words, of an image or of a handle.
    #[must_use]
    #[inline]
    pub fn new(words: &'a [AtomicU64; 2]) -> Self {
        Self(words)
    }

    /// Returns the time, and the reading.
    #[must_use]
    #[inline]
    pub fn read(self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.0[at].load(Ordering::Relaxed))
    }

    /// Raises the time, which is a signed number.
    pub fn raise(self, to: i64) {
        let higher = |old: u64| (old == 0 || (old as i64) < to).then_some(to as u64);
        let _ = self.0[0].fetch_update(Ordering::Relaxed, Ordering::Relaxed, higher);
    }

    fn begin_with(self, words: [u64; 2]) {
        self.0.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }
}

/// The time base of an image, with the identity of its clock (0: none yet).
#[derive(Debug, Clone, Copy)]
pub struct ImageTime<'a> {
    pub(super) words: &'a [AtomicU64; 2],
    pub(super) clock: &'a AtomicU64,
}

impl<'a> ImageTime<'a> {
    /// Returns the base.
    #[must_use]
    #[inline]
    pub fn base(self) -> TimeWords<'a> {
        TimeWords(self.words)
    }

    /// Returns the identity of the clock.
    #[must_use]
    pub fn clock(self) -> u64 {
        // Acquire: pairs with the Release in `begin_with`.
        self.clock.load(Ordering::Acquire)
    }

    /// Sets the base, for a caller that holds the opening byte or has exclusive access.
    pub fn begin_with(self, base: [u64; 2], clock: u64) {
        self.base().begin_with(base);
        // Release: pairs with the Acquire in `clock`. A handle that finds the clock finds its base.
        self.clock.store(clock, Ordering::Release);
    }
}
