//! Backpressure when the log grows faster than checkpoints remove it, and handling of a full disk.
//!
//! In both cases writers wait for a checkpoint, within bounds, because a stopped process may delay
//! it. A checkpoint that finds no space takes that of the fallback base: the files that would only
//! be read if the newest snapshot were damaged.

use crate::engine::Engine;
use crate::engine::checkpoint::{PATIENCE, Place};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::recovery::Listing;
use crate::recovery::removal::remove_for_good;
use crate::snapshot::{SnapshotHeader, SnapshotReader};
use crate::sync::{self, Instant};
use crate::wal::record::RECORD_BYTES;
use std::iter::repeat_with;
use std::time::Duration;

/// At this multiple of the log that makes a checkpoint due, writers wait for it.
pub(crate) const RESTRAINED: u64 = 2;
/// The pause of a waiting writer between checks for the checkpoint.
const PAUSE: Duration = Duration::from_millis(1);

/// The fallback base: files that would only be read if the newest snapshot were damaged.
#[derive(Default)]
struct SecondGround {
    /// Starts of older snapshots, the oldest last.
    snapshots: Vec<u64>,
    /// The log below the newest snapshot.
    log: Vec<FileName>,
}

impl Engine {
    /// Returns whether writers, of all handles, should wait for a checkpoint.
    #[inline]
    pub(crate) fn is_checkpoint_wanted(&self) -> bool {
        self.image.header().checkpoint_request().is_open()
    }

    /// Returns the start of the newest snapshot.
    pub(crate) fn newest_snapshot(&self) -> u64 {
        self.image.header().snapshot().hint()
    }

    /// Requests a checkpoint from the background thread, and makes writers wait for it. Returns
    /// false if there is no such thread.
    #[cold]
    pub(crate) fn want_checkpoint(&self) -> bool {
        let has_thread = self.options.background;
        if has_thread {
            self.image.header().checkpoint_request().open();
            self.bell.ring();
        }
        has_thread
    }

    /// Returns the progress of the requested checkpoint.
    pub(crate) fn progress(&self) -> u64 {
        self.image.header().checkpoint_request().progress()
    }

    /// Shows progress of a checkpoint that writers may wait for.
    pub(crate) fn note_progress(&self) {
        self.image.header().checkpoint_request().advance();
    }

    /// Ends the wait, after the checkpoint was written, or failed: writers continue.
    pub(crate) fn end_wait_for_checkpoint(&self) {
        self.image.header().checkpoint_request().close();
    }

    /// Waits for the requested checkpoint, as long as it progresses. The caller holds no stripe,
    /// because the checkpoint needs all of them.
    #[cold]
    pub(crate) fn wait_for_checkpoint(&self) {
        // Removed files take space for as long as this handle has them mapped.
        self.let_go_of_log();
        let (mut seen, mut since) = (self.progress(), Instant::now());
        while seen != 0 && !self.image.header().refuses() {
            sync::sleep(PAUSE);
            let now = self.progress();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= PATIENCE {
                return self.end_wait_for_checkpoint();
            }
        }
    }

    /// Requests a checkpoint, because there is far too much log since the last one, or no space for
    /// more. Not repeated before as much log has been added as makes a checkpoint due: if none
    /// succeeds, writers wait once per such amount.
    #[cold]
    pub(crate) fn restrain_writers(&self) {
        let tail = self.image.header().tail().hint();
        let from = &self.snapshots.restrained_from;
        let seen = from.get();
        let due = self.options.checkpoint_due(self.image.memory_bytes()) / RECORD_BYTES;
        let next = tail.saturating_add(due);
        // One of the threads that see it does it.
        if tail >= seen && from.replace(seen, next) {
            self.want_checkpoint();
        }
    }

    /// Writes a snapshot for which there was no space (the error `full`), in the space of the
    /// fallback base.
    pub(crate) fn copy_into_second_ground(
        &self,
        temporary: &str,
        full: Error,
    ) -> Result<SnapshotHeader> {
        let Some(mut ground) = self.second_ground()? else { return Err(full) };
        if let Some(oldest) = ground.snapshots.pop() {
            match self.copy_over(oldest, temporary) {
                Err(error) if error.is_full() || error.is_not_found() => {}
                written => return written,
            }
        }
        if !self.remove_ground(ground)? {
            return Err(full);
        }
        // The part of it that was written so far.
        let _ = self.media.remove(temporary);
        self.copy_to(Place::New, temporary)
    }

    /// Removes the log of the fallback base, if a segment finds no space and no new snapshot is
    /// needed. The older snapshots are then useless, but reserve their space for the next one.
    pub(crate) fn give_up_second_log(&self) -> Result<()> {
        let ground = self.second_ground()?.unwrap_or_default();
        self.remove_ground(SecondGround { snapshots: Vec::new(), ..ground }).map(|_| ())
    }

    /// Returns the fallback base of the newest sound snapshot, after reading that snapshot in full.
    /// `None` if no snapshot is sound.
    fn second_ground(&self) -> Result<Option<SecondGround>> {
        let mut listing = Listing::read(&*self.media)?;
        let proven = listing.snapshots.iter().position(|&start| self.is_proven(start));
        let Some(at) = proven else { return Ok(None) };
        // Its name may be newer than the last sync of the directory, and its writer dead.
        self.media.sync().map_err(Error::io("sync", self.media.path()))?;
        let newest = listing.snapshots[at];
        // Its writer may have died before it stored this. Repair must not search for log below.
        self.image.header().snapshot().raise(newest);
        let log = listing.segments_below(newest).iter();
        let log = log.map(|&(timeline, first)| FileName::Segment { timeline, first }).collect();
        Ok(Some(SecondGround { snapshots: listing.snapshots.split_off(at + 1), log }))
    }

    /// Removes the fallback base. Returns false if it is empty.
    fn remove_ground(&self, ground: SecondGround) -> Result<bool> {
        let SecondGround { snapshots, log } = ground;
        let snapshots = snapshots.into_iter().rev().map(|start| FileName::Snapshot { start });
        let rest: Vec<_> = snapshots.chain(log).collect();
        let any = !rest.is_empty();
        remove_for_good(&*self.media, rest, repeat_with(|| self.log.next_temporary()))?;
        self.let_go_of_log();
        Ok(any)
    }

    /// Writes a snapshot over an old one.
    fn copy_over(&self, oldest: u64, temporary: &str) -> Result<SnapshotHeader> {
        let name = FileName::Snapshot { start: oldest }.to_string();
        // The old one loses its name durably before anything else is written there.
        let renamed = self.media.rename(&name, temporary).and_then(|()| self.media.sync());
        renamed.map_err(Error::io("rename", self.media.path().join(name)))?;
        self.copy_to(Place::Over, temporary)
    }

    /// Returns whether a snapshot is sound as a whole.
    pub(crate) fn is_proven(&self, start: u64) -> bool {
        let unsound = self.image.header().unsound();
        let known = unsound.contains(start);
        let read = || {
            let mut reader = SnapshotReader::open(&*self.media, start, self.meta.uuid)?;
            reader.frames(|_, _, _| {
                self.note_progress();
                Ok(())
            })?;
            Ok::<_, Error>(self.is_ours(reader.header()))
        };
        // A snapshot that is unreadable now does not justify removing another one.
        !known && read().unwrap_or(false)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::locks::robust_word::{self, Owner};
    use crate::media::{Access, Media, Memory};
    use crate::{Bloom, Durability, Filter, Options};
    use std::sync::Arc;

    /// Creates a filter for which a checkpoint is due after 2048 records.
    fn made(background: bool) -> Filter<Bloom> {
        let options = Options::new()
            .segment_bytes(16 << 10)
            .checkpoint_bytes(64 << 10)
            .durability(Durability::Never)
            .background(background);
        Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options)
            .expect("a filter")
    }

    fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
        keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    }

    #[test]
    fn who_waits_goes_on_when_the_checkpoint_is_there_or_patience_ends() {
        let filter = made(false);
        let engine = &filter.engine;
        let start = Instant::now();
        engine.image.header().checkpoint_request().open();
        insert(&filter, 0..1);
        assert!(start.elapsed() >= PATIENCE && !engine.is_checkpoint_wanted());
        let start = Instant::now();
        engine.image.header().checkpoint_request().open();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                insert(&filter, 1..2);
                Instant::now()
            });
            sync::sleep(Duration::from_millis(30));
            let ended = Instant::now();
            engine.end_wait_for_checkpoint();
            let gone_on = waiting.join().expect("no panic");
            assert!(gone_on >= ended || start.elapsed() >= PATIENCE);
        });
    }

    #[test]
    fn without_background_threads_nobody_is_waited_for() {
        let filter = made(false);
        assert!(!filter.engine.want_checkpoint() && !filter.engine.is_checkpoint_wanted());
    }

    #[test]
    fn writers_wait_for_a_snapshot_that_does_not_progress_until_another_is_written_beside_it() {
        let filter = made(true);
        let writing = filter.engine.begin_snapshot(Duration::ZERO).expect("no error");
        let start = Instant::now();
        insert(&filter, 0..9000);
        assert!(start.elapsed() >= PATIENCE / 2, "four times what makes a checkpoint due");
        assert!(filter.engine.newest_snapshot() > 0);
        drop(writing);
        insert(&filter, 9000..100_000);
    }

    #[test]
    fn a_checkpoint_is_wanted_again_only_after_as_much_as_makes_one_due() {
        let filter = made(true);
        let engine = &filter.engine;
        let _writing = engine.begin_snapshot(Duration::ZERO).expect("no error");
        engine.restrain_writers();
        assert!(engine.is_checkpoint_wanted());
        engine.end_wait_for_checkpoint();
        engine.restrain_writers();
        assert!(!engine.is_checkpoint_wanted());
        insert(&filter, 0..2047);
        engine.restrain_writers();
        assert!(!engine.is_checkpoint_wanted());
        insert(&filter, 2047..2048);
        engine.restrain_writers();
        assert!(engine.is_checkpoint_wanted());
    }

    #[test]
    fn who_removes_log_below_a_snapshot_that_nobody_announced_can_repair_what_its_writer_left() {
        let memory = Arc::new(Memory::new());
        let options = Options::new().hash_seed(7).stripes(8).segment_bytes(4096);
        let options = options.durability(Durability::Never).background(false);
        let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        let (engine, header) = (&filter.engine, filter.engine.image.header());
        let stripe = |key: &u64| {
            engine.image.layout().stripe_of(engine.meta.hasher.hash(&key.to_le_bytes()))
        };
        let insert = |keys: std::ops::Range<u64>| {
            let others = keys.filter(|key| stripe(key) != 0);
            others.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        };
        insert(0..4000);
        filter.checkpoint().expect("room");
        // It was renamed but its start not stored, by a dead process that held stripe 1, to which
        // nothing was written.
        header.snapshot().begin_at(0);
        let dead = Owner { slot: 9, term: 1 };
        assert!(robust_word::try_lock(header.stripe(1).lock_word(), dead));
        insert(4000..4200);
        let names = memory.list().expect("a directory");
        let bytes = names.iter().map(|name| {
            let file = memory.open(name, Access::Read).expect("a file");
            file.allocated_bytes().expect("a length")
        });
        memory.set_capacity(bytes.sum());
        filter.checkpoint().expect("in the place of the log");
        assert!(!header.is_poisoned());
    }
}
