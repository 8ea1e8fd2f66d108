//! A restart changes nothing: after a close, a copy, a backup or a crash, the filter opens in its
//! former state, or reports the damage.

mod backups;
mod bases;
mod panics;
mod restart;
mod time;
mod unwritten;

use ebbtide::media::Memory;
use ebbtide::{
    AgePartitioned, Any, Clock, Digest, Durability, Error, Filter, Options, Parameters,
    TimeLimited, Timestamp, inspect,
};
use ebbtide_testkit::copies::{self, copy_files};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of records of a segment, and the offset of the first.
const SEGMENT: u64 = 128;
const PAGE: u64 = 4096;

fn options() -> Options {
    Options::new()
        .hash_seed(5)
        .stripes(3)
        .block_bytes(512)
        .segment_bytes(SEGMENT * 32)
        .durability(Durability::Never)
        .background(false)
}

fn stream() -> Options {
    options().clock(Clock::stream())
}

fn kinds() -> [Any; 5] {
    let parameters = Parameters::new;
    [
        Any::new("bloom", parameters().with("capacity", 500)),
        Any::new("age-partitioned", parameters().with("window-items", 60)),
        Any::new(
            "time-limited",
            parameters().with("window", 500_000).with("fpr", 0.01).with("rate", 1),
        ),
        Any::new("double-buffering", parameters().with("window-items", 60)),
        Any::new("two-buffer", parameters().with("window-items", 60)),
    ]
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn digest(filter: &Filter) -> Digest {
    filter.digest().expect("a digest")
}

fn open(dir: &Path, options: Options) -> Filter {
    Filter::open(dir, options).unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
}

/// Inserts these numbers, one per millisecond.
fn insert(filter: &Filter, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let time = Timestamp::from_unix_millis(1_000_000 + number);
        filter.call().time(time).insert(number.to_le_bytes()).expect("an insert");
    }
}

/// Creates a filter of the last 60 inserts that contains exactly these numbers.
fn reference(numbers: &[std::ops::Range<u64>]) -> Filter {
    let filter = Filter::create_on(Arc::new(Memory::new()), kinds()[1].clone(), stream());
    let filter = filter.expect("a filter in memory");
    numbers.iter().for_each(|numbers| insert(&filter, numbers.clone()));
    filter
}

/// Copies the files that a power cut would leave of an open filter after all writes.
fn copy(from: &Path, to: &Path) {
    copy_files(from, to).expect("a copy");
}

/// Returns the names that begin with `prefix`, ascending.
fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let mut names = copies::names(dir).expect("a directory");
    names.retain(|name| name.starts_with(prefix));
    names
}

fn change(path: &Path, offset: u64, change: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(path).expect("a file");
    change(&mut bytes[offset as usize..]);
    fs::write(path, bytes).expect("a file");
}

fn flip(path: &Path, offset: u64) {
    change(path, offset, |bytes| bytes[0] ^= 0x40);
}

/// Returns the file and offset of a record of the newest timeline.
fn place(dir: &Path, lsn: u64) -> (PathBuf, u64) {
    let first = |name: &str| -> u64 { name[11..].parse().expect("a number") };
    let log = names(dir, "wal-");
    let name = log.iter().rev().find(|name| first(name) <= lsn).expect("a segment");
    (dir.join(name), PAGE + 32 * (lsn - first(name)))
}

#[derive(Debug)]
struct Damage {
    path: PathBuf,
    offset: u64,
}

fn damage<T>(result: Result<T, Error>) -> Damage {
    match result {
        Err(Error::Damaged { path, offset, .. }) => Damage { path, offset },
        Err(other) => panic!("expected damage, found {other}"),
        Ok(_) => panic!("expected damage, found none"),
    }
}

fn try_open(dir: &Path) -> Result<Filter, Error> {
    Filter::open(dir, stream())
}

#[test]
fn closing_and_opening_again_changes_nothing() {
    for spec in kinds() {
        let home = directory();
        let dir = home.path().join("f");
        let mut filter = Filter::create(&dir, spec.clone(), stream()).expect("a filter");
        for round in 0..6 {
            insert(&filter, round * 150..(round + 1) * 150);
            let before = digest(&filter);
            // Dropping closes as well.
            if round % 2 == 0 {
                filter.close().expect("a clean close");
            } else {
                drop(filter);
            }
            filter = open(&dir, stream());
            let after = digest(&filter);
            assert_eq!((before.value, before.inserts), (after.value, after.inserts), "{spec:?}");
        }
    }
}

#[test]
fn repeated_opening_does_not_accumulate_files() {
    for spec in kinds() {
        let home = directory();
        let dir = home.path().join("f");
        let filter = Filter::create(&dir, spec, stream()).expect("a filter");
        insert(&filter, 0..1000);
        let before = digest(&filter).value;
        filter.close().expect("a clean close");
        // The second opening may still remove files that the first one needed.
        (0..2).for_each(|_| drop(open(&dir, stream())));
        let files = names(&dir, "").len();
        for _ in 0..30 {
            let filter = open(&dir, stream());
            assert_eq!(digest(&filter).value, before);
            let stat = filter.stat().expect("a stat");
            assert!(stat.snapshots <= 2, "{stat:?}");
        }
        let now = names(&dir, "");
        assert!(now.len() <= files, "{files} files have become {now:?}");
    }
}

#[test]
fn checkpoints_remove_log() {
    let home = directory();
    let dir = home.path().join("f");
    let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
    for round in 0..20 {
        insert(&filter, round * 300..(round + 1) * 300);
        filter.checkpoint().expect("a checkpoint");
        // Two rounds of log, a segment on either side and one in use.
        assert!(names(&dir, "wal-").len() <= 2 * 300_usize.div_ceil(SEGMENT as usize) + 3);
        assert!(names(&dir, "snap-").len() <= 2);
    }
}

#[test]
fn a_directory_in_the_place_of_an_unneeded_file_does_no_harm() {
    for name in ["snap-0000000000000001", "live-000002-0000", "tmp-77"] {
        let home = directory();
        let dir = home.path().join("f");
        let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
        for round in 0..3 {
            insert(&filter, round * 300..(round + 1) * 300);
            filter.checkpoint().expect("a checkpoint");
        }
        filter.close().expect("a clean end");
        let _ = fs::remove_file(dir.join(name));
        fs::create_dir(dir.join(name)).expect("a directory");
        for round in 3..6 {
            let filter = open(&dir, stream());
            insert(&filter, round * 300..(round + 1) * 300);
            let tidied = filter.checkpoint();
            assert!(matches!(tidied, Ok(_) | Err(Error::Io { .. })), "{name}: {tidied:?}");
            drop(filter);
        }
        assert_eq!(digest(&open(&dir, stream())).inserts, 1800, "{name}");
    }
}

#[test]
fn a_filter_whose_newest_snapshot_is_damaged_is_restored_without_it() {
    let home = directory();
    let (dir, before) = two_snapshots(home.path());
    flip(&dir.join(&names(&dir, "snap-")[1]), PAGE + 44);
    let restored = home.path().join("restored");
    inspect::restore(&dir, &restored).expect("the older one leads to the same state");
    let report = inspect::verify(&restored).expect("a report");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(digest(&open(&restored, stream())).value, before.value);
}

/// A handle that stopped while it created a segment may rename it after the others have filled and
/// removed theirs.
#[test]
fn an_empty_recreated_segment_is_no_damage_and_the_next_checkpoint_removes_it() {
    for open_while_asked in [true, false] {
        let home = directory();
        let dir = home.path().join("f");
        let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
        let first = names(&dir, "wal-").remove(0);
        let empty = fs::read(dir.join(&first)).expect("a segment");
        for round in 0..3 {
            insert(&filter, round * 300..(round + 1) * 300);
            filter.checkpoint().expect("a checkpoint");
        }
        assert_ne!(names(&dir, "wal-")[0], first, "the segment was not removed");
        fs::write(dir.join(&first), empty).expect("a file");
        let before = digest(&filter).value;
        let filter = open_while_asked.then_some(filter);
        let report = inspect::verify(&dir).expect("a report");
        assert!(report.is_sound(), "{report:?}");
        let mut lsns = Vec::new();
        let listed = inspect::wal(&dir, |entry| {
            lsns.push(entry.lsn);
            Ok(())
        });
        listed.expect("a sound log");
        assert!(lsns.windows(2).all(|pair| pair[0] + 1 == pair[1]), "no gap");
        let filter = filter.unwrap_or_else(|| open(&dir, stream()));
        assert_eq!(digest(&filter).value, before);
        insert(&filter, 900..901);
        filter.checkpoint().expect("a checkpoint");
        assert!(!names(&dir, "wal-").contains(&first), "the segment was not removed again");
    }
}

/// Creates a directory with two snapshots, log after them, and no more log than they need; returns
/// it with the digest.
fn two_snapshots(home: &Path) -> (PathBuf, Digest) {
    let dir = home.join("f");
    let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
    for round in 0..3 {
        insert(&filter, round * 300..(round + 1) * 300);
        if round > 0 {
            filter.checkpoint().expect("a checkpoint");
        }
    }
    insert(&filter, 900..1000);
    let copied = home.join("copy");
    copy(&dir, &copied);
    assert_eq!(names(&copied, "snap-").len(), 2);
    (copied, digest(&filter))
}

#[test]
fn if_the_newest_snapshot_is_damaged_the_older_one_leads_to_the_same_state() {
    for at in [0, 8, 40, PAGE, PAGE + 44, PAGE + 400, 6000] {
        let home = directory();
        let (dir, before) = two_snapshots(home.path());
        flip(&dir.join(&names(&dir, "snap-")[1]), at);
        assert!(!inspect::verify(&dir).expect("a report").is_sound(), "byte {at}");
        let filter = open(&dir, stream());
        assert_eq!(digest(&filter).value, before.value, "byte {at}");
        // The damaged one is replaced, and two intact snapshots exist again.
        for round in 0..2 {
            insert(&filter, 1000 + round..1001 + round);
            filter.checkpoint().expect("a checkpoint");
        }
        let before = digest(&filter).value;
        drop(filter);
        assert!(inspect::verify(&dir).expect("a report").is_sound(), "byte {at}");
        assert_eq!(digest(&open(&dir, stream())).value, before, "byte {at}");
    }
}

#[test]
fn if_all_snapshots_are_damaged_and_the_log_begins_later_opening_reports_it() {
    let home = directory();
    let (dir, _) = two_snapshots(home.path());
    let snapshots = names(&dir, "snap-");
    for name in &snapshots {
        flip(&dir.join(name), 6000);
    }
    let before: Vec<_> = names(&dir, "wal-");
    let found = damage(try_open(&dir));
    assert!(snapshots.iter().any(|name| found.path.ends_with(name)), "{found:?}");
    // Nothing was removed: a remedy may still need it.
    assert_eq!(names(&dir, "wal-"), before);
    assert_eq!(names(&dir, "snap-"), snapshots);
    damage(inspect::restore(&dir, home.path().join("restored")));
    assert!(!home.path().join("restored").join("meta").exists());
}

#[test]
fn without_sound_snapshots_the_whole_log_leads_to_the_same_state() {
    let home = directory();
    let dir = home.path().join("f");
    let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
    insert(&filter, 0..300);
    filter.checkpoint().expect("a checkpoint");
    insert(&filter, 300..400);
    let copied = home.path().join("copy");
    copy(&dir, &copied);
    flip(&copied.join(&names(&copied, "snap-")[0]), 6000);
    assert_eq!(digest(&open(&copied, stream())).value, digest(&filter).value);
}

#[test]
fn a_damaged_record_below_a_durable_note_is_damage_and_its_offset_is_named() {
    for lsn in [1, 20, 128, 129, 150] {
        let home = directory();
        let dir = home.path().join("f");
        let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
        insert(&filter, 0..180);
        filter.sync().expect("a sync");
        for byte in [0, 9, 17, 24, 31] {
            let copied = home.path().join(format!("copy {byte}"));
            copy(&dir, &copied);
            let (path, offset) = place(&copied, lsn);
            flip(&path, offset + byte);
            let found = damage(try_open(&copied));
            assert_eq!((&found.path, found.offset), (&path, offset), "record {lsn}, byte {byte}");
            let report = inspect::verify(&copied).expect("a report");
            assert!(!report.is_sound());
        }
    }
}

#[test]
fn beyond_the_last_durable_note_the_first_damaged_record_is_the_end() {
    let home = directory();
    let dir = home.path().join("f");
    let filter = Filter::create(&dir, kinds()[0].clone(), stream()).expect("a filter");
    insert(&filter, 0..50);
    filter.sync().expect("a sync");
    insert(&filter, 50..100);
    let copied = home.path().join("copy");
    copy(&dir, &copied);
    // Record 51 is the durable note.
    let (path, offset) = place(&copied, 70);
    flip(&path, offset);
    let found = open(&copied, stream());
    assert_eq!(digest(&found).inserts, 68);
    for number in 0..68_u64 {
        assert!(found.contains(number.to_le_bytes()).expect("a query"));
    }
}

#[test]
fn a_shift_whose_insert_was_never_recorded_has_not_happened() {
    let home = directory();
    let spec = || Any::new("age-partitioned", Parameters::new().with("window-items", 40));
    let dir = home.path().join("f");
    let filter = Filter::create(&dir, spec(), stream()).expect("a filter");
    // One insert after another, so that the last record sometimes follows a shift.
    let mut shifts = 0;
    for number in 0..40_u64 {
        let before = digest(&filter);
        insert(&filter, number..number + 1);
        let after = digest(&filter);
        shifts += u64::from(after.lsn == before.lsn + 2);
        let copied = home.path().join(format!("copy {number}"));
        copy(&dir, &copied);
        let (path, offset) = place(&copied, after.lsn - 1);
        change(&path, offset, |bytes| bytes[..32].fill(0));
        let found = digest(&open(&copied, stream()));
        assert_eq!((found.inserts, found.value), (before.inserts, before.value), "{number}");
    }
    assert!(shifts > 10, "{shifts} shifts");
}

#[test]
fn a_missing_or_short_segment_is_damage() {
    let home = directory();
    let (dir, found) = two_snapshots(home.path());
    let number = |name: &str, at: usize| -> u64 { name[at..].parse().expect("a number") };
    let start = number(&names(&dir, "snap-")[1], 5);
    for (at, name) in names(&dir, "wal-").iter().enumerate() {
        let copied = home.path().join(format!("without {at}"));
        copy(&dir, &copied);
        fs::remove_file(copied.join(name)).expect("a file");
        let end = number(name, 11) + SEGMENT;
        // Segments that the newest snapshot makes superfluous are not needed. The absence of the
        // last ones cannot be detected.
        if end > start && end <= found.lsn {
            damage(try_open(&copied));
        }
        let copied = home.path().join(format!("short {at}"));
        copy(&dir, &copied);
        let file = fs::OpenOptions::new().write(true).open(copied.join(name)).expect("a file");
        file.set_len(PAGE + 33).expect("a shorter file");
        let found = damage(try_open(&copied));
        assert!(found.path.ends_with(name), "{found:?}");
    }
}

#[test]
fn records_that_a_recovery_left_behind_never_join_later_ones() {
    let home = directory();
    let mut dir = home.path().join("0");
    let mut filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
    let mut history = Vec::new();
    let (mut lsn, mut number) = (1, 0);
    for round in 1..8_u64 {
        // As many records as numbers: inserts and shifts. A record in the middle is lost; valid
        // ones follow it.
        insert(&filter, number..number + 200);
        let lost = lsn + 40 + 17 * round;
        let next = home.path().join(round.to_string());
        copy(&dir, &next);
        drop(filter);
        let (path, offset) = place(&next, lost);
        change(&path, offset, |bytes| bytes[..32].fill(0));
        dir = next;
        filter = open(&dir, stream());
        let found = digest(&filter);
        let before: u64 =
            history.iter().map(|numbers: &std::ops::Range<u64>| numbers.end - numbers.start).sum();
        let kept = found.inserts - before;
        // A shift without a following record is lost with the insert that needed it.
        assert!(kept > 0 && kept < 200 && (lost - 1..=lost).contains(&found.lsn), "{found:?}");
        history.push(number..number + kept);
        assert_eq!(found.value, digest(&reference(&history)).value, "round {round}");
        number += 1000;
        insert(&filter, number..number + 1);
        history.push(number..number + 1);
        number += 1;
        assert_eq!(digest(&filter).value, digest(&reference(&history)).value, "round {round}");
        lsn = digest(&filter).lsn;
        // The next crash finds the old records still in the segments of the old timeline.
    }
}

#[test]
fn a_filter_of_another_kind_is_refused_and_not_changed() {
    let home = directory();
    let dir = home.path().join("f");
    let filter = Filter::create(&dir, AgePartitioned::last(100), stream()).expect("a filter");
    filter.insert("key").expect("an insert");
    filter.close().expect("a clean close");
    let other = Filter::<TimeLimited>::open(&dir, stream());
    assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
    let other = Filter::open_or_create(&dir, AgePartitioned::last(101), stream());
    assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
    let filter =
        Filter::open_or_create(&dir, AgePartitioned::last(100), stream()).expect("it opens");
    assert!(filter.contains("key").expect("a query"));
}

#[test]
fn snapshots_of_the_largest_blocks_are_read_back() {
    // One stripe of 12,000 words: more than a block may have, less than two blocks of the target
    // size.
    let words = 12_000;
    let bits = Parameters::new().with("capacity", 50_000).with("bits", words * 64);
    let aged = Parameters::new().with("window-items", 500).with("k", 10).with("l", 10);
    for spec in [
        Any::new("bloom", bits),
        Any::new("age-partitioned", aged.with("columns", 64).with("words", words)),
    ] {
        let home = directory();
        let dir = home.path().join("f");
        let settings = || stream().stripes(1).block_bytes(64 << 10);
        let filter = Filter::create(&dir, spec, settings()).expect("a filter");
        for round in 0..2 {
            insert(&filter, round * 1000..(round + 1) * 1000);
            filter.checkpoint().expect("a checkpoint");
        }
        insert(&filter, 2000..2500);
        let copied = home.path().join("copy");
        copy(&dir, &copied);
        assert!(!names(&copied, "wal-")[0].ends_with("-0000000000000001"), "snapshots are needed");
        assert!(inspect::verify(&copied).expect("a report").is_sound());
        let (found, before) = (digest(&open(&copied, settings())), digest(&filter));
        assert_eq!((found.value, found.inserts), (before.value, before.inserts));
    }
}

#[test]
fn a_filter_matches_a_spec_by_its_named_parameters() {
    let home = directory();
    let dir = home.path().join("f");
    let named = |pairs: &[(&str, &str)]| {
        let all = pairs.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        Any::new("age-partitioned", all)
    };
    // Parameters that no planner would choose.
    let (window, fpr) = (("window-items", "1000"), ("fpr", "0.01"));
    let (k, l, words) = (("k", "9"), ("l", "20"), ("words", "7777"));
    let spec = named(&[window, fpr, k, l, words]);
    let filter = Filter::create(&dir, spec.clone(), stream()).expect("a filter");
    insert(&filter, 0..500);
    let before = digest(&filter).value;
    filter.close().expect("a clean close");
    let differently_spelt = [window, ("fpr", "1e-2")];
    for spec in [spec, named(&[window, fpr]), named(&[window]), named(&differently_spelt)] {
        let filter = Filter::open_or_create(&dir, spec.clone(), stream());
        let filter = filter.unwrap_or_else(|error| panic!("{spec:?}: {error}"));
        assert_eq!(digest(&filter).value, before, "{spec:?}");
        assert_eq!(filter.parameters().get("words"), Some("7777"));
    }
    let typed = AgePartitioned::last(1000).fpr(0.01);
    drop(Filter::open_or_create(&dir, typed, stream()).expect("the same by its type"));
    for (spec, name, [wanted, has]) in [
        (named(&[window, ("fpr", "0.02")]), "fpr", ["0.02", "0.01"]),
        (named(&[("window-items", "1001"), fpr]), "window-items", ["1001", "1000"]),
        (named(&[window, fpr, ("k", "10"), l]), "k", ["10", "9"]),
        (named(&[window, fpr, k, l, ("words", "7776")]), "words", ["7776", "7777"]),
    ] {
        let Err(Error::Mismatch { what, expected, found, .. }) =
            Filter::open_or_create(&dir, spec, stream())
        else {
            panic!("expected a mismatch of {name}");
        };
        assert_eq!((&*what, &*expected, &*found), (name, wanted, has));
    }
    assert_eq!(digest(&open(&dir, stream())).value, before, "the filter was changed");
}
