//! Full disks and single failures cause an error, lose nothing, and leave the same handle usable.
//!
//! The tests use a medium in memory of adjustable size, then a real file system of a few megabytes
//! (this needs the right to mount; otherwise the test reports that it was skipped). In the last
//! tests every call to the medium fails once, one after the other.

use ebbtide::media::{Access, Disk, Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Bloom, Error, Filter, Parameters, TimeLimited, Timestamp, inspect,
};
use ebbtide_testkit::environment::effort;
use ebbtide_testkit::failing::Failing;
use ebbtide_testkit::mount::{mounted, run, unmount};
use ebbtide_testkit::skipped::skipped;
use ebbtide_testkit::space::{digest, options, shared, spec, used};
use std::io::ErrorKind;
use std::time::Duration;

/// Inserts keys from `from` on until one fails; returns that key and the error.
fn fill<K>(filter: &Filter<K>, from: u64) -> (u64, Error) {
    for key in from..from + 1_000_000 {
        if let Err(error) = filter.insert(key.to_le_bytes()) {
            return (key, error);
        }
    }
    panic!("a million inserts and the disk is not full");
}

fn assert_has<K>(filter: &Filter<K>, keys: std::ops::Range<u64>) {
    for key in keys {
        assert!(filter.contains(key.to_le_bytes()).expect("an answer"), "{key} is gone");
    }
}

fn assert_full(error: &Error) {
    assert!(error.is_full(), "{error}");
    assert!(error.to_string().contains("nothing is lost"), "{error}");
}

/// Gives the log the space of its whole segments, so that something else is the first to find none.
fn allocate_log(memory: &Memory) {
    let names = memory.list().expect("a directory");
    for name in names.iter().filter(|name| name.starts_with("wal-")) {
        let file = memory.open(name, Access::Write).expect("it is there");
        file.allocate(0..file.bytes().expect("a length")).expect("space");
    }
}

#[test]
fn inserts_into_a_full_log_fail_and_succeed_once_there_is_space() {
    let memory = Memory::new();
    let filter = Filter::create_on(shared(&memory), spec(), options()).expect("room");
    memory.set_capacity(used(&memory) + 20_000);
    let (keys, error) = fill(&filter, 0);
    assert_full(&error);
    assert!(keys > 128, "no space was left for another segment");
    let before = digest(&filter);
    assert_eq!(before.inserts, keys);
    for _ in 0..3 {
        assert_full(&filter.insert("again").expect_err("still full"));
        assert_full(&filter.check_and_insert("again").expect_err("still full"));
        assert_full(&filter.insert_all(&["a", "b"]).expect_err("still full"));
    }
    assert!(!filter.contains("again").expect("an answer"), "nothing was torn");
    assert_has(&filter, 0..keys);
    assert_eq!(digest(&filter), before, "nothing changed");
    memory.set_capacity(u64::MAX);
    for key in keys..keys + 1000 {
        filter.insert(key.to_le_bytes()).expect("there is space");
    }
    let before = digest(&filter);
    filter.close().expect("a clean end");
    let filter = Filter::<Any>::open_on(shared(&memory), options()).expect("the same filter");
    assert_eq!(digest(&filter).value, before.value);
    assert_has(&filter, 0..keys + 1000);
}

#[test]
fn a_filter_dropped_on_a_full_disk_is_complete_when_opened_again() {
    let memory = Memory::new();
    let filter = Filter::create_on(shared(&memory), spec(), options()).expect("room");
    memory.set_capacity(used(&memory) + 20_000);
    let (keys, _) = fill(&filter, 0);
    let before = digest(&filter);
    assert_full(&filter.close().expect_err("no room for a snapshot"));
    let error = Filter::<Any>::open_on(shared(&memory), options()).expect_err("still full");
    assert_full(&error);
    assert!(inspect::verify_on(&memory).expect("a report").is_sound());
    memory.set_capacity(u64::MAX);
    let filter = Filter::<Any>::open_on(shared(&memory), options()).expect("there is space");
    assert_eq!(digest(&filter).value, before.value);
    assert_has(&filter, 0..keys);
}

/// Otherwise lookups would have seen a step that recovery omits, because no insert follows it.
#[test]
fn an_insert_without_space_does_not_move_the_window() {
    for window in 5..60 {
        let memory = Memory::new();
        let spec = AgePartitioned::last(window);
        let filter = Filter::create_on(shared(&memory), spec, options()).expect("room");
        memory.set_capacity(used(&memory));
        let (_, error) = fill(&filter, 0);
        assert_full(&error);
        let before = digest(&filter);
        drop(filter);
        memory.set_capacity(u64::MAX);
        let filter = Filter::<Any>::open_on(shared(&memory), options()).expect("there is space");
        assert_eq!(digest(&filter).value, before.value, "window of {window}");
    }
}

#[test]
fn an_insert_without_space_does_not_move_the_time() {
    for earlier in 0..4 {
        let memory = Memory::new();
        let spec = TimeLimited::window(Duration::from_secs(128));
        let filter = Filter::create_on(shared(&memory), spec, options()).expect("room");
        memory.set_capacity(used(&memory));
        let insert = |second: u64| {
            filter.call().time(Timestamp::from_unix_millis(1000 * second)).insert("key")
        };
        (0..earlier).for_each(|_| assert!(insert(1).is_ok()));
        // Each key is so far ahead that its time is recorded first.
        let mut second = 1_u64;
        let (error, before) = loop {
            let before = digest(&filter);
            second += 1;
            if let Err(error) = insert(second) {
                break (error, before);
            }
        };
        assert_full(&error);
        assert_eq!(digest(&filter), before, "after {earlier} others, at {second} s");
    }
}

#[test]
fn for_every_disk_size_a_filter_is_created_completely_or_not_at_all() {
    // Every capacity from none to enough, in steps smaller than any file except the lock.
    let mut created = 0;
    for capacity in (0..120_000).step_by(500) {
        let memory = Memory::with_capacity(capacity);
        match Filter::create_on(shared(&memory), spec(), options()) {
            Ok(filter) => {
                filter.insert("key").expect("the segment exists");
                created += 1;
            }
            Err(error) => {
                assert_full(&error);
                let left = memory.list().expect("a directory");
                assert!(left.iter().all(|name| name == "lock"), "{capacity}: {left:?}");
                let error = Filter::<Any>::open_on(shared(&memory), options());
                assert!(matches!(error, Err(Error::NotAFilter { .. })), "{capacity}");
                memory.set_capacity(u64::MAX);
                let filter = Filter::create_on(shared(&memory), spec(), options());
                filter.expect("now there is space").insert("key").expect("an insert");
            }
        }
        memory.set_capacity(u64::MAX);
        let filter = Filter::<Any>::open_on(shared(&memory), options()).expect("a filter");
        assert!(filter.contains("key").expect("an answer"), "{capacity}");
    }
    assert!(created > 0 && created < 240, "both outcomes must occur: {created}");
}

#[test]
fn opening_fails_on_a_full_disk_at_any_file_and_works_after() {
    let memory = Memory::new();
    let filter = Filter::create_on(shared(&memory), spec(), options()).expect("room");
    for key in 0..500_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    let before = digest(&filter);
    filter.close().expect("a clean end");
    // Below this capacity files can only be made in the space of removed ones: the old banks, and
    // log that no timeline needs.
    let (mut refused, least) = (0, used(&memory) / 2);
    for more in (0..200_000).step_by(2000) {
        // The old image is replaced only by a complete new one.
        memory.set_capacity(least + more);
        match Filter::<Any>::open_on(shared(&memory), options()) {
            Ok(_) => break,
            Err(error) => assert_full(&error),
        }
        refused += 1;
    }
    assert!(refused > 1, "the first attempt succeeded");
    memory.set_capacity(u64::MAX);
    let filter = Filter::<Any>::open_on(shared(&memory), options()).expect("there is space");
    assert_eq!(digest(&filter).value, before.value);
    assert_has(&filter, 0..500);
}

fn insert_at<K>(filter: &Filter<K>, key: u64, millis: u64) -> Result<bool, Error> {
    let time = Timestamp::from_unix_millis(1_000_000 + millis);
    filter.call().time(time).insert(key.to_le_bytes())
}

fn banks<K>(filter: &Filter<K>) -> u32 {
    filter.stat().expect("figures").banks
}

#[test]
fn a_bank_without_space_opens_later() {
    let memory = Memory::new();
    let spec = TimeLimited::window(Duration::from_secs(600)).rate(1.0);
    let filter = Filter::create_on(shared(&memory), spec, options().segment_bytes(1 << 20));
    let filter = filter.expect("room");
    allocate_log(&memory);
    memory.set_capacity(used(&memory) + 100);
    // Ten thousand keys per second, although one was expected.
    let mut inserted = 0;
    let error = loop {
        match insert_at(&filter, inserted, inserted / 10) {
            Ok(_) => inserted += 1,
            Err(error) => break error,
        }
        assert!(inserted < 30_000, "no bank was due");
    };
    assert_full(&error);
    assert!(error.to_string().contains("live-"), "the error is not about the bank: {error}");
    assert_eq!(banks(&filter), 1);
    let before = digest(&filter);
    assert_has(&filter, 0..inserted);
    insert_at(&filter, inserted, inserted / 10).expect_err("still full");
    assert_eq!(digest(&filter), before, "nothing changed");
    memory.set_capacity(u64::MAX);
    for key in inserted..inserted + 1000 {
        insert_at(&filter, key, key / 10).expect("there is space");
    }
    assert_eq!(banks(&filter), 2);
    assert_has(&filter, 0..inserted + 1000);
    let before = digest(&filter);
    filter.close().expect("a clean end");
    let filter = Filter::<Any>::open_on(shared(&memory), options().segment_bytes(1 << 20))
        .expect("the same filter");
    assert_eq!(digest(&filter).value, before.value);
    assert_has(&filter, 0..inserted + 1000);
}

#[test]
fn a_block_without_space_for_its_counters_fails_that_insert_and_grows_later() {
    for kind in ["dynamic-count", "spectral"] {
        let memory = Memory::new();
        let spec = Any::new(kind, Parameters::new().with("capacity", 20_000).with("fpr", 0.01));
        let filter = Filter::create_on(shared(&memory), spec, options().segment_bytes(1 << 20));
        let filter = filter.expect("room");
        for key in 0..5000_u64 {
            filter.insert(key.to_le_bytes()).expect("room");
        }
        allocate_log(&memory);
        memory.set_capacity(used(&memory));
        let before = digest(&filter);
        // Counters that need many more bits than there is space for.
        let heavy = |key: u64| filter.call().times(1 << 23).insert(key.to_le_bytes());
        let refused = (0..5000).filter(|&key| heavy(key).is_err()).count();
        assert!(refused > 0, "{kind}: no insert was refused");
        for key in 0..5000_u64 {
            let estimate = filter.estimate(key.to_le_bytes()).expect("an answer");
            assert!(estimate.count >= 1.0, "{kind}: {key} is gone");
        }
        let went_well = 5000 - refused as u64;
        assert_eq!(digest(&filter).inserts, before.inserts + went_well, "{kind}");
        let error = (0..5000).find_map(|key| heavy(key).err()).expect("still full");
        assert_full(&error);
        memory.set_capacity(u64::MAX);
        heavy(7).expect("there is space");
        assert!(filter.estimate(7_u64.to_le_bytes()).expect("an answer").count > 8_388_608.0);
        let before = digest(&filter);
        filter.close().expect("a clean end");
        let filter = Filter::<Any>::open_on(shared(&memory), options().segment_bytes(1 << 20))
            .expect("the same filter");
        assert_eq!(digest(&filter).value, before.value, "{kind}");
    }
}

#[test]
fn a_block_that_ends_in_zeros_keeps_its_size_across_a_restart() {
    let memory = Memory::new();
    let parameters = Parameters::new().with("capacity", 1000).with("cells", 8000).with("k", 1);
    let spec = Any::new("dynamic-count", parameters.with("mean-count", 1));
    let filter = Filter::create_on(shared(&memory), spec, options()).expect("room");
    // One counter of many bits widens all of them.
    filter.call().times(8_000_000).insert("heavy").expect("room");
    let before = filter.stat().expect("figures").memory_bytes;
    filter.close().expect("a clean end");
    let filter = Filter::<Any>::open_on(shared(&memory), options()).expect("the same filter");
    assert_eq!(filter.stat().expect("figures").memory_bytes, before);
}

/// Inserts ten thousand keys per second, the first `notes` of them followed by a sync, which writes
/// a durable note to the log. If the log is full when a bank is due, the bank is allocated but the
/// segment for its record is not. The remaining keys then follow `pause` milliseconds later, when
/// the bank's size is decided again. Returns whether that happened.
fn bank_due_on_a_full_log(notes: u64, pause: u64) -> bool {
    let memory = Failing::new(Memory::new());
    let spec = TimeLimited::window(Duration::from_secs(600)).rate(1.0);
    let filter = Filter::create_on(shared(&memory), spec, options()).expect("room");
    let mut late = 0;
    for key in 0..4000 {
        // Allocating a bank takes three calls, and looking at the image before the log is extended
        // as many; the next call is for the segment.
        memory.fail_after(7, ErrorKind::StorageFull);
        let mut inserted = insert_at(&filter, key, key / 10 + late);
        memory.clear_faults();
        if inserted.is_err() {
            let names = memory.list().expect("a directory");
            let bank = names.iter().any(|name| name == "live-000002-0001");
            if bank && banks(&filter) == 1 {
                late = pause;
            }
            inserted = insert_at(&filter, key, key / 10 + late);
        }
        inserted.expect("there is space");
        if key < notes {
            filter.sync().expect("a sync");
        }
    }
    let before = digest(&filter);
    filter.close().expect("a clean end");
    let filter = Filter::<Any>::open_on(shared(&memory), options()).expect("the same filter");
    assert_eq!(digest(&filter).value, before.value, "{notes} notes, {pause} ms");
    assert_has(&filter, 0..4000);
    late > 0
}

#[test]
fn a_bank_allocated_in_vain_is_not_used_for_a_later_one_of_another_size() {
    let happened = (96..128).filter(|&notes| bank_due_on_a_full_log(notes, 200)).count();
    assert!(happened > 0, "for no slot in a segment of 128 records");
}

/// More than a segment has records.
const KEYS: u64 = 150;

/// Creates, inserts, takes a snapshot, closes, opens, inserts. Returns whether the filter was
/// created and how many inserts returned, up to the first failure.
fn workload(memory: &Failing<Memory>, spec: &Any) -> (bool, u64, Result<(), Error>) {
    let (mut created, mut inserted) = (false, 0);
    let mut run = || -> Result<(), Error> {
        let filter = Filter::create_on(shared(memory), spec.clone(), options())?;
        created = true;
        let mut insert = |filter: &Filter, upto: u64| -> Result<(), Error> {
            while inserted < upto {
                insert_at(filter, inserted, inserted * 20)?;
                inserted += 1;
            }
            Ok(())
        };
        insert(&filter, KEYS)?;
        filter.checkpoint()?;
        insert(&filter, 2 * KEYS)?;
        filter.sync()?;
        filter.stat()?;
        insert(&filter, 3 * KEYS)?;
        filter.checkpoint()?;
        filter.checkpoint()?;
        filter.close()?;
        let filter = Filter::open_on(shared(memory), options())?;
        insert(&filter, 4 * KEYS)?;
        drop(filter);
        let filter = Filter::<Any>::open_on(shared(memory), options())?;
        filter.close()
    };
    let outcome = run();
    (created, inserted, outcome)
}

/// Lets one call fail after the other, from this one on (with less effort one in some). Returns how
/// many there are.
fn sweep(spec: &Any, kind: ErrorKind, first: u64) -> u64 {
    let one_in = (40 / effort()).max(1);
    for n in (first..).step_by(one_in as usize) {
        let memory = Failing::new(Memory::new());
        memory.fail_after(n, kind);
        let (created, inserted, outcome) = workload(&memory, spec);
        let reached = !memory.clear_faults();
        if let Err(error) = outcome {
            assert!(!error.to_string().is_empty());
        } else if !reached {
            return n;
        }
        match Filter::<Any>::open_on(shared(&memory), options()) {
            Ok(filter) => {
                let found = digest(&filter).inserts;
                // The insert in progress may be present as well.
                assert!((inserted..=inserted + 1).contains(&found), "{n}: {found} of {inserted}");
                assert_has(&filter, 0..inserted);
                filter.checkpoint().expect("nothing fails any more");
            }
            Err(Error::NotAFilter { .. }) if !created => {
                let filter = Filter::create_on(shared(&memory), spec.clone(), options());
                filter.expect("it can be created now");
            }
            Err(error) => panic!("call {n}, {kind}: {error}"),
        }
        let report = inspect::verify_on(&memory).expect("a report");
        assert!(report.is_sound(), "call {n}, {kind}: {report:#?}");
    }
    unreachable!("a workload ends")
}

#[test]
fn any_single_failure_is_an_error_and_loses_no_insert_that_returned() {
    let kinds = [
        Any::new("age-partitioned", Parameters::new().with("window-items", 5000)),
        Any::new("time-limited", Parameters::new().with("window", 60_000_000).with("rate", 1)),
    ];
    std::thread::scope(|scope| {
        for spec in &kinds {
            scope.spawn(|| {
                let kinds = [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::NotFound];
                for (first, kind) in (1..).zip(kinds) {
                    let calls = sweep(spec, kind, first);
                    assert!(calls > 100, "more calls than that: {calls}");
                }
            });
        }
    });
}

#[test]
fn a_real_file_system_that_is_full_loses_nothing() {
    mounted(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"], full_file_system);
}

fn full_file_system(place: &std::path::Path) {
    let home = place.join("filter");
    let large = Bloom::capacity(10_000_000);
    let error = Filter::create(&home, large, options()).expect_err("17 MiB in 8");
    assert_full(&error);
    assert!(matches!(Filter::<Any>::open(&home, options()), Err(Error::NotAFilter { .. })));
    let small = AgePartitioned::last(1_000_000).fpr(0.5);
    let filter = Filter::create(&home, small.clone(), options().segment_bytes(256 << 10));
    let filter = filter.expect("2 MiB in 8");
    let (keys, error) = fill(&filter, 0);
    assert_full(&error);
    assert_has(&filter, 0..keys);
    let before = digest(&filter);
    assert_full(&filter.checkpoint().expect_err("no room for a snapshot"));
    assert_eq!(digest(&filter), before, "nothing changed");
    assert_full(&filter.close().expect_err("no room for a snapshot"));
    // A mapped file takes space even after a close.
    drop(filter);
    let filter = Filter::<Any>::open(&home, options().segment_bytes(256 << 10))
        .expect("the log makes room for a snapshot");
    assert_eq!(digest(&filter).value, before.value);
    drop(filter);
    let path = place.to_string_lossy().into_owned();
    assert!(run("mount", &["-o", "remount,size=64m", &path]), "the mount is mine");
    let filter =
        Filter::<Any>::open(&home, options().segment_bytes(256 << 10)).expect("now there is room");
    assert_eq!(digest(&filter).value, before.value);
    assert_has(&filter, 0..keys);
    filter.insert("one more").expect("an insert");
    filter.close().expect("a clean end");
    let report = inspect::verify_on(&Disk::new(&home)).expect("a report");
    assert!(report.is_sound(), "{report:#?}");
}

/// The kernel allocates a whole page when something is stored there, and kills the process if there
/// is no space.
#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn on_blocks_smaller_than_pages_whole_pages_are_allocated() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (image, place) = (home.path().join("image"), home.path().join("place"));
    let made = std::fs::File::create(&image).and_then(|file| file.set_len(8 << 20));
    made.and_then(|()| std::fs::create_dir(&place)).expect("a directory of ours");
    let [image, path] = [&image, &place].map(|path| path.to_string_lossy().into_owned());
    let is_mounted = run("mkfs.ext4", &["-q", "-b", "1024", &image])
        && run("mount", &["-o", "loop", &image, &path]);
    if !is_mounted {
        skipped("mounting needs to be root in the initial namespace, and mkfs.ext4");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let file = Disk::new(&place).create_with_hole("a", 16 * 4096, 100).expect("space");
        let space = || file.allocated_bytes().expect("open");
        let begun = space();
        assert!(begun >= 4096);
        file.allocate(9000..9100).expect("space");
        assert!(space() >= begun + 4096);
        file.free(9050..3 * 4096).expect("the rest of the page is left");
        assert!(space() >= begun + 4096);
        file.free(8192..3 * 4096).expect("all blocks are freed");
        assert!(space() < begun + 4096);
    });
    assert!(unmount(&path), "unmounted");
    outcome.expect("see above");
}

#[test]
fn a_backup_without_space_leaves_no_files_and_succeeds_once_there_is_space() {
    mounted(&["-t", "tmpfs", "-o", "size=4k", "tmpfs"], backup_page_by_page);
}

/// Tries a backup with one more page each time, until it succeeds.
fn backup_page_by_page(place: &std::path::Path) {
    let memory = Memory::new();
    let filter = Filter::create_on(shared(&memory), AgePartitioned::last(1000), options());
    let filter = filter.expect("room");
    filter.insert_all(&[[7_u8; 8]; 300]).expect("inserts");
    let before = digest(&filter);
    let (home, path) = (place.join("copy"), place.to_string_lossy().into_owned());
    let mut failed = Vec::new();
    for pages in 1..200 {
        let size = format!("remount,size={}k", 4 * pages);
        assert!(run("mount", &["-o", &size, &path]), "the mount is mine");
        let Err(error) = filter.backup(&home) else {
            break;
        };
        assert_full(&error);
        let left = Disk::new(&home).list().expect("a directory");
        assert_eq!(left, ["lock"], "{pages} pages, {error}");
        assert_eq!(digest(&filter).value, before.value, "{pages} pages");
        let Error::Io { path, .. } = error else { panic!("see above") };
        failed.push(path);
    }
    failed.dedup();
    assert!(failed.len() >= 3, "the snapshot, the log, and `meta` found no room: {failed:?}");
    let report = inspect::verify_on(&Disk::new(&home)).expect("a backup");
    assert!(report.is_sound(), "{report:#?}");
    assert!(run("mount", &["-o", "remount,size=64m", &path]), "the mount is mine");
    let copy = Filter::<Any>::open(&home, options()).expect("the backup opens");
    assert_eq!(digest(&copy).value, before.value);
}
