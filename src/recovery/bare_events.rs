//! Events outside of batches: formats up to 5 have them, and no writer of format 6 writes one.
//!
//! Such an event came before the operation that needed it, and has happened only if a record of an
//! operation (or a heartbeat, a clear or a position) follows it anywhere in the log. If that
//! operation was never recorded, the event has not happened: otherwise the state would not be that
//! of the operations.

use crate::media::Media;
use crate::recovery::batches::Group;
use crate::recovery::listing::Listing;
use crate::snapshot::SnapshotReader;
use crate::wal::{Op, Record};
use ebbtide_core::event;
use std::mem;

/// The events that were read from a log and that no record of an operation has confirmed yet.
#[derive(Debug, Default)]
pub struct BareEvents {
    held_back: Vec<(u64, Record)>,
}

impl BareEvents {
    /// Takes a committed group. If it is an event outside of a batch, holds it back and returns
    /// true.
    pub fn hold_back(&mut self, group: Group<'_>) -> bool {
        match group {
            [event] if event::from_record(&event.1).is_some() => self.held_back.push(*event),
            _ => return false,
        }
        true
    }

    /// Returns the events that have happened because these records follow them.
    pub fn confirmed_by(&mut self, group: Group<'_>) -> Vec<(u64, Record)> {
        let confirms =
            |op| matches!(op, Op::Insert | Op::Remove | Op::Heartbeat | Op::Clear | Op::Position);
        let follows = group.iter().any(|(_, record)| confirms(record.op));
        if follows { self.release() } else { Vec::new() }
    }

    /// Takes out the events that are held back.
    pub fn release(&mut self) -> Vec<(u64, Record)> {
        mem::take(&mut self.held_back)
    }

    /// Returns the LSN of the first event that is held back.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.held_back.first().map(|&(lsn, _)| lsn)
    }
}

/// Returns the largest end LSN of any snapshot; `u64::MAX` if one cannot be read.
pub(super) fn covered(home: &dyn Media, listing: &Listing, uuid: u128) -> u64 {
    let end = |&start: &u64| {
        SnapshotReader::open(home, start, uuid).map_or(u64::MAX, |reader| reader.header().end)
    };
    listing.snapshots.iter().map(end).max().unwrap_or(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::names::FileName;
    use crate::media::Memory;
    use crate::snapshot::frame_writer::SnapshotWriter;
    use crate::snapshot::{ChecksumSeed, SnapshotHeader};

    fn group(ops: &[Op]) -> Vec<(u64, Record)> {
        (10..).zip(ops).map(|(lsn, &op)| (lsn, Record::new(op))).collect()
    }

    #[test]
    fn an_event_alone_is_held_back_until_an_operation_follows_and_one_in_a_batch_is_not() {
        let mut bare = BareEvents::default();
        let (step, close) = (group(&[Op::Step]), group(&[Op::CloseBank]));
        assert!(bare.hold_back(&step) && bare.hold_back(&close));
        assert_eq!(bare.first(), Some(10));
        let batch = group(&[Op::Step, Op::Insert]);
        assert!(!bare.hold_back(&batch), "a batch counts as a whole");
        for note in [Op::Durable, Op::Void] {
            let note = group(&[note]);
            assert!(!bare.hold_back(&note) && bare.confirmed_by(&note).is_empty());
        }
        assert_eq!(bare.confirmed_by(&batch), [step, close].concat());
        for op in [Op::Insert, Op::Remove, Op::Heartbeat, Op::Clear, Op::Position] {
            let held = group(&[Op::OpenBank]);
            assert!(bare.hold_back(&held));
            assert_eq!(bare.confirmed_by(&group(&[op])), held, "{op:?}");
            assert_eq!(bare.first(), None);
        }
    }

    #[test]
    fn what_the_end_of_any_snapshot_covers_is_never_taken_back() {
        let memory = Memory::new();
        memory.make().expect("nothing fails yet");
        let covered = || covered(&memory, &Listing::read(&memory).expect("a directory"), 7);
        assert_eq!(covered(), 1);
        for (start, end) in [(3, 9), (5, 8)] {
            let header = SnapshotHeader { uuid: 7, timeline: 1, start, end, frames: 0, bytes: 0 };
            let name = FileName::Snapshot { start }.to_string();
            let writer = SnapshotWriter::create(&memory, &name, ChecksumSeed::new(7, 1, start))
                .expect("space");
            writer.finish(header).expect("space");
            assert_eq!(covered(), 9);
        }
        memory.create(&FileName::Snapshot { start: 6 }.to_string(), 10).expect("space");
        assert_eq!(covered(), u64::MAX, "one cannot say");
    }
}
