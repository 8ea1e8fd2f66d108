//! What every write of a handle uses, whether it writes one record or a batch.

use crate::engine::checkpoints::backpressure::{Backpressure, Waited};
use crate::engine::log::append::{Lack, LogWriter};
use crate::engine::log::group_commit::GroupCommit;
use crate::engine::log::space::LogSpace;
use crate::engine::read::query::Queries;
use crate::engine::shared::Shared;
use crate::engine::stripes::StripeLocks;
use crate::engine::time::filter_time::Time;
use crate::engine::time::lease_time::Leases;
use crate::engine::write::full_disk_while_writing::make_space;
use crate::engine::write::request::Waits;
use crate::error::Result;
use ebbtide_core::block::prefetch_write;
use std::sync::Arc;

/// The outcome of an attempt to write. The attempt takes its stripes and releases them.
#[derive(Debug)]
pub(crate) enum Tried<T> {
    Done(T),
    /// It must be repeated, and nothing has happened: others have written meanwhile, banks had to
    /// be mapped, or the clock was read too long ago.
    Again,
    /// Nothing has happened.
    NoRoom(Lack),
}

impl<T> Tried<T> {
    /// Returns this outcome with another value of what is done.
    pub(crate) fn map<U>(self, value: impl FnOnce(T) -> U) -> Tried<U> {
        match self {
            Self::Done(done) => Tried::Done(value(done)),
            Self::Again => Tried::Again,
            Self::NoRoom(lack) => Tried::NoRoom(lack),
        }
    }
}

/// The parts of a handle that writes use.
#[derive(Debug)]
pub struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) time: Arc<Time>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) backpressure: Arc<Backpressure>,
    pub(crate) log_space: Arc<LogSpace>,
    pub(crate) log_writer: Arc<LogWriter>,
    pub(crate) commits: Arc<GroupCommit>,
    pub(crate) stripes: Arc<StripeLocks>,
    pub(crate) queries: Queries,
}

impl Writer {
    /// As [`Queries::prefetch`] for an insert, which also changes memory that another core may have
    /// changed last.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, hash: u64) {
        if self.shared.image.recent_banks().prefetches() {
            self.prefetch_words(hash);
        }
    }

    #[inline(never)]
    fn prefetch_words(&self, hash: u64) {
        if self.shared.check_process().is_err() {
            return;
        }
        let banks = self.shared.image.recent_banks();
        let stripe = self.shared.stripe_of(hash);
        prefetch_write(self.shared.header().stripe(stripe).lock_word());
        let located = banks.locate_to_read(hash);
        located.prefetch_headers_to_write();
        self.shared.kind().prefetch(&located.blocks, hash);
    }

    /// Prefetches what inserts of these keys will probably touch beyond what
    /// [`Writer::prefetch_to_write`] has prefetched for all of them before.
    pub(crate) fn prefetch_further(&self, hashes: &[u64]) {
        // It reads words: a forked child has no mapping, and an altered image no memory, of which a
        // read would take some again.
        if self.shared.check_usable().is_err() || self.shared.header().is_altered() {
            return;
        }
        let banks = self.shared.image.recent_banks();
        if banks.prefetches() {
            for &hash in hashes {
                let located = banks.locate_to_read(hash);
                self.shared.kind().prefetch_further(&located.blocks, hash);
            }
        }
    }

    /// Waits for a checkpoint that must come before further records.
    #[inline]
    pub(crate) fn wait_for_checkpoint(&self, waits: Waits) -> Result<()> {
        if !self.backpressure.is_requested() {
            return Ok(());
        }
        if waits.never() {
            return Err(self.shared.would_wait("a checkpoint"));
        }
        // Removed files take space for as long as this handle has them mapped.
        self.log_space.unmap_durable();
        self.backpressure.wait();
        Ok(())
    }

    /// Repeats an attempt to write until it is done: allocates the log that it lacks, and waits
    /// for checkpoints, which free space on a full disk.
    pub(crate) fn while_space_is_made<T>(
        &self,
        waits: Waits,
        mut attempt: impl FnMut() -> Result<Tried<T>>,
    ) -> Result<T> {
        self.shared.check_usable()?;
        let mut waited = Waited::default();
        loop {
            self.wait_for_checkpoint(waits)?;
            match attempt() {
                Ok(Tried::Done(done)) => return Ok(done),
                undone => self.before_next_attempt(undone, waits, &mut waited)?,
            }
        }
    }

    /// After an attempt to write that changed nothing, makes the room or the space that it lacked,
    /// so that the next one can succeed. The caller holds no stripe.
    ///
    /// # Errors
    /// That of the attempt, if another one is of no use.
    #[cold]
    pub(crate) fn before_next_attempt<T>(
        &self,
        undone: Result<Tried<T>>,
        waits: Waits,
        waited: &mut Waited,
    ) -> Result<()> {
        let made = match undone {
            Ok(Tried::NoRoom(lack)) => self.extend_log(waits, lack),
            // `Again`: there is nothing to do.
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        made.or_else(|error| make_space((&self.shared, &self.backpressure), error, waited))
    }

    /// Extends the mapped log by the slots that an attempt lacks: this may take two syncs.
    fn extend_log(&self, waits: Waits, lack: Lack) -> Result<()> {
        if waits.never() {
            return Err(self.shared.would_wait("more log to be allocated"));
        }
        // Closing waits until this is done.
        let _busy = self.shared.enter()?;
        let log = &self.shared.log;
        self.log_space.map_ahead()?;
        if log.mapped_end() > lack.end {
            // Others have allocated more: it may be enough.
            return Ok(());
        }
        let wanted = self.shared.header().tail().hint().saturating_add(lack.slots);
        // At least one slot more than there was: another writer may take what there is.
        while log.common_end() < wanted || log.mapped_end() <= lack.end {
            self.log_space.extend(log.mapped_end())?;
        }
        Ok(())
    }
}
