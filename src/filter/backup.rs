//! A consistent copy of a filter while others write.
//!
//! A snapshot written straight to the new place, and the records from its start to its end as one segment. Together they are
//! a filter: opening it replays them like any other.

use super::engine::Engine;
use super::open::{write_file, write_new};
use crate::error::{Error, Result};
use crate::media::Media;
use crate::names::FileName;
use crate::snapshot::SnapshotHeader;
use crate::sync::Ordering;
use crate::wal::segment::SegmentHeader;
use crate::wal::{Segment, place};

const SNAPSHOT_DRAFT: u64 = 0;
const SEGMENT_DRAFT: u64 = 1;
const META_DRAFT: u64 = 2;

impl Engine {
    pub(super) fn backup(&self, to: &dyn Media) -> Result<()> {
        write_new(to, |_slot| {
            // No checkpoint may remove the log under the copy.
            let _turn = self.snapshots.hold();
            let draft = FileName::Temporary(SNAPSHOT_DRAFT).to_string();
            let snapshot = self.copy_to(to, &draft)?;
            let name = FileName::Snapshot { start: snapshot.start }.to_string();
            to.rename(&draft, &name).map_err(Error::io("name", to.path().join(&name)))?;
            self.copy_log(to, &snapshot)?;
            write_file(to, META_DRAFT, &FileName::Meta.to_string(), &self.meta.encode())
        })
    }

    /// Copies the records that the snapshot needs; all are published, for the log is durable through its end.
    fn copy_log(&self, to: &dyn Media, snapshot: &SnapshotHeader) -> Result<()> {
        let header = SegmentHeader {
            uuid: self.meta.uuid,
            era: snapshot.era,
            era_start: snapshot.start,
            first: snapshot.start,
            capacity: (snapshot.end - snapshot.start).max(1),
        };
        let segment = Segment::create(to, header, SEGMENT_DRAFT)?;
        for from in self.log.segments_from(snapshot.start) {
            for lsn in snapshot.start.max(from.first())..snapshot.end.min(from.end()) {
                let mut words = [0; 4];
                for (word, cell) in words.iter_mut().zip(from.slot(lsn)) {
                    // Acquire: pairs with the Release of `place::publish`.
                    *word = cell.load(Ordering::Acquire);
                }
                place::publish(segment.slot(lsn), words);
            }
        }
        let name = FileName::Segment { era: header.era, first: header.first };
        segment.sync().map_err(Error::io("sync", to.path().join(name.to_string())))
    }
}
