//! The required content of a snapshot, and the effect of replay on events at the end.

use crate::options::{Downtime, Durability};
use crate::recovery::replay::*;
use crate::snapshot::FrameSeal;
use crate::snapshot::write::SnapshotWriter;
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

/// Writes the snapshot that starts at 1.
fn snapshot(media: &dyn Media, end: u64, frames: &[(Frame, &[u64])]) -> String {
    let name = FileName::Snapshot { start: 1 }.to_string();
    let mut writer = SnapshotWriter::create(media, &name, FrameSeal::new(7, 1, 1)).expect("room");
    for (frame, words) in frames {
        writer.frame(frame, words).expect("room");
    }
    let header = SnapshotHeader { uuid: 7, timeline: 1, start: 1, end, frames: 0, bytes: 0 };
    writer.finish(header).expect("room");
    name
}

/// Returns the state block of a filter whose bank has this many blocks per stripe, with this many
/// words each.
fn state(blocks: u64, block: u64) -> [u64; OWN_WORDS + STATE_WORDS] {
    let mut words = [0; OWN_WORDS + STATE_WORDS];
    words[OWN_WORDS..OWN_WORDS + 2].copy_from_slice(&[1, blocks << 32 | block]);
    words
}

fn load_into_new(media: &Arc<dyn Media>, meta: &Meta) -> Result<Image> {
    let identity = Identity {
        uuid: 7,
        timeline: 2,
        boot: 1,
        inode: 0,
        device: 0,
        stripes: 2,
        state_words: 64,
    };
    let image = Image::create(media.clone(), "image", identity, LAYOUT, &*meta.kind);
    load(&**media, meta, 1, image.expect("room"), &|| {}).map(|(image, _)| image)
}

const STATE: Frame = Frame { content: Content::State, bank: 0, index: 0, lsn: 1 };

#[test]
fn a_snapshot_that_lists_more_blocks_than_it_holds_or_none_is_damage_and_takes_no_space() {
    let meta = meta(&Bloom::capacity(100));
    for (blocks, block) in [(1 << 20, 64), (1, 64), (0, 64), (1, 0), (1, u32::MAX.into())] {
        let media = made();
        let name = snapshot(&*media, 1, &[(STATE, &state(blocks, block))]);
        let loaded = load_into_new(&media, &meta);
        assert!(matches!(loaded, Err(Error::Damaged { .. })), "{blocks} {block}: {loaded:?}");
        assert_eq!(media.list().expect("a directory"), ["image", &name], "no bank");
    }
}

#[test]
fn a_snapshot_with_frames_of_what_the_filter_has_not_is_damage() {
    let meta = meta(&Bloom::capacity(100));
    let most = OWN_WORDS + 64;
    let words: Vec<u64> = (1..).take(most + 1).collect();
    // One bank with one block per stripe. Loads these three stripes and two blocks (bank, number,
    // words).
    let loaded = |stripes: [u64; 3], sums: usize, blocks: [(u32, u64, usize); 2]| {
        let (media, state) = (made(), state(1, 64));
        let mut frames = vec![(STATE, &state[..])];
        for index in stripes {
            let content = Content::Stripe;
            frames.push((Frame { content, bank: 0, index, lsn: 5 + index % 8 }, &words[..sums]));
        }
        for (bank, index, length) in blocks {
            let content = Content::Block;
            frames.push((Frame { content, bank, index, lsn: 7 }, &words[..length]));
        }
        snapshot(&*media, 9, &frames);
        load_into_new(&media, &meta)
    };
    let (stripes, blocks) = ([2, 0, 1], [(0, 1, most), (0, 0, OWN_WORDS)]);
    let image = loaded(stripes, 3, blocks).expect("it is sound");
    for stripe in 0..3 {
        let sums = StripeSums { lsn: 5 + stripe as u64, inserts: 1, time: 2, new_bits: 3 };
        assert_eq!(image.header().stripe(stripe).sums(), sums);
    }
    let banks = image.keep_banks();
    for (index, cells) in [(0, [0, 0]), (1, [7, 70])] {
        let (header, block) = banks.get(0).expect("a bank").block(index);
        assert_eq!((header.lsn(), block.own(0), block.own(5)), (7, 1, 6));
        assert_eq!([block.word(0), block.word(63)], cells);
    }
    for (stripes, sums, blocks) in [
        ([0, 1, 3], 3, blocks),
        ([0, 1, u64::MAX], 3, blocks),
        (stripes, 2, blocks),
        (stripes, 4, blocks),
        (stripes, 3, [(0, 0, most), (0, 2, most)]),
        (stripes, 3, [(0, 0, most), (1, 1, most)]),
        (stripes, 3, [(0, 0, most), (0, 1, most + 1)]),
        (stripes, 3, [(0, 0, most), (0, 1, OWN_WORDS - 1)]),
    ] {
        let loaded = loaded(stripes, sums, blocks);
        assert!(matches!(loaded, Err(Error::Damaged { .. })), "{stripes:?} {sums} {blocks:?}");
    }
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
    let known = LogExtent::Nothing;
    replay(&**media, media, meta, "temporary", (known, true), &|| {}).expect("a sound log")
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
            snapshot(&*media, end, &[]);
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
