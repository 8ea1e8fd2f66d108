//! The base of recovery: the state from which the log is replayed.
//!
//! It is the newest valid snapshot; or the filter as it was created, if the log still has all
//! records. The *fallback base* is the one before it, which is only used if the newest snapshot is
//! damaged.

use crate::error::{Error, Result};
use crate::image::Image;
use crate::image::identity::Identity;
use crate::media::{Media, Memory};
use crate::meta::Meta;
use crate::recovery::listing::Listing;
use crate::recovery::log_reader::LogReader;
use crate::snapshot::SnapshotHeader;
use crate::snapshot::load::load;
use std::sync::Arc;

/// An image with the state of the base.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) image: Image,
    /// The LSN where replay begins.
    pub(super) start: u64,
    /// The LSN up to which the log must reach: some copies may be that recent.
    pub(super) end: u64,
    /// The timeline in which it was written.
    pub(super) timeline: u64,
    /// Unusable snapshots (by start), with the reason.
    pub(super) unsound: Vec<(u64, Error)>,
}

/// Chooses the base and loads it into an image that `create` makes. `live`: the image's medium and
/// temporary name.
pub(super) fn choose(
    (home, meta, listing, history): (&dyn Media, &Meta, &Listing, &LogReader),
    create: &dyn Fn() -> Result<Image>,
    live: (&dyn Media, &str),
    advance: &dyn Fn(),
) -> Result<Base> {
    let mut unsound = Vec::new();
    let newest = listing.snapshots.iter().find_map(|&start| {
        let load = |image| load((home, meta.log_uuid, start), &*meta.kind, image, advance);
        create().and_then(load).map_err(|error| discard(live, (start, error), &mut unsound)).ok()
    });
    // A full disk is no reason to fall back to an older state.
    let fatal = |error: &Error| !matches!(error, Error::Damaged { .. } | Error::Version { .. });
    if let Some(at) = unsound.iter().position(|(_, error)| fatal(error)) {
        return Err(unsound.swap_remove(at).1);
    }
    if let Some((image, SnapshotHeader { start, end, timeline, .. })) = newest {
        return Ok(Base { image, start, end, timeline, unsound });
    }
    let has_all = history.segments().first().is_some_and(|segment| segment.first == 1);
    if let (false, false) = (has_all, unsound.is_empty()) {
        return Err(unsound.swap_remove(0).1);
    }
    let image = create()?;
    image.start(&*meta.kind)?;
    Ok(Base { image, start: 1, end: 1, timeline: 1, unsound })
}

/// Removes the leftovers of a failed attempt and keeps its error.
fn discard(
    (live, temporary): (&dyn Media, &str),
    failed: (u64, Error),
    unsound: &mut Vec<(u64, Error)>,
) {
    // If it cannot be removed, creating the next temporary file reports it.
    let _ = live.remove(temporary);
    unsound.push(failed);
}

/// Loads a snapshot into memory, which proves that it is valid and fits the filter. Calls `advance`
/// for each of its parts.
pub(crate) fn load_alone(
    home: &dyn Media,
    meta: &Meta,
    start: u64,
    advance: &dyn Fn(),
) -> Result<SnapshotHeader> {
    let image = Image::create(memory()?, "image", identity(meta, 1, 0), meta.layout, &*meta.kind)?;
    Ok(load((home, meta.log_uuid, start), &*meta.kind, image, advance)?.1)
}

/// Returns the identity of an image of this filter.
pub(super) fn identity(meta: &Meta, timeline: u64, boot: u128) -> Identity {
    let (uuid, stripes, state_words) =
        (meta.uuid, meta.layout.stripes, meta.kind.state_words() as u32);
    Identity { uuid, timeline, boot, inode: 0, device: 0, stripes, state_words }
}

/// Returns an empty directory in memory.
pub(super) fn memory() -> Result<Arc<dyn Media>> {
    let memory: Arc<dyn Media> = Arc::new(Memory::new());
    memory.make().map_err(Error::io("make", memory.path()))?;
    Ok(memory)
}
