//! A filter from the store, as a directory: now, or as of a moment.
//!
//! Whatever happens meanwhile, the target is a whole filter or none.

use crate::assemble::{Fetched, assemble, is_empty};
use crate::error::Result;
use crate::fetch_directory::{Mark, Target};
use crate::fetch_moment::fetch_moment;
use crate::store::Store;
use ebbtide::history::At;
use ebbtide::media::Disk;
use std::path::Path;
use std::sync::Arc;

/// Creates a filter in a directory, as the store has it: now, or at a moment that is kept there. It
/// keeps no log until it is opened with that option.
///
/// The directory is new, or there and empty (a mount point, or a link to a directory). It becomes a
/// filter once all of it is there; after a kill the same call begins again.
///
/// # Errors
/// [`Occupied`](crate::Error::Occupied) if the directory is not empty,
/// [`Object`](crate::Error::Object) if the store has nothing
/// that can be fetched, or it is damaged; [`Store`](crate::Error::Store),
/// [`Filter`](crate::Error::Filter).
pub async fn fetch(store: &Store, dir: impl AsRef<Path>, at: Option<At>) -> Result<Fetched> {
    let (fetched, mark) = fetch_marked(store, dir.as_ref(), at).await?;
    mark.remove()?;
    Ok(fetched)
}

/// As [`fetch`], but leaves the mark of what is not finished.
pub(crate) async fn fetch_marked(
    store: &Store,
    dir: &Path,
    at: Option<At>,
) -> Result<(Fetched, Mark)> {
    let target = Target::begin(dir)?;
    let fetched = match at {
        None => assemble(store, Arc::new(Disk::new(target.whole()))).await?,
        Some(at) => fetch_moment(store, &target, at).await?,
    };
    Ok((fetched, target.name()?))
}

/// As [`fetch`], unless the directory has a filter already, or the store has none: then nothing is
/// done, and the result is `None`. For containers whose directory may be empty.
///
/// # Errors
/// As there.
pub async fn fetch_if_empty(store: &Store, dir: impl AsRef<Path>) -> Result<Option<Fetched>> {
    let dir = dir.as_ref();
    if dir.join("meta").exists() || is_empty(store).await? {
        return Ok(None);
    }
    fetch(store, dir, None).await.map(Some)
}
