//! Checkpoints: writes a snapshot of the state, and removes the log that it makes superfluous.
//!
//! For each block (`snapshot::save`): take the stripe, copy, release, checksum, write. No caller
//! waits longer than one copy. The snapshot gets its name only once the log is durable up to the
//! snapshot's `end`; otherwise a power cut could leave a snapshot with records that the log has
//! lost. Log and older snapshots are removed (`reclaim_disk`) only after the directory is synced.

use crate::engine::checkpoints::backpressure::{Backpressure, PATIENCE};
use crate::engine::checkpoints::due::{self, OVERDUE};
use crate::engine::checkpoints::reclaim_disk::Reclaim;
use crate::engine::log::group_commit::GroupCommit;
use crate::engine::shared::{Local, Shared};
use crate::engine::stripes::{HELD, StripeLocks, Wait};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::locks::handle_stripes::StripeGuard;
use crate::locks::stripe_lock;
use crate::media::Media;
use crate::primitives::{self, Instant, Latch, Mutex};
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::save::{self, State};
use crate::snapshot::{ChecksumSeed, SnapshotHeader};
use crate::telemetry::{Timed, Work};
use std::io;
use std::sync::Arc;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(2);

/// The checkpoints and backups of this handle.
#[derive(Debug)]
pub struct Checkpoints {
    shared: Arc<Shared>,
    backpressure: Arc<Backpressure>,
    commits: Arc<GroupCommit>,
    stripes: Arc<StripeLocks>,
    pub(crate) reclaim: Reclaim,
    /// The stripe that the last checkpoint of the background thread waited for in vain, and its
    /// lock word.
    abandoned: Mutex<Option<(usize, u64)>>,
    /// Taken while a thread of this handle writes one. A byte lock excludes other handles.
    busy: Latch,
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
pub(crate) struct SnapshotRight<'a> {
    checkpoints: &'a Checkpoints,
    /// Whether no other thread of this handle writes one.
    first: bool,
    /// Whether no other handle does either.
    alone: bool,
}

impl SnapshotRight<'_> {
    /// Tries to become exclusive, in this handle and then among all.
    fn enter(&mut self) -> Result<()> {
        self.first = self.first || self.checkpoints.busy.try_take();
        // A handle's own byte lock never blocks itself.
        self.alone = self.first && self.checkpoints.shared.slots.try_checkpoint()?;
        Ok(())
    }
}

impl Drop for SnapshotRight<'_> {
    fn drop(&mut self) {
        if self.alone {
            // If it cannot be released, other handles wait until their patience ends.
            let _ = self.checkpoints.shared.slots.end_checkpoint();
        }
        if self.first {
            self.checkpoints.busy.release();
        }
    }
}

impl Checkpoints {
    /// Creates the checkpoints of a handle.
    pub(crate) fn new(
        shared: Arc<Shared>,
        backpressure: Arc<Backpressure>,
        commits: Arc<GroupCommit>,
        stripes: Arc<StripeLocks>,
        reclaim: Reclaim,
    ) -> Self {
        let (abandoned, busy) = (Mutex::default(), Latch::default());
        Self { shared, backpressure, commits, stripes, reclaim, abandoned, busy }
    }

    /// Returns the start of the newest snapshot.
    fn newest(&self) -> u64 {
        self.shared.header().snapshot().hint()
    }

    /// Excludes other checkpoints, as long as that is possible: two at once are wasteful, but
    /// harmless. The wait is bounded, also for a thread of this handle, because a backup may go to
    /// a medium that hangs.
    pub(crate) fn begin_snapshot(&self, patience: Duration) -> Result<SnapshotRight<'_>> {
        let (mut start, mut seen) = (Instant::now(), self.backpressure.progress());
        let mut writing = SnapshotRight { checkpoints: self, first: false, alone: false };
        writing.enter()?;
        while !writing.alone && start.elapsed() < patience {
            primitives::sleep(PAUSE);
            // As long as the other one progresses, continue to wait.
            if self.backpressure.progress() != seen {
                (start, seen) = (Instant::now(), self.backpressure.progress());
            }
            writing.enter()?;
        }
        Ok(writing)
    }

    /// Writes a snapshot unless the newest one is up to date. Returns where the newest one starts;
    /// 0 for a filter that has never changed.
    pub(crate) fn checkpoint(&self) -> Result<u64> {
        self.shared.check_process()?;
        let _writing = self.begin_snapshot(PATIENCE)?;
        let start = self.write_checkpoint(false, Wait::Always)?;
        self.backpressure.end_wait();
        Ok(start)
    }

    /// As [`Checkpoints::checkpoint`], but writes also if nothing may have changed, because
    /// accumulated log takes space. The caller has exclusive access.
    pub(crate) fn checkpoint_anew(&self) -> Result<u64> {
        let _writing = self.begin_snapshot(PATIENCE)?;
        self.write_checkpoint(true, Wait::Always)
    }

    /// As [`Checkpoints::checkpoint`], but only if it is due or writers wait for it, and unless
    /// another one is in progress and progresses. Does not wait for a stopped process that holds a
    /// stripe: the caller's thread writes the checkpoints of other filters, too.
    ///
    /// # Errors
    /// [`Error::WouldWait`] if a process holds a stripe for too long.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        let wanted = self.backpressure.is_requested();
        if !(wanted || due::is_due(&self.shared, 1)) || self.shared.header().refuses() {
            return Ok(());
        }
        // Nothing is written in vain, or waited for, until that stripe is released.
        if self.is_still_held() {
            return Err(self.shared.would_wait(HELD));
        }
        let (newest, lacks_space) = (self.newest(), self.backpressure.lacks_space());
        // This wait must be shorter than that of the writers.
        let writing = self.begin_snapshot(if wanted { PATIENCE / 2 } else { Duration::ZERO })?;
        // Checked again: another handle may just have written it.
        let wanted = wanted && self.newest() == newest;
        if wanted || due::is_due(&self.shared, if writing.alone { 1 } else { OVERDUE }) {
            let start = self.write_checkpoint(false, Wait::Patiently)?;
            if lacks_space && start == newest {
                // There was nothing to write, and still no space for log.
                self.reclaim.remove_fallback_log()?;
            }
        }
        Ok(())
    }

    /// `anew`: writes even if nothing has changed since the newest snapshot, unless that starts at
    /// the tail.
    fn write_checkpoint(&self, anew: bool, wait: Wait) -> Result<u64> {
        self.shared.check_image()?;
        let header = self.shared.header();
        // Another handle may have written it.
        let newest = header.snapshot().read();
        let changed = self.shared.image.last_change();
        // If nothing ever changed, `meta` suffices.
        let is_up_to_date = changed < newest || changed == 0;
        if is_up_to_date && !(anew && newest < header.tail().hint()) {
            // The writer of the newest one may have failed to tidy up.
            self.reclaim.tidy()?;
            return Ok(newest);
        }
        let mut work = Timed::begin(Work::Checkpoint, self.shared.path());
        let written = self.write_new_snapshot(&work, wait);
        work.result(written)
    }

    /// Writes a snapshot, names it, and removes what it makes superfluous.
    fn write_new_snapshot(&self, work: &Timed<'_>, wait: Wait) -> Result<u64> {
        let header = self.shared.header();
        let temporary = FileName::Temporary(self.shared.log.next_temporary()).to_string();
        let mut written = self.copy_to(Place::New, &temporary, wait);
        // The first error is the one to report.
        let makes_space = || self.shared.remove_oldest_kept().unwrap_or(false);
        while written.as_ref().is_err_and(Error::is_full) && makes_space() {
            // The part of it that was written so far.
            let _ = self.shared.media.remove(&temporary);
            written = self.copy_to(Place::New, &temporary, wait);
        }
        let written = match written {
            Err(error) if error.is_full() => self.copy_into_fallback_base(&temporary, wait, error),
            written => written,
        };
        let written = written.inspect_err(|_| {
            // The first error is the one to report; a leftover is removed when this
            // handle's session slot is taken again.
            let _ = self.shared.media.remove(&temporary);
        })?;
        let start = written.start;
        work.note("start_lsn", start);
        work.note("end_lsn", written.end);
        work.note("bytes", written.bytes);
        let current = self.shared.check_directory().and_then(|()| self.shared.check_unaltered());
        current.and_then(|()| self.name(&temporary, start)).inspect_err(|_| {
            // As above, if it was not renamed. Nothing says yet how far the log is durable.
            let _ = self.shared.media.remove(&temporary);
            self.commits.note_durable();
        })?;
        self.backpressure.note_progress();
        header.snapshot().raise(start);
        // A damaged one of this name is now replaced.
        header.unsound().remove(start);
        self.reclaim.tidy()?;
        Ok(start)
    }

    /// Gives a new snapshot its name, durably. If another handle has written one of the same LSN, a
    /// sound one stays: replaced, a power cut might bring its name back without its blocks (see
    /// [`removal`](crate::recovery::removal)).
    fn name(&self, temporary: &str, start: u64) -> Result<()> {
        let (media, name) = (&*self.shared.media, FileName::Snapshot { start }.to_string());
        let named = match media.rename_new(temporary, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if self.reclaim.is_proven(start) {
                    // The other one may end earlier, and says less of how far the log is durable.
                    self.commits.note_durable();
                    media.remove(temporary)
                } else {
                    media.rename(temporary, &name)
                }
            }
            done => done,
        };
        named.map_err(Error::io("name", media.path().join(name)))?;
        self.shared.sync_directory()
    }

    /// Writes a snapshot for which there was no space (the error `full`), in the space of the
    /// fallback base.
    fn copy_into_fallback_base(
        &self,
        temporary: &str,
        wait: Wait,
        full: Error,
    ) -> Result<SnapshotHeader> {
        let Some(mut base) = self.reclaim.fallback_base()? else { return Err(full) };
        if let Some(oldest) = base.snapshots.pop() {
            match self.copy_over(oldest, temporary, wait) {
                Err(error) if error.is_full() || error.is_not_found() => {}
                written => return written,
            }
        }
        if !self.reclaim.remove_base(base)? {
            return Err(full);
        }
        // The part of it that was written so far.
        let _ = self.shared.media.remove(temporary);
        self.copy_to(Place::New, temporary, wait)
    }

    /// Writes a snapshot over an old one.
    fn copy_over(&self, oldest: u64, temporary: &str, wait: Wait) -> Result<SnapshotHeader> {
        let name = FileName::Snapshot { start: oldest }.to_string();
        // The old one loses its name durably before anything else is written there.
        let renamed = self.shared.media.rename(&name, temporary);
        renamed.map_err(Error::io("rename", self.shared.path().join(name)))?;
        self.shared.sync_directory()?;
        self.copy_to(Place::Over, temporary, wait)
    }

    /// Writes a snapshot under this name. On return the log is durable up to the snapshot's end,
    /// and no page was lost before its copy.
    pub(crate) fn copy_to(
        &self,
        place: Place<'_>,
        name: &str,
        wait: Wait,
    ) -> Result<SnapshotHeader> {
        self.shared.check_writable()?;
        let start = self.shared.header().tail().read();
        // The state block first: banks that open later are created by the log, which is replayed
        // from `start`.
        let state = self.copy_state(wait)?;
        let identity = self.shared.header().identity();
        let seed = ChecksumSeed::new(self.shared.meta.log_uuid, identity.timeline, start);
        let (media, writer) = match place {
            Place::New => {
                (&*self.shared.media, SnapshotWriter::create(&*self.shared.media, name, seed))
            }
            Place::Over => {
                (&*self.shared.media, SnapshotWriter::over(&*self.shared.media, name, seed))
            }
            Place::Backup(to) => (to, SnapshotWriter::create(to, name, seed)),
        };
        let is_awaited = !matches!(place, Place::Backup(_));
        let written =
            writer.and_then(|writer| self.write_snapshot(writer, start, &state, wait, is_awaited));
        let header = written.map_err(|error| match error.downcast() {
            Ok(error) => error,
            Err(error) => Error::io("write", media.path().join(name))(error),
        })?;
        // A stripe that could not be repaired, or was left half changed by a panic, invalidates the
        // snapshot.
        self.shared.check_writable()?;
        if is_awaited {
            self.backpressure.note_progress();
            self.commits.commit_for_snapshot(header.end)?;
            self.backpressure.note_progress();
        } else {
            self.commits.commit(header.end)?;
        }
        // A page that was lost before it was copied is reported by now.
        self.shared.check_copied(&state.banks)?;
        Ok(header)
    }

    fn write_snapshot(
        &self,
        mut writer: SnapshotWriter,
        start: u64,
        state: &State,
        wait: Wait,
        is_awaited: bool,
    ) -> io::Result<SnapshotHeader> {
        let (kind, image) = (self.shared.kind(), &self.shared.image);
        let advance = || {
            if is_awaited {
                self.backpressure.note_progress();
                self.shared.slots.note_progress();
            }
        };
        let hold = |stripe| Ok(self.hold(stripe, wait)?);
        save::save(&mut writer, (kind, image), state, hold, advance)?;
        let end = image.header().tail().read();
        let (uuid, timeline) = (self.shared.meta.log_uuid, image.header().identity().timeline);
        writer.finish(SnapshotHeader { uuid, timeline, start, end, frames: 0, bytes: 0 })
    }

    fn copy_state(&self, wait: Wait) -> Result<State> {
        let _stripe = self.hold(0, wait)?;
        State::copy(&self.shared.image)
    }

    /// Acquires a stripe, unless the filter was altered. An owner that keeps it for too long is
    /// waited for no more.
    fn hold(&self, stripe: usize, wait: Wait) -> Result<StripeGuard<'_, Local>> {
        let held = self.stripes.acquire(stripe, wait);
        if matches!(held, Err(Error::WouldWait { .. })) {
            let word = stripe_lock::held_now(self.shared.header().stripe(stripe).lock_word());
            // Other threads of this handle make progress, although the word stays the same.
            let is_other = stripe_lock::holder(word) != Some(self.shared.stripes.owner());
            *self.abandoned.lock() = is_other.then_some((stripe, word));
        }
        let held = held?;
        // The handle closes this engine then, and all of its threads wait for that.
        self.shared.check_unaltered()?;
        Ok(held)
    }

    /// Returns whether the stripe that a checkpoint waited for in vain has the same owner now. It
    /// may have released it meanwhile: at worst a checkpoint comes a second later. From a dead
    /// owner the task of the log takes it over.
    fn is_still_held(&self) -> bool {
        let Some((stripe, by)) = *self.abandoned.lock() else { return false };
        by != 0 && stripe_lock::held_now(self.shared.header().stripe(stripe).lock_word()) == by
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
