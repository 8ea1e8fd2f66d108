//! How far the log is complete: before every sync, a walk over the last words of its slots.
//!
//! A slot that stays empty for [`PATIENCE`] is voided, whichever process owns it: a killed or
//! stopped writer delays no other. The repair of a stripe voids empty slots without waiting, and a
//! batch its own. A writer that comes too late finds that its swap fails, and reserves again.
//!
//! A published record whose page was lost, because the system could not write it back, also reads
//! as an empty slot. Voided, it would be missing in a log that looks whole. The write-back fails
//! before the page is lost, so it is checked after a slot was found empty and before it is voided.

use crate::primitives::{self, Instant, patience};
use crate::wal::segment::Segment;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The time that a reserved slot may stay empty before a thread that waits for it may void it.
pub const PATIENCE: Duration = patience(Duration::from_millis(10));

/// Waits until every slot from `from` up to `to` is published or voided. The writer of a batch
/// publishes one slot after the other, and may take longer for all than [`PATIENCE`]: each that is
/// published while it is waited for gives the next one as much time.
///
/// `segments` are those from `from` on; slots that they do not contain are skipped.
///
/// # Errors
/// The system's error, if records may be lost: then empty slots stay, and every sync of their
/// segment fails.
pub fn wait_or_void(segments: &[Arc<Segment>], from: u64, to: u64) -> io::Result<()> {
    // One clock for all slots of a process that died or was stopped: it may have left many gaps.
    let mut start = None;
    for segment in segments {
        let places = places(segment, from, to);
        let mut is_whole = true;
        for lsn in places.clone().filter(|&lsn| !segment.is_complete(lsn)) {
            let is_complete = wait(segment, lsn, *start.get_or_insert_with(Instant::now));
            if is_complete {
                start = None;
            }
            is_whole &= is_complete;
        }
        if !is_whole {
            void(segment, places)?;
        }
    }
    Ok(())
}

/// Voids the empty ones of these slots of a segment.
///
/// # Errors
/// As [`wait_or_void`].
pub fn void(segment: &Segment, places: Range<u64>) -> io::Result<()> {
    let empty: Vec<u64> = places.filter(|&lsn| !segment.is_complete(lsn)).collect();
    if !empty.is_empty() {
        segment.check_written()?;
        empty.into_iter().for_each(|lsn| segment.void(lsn));
    }
    Ok(())
}

/// Returns which of the LSNs from `from` up to `to` a segment holds.
#[must_use]
pub fn places(segment: &Segment, from: u64, to: u64) -> Range<u64> {
    from.max(segment.first())..to.min(segment.end())
}

/// Returns the LSN, at most `to`, up to which every slot from `from` on is published or voided.
/// Does not wait.
#[must_use]
pub fn first(segments: &[Arc<Segment>], from: u64, to: u64) -> u64 {
    let empty = segments
        .iter()
        .find_map(|segment| places(segment, from, to).find(|&lsn| !segment.is_complete(lsn)));
    empty.unwrap_or(to)
}

/// Waits for a slot, at most until [`PATIENCE`] after `start`. Returns whether it is complete.
fn wait(segment: &Segment, lsn: u64, start: Instant) -> bool {
    while !segment.is_complete(lsn) && start.elapsed() < PATIENCE {
        if start.elapsed() > PATIENCE / 100 {
            primitives::yield_now();
        } else {
            primitives::spin_hint();
        }
    }
    segment.is_complete(lsn)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::failing::Failing;
    use crate::media::{Media, Memory};
    use crate::wal::log_record::Decoded;
    use crate::wal::segment::SegmentHeader;
    use crate::wal::{Op, Record, slot};
    use ebbtide_core::block::store;

    #[test]
    fn an_empty_place_is_left_to_its_writer_for_a_while_and_then_voided() {
        let memory = Memory::new();
        memory.make().expect("nothing fails yet");
        let header =
            SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first: 1, capacity: 10 };
        let segment = Arc::new(Segment::create(&memory, header, 0).expect("space"));
        let record = Record { payload: 5, ..Record::new(Op::Insert) };
        assert!(slot::publish(segment.slot(2), record.encode(1, 2)));
        let start = Instant::now();
        wait_or_void(std::slice::from_ref(&segment), 1, 4).expect("nothing was lost");
        assert!(start.elapsed() >= PATIENCE);
        let void = Decoded::Valid(Record::new(Op::Void));
        let read = [1, 2, 3, 4].map(|lsn| segment.read(lsn));
        assert_eq!(read, [void, Decoded::Valid(record), void, Decoded::Empty]);
    }

    /// The writer is slower than [`PATIENCE`] for all of its slots together. On a busy machine it
    /// may be slower for one of them, too, so it is given several tries.
    #[test]
    fn a_batch_is_not_voided_while_its_writer_publishes_one_slot_after_the_other() {
        const SLOTS: u64 = 20;
        let memory = Memory::new();
        memory.make().expect("nothing fails yet");
        let is_whole = |round: u64| {
            let first = 1 + round * SLOTS;
            let header =
                SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first, capacity: SLOTS };
            let segment = Arc::new(Segment::create(&memory, header, 0).expect("space"));
            std::thread::scope(|scope| {
                let segments = std::slice::from_ref(&segment);
                let walking = scope.spawn(|| wait_or_void(segments, first, first + SLOTS));
                let publish = |lsn| {
                    std::thread::sleep(PATIENCE / 5);
                    let record = Record { payload: lsn, ..Record::new(Op::Insert) };
                    slot::publish(segment.slot(lsn), record.encode(1, lsn))
                };
                let is_whole = (first..first + SLOTS).all(publish);
                walking.join().expect("no panic").expect("nothing was lost");
                is_whole
            })
        };
        assert!((0..100).any(is_whole), "a batch is never written on this machine");
    }

    #[test]
    fn a_slot_that_is_empty_because_its_page_was_lost_is_not_voided_and_no_sync_succeeds() {
        let memory = Failing::new(Memory::new());
        memory.make().expect("nothing fails yet");
        let header =
            SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first: 1, capacity: 10 };
        let segment = Arc::new(Segment::create(&memory, header, 0).expect("space"));
        let record = |at| Record { payload: at, ..Record::new(Op::Insert) }.encode(1, at);
        (1..4).for_each(|at| assert!(slot::publish(segment.slot(at), record(at))));
        // The page is lost: a record reads as empty, and the system reports it once.
        segment.slot(2).iter().for_each(|word| store(word, 0));
        memory.fail_write_back();
        wait_or_void(std::slice::from_ref(&segment), 1, 4).expect_err("a record is lost");
        assert!(memory.has_reported());
        assert!(!segment.is_complete(2), "recovery finds the loss");
        segment.sync().expect_err("the report was received");
        wait_or_void(std::slice::from_ref(&segment), 1, 4).expect_err("likewise");
    }

    #[test]
    fn without_waiting_the_log_is_complete_up_to_the_first_empty_place() {
        let memory = Memory::new();
        memory.make().expect("nothing fails yet");
        let header =
            SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first: 1, capacity: 10 };
        let segments = [1, 11].map(|first| {
            let header = SegmentHeader { first, ..header };
            Arc::new(Segment::create(&memory, header, 0).expect("space"))
        });
        (1..11).chain([11, 13]).for_each(|lsn| segments[usize::from(lsn > 10)].void(lsn));
        for (from, to, end) in [(1, 5, 5), (1, 11, 11), (4, 14, 12), (13, 14, 14), (14, 20, 14)] {
            assert_eq!(first(&segments, from, to), end, "from {from} to {to}");
        }
        assert!(!segments[1].is_complete(12), "it is left to its writer");
    }
}
