//! Opening a filter on a full disk: removes files until there is space for a new timeline.
//!
//! `full_disk_while_writing` lists the other places where a full disk is handled.

use crate::archive::log_before_alteration;
use crate::engine::temporary_files::{LEFTOVER_TEMPORARY, put_former_away};
use crate::error::{Error, Result};
use crate::locks::session_slots::Sessions;
use crate::media::Media;
use crate::meta::Meta;
use crate::recovery::{
    KnownExtent, Listing, Recovered, free_log, make_durable, rebuild_in_memory,
    snapshot_on_full_disk,
};

/// Begins a timeline although there was no space (the error `full`). Frees, in turn, log from
/// before an alteration, log that is only kept, log that no timeline needs, the fallback base, and
/// at last all log, once the state is written as a snapshot.
pub(crate) fn begin_in_space_of_log(
    media: &dyn Media,
    meta: &Meta,
    (known, slots): (KnownExtent, &Sessions),
    full: Error,
    begin: impl Fn() -> Result<Recovered>,
) -> Result<Recovered> {
    // Where memory cannot hold the state either, the disk is what the caller can change.
    let rebuild = || match rebuild_in_memory(media, meta, known, &|| slots.note_progress()) {
        Err(error) if error.is_out_of_memory() => Ok(None),
        rebuilt => rebuilt.map(Some),
    };
    // The rename of `meta` by an alteration may not be durable yet, and the filter needs the log of
    // the `meta` that it has after a power cut.
    media.sync().map_err(Error::io("sync", media.path()))?;
    if !Listing::of_filter(media, meta.log_uuid)?.others.is_empty() {
        // If the disk refuses the names for it, the next step removes it.
        let _ = put_former_away(media, meta);
        match begin() {
            Err(error) if error.is_full() => {}
            begun => return begun,
        }
    }
    while log_before_alteration::remove_oldest(media, meta, LEFTOVER_TEMPORARY..)? {
        match begin() {
            Err(error) if error.is_full() => {}
            begun => return begun,
        }
    }
    let Some(proven) = rebuild()? else { return Err(full) };
    if let KnownExtent::Nothing = known {
        // Before anything is removed that a copy needs after a power cut.
        let files = (&proven.history, &proven.listing);
        match make_durable::sync_copies(media, files, &|| slots.note_progress()) {
            Err(error) if error.is_full() => return Err(full),
            synced => synced?,
        }
    }
    free_log::free_ends(media, &proven.history, u64::MAX);
    // Errors are ignored, because only space is at stake.
    let _ = free_log::free_unwritten(media, &proven.history, proven.prefix.stop);
    proven.remove_fallback_base(media, LEFTOVER_TEMPORARY..)?;
    match begin() {
        Err(error) if error.is_full() => {}
        begun => return begun,
    }
    let Some(proven) = rebuild()? else { return Err(full) };
    // Nothing is removed that only looks damaged, or that an older snapshot would need instead.
    if !proven.unsound.is_empty() {
        return Err(full);
    }
    let advance = || slots.note_progress();
    match snapshot_on_full_disk::write_snapshot(media, meta, &proven, LEFTOVER_TEMPORARY, &advance)
    {
        Err(error) if error.is_full() => return Err(full),
        written => written?,
    }
    drop(proven);
    begin()
}
