//! Appending to the log: reserves slots and publishes records, in the log that is mapped, by the
//! protocol in `wal/slot.rs`.

use crate::engine::background::wakeup::{RECORDS_PER_WAKEUP, Wakeup};
use crate::engine::checkpoints::backpressure::Backpressure;
use crate::engine::checkpoints::due::{self, RESTRAINED};
use crate::engine::log::space::PRESENT;
use crate::engine::shared::Shared;
use crate::primitives::Hint;
use crate::wal::{Record, Segment};
use std::sync::Arc;

/// Some slots are kept for handles that write few records. Each handle may use one in this many of
/// them.
pub(crate) const SET_ASIDE_SHARE: u64 = 4;

/// The room that records lack in the log that is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) slots: u64,
    /// The end of the mapped log.
    pub(crate) end: u64,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It is in the log; its first record has this LSN.
    At(u64),
    /// Another process voided a slot: it has not happened.
    Voided,
    /// There is no room in the mapped log, and nothing has happened.
    NoRoom(Lack),
}

/// The writer of a handle's records.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    wakeup: Arc<Wakeup>,
    backpressure: Arc<Backpressure>,
    /// The slots that this handle has used of those kept for handles that write few records, and
    /// the end of the log below which they lie.
    set_aside_used: Hint,
    set_aside_below: Hint,
    /// The end of the log for which the task of the log was woken.
    near_end: Hint,
}

impl LogWriter {
    /// Creates the writer of a handle.
    pub(crate) fn new(
        shared: Arc<Shared>,
        wakeup: Arc<Wakeup>,
        backpressure: Arc<Backpressure>,
    ) -> Self {
        let [set_aside_used, set_aside_below, near_end] = std::array::from_fn(|_| Hint::default());
        Self { shared, wakeup, backpressure, set_aside_used, set_aside_below, near_end }
    }

    /// Reserves a slot and publishes a record there. `last` is the segment that the caller wrote to
    /// last.
    #[inline(always)]
    pub(crate) fn append(
        &self,
        last: &mut Option<Arc<Segment>>,
        record: &Record,
    ) -> Result<u64, Lack> {
        loop {
            let (tail, end) = (self.shared.header().tail(), self.shared.log.common_end());
            let lsn = match tail.reserve(1, end) {
                Some(lsn) => lsn,
                None => self.reserve_set_aside(1)?,
            };
            if end.wrapping_sub(lsn) < PRESENT {
                self.note_near_end(end);
            }
            self.enter_segment(last, lsn);
            if lsn.is_multiple_of(RECORDS_PER_WAKEUP) {
                self.note_records();
            }
            // A segment below the mapped end is mapped, unless this thread slept for so long that
            // its slot was voided and the segment unmapped.
            let Some(segment) = last.as_ref() else { return Err(self.lack(1)) };
            // If this fails, another process has lost patience and voided the slot: nothing has
            // happened, and the next slot is used.
            if segment.write(lsn, record) {
                return Ok(lsn);
            }
        }
    }

    /// Returns the lack of this many slots. The end is read after they were not found: if others
    /// have allocated more meanwhile, some log is allocated that nobody needs yet.
    #[cold]
    fn lack(&self, slots: u64) -> Lack {
        Lack { slots, end: self.shared.log.mapped_end() }
    }

    /// Reserves some of the slots that are kept for handles that write few records, if this handle
    /// has used few of them. So a handle that inserts a key now and then does not wait for the
    /// syncs that extend the log when another one has filled it.
    #[cold]
    fn reserve_set_aside(&self, count: u64) -> Result<u64, Lack> {
        let (log, end) = (&self.shared.log, self.shared.log.mapped_end());
        // Threads of one handle may do this at once: at worst they use some slots more.
        if self.set_aside_below.get() != end {
            self.set_aside_below.set(end);
            self.set_aside_used.set(0);
        }
        let used = self.set_aside_used.get() + count;
        let lack = Lack { slots: count, end };
        if used > log.slots_set_aside(end) / SET_ASIDE_SHARE {
            return Err(lack);
        }
        let first = self.shared.header().tail().reserve(count, end).ok_or(lack)?;
        self.set_aside_used.set(used);
        Ok(first)
    }

    /// Wakes the task of the log once for each end of the mapped log that comes near: it maps what
    /// follows, or allocates it, before an insert has to.
    #[cold]
    fn note_near_end(&self, end: u64) {
        if self.near_end.get() != end {
            self.near_end.set(end);
            self.wakeup.wake_log();
        }
    }

    /// Makes `last` the segment of a slot, if there is one.
    #[inline(always)]
    fn enter_segment(&self, last: &mut Option<Arc<Segment>>, lsn: u64) {
        if last.as_ref().is_some_and(|segment| segment.holds(lsn)) {
            return;
        }
        *last = self.shared.log.segment(lsn);
        // Wakes only if no further segment is ready, and segments are shorter than what is written
        // between two wakeups: woken threads compete with inserts for the processor.
        let (end, capacity) = (self.shared.log.mapped_end(), self.shared.log.capacity());
        if capacity < RECORDS_PER_WAKEUP && end.saturating_sub(lsn) <= capacity {
            self.wakeup.wake();
        }
    }

    /// Wakes the background tasks, as it is due every [`RECORDS_PER_WAKEUP`] records.
    fn note_records(&self) {
        self.wakeup.wake();
        if due::is_due(&self.shared, RESTRAINED) {
            self.backpressure.restrain(false);
        }
    }

    /// Reserves the slots of a batch in a row and publishes its records in their order. `announce`
    /// is called with the tail before that. `last` is the segment that the caller wrote to last.
    pub(crate) fn append_batch(
        &self,
        last: &mut Option<Arc<Segment>>,
        records: &[Record],
        announce: impl FnOnce(u64),
    ) -> Appended {
        let header = self.shared.header();
        let (limit, count) = (self.shared.log.common_end(), records.len() as u64);
        announce(header.tail().hint());
        // Whoever finds this process dead accounts for as many empty slots.
        header.unheld_slots().add_all(count);
        let reserved = header.tail().reserve(count, limit);
        let first = match reserved.map_or_else(|| self.reserve_set_aside(count), Ok) {
            Ok(first) => first,
            Err(lack) => {
                header.unheld_slots().remove_all(count);
                return Appended::NoRoom(lack);
            }
        };
        let next = first.saturating_add(count);
        if first.next_multiple_of(RECORDS_PER_WAKEUP) < next {
            self.note_records();
        }
        let mut publish = |lsn, record: &Record| {
            self.enter_segment(last, lsn);
            let record = Record { continues: lsn + 1 < next, ..*record };
            // As in `append`: without a segment, or without success, the slot is void.
            last.as_ref().is_some_and(|segment| segment.write(lsn, &record))
        };
        // Stops at the first void slot: the batch has not happened.
        let is_whole = (first..).zip(records).all(|(lsn, record)| publish(lsn, record));
        if !is_whole {
            for lsn in first..next {
                if let Some(segment) = self.shared.log.segment(lsn) {
                    segment.void(lsn);
                }
            }
        }
        header.unheld_slots().remove_all(count);
        if is_whole { Appended::At(first) } else { Appended::Voided }
    }
}
