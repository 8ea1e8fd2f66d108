//! Group commit: one thread syncs for all that wait.
//!
//! Whoever needs durability and finds nobody syncing leads: it waits until every place up to the tail is published
//! (or voids it), syncs the segments, moves the durable end, notes it in the log and wakes the others. A failed
//! sync poisons the filter for good: after one, neither a second try nor a fresh descriptor proves
//! anything about what the disk holds.

use super::engine::Engine;
use crate::error::Result;
use crate::sync::Ordering;
use crate::wal::{Op, Record, walk};
use parking_lot::{Condvar, Mutex};

/// Who syncs, and why writes are refused if they are.
#[derive(Debug, Default)]
pub struct Committer {
    turn: Mutex<Turn>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Turn {
    syncing: bool,
    cause: Option<String>,
    /// Every place below is known to be published.
    walked: u64,
    /// The LSN of the last note of what is durable: syncing only that is no news.
    noted: u64,
}

impl Committer {
    /// Why a sync failed, if one did.
    pub(super) fn cause(&self) -> Option<String> {
        self.turn.lock().cause.clone()
    }
}

/// The turn of a leader; given up when dropped, also by a panic, or the others would wait for ever.
struct Leading<'a>(&'a Committer);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.turn.lock().syncing = false;
        self.0.done.notify_all();
    }
}

impl Engine {
    /// Every LSN below is durable.
    pub(super) fn durable(&self) -> u64 {
        // Acquire: pairs with the fetch_max in `lead`.
        self.image.header().durable().load(Ordering::Acquire)
    }

    /// Returns once every LSN below `target` is durable.
    pub(super) fn commit(&self, target: u64) -> Result<()> {
        while self.durable() < target {
            let mut turn = self.committer.turn.lock();
            // Another leader may have been at it while this thread waited for the turn.
            if self.durable() >= target {
                break;
            }
            if self.image.header().is_poisoned() {
                drop(turn);
                return Err(self.poisoned());
            }
            if turn.syncing {
                self.committer.done.wait(&mut turn);
                continue;
            }
            turn.syncing = true;
            let walked = turn.walked;
            drop(turn);
            let leading = Leading(&self.committer);
            let led = self.lead(walked);
            let mut turn = self.committer.turn.lock();
            match led {
                Ok((upto, noted)) => {
                    turn.walked = turn.walked.max(upto);
                    turn.noted = noted.unwrap_or(turn.noted);
                }
                Err(error) => {
                    turn.cause = Some(format!("a sync of the log failed ({error})"));
                    self.image.header().poison();
                }
            }
            drop(turn);
            drop(leading);
        }
        Ok(())
    }

    /// Syncs everything that has been reserved so far. Returns the new durable end and the LSN of its note.
    fn lead(&self, walked: u64) -> std::io::Result<(u64, Option<u64>)> {
        let header = self.image.header();
        let from = self.durable();
        // Acquire: pairs with the Release of `reserve`.
        let upto = header.tail().load(Ordering::Acquire);
        let segments = self.log.segments_from(from);
        walk::complete(&segments, from.max(walked), upto);
        for segment in segments.iter().filter(|segment| segment.first() < upto) {
            // Nobody writes below the tail any more.
            segment.release(from, upto);
            segment.sync()?;
        }
        // Release: who sees the new end may rely on the sync before it.
        header.durable().fetch_max(upto, Ordering::AcqRel);
        let note = Record { payload: upto, ..Record::new(Op::Durable) };
        // Under stripe 0, although it changes nothing there: after a death recovery allows as many empty places as
        // there are stripes held.
        let mut stripe = self.lock(0);
        // Without room there is no note, and the next one says more.
        Ok((upto, self.append(&mut stripe.segment, &note)))
    }

    /// Whether anything but the last note awaits a sync.
    pub(super) fn has_undurable(&self) -> bool {
        let tail = self.image.header().tail().load(Ordering::Acquire);
        let durable = self.durable();
        durable < tail && !(durable + 1 == tail && self.committer.turn.lock().noted == durable)
    }

    /// Makes everything so far durable.
    pub(super) fn commit_all(&self) -> Result<()> {
        if self.has_undurable() {
            self.commit(self.image.header().tail().load(Ordering::Acquire))?;
        }
        if self.image.header().is_poisoned() { Err(self.poisoned()) } else { Ok(()) }
    }

    /// Waits until no reserved place is empty, so that no hole stays behind where nobody syncs.
    pub(super) fn close_holes(&self) {
        let upto = self.image.header().tail().load(Ordering::Acquire);
        let from = self.committer.turn.lock().walked.max(self.durable());
        walk::complete(&self.log.segments_from(from), from, upto);
        let mut turn = self.committer.turn.lock();
        turn.walked = turn.walked.max(upto);
    }
}
