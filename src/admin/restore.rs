//! A new filter from a backup, or from the files of one that no process has open.

use crate::admin::look::Look;
use crate::admin::second_copies::{Second, copy_file};
use crate::admin::verify::is_about_files;
use crate::archive::keep_setting;
use crate::engine::lifecycle::open::{read_meta, write_new};
use crate::engine::temporary_files::write_file;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::locks::holder_names::locked;
use crate::media::{Disk, Media};
use crate::options::Keep;
use crate::recovery::log_reader::LogReader;
use crate::recovery::make_durable::make_durable;
use crate::recovery::{KnownExtent, Listing, rebuild_in_memory};
use std::path::Path;

/// Creates a filter in a new directory from a backup (or from any filter that no process has open),
/// after checking that its state can be rebuilt in full. Of a damaged backup that has not been
/// opened for writing since, its second copy is used: a file that is damaged, missing or unreadable
/// takes nothing away.
///
/// The new filter keeps as much log as the other one
/// ([`Options::keep_log`](crate::Options::keep_log)), and begins with none. From a backup that an
/// earlier build has made, which does not say how much, it keeps none.
///
/// # Errors
/// [`Error::NotAFilter`], [`Error::Locked`], [`Error::Damaged`], [`Error::Exists`], [`Error::Io`].
/// `dir` is damaged if a call that made a filter there was killed: remove it, and repeat the call.
pub fn restore(from: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<()> {
    let from = Disk::new(from.as_ref());
    let to = Disk::for_copy_of(dir.as_ref(), &from);
    let second = Second(&from);
    match restore_on(&from, &to) {
        Err(error)
            if (is_about_files(&error) || matches!(error, Error::Io { .. }))
                && second.is_current().unwrap_or(false) =>
        {
            // If both are damaged, the first is the one to report.
            restore_on(&second, &to).map_err(|_| error)
        }
        restored => restored,
    }
}

/// As [`restore`], from these media, without a second copy.
///
/// # Errors
/// As [`restore`].
pub fn restore_on(from: &dyn Media, to: &dyn Media) -> Result<()> {
    let meta = read_meta(from)?;
    let look = Look::begin(from, &meta)?;
    if let KnownExtent::WritersLive { .. } = look.known {
        return Err(locked(from.path()));
    }
    let recovered = rebuild_in_memory(from, &meta, look.known, &|| {})?;
    write_new(to, |locks| {
        let listing = &recovered.listing;
        // Others are not needed, and may be damaged.
        let used = listing.snapshots.iter().filter(|&&start| start == recovered.start);
        let snapshots = used.map(|&start| FileName::Snapshot { start });
        let segments = listing.segments.iter();
        let segments = segments.map(|&(timeline, first)| FileName::Segment { timeline, first });
        for name in snapshots.chain(segments) {
            let name = name.to_string();
            copy_file(from, to, &name).map_err(Error::io("copy", from.path().join(&name)))?;
            locks.note_progress();
        }
        // Only the image, which is not copied, accounts for slots that dead writers left empty:
        // fill them.
        let copied = Listing::read(to)?;
        let history = LogReader::open(to, &copied, meta.log_uuid)?;
        let advance = || locks.note_progress();
        make_durable(&history, to, (recovered.start, 0), &recovered.prefix, &advance)?;
        if look.is_over(from, &meta)? {
            return Err(locked(from.path()));
        }
        let keep = keep_of(from);
        if keep != Keep::Nothing {
            let text = keep_setting::encode(keep);
            write_file(to, 0, &FileName::Keep.to_string(), &text)?;
        }
        // The names of the copies: a power cut could leave `meta` without one of them.
        to.sync().map_err(Error::io("sync", to.path()))?;
        // Last, because it makes the directory a filter.
        write_file(to, 0, &FileName::Meta.to_string(), &meta.encode())
    })
}

/// Returns how much log a filter keeps, in a backup also by the second copy of the file that says
/// so. If neither can be read, that is no reason to have no filter.
fn keep_of(from: &dyn Media) -> Keep {
    let found = keep_setting::read_if_there(from).ok().flatten();
    found.or_else(|| keep_setting::read(&Second(from)).ok()).unwrap_or(Keep::Nothing)
}
