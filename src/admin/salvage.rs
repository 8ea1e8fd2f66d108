//! A new filter with what a damaged one still proves ([`provable_state`]).

use crate::admin::look::Look;
use crate::admin::provable_state::{self, Beyond, Lost};
use crate::admin::second_copies::{Second, copy_file};
use crate::admin::verify::{FileReport, of_second, verify_files, verify_live, verify_on};
use crate::engine::lifecycle::open::{read_meta, write_new};
use crate::engine::temporary_files::write_file;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::locks::holder_names::locked;
use crate::media::{Disk, Media};
use crate::recovery::KnownExtent;
use std::path::Path;

/// The result of [`salvage`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Salvaged {
    /// The first LSN that was not recovered: the new filter has the state after all records below
    /// it, and its next record gets this LSN.
    pub lsn: u64,
    /// Insert operations in that state, since creation or the last clear.
    pub inserts: u64,
    /// The start of the snapshot that the state is based on; `None` if the log was complete from
    /// the beginning.
    pub snapshot: Option<u64>,
    /// Every LSN below had been acknowledged as durable, as far as the remaining files show. The
    /// log records durability with a delay, so slightly more may have been durable.
    pub durable_lsn: u64,
    /// The loss from `lsn` on; `None` if nothing indicates that the log continued there.
    pub lost: Option<Lost>,
    /// Readable data beyond `lsn` that was left out.
    pub beyond: Option<Beyond>,
    /// Damage besides the end of the readable log, file by file: unusable snapshots, newest first,
    /// segments, `live`.
    pub damaged: Vec<Error>,
}

/// Recovers the longest provable prefix of a damaged filter into a new directory, and reports what
/// is lost. The new filter has the state after the longest unbroken prefix of records. Readable
/// data beyond the damage is reported and left out, because the filter never had a state that skips
/// operations. The source is not changed and may be read-only; no process may have the filter open.
/// The new filter replaces the old one: it has the same uuid, as after
/// [`restore`](crate::inspect::restore).
///
/// Returns `None`, and writes nothing, if nothing is damaged, so that the filter opens as it is.
///
/// # Errors
/// [`Error::Damaged`] if nothing can be recovered, as without `meta`, or if this is a backup of
/// which the second copy is sound, so that
/// [`restore`](crate::inspect::restore) loses nothing; [`Error::NotAFilter`],
/// [`Error::Locked`], [`Error::Exists`], [`Error::Version`], [`Error::Io`].
pub fn salvage(from: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<Option<Salvaged>> {
    let from = Disk::new(from.as_ref());
    salvage_on(&from, &Disk::for_copy_of(dir.as_ref(), &from))
}

/// As [`salvage`], on media provided by the caller.
///
/// # Errors
/// As [`salvage`].
pub fn salvage_on(from: &dyn Media, to: &dyn Media) -> Result<Option<Salvaged>> {
    check_second(from)?;
    let meta = read_meta(from)?;
    let look = Look::begin(from, &meta)?;
    if let KnownExtent::WritersLive { .. } = look.known {
        return Err(locked(from.path()));
    }
    let mut found = provable_state::examine(from, &meta, look.known)?;
    found.damaged.extend(verify_live(from).and_then(Result::err));
    if look.is_over(from, &meta)? {
        return Err(locked(from.path()));
    }
    if !found.is_needed() {
        return Ok(None);
    }
    let inserts = write_new(to, |_locks| {
        if let Some(start) = found.snapshot {
            let name = FileName::Snapshot { start }.to_string();
            copy_file(from, to, &name).map_err(Error::io("copy", from.path().join(&name)))?;
        }
        found.write_log(from, to, &meta)?;
        let inserts = provable_state::rebuilt_inserts(to, &meta, found.stop)?;
        if look.is_over(from, &meta)? {
            return Err(locked(from.path()));
        }
        // Last, because it makes the directory a filter.
        write_file(to, 0, &FileName::Meta.to_string(), &meta.encode())?;
        Ok(inserts)
    })?;
    Ok(Some(Salvaged {
        lsn: found.stop,
        inserts,
        snapshot: found.snapshot,
        durable_lsn: found.durable,
        lost: found.lost,
        beyond: found.beyond,
        damaged: found.damaged,
    }))
}

/// Refuses to salvage a damaged backup whose second copy is sound.
fn check_second(media: &dyn Media) -> Result<()> {
    let second = Second(media);
    if !second.is_current().unwrap_or(false)
        || !verify_files(&second).is_ok_and(|report| report.is_sound())
    {
        return Ok(());
    }
    let is_damaged_first =
        |file: &&FileReport| !file.damage.is_empty() && !file.name.starts_with(&of_second(""));
    match verify_on(media)?.files.iter().find(is_damaged_first) {
        None => Ok(()),
        Some(file) => Err(Error::Damaged {
            path: media.path().to_path_buf(),
            offset: 0,
            expected: "a sound backup".to_owned(),
            found: format!("damage in `{}`", file.name),
            remedy: "nothing is lost, because its second copy is sound: `ebbtide restore` \
                     creates the filter from it",
        }),
    }
}
