//! Group commit: one thread syncs for all callers that wait, in any process.
//!
//! A caller that needs durability, while no sync is in progress, becomes the leader. It waits until
//! every slot below the tail is published (or voids it), syncs the segments, advances the durable
//! end, records it in the log, and wakes the other callers. A leader that does not finish, because
//! it is dead, stopped or slow, is overtaken. A failed sync poisons the filter permanently:
//! afterwards neither a retry nor a new descriptor proves anything about the disk's content.

use crate::engine::background::wakeup::Wakeup;
use crate::engine::log::append::LogWriter;
use crate::engine::log::space::LogSpace;
use crate::engine::shared::Shared;
use crate::error::{Error, Result};
use crate::locks::single_flight::{self, Taken};
use crate::options::Durability;
use crate::primitives::{self, Hint, Instant, patience};
use crate::telemetry::{self, Timed, Work};
use crate::wal::{Op, Record, Segment, empty_slots};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The minimum and maximum time to wait for a leader; in between, `SYNCS` times the duration of the
/// last sync. Overtaking costs an additional sync, but is harmless.
const LEADERS_TIME: (Duration, Duration) =
    (patience(Duration::from_millis(20)), patience(Duration::from_secs(1)));
const SYNCS: u64 = 4;
/// The pauses between attempts to open a segment for the sync of an operation whose record is
/// already in the log.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(10), Duration::from_millis(100)];

/// The syncs of this handle.
#[derive(Debug)]
pub struct GroupCommit {
    shared: Arc<Shared>,
    wakeup: Arc<Wakeup>,
    log_space: Arc<LogSpace>,
    log_writer: Arc<LogWriter>,
    /// The duration of the last sync, in microseconds.
    took: Hint,
}

impl GroupCommit {
    /// Creates the syncs of a handle.
    pub(crate) fn new(
        shared: Arc<Shared>,
        wakeup: Arc<Wakeup>,
        log_space: Arc<LogSpace>,
        log_writer: Arc<LogWriter>,
    ) -> Self {
        Self { shared, wakeup, log_space, log_writer, took: Hint::default() }
    }

    fn note_time(&self, took: Duration) {
        self.took.set(took.as_micros() as u64);
    }

    /// Returns how long the last sync took that this handle has led.
    pub(crate) fn took(&self) -> Duration {
        Duration::from_micros(self.took.get())
    }

    /// Returns the time to wait for a leader.
    fn patience(&self) -> Duration {
        let syncs = Duration::from_micros(self.took.get().saturating_mul(SYNCS));
        syncs.clamp(LEADERS_TIME.0, LEADERS_TIME.1)
    }

    /// Waits until every LSN below `target` is durable.
    pub(crate) fn commit(&self, target: u64) -> Result<()> {
        self.commit_and(target, || self.note_durable())
    }

    /// As [`GroupCommit::commit`], for a snapshot that ends there. A sync that it leads leaves no
    /// note if it reaches no further, because the name of the snapshot will say as much. So a
    /// filter that is closed has no record behind its last snapshot.
    pub(crate) fn commit_for_snapshot(&self, end: u64) -> Result<()> {
        self.commit_and(end, || {
            if self.shared.durable() > end {
                self.note_durable();
            }
        })
    }

    /// As [`GroupCommit::commit`]; after each sync that it leads it calls `note`.
    fn commit_and(&self, target: u64, note: impl Fn()) -> Result<()> {
        let (wanted, mut target) = (target, self.reserved(target)?);
        while self.shared.durable() < target {
            if self.shared.header().is_poisoned() {
                return Err(self.shared.poisoned());
            }
            let patience = self.patience();
            let (leader, in_order) =
                match single_flight::take(self.shared.header().syncing(), patience) {
                    Taken::Again => continue,
                    Taken::Ours(leader) => (leader, true),
                    Taken::Overtook(leader) => {
                        telemetry::stalled("the leader of a sync", self.shared.path());
                        (leader, false)
                    }
                };
            // The previous leader may have made it durable.
            let is_needed = self.shared.durable() < target;
            let led = if is_needed { self.lead(in_order, target).map(|()| note()) } else { Ok(()) };
            // Ends only after a failure has poisoned the filter: otherwise the next leader would
            // continue as if nothing had happened.
            leader.end();
            led?;
            target = self.reserved(wanted)?;
        }
        self.shared.log.note_walked(target);
        Ok(())
    }

    /// Returns `wanted`, or the tail if that is lower. Then one of them is damaged: `wanted`,
    /// because nothing beyond the tail was reserved, or the tail, because the kernel dropped a page
    /// of `live` that it could not write. So the image is checked.
    fn reserved(&self, wanted: u64) -> Result<u64> {
        let tail = self.shared.header().tail().read();
        if tail < wanted {
            self.shared.check_image()?;
        }
        Ok(wanted.min(tail))
    }

    /// As [`GroupCommit::commit`], for a record that is applied. Closing makes it durable too.
    pub(crate) fn commit_applied(&self, target: u64) -> Result<()> {
        match self.shared.enter() {
            Ok(_busy) => self.commit(target),
            Err(Error::Closed { .. }) => {
                drop(self.shared.closing.exclude());
                if self.shared.durable() >= target { Ok(()) } else { Err(self.shared.closed()) }
            }
            Err(error) => Err(error),
        }
    }

    /// As [`GroupCommit::commit_applied`], for an operation that returns afterwards.
    fn commit_returning(&self, target: u64) -> Result<()> {
        self.returning(again_if_unread(|| self.commit_applied(target)))
    }

    /// As [`GroupCommit::commit`], for an operation that returns afterwards, and that closing waits
    /// for.
    pub(crate) fn commit_within(&self, target: u64) -> Result<()> {
        self.returning(again_if_unread(|| self.commit(target)))
    }

    /// Returns what an operation returns whose record is in the log. An error which says that
    /// nothing has happened would be wrong: if another try has not helped either, or closing has
    /// failed, the filter is poisoned.
    fn returning(&self, committed: Result<()>) -> Result<()> {
        match committed {
            Err(error) if is_unread(&error) || matches!(error, Error::Closed { .. }) => {
                // Of a filter that was replaced nothing is left to be poisoned.
                self.shared.check_directory()?;
                self.shared.poison(format!("a record cannot be synced ({error})"));
                Err(self.shared.poisoned())
            }
            committed => committed,
        }
    }

    /// Returns the durable end, the segments from there on, and the LSN up to which these contain
    /// every reserved slot: the tail, or at least `target` if a later segment cannot be opened.
    fn unsynced(&self, target: u64) -> Result<(u64, Vec<Arc<Segment>>, u64)> {
        let upto = self.shared.header().tail().read();
        let error = match self.log_space.map_log() {
            Ok((from, segments)) => return Ok((from, segments, upto)),
            Err(error) => error,
        };
        let from = self.shared.durable();
        let segments = self.shared.log.mapped_from(from);
        let end = segments.last().map_or(from, |last| last.end());
        if end >= target { Ok((from, segments, end.min(upto))) } else { Err(error) }
    }

    /// Syncs everything that has been reserved so far, at least what lies below `target`.
    /// `in_order` is whether the previous leader has ended, successfully or not.
    fn lead(&self, in_order: bool, target: u64) -> Result<()> {
        let header = self.shared.header();
        if header.is_poisoned() {
            return Err(self.shared.poisoned());
        }
        let (from, segments, upto) = self.unsynced(target)?;
        // The tail again: below it, pages that a failed sync has marked clean are made dirty.
        let written = header.tail().read();
        let walked = self.shared.log.walked();
        let complete = empty_slots::wait_or_void(&segments, from.max(walked), upto);
        complete.map_err(|error| self.failed_sync(&error))?;
        self.shared.log.note_walked(upto);
        for segment in segments.iter().filter(|segment| segment.first() < upto) {
            if !in_order || !segment.was_synced() {
                // A sync with an unknown outcome, or one before this handle opened the file, may
                // have failed, and the pages count as clean since.
                segment.dirty(from, written);
            }
            // Records below the tail are final.
            segment.release(from, upto);
            let start = Instant::now();
            let mut work = Timed::begin(Work::Sync, self.shared.path());
            let synced = work.result(segment.sync_to(upto));
            work.end();
            self.note_time(start.elapsed());
            synced.map_err(|error| self.failed_sync(&error))?;
        }
        // If a lost page shows an older tail, two writers may fill one slot with a mixture of their
        // records. The page is lost before they write, so this check finds the loss.
        self.shared.check_image()?;
        if header.is_poisoned() {
            // Another process's sync failed meanwhile, perhaps of the same pages.
            return Err(self.shared.poisoned());
        }
        header.durable().raise(upto);
        Ok(())
    }

    /// Refuses further writes, because the system could not write the log back.
    fn failed_sync(&self, error: &io::Error) -> Error {
        self.shared.header().status().lose_log();
        self.shared.poison(format!("a sync of the log failed ({error})"));
        // Perhaps it was the device, which then has not written back the image either.
        let _ = self.shared.check_image();
        self.shared.poisoned()
    }

    /// Records how far the log is durable, which distinguishes damage from the log's end.
    pub(crate) fn note_durable(&self) {
        let (header, upto) = (self.shared.header(), self.shared.durable());
        // No stripe is held. If this process dies here, it leaves an empty slot that no stripe
        // accounts for; this counter does.
        header.unheld_slots().add();
        let note = Record { payload: upto, ..Record::new(Op::Durable) };
        // Without room there is no note, and the next one covers more.
        if let Ok(lsn) = self.log_writer.append(&mut None, &note) {
            header.last_note().raise(lsn);
        }
        header.unheld_slots().remove();
    }

    /// Returns whether anything other than the last note awaits a sync.
    pub(crate) fn has_undurable(&self) -> bool {
        let header = self.shared.header();
        let tail = header.tail().read();
        let durable = self.shared.durable();
        let noted = header.last_note().read();
        durable < tail && !(durable + 1 == tail && noted == durable)
    }

    /// Makes all records so far durable.
    pub(crate) fn commit_all(&self) -> Result<()> {
        self.shared.check_process()?;
        self.shared.check_directory()?;
        // A lost page of the image may show an older tail: then there seems to be nothing to sync.
        self.shared.check_image()?;
        // All slots below the durable end are complete, whichever handle has walked there.
        self.shared.log.note_walked(self.shared.durable());
        if self.has_undurable() {
            self.commit(self.shared.header().tail().read())?;
        }
        // A process that has retired the image may not have seen the last records of this handle.
        self.shared.check_writable()
    }

    /// Releases the pages of records up to the first empty slot. If they stayed, all log since the
    /// last sync would take memory, and the walk of the next sync would read it back.
    pub(crate) fn release_records(&self) -> Result<()> {
        let upto = self.shared.header().tail().read();
        let walked = self.shared.log.walked();
        if walked < upto {
            let (durable, segments) = self.log_space.map_log()?;
            let reached = empty_slots::first(&segments, walked.max(durable), upto);
            self.shared.log.note_walked(reached);
            for segment in &segments {
                segment.release(walked, reached);
            }
        }
        Ok(())
    }

    /// Waits until no reserved slot is empty, so that no gap remains if no further sync happens.
    pub(crate) fn close_gaps(&self) -> Result<()> {
        let upto = self.shared.header().tail().read();
        let from = self.shared.log.walked().max(self.shared.durable());
        if from < upto {
            let (_, segments) = self.log_space.map_log()?;
            let complete = empty_slots::wait_or_void(&segments, from, upto);
            complete.map_err(|error| self.failed_sync(&error))?;
            self.shared.log.note_walked(upto);
        }
        Ok(())
    }

    /// Returns without waiting for the durability of an operation's record: whoever needs it waits
    /// with a ticket.
    pub(crate) fn ensure_durability_later(&self, durability: Option<Durability>) {
        if let Durability::Interval(every) = durability.unwrap_or(self.shared.durability) {
            self.wakeup.request(every);
        }
    }

    /// Waits for the durability of an operation's record.
    #[inline]
    pub(crate) fn ensure_durability(&self, lsn: u64, durability: Option<Durability>) -> Result<()> {
        match durability.unwrap_or(self.shared.durability) {
            Durability::Always => self.commit_returning(lsn.saturating_add(1)),
            Durability::Interval(every) => {
                self.wakeup.request(every);
                Ok(())
            }
            Durability::Never => Ok(()),
        }
    }
}

/// Returns whether the log could not be opened, so that no sync of it was tried.
fn is_unread(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Damaged { .. } | Error::Version { .. })
}

/// Repeats a commit for a tenth of a second while the log cannot be opened.
pub(crate) fn again_if_unread(commit: impl Fn() -> Result<()>) -> Result<()> {
    for pause in PAUSES {
        match commit() {
            Err(error) if is_unread(&error) => primitives::sleep(pause),
            committed => return committed,
        }
    }
    commit()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::failing::Failing;
    use crate::media::{Media, Memory};
    use crate::{Bloom, Filter, Options};

    #[test]
    fn a_sync_of_the_log_that_fails_is_remembered_for_the_next_opening() {
        let (mut syncs_failed, mut call) = (0, 0);
        loop {
            call += 1;
            let media = Arc::new(Failing::new(Memory::new()));
            let options = Options::new().background(false).durability(Durability::Always);
            let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options);
            let filter = filter.expect("a filter");
            media.fail_after(call, std::io::ErrorKind::Other);
            let inserted = filter.insert("a key");
            if media.clear_faults() {
                break;
            }
            let status = filter.engine().header().status();
            if let Err(Error::Poisoned { cause, .. }) = inserted
                && cause.contains("sync of the log")
            {
                syncs_failed += 1;
                assert!(status.has_lost_log(), "call {call}");
            } else {
                assert!(!status.has_lost_log(), "call {call}");
            }
        }
        assert!(syncs_failed > 0, "{call} calls");
    }

    fn is_named(media: &dyn Media) -> bool {
        media.list().expect("a directory").iter().any(|name| name.starts_with("snap-"))
    }

    #[test]
    fn a_snapshot_leaves_a_note_only_if_it_does_not_get_its_name() {
        let (mut unnamed, mut call) = (0, 0);
        loop {
            call += 1;
            let media = Arc::new(Failing::new(Memory::new()));
            let options = Options::new().background(false).durability(Durability::Never);
            let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options);
            let filter = filter.expect("a filter");
            assert!(filter.insert("a key").is_ok());
            let header = filter.engine().header();
            let end = header.tail().read();
            media.fail_after(call, std::io::ErrorKind::Other);
            let written = filter.checkpoint();
            let is_over = media.clear_faults();
            let (is_durable, noted) = (header.durable().read() >= end, header.last_note().read());
            match written {
                Ok(_) => assert_eq!((noted, header.tail().read()), (0, end), "call {call}"),
                Err(_) if is_durable && !is_named(&*media) => {
                    unnamed += 1;
                    assert_eq!(noted, end, "call {call}");
                }
                Err(_) => {}
            }
            if is_over {
                break;
            }
        }
        assert!(unnamed > 0, "{call} calls");
    }

    #[test]
    fn what_returns_as_durable_needs_no_segment_that_another_handle_has_begun_behind_it() {
        let media = Arc::new(Memory::new());
        let options = Options::new().background(false).segment_bytes(4 << 10);
        let options = options.durability(Durability::Always);
        let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options.clone());
        let filter = filter.expect("a filter");
        let other = Filter::<Bloom>::open_on(media.clone(), options).expect("another handle");
        let shared = &filter.engine().shared;
        let end = shared.log.mapped_end();
        other.engine().log_space.extend(end).expect("space");
        let mut names = media.list().expect("a directory");
        names.retain(|name| name.starts_with("wal-"));
        // As if it could not be opened.
        media.remove(names.iter().max().expect("a segment")).expect("the one just begun");
        assert!(filter.insert("first").expect("its own segment is there"));
        let tail = shared.header().tail().read();
        // All but the note.
        assert_eq!((shared.durable() + 1, tail <= end), (tail, true));
        let mut keys = 0_u64..1000;
        let failed = keys.find(|key| filter.insert(key.to_le_bytes()).is_err()).expect("one");
        assert!(!filter.contains(failed.to_le_bytes()).expect("an answer"));
        assert!(filter.contains((failed - 1).to_le_bytes()).expect("an answer"));
        assert!(!shared.header().is_poisoned());
    }

    #[test]
    fn a_clear_that_has_happened_and_cannot_be_synced_does_not_say_that_nothing_has_happened() {
        let media = Arc::new(Memory::new());
        let options = Options::new().background(false).segment_bytes(4 << 10);
        let options = options.durability(Durability::Never);
        let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options.clone());
        let filter = filter.expect("a filter");
        let other = Filter::<Bloom>::open_on(media.clone(), options).expect("another handle");
        (0..300_u64).for_each(|key| assert!(other.insert(key.to_le_bytes()).is_ok()));
        let mut names = media.list().expect("a directory");
        names.retain(|name| name.starts_with("wal-"));
        names.sort();
        // As if it could not be opened. Only the other handle has mapped it.
        media.remove(&names[1]).expect("the segment in the middle");
        let cleared = filter.clear();
        assert!(matches!(cleared, Err(Error::Poisoned { .. })), "{cleared:?}");
        assert!(!other.contains(7_u64.to_le_bytes()).expect("an answer"), "it has happened");
    }

    #[test]
    fn an_operation_that_closing_could_not_make_durable_does_not_say_that_it_has_not_happened() {
        let media = Arc::new(Failing::new(Memory::new()));
        let options = Options::new().background(false).durability(Durability::Never);
        let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        filter.insert("a").expect("an insert");
        let engine = filter.engine();
        let lsn = engine.header().tail().hint() - 1;
        media.fail_write_back();
        assert!(filter.close().is_err(), "its sync fails");
        let always = Some(Durability::Always);
        let returned = engine.commits.ensure_durability(lsn, always);
        assert!(matches!(returned, Err(Error::Poisoned { .. })), "{returned:?}");
    }

    #[test]
    fn a_leader_is_waited_for_as_long_as_some_syncs_take_within_bounds() {
        let options = Options::new().background(false);
        let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        let commits = &filter.engine().commits;
        let millis = Duration::from_millis;
        for (took, patience) in [(0, 20), (4, 20), (50, 200), (300, 1000), (u64::MAX / 1000, 1000)]
        {
            commits.note_time(millis(took));
            assert_eq!(commits.patience(), millis(patience), "after a sync of {took} ms");
        }
    }
}
