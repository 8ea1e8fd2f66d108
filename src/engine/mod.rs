//! The engine of an open filter: its parts, and the protocols over them.
//!
//! `open` creates and attaches, `close` waits for operations in progress. `write` inserts and
//! removes, `read` answers, `infer` computes posteriors, `clear` removes all keys. `stripes`
//! acquires stripes and repairs what a dead owner left, `group_commit` makes the log durable,
//! `checkpoint` writes snapshots and removes log, `backpressure` lets writers wait for it when the
//! log is long or the disk is full. `background` has the maintenance tasks of a filter,
//! `task_threads` the two threads of the process that run them. `time` is the filter's time,
//! `stats` counts and hashes. No other module reads the clock.

pub mod background;
pub mod backpressure;
pub mod checkpoint;
pub mod clear;
pub mod close;
pub mod group_commit;
pub mod infer;
pub mod open;
pub mod outcome;
pub mod read;
pub mod stats;
pub mod stripes;
pub mod task_threads;
pub mod time;
pub mod write;

use crate::engine::background::Wakeup;
use crate::engine::checkpoint::Snapshots;
use crate::engine::close::Closing;
use crate::engine::group_commit::GroupCommit;
use crate::engine::time::{Stamp, TimeBase};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::locks::session::Sessions;
use crate::locks::stripes::Stripes;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::options::Options;
use crate::platform::fork::Guard;
use crate::sync::{AtomicU64, Ordering};
use crate::wal::{Log, Segment};
use ebbtide_core::kind::{Micros, Moment, Totals};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The distance between the shards of the first threads of two session slots.
const SHARDS_APART: usize = 3;

/// The shard of the next thread that needs one.
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's shard, in every filter.
    static SHARD: usize = NEXT_SHARD.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// The private data of a stripe for this handle.
#[derive(Debug, Default)]
pub struct Local {
    /// The segment this stripe wrote to last.
    pub segment: Option<Arc<Segment>>,
}

/// An open filter.
pub struct Engine {
    pub(crate) media: Arc<dyn Media>,
    pub(crate) meta: Meta,
    pub(crate) options: Options,
    pub(crate) image: Image,
    pub(crate) log: Log,
    pub(crate) stripes: Stripes<Local>,
    pub(crate) committer: GroupCommit,
    pub(crate) snapshots: Snapshots,
    pub(crate) bell: Wakeup,
    pub(crate) time_base: TimeBase,
    /// The word of stripe 0 when a wait for it was last abandoned: its holder of that time is not
    /// waited for again.
    pub(crate) given_up: AtomicU64,
    /// A property of the kind, cached here: querying it is a call that every operation would make.
    pub(crate) uses_time: bool,
    pub(crate) counts_inserts: bool,
    /// The kind's [grace](ebbtide_core::kind::Events::grace).
    pub(crate) grace: Micros,
    pub(crate) access: Access,
    /// Distinguishes a forked child from the process that opened the filter.
    pub(crate) guard: Guard,
    /// Whether the handle is closed, and the operations that must end first.
    pub(crate) closing: Closing,
    /// The proof that this handle lives. Last, so that it is dropped after everything else.
    pub(crate) slots: Arc<Sessions>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Engine");
        shown.field("path", &self.media.path()).field("kind", &self.meta.kind.name());
        shown.finish_non_exhaustive()
    }
}

impl Engine {
    /// Returns whether this handle may only read.
    #[inline]
    pub(crate) fn is_reader(&self) -> bool {
        self.access == Access::Read
    }

    /// Checks that this process opened the filter, and is not a child forked since.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.guard.is_foreign() { Err(self.forked()) } else { Ok(()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { path: self.media.path().to_path_buf() }
    }

    /// Checks that writes are not refused; reliable under a stripe, otherwise a hint.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.image.header().refuses() { Err(self.refused()) } else { Ok(()) }
    }

    #[cold]
    fn refused(&self) -> Error {
        if self.image.header().is_poisoned() { self.poisoned() } else { self.retired() }
    }

    /// Creates the error for a handle whose image has been retired.
    pub(crate) fn retired(&self) -> Error {
        Error::Retired { path: self.media.path().to_path_buf(), replaced: !self.slots.is_current() }
    }

    /// Checks that the directory still contains this filter. If not, the image is retired, so that
    /// all of its handles notice.
    pub(crate) fn check_place(&self) -> Result<()> {
        if self.slots.is_current() || self.is_reader() {
            return Ok(());
        }
        self.image.header().retire();
        Err(self.retired())
    }

    /// Refuses all further writes, of all handles.
    pub(crate) fn poison(&self, cause: String) {
        self.committer.blame(cause);
        self.image.header().poison();
    }

    /// Creates the error for a poisoned filter.
    pub(crate) fn poisoned(&self) -> Error {
        let cause = self.committer.cause();
        let cause = cause.unwrap_or_else(|| {
            "an operation panicked, or a sync failed in another process".to_owned()
        });
        Error::Poisoned { path: self.media.path().to_path_buf(), cause }
    }

    /// Returns the shard of this thread in the counters of inserts.
    #[inline]
    pub(crate) fn shard(&self) -> usize {
        // A thread that is ending takes any. Session slots are spread, so that the first threads of
        // several processes do not collide.
        let thread = SHARD.try_with(|shard| *shard).unwrap_or(0);
        thread + SHARDS_APART * usize::from(self.stripes.owner().slot)
    }

    /// Returns the data on which an operation at this time is decided.
    #[inline]
    pub(crate) fn moment(&self, stamp: Stamp) -> Moment {
        self.moment_with(stamp, self.totals())
    }

    /// Returns the sums for decisions and answers. If the kind does not depend on exact ones they
    /// may be slightly too high, which suffices for a cheap check that no step is due.
    #[inline]
    pub(crate) fn totals(&self) -> Totals {
        let counters = self.image.header().counters();
        if self.counts_inserts { counters.sum() } else { counters.at_most() }
    }

    /// As [`Engine::moment`], with the exact sums.
    pub(crate) fn exact_moment(&self, stamp: Stamp) -> Moment {
        self.moment_with(stamp, self.image.header().counters().sum())
    }

    #[inline]
    fn moment_with(&self, stamp: Stamp, totals: Totals) -> Moment {
        let latest = self.image.header().time().load(Ordering::Relaxed) >> 1;
        Moment { time: stamp.time, now: stamp.time.max(latest), totals }
    }

    /// Makes sure that the filter is of this kind, if one is wanted.
    pub(crate) fn check_kind(&self, wanted: Option<&'static str>) -> Result<()> {
        let found = self.meta.kind.name();
        match wanted {
            Some(wanted) if wanted != found => Err(self.mismatch("kind", wanted, found)),
            _ => Ok(()),
        }
    }

    /// The error of a filter that differs from what the caller asks for.
    pub(crate) fn mismatch(&self, what: &str, expected: &str, found: &str) -> Error {
        Error::Mismatch {
            path: self.media.path().to_path_buf(),
            what: what.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        }
    }
}
