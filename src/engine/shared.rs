//! The data that every part of an open filter needs: its files, its image and its log, and the
//! checks that come before any operation.
//!
//! Each part holds an `Arc` of it. The session is dropped after everything else, because it proves
//! that the handle lives.

use crate::archive::log_before_alteration;
use crate::engine::lifecycle::closed_mark::{Busy, Closing};
use crate::engine::lifecycle::options_match;
use crate::engine::poisoned::Refusal;
use crate::error::{Error, Result};
use crate::image::{Bank, Control, Image};
use crate::locks::handle_stripes::Stripes;
use crate::locks::session_slots::Sessions;
use crate::locks::stripe_lock::Owner;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::options::{Downtime, Durability, Options};
use crate::platform::fork::Guard;
use crate::wal::{Log, Segment};
use ebbtide_core::block::Layout;
use ebbtide_core::kind::{Kind, Micros, Totals};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The distance between the shards of the first threads of two session slots.
const SHARDS_APART: usize = 3;

thread_local! {
    /// This thread's shard, in every filter. A schedule must follow from its seed, not from earlier
    /// threads.
    static SHARD: usize = match cfg!(shuttle) {
        true => 0,
        false => crate::primitives::next_number(),
    };
}

/// The private data of a stripe for this handle.
#[derive(Debug, Default)]
pub struct Local {
    /// The segment this stripe wrote to last.
    pub segment: Option<Arc<Segment>>,
}

/// What all parts of an open filter share.
pub struct Shared {
    pub(crate) media: Arc<dyn Media>,
    pub(crate) meta: Meta,
    pub(crate) options: Options,
    /// The durability of calls of this handle that name none.
    pub(crate) durability: Durability,
    pub(crate) image: Image,
    pub(crate) log: Log,
    /// The stripes' locks, without repair: see [`crate::engine::stripes`].
    pub(crate) stripes: Stripes<Local>,
    /// Properties of the kind, cached here: each operation would call it for them.
    pub(crate) uses_time: bool,
    pub(crate) counts_inserts: bool,
    pub(crate) weighs: bool,
    /// The kind's [grace](ebbtide_core::kind::Events::grace).
    pub(crate) grace: Micros,
    pub(crate) access: Access,
    /// Distinguishes a forked child from the process that opened the filter.
    pub(crate) guard: Guard,
    /// Whether the handle is closed, and the operations that must end first.
    pub(crate) closing: Closing,
    /// Why a poisoned filter refuses.
    refusal: Refusal,
    /// The proof that this handle lives. Last, so that it is dropped after everything else.
    pub(crate) slots: Arc<Sessions>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Shared");
        shown.field("path", &self.path()).field("kind", &self.kind().name());
        shown.finish_non_exhaustive()
    }
}

impl Shared {
    /// Creates the data of a handle on an image, which holds the stripes that it acquires in this
    /// session slot.
    pub(crate) fn new(
        (media, access): (Arc<dyn Media>, Access),
        (meta, options): (Meta, Options),
        (image, log): (Image, Log),
        (owner, slots): (Owner, Arc<Sessions>),
    ) -> Self {
        Self {
            stripes: Stripes::new(image.header().stripe_count(), owner),
            uses_time: meta.kind.uses_time(),
            counts_inserts: meta.kind.counts_inserts(),
            weighs: meta.kind.weights().is_some(),
            grace: meta.kind.grace(),
            durability: options.durability.unwrap_or(meta.durability),
            guard: Guard::new(),
            closing: Closing::default(),
            refusal: Refusal::new(media.path()),
            media,
            meta,
            options,
            image,
            log,
            access,
            slots,
        }
    }

    /// Returns whether the log records up to which time the filter was open.
    pub(crate) fn has_heartbeats(&self) -> bool {
        self.meta.downtime == Downtime::Freeze && self.uses_time
    }

    /// Returns the header of the image.
    #[inline]
    pub(crate) fn header(&self) -> &Control {
        self.image.header()
    }

    /// Returns how keys are divided among stripes and blocks.
    #[inline]
    pub(crate) fn layout(&self) -> Layout {
        self.image.layout()
    }

    /// Returns the stripe of a key: its share of the hashes plus 1, because stripe 0 has no keys.
    #[inline]
    pub(crate) fn stripe_of(&self, hash: u64) -> usize {
        self.layout().stripe_of(hash) + 1
    }

    /// Returns the kind of the filter.
    #[inline]
    pub(crate) fn kind(&self) -> &dyn Kind {
        &*self.meta.kind
    }

    /// Returns the filter's path, for errors and measurements.
    #[inline]
    pub(crate) fn path(&self) -> &Path {
        self.media.path()
    }

    /// Returns the hash of a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.meta.hasher.hash(key)
    }

    /// Returns a weight as the kind counts it; without one 1.
    #[inline]
    pub(crate) fn weigh(&self, given: Option<f64>) -> Result<u64> {
        given.map_or(Ok(1), |given| Ok(self.kind().weight(given)?))
    }

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
        Error::Forked { path: self.path().to_path_buf() }
    }

    /// Checks that writes are not refused; reliable under a stripe, otherwise a hint.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.header().refuses() { Err(self.refused()) } else { Ok(()) }
    }

    #[cold]
    fn refused(&self) -> Error {
        let header = self.header();
        // What happens to the old image after an alteration does not affect the filter.
        let is_poisoned = header.is_poisoned() && !header.is_altered();
        if is_poisoned { self.poisoned() } else { self.retired() }
    }

    /// Checks that no alteration has retired the image: otherwise what was just read may be old, or
    /// freed memory.
    #[inline]
    pub(crate) fn check_unaltered(&self) -> Result<()> {
        if self.header().status().answers() { Ok(()) } else { Err(self.retired()) }
    }

    /// Creates the error for a handle whose image has been retired.
    pub(crate) fn retired(&self) -> Error {
        Error::Retired { path: self.path().to_path_buf(), replaced: !self.slots.is_current() }
    }

    /// Creates the error for a call that closing does not wait for, and that finds the image
    /// retired: by others, or because its own handle was closed.
    pub(crate) fn ended(&self) -> Error {
        // Closing sets its mark before the Release in `Status::retire`: the caller's Acquire that
        // saw the image retired sees the mark, too.
        if self.is_closed() { self.closed() } else { self.retired() }
    }

    /// Removes the oldest part of the log that is only kept, on a full disk. Returns false if there
    /// is none.
    ///
    /// # Errors
    /// [`Error::Retired`] if the directory contains another filter by now, or this one after an
    /// alteration: what it keeps is not this log. [`Error::Io`].
    pub(crate) fn remove_oldest_kept(&self) -> Result<bool> {
        self.check_directory()?;
        self.check_unaltered()?;
        let numbers = std::iter::repeat_with(|| self.log.next_temporary());
        log_before_alteration::remove_oldest(&*self.media, &self.meta, numbers)
    }

    /// Checks that the directory still contains this filter. If not, the image is retired, so that
    /// all of its handles notice.
    pub(crate) fn check_directory(&self) -> Result<()> {
        if self.slots.is_current() || self.is_reader() {
            return Ok(());
        }
        self.header().retire();
        Err(self.retired())
    }

    /// Maps segments; see [`Log::map`].
    ///
    /// [`Log::map`]: crate::wal::mapped_log::Log::map
    pub(crate) fn map_log(&self, from: u64, end: u64) -> Result<Vec<Arc<Segment>>> {
        self.log.map(from, end).map_err(|error| self.or_replaced(error))
    }

    /// Returns the error to report for one of the filter's files: if the directory does not contain
    /// this filter any more, that, because the file may be another filter's.
    pub(crate) fn or_replaced(&self, error: Error) -> Error {
        self.check_directory().err().unwrap_or(error)
    }

    /// Makes all names in the directory durable. As with the log, a failed sync poisons the filter
    /// and is never repeated: the system may count the names as written, and the next sync would
    /// report success.
    pub(crate) fn sync_directory(&self) -> Result<()> {
        let synced = self.media.sync();
        if let Err(error) = synced {
            self.poison(format!("a sync of the directory failed ({error})"));
        }
        // Perhaps that of another process failed meanwhile, for the same names.
        if self.header().is_poisoned() { Err(self.refused()) } else { Ok(()) }
    }

    /// Checks that the image is not known to have lost pages.
    #[inline]
    pub(crate) fn check_trusted(&self) -> Result<()> {
        if self.header().is_distrusted() { Err(self.poisoned()) } else { Ok(()) }
    }

    /// Refuses all further writes; see [`Refusal::poison`].
    pub(crate) fn poison(&self, cause: String) {
        self.refusal.poison(&self.image, cause);
    }

    /// Creates the error for a poisoned filter.
    pub(crate) fn poisoned(&self) -> Error {
        self.refusal.error(&self.image)
    }

    /// Checks the image for lost pages; see [`Refusal::check_image`].
    pub(crate) fn check_image(&self) -> Result<()> {
        self.refusal.check_image(&self.image)
    }

    /// Checks the image for lost pages; see [`Refusal::check_copied`].
    pub(crate) fn check_copied(&self, banks: &[Arc<Bank>]) -> Result<()> {
        self.refusal.check_copied(&self.image, banks)
    }

    /// Returns whether another handle has this image open. One that has not been used since an
    /// alteration holds its slot for a former one.
    pub(crate) fn has_other_handles(&self) -> Result<bool> {
        self.slots.anyone_of(|slot| self.header().has_had_handle(slot))
    }

    /// Returns whether the handle is closed, or about to be; see [`Closing::is_closed`].
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closing.is_closed()
    }

    /// Creates the error for a closed handle.
    #[cold]
    pub(crate) fn closed(&self) -> Error {
        Error::Closed { path: self.path().to_path_buf() }
    }

    /// Creates the error for a call that must not wait, and would have to wait for this.
    #[cold]
    pub(crate) fn would_wait(&self, cause: &'static str) -> Error {
        Error::WouldWait { path: self.path().to_path_buf(), cause }
    }

    /// Checks that this process opened the handle, has not closed it, and can trust the image.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.check_process()?;
        if self.is_closed() { Err(self.closed()) } else { self.check_trusted() }
    }

    /// Begins an operation that closing waits for.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Closed`].
    pub(crate) fn enter(&self) -> Result<Busy<'_>> {
        self.check_process()?;
        self.closing.enter().ok_or_else(|| self.closed())
    }

    /// Returns the durable end: every LSN below it is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.header().durable().read()
    }

    /// Returns the shard of this thread in the counters of inserts.
    #[inline]
    pub(crate) fn shard(&self) -> usize {
        // A thread that is ending takes any. Session slots are spread, so that the first threads of
        // several processes do not collide.
        let thread = SHARD.try_with(|shard| *shard).unwrap_or(0);
        thread + SHARDS_APART * usize::from(self.stripes.owner().slot)
    }

    /// Returns the sums for decisions and answers: exact ones if the kind depends on them,
    /// otherwise an upper bound, enough for a cheap check that no step is due.
    #[inline]
    pub(crate) fn totals(&self) -> Totals {
        if self.counts_inserts {
            return self.exact_totals();
        }
        self.header().counters().at_most()
    }

    #[inline(never)] // its loop would cost every query registers
    fn exact_totals(&self) -> Totals {
        self.header().counters().sum()
    }

    /// Makes sure that the filter is of this kind, if one is wanted.
    pub(crate) fn check_kind(&self, wanted: Option<&'static str>) -> Result<()> {
        options_match::check_kind(self.path(), self.kind(), wanted)
    }

    /// Creates the error for an operation that the kind does not have.
    pub(crate) fn unsupported(&self, operation: &'static str) -> Error {
        Error::Unsupported { kind: self.kind().name(), operation }
    }
}
