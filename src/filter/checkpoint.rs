//! Checkpoints: a snapshot of the state, and letting go of the log that it makes superfluous.
//!
//! Block by block: take the stripe, copy, let go, checksum, write. Nobody is held up longer than one copy.
//! The snapshot gets its name only once the log is durable through its end, or the state would be ahead of
//! the log. Segments go only after the directory is synced, and by the older of the two newest snapshots.

use super::engine::Engine;
use crate::cells::{Block, load};
use crate::error::{Error, Result};
use crate::media::Media;
use crate::names::FileName;
use crate::recovery::Listing;
use crate::snapshot::write::SnapshotWriter;
use crate::snapshot::{Content, Frame, SnapshotHeader, SnapshotReader};
use crate::sync::Ordering;
use std::io;

/// How many sound snapshots are kept.
const KEPT: usize = 2;

impl Engine {
    /// Writes a snapshot unless the newest one already says everything. Returns where the newest one starts.
    pub(super) fn checkpoint(&self) -> Result<u64> {
        let mut newest = self.snapshot.lock();
        if *newest > 0 && self.image.last_change() < *newest {
            return Ok(*newest);
        }
        let draft = FileName::Temporary(self.log.next_temporary()).to_string();
        let header = self.copy_to(&*self.media, &draft).inspect_err(|_| {
            // The first error is the one to report; a leftover goes at the next opening.
            let _ = self.media.remove(&draft);
        })?;
        let name = FileName::Snapshot {
            start: header.start,
        }
        .to_string();
        let named = self
            .media
            .rename(&draft, &name)
            .and_then(|()| self.media.sync());
        named.map_err(Error::io("name", self.media.path().join(&name)))?;
        *newest = header.start;
        self.tidy()?;
        Ok(header.start)
    }

    /// Writes a snapshot under this name on a medium. On return the log is durable through its end.
    pub(super) fn copy_to(&self, media: &dyn Media, name: &str) -> Result<SnapshotHeader> {
        if self.image.header().is_poisoned() {
            return Err(self.poisoned());
        }
        let written = self.write_frames(media, name);
        let header = written.map_err(Error::io("write", media.path().join(name)))?;
        self.commit(header.end)?;
        Ok(header)
    }

    fn write_frames(&self, media: &dyn Media, name: &str) -> io::Result<SnapshotHeader> {
        let header = self.image.header();
        // Acquire, here and below: pairs with the Release of `reserve`.
        let start = header.tail().load(Ordering::Acquire);
        let mut writer = SnapshotWriter::create(media, name)?;
        let mut words = Vec::new();
        // Block 0 first: banks that open later are born in the log, which is replayed from `start`.
        let (lsn, banks) = {
            let _stripe = self.lock(0);
            copy(&header.state_block(), &mut words);
            (header.block0().lsn(), self.image.listed_banks())
        };
        writer.frame(
            &Frame {
                content: Content::State,
                bank: 0,
                index: 0,
                lsn,
            },
            &words,
        )?;
        for index in 0..header.stripe_count() {
            let sums = {
                let mut stripe = self.lock(index);
                // Lets go of a segment that this stripe alone keeps mapped.
                let tail = header.tail().load(Ordering::Relaxed);
                stripe.segment.take_if(|segment| !segment.holds(tail));
                stripe.entry().sums()
            };
            let frame = Frame {
                content: Content::Stripe,
                bank: 0,
                index: index as u64,
                lsn: sums.lsn,
            };
            writer.frame(
                &frame,
                &[sums.inserts, sums.operations, sums.time, sums.novelty],
            )?;
        }
        for bank in &banks {
            for index in 0..bank.blocks() {
                let lsn = {
                    let _stripe = self.lock(bank.stripe_of_block(index) + 1);
                    let (block_header, block) = bank.block(index as usize);
                    copy(&block, &mut words);
                    block_header.lsn()
                };
                writer.frame(
                    &Frame {
                        content: Content::Block,
                        bank: bank.id(),
                        index,
                        lsn,
                    },
                    &words,
                )?;
            }
        }
        let end = header.tail().load(Ordering::Acquire);
        let identity = header.identity();
        let (uuid, era) = (identity.uuid, identity.era);
        let snapshot = SnapshotHeader {
            uuid,
            era,
            start,
            end,
            frames: 0,
            bytes: 0,
        };
        writer.finish(snapshot)?;
        Ok(snapshot)
    }

    /// Removes snapshots and segments that nothing needs any more, going by what is there now.
    fn tidy(&self) -> Result<()> {
        let listing = Listing::read(&*self.media)?;
        let remove = |name: FileName| {
            let name = name.to_string();
            self.media
                .remove(&name)
                .map_err(Error::io("remove", self.media.path().join(name)))
        };
        let (mut kept, mut oldest) = (0, None);
        for &start in &listing.snapshots {
            let sound = !self.unsound.contains(&start)
                && SnapshotReader::open(&*self.media, start, self.meta.uuid).is_ok();
            if sound && kept < KEPT {
                kept += 1;
                oldest = Some(start);
            } else {
                remove(FileName::Snapshot { start })?;
            }
        }
        // With fewer than two snapshots the whole log is the second ground to stand on.
        let Some(least) = oldest.filter(|_| kept == KEPT) else {
            return Ok(());
        };
        self.log.forget_below(least);
        for pair in listing.segments.windows(2) {
            // The next segment begins where this one ends, or where its era was cut off.
            if pair[1].1 <= least {
                remove(FileName::Segment {
                    era: pair[0].0,
                    first: pair[0].1,
                })?;
            }
        }
        Ok(())
    }

    /// Bytes of log since the newest snapshot.
    pub(super) fn log_bytes_since_snapshot(&self) -> u64 {
        let newest = (*self.snapshot.lock()).max(1);
        let tail = self.image.header().tail().load(Ordering::Relaxed);
        tail.saturating_sub(newest) * crate::wal::record::RECORD_BYTES
    }
}

/// Copies a block: the kind's words, then the cells.
pub(super) fn copy(block: &Block<'_>, words: &mut Vec<u64>) {
    words.clear();
    words.extend(block.own.iter().chain(block.cells).map(load));
}
