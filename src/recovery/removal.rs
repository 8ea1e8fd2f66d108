//! Removing files permanently.
//!
//! The blocks of a removed file may be assigned to another one before the removal is on the disk
//! (ext4 mounted with `data=writeback` does so). After a power cut the name may then be back with
//! foreign content. A file that is read by its name therefore loses the name first: it is renamed
//! to a temporary file, the directory is synced, and only then is it removed. Temporary files are
//! never read.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::Media;
use crate::recovery::Listing;
use std::io::ErrorKind;

/// Removes files that are no longer needed, in this order, under temporary names with these
/// numbers; numbers in use are skipped. Stops at a missing file: another handle is removing them,
/// and the rest is left to it. Log is thus always removed from its beginning on, and the remaining
/// log has no gap.
///
/// # Errors
/// [`Error::Io`]. Files that were renamed but could not be removed remain as temporary files.
pub fn remove_for_good(
    media: &dyn Media,
    files: impl IntoIterator<Item = FileName>,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<()> {
    let mut numbers = numbers.into_iter();
    let mut temporaries = Vec::new();
    for file in files {
        let name = file.to_string();
        let renamed = numbers.by_ref().find_map(|number| {
            // Never over another one: that would remove it at once.
            match media.rename_new(&name, &FileName::Temporary(number).to_string()) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                done => Some(done.map(|()| number)),
            }
        });
        match renamed {
            Some(Ok(number)) => temporaries.push(number),
            Some(Err(error)) if error.kind() != ErrorKind::NotFound => {
                // The first error is the one to report.
                let _ = remove_temporaries(media, &temporaries);
                return Err(Error::io("remove", media.path().join(name))(error));
            }
            _ => break,
        }
    }
    remove_temporaries(media, &temporaries)
}

/// Removes all kept files, before the log below the snapshot `newest` is removed: otherwise there
/// would be a gap between the kept log and the log in use. The caller has read `newest` in full,
/// and its name is durable. Updates the listing.
///
/// A kept file may have its former name as well. If `newest` makes the file superfluous, that name
/// is removed first: otherwise the next checkpoint would keep the file again, after a gap. Files
/// that `newest` needs stay under their former names.
///
/// # Errors
/// As of [`remove_for_good`].
pub fn remove_kept(
    media: &dyn Media,
    listing: &mut Listing,
    newest: u64,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<()> {
    let mut numbers = numbers.into_iter();
    let below = listing.segments_below(newest).to_vec();
    let is_below = |file: &FileName| match *file {
        FileName::Segment { timeline, first } => below.contains(&(timeline, first)),
        FileName::Snapshot { start } => start < newest,
        _ => false,
    };
    let former: Vec<_> = listing.both_named().filter(is_below).collect();
    remove_for_good(media, former.iter().copied(), &mut numbers)?;
    listing.leave_irregular(media);
    remove_for_good(media, listing.kept(), numbers)?;
    let is_left = |file| !former.contains(&file);
    listing.segments.retain(|&(timeline, first)| is_left(FileName::Segment { timeline, first }));
    listing.snapshots.retain(|&start| is_left(FileName::Snapshot { start }));
    listing.kept_segments.clear();
    listing.kept_snapshots.clear();
    listing.kept_metas.clear();
    Ok(())
}

/// Removes the temporary files with these numbers, as far as possible. They may have had other
/// names until just before.
///
/// # Errors
/// [`Error::Io`], the first.
pub fn remove_temporaries(media: &dyn Media, numbers: &[u64]) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    media.sync().map_err(Error::io("sync", media.path()))?;
    let remove = |&number: &u64| {
        let name = FileName::Temporary(number).to_string();
        match media.remove(&name) {
            // Its creator has removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::io("remove", media.path().join(name))),
        }
    };
    numbers.iter().map(remove).fold(Ok(()), Result::and)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;

    fn with_files(names: &[FileName]) -> Memory {
        let media = Memory::new();
        media.make().expect("nothing fails yet");
        for name in names {
            media.create(&name.to_string(), 1).expect("space");
        }
        media
    }

    fn left(media: &Memory) -> Vec<String> {
        let mut names = media.list().expect("a directory");
        names.sort();
        names
    }

    #[test]
    fn temporaries_that_others_have_removed_are_no_error_and_the_rest_is_removed() {
        let media = with_files(&[1, 3, 7].map(FileName::Temporary));
        remove_temporaries(&media, &[1, 2, 3]).expect("none is in the way");
        assert_eq!(left(&media), [FileName::Temporary(7).to_string()]);
    }

    #[test]
    fn kept_files_lose_their_former_names_below_the_newest_snapshot_only() {
        let snapshot = |start| FileName::Snapshot { start };
        let kept = |start| FileName::KeptSnapshot { since: 7, start };
        let segment = |first| FileName::Segment { timeline: 1, first };
        let kept_segment = |first| FileName::KeptSegment { since: 7, timeline: 1, first };
        let names = [
            [snapshot(5), kept(5), snapshot(10), kept(10)],
            [segment(1), kept_segment(1), segment(9), kept_segment(9)],
        ];
        let media = with_files(&names.concat());
        let mut listing = Listing::read(&media).expect("a directory");
        remove_kept(&media, &mut listing, 10, 90..).expect("space");
        let mut expected = [snapshot(10), segment(9)].map(|name| name.to_string());
        expected.sort();
        assert_eq!(left(&media), expected);
        assert_eq!((&listing.snapshots[..], &listing.segments[..]), (&[10][..], &[(1, 9)][..]));
        assert!(!listing.has_kept());
    }
}
