//! The effect of replay on events at the end, and what it leaves over.

use crate::media::Memory;
use crate::options::{Downtime, Durability};
use crate::recovery::rebuild::*;
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::{ChecksumSeed, SnapshotHeader};
use crate::wal::segment::SegmentHeader;
use crate::wal::{Op, Record, Segment, slot};
use crate::{Bloom, Spec, TimeLimited};
use ebbtide_core::block::Layout;
use ebbtide_core::event;
use ebbtide_core::hash::{KeyHash, KeyHasher};
use ebbtide_core::identity;
use ebbtide_core::kind::Event;
use std::time::Duration;

const LAYOUT: Layout = Layout { stripes: 2, block_words: 64 };

fn meta(spec: &impl Spec) -> Meta {
    let (hasher, kind) = (KeyHasher::new(KeyHash::Fast, 7), spec.kind().expect("a kind"));
    Meta {
        identity: identity::Identity { uuid: 7, hasher, layout: LAYOUT, max_lead: 1_000_000, kind },
        log_uuid: 7,
        segment_records: 128,
        durability: Durability::Never,
        downtime: Downtime::Age,
    }
}

fn made() -> Arc<dyn Media> {
    let media = Memory::with_capacity(1 << 20);
    media.make().expect("nothing fails");
    Arc::new(media)
}

/// Writes a snapshot without frames, which starts at 1.
fn snapshot(media: &dyn Media, end: u64) {
    let name = FileName::Snapshot { start: 1 }.to_string();
    let writer = SnapshotWriter::create(media, &name, ChecksumSeed::new(7, 1, 1)).expect("room");
    let header = SnapshotHeader { uuid: 7, timeline: 1, start: 1, end, frames: 0, bytes: 0 };
    writer.finish(header).expect("room");
}

/// Creates the log of the first timeline from this LSN on: a segment that begins with these
/// records.
fn log(media: &dyn Media, first: u64, records: &[Record]) {
    let header = SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first, capacity: 128 };
    let segment = Segment::create(media, header, 0).expect("room");
    for (lsn, record) in (first..).zip(records) {
        slot::publish(segment.slot(lsn), record.encode(1, lsn));
    }
}

fn replayed(media: &Arc<dyn Media>, meta: &Meta) -> Recovered {
    let known = KnownExtent::Nothing;
    rebuild(&**media, media, meta, "temporary", (known, true), &|| {}).expect("a sound log")
}

#[test]
fn an_event_that_nothing_follows_has_not_happened_unless_a_snapshot_saw_it() {
    let meta = meta(&TimeLimited::window(Duration::from_secs(64)).rate(1.0));
    let step = event::to_record(&Event::Step { step: 9, time: 5, word: 0 }, false);
    // A snapshot that does not load, but was begun before the event and ended after it.
    for (end, stop) in [(None, 2), (Some(2), 2), (Some(3), 3)] {
        let media = made();
        log(&*media, 1, &[Record::new(Op::Insert), step]);
        if let Some(end) = end {
            snapshot(&*media, end);
        }
        let recovered = replayed(&media, &meta);
        let applied = recovered.image.last_change();
        assert_eq!((recovered.prefix.stop, applied), (stop, stop - 1), "{end:?}");
    }
}

#[test]
fn what_is_left_over_are_the_segments_from_the_stop_on_and_the_banks_that_are_not_of_the_image() {
    let (media, meta) = (made(), meta(&Bloom::capacity(100)));
    log(&*media, 1, &[Record::new(Op::Insert); 128]);
    log(&*media, 129, &[]);
    let recovered = replayed(&media, &meta);
    assert_eq!(recovered.prefix.stop, 129);
    let bank = |timeline, bank| FileName::Bank { timeline, bank };
    let strange = [bank(1, 0), bank(2, 5), bank(3, 0)];
    for name in strange {
        media.create(&name.to_string(), 8).expect("room");
    }
    let mut left = recovered.leftovers(&*media).expect("a directory");
    left.sort_unstable();
    let mut expected = [&[FileName::Segment { timeline: 1, first: 129 }], &strange[..]].concat();
    expected.sort_unstable();
    assert_eq!(left, expected, "the image has bank 0 of timeline 2");
}
