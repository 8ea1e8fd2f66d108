//! Group commit: one thread syncs for all that wait, in whatever process they are.
//!
//! Whoever needs durability and finds nobody syncing leads: it waits until every place up to the tail is published
//! (or voids it), syncs the segments, moves the durable end, notes it in the log and wakes the others. A leader that
//! does not come to an end, dead, stopped or slow, is overtaken. A failed sync poisons the filter for good: after one,
//! neither a second try nor a fresh descriptor proves anything about what the disk holds.

use crate::engine::Engine;
use crate::error::Result;
use crate::locks::leader_gate::{self, Taken};
use crate::sync::{AtomicU64, Instant, Mutex, Ordering, patience};
use crate::wal::{Op, Record, Segment, scan};
use std::sync::Arc;
use std::time::Duration;

/// How long a leader is waited for, at least and at most: in between, so many times as long as a sync took last.
/// Overtaking costs a sync more, no harm.
const LEADERS_TIME: (Duration, Duration) =
    (patience(Duration::from_millis(20)), patience(Duration::from_secs(1)));
const SYNCS: u64 = 4;
/// How long somebody else's new segment is waited for.
const GROWERS_TIME: Duration = patience(Duration::from_millis(20));

/// What this handle knows of syncs.
#[derive(Debug, Default)]
pub struct GroupCommit {
    /// Why writes are refused, if this handle knows.
    cause: Mutex<Option<String>>,
    /// Every place below is known to be published.
    walked: AtomicU64,
    /// How long the last sync took, in microseconds.
    took: AtomicU64,
}

impl GroupCommit {
    /// Why a sync failed, if this handle saw one fail.
    pub(crate) fn cause(&self) -> Option<String> {
        self.cause.lock().clone()
    }

    fn note_time(&self, took: Duration) {
        // Relaxed, as where it is read: a hint.
        self.took.store(took.as_micros() as u64, Ordering::Relaxed);
    }

    /// How long a leader is waited for.
    fn patience(&self) -> Duration {
        let syncs = Duration::from_micros(self.took.load(Ordering::Relaxed).saturating_mul(SYNCS));
        syncs.clamp(LEADERS_TIME.0, LEADERS_TIME.1)
    }

    /// Notes why writes are refused; the first cause is kept.
    pub(crate) fn blame(&self, cause: String) {
        self.cause.lock().get_or_insert(cause);
    }
}

impl Engine {
    /// Every LSN below is durable.
    pub(crate) fn durable(&self) -> u64 {
        // Acquire: pairs with the fetch_max in `lead`.
        self.image.header().durable().load(Ordering::Acquire)
    }

    /// Returns once every LSN below `target` is durable.
    pub(crate) fn commit(&self, target: u64) -> Result<()> {
        // Nothing beyond the tail was ever reserved, whatever a damaged image names. Acquire: pairs with the Release of `reserve`.
        let target = target.min(self.image.header().tail().load(Ordering::Acquire));
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
            // The one before us may have done it.
            let led = if self.durable() < target { self.lead(in_order) } else { Ok(()) };
            // Not before a failure has poisoned the filter, or the next would lead as if nothing had happened.
            turn.end();
            led?;
        }
        Ok(())
    }

    /// Syncs everything that has been reserved so far. `in_order`: the sync before has ended, well or badly.
    fn lead(&self, in_order: bool) -> Result<()> {
        let header = self.image.header();
        if header.is_poisoned() {
            return Err(self.poisoned());
        }
        // Acquire: pairs with the Release of `reserve`.
        let upto = header.tail().load(Ordering::Acquire);
        let (from, segments) = self.map_log()?;
        // Read again, for what may lie on pages that count as clean.
        let written = header.tail().load(Ordering::Acquire);
        // Relaxed: a hint of this handle, where a walk need not begin again.
        let walked = self.committer.walked.load(Ordering::Relaxed);
        scan::complete(&segments, from.max(walked), upto);
        self.committer.walked.fetch_max(upto, Ordering::Relaxed);
        for segment in segments.iter().filter(|segment| segment.first() < upto) {
            if !in_order || !segment.was_synced() {
                // A sync that nobody saw the end of, or one before we opened the file, may have failed, and the pages count
                // as clean since.
                segment.dirty(from, written);
            }
            // Nobody writes below the tail any more.
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
            // Somebody else's sync failed meanwhile, perhaps of the same pages.
            return Err(self.poisoned());
        }
        // Release: who sees the new end may rely on the sync before it.
        header.durable().fetch_max(upto, Ordering::AcqRel);
        self.note_durable(upto);
        Ok(())
    }

    /// Records how far the log is durable: that tells damage from the log's end.
    fn note_durable(&self, upto: u64) {
        let header = self.image.header();
        // No stripe is held, so whoever dies here leaves an empty place that no stripe accounts for, but this does.
        // Relaxed: a count, read when all who could change it are dead.
        header.noting().fetch_add(1, Ordering::Relaxed);
        let note = Record { payload: upto, ..Record::new(Op::Durable) };
        // Without room there is no note, and the next one says more.
        if let Some(lsn) = self.append(&mut None, &note) {
            header.noted().fetch_max(lsn, Ordering::Relaxed);
        }
        header.noting().fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether anything but the last note awaits a sync.
    pub(crate) fn has_undurable(&self) -> bool {
        let header = self.image.header();
        let tail = header.tail().load(Ordering::Acquire);
        let durable = self.durable();
        let noted = header.noted().load(Ordering::Relaxed);
        durable < tail && !(durable + 1 == tail && noted == durable)
    }

    /// Makes everything so far durable.
    pub(crate) fn commit_all(&self) -> Result<()> {
        self.check_process()?;
        self.check_place()?;
        if self.has_undurable() {
            self.commit(self.image.header().tail().load(Ordering::Acquire))?;
        }
        // Whoever has given up the image may not have seen our last records.
        self.check_writable()
    }

    /// Lets go of the pages of records up to the first empty place. Else all log since the last sync would be in this handle's
    /// memory, and read back into it by the walk of the next one.
    pub(crate) fn let_go_of_records(&self) -> Result<()> {
        let upto = self.image.header().tail().load(Ordering::Acquire);
        // Relaxed, here and below: a hint of this handle, as in `lead`.
        let walked = self.committer.walked.load(Ordering::Relaxed);
        if walked < upto {
            let (durable, segments) = self.map_log()?;
            let reached = scan::reached(&segments, walked.max(durable), upto);
            self.committer.walked.fetch_max(reached, Ordering::Relaxed);
            for segment in &segments {
                segment.release(walked, reached);
            }
        }
        Ok(())
    }

    /// Waits until no reserved place is empty, so that no hole stays behind where nobody syncs.
    pub(crate) fn close_holes(&self) -> Result<()> {
        let upto = self.image.header().tail().load(Ordering::Acquire);
        let from = self.committer.walked.load(Ordering::Relaxed).max(self.durable());
        if from < upto {
            let (_, segments) = self.map_log()?;
            scan::complete(&segments, from, upto);
            self.committer.walked.fetch_max(upto, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes sure that this handle has mapped the log from the durable end on, as far as it is allocated. Returns that durable
    /// end, and the segments.
    pub(crate) fn map_log(&self) -> Result<(u64, Vec<Arc<Segment>>)> {
        loop {
            // Acquire: pairs with the Release in `make_room`; the segments are there then.
            let end = self.image.header().allocated().load(Ordering::Acquire);
            let durable = self.durable();
            match self.log.map(durable, end) {
                // Below the durable end segments go when checkpoints need them no more.
                Err(error) if error.is_not_found() && self.durable() > durable => {}
                mapped => return mapped.map(|segments| (durable, segments)),
            }
        }
    }

    /// Makes sure that this handle can write beyond `end`, the end of what it has mapped: maps what others have allocated, or
    /// allocates the next segment.
    pub(crate) fn make_room(&self, end: u64) -> Result<()> {
        let header = self.image.header();
        loop {
            self.check_writable()?;
            // Else one would allocate on and on to reach a tail that is nowhere.
            header.check(self.media.path()).inspect_err(|error| {
                self.poison(error.to_string());
            })?;
            let allocated = header.allocated().load(Ordering::Acquire);
            if allocated > end {
                return self.map_log().map(|_| ());
            }
            self.check_place()?;
            let turn = match leader_gate::take(header.growing(), GROWERS_TIME) {
                Taken::Again => continue,
                // What the one before left undone is found out by `allocate`.
                Taken::Ours(turn) | Taken::Overtook(turn) => turn,
            };
            let made = if header.allocated().load(Ordering::Acquire) > end {
                Ok(())
            } else {
                self.log.allocate(allocated, &|| self.slots.is_current()).map(|end| {
                    // Release: pairs with the Acquires of `allocated`: the segment and its name are durable.
                    header.allocated().fetch_max(end, Ordering::Release);
                })
            };
            turn.end();
            match made {
                // Somebody else made it, and by now it is gone again: we slept.
                Err(error)
                    if error.is_not_found()
                        && header.allocated().load(Ordering::Acquire) > allocated => {}
                Err(error) => {
                    // A directory that is not the filter's any more says more than what failed in it.
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
