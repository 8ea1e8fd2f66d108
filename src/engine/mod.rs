//! The engine of an open filter: a list of parts, each of which uses only parts below it.
//!
//! | folder | what |
//! |---|---|
//! | `lifecycle` | opens, alters and closes a filter |
//! | `write` | writes one operation: decides under the stripe, records, applies |
//! | `batch` | writes records of which all take effect, or none |
//! | `read` | answers questions, counts keys, reports figures |
//! | `checkpoints` | writes snapshots, and removes what they make superfluous |
//! | `log` | appends to the log, allocates it, makes it durable |
//! | `time` | the filter's time, and that of leases |
//! | `background` | the tasks of the background threads |
//!
//! All of them use `stripes`, which acquires stripes; `dead_owners` says who died and repairs what
//! they left. `shared` holds what all parts need; `poisoned` says why writes are refused, and
//! checks that the image was written back; `temporary_files` writes small files under
//! temporary names, and removes what was left.
//!
//! `tests/layers` keeps the order.

pub mod background;
pub mod batch;
pub mod checkpoints;
pub mod dead_owners;
pub mod lifecycle;
pub mod log;
pub mod poisoned;
pub mod read;
pub mod shared;
pub mod stripes;
pub mod temporary_files;
pub mod time;
pub mod write;

use crate::engine::background::wakeup::Wakeup;
use crate::engine::checkpoints::backpressure::Backpressure;
use crate::engine::checkpoints::checkpoint::Checkpoints;
use crate::engine::checkpoints::reclaim_disk::Reclaim;
use crate::engine::log::append::LogWriter;
use crate::engine::log::group_commit::GroupCommit;
use crate::engine::log::space::LogSpace;
use crate::engine::log::tickets::Tickets;
use crate::engine::read::details::Details;
use crate::engine::read::query::Queries;
use crate::engine::read::stats::{Digest, Stat};
use crate::engine::shared::Shared;
use crate::engine::stripes::StripeLocks;
use crate::engine::time::filter_time::Time;
use crate::engine::time::lease_time::{LeaseBase, Leases};
use crate::engine::time::time_over_reboots::TimeBase;
use crate::engine::write::writer::Writer;
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
    pub(crate) fn positions(&self) -> Result<Vec<(u64, u64)>> {
        self.queries.check()?;
        let positions = self.shared.header().positions();
        loop {
            let before = positions.all();
            // The keys of their batches may be in stripes that nobody has used since.
            self.stripes.repair_all()?;
            if positions.all() == before {
                return Ok(before);
            }
        }
    }

    /// Returns all claims, held or not, after the repair of what dead owners left.
    pub(crate) fn claims(&self) -> Result<Vec<HeldClaim>> {
        self.queries.check()?;
        self.stripes.repair_all()?;
        Ok(self.shared.header().claims().all())
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

    /// Returns statistics; see [`read::stats::stat`].
    pub(crate) fn stat(&self) -> Result<Stat> {
        read::stats::stat(&self.shared, &self.time, &self.leases)
    }

    /// Returns figures for operators; see [`read::details::details`].
    pub(crate) fn details(&self) -> Result<Details> {
        read::details::details(&self.shared, &self.time)
    }

    /// Returns a hash of the logical state; see [`read::stats::digest`].
    pub(crate) fn digest(&self) -> Result<Digest> {
        read::stats::digest(&self.shared, &self.stripes)
    }
}
