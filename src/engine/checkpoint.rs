//! Checkpoints: writes a snapshot of the state, and removes the log that it makes superfluous.
//!
//! For each block: take the stripe, copy, release, checksum, write. No caller waits longer than one
//! copy. The snapshot gets its name only once the log is durable through its end; otherwise the
//! state would be ahead of the log. Segments are removed only after the directory is synced, and
//! according to the older of the two newest snapshots.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::Bank;
use crate::media::Media;
use crate::recovery::Listing;
use crate::recovery::removal::remove_for_good;
use crate::recovery::trim::{copy_short, copy_state};
use crate::snapshot::write::SnapshotWriter;
use crate::snapshot::{Content, Frame, FrameSeal, SnapshotHeader, SnapshotReader};
use crate::sync::{self, AtomicU64, Hint, Instant, Mutex, Ordering, patience};
use crate::wal::record::RECORD_BYTES;
use std::io;
use std::iter::repeat_with;
use std::sync::Arc;
use std::time::Duration;

/// The number of sound snapshots to keep.
const KEPT: usize = 2;
/// The time that a requested checkpoint waits for one of another process.
pub(crate) const PATIENCE: Duration = patience(Duration::from_secs(1));
const PAUSE: Duration = Duration::from_millis(2);
/// At this multiple of the log that makes a checkpoint due, callers no longer wait for a checkpoint
/// of another process.
const OVERDUE: u64 = 4;

/// The state of this handle's checkpoints and backups.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// 1 while a thread of this handle writes one. A byte lock excludes other processes.
    busy: AtomicU64,
    /// The LSN from which writers may be made to wait again; see [`crate::engine::backpressure`].
    pub(crate) restrained_from: Hint,
    /// Starts of snapshots of older timelines that this handle has read in full.
    pub(crate) proven: Mutex<Vec<u64>>,
}

/// A copy of the state block, and the banks that it lists.
struct CopiedState {
    lsn: u64,
    words: Vec<u64>,
    banks: Vec<Arc<Bank>>,
}

/// The destination of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A new file of the filter.
    New,
    /// An old snapshot of the filter, which is overwritten.
    Over,
    /// A backup, for which no writer waits.
    Backup(&'a dyn Media),
}

/// The right to write a snapshot: exclusive, or shared with a process that makes no progress.
pub(crate) struct Writing<'a> {
    engine: &'a Engine,
    /// Whether no other thread of this handle writes one.
    first: bool,
    /// Whether no other handle does either.
    alone: bool,
}

impl Writing<'_> {
    /// Tries to become exclusive, in this handle and then among all.
    fn enter(&mut self) -> Result<()> {
        let busy = &self.engine.snapshots.busy;
        let free = || busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        self.first = self.first || free();
        // A handle's own byte lock never blocks itself.
        self.alone = self.first && self.engine.slots.try_checkpoint()?;
        Ok(())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if self.alone {
            // If it cannot be released, other handles wait until their patience ends.
            let _ = self.engine.slots.end_checkpoint();
        }
        if self.first {
            // Release: pairs with the Acquire of the next one.
            self.engine.snapshots.busy.store(0, Ordering::Release);
        }
    }
}

impl Engine {
    /// Excludes other checkpoints, as long as that is possible: two at once are wasteful, but
    /// harmless. The wait is bounded, also for a thread of this handle, because a backup may go to
    /// a medium that hangs.
    pub(crate) fn begin_snapshot(&self, patience: Duration) -> Result<Writing<'_>> {
        let (mut start, mut seen) = (Instant::now(), self.progress());
        let mut writing = Writing { engine: self, first: false, alone: false };
        writing.enter()?;
        while !writing.alone && start.elapsed() < patience {
            sync::sleep(PAUSE);
            // As long as the other one progresses, continue to wait.
            if self.progress() != seen {
                (start, seen) = (Instant::now(), self.progress());
            }
            writing.enter()?;
        }
        Ok(writing)
    }

    /// Writes a snapshot unless the newest one is up to date. Returns where the newest one starts;
    /// 0 for a filter that has never changed.
    pub(crate) fn checkpoint(&self) -> Result<u64> {
        self.check_process()?;
        let _writing = self.begin_snapshot(PATIENCE)?;
        let start = self.write_checkpoint(false)?;
        self.end_wait_for_checkpoint();
        Ok(start)
    }

    /// As [`Engine::checkpoint`], but writes also if nothing may have changed, because accumulated
    /// log takes space. The caller is alone.
    pub(crate) fn checkpoint_anew(&self) -> Result<u64> {
        let _writing = self.begin_snapshot(PATIENCE)?;
        self.write_checkpoint(true)
    }

    /// As [`Engine::checkpoint`], but only if it is due or writers wait for it, and unless another
    /// one is in progress and progresses.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        let wanted = self.is_checkpoint_wanted();
        if !(wanted || self.checkpoint_due(1)) || self.image.header().refuses() {
            return Ok(());
        }
        let newest = self.newest_snapshot();
        // Shorter than the time that writers wait for it.
        let writing = self.begin_snapshot(if wanted { PATIENCE / 2 } else { Duration::ZERO })?;
        // Checked again: another handle may just have written it.
        let wanted = wanted && self.newest_snapshot() == newest;
        if wanted || self.checkpoint_due(if writing.alone { 1 } else { OVERDUE }) {
            let start = self.write_checkpoint(false)?;
            if wanted && start == newest {
                // There was nothing to write, and still no space for log.
                self.give_up_second_log()?;
            }
        }
        Ok(())
    }

    /// `anew`: writes also if nothing has changed since the newest one, unless that one is of this
    /// same LSN.
    fn write_checkpoint(&self, anew: bool) -> Result<u64> {
        let header = self.image.header();
        // Another handle may have written it.
        let newest = header.snapshot().read();
        let changed = self.image.last_change();
        // If nothing ever changed, `meta` suffices.
        let is_said = changed < newest || changed == 0;
        if is_said && !(anew && newest < header.tail().hint()) {
            // The writer of the newest one may have failed to tidy up.
            self.tidy()?;
            return Ok(newest);
        }
        let temporary = FileName::Temporary(self.log.next_temporary()).to_string();
        let written = match self.copy_to(Place::New, &temporary) {
            Err(error) if error.is_full() => self.copy_into_second_ground(&temporary, error),
            written => written,
        };
        let written = written.inspect_err(|_| {
            // The first error is the one to report; a leftover is removed when this
            // handle's session slot is taken again.
            let _ = self.media.remove(&temporary);
        })?;
        let start = written.start;
        self.check_place().inspect_err(|_| {
            let _ = self.media.remove(&temporary);
        })?;
        let name = FileName::Snapshot { start }.to_string();
        let named = self.media.rename(&temporary, &name).and_then(|()| self.media.sync());
        named.map_err(Error::io("name", self.media.path().join(&name))).inspect_err(|_| {
            // As above, if it was not renamed.
            let _ = self.media.remove(&temporary);
        })?;
        self.note_progress();
        header.snapshot().raise(start);
        // A damaged one of this name is now replaced.
        header.unsound().remove(start);
        self.tidy()?;
        Ok(start)
    }

    /// Writes a snapshot under this name. On return the log is durable through its end.
    pub(crate) fn copy_to(&self, place: Place<'_>, name: &str) -> Result<SnapshotHeader> {
        self.check_writable()?;
        let start = self.image.header().tail().read();
        // The state block first: banks that open later are created by the log, which is replayed
        // from `start`.
        let state = self.copy_state()?;
        let identity = self.image.header().identity();
        let seal = FrameSeal::new(identity.uuid, identity.timeline, start);
        let (media, writer) = match place {
            Place::New => (&*self.media, SnapshotWriter::create(&*self.media, name, seal)),
            Place::Over => (&*self.media, SnapshotWriter::over(&*self.media, name, seal)),
            Place::Backup(to) => (to, SnapshotWriter::create(to, name, seal)),
        };
        let is_awaited = !matches!(place, Place::Backup(_));
        let written =
            writer.and_then(|writer| self.write_snapshot(writer, start, &state, is_awaited));
        let header = written.map_err(Error::io("write", media.path().join(name)))?;
        // A stripe that could not be repaired, or was left half changed by a panic, invalidates the
        // snapshot.
        self.check_writable()?;
        if is_awaited {
            self.note_progress();
        }
        self.commit(header.end)?;
        if is_awaited {
            self.note_progress();
        }
        Ok(header)
    }

    fn write_snapshot(
        &self,
        mut writer: SnapshotWriter,
        start: u64,
        state: &CopiedState,
        is_awaited: bool,
    ) -> io::Result<SnapshotHeader> {
        let header = self.image.header();
        let frame = Frame { content: Content::State, bank: 0, index: 0, lsn: state.lsn };
        writer.frame(&frame, &state.words)?;
        self.write_stripes(&mut writer)?;
        for bank in &state.banks {
            self.write_bank(bank, &mut writer, is_awaited)?;
        }
        let end = header.tail().read();
        let (uuid, timeline) = (header.identity().uuid, header.identity().timeline);
        let snapshot = SnapshotHeader { uuid, timeline, start, end, frames: 0, bytes: 0 };
        writer.finish(snapshot)?;
        Ok(snapshot)
    }

    fn copy_state(&self) -> Result<CopiedState> {
        let _stripe = self.lock(0);
        let mut words = Vec::new();
        let lsn = copy_state(self.image.header(), &mut words);
        Ok(CopiedState { lsn, words, banks: self.image.listed_banks()? })
    }

    fn write_stripes(&self, writer: &mut SnapshotWriter) -> io::Result<()> {
        let header = self.image.header();
        for at in 0..header.stripe_count() {
            let sums = {
                let stripe = self.lock(at);
                stripe.entry().sums()
            };
            let (index, lsn) = (at as u64, sums.lsn);
            let frame = Frame { content: Content::Stripe, bank: 0, index, lsn };
            writer.frame(&frame, &[sums.inserts, sums.time, sums.new_bits])?;
        }
        Ok(())
    }

    fn write_bank(
        &self,
        bank: &Bank,
        writer: &mut SnapshotWriter,
        is_awaited: bool,
    ) -> io::Result<()> {
        let mut words = Vec::new();
        for index in 0..bank.blocks() {
            let lsn = {
                let _stripe = self.lock(bank.stripe_of_block(index) + 1);
                let (header, block) = bank.block(index as usize);
                copy_short(&*self.meta.kind, block, &mut words);
                header.lsn()
            };
            if is_awaited {
                self.note_progress();
                self.slots.note_progress();
            }
            writer
                .frame(&Frame { content: Content::Block, bank: bank.id(), index, lsn }, &words)?;
        }
        Ok(())
    }

    /// Removes snapshots and segments that are no longer needed, according to the present files.
    fn tidy(&self) -> Result<()> {
        self.check_place()?;
        let listing = Listing::read(&*self.media)?;
        let known = self.image.header().unsound();
        let (mut kept, mut oldest) = (0, None);
        let (mut superfluous, mut unread) = (Vec::new(), Vec::new());
        for &start in &listing.snapshots {
            let unsound = known.contains(start);
            let sound = match SnapshotReader::open(&*self.media, start, self.meta.uuid) {
                Ok(reader) => {
                    (!unsound && self.is_ours(reader.header())).then_some(reader.header().timeline)
                }
                Err(Error::Damaged { .. } | Error::Version { .. }) => None,
                // Not a file.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
                    None
                }
                // Another handle was faster in tidying up.
                Err(error) if error.is_not_found() => return Ok(()),
                // The error is no statement about the snapshot.
                Err(error) => return Err(error),
            };
            if kept < KEPT {
                // One that looks damaged stays until there are enough newer ones. The read error
                // may be temporary, and the log before it may be gone.
                if let Some(timeline) = sound {
                    (kept, oldest) = (kept + 1, Some(start));
                    unread.extend(
                        (timeline < self.image.header().identity().timeline).then_some(start),
                    );
                }
            } else {
                superfluous.push(FileName::Snapshot { start });
            }
        }
        // With fewer than two snapshots the whole log is the fallback base.
        if let Some(least) = oldest.filter(|_| kept == KEPT) {
            // The writer of these snapshots may have stopped before it stored their start.
            self.image.header().snapshot().raise(least);
            let segments = listing.segments_below(least).iter();
            superfluous
                .extend(segments.map(|&(timeline, first)| FileName::Segment { timeline, first }));
        }
        // A sound header proves little about the rest, and a handle that found it damaged may be
        // gone. Nothing is removed on the strength of a header alone.
        if !superfluous.is_empty() && !unread.into_iter().all(|start| self.proves(start)) {
            return Ok(());
        }
        remove_for_good(&*self.media, superfluous, repeat_with(|| self.log.next_temporary()))?;
        // At once: at a high insert rate, the log that is removed in a second could fill the disk.
        self.let_go_of_log();
        Ok(())
    }

    /// Returns whether a snapshot of an earlier timeline is sound as a whole; it is read once.
    fn proves(&self, start: u64) -> bool {
        let is_known = || self.snapshots.proven.lock().contains(&start);
        if is_known() {
            return true;
        }
        let proven = self.is_proven(start);
        if proven {
            self.snapshots.proven.lock().push(start);
        }
        proven
    }

    /// Returns whether a snapshot can belong to this log. One that was copied here from another
    /// past of the filter refers to log that does not exist, or not yet, and justifies no removal.
    pub(crate) fn is_ours(&self, header: &SnapshotHeader) -> bool {
        // The log was durable through its end before it got its name.
        header.timeline <= self.image.header().identity().timeline && header.end <= self.durable()
    }

    /// Unmaps log that is durable and that this handle no longer writes to. Files that a checkpoint
    /// removed take space as long as any handle has them mapped.
    pub(crate) fn let_go_of_log(&self) {
        let header = self.image.header();
        let durable = self.durable();
        if !self.log.forget_below(durable) {
            return;
        }
        for index in 0..header.stripe_count() {
            if let Some(mut stripe) = self.stripes.try_lock(header, index) {
                stripe.segment.take_if(|segment| segment.end() <= durable);
            }
        }
    }

    /// Returns whether the log since the newest snapshot is `times` the amount that makes a
    /// checkpoint due.
    pub(crate) fn checkpoint_due(&self, times: u64) -> bool {
        let header = self.image.header();
        let newest = header.snapshot().hint().max(1);
        let tail = header.tail().hint();
        let gathered = tail.saturating_sub(newest).saturating_mul(RECORD_BYTES);
        let due = self.options.checkpoint_due(self.image.memory_bytes());
        gathered > due.saturating_mul(times)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::locks::session::Sessions;
    use crate::media::{Access, Memory};
    use crate::{Bloom, Durability, Filter, Options};
    use ebbtide_core::block::{OWN_WORDS, store};

    fn made() -> (Filter<Bloom>, Arc<Memory>) {
        let memory = Arc::new(Memory::new());
        let options = Options::new()
            .hash_seed(7)
            .stripes(2)
            .segment_bytes(4 << 10)
            .durability(Durability::Never)
            .background(false);
        let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
        (filter.expect("a filter"), memory)
    }

    fn insert(filter: &Filter<Bloom>, keys: impl Iterator<Item = u64>) {
        keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    }

    #[test]
    fn who_writes_a_snapshot_is_waited_for_as_long_as_patience_lasts() {
        let (filter, memory) = made();
        let (engine, other) = (&filter.engine, Sessions::open(&*memory, Access::Write));
        let other = other.expect("the lock file");
        assert!(other.try_checkpoint().expect("no error"));
        let (start, patience) = (Instant::now(), Duration::from_millis(30));
        let writing = engine.begin_snapshot(patience).expect("no error");
        assert!(!writing.alone && start.elapsed() >= patience);
        drop(writing);
        other.end_checkpoint().expect("no error");
        let writing = engine.begin_snapshot(Duration::ZERO).expect("no error");
        assert!(writing.alone && !other.try_checkpoint().expect("no error"));
        drop(writing);
        assert!(other.try_checkpoint().expect("no error"), "given back");
    }

    #[test]
    fn a_backup_that_hangs_holds_up_no_checkpoint_of_its_handle() {
        let (filter, _memory) = made();
        let hanging = filter.engine.begin_snapshot(Duration::ZERO).expect("no error");
        assert!(hanging.first && hanging.alone);
        insert(&filter, 0..3);
        assert!(filter.checkpoint().expect("beside the other one") > 0);
        let beside = filter.engine.begin_snapshot(Duration::ZERO).expect("no error");
        assert!(!beside.first && !beside.alone);
        drop(beside);
        drop(hanging);
        let next = filter.engine.begin_snapshot(Duration::ZERO).expect("no error");
        assert!(next.first && next.alone);
    }

    #[test]
    fn only_a_change_makes_a_checkpoint_write_another_snapshot() {
        let (filter, _memory) = made();
        assert_eq!(filter.checkpoint().expect("no error"), 0, "`meta` says everything");
        let mut newest = 0;
        for key in 0..3 {
            insert(&filter, key..key + 1);
            let start = filter.checkpoint().expect("no error");
            assert!(start > newest);
            assert_eq!(filter.checkpoint().expect("no error"), start);
            newest = start;
        }
    }

    #[test]
    fn durable_log_is_let_go_of_wherever_it_was_kept() {
        let (filter, _memory) = made();
        let engine = &filter.engine;
        let first = engine.durable();
        let stripe = |key: &u64| {
            engine.image.layout().stripe_of(engine.meta.hasher.hash(&key.to_le_bytes()))
        };
        let end = |at| engine.lock(at).segment.as_ref().map(|segment| segment.end());
        // Stripe 2 writes to the first segment only.
        insert(&filter, (0..).filter(|key| stripe(key) == 1).take(1));
        insert(&filter, (0..).filter(|key| stripe(key) == 0).take(200));
        engine.let_go_of_log();
        assert!(engine.log.segment(first).is_some() && end(2).is_some(), "it is not durable");
        filter.sync().expect("no error");
        engine.let_go_of_log();
        assert!(engine.log.segment(first).is_none() && end(2).is_none());
        assert!(end(1).is_some_and(|end| end > engine.durable()), "it is being written to");
    }

    #[test]
    fn snapshots_that_tell_of_log_there_is_not_take_nothing_away() {
        let (filter, memory) = made();
        for keys in [0..200, 200..400] {
            insert(&filter, keys);
            filter.checkpoint().expect("no error");
        }
        let identity = *filter.engine.image.header().identity();
        let foreign = [
            (1 << 20, identity.timeline),
            (1 << 21, identity.timeline),
            (1 << 22, identity.timeline + 9),
        ];
        for (start, timeline) in foreign {
            let name = FileName::Snapshot { start }.to_string();
            let uuid = identity.uuid;
            let header = SnapshotHeader { uuid, timeline, start, end: start, frames: 0, bytes: 0 };
            SnapshotWriter::create(&*memory, &name, FrameSeal::new(uuid, timeline, start))
                .and_then(|writer| writer.finish(header))
                .expect("space");
        }
        insert(&filter, 400..600);
        filter.checkpoint().expect("no error");
        for (start, _) in foreign {
            memory.remove(&FileName::Snapshot { start }.to_string()).expect("it is still there");
        }
        let listing = Listing::read(&*memory).expect("a directory");
        let [_, older] = listing.snapshots[..] else { panic!("{:?}", listing.snapshots) };
        let first = listing.segments.iter().map(|&(_, first)| first).min();
        assert!(first.is_some_and(|first| first <= older), "{first:?}");
    }

    #[test]
    fn what_a_checkpoint_removes_takes_no_space_any_more() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let options = Options::new().segment_bytes(4 << 10).background(false);
        let options = options.durability(Durability::Never);
        let filter = Filter::create(place.path(), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        for round in 0..4 {
            insert(&filter, round * 1000..(round + 1) * 1000);
            filter.checkpoint().expect("no error");
            let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
            let directory = place.path().to_str().expect("a name of letters");
            let removed = maps.lines().filter(|line| {
                line.contains(directory) && line.contains("tmp-") && line.ends_with("(deleted)")
            });
            assert_eq!(removed.count(), 0, "{maps}");
        }
    }

    #[test]
    fn a_change_right_where_the_newest_snapshot_starts_makes_the_next_checkpoint() {
        let (filter, _memory) = made();
        let header = filter.engine.image.header();
        // Without room behind the last record there is no note of its sync.
        let full = || header.tail().hint() == header.allocated().hint();
        (1..).take_while(|_| !full()).for_each(|key| insert(&filter, key..key + 1));
        let newest = filter.checkpoint().expect("no error");
        insert(&filter, 0..1);
        assert_eq!(filter.engine.image.last_change(), newest);
        assert!(filter.checkpoint().expect("no error") > newest);
    }

    #[test]
    fn a_block_that_is_being_changed_is_copied_after_that() {
        let (filter, memory) = made();
        let engine = &filter.engine;
        let bank = &engine.image.listed_banks().expect("a bank")[0];
        let index = bank.blocks() - 1;
        let (header, block) = bank.block(index as usize);
        let owner = engine.lock(2);
        store(&block.cells[0], 1);
        let copied = |name: &str| {
            let mut writer =
                SnapshotWriter::create(&*memory, name, FrameSeal::new(7, 1, 1)).expect("space");
            engine.write_bank(bank, &mut writer, true).expect("space");
            let header =
                SnapshotHeader { uuid: 7, timeline: 1, start: 1, end: 1, frames: 0, bytes: 0 };
            writer.finish(header).expect("space");
        };
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| copied(&FileName::Snapshot { start: 1 }.to_string()));
            (0..50).take_while(|_| !copying.is_finished()).for_each(|_| sync::sleep(PAUSE));
            store(&block.cells[0], 2);
            header.set_lsn(9);
            drop(owner); // the copy should have waited for it
        });
        let mut reader = SnapshotReader::open(&*memory, 1, 7).expect("it is sound");
        let mut last = None;
        let read = reader.frames(|_, frame, words| {
            last = Some((frame.index, frame.lsn, words[OWN_WORDS..].to_vec()));
            Ok(())
        });
        read.expect("it is sound");
        assert_eq!(last, Some((index, 9, vec![2])), "zeros at the end are left out");
    }
}
