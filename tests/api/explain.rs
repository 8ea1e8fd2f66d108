//! Explanations of answers: the records of a key, as far as the log is kept.

use ebbtide::history::At;
use ebbtide::{
    Age, AgePartitioned, Any, Bloom, Clock, Counting, Filter, Fingerprint, Keep, ManualClock,
    Options, Reader, TimeLimited, Timestamp, inspect,
};
use ebbtide_core::log_record::void_word;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn options() -> Options {
    Options::new().hash_seed(7)
}

fn reader(dir: &Path) -> Reader<Any> {
    Reader::open(dir, Options::new()).expect("a reader")
}

#[test]
fn the_newest_records_of_each_key_are_returned_in_their_order() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let filter = Filter::create(&dir, AgePartitioned::last(1_000), options()).expect("a filter");
    for key in ["a", "b", "a", "c", "a"] {
        filter.insert(key).expect("an insert");
    }
    for is_open in [true, false] {
        let explained = reader(&dir).explain(&["a", "b", "x"], 2).expect("records");
        let [a, b, x] = &explained.keys[..] else { panic!("three keys") };
        assert_eq!((a.inserts, b.inserts, x.inserts), (3, 1, 0), "open: {is_open}");
        let since: Vec<_> = a.records.iter().map(|record| record.inserts_since).collect();
        assert_eq!(since, [2, 0], "the newest two");
        assert!(a.records[0].lsn < a.records[1].lsn);
        assert!(a.present && b.present && !x.present);
        assert_eq!(explained.log.inserts, 5);
        assert!(explained.log.is_complete && explained.log.end == explained.log.answered);
        assert!(a.age.is_some() && a.estimate.is_none());
        filter.close().expect("closed");
    }
}

#[test]
fn ages_are_those_of_exact_sums() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let filter = Filter::create(&dir, Fingerprint::last(140), options()).expect("a filter");
    for key in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b"] {
        filter.insert(key).expect("an insert");
    }
    assert_eq!(filter.age("a").expect("an answer"), Some(Age::Items(1)));
    for is_open in [true, false] {
        let explained = reader(&dir).explain(&["a"], 2).expect("records");
        assert_eq!(explained.keys[0].age, Some(Age::Items(1)), "open: {is_open}");
        filter.close().expect("closed");
    }
}

#[test]
fn a_log_that_checkpoints_have_trimmed_does_not_pass_for_complete() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let options = options().segment_bytes(64 << 10);
    let filter = Filter::create(&dir, Bloom::capacity(100_000), options).expect("a filter");
    filter.insert("first").expect("an insert");
    for round in 0..4 {
        let keys: Vec<_> = (0..5_000).map(|key| format!("{round} {key}")).collect();
        filter.insert_all(&keys).expect("inserts");
        filter.checkpoint().expect("a snapshot");
    }
    filter.insert("last").expect("an insert");
    let explained = reader(&dir).explain(&["first", "last"], 10).expect("records");
    assert!(!explained.log.is_complete && explained.log.first > 1, "{:?}", explained.log);
    assert_eq!((explained.keys[0].present, explained.keys[0].inserts), (true, 0));
    assert_eq!((explained.keys[1].present, explained.keys[1].inserts), (true, 1));
    assert_eq!(explained.keys[1].records[0].inserts_since, 0);
}

#[test]
fn a_log_that_is_kept_is_complete_and_explains_the_past_as_well() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let options = options().segment_bytes(64 << 10).keep_log(Keep::Bytes(1 << 30));
    let filter = Filter::create(&dir, Bloom::capacity(100_000), options).expect("a filter");
    filter.insert("first").expect("an insert");
    let moment = At::Lsn(filter.stat().expect("figures").lsn - 1);
    for round in 0..4 {
        let keys: Vec<_> = (0..5_000).map(|key| format!("{round} {key}")).collect();
        filter.insert_all(&keys).expect("inserts");
        filter.checkpoint().expect("a snapshot");
    }
    filter.insert("first").expect("an insert");
    let explained = reader(&dir).explain(&["first", "never"], 10).expect("records");
    assert!(explained.log.is_complete && explained.log.first == 1, "{:?}", explained.log);
    assert_eq!((explained.keys[0].present, explained.keys[0].inserts), (true, 2));
    let since: Vec<_> = explained.keys[0].records.iter().map(|of| of.inserts_since).collect();
    assert_eq!(since, [20_001, 0]);
    let then = Reader::<Any>::at(&dir, moment, Options::new().clock(Clock::stream()));
    let explained = then.expect("it is kept").explain(&["first", "0 1"], 10).expect("records");
    assert!(explained.log.is_complete && explained.log.inserts == 1, "{:?}", explained.log);
    assert_eq!((explained.keys[0].present, explained.keys[0].inserts), (true, 1));
    assert_eq!((explained.keys[1].present, explained.keys[1].inserts), (false, 0));
}

#[test]
fn records_before_a_clear_explain_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let filter = Filter::create(&dir, Counting::capacity(1_000), options()).expect("a filter");
    filter.insert("a").expect("an insert");
    filter.clear().expect("cleared");
    filter.call().times(5).insert("b").expect("an insert");
    filter.call().times(2).remove("b").expect("a removal");
    let explained = reader(&dir).explain(&["a", "b"], 10).expect("records");
    assert!(explained.log.is_complete && explained.log.inserts == 1);
    assert_eq!(explained.keys[0].inserts, 0);
    let b = &explained.keys[1];
    let records: Vec<_> = b.records.iter().map(|record| (record.removes, record.weight)).collect();
    assert_eq!((b.inserts, b.removals, records), (1, 1, vec![(false, 5), (true, 2)]));
    assert_eq!(explained.log.first, 3, "behind the first insert and the clear");
    assert_eq!(b.estimate.map(|estimate| estimate.count), Some(3.0));
}

#[test]
fn a_record_has_the_time_of_its_key_and_the_answer_its_own() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let clock = ManualClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
    let options = options().clock(Clock::from(clock.clone()));
    let window = TimeLimited::window(Duration::from_secs(60));
    let filter = Filter::create(&dir, window, options).expect("a filter");
    filter.insert("a").expect("an insert");
    clock.advance(Duration::from_secs(40));
    filter.insert("b").expect("an insert");
    let explained = reader(&dir).explain(&["a", "b"], 10).expect("records");
    let times = explained.keys.iter().map(|key| key.records[0].time.as_unix_millis());
    assert_eq!(times.collect::<Vec<_>>(), [1_700_000_000_000, 1_700_000_040_000]);
    assert!(explained.now.is_some_and(|now| now.as_unix_millis() >= 1_700_000_040_000));
    assert!(explained.keys.iter().all(|key| !key.blocks.is_empty()));
}

/// Turns the slot of an insert of this hash into one that its writer did not fill in time.
fn void(dir: &Path, hash: u64, (timeline, lsn): (u64, u64)) {
    let files = fs::read_dir(dir).expect("the filter").map(|entry| entry.expect("a file").path());
    for path in files.filter(|path| path.to_string_lossy().contains("wal-")) {
        let mut bytes = fs::read(&path).expect("a segment");
        let slots = bytes.chunks_exact_mut(32);
        for slot in slots.filter(|slot| slot[..8] == hash.to_le_bytes()) {
            slot[..24].fill(0);
            slot[24..].copy_from_slice(&void_word(timeline, lsn).to_le_bytes());
        }
        fs::write(&path, bytes).expect("the segment");
    }
}

#[test]
fn records_of_a_batch_that_does_not_count_explain_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let filter = Filter::create(&dir, Counting::capacity(1_000), options()).expect("a filter");
    filter.insert("before").expect("an insert");
    let mut batch = filter.batch();
    for key in ["a", "b", "c"] {
        batch.insert(key).expect("room");
    }
    batch.commit().expect("a commit");
    filter.insert("after").expect("an insert");
    filter.close().expect("closed");
    let keys = ["before", "a", "b", "c", "after"];
    let count = || {
        let explained = reader(&dir).explain(&keys, 10).expect("records");
        let of_keys: Vec<_> = explained.keys.iter().map(|key| key.inserts).collect();
        (of_keys, explained.log.inserts)
    };
    assert_eq!(count(), (vec![1; 5], 5));
    let mut inserts = Vec::new();
    inspect::wal(&dir, |entry| {
        if entry.operation == "insert" {
            let details = entry.details();
            let hash = details.iter().find(|(name, _)| *name == "hash").expect("a hash").1;
            inserts.push((hash, (entry.timeline, entry.lsn)));
        }
        Ok(())
    })
    .expect("a log");
    // As its writer leaves it who dies, or is stopped for long, before the last record.
    let (hash, place) = inserts[3];
    void(&dir, hash, place);
    assert_eq!(count(), (vec![1, 0, 0, 0, 1], 2), "the batch of which one slot is void");
}
