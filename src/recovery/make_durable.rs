//! Making the log below a new timeline durable, as a whole before the timeline begins, and as far
//! as possible while recovery reads it.

use crate::error::{Error, Result};
use crate::media::{Access, Media};
use crate::primitives::Hint;
use crate::recovery::log_reader::{LogReader, Prefix};
use crate::wal::segment::{SegmentFile, SegmentHeader};

/// A log of at least this many bytes is made durable while it is read.
const LONG: u64 = 64 << 20;

/// Voids the gaps and syncs the prefix from `from` on, segment by segment, so that a new timeline
/// may build on it. Pages from `durable` on
/// ([`KnownExtent::made_durable`](crate::recovery::KnownExtent::made_durable); 0 for copies) are
/// dirtied first: a failed sync may have marked them clean. The file is opened before that, so this
/// descriptor receives a write error. Pages below `durable` are synced too, because another program
/// may have rewritten them.
///
/// # Errors
/// [`Error::Io`]; then nothing may build on the prefix.
pub fn make_durable(
    history: &LogReader,
    media: &dyn Media,
    (from, durable): (u64, u64),
    prefix: &Prefix,
) -> Result<()> {
    for (header, end) in history.from(from).filter(|(header, _)| header.first < prefix.stop) {
        let records = header.first..end.min(prefix.stop);
        let is_whole = end <= prefix.stop && !prefix.gaps.iter().any(|lsn| records.contains(lsn));
        if !is_whole || !history.synced().lock().contains(&header.first) {
            sync_segment(media, header, (from, durable), (records.end, &prefix.gaps))?;
        }
    }
    Ok(())
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
    segment.dirty(from.max(durable), end);
    segment.sync().map_err(Error::io("sync", header.path(media.path())))
}
