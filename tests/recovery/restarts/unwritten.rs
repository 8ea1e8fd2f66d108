//! A filter that is opened after a clean close gets no log until its first record.

use super::{directory, options};
use ebbtide::history::Unlogged;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{Bloom, Durability, Error, Filter, Options, Reader, inspect};
use ebbtide_testkit::copies::{copy_files, names};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::failing::Failing;
use ebbtide_testkit::random::Random;
use std::io::ErrorKind;
use std::sync::Arc;

fn made(media: &Arc<dyn Media>) -> u128 {
    let filter = Filter::create_on(media.clone(), Bloom::capacity(500), options());
    let filter = filter.expect("a filter");
    (0..100_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    let digest = filter.digest().expect("a digest");
    filter.close().expect("a clean end");
    digest.value
}

fn open(media: &Arc<dyn Media>) -> Filter<Bloom> {
    Filter::open_on(media.clone(), options()).expect("the filter")
}

/// Returns the names of segments and snapshots.
fn log_and_snapshots(media: &dyn Media) -> Vec<String> {
    let is_durable = |name: &String| name.starts_with("wal-") || name.starts_with("snap-");
    let mut names = media.list().expect("a directory");
    names.retain(is_durable);
    names.sort();
    names
}

#[test]
fn openings_without_a_record_sync_no_file_and_change_neither_log_nor_snapshots() {
    let failing = Arc::new(Failing::new(Memory::new()));
    let media: Arc<dyn Media> = failing.clone();
    let digest = made(&media);
    let (before, synced) = (log_and_snapshots(&*media), failing.syncs());
    for closes in [true, false, true, false, false] {
        let filter = open(&media);
        assert_eq!(filter.digest().expect("a digest").value, digest);
        assert!(filter.contains(7_u64.to_le_bytes()).expect("an answer"));
        filter.sync().expect("there is nothing to sync");
        if closes {
            filter.close().expect("a clean end");
        } else {
            drop(filter);
        }
        assert_eq!(log_and_snapshots(&*media), before);
    }
    assert_eq!(failing.syncs(), synced);
    let report = inspect::verify_on(&*media).expect("it is there");
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn the_first_record_begins_the_log_once_for_all_handles() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    made(&media);
    drop(open(&media));
    let (before, handles) = (log_and_snapshots(&*media), [open(&media), open(&media)]);
    let reader = Reader::<Bloom>::open_on(media.clone(), options()).expect("the filter");
    assert_eq!(log_and_snapshots(&*media), before);
    std::thread::scope(|scope| {
        for (number, handle) in (1000_u64..).step_by(1000).zip(&handles) {
            scope.spawn(move || {
                for key in number..number + 300 {
                    assert!(handle.insert(key.to_le_bytes()).expect("an insert"));
                }
            });
        }
    });
    let begun: Vec<_> = log_and_snapshots(&*media);
    let new: Vec<_> = begun.iter().filter(|name| !before.contains(name)).collect();
    // 600 records in segments of 128, all of one timeline.
    let timelines = new.iter().filter_map(|name| name.get(..10)).collect::<Vec<_>>();
    assert!(new.len() >= 5 && timelines.windows(2).all(|two| two[0] == two[1]), "{new:?}");
    assert!(reader.contains(1299_u64.to_le_bytes()).expect("an answer"));
    drop((handles, reader));
    let again = open(&media);
    for key in (0..100).chain(1000..1300).chain(2000..2300_u64) {
        assert!(again.contains(key.to_le_bytes()).expect("an answer"), "{key}");
    }
}

#[test]
fn log_that_has_begun_is_missed_and_log_that_has_not_is_not() {
    let place = directory();
    let filter = Filter::create(place.path(), Bloom::capacity(500), options()).expect("a filter");
    (0..100_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    filter.close().expect("a clean end");
    let open = || Filter::<Bloom>::open(place.path(), options());
    let closed = names(place.path()).expect("a directory");
    for _ in 0..2 {
        drop(open().expect("nothing is missing"));
    }
    let filter = open().expect("nothing is missing");
    filter.insert("a key").expect("an insert");
    filter.sync().expect("it is durable");
    // The process dies.
    let to = directory();
    let copy = to.path().join("copy");
    copy_files(place.path(), &copy).expect("a copy");
    drop(filter);
    let new: Vec<_> = names(&copy).expect("a directory");
    let new = new.iter().filter(|name| name.starts_with("wal-") && !closed.contains(name));
    for name in new {
        std::fs::remove_file(copy.join(name)).expect("it is there");
    }
    let error = Filter::<Bloom>::open(&copy, options()).expect_err("a record is missing");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn a_first_record_that_finds_no_space_is_refused_and_the_next_one_succeeds() {
    let memory = Memory::new();
    let media: Arc<dyn Media> = Arc::new(memory.clone());
    made(&media);
    let filter = open(&media);
    memory.set_capacity(0);
    let error = filter.insert("too early").expect_err("the disk is full");
    assert!(error.is_full(), "{error}");
    memory.set_capacity(u64::MAX);
    assert!(!filter.contains("too early").expect("an answer"));
    assert!(filter.insert("later").expect("there is space"));
    drop(filter);
    let again = open(&media);
    assert!(again.contains("later").expect("an answer"));
    assert!(!again.contains("too early").expect("an answer"));
}

#[test]
fn a_fault_at_any_call_of_the_first_record_leaves_it_out_or_keeps_it() {
    let mut poisonings = 0;
    for call in 1.. {
        let failing = Arc::new(Failing::new(Memory::new()));
        let media: Arc<dyn Media> = failing.clone();
        made(&media);
        let filter = open(&media);
        failing.fail_after(call, ErrorKind::Other);
        let inserted = filter.call().durability(Durability::Always).insert("a key");
        let is_over = failing.clear_faults();
        poisonings += u32::from(matches!(inserted, Err(Error::Poisoned { .. })));
        drop(filter);
        let again = open(&media);
        if let Ok(is_new) = inserted {
            assert!(is_new && again.contains("a key").expect("an answer"), "call {call}");
        }
        assert!(again.contains(99_u64.to_le_bytes()).expect("an answer"), "call {call}");
        assert!(again.insert("another").is_ok(), "call {call}");
        if is_over {
            break;
        }
    }
    assert!(poisonings >= 3, "the directory is synced before and after the segment is made");
}

#[test]
fn a_filter_is_altered_backed_up_and_cleared_before_its_first_record() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    made(&media);
    let filter = open(&media);
    let to: Arc<dyn Media> = Arc::new(Memory::new());
    filter.backup_on(&*to).expect("a backup");
    assert!(open(&to).contains(99_u64.to_le_bytes()).expect("an answer"));
    let filter = open(&media);
    filter.clear().expect("room");
    assert!(!filter.contains(99_u64.to_le_bytes()).expect("an answer"));
    drop(filter);
    made_again(&media);
    let filter = open(&media);
    filter.alter(Bloom::capacity(900), Unlogged::Forget).expect("room");
    assert!(filter.insert("another").expect("an insert"));
    drop(filter);
    let again = Filter::<Bloom>::open_on(media, Options::new()).expect("the filter");
    assert!(again.contains("another").expect("an answer"));
}

fn made_again(media: &Arc<dyn Media>) {
    let filter = open(media);
    assert!(filter.insert("one more").expect("an insert"));
    filter.close().expect("a clean end");
}

/// Returns the timeline that `live` names.
fn timeline(media: &dyn Media) -> u64 {
    let live = media.open("live", Access::Read).expect("it is there");
    let mut word = [0; 8];
    live.read_at(&mut word, 32).expect("its header");
    u64::from_le_bytes(word)
}

#[test]
fn no_two_images_have_the_same_timeline_also_of_openings_without_log() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    made(&media);
    let mut before = timeline(&*media);
    for (round, closes) in [true, false, false, true, true, false].into_iter().enumerate() {
        let filter = open(&media);
        let now = timeline(&*media);
        assert!(now > before, "{before}, then {now}");
        before = now;
        if round == 3 {
            assert!(filter.insert("a key").expect("an insert"));
        }
        if closes {
            filter.close().expect("a clean end");
        }
        drop(filter);
    }
}

#[test]
fn where_the_newest_snapshot_is_damaged_or_behind_the_log_an_opening_begins_log() {
    for is_damaged in [true, false] {
        let (home, copies) = (directory(), directory());
        let filter = Filter::create(home.path(), Bloom::capacity(500), options());
        let filter = filter.expect("a filter");
        (0..100_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        filter.checkpoint().expect("room");
        assert!(filter.insert("a key").expect("an insert"));
        // As after the death of the process, or after its end.
        if is_damaged {
            filter.close().expect("a clean end");
        } else {
            filter.sync().expect("no error");
        }
        let copy = copies.path().join("copy");
        copy_files(home.path(), &copy).expect("a copy");
        let files = |prefix: &str| {
            let mut all = names(&copy).expect("a directory");
            all.retain(|name| name.starts_with(prefix));
            all.sort();
            all
        };
        if is_damaged {
            let newest = copy.join(files("snap-").pop().expect("one"));
            let mut bytes = std::fs::read(&newest).expect("it is there");
            bytes[4096 + 64..4096 + 128].fill(0xff);
            std::fs::write(newest, bytes).expect("a write");
        }
        let before = files("wal-");
        let again = Filter::<Bloom>::open(&copy, options()).expect("a base");
        assert!(again.contains("a key").expect("an answer"), "{is_damaged}");
        assert!((0..100_u64).all(|key| again.contains(key.to_le_bytes()).expect("an answer")));
        assert!(files("wal-").iter().any(|name| !before.contains(name)), "{is_damaged}");
    }
}

#[test]
fn a_copy_that_no_program_has_synced_is_durable_before_its_first_record_is() {
    let source: Arc<dyn Media> = Arc::new(Memory::new());
    made(&source);
    for seed in 0..20 {
        let disk = CrashDisk::new();
        disk.make().expect("a directory");
        for name in source.list().expect("a directory") {
            let from = source.open(&name, Access::Read).expect("a file");
            let mut content = vec![0; from.bytes().expect("its length") as usize];
            from.read_at(&mut content, 0).expect("its content");
            let to = disk.create(&name, content.len() as u64).expect("space");
            to.write_at(&content, 0).expect("space");
        }
        let options = options().durability(Durability::Always);
        let filter =
            Filter::<Bloom>::open_on(Arc::new(disk.clone()), options).expect("it is whole");
        filter.insert("first").expect("an insert");
        let left = Arc::new(disk.without_power(Random::new(seed)));
        let filter = Filter::<Bloom>::open_on(left, super::options());
        let filter = filter.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(filter.contains("first").expect("an answer"), "seed {seed}");
        assert!(filter.contains(7_u64.to_le_bytes()).expect("an answer"), "seed {seed}");
    }
}

#[test]
fn a_directory_that_a_copy_is_written_to_is_locked_and_has_not_lost_its_meta() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    made(&media);
    media.remove("meta").expect("it is there");
    let maker = media.locks("lock", Access::Write).expect("locks");
    assert!(maker.try_lock(0, Access::Write).expect("no error"));
    let errors = || {
        [
            Filter::<Bloom>::open_on(media.clone(), options()).expect_err("it is incomplete"),
            Reader::<Bloom>::open_on(media.clone(), options()).expect_err("it is incomplete"),
            Filter::create_on(media.clone(), Bloom::capacity(500), options())
                .expect_err("it is used"),
        ]
    };
    for error in errors() {
        assert!(matches!(error, Error::Locked { .. }), "{error}");
    }
    maker.unlock(0).expect("no error");
    for error in errors() {
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
}
