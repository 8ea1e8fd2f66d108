//! A cleared filter equals a new one, for every handle, and stays cleared.

use ebbtide::media::Memory;
use ebbtide::{
    AgePartitioned, Any, Clock, Durability, Filter, ManualClock, Options, Reader, TimeLimited,
    Timestamp, inspect,
};
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn options() -> Options {
    let sizes = Options::new().stripes(4).block_bytes(512).segment_bytes(16 << 10);
    sizes.hash_seed(9).clock(Clock::stream()).durability(Durability::Never).background(false)
}

fn operate(filter: &Filter, sample: &Sample, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let time = Timestamp::from_unix_micros(1_000_000 + 1000 * number);
        let done = sample.operate(filter.call().time(time), number, u64::to_le_bytes);
        done.unwrap_or_else(|error| panic!("{}, {number}: {error}", sample.name));
    }
}

/// Inserts before a clear must not affect what follows. Kinds with time keep the time.
#[test]
fn a_cleared_filter_of_each_kind_behaves_as_a_new_one() {
    for sample in &SAMPLES {
        let create = || {
            let memory = Memory::new();
            let made = Filter::<Any>::create_on(Arc::new(memory.clone()), sample.spec(), options());
            (made.unwrap_or_else(|error| panic!("{}: {error}", sample.name)), memory)
        };
        let ((cleared, memory), (new, _)) = (create(), create());
        let beside = Filter::<Any>::open_on(Arc::new(memory.clone()), options()).expect("open");
        for round in 0..3 {
            operate(&cleared, sample, 0..1200);
            beside.clear().unwrap_or_else(|error| panic!("{}: {error}", sample.name));
            let stat = cleared.stat().expect("figures");
            assert_eq!((stat.inserts, stat.fill), (0, 0.0), "{}, round {round}", sample.name);
        }
        // Times after those before the clear, so that no key is late in only one of the two
        // filters.
        for filter in [&cleared, &new] {
            operate(filter, sample, 2000..2600);
        }
        let (seen, expected) = (cleared.stat().expect("figures"), new.stat().expect("figures"));
        assert_eq!(
            (seen.inserts, seen.operations, seen.fill, seen.step),
            (expected.inserts, expected.operations, expected.fill, expected.step),
            "{}",
            sample.name
        );
        let now = Timestamp::from_unix_micros(1_000_000 + 1000 * 2600);
        for key in 0..4000_u64 {
            let ask = |filter: &Filter| {
                filter.call().time(now).contains(key.to_le_bytes()).expect("an answer")
            };
            assert_eq!(ask(&cleared), ask(&new), "{}: key {key}", sample.name);
            assert_eq!(ask(&beside), ask(&new), "{}: key {key}, beside", sample.name);
        }
        let before = cleared.digest().expect("a digest");
        drop((cleared, beside));
        let again = Filter::<Any>::open_on(Arc::new(memory), options()).expect("open");
        let after = again.digest().expect("a digest");
        assert_eq!((before.value, before.inserts), (after.value, after.inserts), "{}", sample.name);
    }
}

fn window() -> AgePartitioned {
    AgePartitioned::last(100_000).fpr(1e-9)
}

fn keys(dir: &Path) -> Filter<AgePartitioned> {
    let on_disk = options().background(true).segment_bytes(16 << 10);
    Filter::open_or_create(dir, window(), on_disk).expect("a filter")
}

/// Replay from an older snapshot, and from one written during a clear, leads to the same state.
#[test]
fn clears_beside_writers_checkpoints_and_readers_are_all_or_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let filter = keys(&dir);
    let other = keys(&dir);
    let reader = Reader::<AgePartitioned>::open(&dir, options()).expect("a reader");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (filter, done) = (if thread == 0 { &filter } else { &other }, &done);
            scope.spawn(move || {
                for number in (0_u64..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let key = (number << 1 | thread).to_le_bytes();
                    filter.insert(key).expect("an insert");
                    // The filter may have been cleared since, but a lookup must not fail.
                    filter.contains(key).expect("an answer");
                }
            });
        }
        let (filter, done) = (&filter, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                filter.checkpoint().expect("a snapshot");
            }
        });
        for _ in 0..40 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            other.clear().expect("cleared");
            reader.contains("any").expect("an answer");
        }
        done.store(true, Ordering::Relaxed);
    });
    filter.clear().expect("cleared");
    assert_eq!(filter.stat().expect("figures").inserts, 0);
    assert!(!other.contains(0_u64.to_le_bytes()).expect("an answer"));
    filter.insert("after").expect("an insert");
    let expected = filter.digest().expect("a digest").value;
    assert_eq!(reader.digest().expect("a digest").value, expected);
    // From files as a kill would leave them.
    let copy = place.path().join("copy");
    filter.backup(&copy).expect("a backup");
    assert_eq!(keys(&copy).digest().expect("a digest").value, expected);
    drop((filter, other));
    assert!(inspect::verify(&dir).expect("a report").is_sound());
    let again = keys(&dir);
    assert_eq!(again.digest().expect("a digest").value, expected);
    assert!(again.contains("after").expect("an answer"));
}

#[test]
fn a_clear_without_space_changes_nothing() {
    let memory = Memory::new();
    let filter = Filter::create_on(Arc::new(memory.clone()), window(), options());
    let filter = filter.expect("a filter");
    (0..100_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
    let before = filter.digest().expect("a digest").value;
    memory.set_capacity(0);
    let error = filter.clear().expect_err("there is no space for the new bank");
    assert!(error.is_full(), "{error}");
    assert_eq!(filter.digest().expect("a digest").value, before);
    memory.set_capacity(u64::MAX);
    filter.clear().expect("there is space again");
    assert_eq!(filter.stat().expect("figures").inserts, 0);
}

#[test]
fn a_clear_starts_no_clock_of_a_filter_that_only_times_of_keys_have_moved() {
    let hand = ManualClock::new(Timestamp::from_unix_micros(1 << 50));
    let memory = Arc::new(Memory::new());
    let spec = TimeLimited::window(Duration::from_secs(60));
    let streams = Filter::create_on(memory.clone(), spec, options()).expect("a filter");
    let time = |second: u64| Timestamp::from_unix_micros((1 << 49) + second * 1_000_000);
    streams.call().time(time(0)).insert("before").expect("an insert");
    let clocked = Options::new().background(false).clock(Clock::from(hand.clone()));
    let by_clock = Filter::<TimeLimited>::open_on(memory, clocked).expect("the filter");
    by_clock.clear_without_a_clock().expect("room");
    by_clock.call().time(time(1)).insert("a key").expect("an insert");
    hand.advance(Duration::from_secs(3600));
    assert!(by_clock.contains("a key").expect("an answer"), "time stands still between keys");
    by_clock.call().time(time(30)).insert("the next").expect("it is not too late");
    assert!(by_clock.contains("a key").expect("an answer"));
}
