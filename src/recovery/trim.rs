//! Frees log space during recovery; writes a snapshot instead of an image if the disk is full.
//!
//! A timeline ends within a segment, the rest of which is never written or read again: its space is
//! freed. A session of a few records therefore costs two pages of log. If a disk is so full that
//! neither image nor segment fits, the state rebuilt in memory is written as a snapshot, and the
//! log below it is removed.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::rare_space;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::recovery::listing::Listing;
use crate::recovery::log_reader::{LogReader, Prefix};
use crate::recovery::removal::remove_for_good;
use crate::recovery::{Recovered, base::load_alone};
use crate::snapshot::copy::{self, State};
use crate::snapshot::write::SnapshotWriter;
use crate::snapshot::{ChecksumSeed, SnapshotHeader};
use crate::wal::segment::{SegmentFile, SegmentHeader};
use std::io;

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

/// Frees the space behind the last record of the last timeline, which was never written: the log
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

/// Writes the state of a filter that no process has open as a snapshot, under the temporary name
/// with this number. Then removes the log below it and all older snapshots, under temporary names
/// with higher numbers. The last `live` stays, without the space of its claims: it has the times of
/// the filter and of leases, and the slots of the handles of images before it.
///
/// # Errors
/// [`Error::Io`], including a full disk: the temporary file is then removed, and nothing has
/// changed.
pub fn write_snapshot(home: &dyn Media, meta: &Meta, state: &Recovered, number: u64) -> Result<()> {
    // The log must reach through the end of every snapshot.
    state.history.make_durable(home, (state.start, state.durable), &state.prefix)?;
    rare_space::free_claims_of_last(home, meta.uuid);
    let temporary = FileName::Temporary(number).to_string();
    let start = state.prefix.stop;
    let name = FileName::Snapshot { start }.to_string();
    let written = write(home, meta, state, &temporary).and_then(|()| {
        home.rename(&temporary, &name)?;
        home.sync()
    });
    if let Err(error) = written {
        // The first error is the one to report.
        let _ = home.remove(&temporary);
        return Err(Error::io("write", home.path().join(name))(error));
    }
    // Nothing is removed before its replacement was read.
    load_alone(home, meta, start)?;
    let listing = Listing::of_filter(home, meta.log_uuid)?;
    let older = listing.snapshots.iter().filter(|&&older| older < start);
    let older = older.map(|&start| FileName::Snapshot { start });
    let segments = listing.segments_below(start).iter();
    let segments = segments.map(|&(timeline, first)| FileName::Segment { timeline, first });
    remove_for_good(home, older.chain(segments), number + 1..)
}

fn write(home: &dyn Media, meta: &Meta, state: &Recovered, temporary: &str) -> io::Result<()> {
    let (kind, image, stop) = (&*meta.kind, &state.image, state.prefix.stop);
    let timeline = state.history.last_timeline();
    let seed = ChecksumSeed::new(meta.log_uuid, timeline, stop);
    let mut writer = SnapshotWriter::create(home, temporary, seed)?;
    let state = State::copy(image).map_err(io::Error::from)?;
    copy::save(&mut writer, (kind, image), &state, |_| Ok(()), || ())?;
    let (uuid, start, end) = (meta.log_uuid, stop, stop);
    writer.finish(SnapshotHeader { uuid, timeline, start, end, frames: 0, bytes: 0 }).map(|_| ())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::recovery::{KnownExtent, rebuild_in_memory};
    use crate::wal::{Op, Record, Segment, slot};
    use crate::{Bloom, Filter, Options};
    use std::sync::Arc;

    const PAGE: u64 = 4096;
    /// Records per page.
    const RECORDS: u64 = 128;

    #[test]
    fn a_snapshot_in_the_space_of_the_log_removes_no_image() {
        for is_altered in [false, true] {
            let media = Arc::new(Memory::new());
            let options = Options::new().background(false);
            let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options);
            let filter = filter.expect("a filter");
            assert!(filter.insert("key").expect("an insert"));
            let shared = &filter.engine().shared;
            let status = shared.header().status();
            if is_altered {
                status.retire_to_alter()
            } else {
                status.retire()
            }
            let (meta, home): (_, &dyn Media) = (&shared.meta, &*media);
            let state =
                rebuild_in_memory(home, meta, KnownExtent::Nothing, &|| ()).expect("sound files");
            write_snapshot(home, meta, &state, 90).expect("space");
            let names = media.list().expect("a directory");
            assert!(names.iter().any(|name| name == "live"));
            assert!(names.iter().any(|name| name.starts_with("snap-")));
        }
    }

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
    }
}
