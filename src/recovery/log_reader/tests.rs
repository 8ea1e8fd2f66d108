//! Where the log ends, and what is damage.

use crate::format::names::FileName;
use crate::media::Memory;
use crate::primitives::Ordering;
use crate::recovery::log_reader::*;
use crate::recovery::make_durable;
use crate::wal::slot;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;
use std::cell::Cell;

const UUID: u128 = 7;

/// Adds a segment with these slots: timeline, start of the timeline, first LSN; slots with a record
/// are published.
fn add(
    media: &Memory,
    (timeline, timeline_start, first): (u64, u64, u64),
    places: &[Option<Record>],
) {
    let capacity = places.len() as u64;
    let header = SegmentHeader { uuid: UUID, timeline, timeline_start, first, capacity };
    let segment = Segment::create(media, header, 0).expect("space");
    for (lsn, record) in (first..).zip(places) {
        if let Some(record) = record {
            slot::publish(segment.slot(lsn), record.encode(timeline, lsn));
        }
    }
}

fn made() -> Memory {
    let media = Memory::new();
    media.make().expect("nothing fails yet");
    media
}

const INSERT: Option<Record> = Some(Record { argument: 1, payload: 99, ..Record::new(Op::Insert) });

fn note(payload: u64) -> Option<Record> {
    let op = Op::Durable;
    Some(Record { payload, ..Record::new(op) })
}

fn open(media: &Memory) -> Result<LogReader> {
    let listing = Listing::read(media).expect("a directory");
    LogReader::open(media, &listing, UUID)
}

fn read(media: &Memory, known: KnownExtent) -> Result<Prefix> {
    open(media)?.read(media, 1, known, |_, _, _| Ok(()))
}

#[test]
fn a_prefix_that_ends_earlier_has_the_gaps_below_its_end() {
    let mut prefix = Prefix { stop: 20, gaps: vec![3, 9, 10, 15], records: 19 };
    prefix.end_at(10);
    assert_eq!((prefix.stop, prefix.gaps), (10, vec![3, 9]));
}

#[test]
fn segments_that_are_held_can_be_read_when_their_files_are_gone_and_no_others_are_held() {
    let media = made();
    for first in [1, 5, 9] {
        add(&media, (1, 1, first), &[INSERT; 4]);
    }
    let held = |from: u64, limit: u64| {
        let mut history = open(&media).expect("sound headers");
        history.end_at(limit);
        history.hold(&media, from).expect("they are there");
        history.held().map(Segment::first).collect::<Vec<_>>()
    };
    for (from, expected) in
        [(1, &[1, 5, 9][..]), (4, &[1, 5, 9]), (5, &[5, 9]), (8, &[5, 9]), (9, &[9]), (13, &[])]
    {
        assert_eq!(held(from, u64::MAX), expected, "from {from}");
    }
    for (limit, expected) in [(1, &[][..]), (2, &[1]), (5, &[1]), (6, &[1, 5]), (10, &[1, 5, 9])] {
        assert_eq!(held(1, limit), expected, "below {limit}");
    }
    let mut history = open(&media).expect("sound headers");
    history.hold(&media, 5).expect("they are there");
    for first in [1, 5, 9] {
        let name = FileName::Segment { timeline: 1, first }.to_string();
        media.remove(&name).expect("it is there");
    }
    let mut found = Vec::new();
    let known = KnownExtent::Nothing;
    let read = history.read(&media, 5, known, |_, lsn, _| {
        found.push(lsn);
        Ok(())
    });
    assert_eq!(read.expect("it is held").stop, 13);
    assert_eq!(found, (5..13).collect::<Vec<_>>());
}

#[test]
fn segments_of_a_timeline_must_agree_on_its_start() {
    let media = made();
    add(&media, (1, 1, 1), &[INSERT; 4]);
    add(&media, (2, 5, 5), &[INSERT; 4]);
    assert!(open(&media).is_ok(), "another timeline begins elsewhere");
    add(&media, (2, 6, 9), &[INSERT; 4]);
    let Err(Error::Damaged { offset, found, .. }) = open(&media) else {
        panic!("two starts of one timeline");
    };
    assert_eq!((offset, found.as_str()), (40, "6"));
}

#[test]
fn a_note_beyond_the_end_tells_of_damage_only_if_more_was_durable_than_is_left() {
    for (durable, sound) in [(3, true), (4, true), (5, false), (6, false), (7, true)] {
        let media = made();
        add(&media, (1, 1, 1), &[INSERT, INSERT, INSERT, None, INSERT, note(durable)]);
        let read = read(&media, KnownExtent::Nothing);
        assert_eq!(read.is_ok(), sound, "a note at LSN 6 that all below {durable} is durable");
        if let Ok(prefix) = read {
            assert_eq!((prefix.stop, prefix.records), (4, 3));
        }
    }
}

#[test]
fn below_what_the_live_image_knows_nothing_may_be_missing() {
    let media = made();
    add(&media, (1, 1, 1), &[INSERT; 4]);
    for (known, sound) in [(3, true), (5, true), (6, false)] {
        let living = KnownExtent::WritersLive { timeline: 1, durable: known };
        assert_eq!(read(&media, living).is_ok(), sound, "durable below {known}");
        let died =
            KnownExtent::WritersDied { timeline: 1, tail: known, durable: known, unfinished: 0 };
        assert_eq!(read(&media, died).is_ok(), sound, "reserved below {known}");
    }
}

#[test]
fn what_is_known_of_a_timeline_holds_for_the_one_before_it_and_no_later_one() {
    let media = made();
    add(&media, (2, 1, 1), &[INSERT, None, None, None]);
    let known = |timeline, end| {
        let living = KnownExtent::WritersLive { timeline, durable: end };
        let lost = KnownExtent::DeviceLost { timeline, durable: end };
        let died = KnownExtent::WritersDied { timeline, tail: end, durable: end, unfinished: 0 };
        [living, lost, died]
    };
    // A timeline without log began at 2, or at 4.
    for known in known(1, 4).into_iter().chain(known(3, 2)) {
        assert_eq!(read(&media, known).expect("the log's end").stop, 2);
    }
    for known in known(3, 4) {
        let error = read(&media, known).expect_err("a record is missing");
        assert!(error.is_damage(), "{error}");
    }
    let died =
        |unfinished| KnownExtent::WritersDied { timeline: 2, tail: 4, durable: 2, unfinished };
    let prefix = read(&media, died(2)).expect("two places of writers that died");
    assert_eq!((prefix.stop, prefix.gaps), (4, vec![2, 3]));
    let prefix = read(&media, died(1)).expect("what was durable");
    assert_eq!((prefix.stop, prefix.gaps), (2, vec![]));
    assert!(read(&media, KnownExtent::WritersLive { timeline: 2, durable: 4 }).is_err());
}

#[test]
fn an_empty_slot_below_the_durable_end_is_damage_wherever_reading_ends() {
    let media = made();
    add(&media, (1, 1, 1), &[INSERT, None, INSERT, INSERT]);
    let living = KnownExtent::WritersLive { timeline: 1, durable: 5 };
    let died = |durable| KnownExtent::WritersDied { timeline: 1, tail: 5, durable, unfinished: 3 };
    let lost = KnownExtent::DeviceLost { timeline: 1, durable: 5 };
    for limit in [3, 4, 5, u64::MAX] {
        let read = |known| {
            let history = open(&media).expect("sound headers");
            history.end_at(limit);
            history.read(&media, 1, known, |_, _, _| Ok(()))
        };
        for known in [living, died(3), died(5), lost] {
            let error = read(known).expect_err("its record was durable");
            assert!(error.is_damage(), "{error}");
        }
        let prefix = read(died(2)).expect("a writer that died");
        assert_eq!((prefix.stop, prefix.gaps), (limit.min(5), vec![2]), "{limit}");
    }
}

#[test]
fn more_empty_slots_than_dead_writers_can_leave_are_damage_also_where_reading_ends_early() {
    let media = made();
    add(&media, (1, 1, 1), &[INSERT, None, None, INSERT, INSERT]);
    let history = open(&media).expect("sound headers");
    history.end_at(4);
    let known = KnownExtent::WritersDied { timeline: 1, tail: 6, durable: 2, unfinished: 1 };
    // What was not durable may be lost with the device: then the log ends at the first of them.
    let prefix = history.read(&media, 1, known, |_, _, _| Ok(())).expect("what was durable");
    assert_eq!((prefix.stop, prefix.gaps), (2, vec![]));
}

#[test]
fn a_timeline_ends_where_the_next_begins_whatever_lies_beyond() {
    let media = made();
    add(&media, (1, 1, 1), &[INSERT; 4]);
    add(&media, (1, 1, 5), &[INSERT; 4]);
    add(&media, (2, 3, 3), &[INSERT, INSERT, None, None]);
    let history = open(&media).expect("sound headers");
    let mut seen = Vec::new();
    let read = history.read(&media, 1, KnownExtent::Nothing, |timeline, lsn, _| {
        seen.push((timeline, lsn));
        Ok(())
    });
    assert_eq!(read.expect("no damage").stop, 5);
    assert_eq!(seen, [(1, 1), (1, 2), (2, 3), (2, 4)]);
    let timelines: Vec<_> = history.timelines().collect();
    assert_eq!(timelines, [(1, 1, Some(3)), (2, 3, None)]);
}

#[test]
fn of_a_device_that_went_and_came_back_what_was_durable_must_be_there_and_the_rest_ends_at_a_hole()
{
    let media = made();
    let places = [INSERT, INSERT, INSERT, None, None, INSERT, INSERT, None];
    add(&media, (1, 1, 1), &places);
    let died = |durable, unfinished| {
        read(&media, KnownExtent::WritersDied { timeline: 1, tail: 9, durable, unfinished })
    };
    let prefix = died(1, 3).expect("three writers that died");
    assert_eq!((prefix.stop, prefix.gaps), (9, vec![4, 5, 8]));
    for durable in 1..=4 {
        let prefix = died(durable, 2).expect("all that was durable is there");
        assert_eq!((prefix.stop, prefix.gaps), (4, vec![]), "durable below {durable}");
    }
    for durable in 5..=7 {
        assert!(died(durable, 0).is_err(), "durable below {durable}");
    }
    // One empty slot more than writers had reserved, and a record of the durable end.
    let media = made();
    add(&media, (1, 1, 1), &[INSERT, INSERT, None, INSERT, note(4), None]);
    let known = KnownExtent::WritersDied { timeline: 1, tail: 7, durable: 2, unfinished: 1 };
    assert!(read(&media, known).is_err());
}

#[test]
fn only_records_below_the_durable_end_of_the_last_timeline_count_as_durable() {
    let died = KnownExtent::WritersDied { timeline: 2, durable: 10, tail: 20, unfinished: 1 };
    assert_eq!(died.made_durable(2), 10);
    assert_eq!(died.made_durable(3), 0, "a later timeline has begun");
    assert_eq!(KnownExtent::DeviceLost { timeline: 2, durable: 10 }.made_durable(2), 0);
    // To its readers, `durable` is what is published.
    assert_eq!(KnownExtent::WritersLive { timeline: 2, durable: 10 }.made_durable(2), 0);
    assert_eq!(KnownExtent::Nothing.made_durable(2), 0);
}

/// Returns the bytes on the disk of each segment.
fn allocated(media: &Memory, history: &LogReader) -> Vec<u64> {
    let of = |header: &SegmentHeader| {
        SegmentFile::open(media, header.timeline, header.first, UUID, Access::Read)?
            .allocated_bytes()
    };
    history.segments().iter().map(|header| of(header).expect("it is there")).collect()
}

#[test]
fn space_behind_the_end_of_a_timeline_that_was_freed_is_not_allocated_again() {
    const PAGE: u64 = 128;
    let media = made();
    let capacity = 4 * PAGE as usize;
    let with = |count: usize| (0..capacity).map(move |at| INSERT.filter(|_| at < count));
    add(&media, (1, 1, 1), &with(10).collect::<Vec<_>>());
    add(&media, (2, 11, 11), &with(capacity).collect::<Vec<_>>());
    add(&media, (2, 11, 11 + 4 * PAGE), &with(5).collect::<Vec<_>>());
    // Allocated ahead, and left behind the end of its timeline.
    add(&media, (1, 1, 1 + 4 * PAGE), &with(0).collect::<Vec<_>>());
    let history = open(&media).expect("sound headers");
    crate::recovery::free_log::free_ends(&media, &history, u64::MAX);
    let before = allocated(&media, &history);
    assert!(before[0] < before[2], "{before:?}");
    let prefix = history.read(&media, 1, KnownExtent::Nothing, |_, _, _| Ok(()));
    let prefix = prefix.expect("the log is sound");
    assert_eq!(prefix.stop, 11 + 4 * PAGE + 5);
    let enough = Hint::new(1);
    make_durable::sync_ahead(&history, &media, (1, 0), &enough);
    assert!(history.synced().lock().is_empty(), "it is ended");
    make_durable::sync_ahead(&history, &media, (1, 0), &Hint::default());
    assert_eq!(*history.synced().lock(), [1, 11], "all but the last one that is needed");
    assert_eq!(allocated(&media, &history), before);
    let advanced = Cell::new(0);
    let advance = || advanced.set(advanced.get() + 1);
    make_durable::make_durable(&history, &media, (1, 0), &prefix, &advance).expect("space");
    assert_eq!(advanced.get(), 3, "once for each segment that is needed");
    assert_eq!(allocated(&media, &history), before);
}

#[test]
fn a_hole_that_a_copy_has_among_records_gets_space_before_it_is_written_and_one_behind_does_not() {
    const PAGE: u64 = 4096;
    let media = made();
    add(&media, (1, 1, 1), &[INSERT; 4 * 128]);
    let name = FileName::Segment { timeline: 1, first: 1 }.to_string();
    let file = media.open(&name, Access::Write).expect("it is there");
    // The second and the last page of records.
    file.free(2 * PAGE..3 * PAGE).expect("it can be freed");
    file.free(4 * PAGE..5 * PAGE).expect("it can be freed");
    let history = open(&media).expect("a sound header");
    assert_eq!(allocated(&media, &history), [3 * PAGE]);
    let prefix = Prefix { stop: 300, gaps: (129..257).collect(), records: 299 };
    make_durable::make_durable(&history, &media, (1, 0), &prefix, &|| ()).expect("space");
    assert_eq!(allocated(&media, &history), [4 * PAGE]);
}

#[test]
fn slots_are_voided_also_in_segments_that_were_made_durable_ahead() {
    let media = made();
    add(&media, (1, 1, 1), &[INSERT, None, INSERT, INSERT]);
    add(&media, (1, 1, 5), &[INSERT, INSERT, None, INSERT]);
    add(&media, (1, 1, 9), &[INSERT; 4]);
    let slot = |first, lsn: u64| {
        let segment = Segment::open(&media, 1, first, UUID, Access::Read).expect("it is there");
        segment.read(lsn)
    };
    let is_void =
        |first, lsn| matches!(slot(first, lsn), Decoded::Valid(Record { op: Op::Void, .. }));
    // The log ends within the second segment.
    for (gaps, stop, voids) in [(vec![2], 7, (true, false)), (vec![2, 7], 8, (true, true))] {
        let history = open(&media).expect("sound headers");
        history.synced().lock().extend([1, 5, 9]);
        let prefix = Prefix { stop, gaps, records: stop - 1 };
        make_durable::make_durable(&history, &media, (1, 0), &prefix, &|| ()).expect("space");
        assert_eq!((is_void(1, 2), is_void(5, 7)), voids, "up to {stop}");
    }
}

/// Slots of a segment of [`behind`].
const PLACES: u64 = 8;

/// Writes segments with a record of this kind in each slot, without those that are missing; returns
/// what [`LogReader::behind_damage`] returns.
fn behind(slots: &[Slot], missing: &[u64], from: u64, upto: u64) -> Option<u64> {
    let media = made();
    for (at, slots) in slots.chunks(PLACES as usize).enumerate() {
        let first = 1 + at as u64 * PLACES;
        let continues = |slot: &Slot| Record { continues: *slot == Slot::Continues, ..insert() };
        let records: Vec<_> = slots.iter().map(|slot| Some(continues(slot))).collect();
        add(&media, (1, 1, first), &records);
        let segment = Segment::open(&media, 1, first, UUID, Access::Write).expect("it is there");
        for (lsn, _) in (first..).zip(slots).filter(|(_, slot)| **slot == Slot::Damaged) {
            segment.slot(lsn)[1].fetch_xor(1, Ordering::Relaxed);
        }
        if missing.contains(&(at as u64)) {
            let name = FileName::Segment { timeline: 1, first }.to_string();
            media.remove(&name).expect("it is there");
        }
    }
    let history = open(&media).expect("sound headers");
    let known = KnownExtent::WritersLive { timeline: 1, durable: 1 + slots.len() as u64 };
    let begins = history.behind_damage(&media, from, (known, upto));
    assert_eq!(history.limit.get(), u64::MAX, "it is read to its end again");
    begins
}

fn insert() -> Record {
    INSERT.expect("a record")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// The last record of a commit.
    Ends,
    Continues,
    Damaged,
}

#[test]
fn the_first_commit_behind_damage_begins_behind_the_end_of_the_one_that_may_be_damaged() {
    use Slot::{Continues, Damaged, Ends};
    let slots = [Ends, Damaged, Continues, Ends, Continues, Ends, Ends, Ends];
    assert_eq!(behind(&slots, &[], 2, 8), Some(5));
    assert_eq!(behind(&slots, &[], 2, 4), Some(5), "one LSN beyond");
    assert_eq!(behind(&slots, &[], 2, 3), None);
    assert_eq!(behind(&slots, &[], 5, 8), Some(7), "there is no damage");
}

#[test]
fn the_rest_of_a_segment_is_left_out_after_each_two_hundredth_damaged_record() {
    let mut slots = vec![Slot::Damaged; 199];
    slots.extend([Slot::Ends; 9]);
    assert_eq!(behind(&slots, &[], 1, 208), Some(201));
    // The 200th is the last of a segment; now it is the second.
    let mut slots = vec![Slot::Ends; 2];
    slots.extend([Slot::Damaged; 200]);
    slots.extend([Slot::Ends; 22]);
    assert_eq!(slots.len() % PLACES as usize, 0);
    assert_eq!(behind(&slots, &[], 1, 224), Some(210), "that of the next segment");
}

fn any_slot() -> impl Strategy<Value = Slot> {
    prop_oneof![4 => Just(Slot::Ends), 3 => Just(Slot::Continues), 2 => Just(Slot::Damaged)]
}

proptest! {
    #[test]
    fn behind_any_damage_the_first_commit_is_found(
        slots in vec(any_slot(), 4 * PLACES as usize),
        missing in subsequence(vec![0_u64, 1, 2, 3], 0..3),
        (from, more) in (1..30_u64, 0..30_u64),
    ) {
        let upto = (from + more).min(4 * PLACES);
        let slot = |lsn: u64| match missing.contains(&((lsn - 1) / PLACES)) {
            true => Slot::Damaged,
            false => slots[lsn as usize - 1],
        };
        let last = (from..=upto).rev().find(|&lsn| slot(lsn) == Slot::Damaged);
        let mut behind_it = last.map_or(from, |last| last + 1)..=upto;
        let expected = behind_it.find(|&lsn| slot(lsn) == Slot::Ends).map(|lsn| lsn + 1);
        prop_assert_eq!(behind(&slots, &missing, from, upto), expected);
    }
}
