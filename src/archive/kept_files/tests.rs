//! Which kept files stay.

use super::*;
use crate::archive::revisions::Revision;
use crate::media::Memory;
use crate::media::failing::Failing;
use crate::recovery::removal::remove_kept;
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::{ChecksumSeed, SnapshotHeader};
use proptest::prelude::*;
use std::time::Duration;

const UUID: u128 = 7;

/// Returns the `meta` of the filter.
fn meta() -> Meta {
    crate::meta::sample(UUID)
}

/// Records of a segment.
const SEGMENT: u64 = 1000;
/// Bytes of a segment's file.
const BYTES: u64 = 8192;

/// A directory with log and snapshots. Recovery needs the last two snapshots, and the log from the
/// older of them on.
#[derive(Debug)]
struct Directory {
    memory: Memory,
    segments: u64,
    /// The first segments, which are only kept.
    kept: u64,
    /// Start, end.
    snapshots: Vec<(u64, u64)>,
}

/// When the segment of this number was no longer needed: two in a second.
fn since(segment: u64) -> u64 {
    100 + segment / 2
}

impl Directory {
    /// `snapshots`: distances between their starts, and their lengths.
    fn new(segments: u64, snapshots: &[(u64, u64)]) -> Self {
        let memory = Memory::new();
        memory.make().expect("a directory");
        let (mut start, mut made) = (1, Vec::new());
        for &(distance, length) in snapshots {
            start += distance;
            let end = start + length;
            if end > segments * SEGMENT {
                break;
            }
            made.push((start, end));
            start = end;
        }
        let older = made.len().checked_sub(2).map_or(1, |at| made[at].0);
        let kept = (older - 1) / SEGMENT;
        for number in 0..segments {
            let name = FileName::Segment { timeline: 1, first: 1 + number * SEGMENT };
            let name = name.kept(since(number)).filter(|_| number < kept).unwrap_or(name);
            memory.create(&name.to_string(), BYTES).expect("space");
        }
        for (at, &(start, end)) in made.iter().enumerate() {
            let header =
                SnapshotHeader { uuid: UUID, timeline: 1, start, end, frames: 0, bytes: 0 };
            let name = FileName::Snapshot { start };
            let kept = name.kept(since(end / SEGMENT)).filter(|_| at + 2 < made.len());
            let name = kept.unwrap_or(name).to_string();
            let writer = SnapshotWriter::create(&memory, &name, ChecksumSeed::new(UUID, 1, start));
            writer.and_then(|writer| writer.finish(header)).expect("space");
        }
        Self { memory, segments, kept, snapshots: made }
    }

    fn archive(&self) -> Archive {
        let revisions = Revisions { readable: vec![Revision::present(&meta())], lost_below: 0 };
        Archive::read_revisions(&self.memory, UUID, revisions).expect("no error")
    }

    /// Removes what these wishes do not ask for.
    fn remove(&self, keep: Keep, second: u64) {
        self.remove_at(keep, Now { wall: second, even: second });
    }

    fn remove_at(&self, keep: Keep, now: Now) {
        let files = self.archive().superfluous(&self.memory, keep, now);
        remove_for_good(&self.memory, files, 50..).expect("no error");
    }

    /// Returns the firsts of the segments that are there.
    fn firsts(&self) -> Vec<u64> {
        let listing = Listing::read(&Whole::new(&self.memory)).expect("a directory");
        listing.segments.iter().map(|&(_, first)| first).collect()
    }

    /// Returns the first LSN of which all that comes after it is there.
    fn reaches_from(&self) -> u64 {
        self.archive().reaches_from().expect("a base") + 1
    }
}

fn directory() -> impl Strategy<Value = Directory> {
    let snapshot = (1..3 * SEGMENT, 0..SEGMENT);
    (5..40_u64, proptest::collection::vec(snapshot, 3..30))
        .prop_map(|(segments, snapshots)| Directory::new(segments, &snapshots))
        .prop_filter("a base", |made| made.snapshots.len() > 2)
}

#[test]
fn a_handle_that_finds_what_another_one_did_since_it_listed_the_files_succeeds() {
    let memory = Memory::new();
    memory.make().expect("a directory");
    let name = |number| FileName::Segment { timeline: 1, first: 1 + number * SEGMENT };
    let files: Vec<_> = (0..8).map(name).collect();
    for file in &files {
        memory.create(&file.to_string(), BYTES).expect("space");
    }
    // The other one has given two files their names, and removed the former name of the first.
    for file in &files[..2] {
        let kept = file.kept(7).expect("a segment").to_string();
        memory.link_new(&file.to_string(), &kept).expect("it is new");
    }
    memory.remove(&files[0].to_string()).expect("it is there");
    let none_yet = Listing::default();
    super::keep(&memory, &files[1..], 7, &none_yet, 50..).expect("it was done by another");
    let listing = Listing::read(&memory).expect("a directory");
    assert_eq!((listing.kept_segments.len(), listing.segments.len()), (8, 0));
    super::keep(&memory, &files, 7, &none_yet, 50..).expect("all are gone");
}

#[test]
fn where_files_have_one_name_log_is_kept_nevertheless() {
    let media = Failing::new(Memory::new()).without_links();
    media.make().expect("a directory");
    let name = |number| FileName::Segment { timeline: 1, first: 1 + number * SEGMENT };
    let files: Vec<_> = (0..8).map(name).collect();
    for file in &files {
        media.create(&file.to_string(), BYTES).expect("space");
    }
    super::keep(&media, &files, 7, &Listing::default(), 50..).expect("renamed");
    let listing = Listing::read(&media).expect("a directory");
    assert_eq!((listing.kept_segments.len(), listing.segments.len()), (8, 0));
}

#[test]
fn a_file_that_two_handles_have_kept_in_different_seconds_counts_once_and_loses_one_name() {
    let made = Directory::new(12, &[(1500, 100); 6]);
    let list = || Listing::read(&made.memory).expect("a directory");
    let bytes = || made.archive().bytes(&made.memory);
    made.remove(Keep::Bytes(u64::MAX), 0);
    let (before, wanted) = (list().before_kept().collect::<Vec<_>>(), bytes());
    assert!(before.len() > 7, "{before:?}");
    let keep_again = |second: u64| {
        for kept in list().kept() {
            let again = kept.before_kept().and_then(|file| file.kept(second));
            let again = again.expect("a segment or a snapshot").to_string();
            made.memory.link_new(&kept.to_string(), &again).expect("it is new");
        }
    };
    keep_again(900);
    assert_eq!(bytes(), wanted);
    made.remove(Keep::Bytes(u64::MAX), 0);
    assert_eq!(list().before_kept().collect::<Vec<_>>(), before);
    keep_again(901);
    made.remove(Keep::Nothing, 0);
    assert!(!list().has_kept());
}

#[test]
fn an_age_is_that_by_the_clock_that_was_not_set() {
    let age = |since, wall, even| Now { wall, even }.age(since).map(|age| age.as_secs());
    assert_eq!(age(1000, 1060, 1060), Some(60));
    assert_eq!(age(1000, 1_000_000, 1060), Some(60), "the wall clock was set ahead");
    assert_eq!(age(1000, 10, 1060), Some(60), "and behind");
    assert_eq!(age(1000, 1060, 10), Some(60), "it was behind when the machine was started");
    assert_eq!(age(1000, 1060, 1_000_000), Some(60), "or ahead");
    assert_eq!(age(1_000_000, 1060, 1060), None, "it was ahead for a while");
}

#[test]
fn a_kept_log_that_begins_with_an_alteration_has_older_log_before_it() {
    // The last snapshots begin where segments do.
    let made = Directory::new(12, &[(1500, 100), (1500, 100), (2800, 0), (1000, 0), (1000, 0)]);
    assert_eq!((made.kept, made.snapshots[2]), (7, (6001, 6001)));
    let (young, time) = (since(6), Duration::from_secs(1));
    made.remove(Keep::For(time), young + 1);
    let archive = made.archive();
    assert!(archive.since().is_some_and(|oldest| oldest < young), "{archive:?}");
    assert_eq!(made.firsts().first(), Some(&3001));
}

proptest! {
    #[test]
    fn a_full_disk_takes_no_part_in_which_a_file_has_both_names_and_leaves_log_from_a_base(
        made in directory(), both in 0..40_u64, most in 0..40 * BYTES,
    ) {
        prop_assume!(made.kept > 0);
        let first = FileName::Segment { timeline: 1, first: 1 + both % made.kept * SEGMENT };
        let kept = first.kept(since(both % made.kept)).expect("a segment").to_string();
        made.memory.link_new(&kept, &first.to_string()).expect("it is new");
        while remove_oldest(&made.memory, &meta(), 50..).expect("no error") {}
        let firsts = made.firsts();
        prop_assert!(firsts.contains(&(1 + both % made.kept * SEGMENT)), "both names stay");
        prop_assert!(made.archive().listing.both_named().eq([first]));
        prop_assert!(firsts.windows(2).all(|two| two[0] + SEGMENT == two[1]), "no gap");
        // The part of it goes as one once it has only its kept name, and not without it.
        made.remove(Keep::Bytes(most), since(made.segments));
        made.memory.remove(&first.to_string()).expect("it is there");
        let (firsts, base) = (made.firsts(), made.archive().bases[0]);
        prop_assert!(firsts.windows(2).all(|two| two[0] + SEGMENT == two[1]));
        prop_assert!(firsts[0] <= base.start, "{firsts:?} from {base:?}");
    }

    #[test]
    fn what_is_kept_goes_before_log_of_an_older_snapshot_and_no_former_name_that_is_needed(
        made in directory(), both in proptest::collection::vec(any::<bool>(), 40),
        at in 0..30_usize,
    ) {
        let list = || Listing::read(&made.memory).expect("a directory");
        for (at, kept) in list().kept().collect::<Vec<_>>().into_iter().enumerate() {
            if let Some(former) = kept.before_kept().filter(|_| both[at % 40]) {
                let names = (kept.to_string(), former.to_string());
                made.memory.link_new(&names.0, &names.1).expect("it is new");
            }
        }
        let before = list();
        // One whose log is there; those that are newer may be damaged.
        let has_log = |&&start: &&u64| {
            let from = (start - 1) / SEGMENT;
            (from..made.segments).all(|at| before.segments.contains(&(1, 1 + at * SEGMENT)))
        };
        let sound: Vec<_> = before.snapshots.iter().filter(has_log).collect();
        let newest = *sound[at % sound.len()];
        let mut listing = before.clone();
        remove_kept(&made.memory, &mut listing, newest, 50..).expect("no error");
        let left = list();
        prop_assert!(!left.has_kept());
        prop_assert_eq!((&left.segments, &left.snapshots), (&listing.segments, &listing.snapshots));
        // What the newest one needs has the name that it had.
        let needed = |first: u64| first + SEGMENT > newest;
        let from = before.segments.iter().filter(|&&(_, first)| needed(first));
        prop_assert!(from.eq(left.segments.iter().filter(|&&(_, first)| needed(first))));
        prop_assert!(left.snapshots.contains(&newest));
        // Nothing that was kept is left behind it: the next checkpoint would keep it again.
        let former: Vec<_> = before.both_named().collect();
        for &(timeline, first) in left.segments.iter().filter(|&&(_, first)| !needed(first)) {
            let name = FileName::Segment { timeline, first };
            prop_assert!(!former.contains(&name), "{name}");
        }
    }

    #[test]
    fn log_kept_for_a_time_reaches_all_operations_since(
        made in directory(), ago in 0..30_u64, later in 0..5_u64,
    ) {
        let now = since(made.segments) + later;
        made.remove(Keep::For(Duration::from_secs(ago)), now);
        let firsts = made.firsts();
        // Without gaps, up to the end.
        let last = (made.segments - 1) * SEGMENT + 1;
        prop_assert!(firsts.windows(2).all(|two| two[0] + SEGMENT == two[1]));
        prop_assert_eq!(firsts.last(), Some(&last));
        // The first operation that is younger.
        let wanted = (0..made.kept).find(|&number| since(number) >= now - ago);
        let wanted = wanted.unwrap_or(made.kept) * SEGMENT + 1;
        prop_assert!(made.reaches_from() <= wanted, "{} of {wanted}", made.reaches_from());
        // And nothing that a newer base makes superfluous.
        let archive = made.archive();
        let enough = archive.bases.iter().rev().find(|base| base.end < wanted);
        let more = enough.map_or_else(Vec::new, |base| archive.before(base));
        prop_assert!(more.is_empty(), "{archive:?} {wanted}");
        // Again changes nothing.
        made.remove(Keep::For(Duration::from_secs(ago)), now);
        prop_assert_eq!(made.firsts(), firsts);
    }

    #[test]
    fn a_step_of_the_wall_clock_removes_no_log_before_its_time(
        made in directory(), ago in 0..30_u64, later in 0..5_u64,
    ) {
        // The names are of a clock that was behind, or it is ahead now.
        let (wall, even) = (1_000_000_000, since(made.segments) + later);
        let before = made.firsts();
        made.remove_at(Keep::For(Duration::from_secs(86_400)), Now { wall, even });
        prop_assert_eq!(made.reaches_from(), 1);
        prop_assert_eq!(made.firsts(), before);
        // Each file goes in its time, as if the clock had been right.
        made.remove_at(Keep::For(Duration::from_secs(ago)), Now { wall, even });
        let is_young = |&number: &u64| since(number) >= even - ago;
        let wanted = (0..made.kept).find(is_young).unwrap_or(made.kept) * SEGMENT + 1;
        prop_assert!(made.reaches_from() <= wanted, "{} of {wanted}", made.reaches_from());
        let archive = made.archive();
        let enough = archive.bases.iter().rev().find(|base| base.end < wanted);
        let more = enough.map_or_else(Vec::new, |base| archive.before(base));
        prop_assert!(more.is_empty(), "{archive:?} {wanted}");
    }

    #[test]
    fn log_kept_up_to_a_size_takes_no_more(made in directory(), most in 0..40 * BYTES) {
        made.remove(Keep::Bytes(most), since(made.segments));
        let archive = made.archive();
        prop_assert!(archive.bytes(&made.memory) <= most);
        let firsts = made.firsts();
        prop_assert!(firsts.windows(2).all(|two| two[0] + SEGMENT == two[1]));
        if !archive.listing.kept_segments.is_empty() {
            prop_assert!(made.reaches_from() <= made.snapshots[made.snapshots.len() - 2].1);
        }
    }

    #[test]
    fn bases_stay_near_enough_to_advance_and_few(made in directory()) {
        made.remove(Keep::Bytes(u64::MAX), 0);
        let archive = made.archive();
        let starts: Vec<_> = archive.bases.iter().map(|base| base.start).collect();
        let span = starts[starts.len() - 1] - starts[0];
        let bytes = archive.bases.iter().map(|base| base.bytes).max().expect("a base");
        let distance = (span / BASES).max(bytes * LOG_OF_SNAPSHOT / RECORD_BYTES);
        // Where there was a snapshot, none is farther than this.
        for two in starts.windows(2) {
            let is_between = |(start, _): &&(u64, u64)| two[0] < *start && *start < two[1];
            let between = made.snapshots.iter().filter(is_between).count();
            prop_assert!(two[1] - two[0] <= distance || between == 0);
        }
        // Each two neighbours but the last take more than the distance.
        prop_assert!(starts.len() as u64 <= 2 * BASES + 4, "{starts:?}");
    }

    #[test]
    fn a_full_disk_takes_the_oldest_first_until_nothing_is_left(made in directory()) {
        let mut before = made.firsts();
        while remove_oldest(&made.memory, &meta(), 50..).expect("no error") {
            let after = made.firsts();
            prop_assert!(before.ends_with(&after) && after.len() <= before.len());
            prop_assert!(made.reaches_from() <= made.segments * SEGMENT);
            before = after;
        }
        prop_assert_eq!(before.len() as u64, made.segments - made.kept);
        prop_assert!(!Listing::read(&made.memory).expect("a directory").has_kept());
    }
}

#[test]
fn kept_files_are_examined_after_a_32nd_more_of_them_or_of_the_time_or_another_wish() {
    let (day, size) = (Keep::For(Duration::from_secs(86_400)), Keep::Bytes(1 << 30));
    let last = |keep| Pruning { keep, files: 320, second: 100_000 };
    for (keep, files, second, expected) in [
        (size, 320, 100_000, false),
        (size, 329, 900_000, false),
        (size, 330, 100_000, true),
        (size, 310, 100_000, true),
        (day, 329, 102_699, false),
        (day, 320, 102_700, true),
        (day, 330, 100_000, true),
        // The clock was set back.
        (day, 320, 97_300, true),
    ] {
        assert_eq!(last(keep).is_due(keep, files, second), expected, "{keep} {files} {second}");
    }
    assert!(last(day).is_due(size, 320, 100_000), "something else is wished");
    assert!(Pruning::default().is_due(day, 0, 0), "a handle that has not done it yet");
}
