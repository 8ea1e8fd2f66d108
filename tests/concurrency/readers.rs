//! Readers of filters whose time stopped because their writers were killed, and of directories in
//! which the filter was replaced by another state of itself.

use ebbtide::{
    Age, AgePartitioned, Any, Downtime, Error, Filter, Options, Reader, TimeLimited, inspect,
};
use ebbtide_testkit::child::{self, Child};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The window of the filters that have a window of time.
const WINDOW: Duration = Duration::from_secs(4);

fn options() -> Options {
    Options::new().hash_seed(7).stripes(4).segment_bytes(16 << 10)
}

fn home() -> (TempDir, PathBuf) {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    (home, dir)
}

fn insert<K>(filter: &Filter<K>, keys: Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok(), "key {key}"));
}

/// Returns how many of the keys the reader finds.
fn found(reader: &Reader, keys: Range<u64>) -> usize {
    keys.filter(|key| reader.contains(key.to_le_bytes()).expect("an answer")).count()
}

/// Waits until the reader finds `expected` of the keys; fails after the interval at which readers
/// check the files, plus a margin.
#[track_caller]
fn comes_to_find(reader: &Reader, keys: Range<u64>, expected: usize, what: &str) {
    let began = Instant::now();
    loop {
        let found = found(reader, keys.clone());
        if found == expected {
            return;
        }
        let late = began.elapsed() > Duration::from_secs(20);
        assert!(!late, "{what}: the reader still finds {found} of {keys:?}, expected {expected}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a child that opens the filter and inserts keys on request.
#[test]
fn the_child_plays_its_role_when_it_is_one() {
    let Some(dir) = child::role() else { return };
    let filter = Filter::<Any>::open(dir, options()).expect("a filter");
    child::play(|line| {
        let (from, to) = line.split_once(' ').expect("two numbers");
        insert(&filter, from.parse().expect("a number")..to.parse().expect("a number"));
        "done".to_owned()
    });
}

fn writer(dir: &Path) -> Child {
    Child::start(module_path!(), &dir.display().to_string())
}

/// Returns how many keys are found long after all writers were killed: by a reader opened before,
/// by a reader opened after, and by the next writer.
fn after_all_writers_were_killed(downtime: Downtime) -> [usize; 3] {
    let (_home, dir) = home();
    let spec = TimeLimited::window(WINDOW).fpr(1e-6);
    let filter = Filter::create(&dir, spec, options().downtime(downtime)).expect("a filter");
    let mut child = writer(&dir);
    child.ask("0 100");
    // The last live writer is the one that is killed.
    drop(filter);
    let before = Reader::<Any>::open(&dir, options()).expect("a reader");
    assert_eq!(found(&before, 0..100), 100, "while the writer lives");
    child.kill();
    std::thread::sleep(WINDOW + Duration::from_secs(2));
    let after = Reader::<Any>::open(&dir, options()).expect("a reader");
    let there = [&before, &after].map(|reader| found(reader, 0..100));
    let filter = Filter::<Any>::open(&dir, options()).expect("a filter");
    let contains = |key: &u64| filter.contains(key.to_le_bytes()).expect("an answer");
    [there[0], there[1], (0..100).filter(contains).count()]
}

#[test]
fn the_time_of_a_freezing_filter_stops_when_its_writers_were_killed() {
    assert_eq!(after_all_writers_were_killed(Downtime::Freeze), [100; 3]);
}

#[test]
fn the_time_of_an_aging_filter_advances_when_its_writers_were_killed() {
    assert_eq!(after_all_writers_were_killed(Downtime::Age), [0; 3]);
}

#[test]
fn ages_stop_with_the_time_of_a_frozen_filter_whose_writers_were_killed() {
    let (_home, dir) = home();
    let spec = TimeLimited::window(Duration::from_secs(600)).fpr(1e-6);
    let frozen = options().downtime(Downtime::Freeze);
    drop(Filter::create(&dir, spec, frozen).expect("a filter"));
    let mut child = writer(&dir);
    child.ask("0 10");
    let reader = Reader::<TimeLimited>::open(&dir, options()).expect("a reader");
    child.kill();
    let mut ages = Vec::new();
    // After the reader has checked which handles are alive.
    std::thread::sleep(Duration::from_millis(1500));
    for _ in 0..3 {
        for key in 0..10_u64 {
            let age = reader.age(key.to_le_bytes()).expect("an answer");
            let Some(Age::Time(age)) = age else { panic!("key {key}: {age:?}") };
            ages.push(age);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(ages[..10], ages[10..20], "300 ms later");
    assert_eq!(ages[..10], ages[20..], "600 ms later");
}

fn create(dir: &Path) -> Filter<AgePartitioned> {
    let spec = AgePartitioned::last(100_000).fpr(1e-6);
    Filter::create(dir, spec, options()).expect("a filter")
}

/// Removes a directory and restores a backup in its place.
fn replace(dir: &Path, backup: &Path) {
    fs::remove_dir_all(dir).expect("a directory");
    inspect::restore(backup, dir).expect("a sound backup");
}

#[test]
fn a_reader_of_a_closed_filter_notices_a_backup_restored_in_its_place() {
    let (home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    let backup = home.path().join("backup");
    filter.backup(&backup).expect("a backup");
    insert(&filter, 100..200);
    filter.close().expect("a clean end");
    let reader = Reader::<Any>::open(&dir, options()).expect("a reader");
    assert_eq!(found(&reader, 0..300), 200);
    replace(&dir, &backup);
    comes_to_find(&reader, 0..300, 100, "restored");
    // The next writer of the restored filter begins a timeline with the number that the other
    // filter had.
    let filter = Filter::<Any>::open(&dir, options()).expect("a filter");
    insert(&filter, 200..250);
    comes_to_find(&reader, 0..300, 150, "written to after the restore");
}

#[test]
fn a_reader_notices_each_of_several_backups_restored_in_turn() {
    let (home, dir) = home();
    let filter = create(&home.path().join("original"));
    let backups = [100, 200, 300].map(|upto| {
        insert(&filter, upto - 100..upto);
        let backup = home.path().join(format!("backup {upto}"));
        filter.backup(&backup).expect("a backup");
        (backup, upto as usize)
    });
    inspect::restore(&backups[1].0, &dir).expect("a sound backup");
    let reader = Reader::<Any>::open(&dir, options()).expect("a reader");
    assert_eq!(found(&reader, 0..300), 200);
    // None of them has ever been open.
    for (backup, keys) in [&backups[0], &backups[2], &backups[1]] {
        replace(&dir, backup);
        comes_to_find(&reader, 0..300, *keys, "restored");
    }
}

#[test]
fn a_reader_beside_dead_writers_notices_a_backup_restored_in_its_place() {
    let (home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    let backup = home.path().join("backup");
    filter.backup(&backup).expect("a backup");
    filter.close().expect("a clean end");
    let mut child = writer(&dir);
    child.ask("100 200");
    let reader = Reader::<Any>::open(&dir, options()).expect("a reader");
    assert_eq!(found(&reader, 0..300), 200);
    child.kill();
    assert_eq!(found(&reader, 0..300), 200, "from the files of the dead writers");
    replace(&dir, &backup);
    comes_to_find(&reader, 0..300, 100, "restored");
}

#[test]
fn a_reader_of_an_image_of_the_same_timeline_notices_a_restored_filter_in_use() {
    let (home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    let backup = home.path().join("backup");
    filter.backup(&backup).expect("a backup");
    filter.close().expect("a clean end");
    let mut child = writer(&dir);
    child.ask("100 200");
    let reader = Reader::<Any>::open(&dir, options()).expect("a reader");
    assert_eq!(found(&reader, 0..300), 200);
    child.kill();
    replace(&dir, &backup);
    // It begins the timeline that follows that of the backup, as the child did.
    let filter = Filter::<Any>::open(&dir, options()).expect("a filter");
    insert(&filter, 200..250);
    comes_to_find(&reader, 0..300, 150, "restored and written to");
}

#[test]
fn a_reader_of_a_closed_filter_notices_its_removal() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    filter.close().expect("a clean end");
    let reader = Reader::<Any>::open(&dir, options()).expect("a reader");
    fs::remove_dir_all(&dir).expect("a directory");
    let began = Instant::now();
    let error = loop {
        match reader.contains(0_u64.to_le_bytes()) {
            Err(error) => break error,
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(20), "the reader still answers"),
        }
    };
    assert!(matches!(error, Error::NotAFilter { .. }), "{error}");
}
