//! Syncs of the log: a segment's mapping, and whether a sync of it has failed.
//!
//! The system reports a failed sync once, to one caller, and then counts the pages as clean. So
//! after a failure all later syncs of the segment fail, too. Who calls them:
//! `engine::log::group_commit` for callers, and `recovery::make_durable` before a new timeline.

use crate::format::header::PAGE_WORDS;
use crate::media::{Mapped, MediaFile};
use crate::primitives::{AtomicU64, Mutex};
use crate::wal::slot;
use std::io;
use std::ops::Range;

/// The outcome of the syncs through one open file.
#[derive(Debug, Default)]
struct Syncs {
    /// Whether there was one: from then on the system reports every failed sync of the file.
    begun: bool,
    /// Whether one has failed. The system reports that only once.
    failed: bool,
}

/// A mapping that can be synced.
#[derive(Debug)]
pub(super) struct SyncedMapping {
    /// The file, if the mapping cannot be synced without it. If it can, the file is closed: mapped
    /// segments then need no descriptors.
    file: Option<Box<dyn MediaFile>>,
    mapping: Mapped,
    syncs: Mutex<Syncs>,
}

impl SyncedMapping {
    /// Takes a mapping of this file.
    pub(super) fn new(file: Box<dyn MediaFile>, mapping: Mapped) -> Self {
        let file = (!file.maps_with_sync()).then_some(file);
        Self { file, mapping, syncs: Mutex::default() }
    }

    /// Returns the mapping.
    pub(super) fn mapping(&self) -> &Mapped {
        &self.mapping
    }

    /// Returns the words of the file.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// Makes this many words durable, from the beginning of the file on.
    ///
    /// # Errors
    /// The system's error, or that of an earlier sync.
    pub(super) fn sync(&self, words: usize) -> io::Result<()> {
        // One at a time: otherwise one sync could consume the report of another's failure, and the
        // other would succeed.
        let mut syncs = self.syncs.lock();
        if syncs.failed {
            return Err(io::Error::other("an earlier sync of the segment failed"));
        }
        syncs.begun = true;
        let synced = match &self.file {
            Some(file) => self.mapping.write_back(words).and_then(|()| file.sync()),
            None => self.mapping.sync(words),
        };
        syncs.failed = synced.is_err();
        synced
    }

    /// Checks that the system could write back all stores since the file was opened here.
    ///
    /// # Errors
    /// The system's error, of a write-back, or that of an earlier sync.
    pub(super) fn check_written(&self) -> io::Result<()> {
        let mut syncs = self.syncs.lock();
        if syncs.failed {
            return Err(io::Error::other("an earlier sync of the segment failed"));
        }
        let file = self.file.as_ref();
        let written =
            file.map_or_else(|| self.mapping.check_written(), |file| file.check_written());
        // The system reports it only once.
        syncs.failed = written.is_err();
        written
    }

    /// Returns whether it has been synced since it was opened here.
    pub(super) fn was_synced(&self) -> bool {
        self.syncs.lock().begun
    }

    /// Stores to one word of the first page and of each page with these words without changing it,
    /// so that the next sync writes the pages even if an earlier, failed one marked them clean.
    pub(super) fn dirty(&self, words: Range<usize>) {
        // Touches only these pages: others may have no space for a store.
        let Range { start, end } = words;
        let dirtied = if start < end { start / PAGE_WORDS..end.div_ceil(PAGE_WORDS) } else { 0..0 };
        let pages = self.words().chunks(PAGE_WORDS).enumerate();
        for (_, words) in pages.filter(|(at, _)| *at == 0 || dirtied.contains(at)) {
            slot::touch(&words[0]);
        }
    }
}
