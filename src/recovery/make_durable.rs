//! Making the log below a new timeline durable, as a whole before the timeline begins, and as far
//! as possible while recovery reads it.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Access, Media, MediaFile};
use crate::primitives::Hint;
use crate::recovery::listing::Listing;
use crate::recovery::log_reader::{LogReader, Prefix};
use crate::wal::segment::{SegmentFile, SegmentHeader};
use std::io;

/// A log of at least this many bytes is made durable while it is read.
const LONG: u64 = 64 << 20;

/// A longer file is written in pieces of this many bytes before it is synced.
const PIECE: u64 = 64 << 20;

/// Voids the gaps and syncs the prefix from `from` on, segment by segment, so that a new timeline
/// may build on it. Pages from `durable` on
/// ([`KnownExtent::made_durable`](crate::recovery::KnownExtent::made_durable); 0 for copies) are
/// dirtied first: a failed sync may have marked them clean. The file is opened before that, so this
/// descriptor receives a write error. Pages below `durable` are synced too, because another program
/// may have rewritten them. Calls `advance` after each segment.
///
/// # Errors
/// [`Error::Io`]; then nothing may build on the prefix.
pub fn make_durable(
    history: &LogReader,
    media: &dyn Media,
    (from, durable): (u64, u64),
    prefix: &Prefix,
    advance: &dyn Fn(),
) -> Result<()> {
    for (header, end) in history.from(from).filter(|(header, _)| header.first < prefix.stop) {
        let records = header.first..end.min(prefix.stop);
        let is_whole = end <= prefix.stop && !prefix.gaps.iter().any(|lsn| records.contains(lsn));
        if !is_whole || !history.synced().lock().contains(&header.first) {
            sync_segment(media, header, (from, durable), (records.end, &prefix.gaps))?;
        }
        advance();
    }
    Ok(())
}

/// Syncs `meta`, the snapshots and the log as they are: another program, which does not sync, may
/// have copied them. `advance` is called from time to time, because other processes may wait.
///
/// # Errors
/// [`Error::Io`].
pub fn sync_copies(
    media: &dyn Media,
    (history, listing): (&LogReader, &Listing),
    advance: &dyn Fn(),
) -> Result<()> {
    for header in history.segments() {
        let (timeline, first, uuid) = (header.timeline, header.first, header.uuid);
        let file = SegmentFile::open(media, timeline, first, uuid, Access::Write)?;
        let synced = file.map(Access::Write)?.sync();
        synced.map_err(Error::io("sync", header.path(media.path())))?;
        advance();
    }
    let snapshots = listing.snapshots.iter();
    let snapshots = snapshots.map(|&start| FileName::Snapshot { start });
    for file in snapshots.chain([FileName::Meta]) {
        let name = file.to_string();
        let file = match media.open(&name, Access::Read) {
            Ok(file) => file,
            // It was not read: an older snapshot, or `meta` of a new filter.
            Err(error) if is_no_file(error.kind()) => continue,
            Err(error) => return Err(Error::io("open", media.path().join(name))(error)),
        };
        sync_in_pieces(&*file, advance).map_err(Error::io("sync", media.path().join(name)))?;
        advance();
    }
    Ok(())
}

/// Returns whether an error says that recovery cannot have read a file.
fn is_no_file(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied};
    matches!(kind, NotFound | InvalidInput | PermissionDenied)
}

/// Syncs a file of any length.
fn sync_in_pieces(file: &dyn MediaFile, advance: &dyn Fn()) -> io::Result<()> {
    let bytes = file.bytes()?;
    for piece in (0..bytes).step_by(PIECE as usize) {
        file.write_out(piece..bytes.min(piece + PIECE), true)?;
        advance();
    }
    file.sync()
}

/// Makes the segments before the last durable while the log is read, until `enough` is set. Errors
/// are ignored: [`make_durable`] syncs every segment that is missing here.
pub fn sync_ahead(
    history: &LogReader,
    media: &dyn Media,
    (from, durable): (u64, u64),
    enough: &Hint,
) {
    for (header, end) in before_last(history, from) {
        let synced = || sync_segment(media, header, (from, durable), (end, &[]));
        if enough.get() != 0 || synced().is_err() {
            return;
        }
        history.synced().lock().push(header.first);
    }
}

/// Returns whether there is so much log from this LSN on that it should be made durable ahead.
pub fn is_long(history: &LogReader, from: u64) -> bool {
    before_last(history, from).map(|(header, _)| header.bytes()).sum::<u64>() >= LONG
}

/// Returns the segments of [`LogReader::from`], except the last.
fn before_last(history: &LogReader, from: u64) -> impl Iterator<Item = (&SegmentHeader, u64)> {
    let needed = history.from(from);
    let last = needed.clone().count().saturating_sub(1);
    needed.take(last)
}

/// Makes the records of a segment below `end` durable, with these gaps voided.
fn sync_segment(
    media: &dyn Media,
    header: &SegmentHeader,
    (from, durable): (u64, u64),
    (end, gaps): (u64, &[u64]),
) -> Result<()> {
    let (timeline, first, uuid) = (header.timeline, header.first, header.uuid);
    let file = SegmentFile::open(media, timeline, first, uuid, Access::Write)?;
    if file.allocated_bytes()? < header.bytes() {
        // A copy of the file may have holes instead of zero pages.
        file.allocate(from.clamp(first, end), end)?;
    }
    let segment = file.map(Access::Write)?;
    for &lsn in gaps.iter().filter(|&&lsn| segment.holds(lsn) && lsn < end) {
        segment.void(lsn);
    }
    let dirtied = from.max(durable).max(first)..end;
    segment.dirty(dirtied.start, end);
    // They were clean since a sync that failed, and may have been dropped since they were read.
    // From now on they stay.
    if let Some(lsn) = dirtied.clone().find(|&lsn| !segment.is_complete(lsn)) {
        return Err(Error::Damaged {
            path: header.path(media.path()),
            offset: header.offset(lsn),
            expected: format!("record {lsn}, which was read"),
            found: "an empty slot: the system could not write it back, and dropped it".into(),
            remedy: "open the filter again: what it has then is what the disk has",
        });
    }
    segment.sync().map_err(Error::io("sync", header.path(media.path())))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::recovery::Listing;
    use crate::wal::{Op, Record, Segment, slot};

    #[test]
    fn a_record_that_is_no_longer_there_after_it_was_read_is_an_error_above_the_durable_end() {
        let media = Memory::new();
        media.make().expect("nothing fails yet");
        let header =
            SegmentHeader { uuid: 7, timeline: 2, timeline_start: 5, first: 5, capacity: 256 };
        let segment = Segment::create(&media, header, 0).expect("space");
        // Record 8 was dropped with its page.
        for lsn in [5, 6, 7, 9] {
            slot::publish(segment.slot(lsn), Record::new(Op::Insert).encode(2, lsn));
        }
        let listing = Listing::read(&media).expect("a directory");
        let history = LogReader::open(&media, &listing, 7).expect("sound headers");
        let make = |durable, stop, gaps: &[u64]| {
            let prefix = Prefix { stop, gaps: gaps.to_vec(), records: stop - 5 };
            make_durable(&history, &media, (5, durable), &prefix, &|| ())
        };
        make(0, 8, &[]).expect("they are there");
        let Err(Error::Damaged { offset, .. }) = make(0, 10, &[]) else { panic!("it is missing") };
        assert_eq!(offset, header.offset(8));
        make(9, 10, &[]).expect("below the durable end, a sync has succeeded");
        make(0, 10, &[8]).expect("a slot that was read as empty is voided");
    }
}
