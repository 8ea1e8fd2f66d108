//! A new filter that is what another one was at a moment of its past.

use crate::admin::look::look_at;
use crate::admin::provable_state::{rebuilt_inserts, write_log};
use crate::admin::second_copies::copy_file;
use crate::archive::At;
use crate::archive::past::{Past, of_whole_past};
use crate::engine::lifecycle::open::{read_meta, write_new};
use crate::engine::temporary_files::{clear, write_file};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Disk, Media};
use std::path::Path;

/// The result of [`restore_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The new filter has the state after all records below this LSN, and its next record gets it.
    pub lsn: u64,
    /// Insert operations in that state, since creation or the last clear.
    pub inserts: u64,
}

/// Creates a filter in a new directory that is what a filter was at a moment of its past, from the
/// log that is kept ([`Options::keep_log`](crate::Options::keep_log)). Others may write the filter
/// meanwhile. The new one has the same uuid, as after [`restore`](super::inspect::restore): it
/// replaces the filter, or is only looked at. It keeps no log until it is opened with that option.
///
/// # Errors
/// [`Error::NotKept`] if the log does not have the moment; [`Error::NotAFilter`],
/// [`Error::Locked`], [`Error::Damaged`], [`Error::Exists`], [`Error::Io`].
pub fn restore_at(from: impl AsRef<Path>, at: At, dir: impl AsRef<Path>) -> Result<Restored> {
    let from = Disk::new(from.as_ref());
    restore_at_on(&from, at, &Disk::for_copy_of(dir.as_ref(), &from))
}

/// As [`restore_at`], on media provided by the caller.
///
/// # Errors
/// As [`restore_at`].
pub fn restore_at_on(from: &dyn Media, at: At, to: &dyn Media) -> Result<Restored> {
    // Before anything is written.
    read_meta(from)?;
    write_new(to, |_locks| {
        let (restored, meta) = look_at(from, |meta, known| {
            // A repeated look begins with an empty directory.
            clear(to)?;
            let past = Past::of(from, meta, known, at).and_then(|past| {
                let meta = past.revision().meta.clone();
                Ok((past.rebuild_whole(at)?, meta))
            });
            let ((found, whole, known), meta) =
                past.map_err(|error| of_whole_past((from, meta, known), error))?;
            let (start, stop) = (found.start, found.prefix.stop);
            if found.listing.snapshots.contains(&start) {
                let name = FileName::Snapshot { start }.to_string();
                copy_file(&whole, to, &name).map_err(Error::io("copy", from.path().join(&name)))?;
            }
            let timeline = found.history.last_timeline().max(1);
            write_log((&whole, (&found.history, known)), to, &meta, (timeline, start..stop))?;
            let restored = Restored { lsn: stop, inserts: rebuilt_inserts(to, &meta, stop)? };
            Ok((restored, meta))
        })?;
        // Last, because it makes the directory a filter.
        write_file(to, 0, &FileName::Meta.to_string(), &meta.encode())?;
        Ok(restored)
    })
}
