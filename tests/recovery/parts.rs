//! A filter that is taken apart, and put together elsewhere, is the same filter: from its creation
//! on, from a snapshot on, and in memory, piece by piece.

use crate::moments::Past;
use ebbtide::history::{At, History};
use ebbtide::inspect::{Assembly, Origin, Piece, origin_on, snapshots_on, verify_on};
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{Any, Error, Filter, Keep, Options, Reader, Standby};
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::SAMPLES;
use std::sync::Arc;

/// Moments asked of each copy.
const MOMENTS: u64 = 6;

/// Returns the log from an LSN on.
fn pieces(media: &Arc<dyn Media>, first: u64) -> Vec<Piece> {
    let history = History::open_on(media.clone()).and_then(|log| log.after(At::Lsn(first - 1)));
    let mut history = history.expect("the log");
    std::iter::from_fn(|| history.read_piece().expect("a piece")).collect()
}

fn begin(copy: &Arc<dyn Media>, origin: &Origin, timeline: u64) -> Assembly {
    Assembly::begin_on(copy.clone(), &origin.meta, timeline).expect("a new directory")
}

fn digest(reader: ebbtide::Result<Reader<Any>>) -> u128 {
    reader.and_then(|reader| reader.digest()).expect("a digest").value
}

#[test]
fn a_copy_of_all_parts_has_the_digest_of_the_filter_as_of_each_moment() {
    for (number, sample) in (0..).zip(&SAMPLES) {
        let mut random = Random::new(number);
        let mut past = Past::new(sample, Keep::Bytes(1 << 40));
        past.run(sample, &mut random);
        past.filter().sync().expect("a sync");
        let (media, last) = (&past.media, past.moments.last().expect("a moment").1);
        let origin = origin_on(&**media).expect("a filter");
        let memory = || Arc::new(Memory::new()) as Arc<dyn Media>;
        let (whole, empty, late) = (memory(), memory(), memory());
        begin(&empty, &origin, 1).finish().expect("a filter");
        let standby = Standby::open_on(empty, Options::new()).expect("a copy");
        let mut assembly = begin(&whole, &origin, 1);
        for piece in pieces(media, 1) {
            assembly.add(&piece).expect("it follows");
            standby.apply(&piece).expect("it follows");
            // Once more is as good as once.
            standby.apply(&piece).expect("it is there");
        }
        let end = assembly.finish().expect("a filter");
        assert_eq!(end, standby.next_lsn());
        assert_eq!(standby.ask(|copy| copy.digest()).expect("a digest").value, last, "{number}");
        assert!(verify_on(&*whole).expect("a report").is_sound());
        for _ in 0..MOMENTS {
            let at = random.below(past.moments.len() as u64) as usize;
            let (lsn, then, ..) = past.moments[at];
            let reader = Reader::at_on(whole.clone(), At::Lsn(lsn), Options::new());
            assert_eq!(digest(reader), then, "{number}: as of LSN {lsn}");
        }
        let Some(file) = snapshots_on(&**media).expect("a list").into_iter().next() else {
            continue;
        };
        let mut assembly = begin(&late, &origin, file.timeline);
        let mut bytes = vec![0; file.bytes as usize];
        let from = media.open(&file.name, Access::Read).expect("the snapshot");
        from.read_at(&mut bytes, 0).expect("its bytes");
        let to = assembly.snapshot(file.start, file.bytes).expect("a file");
        to.write_at(&bytes, 0).and_then(|()| to.sync()).expect("written");
        pieces(media, file.start).iter().for_each(|piece| assembly.add(piece).expect("follows"));
        assert_eq!(assembly.finish().expect("a filter"), end);
        assert_eq!(digest(Reader::open_on(late, Options::new())), last, "{number}");
    }
}

#[test]
fn a_piece_that_does_not_follow_or_is_damaged_is_refused_and_leaves_nothing() {
    let sample = &SAMPLES[0];
    let mut past = Past::new(sample, Keep::Bytes(1 << 40));
    past.run(sample, &mut Random::new(1));
    past.filter().sync().expect("a sync");
    let origin = origin_on(&*past.media).expect("a filter");
    let piece = pieces(&past.media, 1).swap_remove(0);
    let of = |log, first, records| Piece::of_bytes(log, piece.timeline, first, records);
    let mut flipped = piece.records.clone();
    flipped[40] ^= 1;
    let wrong = [
        of(piece.log, 1, flipped),
        of(piece.log, 2, piece.records[32..].to_vec()),
        of(piece.log, 3, piece.records.clone()),
        of(piece.log ^ 1, 1, piece.records.clone()),
    ];
    for wrong in wrong {
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        let mut assembly = begin(&copy, &origin, 1);
        let error = assembly.add(&wrong).expect_err("refused");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        drop(assembly);
        let standby_of = || {
            begin(&copy, &origin, 1).finish().expect("nothing was left");
            Standby::open_on(copy.clone(), Options::new()).expect("a copy")
        };
        let standby = standby_of();
        assert!(standby.apply(&wrong).is_err());
        assert_eq!(standby.next_lsn(), 1, "nothing was applied");
    }
}

#[test]
fn a_piece_that_ends_beyond_the_last_lsn_is_damaged() {
    let past = Past::new(&SAMPLES[0], Keep::Nothing);
    let origin = origin_on(&*past.media).expect("a filter");
    let memory = || Arc::new(Memory::new()) as Arc<dyn Media>;
    let (empty, copy) = (memory(), memory());
    begin(&empty, &origin, 1).finish().expect("a filter");
    let standby = Standby::open_on(empty, Options::new()).expect("a copy");
    let mut assembly = begin(&copy, &origin, 1);
    for (first, records) in [(u64::MAX, 1), (u64::MAX - 1, 2), (u64::MAX - 1, 64), (u64::MAX, 0)] {
        let piece = Piece::of_bytes(origin.log, 1, first, vec![0; 32 * records]);
        let applied = standby.apply(&piece);
        assert!(matches!(applied, Err(Error::Damaged { .. })), "{applied:?}");
        let added = assembly.add(&piece);
        assert!(matches!(added, Err(Error::Damaged { .. })), "{added:?}");
        assert_eq!((piece.end(), piece.has_changes(), piece.latest_micros()), (u64::MAX, false, 0));
    }
}

#[test]
fn a_copy_whose_parts_have_the_last_timelines_there_are_loses_no_operation() {
    let past = Past::new(&SAMPLES[0], Keep::Nothing);
    let origin = origin_on(&*past.media).expect("a filter");
    for timeline in [(1 << 62) - 70, (1 << 62) - 1, 1 << 62, u64::MAX] {
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        let mut assembly = begin(&copy, &origin, timeline);
        assembly.leave_out_timelines();
        assembly.finish().expect("a filter");
        for opening in 0..3_u64 {
            let filter: Filter<Any> = Filter::open_on(copy.clone(), Options::new()).expect("one");
            let inserts = filter.digest().expect("a digest").inserts;
            assert_eq!(inserts, opening, "timeline {timeline}");
            filter.insert(opening.to_le_bytes()).expect("an insert");
        }
    }
}
