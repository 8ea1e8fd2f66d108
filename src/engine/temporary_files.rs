//! Temporary files: small files of a filter's directory are written under temporary names, and what
//! processes have left is removed.

use crate::archive::keep_setting;
use crate::archive::log_before_alteration::{put_away, remove_unfinished};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::Media;
use crate::meta::Meta;
use crate::recovery::Listing;
use crate::recovery::removal::{self, remove_for_good};

/// The temporary names of the image, and of the first segment of a timeline, while a filter is
/// created or opened.
pub(crate) const LIVE_TEMPORARY: u64 = 0;
pub(crate) const SEGMENT_TEMPORARY: u64 = 2;
/// The lowest of the temporary names for files that an opener removes.
pub(crate) const LEFTOVER_TEMPORARY: u64 = 16;
/// The high half of a handle's temporary numbers is its slot plus one; in those of openers it is 0.
pub(crate) const SLOT_TEMPORARIES: u32 = 32;

/// Cleans up after alterations whose process died: removes the files of an unfinished one; keeps or
/// removes the log from before a finished one.
pub(crate) fn put_former_away(media: &dyn Media, meta: &Meta) -> Result<()> {
    let second = Timestamp::now().as_unix_millis() / 1000;
    let keep = keep_setting::wished(media);
    remove_unfinished(media, meta, LEFTOVER_TEMPORARY..)?;
    put_away(media, meta, (keep, second), LEFTOVER_TEMPORARY..)
}

/// Writes a small file atomically: it exists in full or not at all. On an error no temporary file
/// is left.
pub(crate) fn write_file(
    media: &dyn Media,
    temporary: u64,
    name: &str,
    bytes: &[u8],
) -> Result<()> {
    write_content(media, temporary, name, bytes)?;
    put_in_place(media, temporary, name).inspect_err(|_| {
        // The first error is the one to report.
        let _ = media.remove(&FileName::Temporary(temporary).to_string());
    })
}

/// Writes what a small file will contain, under a temporary name: all that [`write_file`] needs
/// space for. On an error it is removed.
pub(crate) fn write_content(
    media: &dyn Media,
    temporary: u64,
    name: &str,
    bytes: &[u8],
) -> Result<()> {
    let temporary = FileName::Temporary(temporary).to_string();
    let write = || {
        let file = media.create(&temporary, 0)?;
        file.write_at(bytes, 0).and_then(|()| file.sync()).inspect_err(|_| {
            // The first error is the one to report.
            let _ = media.remove(&temporary);
        })
    };
    write().map_err(Error::io("write", media.path().join(name)))
}

/// Gives what was [written](write_content) its name, durably.
pub(crate) fn put_in_place(media: &dyn Media, temporary: u64, name: &str) -> Result<()> {
    let temporary = FileName::Temporary(temporary).to_string();
    let named = media.rename(&temporary, name).and_then(|()| media.sync());
    named.map_err(Error::io("write", media.path().join(name)))
}

/// Removes temporary files, sockets of the dead, and the banks of an earlier image: they are never
/// read again, and the new image needs their space. (The file `live` stays: it accounts for gaps in
/// the log.)
pub(crate) fn remove_temporaries(media: &dyn Media) -> Result<()> {
    let listing = Listing::read(media)?;
    let removed = removal::remove_temporaries(media, &listing.temporaries);
    let banks = listing.banks.into_iter();
    let banks = banks.map(|(timeline, bank)| FileName::Bank { timeline, bank });
    let sockets = listing.sockets.into_iter().map(|slot| FileName::Attach { slot });
    for leftover in banks.chain(sockets) {
        // Likewise: the new image has other names.
        let _ = media.remove(&leftover.to_string());
    }
    let is_needed = |number: &u64| [LIVE_TEMPORARY, SEGMENT_TEMPORARY].contains(number);
    match removed {
        // The caller needs that name itself.
        Err(error) if Listing::read(media)?.temporaries.iter().any(is_needed) => Err(error),
        // A file that cannot be removed only takes space.
        _ => Ok(()),
    }
}

/// Removes the temporary files of the handle that had a slot before.
pub(crate) fn remove_temporaries_of(media: &dyn Media, slot: u16) -> Result<()> {
    let mut temporaries = Listing::read(media)?.temporaries;
    temporaries.retain(|number| number >> SLOT_TEMPORARIES == u64::from(slot) + 1);
    // A file that cannot be removed takes space; its number is skipped.
    let _ = removal::remove_temporaries(media, &temporaries);
    Ok(())
}

/// Removes every file of the filter except the lock.
pub(crate) fn clear(media: &dyn Media) -> Result<()> {
    let names = media.list().map_err(Error::io("list", media.path()))?;
    let ours = names.iter().filter_map(|name| FileName::parse(name));
    let ours: Vec<_> = ours.filter(|&file| file != FileName::Lock).collect();
    if ours.is_empty() {
        return Ok(());
    }
    // `meta` first, and durably: without it the rest is no filter, wherever this is interrupted.
    // Synced even if it is missing: the process that removed it may have died before the sync.
    remove_for_good(media, [FileName::Meta], LEFTOVER_TEMPORARY..)?;
    media.sync().map_err(Error::io("sync", media.path()))?;
    let rest = |file: &FileName| !matches!(file, FileName::Meta | FileName::Temporary(_));
    remove_for_good(media, ours.into_iter().filter(rest), LEFTOVER_TEMPORARY..)?;
    removal::remove_temporaries(media, &Listing::read(media)?.temporaries)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::media::failing::Failing;
    use crate::{Bloom, Filter, Options};
    use std::io::ErrorKind;
    use std::sync::Arc;

    #[test]
    fn an_opener_that_cannot_remove_a_file_in_its_way_says_so() {
        let options = || Options::new().background(false);
        let mut told = 0;
        for call in 1..40 {
            let media = Arc::new(Failing::new(Memory::new()));
            drop(Filter::create_on(media.clone(), Bloom::capacity(100), options()));
            media.create("tmp-0", 8).expect("a file that a dead opener left");
            media.fail_after(call, ErrorKind::PermissionDenied);
            let opened = Filter::<Bloom>::open_on(media, options());
            let Err(Error::Io { source, .. }) = opened else { continue };
            assert_eq!(source.kind(), ErrorKind::PermissionDenied, "call {call}: {source}");
            told += 1;
        }
        assert!(told > 5, "{told}");
    }
}
