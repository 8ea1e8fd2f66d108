//! The files of the log from before an alteration, which recovery does not read any more.
//!
//! The number of a log has two halves: a hash of the number of the log before it, and random bits.
//! So the files of the log before are recognised, and so are those of an alteration that did not
//! come to its end.

use crate::archive::revisions::{Revision, Revisions};
use crate::archive::{keep_setting, kept_files};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::format::names::FileName;
use crate::media::Media;
use crate::meta::Meta;
use crate::options::Keep;
use crate::recovery::Listing;
use crate::recovery::removal::remove_for_good;
use crate::wal::segment::owner;
use ebbtide_core::hash::mix;

/// Returns the half that identifies the log before.
fn mark(before: u128) -> u64 {
    mix(mix(before as u64) ^ (before >> 64) as u64)
}

/// Returns the number of a log that follows another one, from a random number.
#[must_use]
pub fn next_log(before: u128, random: u64) -> u128 {
    u128::from(mark(before)) << 64 | u128::from(random)
}

/// Returns whether a log follows another one directly.
#[must_use]
pub fn follows(log: u128, before: u128) -> bool {
    (log >> 64) as u64 == mark(before)
}

/// Removes the files of alterations that did not come to their end. The caller holds the opening
/// byte.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub fn remove_unfinished(
    media: &dyn Media,
    meta: &Meta,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<()> {
    let listing = Listing::of_filter(media, meta.log_uuid)?;
    let is_unfinished = |file: &&FileName| {
        owner(media, &file.to_string()).is_some_and(|log| follows(log, meta.log_uuid))
    };
    let files: Vec<_> = listing.others.iter().filter(is_unfinished).copied().collect();
    let metas = listing
        .kept_metas
        .iter()
        .map(|kept| FileName::KeptMeta { since: kept.since, until: kept.until });
    let is_now = |file: &FileName| {
        Meta::read_named(media, *file).is_ok_and(|kept| kept.log_uuid == meta.log_uuid)
    };
    let metas: Vec<_> = metas.filter(is_now).collect();
    remove_for_good(media, files.into_iter().chain(metas), numbers)
}

/// Keeps the files of the log from before the latest alterations, or removes them. Several handles
/// may do that at once.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub fn put_away(
    media: &dyn Media,
    meta: &Meta,
    (keep, second): (Keep, u64),
    numbers: impl IntoIterator<Item = u64>,
) -> Result<()> {
    let listing = Listing::of_filter(media, meta.log_uuid)?;
    let files = left(media, meta, &listing)?;
    if keep == Keep::Nothing || files.is_empty() {
        return remove_for_good(media, files, numbers);
    }
    let (mut numbers, known) = (numbers.into_iter(), Revisions::read(media, meta)?.readable);
    let (ahead, files): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| is_ahead(media, &known, *file));
    remove_for_good(media, ahead, &mut numbers)?;
    kept_files::keep(media, &files, second, &listing, numbers)
}

/// Returns whether a file is a segment that was allocated ahead, behind the last record of its log.
/// Kept, it would lie between that log and the one after it.
fn is_ahead(media: &dyn Media, known: &[Revision], file: FileName) -> bool {
    let FileName::Segment { first, .. } = file else { return false };
    let log = owner(media, &file.to_string());
    let is_its = |revision: &&Revision| Some(revision.meta.log_uuid) == log;
    known.iter().find(is_its).and_then(|revision| revision.end).is_some_and(|end| first >= end)
}

/// Returns the files of the log from before alterations that were not put away, by the kept files
/// `meta`. Also those whose former `meta` is damaged are recognised, by the number of the log after
/// them.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub fn left(media: &dyn Media, meta: &Meta, listing: &Listing) -> Result<Vec<FileName>> {
    if listing.others.is_empty() {
        return Ok(Vec::new());
    }
    let known = Revisions::read(media, meta)?.readable;
    let is_of = |log| {
        known.iter().map(|revision| revision.meta.log_uuid).any(|of| of == log || follows(of, log))
    };
    let is_former = |file: &&FileName| owner(media, &file.to_string()).is_some_and(is_of);
    Ok(listing.others.iter().filter(is_former).copied().collect())
}

/// Removes the oldest part of what is only kept, on a full disk. Log from before an alteration that
/// was not put away belongs to it. Returns whether there was any.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub fn remove_oldest(
    media: &dyn Media,
    meta: &Meta,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<bool> {
    let (mut numbers, listing) = (numbers.into_iter(), Listing::of_filter(media, meta.log_uuid)?);
    let left = left(media, meta, &listing)?;
    if left.is_empty() {
        return kept_files::remove_oldest(media, meta, numbers);
    }
    let (keep, second) = (keep_setting::wished(media), Timestamp::now().as_unix_millis() / 1000);
    match put_away(media, meta, (keep, second), &mut numbers) {
        Ok(()) if keep == Keep::Nothing => Ok(true),
        Ok(()) => kept_files::remove_oldest(media, meta, numbers),
        // The disk takes no name any more. What is kept goes first, because it is older, and
        // otherwise would lie before a gap; some of that log may have a second name by now.
        Err(error) if error.is_full() => {
            let mut listing = Listing::of_filter(media, meta.log_uuid)?;
            listing.leave_irregular(media);
            remove_for_good(media, listing.kept(), &mut numbers)?;
            let left = left.into_iter().filter(|file| listing.others.contains(file));
            remove_for_good(media, left, numbers)?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::wal::segment::{Segment, SegmentHeader};
    use crate::wal::{Op, Record, slot};

    #[test]
    fn segments_that_the_former_log_had_allocated_ahead_are_removed_and_the_others_kept() {
        let memory = Memory::new();
        memory.make().expect("a directory");
        let former = crate::meta::sample(7);
        let present = Meta { log_uuid: next_log(7, 1), ..former.clone() };
        // The former log ended with record 200, before an alteration.
        let bytes = former.encode();
        let kept = FileName::KeptMeta { since: 5, until: 201 }.to_string();
        memory
            .create(&kept, bytes.len() as u64)
            .and_then(|file| file.write_at(&bytes, 0))
            .expect("space");
        for first in [1, 101, 201, 301] {
            let (uuid, timeline, timeline_start) = (7, 1, 1);
            let header = SegmentHeader { uuid, timeline, timeline_start, first, capacity: 100 };
            let segment = Segment::create(&memory, header, first).expect("space");
            slot::publish(segment.slot(first), Record::new(Op::Insert).encode(timeline, first));
        }
        put_away(&memory, &present, (Keep::Bytes(1 << 30), 9), 50..).expect("space");
        let listing = Listing::read(&memory).expect("a directory");
        let firsts: Vec<u64> = listing.kept_segments.iter().map(|kept| kept.first).collect();
        assert_eq!(firsts, [1, 101]);
        let left = Listing::of_filter(&memory, present.log_uuid).expect("a directory");
        assert!(left.segments.is_empty() && left.others.is_empty(), "{left:?}");
    }
}
