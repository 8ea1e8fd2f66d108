//! Group commit: one thread syncs for all callers that wait, in any process.
//!
//! A caller that needs durability, while no sync is in progress, becomes the leader. It waits until
//! every slot below the tail is published (or voids it), syncs the segments, advances the durable
//! end, records it in the log, and wakes the other callers. A leader that does not finish, because
//! it is dead, stopped or slow, is overtaken. A failed sync poisons the filter permanently:
//! afterwards neither a retry nor a new descriptor proves anything about the disk's content.

use crate::engine::Engine;
use crate::error::Result;
use crate::locks::leader_gate::{self, Taken};
use crate::sync::{Hint, Instant, Mutex, patience};
use crate::wal::{Op, Record, Segment, scan};
use std::sync::Arc;
use std::time::Duration;

/// The minimum and maximum time to wait for a leader; in between, `SYNCS` times the duration of the
/// last sync. Overtaking costs an additional sync, but is harmless.
const LEADERS_TIME: (Duration, Duration) =
    (patience(Duration::from_millis(20)), patience(Duration::from_secs(1)));
const SYNCS: u64 = 4;
/// The time to wait for another process to allocate a segment.
const GROWERS_TIME: Duration = patience(Duration::from_millis(20));

/// The sync state of this handle.
#[derive(Debug, Default)]
pub struct GroupCommit {
    /// Why writes are refused, if this handle saw the cause.
    cause: Mutex<Option<String>>,
    /// Every slot below is published.
    walked: Hint,
    /// The duration of the last sync, in microseconds.
    took: Hint,
}

impl GroupCommit {
    /// Returns why a sync failed, if this handle saw one fail.
    pub(crate) fn cause(&self) -> Option<String> {
        self.cause.lock().clone()
    }

    fn note_time(&self, took: Duration) {
        self.took.set(took.as_micros() as u64);
    }

    /// Returns the time to wait for a leader.
    fn patience(&self) -> Duration {
        let syncs = Duration::from_micros(self.took.get().saturating_mul(SYNCS));
        syncs.clamp(LEADERS_TIME.0, LEADERS_TIME.1)
    }

    /// Stores why writes are refused; the first cause is kept.
    pub(crate) fn blame(&self, cause: String) {
        self.cause.lock().get_or_insert(cause);
    }
}

impl Engine {
    /// Returns the durable end: every LSN below it is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.image.header().durable().read()
    }

    /// Waits until every LSN below `target` is durable.
    pub(crate) fn commit(&self, target: u64) -> Result<()> {
        // Nothing beyond the tail was ever reserved, whatever a damaged image contains.
        let target = target.min(self.image.header().tail().read());
        while self.durable() < target {
            if self.image.header().is_poisoned() {
                return Err(self.poisoned());
            }
            let patience = self.committer.patience();
            let (turn, in_order) = match leader_gate::take(self.image.header().syncing(), patience)
            {
                Taken::Again => continue,
                Taken::Ours(turn) => (turn, true),
                Taken::Overtook(turn) => (turn, false),
            };
            // The previous leader may have done it.
            let led = if self.durable() < target { self.lead(in_order) } else { Ok(()) };
            // Not before a failure has poisoned the filter, or the next leader would continue as if
            // nothing had happened.
            turn.end();
            led?;
        }
        Ok(())
    }

    /// Syncs everything that has been reserved so far. `in_order`: whether the previous sync has
    /// ended, successfully or not.
    fn lead(&self, in_order: bool) -> Result<()> {
        let header = self.image.header();
        if header.is_poisoned() {
            return Err(self.poisoned());
        }
        let upto = header.tail().read();
        let (from, segments) = self.map_log()?;
        // Read again, to include records on pages that may count as clean.
        let written = header.tail().read();
        let walked = self.committer.walked.get();
        scan::complete(&segments, from.max(walked), upto);
        self.committer.walked.raise(upto);
        for segment in segments.iter().filter(|segment| segment.first() < upto) {
            if !in_order || !segment.was_synced() {
                // A sync with an unknown outcome, or one before this handle opened the file, may
                // have failed, and the pages count as clean since.
                segment.dirty(from, written);
            }
            // Records below the tail are final.
            segment.release(from, upto);
            let start = Instant::now();
            let synced = segment.sync();
            self.committer.note_time(start.elapsed());
            if let Err(error) = synced {
                self.poison(format!("a sync of the log failed ({error})"));
                return Err(self.poisoned());
            }
        }
        if header.is_poisoned() {
            // Another process's sync failed meanwhile, perhaps of the same pages.
            return Err(self.poisoned());
        }
        header.durable().raise(upto);
        self.note_durable(upto);
        Ok(())
    }

    /// Records how far the log is durable, which distinguishes damage from the log's end.
    fn note_durable(&self, upto: u64) {
        let header = self.image.header();
        // No stripe is held. If this process dies here, it leaves an empty slot that no stripe
        // accounts for; this counter does.
        header.unheld_slots().add();
        let note = Record { payload: upto, ..Record::new(Op::Durable) };
        // Without room there is no note, and the next one covers more.
        if let Some(lsn) = self.append(&mut None, &note) {
            header.last_note().raise(lsn);
        }
        header.unheld_slots().remove();
    }

    /// Returns whether anything other than the last note awaits a sync.
    pub(crate) fn has_undurable(&self) -> bool {
        let header = self.image.header();
        let tail = header.tail().read();
        let durable = self.durable();
        let noted = header.last_note().read();
        durable < tail && !(durable + 1 == tail && noted == durable)
    }

    /// Makes all records so far durable.
    pub(crate) fn commit_all(&self) -> Result<()> {
        self.check_process()?;
        self.check_place()?;
        if self.has_undurable() {
            self.commit(self.image.header().tail().read())?;
        }
        // A process that has retired the image may not have seen the last records of this handle.
        self.check_writable()
    }

    /// Releases the pages of records up to the first empty slot. Otherwise all log since the last
    /// sync would stay in this handle's memory, and the walk of the next sync would read it back.
    pub(crate) fn let_go_of_records(&self) -> Result<()> {
        let upto = self.image.header().tail().read();
        let walked = self.committer.walked.get();
        if walked < upto {
            let (durable, segments) = self.map_log()?;
            let reached = scan::reached(&segments, walked.max(durable), upto);
            self.committer.walked.raise(reached);
            for segment in &segments {
                segment.release(walked, reached);
            }
        }
        Ok(())
    }

    /// Waits until no reserved slot is empty, so that no gap remains if no further sync happens.
    pub(crate) fn close_holes(&self) -> Result<()> {
        let upto = self.image.header().tail().read();
        let from = self.committer.walked.get().max(self.durable());
        if from < upto {
            let (_, segments) = self.map_log()?;
            scan::complete(&segments, from, upto);
            self.committer.walked.raise(upto);
        }
        Ok(())
    }

    /// Maps the log from the durable end up to the allocated end. Returns that durable end, and the
    /// segments.
    pub(crate) fn map_log(&self) -> Result<(u64, Vec<Arc<Segment>>)> {
        loop {
            let end = self.image.header().allocated().read();
            let durable = self.durable();
            match self.log.map(durable, end) {
                // Below the durable end, checkpoints remove segments that they no longer need.
                Err(error) if error.is_not_found() && self.durable() > durable => {}
                mapped => return mapped.map(|segments| (durable, segments)),
            }
        }
    }

    /// Makes room for this handle to write beyond `end`, the end of its mapped log: maps segments
    /// that others have allocated, or allocates the next one.
    pub(crate) fn make_room(&self, end: u64) -> Result<()> {
        let header = self.image.header();
        loop {
            self.check_writable()?;
            // Otherwise a damaged tail would cause endless allocation.
            header.check(self.media.path()).inspect_err(|error| {
                self.poison(error.to_string());
            })?;
            let allocated = header.allocated().read();
            if allocated > end {
                return self.map_log().map(|_| ());
            }
            self.check_place()?;
            let turn = match leader_gate::take(header.growing(), GROWERS_TIME) {
                Taken::Again => continue,
                // `allocate` detects anything that the previous one left unfinished.
                Taken::Ours(turn) | Taken::Overtook(turn) => turn,
            };
            let made = if header.allocated().read() > end {
                Ok(())
            } else {
                let current = &|| self.slots.is_current();
                self.log.allocate(allocated, current).map(|end| header.allocated().raise(end))
            };
            turn.end();
            match made {
                // Another process made it, and it was removed again while this one slept.
                Err(error) if error.is_not_found() && header.allocated().read() > allocated => {}
                Err(error) => {
                    // A directory that no longer belongs to the filter is the more informative
                    // error.
                    self.check_place()?;
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_of_a_refusal_is_the_one_that_is_told() {
        let committer = GroupCommit::default();
        assert_eq!(committer.cause(), None);
        for cause in ["the disk", "what came of it"] {
            committer.blame(cause.to_owned());
        }
        assert_eq!(committer.cause().as_deref(), Some("the disk"));
    }

    #[test]
    fn a_leader_is_waited_for_as_long_as_some_syncs_take_within_bounds() {
        let committer = GroupCommit::default();
        let millis = Duration::from_millis;
        for (took, patience) in [(0, 20), (4, 20), (50, 200), (300, 1000), (u64::MAX / 1000, 1000)]
        {
            committer.note_time(millis(took));
            assert_eq!(committer.patience(), millis(patience), "after a sync of {took} ms");
        }
    }
}
