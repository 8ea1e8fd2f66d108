//! Checkpoints: a snapshot of the state, and letting go of the log that it makes superfluous.
//!
//! Block by block: take the stripe, copy, let go, checksum, write. Nobody is held up longer than one copy.
//! The snapshot gets its name only once the log is durable through its end, or the state would be ahead of
//! the log. Segments go only after the directory is synced, and by the older of the two newest snapshots.

use super::engine::Engine;
use crate::cells::{Block, load};
use crate::error::{Error, Result};
use crate::live::Bank;
use crate::media::Media;
use crate::names::FileName;
use crate::recovery::Listing;
use crate::snapshot::write::SnapshotWriter;
use crate::snapshot::{Content, Frame, SnapshotHeader, SnapshotReader};
use crate::sync::{AtomicU64, Ordering};
use crate::wal::record::RECORD_BYTES;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;

/// How many sound snapshots are kept.
const KEPT: usize = 2;

/// What is known of the snapshots on the disk.
#[derive(Debug)]
pub struct Snapshots {
    /// One checkpoint or backup at a time.
    turn: Mutex<()>,
    /// Where the newest one starts; 0 if there is none.
    newest: AtomicU64,
    /// Starts of those that recovery found damaged: they do not count, and go with the next checkpoint.
    unsound: Mutex<Vec<u64>>,
}

impl Snapshots {
    /// The newest sound one starts at `newest`; those that start at `unsound` are damaged.
    #[must_use]
    pub fn new(newest: u64, unsound: Vec<u64>) -> Self {
        Self { turn: Mutex::new(()), newest: AtomicU64::new(newest), unsound: Mutex::new(unsound) }
    }

    /// Keeps checkpoints from removing log while the guard lives.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }
}

impl Engine {
    /// Writes a snapshot unless the newest one already says everything. Returns where the newest one starts; 0 for a filter
    /// that has never changed.
    pub(super) fn checkpoint(&self) -> Result<u64> {
        let _turn = self.snapshots.hold();
        // Relaxed: the turn orders those who change it.
        let newest = self.snapshots.newest.load(Ordering::Relaxed);
        let changed = self.image.last_change();
        // Without a change ever, `meta` says everything.
        if changed < newest || changed == 0 {
            return Ok(newest);
        }
        let draft = FileName::Temporary(self.log.next_temporary()).to_string();
        let header = self.copy_to(&*self.media, &draft).inspect_err(|_| {
            // The first error is the one to report; a leftover goes at the next opening.
            let _ = self.media.remove(&draft);
        })?;
        let start = header.start;
        let name = FileName::Snapshot { start }.to_string();
        let named = self.media.rename(&draft, &name).and_then(|()| self.media.sync());
        named.map_err(Error::io("name", self.media.path().join(&name)))?;
        self.snapshots.newest.store(start, Ordering::Relaxed);
        // A damaged one of this name is gone now.
        self.snapshots.unsound.lock().retain(|&unsound| unsound != start);
        self.tidy()?;
        Ok(start)
    }

    /// Writes a snapshot under this name on a medium. On return the log is durable through its end.
    pub(super) fn copy_to(&self, media: &dyn Media, name: &str) -> Result<SnapshotHeader> {
        if self.image.header().is_poisoned() {
            return Err(self.poisoned());
        }
        let written = self.write_snapshot(media, name);
        let header = written.map_err(Error::io("write", media.path().join(name)))?;
        self.commit(header.end)?;
        Ok(header)
    }

    fn write_snapshot(&self, media: &dyn Media, name: &str) -> io::Result<SnapshotHeader> {
        let header = self.image.header();
        // Acquire, here and below: pairs with the Release of `reserve`.
        let start = header.tail().load(Ordering::Acquire);
        let mut writer = SnapshotWriter::create(media, name)?;
        // Block 0 first: banks that open later are born in the log, which is replayed from `start`.
        let banks = self.write_state(&mut writer)?;
        self.write_stripes(&mut writer)?;
        for bank in &banks {
            self.write_bank(bank, &mut writer)?;
        }
        let end = header.tail().load(Ordering::Acquire);
        let (uuid, era) = (header.identity().uuid, header.identity().era);
        let snapshot = SnapshotHeader { uuid, era, start, end, frames: 0, bytes: 0 };
        writer.finish(snapshot)?;
        Ok(snapshot)
    }

    /// Writes block 0, and returns the banks that it lists.
    fn write_state(&self, writer: &mut SnapshotWriter) -> io::Result<Vec<Arc<Bank>>> {
        let header = self.image.header();
        let mut words = Vec::new();
        let (lsn, banks) = {
            let _stripe = self.lock(0);
            copy(&header.state_block(), &mut words);
            (header.block0().lsn(), self.image.listed_banks())
        };
        writer.frame(&Frame { content: Content::State, bank: 0, index: 0, lsn }, &words)?;
        Ok(banks)
    }

    fn write_stripes(&self, writer: &mut SnapshotWriter) -> io::Result<()> {
        let header = self.image.header();
        for at in 0..header.stripe_count() {
            let sums = {
                let mut stripe = self.lock(at);
                // Lets go of a segment that this stripe alone keeps mapped.
                let tail = header.tail().load(Ordering::Relaxed);
                stripe.segment.take_if(|segment| !segment.holds(tail));
                stripe.entry().sums()
            };
            let (index, lsn) = (at as u64, sums.lsn);
            let frame = Frame { content: Content::Stripe, bank: 0, index, lsn };
            writer.frame(&frame, &[sums.inserts, sums.operations, sums.time, sums.novelty])?;
        }
        Ok(())
    }

    fn write_bank(&self, bank: &Bank, writer: &mut SnapshotWriter) -> io::Result<()> {
        let mut words = Vec::new();
        for index in 0..bank.blocks() {
            let lsn = {
                let _stripe = self.lock(bank.stripe_of_block(index) + 1);
                let (header, block) = bank.block(index as usize);
                copy(&block, &mut words);
                header.lsn()
            };
            writer
                .frame(&Frame { content: Content::Block, bank: bank.id(), index, lsn }, &words)?;
        }
        Ok(())
    }

    /// Removes snapshots and segments that nothing needs any more, going by what is there now.
    fn tidy(&self) -> Result<()> {
        let listing = Listing::read(&*self.media)?;
        let remove = |name: FileName| {
            let name = name.to_string();
            self.media.remove(&name).map_err(Error::io("remove", self.media.path().join(name)))
        };
        let (mut kept, mut oldest) = (0, None);
        for &start in &listing.snapshots {
            let sound = !self.snapshots.unsound.lock().contains(&start)
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
                remove(FileName::Segment { era: pair[0].0, first: pair[0].1 })?;
            }
        }
        Ok(())
    }

    /// Whether so much log has gathered since the newest snapshot that another one is due.
    pub(super) fn checkpoint_due(&self) -> bool {
        let newest = self.snapshots.newest.load(Ordering::Relaxed).max(1);
        let tail = self.image.header().tail().load(Ordering::Relaxed);
        let gathered = tail.saturating_sub(newest).saturating_mul(RECORD_BYTES);
        gathered > self.options.checkpoint_due(self.image.memory_bytes())
    }
}

/// Copies a block: the kind's words, then the cells.
pub(super) fn copy(block: &Block<'_>, words: &mut Vec<u64>) {
    words.clear();
    words.extend(block.own.iter().chain(block.cells).map(load));
}
