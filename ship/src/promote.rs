//! The promotion of a copy to the writer: what is missing is fetched, and a timeline begun. Until
//! then the filter is marked as not finished, so that the next call makes it again, unless somebody
//! has opened it.
//!
//! With a follower's copy in the directory, the copy first makes place for the filter: it gets the
//! name of the directory with `.following`, and is removed once the timeline has begun. A kill
//! leaves the copy, under one of the two names, perhaps not whole, and perhaps a filter that nobody
//! has opened yet, which the next call makes again; or else a filter that has begun, and of the
//! copy only the file that says so, which the next call removes.
//! What has the name of the copy already is never removed: the promotion is refused then.

use crate::assemble::Fetched;
use crate::error::{Error, Result};
use crate::fetch::fetch_marked;
use crate::fetch_directory::{Mark, is_finished};
use crate::files::{beside, io, remove, sync_parent};
use crate::follow::DOUBT;
use crate::follow_file::{copied_from, is_alone, leave_alone};
use crate::local_copy::{Copy, check_nothing_aside, claim};
use crate::ship_options::ShipOptions;
use crate::shipper::Shipper;
use crate::store::Store;
use ebbtide::media::Disk;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often a promotion begins again because the writer has shipped more meanwhile.
const TRIES: u32 = 10;

/// Makes a directory the writer: fetches the filter, and begins a timeline. On return every shipper
/// before is fenced, and the directory has all that they were confirmed. The directory is new, or
/// that of a [follower](crate::Follower::begin_in) of this store, which has ended: then only what
/// is missing is downloaded. After a kill the same call continues.
///
/// # Errors
/// As [`fetch`](crate::fetch()), [`Follower::begin_in`](crate::Follower::begin_in) and
/// [`Shipper::begin`]; [`Error::Refused`] if the writer ships more each time: stop it first.
pub async fn promote(
    store: &Store,
    dir: impl AsRef<Path>,
    options: ShipOptions,
) -> Result<(Fetched, Shipper)> {
    let dir = dir.as_ref();
    let aside = copy_of(store, dir).await?;
    let mut copy = match &aside {
        Some(aside) => Some(Copy::open(store.clone(), aside, DOUBT).await?),
        None => None,
    };
    let mut tries = TRIES;
    loop {
        let (fetched, mark) = match &mut copy {
            Some(copy) => fetch_copied(copy, dir).await?,
            None => fetch_marked(store, dir, None).await?,
        };
        let media = Arc::new(Disk::new(dir));
        match Shipper::begin(store.clone(), media, options.clone()).await {
            // The filter is made again.
            Err(Error::Refused { .. }) if tries > 0 => tries -= 1,
            begun => {
                let begun = begun?;
                // Until the mark is gone, the next call must find by the copy what to fetch.
                if let Some(aside) = &aside {
                    leave_alone(aside)?;
                }
                mark.remove()?;
                if let Some(aside) = &aside {
                    remove(aside)?;
                }
                return Ok((fetched, begun));
            }
        }
    }
}

/// Returns the place that the copy in a directory is of, also after a promotion of it was killed;
/// `None` if there is no copy.
///
/// # Errors
/// [`Error::Store`] if it cannot be read.
pub fn following(dir: impl AsRef<Path>) -> Result<Option<String>> {
    match copied_from(dir.as_ref())? {
        Some(from) => Ok(Some(from)),
        None => copied_from(beside(dir.as_ref(), "following")),
    }
}

/// Returns the name under which the copy of a directory makes place for the filter, if there is
/// one.
async fn copy_of(store: &Store, dir: &Path) -> Result<Option<PathBuf>> {
    let aside = beside(dir, "following");
    if copied_from(dir)?.is_some() {
        // A follower that runs would write to the name.
        let _alone = claim(store, dir).await?;
        check_nothing_aside(dir)?;
        let renamed = fs::rename(dir, &aside).and_then(|()| sync_parent(&aside));
        renamed.map_err(|error| io("rename", dir, &error))?;
    } else if copied_from(&aside)?.is_some() && is_finished(dir) && is_alone(&aside)? {
        // Of a promotion that is done but for this.
        remove(&aside)?;
    }
    Ok(copied_from(&aside)?.map(|_| aside))
}

/// Makes the filter of a copy, once the rest is there.
async fn fetch_copied(copy: &mut Copy, dir: &Path) -> Result<(Fetched, Mark)> {
    copy.doubt();
    copy.look().await?;
    match fetch_marked(copy.local(), dir, None).await {
        // A part of the copy is damaged.
        Err(error) if error.is_damage() => {
            copy.take_anew().await?;
            fetch_marked(copy.local(), dir, None).await
        }
        fetched => fetched,
    }
}
