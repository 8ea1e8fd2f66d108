//! The engine of an open filter: a list of parts, each of which uses only parts below it.
//!
//! - Life of a handle: `open` creates and opens filters, `full_disk_at_open` opens one where there
//!   is no space, `alter` continues one with other parameters, `snapshot_of_memory` writes the new
//!   state as a snapshot, `close` waits for operations in progress, `maintenance` has the
//!   background tasks of a filter. They work on an [`Engine`], which holds all parts of a handle.
//! - Writes: `write` inserts and removes one key by one record; `write_with_events` does so with
//!   the events that must come first; `operation` is what both decide on, and how a record is
//!   applied. `batch` commits batches of the caller; `batch_before_commit` is one before its
//!   commit, `staging` decides its records, `overlay` shows blocks as they leave them.
//!   `commit_staged` appends and applies what was staged. `claims` gives keys to workers. `clear`
//!   removes all keys. `stripe_0_records` appends heartbeats, clears and records of claims.
//!   `writer` is what all of them use, and `full_disk_for_writers` frees space for them.
//! - Questions: `read` answers, `infer` computes posteriors, `distinct` counts the keys, `details`
//!   and `stats` report figures.
//! - Snapshots: `checkpoint` writes them, `checkpoint_due` says when, `reclaim_disk` removes what
//!   they make superfluous, `backpressure` makes writers wait for one.
//! - The log: `log_writer` appends to it, `log_space` maps and allocates it, `group_commit` makes
//!   it durable, `tickets` tells callers when what they did is durable, `ticket_list` is the list
//!   of those that wait.
//! - Time: `time` is the filter's, `clock_to_time` converts readings of the clock into it, also
//!   over restarts and reboots, `clock_copy` serves operations that are not written yet; `leases`
//!   is the time of leases, and says which claims are held. No other module reads the clock of the
//!   filter.
//! - Common: `stripes` acquires stripes, `dead_owners` says who died and repairs what they left;
//!   `wakeup` wakes a `task` of `background_threads`; `shared` holds what all parts need;
//!   `poisoned` says why writes are refused, and checks that the image was written back;
//!   `small_files` has small and temporary files, `vacant_directory` checks a directory before a
//!   filter is created, `options_match` the options of an existing one; `closing` is the mark of a
//!   closed handle, `outcome` an operation and its outcome.
//!
//! `tests/layers` keeps the order.

#[cfg(not(loom))]
pub mod alter;
#[cfg(not(shuttle))]
pub mod background_threads;
#[cfg(shuttle)]
#[path = "scheduled_tasks.rs"]
pub mod background_threads;
pub mod backpressure;
pub mod batch;
pub mod batch_before_commit;
pub mod checkpoint;
pub mod checkpoint_due;
pub mod claims;
pub mod clear;
pub mod clock_copy;
pub mod clock_to_time;
pub mod close;
pub mod closing;
pub mod commit_staged;
pub mod dead_owners;
pub mod details;
pub mod distinct;
pub mod full_disk_at_open;
pub mod full_disk_for_writers;
pub mod group_commit;
pub mod infer;
pub mod leases;
pub mod log_space;
pub mod log_writer;
pub mod maintenance;
pub mod open;
pub mod operation;
pub mod options_match;
pub mod outcome;
pub mod overlay;
pub mod poisoned;
pub mod read;
pub mod reclaim_disk;
pub mod shared;
pub mod small_files;
#[cfg(not(loom))]
pub mod snapshot_of_memory;
pub mod staging;
pub mod stats;
pub mod stripe_0_records;
pub mod stripes;
pub mod task;
pub mod ticket_list;
pub mod tickets;
pub mod time;
pub mod vacant_directory;
pub mod wakeup;
pub mod write;
pub mod write_with_events;
pub mod writer;

use crate::engine::backpressure::Backpressure;
use crate::engine::checkpoint::Checkpoints;
use crate::engine::clock_to_time::TimeBase;
use crate::engine::details::Details;
use crate::engine::group_commit::GroupCommit;
use crate::engine::leases::{LeaseBase, Leases};
use crate::engine::log_space::LogSpace;
use crate::engine::log_writer::LogWriter;
use crate::engine::read::Queries;
use crate::engine::reclaim_disk::Reclaim;
use crate::engine::shared::Shared;
use crate::engine::stats::{Digest, Stat};
use crate::engine::stripes::StripeLocks;
use crate::engine::tickets::Tickets;
use crate::engine::time::Time;
use crate::engine::wakeup::Wakeup;
use crate::engine::writer::Writer;
use crate::error::Result;
use crate::image::Control;
use ebbtide_core::claims::HeldClaim;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// An open filter: its parts, from the lowest to the highest.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) time: Arc<Time>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) backpressure: Arc<Backpressure>,
    pub(crate) log_space: Arc<LogSpace>,
    pub(crate) commits: Arc<GroupCommit>,
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) stripes: Arc<StripeLocks>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) queries: Queries,
    pub(crate) writer: Writer,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Engine {
    /// Returns the header of the image.
    #[inline]
    pub(crate) fn header(&self) -> &Control {
        self.shared.header()
    }

    /// Returns the filter's path.
    #[inline]
    pub(crate) fn path(&self) -> &Path {
        self.shared.path()
    }

    /// Returns the positions of all sources, by source, after the repair of what dead owners left.
    pub(crate) fn positions(&self) -> Vec<(u64, u64)> {
        let positions = self.shared.header().positions();
        loop {
            let before = positions.all();
            // The keys of their batches may be in stripes that nobody has used since.
            self.stripes.repair_all();
            if positions.all() == before {
                return before;
            }
        }
    }

    /// Returns all claims, held or not, after the repair of what dead owners left.
    pub(crate) fn claims(&self) -> Vec<HeldClaim> {
        self.stripes.repair_all();
        self.shared.header().claims().all()
    }

    /// Creates the parts of a handle.
    pub(crate) fn new(shared: Shared, (base, leases): (TimeBase, LeaseBase)) -> Self {
        let shared = Arc::new(shared);
        let time = Arc::new(Time::new(shared.clone(), base));
        let leases = Arc::new(Leases::new(shared.clone(), leases));
        let wakeup = Arc::new(Wakeup::new(shared.durability));
        let backpressure = Arc::new(Backpressure::new(shared.clone(), wakeup.clone()));
        let log_space = Arc::new(LogSpace::new(shared.clone(), backpressure.clone()));
        let log_writer =
            Arc::new(LogWriter::new(shared.clone(), wakeup.clone(), backpressure.clone()));
        let commits = Arc::new(GroupCommit::new(
            shared.clone(),
            wakeup.clone(),
            log_space.clone(),
            log_writer.clone(),
        ));
        let tickets = Arc::new(Tickets::new(shared.clone(), commits.clone()));
        let stripes = Arc::new(StripeLocks::new(shared.clone(), time.clone()));
        let reclaim = Reclaim::new(shared.clone(), backpressure.clone(), log_space.clone());
        let checkpoints = Checkpoints::new(
            shared.clone(),
            backpressure.clone(),
            commits.clone(),
            stripes.clone(),
            reclaim,
        );
        let queries = Queries::new(shared.clone(), time.clone(), stripes.clone());
        let writer = Writer {
            shared: shared.clone(),
            time: time.clone(),
            leases: leases.clone(),
            backpressure: backpressure.clone(),
            log_space: log_space.clone(),
            log_writer,
            commits: commits.clone(),
            stripes: stripes.clone(),
            queries: queries.clone(),
        };
        Self {
            shared,
            time,
            leases,
            wakeup,
            backpressure,
            log_space,
            commits,
            tickets,
            stripes,
            checkpoints,
            queries,
            writer,
        }
    }

    /// Returns statistics; see [`stats::stat`].
    pub(crate) fn stat(&self) -> Result<Stat> {
        stats::stat(&self.shared, &self.time, &self.leases)
    }

    /// Returns figures for operators; see [`details::details`].
    pub(crate) fn details(&self) -> Result<Details> {
        details::details(&self.shared, &self.time)
    }

    /// Returns a hash of the logical state; see [`stats::digest`].
    pub(crate) fn digest(&self) -> Result<Digest> {
        stats::digest(&self.shared, &self.stripes)
    }
}
