//! Handles that join others on a filter: each sees the changes of the others, also after a long
//! sleep, and also after failures.

use crate::faulty::Faulty;
use ebbtide::media::{Disk, Memory};
use ebbtide::{
    AgePartitioned, Any, Checked, Clock, Durability, Error, Filter, Fingerprint, Options,
    Parameters, Reader, Spec, TimeLimited, Timestamp, inspect,
};
use ebbtide_testkit::child::{self, Child};
use ebbtide_testkit::skipped::skipped;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Options of a handle without background threads, on small segments of 128 records.
fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .stripes(4)
        .segment_bytes(4 << 10)
        .durability(Durability::Never)
        .clock(Clock::stream())
        .background(false)
}

fn home() -> (TempDir, PathBuf) {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    (home, dir)
}

fn create(dir: &Path) -> Filter<AgePartitioned> {
    Filter::create(dir, AgePartitioned::last(100_000).fpr(1e-6), options()).expect("a filter")
}

fn open(dir: &Path) -> Filter {
    Filter::open(dir, options()).expect("a filter")
}

fn insert<K>(filter: &Filter<K>, keys: Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
}

fn has<K>(filter: &Filter<K>, key: u64) -> bool {
    filter.contains(key.to_le_bytes()).expect("an answer")
}

fn assert_has<K>(filter: &Filter<K>, keys: Range<u64>) {
    for key in keys {
        assert!(has(filter, key), "{key}");
    }
}

fn digest<K>(filter: &Filter<K>) -> u128 {
    filter.digest().expect("a digest").value
}

fn assert_poisoned<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Poisoned { .. })), "{result:?}");
}

fn assert_retired<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Retired { .. })), "{result:?}");
}

/// Sixty keys are expected, then ten thousand arrive, then few: banks open and close.
fn time_limited() -> TimeLimited {
    TimeLimited::window(Duration::from_secs(60)).rate(1.0)
}

/// Inserts key `key` of that stream.
fn insert_of_stream<K>(filter: &Filter<K>, key: u64) -> Result<bool, Error> {
    let millis = if key < 10_000 { key * 4 } else { 40_000 + (key - 10_000) * 1000 };
    let time = Timestamp::from_unix_millis(1_000_000 + millis);
    filter.call().time(time).insert(key.to_le_bytes())
}

const STREAM: u64 = 10_200;

fn banks<K>(filter: &Filter<K>) -> u32 {
    filter.stat().expect("figures").banks
}

/// Runs the role of a child on the filter in this directory.
#[test]
fn the_child_plays_its_role_when_it_is_one() {
    let Some(role) = child::role() else { return };
    let filter = open(Path::new(&role));
    child::play(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [from, to] = [1, 2].map(|at| words.get(at).map_or(0, |word| word.parse().expect(word)));
        match words[0] {
            "insert" => insert(&filter, from..to),
            "stream" => {
                (from..to).for_each(|key| {
                    insert_of_stream(&filter, key).expect("an insert");
                });
            }
            "try" => return format!("{:?}", filter.insert("key").map_err(|error| name(&error))),
            "found" => return (from..to).filter(|&key| has(&filter, key)).count().to_string(),
            "banks" => return banks(&filter).to_string(),
            "digest" => return digest(&filter).to_string(),
            other => panic!("{other}"),
        }
        "done".to_owned()
    });
}

fn name(error: &Error) -> &'static str {
    match error {
        Error::Poisoned { .. } => "poisoned",
        Error::Retired { .. } => "retired",
        _ => "another",
    }
}

#[test]
fn banks_that_one_handle_opens_and_closes_are_followed_by_the_other() {
    let (_home, dir) = home();
    let first = Filter::create(&dir, time_limited(), options()).expect("a filter");
    let second = open(&dir);
    let (mut most, mut last) = (0, 0);
    for key in 0..STREAM {
        // In turns of a hundred keys.
        if key / 100 % 2 == 0 {
            insert_of_stream(&first, key).expect("an insert");
        } else {
            insert_of_stream(&second, key).expect("an insert");
        }
        assert!(has(&first, key) && has(&second, key), "{key}");
        last = banks(&second);
        assert_eq!(banks(&first), last);
        most = most.max(last);
    }
    assert!(most > 1 && last < most, "{most} banks, {last} in the end");
    for key in 0..2 * STREAM {
        assert_eq!(has(&first, key), has(&second, key), "{key}");
    }
    let expected = digest(&first);
    assert_eq!(digest(&second), expected);
    first.close().expect("a clean end");
    second.close().expect("a clean end");
    assert_eq!(digest(&open(&dir)), expected);
}

#[test]
fn banks_that_one_process_opens_and_closes_are_followed_by_the_other() {
    let (_home, dir) = home();
    let filter = Filter::create(&dir, time_limited(), options()).expect("a filter");
    let mut child = Child::start(module_path!(), dir.to_str().expect("UTF-8"));
    let mut most = 0;
    for from in (0..STREAM).step_by(100) {
        if from / 100 % 2 == 0 {
            (from..from + 100).for_each(|key| {
                insert_of_stream(&filter, key).expect("an insert");
            });
        } else {
            child.ask(&format!("stream {from} {}", from + 100));
        }
        assert_eq!(child.ask("banks"), banks(&filter).to_string());
        most = most.max(banks(&filter));
        let found = (from..from + 200).filter(|&key| has(&filter, key)).count();
        assert_eq!(child.ask(&format!("found {from} {}", from + 200)), found.to_string());
    }
    assert!(most > 1 && banks(&filter) < most, "{most} banks");
    let expected = digest(&filter);
    assert_eq!(child.ask("digest"), expected.to_string());
    child.kill();
    filter.close().expect("a clean end");
    assert_eq!(digest(&open(&dir)), expected);
}

/// Returns the first LSN of the oldest log segment.
fn oldest_log(dir: &Path) -> u64 {
    let names = fs::read_dir(dir).expect("a directory");
    let names = names.map(|entry| entry.expect("a name").file_name().into_string().expect("ASCII"));
    let firsts = names.filter_map(|name| name.strip_prefix("wal-")?.get(7..)?.parse().ok());
    firsts.min().expect("a log")
}

#[test]
fn a_handle_that_slept_while_its_log_was_removed_still_works() {
    let (_home, dir) = home();
    let asleep = create(&dir);
    insert(&asleep, 0..10);
    let mut child = Child::start(module_path!(), dir.to_str().expect("UTF-8"));
    child.ask("insert 0 10");
    let busy = open(&dir);
    for round in 1..6_u64 {
        insert(&busy, round * 2000..round * 2000 + 2000);
        busy.checkpoint().expect("a snapshot");
    }
    assert!(oldest_log(&dir) > 4000, "the log of the sleepers is gone");
    assert_has(&asleep, 2000..12_000);
    insert(&asleep, 12_000..12_010);
    child.ask("insert 12010 12020");
    asleep.sync().expect("a sync");
    assert_eq!(asleep.check_and_insert(2000_u64.to_le_bytes()).expect("one"), Checked::Present);
    insert(&asleep, 13_000..15_000);
    asleep.checkpoint().expect("a snapshot");
    assert_eq!(child.ask("found 12000 12020"), "20");
    let expected = digest(&asleep);
    assert_eq!((digest(&busy), child.ask("digest")), (expected, expected.to_string()));
    child.end();
    drop((asleep, busy));
    assert_eq!(digest(&open(&dir)), expected);
}

#[test]
fn handles_keep_their_own_settings_and_the_filter_those_of_its_creation() {
    let (_home, dir) = home();
    let idle = create(&dir);
    let mine = Options::new().durability(Durability::Always);
    let eager = Filter::<Any>::open(&dir, mine.checkpoint_bytes(16 << 10)).expect("a filter");
    let stat = eager.stat().expect("figures");
    assert_eq!((stat.stripes, stat.durability), (4, Durability::Always));
    assert_eq!(idle.stat().expect("figures").durability, Durability::Never);
    // The handle without threads makes work for the threads of the other one.
    insert(&idle, 0..5000);
    let began = Instant::now();
    while idle.stat().expect("figures").snapshots == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "no checkpoint within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    insert(&eager, 5000..6000);
    let expected = digest(&idle);
    eager.close().expect("a clean end");
    // A single handle without threads: no background work happens.
    let before = idle.stat().expect("figures").snapshots;
    insert(&idle, 0..1);
    assert_eq!(idle.stat().expect("figures").snapshots, before);
    assert_ne!(digest(&idle), expected);
    let expected = digest(&idle);
    idle.close().expect("a clean end");
    assert_eq!(digest(&open(&dir)), expected);
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "images lie beside the log"
)]
fn an_opener_waits_for_a_handle_that_ends_and_has_its_image_no_more() {
    let home = tempfile::tempdir().expect("a directory");
    let media = Faulty::new(Disk::new(home.path().join("filter")));
    media.faults.in_memory.store(true, Ordering::SeqCst);
    let window = Fingerprint::window(Duration::from_secs(600));
    let filter = Filter::create_on(media.clone(), window, options()).expect("a filter");
    filter.insert("key").expect("an insert");
    media.faults.missing.store(20, Ordering::SeqCst);
    let other = Filter::<Fingerprint>::open_on(media.clone(), options()).expect("it was there");
    assert_eq!(media.faults.missing.load(Ordering::SeqCst), 0);
    assert!(other.contains("key").expect("an answer"));
    // Not without limit: the handle may be one that has lost its image.
    media.faults.missing.store(u64::MAX, Ordering::SeqCst);
    let refused = Filter::<Fingerprint>::open_on(media.clone(), options());
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    assert!(filter.contains("key").expect("an answer"));
}

fn any(kind: &str, size: &str, keys: u64) -> Any {
    Any::new(kind, Parameters::new().with(size, keys).with("fpr", 1e-9))
}

/// Checks both handles of a filter that one of them has poisoned: writes are refused, lookups work,
/// and the filter recovers when both are closed. They contain the keys from 0 up to `keys`.
fn assert_poisoned_until_closed(media: Arc<Faulty>, handles: [Filter; 2], keys: u64) {
    let reader = Reader::<Any>::open_on(media.clone(), options()).expect("reads still work");
    for filter in &handles {
        assert_poisoned(filter.insert("after"));
        assert_poisoned(filter.check_and_insert("after"));
        assert_poisoned(filter.sync());
        assert_poisoned(filter.checkpoint());
        assert_has(filter, 0..keys);
        assert!(!filter.contains("after").expect("an answer"));
        filter.stat().expect("figures");
    }
    for key in 0..keys {
        assert!(reader.contains(key.to_le_bytes()).expect("an answer"), "{key}");
    }
    assert_poisoned(Filter::<Any>::open_on(media.clone(), options()));
    let [first, second] = handles;
    assert_poisoned(first.close());
    // One handle is still open.
    assert_poisoned(Filter::<Any>::open_on(media.clone(), options()));
    assert_poisoned(second.close());
    let filter = Filter::<Any>::open_on(media, options()).expect("it is recovered");
    assert_has(&filter, 0..keys);
    filter.insert("after").expect("an insert");
    filter.close().expect("a clean end");
    assert!(reader.contains("after").expect("an answer"), "the reader has followed");
}

#[test]
fn after_a_failed_sync_every_handle_refuses_writes_until_all_are_closed() {
    let (_home, dir) = home();
    let media = [Faulty::new(Memory::new()), Faulty::new(Disk::new(&dir))];
    for media in media {
        let spec = any("age-partitioned", "window-items", 100_000);
        let first = Filter::create_on(media.clone(), spec, options()).expect("a filter");
        let second = Filter::open_on(media.clone(), options()).expect("a filter");
        insert(&first, 0..500);
        insert(&second, 500..1000);
        media.faults.sync.store(true, Ordering::SeqCst);
        assert_poisoned(second.sync());
        assert_poisoned_until_closed(media, [first, second], 1000);
    }
}

#[test]
fn a_failed_sync_in_one_process_stops_the_writes_of_another() {
    let (_home, dir) = home();
    let media = Faulty::new(Disk::new(&dir));
    let spec = any("bloom", "capacity", 10_000);
    let first = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    let second = Filter::open_on(media.clone(), options()).expect("a filter");
    let mut child = Child::start(module_path!(), dir.to_str().expect("UTF-8"));
    child.ask("insert 0 100");
    assert_eq!(child.ask("found 0 200"), "100");
    media.faults.sync.store(true, Ordering::SeqCst);
    assert_poisoned(first.sync());
    assert_eq!(child.ask("try"), "Err(\"poisoned\")");
    assert_eq!(child.ask("found 0 200"), "100");
    child.kill();
    assert_poisoned_until_closed(media, [first, second], 100);
}

/// Returns the bytes that this thread has passed to the system for a disk, including stores to
/// pages; `None` if the system does not count them.
fn written() -> Option<u64> {
    let counted = fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = counted.lines().find_map(|line| line.strip_prefix("write_bytes: "))?;
    line.parse().ok()
}

#[test]
fn overtaking_a_leader_rewrites_its_pages_although_they_count_as_clean() {
    let (_home, dir) = home();
    let spec = any("bloom", "capacity", 10_000);
    let filter = Filter::create(&dir, spec, options().segment_bytes(128 << 10)).expect("a filter");
    insert(&filter, 0..10);
    filter.sync().expect("a sync");
    let before = written();
    // Sixteen pages and more.
    insert(&filter, 10..2200);
    if written() == before {
        skipped("stores to the file system of the temporary directory are not counted (tmpfs)");
        return;
    }
    // A leader's sync failed, so the pages count as clean, and the leader died before it reported
    // that: its turn has no end.
    let paths = fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("one").path());
    for path in paths.filter(|path| path.is_file()) {
        let file = fs::File::open(path);
        file.and_then(|file| file.sync_all()).expect("a sound disk");
    }
    let live = fs::File::options().write(true).open(dir.join("live")).expect("an image");
    live.write_all_at(&1_u64.to_le_bytes(), 8 * 40).expect("the word of the turn");
    let before = written().expect("as before");
    filter.sync().expect("a sync");
    let again = written().expect("as before") - before;
    assert!(again >= 16 * 4096, "{again} bytes");
}

#[test]
fn a_panic_in_the_middle_of_an_insert_stops_the_writes_of_every_handle() {
    let media = Faulty::new(Memory::new());
    let spec = Any::new("time-limited", time_limited().parameters().clone());
    let first = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    let second = Filter::<Any>::open_on(media.clone(), options()).expect("a filter");
    media.faults.bank.store(true, Ordering::SeqCst);
    let mut keys = 0;
    while catch_unwind(AssertUnwindSafe(|| insert_of_stream(&second, keys).map(|_| ()))).is_ok() {
        keys += 1;
        assert!(keys < 10_000, "a bank was due long before");
    }
    assert_poisoned_until_closed(media, [first, second], keys);
}

#[test]
fn a_backup_by_one_handle_contains_the_inserts_of_the_other() {
    let (home, dir) = home();
    let writer = create(&dir);
    let copier = open(&dir);
    let (inserted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut key = 0;
            while !done.load(Ordering::Relaxed) {
                writer.insert(u64::to_le_bytes(key)).expect("an insert");
                key += 1;
                inserted.store(key, Ordering::Release);
                if key % 3000 == 0 {
                    writer.checkpoint().expect("a snapshot");
                }
            }
        });
        for round in 0..8 {
            let copy = home.path().join(format!("copy {round}"));
            let before = inserted.load(Ordering::Acquire);
            copier.backup(&copy).expect("a backup");
            assert!(inspect::verify(&copy).expect("a report").is_sound());
            let copy = open(&copy);
            // The window is 100,000 keys.
            assert_has(&copy, before.saturating_sub(50_000)..before);
            assert!(copy.stat().expect("figures").inserts >= before);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(inserted.load(Ordering::Relaxed) > 3000);
}

/// Checks that open handles keep working after damage to the file `live`, and that an opener gets
/// an error.
fn without_live(damage: impl FnOnce(&Path)) {
    let (_home, dir) = home();
    let handles = [
        Filter::open_or_create(&dir, any("bloom", "capacity", 10_000), options())
            .expect("a filter"),
        open(&dir),
    ];
    insert(&handles[0], 0..1000);
    damage(&dir.join("live"));
    let error = Filter::<Any>::open(&dir, options()).expect_err("there is no image to join");
    assert!(error.to_string().contains("live"), "{error}");
    let error = Reader::<Any>::open(&dir, options()).expect_err("nor for a reader");
    assert!(error.to_string().contains("live"), "{error}");
    for (at, filter) in (1..).zip(&handles) {
        insert(filter, at * 1000..at * 1000 + 1000);
        filter.sync().expect("a sync");
        filter.checkpoint().expect("a snapshot");
        assert_has(filter, 0..at * 1000 + 1000);
    }
    let expected = digest(&handles[0]);
    for filter in handles {
        filter.close().expect("a clean end");
    }
    let filter = open(&dir);
    assert_eq!(digest(&filter), expected);
    assert_has(&filter, 0..3000);
    insert(&filter, 3000..4000);
}

#[test]
fn handles_keep_working_when_the_live_image_loses_its_name() {
    without_live(|live| fs::remove_file(live).expect("it was there"));
}

#[test]
fn handles_keep_working_when_the_head_of_the_live_image_is_damaged() {
    without_live(|live| {
        let file = fs::OpenOptions::new().write(true).open(live).expect("it is there");
        file.write_all_at(b"what is this?", 3).expect("written");
    });
}

#[test]
fn a_handle_whose_image_was_retired_gets_an_error() {
    /// From `src/image/live_file.rs`: the offset of the status, and the value that marks an image
    /// as replaced.
    const STATUS: u64 = 25 * 8;
    const RETIRED: u64 = 2;
    let (_home, dir) = home();
    let first = create(&dir);
    let second = open(&dir);
    let reader = Reader::<Any>::open(&dir, options()).expect("a reader");
    insert(&first, 0..1000);
    let live = fs::OpenOptions::new().write(true).open(dir.join("live")).expect("it is there");
    live.write_all_at(&RETIRED.to_le_bytes(), STATUS).expect("written");
    assert_retired(first.insert("after"));
    assert_retired(second.check_and_insert("after"));
    assert_retired(second.checkpoint());
    assert_retired(first.sync());
    assert_retired(Filter::<Any>::open(&dir, options()));
    assert_retired(first.close());
    // The last handle writes no snapshot either; the log contains everything.
    assert_retired(second.close());
    let filter = open(&dir);
    assert_has(&filter, 0..1000);
    filter.insert("after").expect("an insert");
    assert!(reader.contains("after").expect("an answer"));
}
