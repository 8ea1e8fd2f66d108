//! Frees the space of log that no timeline needs: a timeline ends within a segment, the rest of
//! which is never written or read again. A timeline of a few records therefore costs two pages of
//! log.

use crate::error::Result;
use crate::media::{Access, Media};
use crate::recovery::log_reader::{LogReader, Prefix};
use crate::wal::segment::{SegmentFile, SegmentHeader};

fn open(home: &dyn Media, header: &SegmentHeader, access: Access) -> Result<SegmentFile> {
    SegmentFile::open(home, header.timeline, header.first, header.uuid, access)
}

/// Frees the space of the log beyond the end of its timeline. `stop` is the end of the last
/// timeline, which has been made durable and is followed by a new one. Errors are ignored, because
/// only space is at stake.
pub fn free_ends(home: &dyn Media, history: &LogReader, stop: u64) {
    for (timeline, _, end) in history.timelines() {
        let end = end.unwrap_or(stop);
        let of_timeline = history.segments().iter().filter(|header| header.timeline == timeline);
        for header in of_timeline.filter(|header| header.end() > end) {
            let _ = open(home, header, Access::Write).and_then(|file| file.free_from(end));
        }
    }
}

/// Frees the space after the last record of the last timeline, which was never written: the log
/// reads as before. Slots below `stop`, where the log ends, keep their space, because empty ones
/// among them will be voided.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`].
pub fn free_unwritten(home: &dyn Media, history: &LogReader, stop: u64) -> Result<()> {
    let timeline = history.last_timeline();
    for header in history.segments().iter().filter(|header| header.timeline == timeline) {
        let written = history.visit(home, header, |segment| {
            let places = segment.first()..segment.end();
            Ok(places.rev().find(|&lsn| segment.is_touched(lsn)))
        })?;
        let from = written.map_or(header.first, |last| last + 1).max(stop);
        if from < header.end() {
            open(home, header, Access::Write)?.free_from(from)?;
        }
    }
    Ok(())
}

/// Returns the number of timelines with log that is needed from `start` on, and its bytes on disk.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`].
pub fn gathered(
    home: &dyn Media,
    history: &LogReader,
    prefix: &Prefix,
    start: u64,
) -> Result<(u64, u64)> {
    let (mut timelines, mut bytes) = (0, 0);
    let mut last = None;
    let needed = |header: &&SegmentHeader| header.end() > start && header.first < prefix.stop;
    for header in history.segments().iter().filter(needed) {
        bytes += open(home, header, Access::Read)?.allocated_bytes()?;
        timelines += u64::from(last.replace(header.timeline) != Some(header.timeline));
    }
    Ok((timelines, bytes))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::recovery::Listing;
    use crate::wal::{Op, Record, Segment, slot};

    const PAGE: u64 = 4096;
    /// Records per page.
    const RECORDS: u64 = 128;

    /// Adds a segment of four pages of records, with records in these slots.
    fn add(media: &Memory, (timeline, start): (u64, u64), written: &[u64]) {
        let (timeline_start, first) = (start, start);
        let header =
            SegmentHeader { uuid: 7, timeline, timeline_start, first, capacity: 4 * RECORDS };
        let segment = Segment::create(media, header, 0).expect("space");
        for &lsn in written {
            slot::publish(segment.slot(lsn), Record::new(Op::Insert).encode(timeline, lsn));
        }
    }

    fn opened(media: &Memory) -> LogReader {
        let listing = Listing::read(media).expect("a directory");
        LogReader::open(media, &listing, 7).expect("sound headers")
    }

    fn pages(media: &Memory) -> Vec<u64> {
        let history = opened(media);
        let file = |header| open(media, header, Access::Read).expect("it is there");
        let bytes = |header| file(header).allocated_bytes().expect("it is open");
        history.segments().iter().map(|header| bytes(header) / PAGE).collect()
    }

    #[test]
    fn a_timeline_keeps_pages_to_its_end_and_the_last_one_what_was_written_or_will_be_voided() {
        let media = Memory::new();
        media.make().expect("nothing fails yet");
        add(&media, (1, 1), &[1, 2, 3, 200]);
        add(&media, (2, 4), &[4, 5]);
        assert_eq!(pages(&media), [5, 5]);
        let history = opened(&media);
        // The first timeline ends at 4; the end of the second is still unknown.
        free_ends(&media, &history, u64::MAX);
        assert_eq!(pages(&media), [2, 5]);
        free_unwritten(&media, &history, 4 + RECORDS + 1).expect("no error");
        assert_eq!(pages(&media), [2, 3], "an empty slot in the second page will be voided");
        free_unwritten(&media, &history, 6).expect("no error");
        assert_eq!(pages(&media), [2, 2]);
        let segments = history.segments();
        let read = |at: usize, lsn| {
            history.visit(&media, &segments[at], |segment| Ok(segment.is_complete(lsn)))
        };
        for (at, lsn) in [(0, 1), (0, 3), (1, 4), (1, 5)] {
            assert!(read(at, lsn).expect("it is mapped"), "{lsn}");
        }
        let prefix = Prefix { stop: 6, ..Prefix::default() };
        let found = gathered(&media, &history, &prefix, 1).expect("no error");
        assert_eq!(found, (2, 4 * PAGE));
        let prefix = Prefix { stop: 4, ..Prefix::default() };
        let found = gathered(&media, &history, &prefix, 1).expect("no error");
        assert_eq!(found, (1, 2 * PAGE), "a timeline without a record takes no log");
        let found = gathered(&media, &history, &prefix, segments[0].end()).expect("no error");
        assert_eq!(found, (0, 0), "nothing is needed of a segment that ends there");
    }

    #[test]
    fn the_last_record_keeps_its_page_wherever_the_log_stops() {
        let first_of_a_page = 1 + RECORDS;
        for stop in [1, 2, first_of_a_page, first_of_a_page + 1] {
            let media = Memory::new();
            media.make().expect("nothing fails yet");
            add(&media, (1, 1), &[1, first_of_a_page]);
            free_unwritten(&media, &opened(&media), stop).expect("no error");
            assert_eq!(pages(&media), [3], "the log stops at {stop}");
            let history = opened(&media);
            let read = history.visit(&media, &history.segments()[0], |segment| {
                Ok(segment.is_complete(first_of_a_page))
            });
            assert!(read.expect("it is mapped"));
        }
    }
}
