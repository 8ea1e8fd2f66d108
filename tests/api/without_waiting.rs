//! Calls that must not wait: they do the same as others, or nothing.

use ebbtide::media::Memory;
use ebbtide::{Call, Clock, Durability, Error, Filter, Options, Reader, Timestamp};
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::sync::Arc;

const OPERATIONS: u64 = 3_000;

fn made(sample: &Sample) -> Filter {
    let options = Options::new()
        .hash_seed(7)
        .stripes(2)
        .clock(Clock::stream())
        .background(false)
        .segment_bytes(4 << 10);
    Filter::create_on(Arc::new(Memory::new()), sample.spec(), options).expect("a filter")
}

fn at(filter: &Filter, number: u64) -> Call<'_> {
    filter.call().time(Timestamp::from_unix_micros(1_700_000_000_000_000 + number * 100))
}

fn key(number: u64) -> [u8; 8] {
    (number % 1_000).to_le_bytes()
}

/// Runs all operations, each without waiting if it can be. Returns how many had to wait.
fn waits_of(sample: &Sample, filter: &Filter) -> u64 {
    let mut waits = 0;
    for number in 0..OPERATIONS {
        let call = at(filter, number);
        match sample.operate(call.without_waiting(), number, key) {
            Err(Error::WouldWait { .. }) => {
                waits += 1;
                sample.operate(call, number, key).expect("with time to wait");
            }
            done => done.expect("an operation"),
        }
    }
    waits
}

#[test]
fn a_call_that_would_wait_has_not_happened_in_any_kind() {
    for sample in SAMPLES {
        let (plain, quick) = (made(&sample), made(&sample));
        for number in 0..OPERATIONS {
            sample.operate(at(&plain, number), number, key).expect("an operation");
        }
        let waits = waits_of(&sample, &quick);
        assert_eq!(
            quick.digest().expect("a digest"),
            plain.digest().expect("a digest"),
            "{}: {waits} calls waited",
            sample.name
        );
        assert!(waits > 0, "{}: the log grows", sample.name);
        // The window of this sample is so short that the filter's time is recorded for each insert.
        if sample.kind != "time-limited" {
            assert!(waits < OPERATIONS / 4, "{}: {waits} calls waited", sample.name);
        }
    }
}

#[test]
fn where_a_sync_must_come_first_nothing_is_written() {
    let filter = made(&SAMPLES[0]);
    let before = filter.digest().expect("a digest");
    let quick = filter.call().without_waiting().durability(Durability::Always);
    let mut answers = Vec::new();
    let refused = [
        quick.insert("a").map(|_| ()),
        quick.check_and_insert("a").map(|_| ()),
        quick.insert_all(&["a", "b"]).map(|_| ()),
        quick.check_and_insert_all(&["a", "b"], &mut answers),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::WouldWait { .. })), "{result:?}");
    }
    assert!(answers.is_empty());
    assert_eq!(filter.digest().expect("a digest"), before);
    assert!(!quick.contains("a").expect("an answer"), "questions need no sync");
}

#[test]
fn a_bulk_call_returns_the_answers_before_the_key_that_would_wait() {
    let filter = made(&SAMPLES[0]);
    let keys: Vec<_> = (0..OPERATIONS).map(u64::to_le_bytes).collect();
    let (mut answers, mut rounds) = (Vec::new(), 0);
    while answers.len() < keys.len() {
        let rest = &keys[answers.len()..];
        match filter.call().without_waiting().check_and_insert_all(rest, &mut answers) {
            Err(Error::WouldWait { .. }) => {
                rounds += 1;
                let next = filter.check_and_insert(keys[answers.len()]).expect("an insert");
                answers.push(next);
            }
            done => done.expect("inserts"),
        }
    }
    assert!(rounds > 1, "the log grows");
    assert_eq!(filter.stat().expect("statistics").inserts, OPERATIONS);
}

#[test]
fn a_reader_whose_filter_is_opened_again_would_wait() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("seen");
    let filter = Filter::create(&dir, SAMPLES[0].spec(), Options::new()).expect("a filter");
    filter.insert("a").expect("an insert");
    filter.close().expect("a clean end");
    // Rebuilds the state in memory of its own, until a writer comes.
    let reader: Reader = Reader::open(&dir, Options::new()).expect("a reader");
    assert!(reader.call().without_waiting().contains("a").expect("an answer"));
    let filter: Filter = Filter::open(&dir, Options::new()).expect("the filter");
    filter.insert("b").expect("an insert");
    // A reader looks for writers every 10 ms.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let refused = reader.call().without_waiting().contains("b");
    assert!(matches!(refused, Err(Error::WouldWait { .. })), "{refused:?}");
    assert!(reader.contains("b").expect("an answer"));
    assert!(reader.call().without_waiting().contains("b").expect("an answer"));
}

#[test]
fn a_large_count_that_needs_memory_is_refused_and_changes_nothing() {
    let sample = SAMPLES.iter().find(|sample| sample.kind == "spectral").expect("a sample");
    let filter = made(sample);
    let call = filter.call().time(Timestamp::from_unix_micros(1_700_000_000_000_000));
    call.insert("a").expect("an insert");
    let mut lacked_memory = 0;
    // Each count needs wider counters than those before it.
    for key in 0..64_u64 {
        let (key, count) = (key.to_le_bytes(), 50_000_000 << (key / 8));
        let before = filter.digest().expect("a digest");
        match call.without_waiting().times(count).insert(key) {
            Err(error @ Error::WouldWait { .. }) => {
                lacked_memory += u32::from(error.to_string().contains("memory"));
                assert_eq!(filter.digest().expect("a digest"), before);
                call.times(count).insert(key).expect("with time to wait");
            }
            done => drop(done.expect("an insert")),
        }
    }
    assert!(lacked_memory > 0, "the counters grow");
}
