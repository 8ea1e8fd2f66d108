//! Claims in absolute terms, not by comparison with another filter that would share the mistake:
//! the filter's time after late keys, ages and posteriors near a filter's beginning, counts of any
//! weight.

use ebbtide::inspect::wal;
use ebbtide::media::Memory;
use ebbtide::{
    Age, AgePartitioned, Any, Clock, Downtime, Durability, Entry, Error, Filter, ManualClock,
    Options, Parameters, TimeLimited, Timestamp, Within,
};
use std::sync::Arc;
use std::time::Duration;

/// The time at which the filters are created, in milliseconds.
const START: u64 = 1_700_000_000_000;

fn options() -> Options {
    Options::new().hash_seed(5).stripes(3).durability(Durability::Never).background(false)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(START + millis)
}

/// Creates a filter that uses the clock, on a medium on which it can be opened again.
fn by_clock(hand: &ManualClock) -> (Filter<TimeLimited>, Arc<Memory>) {
    let memory = Arc::new(Memory::new());
    let spec = TimeLimited::window(Duration::from_secs(10)).fpr(1e-4).rate(1.0);
    let options = options().clock(Clock::from(hand.clone()));
    (Filter::create_on(memory.clone(), spec, options).expect("a filter"), memory)
}

fn insert<K>(filter: &Filter<K>, key: u64) -> bool {
    filter.insert(key.to_le_bytes()).expect("an insert")
}

fn insert_at<K>(filter: &Filter<K>, key: u64, millis: u64) -> bool {
    filter.call().time(at(millis)).insert(key.to_le_bytes()).expect("an insert")
}

fn contains<K>(filter: &Filter<K>, key: u64) -> bool {
    filter.contains(key.to_le_bytes()).expect("an answer")
}

fn time<K>(filter: &Filter<K>) -> Option<Timestamp> {
    filter.stat().expect("figures").time
}

#[test]
fn events_caused_by_late_keys_do_not_change_the_filters_time() {
    let (mut now, mut key) = (1000, 0);
    let hand = ManualClock::new(at(now));
    let (mut filter, memory) = by_clock(&hand);
    for round in 0..5 {
        let steps = filter.stat().expect("figures").step;
        // Late keys alone fill generations, so that the events occur during a late insert.
        for _ in 0..1500 {
            insert(&filter, key);
            (0..3).for_each(|late| assert!(insert_at(&filter, key + 1 + late, now - 10)));
            key += 4;
            let looks = key % 400 == 0;
            assert!(!looks || time(&filter) == Some(at(now)), "round {round}: a late key moved it");
        }
        let then = filter.stat().expect("figures").step;
        // Later generations hold more keys, because the filter has learnt the rate.
        assert!(then > steps || round > 0, "no event: {then:?}");
        // The filter's time advances with the clock: while it is open, and after it is opened
        // again.
        hand.advance(Duration::from_millis(700));
        now += 700;
        insert(&filter, key);
        assert_eq!(time(&filter), Some(at(now)), "round {round}: the clock's time");
        if round % 2 == 1 {
            filter.close().expect("a clean close");
        } else {
            drop(filter);
        }
        hand.advance(Duration::from_millis(900));
        now += 900;
        let options = options().clock(Clock::from(hand.clone()));
        filter = Filter::open_on(memory.clone(), options).expect("it opens");
        insert(&filter, key + 1);
        assert_eq!(time(&filter), Some(at(now)), "round {round}: the clock's time, opened again");
        key += 2;
    }
    // All keys expire by the clock, without another late key.
    hand.advance(Duration::from_secs(21));
    insert(&filter, u64::MAX);
    let left = (0..key).filter(|&key| contains(&filter, key)).count();
    assert!(left <= 20, "{left} of {key} keys are present after two windows");
}

/// The filter's time also continues without an insert: by a clear, and by heartbeats.
#[test]
fn a_time_limited_filter_takes_late_keys_inside_its_window_after_a_clear_and_after_a_silence() {
    for (is_cleared, is_batch) in [(true, false), (true, true), (false, false), (false, true)] {
        let home = tempfile::tempdir().expect("a directory");
        let hand = ManualClock::new(at(1000));
        let options = || {
            let clock = Clock::from(hand.clone());
            options().downtime(Downtime::Freeze).clock(clock).background(!is_cleared)
        };
        let spec = TimeLimited::window(Duration::from_secs(10)).fpr(1e-4).rate(1.0);
        let filter = Filter::create(home.path().join("filter"), spec, options()).expect("one");
        insert(&filter, 1);
        hand.set(at(100_000));
        if is_cleared {
            filter.clear().expect("space");
        } else {
            await_heartbeat(&filter, at(100_000));
        }
        for (key, millis) in [(2, 99_000), (3, 90_001), (4, 90_000)] {
            let is_taken = if is_batch {
                let mut batch = filter.batch();
                let key = u64::to_le_bytes(key);
                let checked = batch.check_and_insert_entry(&Entry::new(key).time(at(millis)));
                batch.commit().expect("a commit");
                !checked.expect("an answer").is_too_late()
            } else {
                insert_at(&filter, key, millis)
            };
            assert_eq!(is_taken, key < 4, "cleared: {is_cleared}, batch: {is_batch}, {millis}");
            assert_eq!(contains(&filter, key), is_taken, "{is_cleared}, {is_batch}, {millis}");
        }
        let digest = filter.digest().expect("a digest").value;
        drop(filter);
        let filter = Filter::<Any>::open(home.path().join("filter"), options()).expect("replayed");
        assert_eq!(filter.digest().expect("a digest").value, digest);
        assert!([2, 3].into_iter().all(|key| contains(&filter, key)), "{is_cleared}, {is_batch}");
    }
}

/// Waits until the filter has recorded that it was alive at a time.
fn await_heartbeat<K>(filter: &Filter<K>, time: Timestamp) {
    for _ in 0..600 {
        let mut is_there = false;
        let look = |entry: &ebbtide::inspect::Entry| {
            is_there |= entry.operation == "heartbeat" && entry.time >= time;
            Ok(())
        };
        wal(filter.path(), look).expect("a log");
        if is_there {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no heartbeat");
}

/// By records, because the mark of the source decides how time continues after a restart.
#[test]
fn the_event_of_a_late_key_has_the_filters_time_and_that_times_source() {
    for (by_keys, name) in [(false, "a clock's time"), (true, "a key's time")] {
        let home = tempfile::tempdir().expect("a directory");
        let hand = ManualClock::new(at(1000));
        let spec = TimeLimited::window(Duration::from_secs(10)).fpr(1e-4).rate(1.0);
        let options = options().clock(Clock::from(hand));
        let filter = Filter::create(home.path().join("filter"), spec, options).expect("a filter");
        for key in 0..1500 {
            if key % 4 != 0 {
                assert!(insert_at(&filter, key, 990));
            } else if by_keys {
                assert!(insert_at(&filter, key, 1000));
            } else {
                assert!(insert(&filter, key));
            }
        }
        let mut events = Vec::new();
        let mut late = 0;
        wal(filter.path(), |entry| {
            match entry.operation {
                "insert" if entry.time < at(1000) => late += events.len(),
                "insert" => {}
                "step" | "open-bank" | "close-bank" => {
                    events.push((entry.time, entry.is_stream_time()));
                    return Ok(());
                }
                _ => return Ok(()),
            }
            let all = events.drain(..).all(|event| event == (at(1000), by_keys));
            assert!(all, "{name}: before the record of LSN {}", entry.lsn);
            Ok(())
        })
        .expect("a log");
        assert!(late > 0, "{name}: no event came before a late key");
    }
}

#[test]
fn late_keys_do_not_change_how_long_a_key_stays_in_the_window() {
    let hand = ManualClock::new(at(0));
    let (filter, _memory) = by_clock(&hand);
    for now in (0..60_000).step_by(100) {
        hand.set(at(now));
        let key = now / 100;
        assert!(insert(&filter, key));
        for late in 0..5 {
            insert_at(&filter, 1_000_000 + 10 * key + late, now.saturating_sub(2500 * late));
        }
        // All keys of the last ten seconds are present; those of twice as long ago are absent, with
        // few exceptions.
        let first = key.saturating_sub(99);
        let missing = (first..=key).find(|&key| !contains(&filter, key));
        assert_eq!(missing, None, "at {now} ms");
        let gone = (0..key.saturating_sub(200)).rev().take(20);
        let gone = gone.filter(|&key| contains(&filter, key)).count();
        assert!(gone <= 5, "at {now} ms {gone} of 20 keys inserted 20 s ago are present");
    }
}

#[test]
fn a_key_ahead_of_the_clock_advances_the_filter_and_its_clock_continues_from_there() {
    let hand = ManualClock::new(at(0));
    let (filter, _memory) = by_clock(&hand);
    insert(&filter, 0);
    assert_eq!(time(&filter), Some(at(0)));
    insert_at(&filter, 1, 5000);
    assert_eq!(time(&filter), Some(at(5000)), "the time of a key");
    hand.advance(Duration::from_secs(3));
    insert(&filter, 2);
    let micro = Duration::from_micros(1);
    assert_eq!(
        time(&filter),
        Some(at(5000) + micro),
        "the first key without a time comes after it"
    );
    insert_at(&filter, 3, 4000);
    assert_eq!(time(&filter), Some(at(5000) + micro), "a late key does not move it");
    insert_at(&filter, 4, 5001);
    assert_eq!(time(&filter), Some(at(5001)));
    hand.advance(Duration::from_secs(2));
    insert(&filter, 5);
    let now = time(&filter).expect("a time");
    // By the clock, or from the key that was a millisecond ahead of it.
    assert!((at(7000)..=at(7001) + micro).contains(&now), "{now:?}");
    // Lookups use the filter's time, or a later one.
    assert!(!filter.call().time(at(20_000)).contains(4_u64.to_le_bytes()).expect("an answer"));
    assert!(filter.call().time(at(0)).contains(4_u64.to_le_bytes()).expect("an answer"));
}

fn last(window: u64) -> Filter<AgePartitioned> {
    let spec = AgePartitioned::last(window).fpr(1e-6);
    let options = options().clock(Clock::stream());
    Filter::create_on(Arc::new(Memory::new()), spec, options).expect("a filter")
}

/// Returns the number of inserts of a generation, the resolution of ages.
fn grain(filter: &Filter<AgePartitioned>) -> u64 {
    let parameters = filter.parameters();
    let number = |name| parameters.get(name).and_then(|value| value.parse::<u64>().ok());
    number("generation").expect("it has generations")
}

#[test]
fn from_the_first_insert_ages_are_mostly_exact_to_a_generation_and_never_too_high() {
    for window in [1, 2, 7, 100, 1000] {
        let filter = last(window);
        let grain = grain(&filter);
        assert_eq!(filter.age("never").expect("an answer"), None);
        let (mut known, mut all) = (0, 0);
        for inserts in 1..=3 * window.min(120) {
            insert(&filter, inserts - 1);
            // Each insert has its own key, so key `j` has the age of `inserts - 1 - j`.
            for key in inserts.saturating_sub(window)..inserts {
                let age = inserts - 1 - key;
                let found = filter.age(key.to_le_bytes()).expect("an answer");
                let Some(Age::Items(found)) = found else {
                    panic!("window {window}, {inserts} inserts: the age of key {key} is {found:?}")
                };
                let what = format!("window {window}, {inserts} inserts, key {key}: {found}");
                assert!(found <= age, "{what}: its age is at most {age}");
                // Each generation of apparent rejuvenation requires one more slice whose bit other
                // keys have set: at most one half are set.
                assert!(age - found < 24 * grain, "{what}: its age is {age}, exact to {grain}");
                known += u32::from(age - found < grain);
                all += 1;
                let within = |items| {
                    filter.seen_within(key.to_le_bytes(), Within::Items(items)).expect("an answer")
                };
                assert!(within(age + 1), "{what}: among the last {}", age + 1);
                assert!(!within(0), "{what}: among none");
            }
        }
        assert!(known * 10 >= all * 4, "window {window}: {known} of {all} to a generation");
    }
}

#[test]
fn a_key_is_not_among_fewer_last_inserts_than_a_generation_ago() {
    let filter = last(1000);
    let grain = grain(&filter);
    (0..2500).for_each(|key| assert!(insert(&filter, key)));
    let mut wrong = 0;
    for key in 1600..2400 {
        let age: u64 = 2499 - key;
        // Twelve generations less: about one key in some thousand passes.
        let Some(fewer) = age.checked_sub(12 * grain).filter(|&fewer| fewer > 0) else { continue };
        let within = filter.seen_within(u64::to_le_bytes(key), Within::Items(fewer));
        wrong += u32::from(within.expect("an answer"));
    }
    assert!(wrong <= 8, "{wrong} keys appear much younger than they are");
}

#[test]
fn from_the_first_insert_ages_by_time_are_exact_to_a_share_of_the_window() {
    let hand = ManualClock::new(at(0));
    let (filter, _memory) = by_clock(&hand);
    for now in (0..12_000).step_by(50) {
        hand.set(at(now));
        let key = now / 50;
        insert(&filter, key);
        for key in key.saturating_sub(199)..=key {
            let age = Duration::from_millis(now - 50 * key).as_micros() as u64;
            let found = filter.age(key.to_le_bytes()).expect("an answer");
            let Some(Age::Time(_)) = found else { panic!("at {now} ms, key {key}: {found:?}") };
            let found = found.map_or(0, Age::width);
            assert!(found <= age, "at {now} ms, key {key}: {found} us, it is {age} us old");
            let window = 10_000_000;
            assert!(age - found <= window / 4, "at {now} ms, key {key}: {found} of {age} us");
        }
    }
}

#[test]
fn a_reach_in_another_unit_than_the_windows_is_refused_and_never_answered() {
    let (by_time, _memory) = by_clock(&ManualClock::new(at(0)));
    insert(&by_time, 1);
    let by_items = last(1000);
    insert(&by_items, 1);
    for width in [0, 1, 1000, u64::MAX] {
        let (items, time) = (Within::Items(width), Within::micros(width));
        another_unit_is_refused(&by_time, time, items, "a time");
        another_unit_is_refused(&by_items, items, time, "a number of inserts");
    }
}

fn another_unit_is_refused<K: ebbtide::Ages>(
    filter: &Filter<K>,
    right: Within,
    wrong: Within,
    unit: &str,
) {
    for key in [1_u64, 2].map(u64::to_le_bytes) {
        filter.seen_within(key, right).expect("an answer");
        let error = filter.seen_within(key, wrong).expect_err("another unit");
        assert!(matches!(error, Error::Parameter { name: "within", .. }), "{error}");
        let sentence = error.to_string();
        assert!(sentence.contains(&format!("expected {unit}, as this filter")), "{sentence}");
    }
}

#[test]
fn near_the_beginning_posteriors_are_0_for_absent_keys_and_near_1_for_present_ones() {
    let filter = last(1000);
    let prior = 1e-3;
    let posterior = |key: u64| filter.posterior(key.to_le_bytes(), &prior).expect("one");
    let wider = |key: u64| {
        let call = filter.call().window(Within::Items(1 << 40));
        call.posterior(key.to_le_bytes(), &prior).expect("a posterior")
    };
    assert_eq!([posterior(7), wider(7)], [0.0; 2], "of an empty filter");
    for inserts in 1..=300_u64 {
        insert(&filter, inserts - 1);
        for key in (0..inserts).step_by(7) {
            // 1e-3 per key and insert, against about 1e-6 for other keys that touched its cells.
            assert!(posterior(key) > 0.99, "{inserts} inserts, key {key}: {}", posterior(key));
            assert!(wider(key) > 0.99, "{inserts} inserts, key {key}: {}", wider(key));
        }
        for key in (1_000_000..1_000_010).filter(|&key| !contains(&filter, key)) {
            assert_eq!(posterior(key), 0.0, "{inserts} inserts");
            // A window of any width begins with the first insert.
            assert_eq!(
                wider(key),
                0.0,
                "{inserts} inserts, a window wider than the filter's history"
            );
        }
    }
}

#[test]
fn a_window_of_one_insert_contains_the_last_key_only() {
    let filter = last(1000);
    let certain = |key: u64| {
        let call = filter.call().window(Within::Items(1));
        call.posterior(key.to_le_bytes(), &0.5).expect("a posterior")
    };
    insert(&filter, 0);
    assert!(certain(0) > 0.999, "{}: this key is the only insert", certain(0));
    // Each key of a young generation is the last with the probability that a prior of one half
    // implies.
    insert(&filter, 1);
    let (first, second) = (certain(0), certain(1));
    assert!(
        (first - second).abs() < 1e-6,
        "{first} and {second}: the filter cannot distinguish them"
    );
    assert!((first - 2.0 / 3.0).abs() < 0.01, "{first}: one half, of one half and one fourth");
}

/// Counting kinds with and without growing blocks; all in one block, so that it is full at
/// capacity.
fn counting() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let common = [("capacity", "60"), ("fpr", "0.01")];
    let with = |more: &[(&'static str, &'static str)]| [&common[..], more].concat();
    vec![
        ("counting", with(&[("counter-bits", "16")])),
        ("spectral", with(&[])),
        ("spectral", with(&[("policy", "mi")])),
        ("spectral", with(&[("policy", "rm")])),
        ("dynamic-count", with(&[])),
        ("dynamic-count", with(&[("mean-count", "1000")])),
    ]
}

fn counter(kind: &str, parameters: &[(&str, &str)], memory: &Arc<Memory>) -> Filter {
    let parameters =
        parameters.iter().fold(Parameters::new(), |all, &(name, value)| all.with(name, value));
    let options = options().stripes(1);
    Filter::create_on(memory.clone(), Any::new(kind, parameters), options).expect("a filter")
}

/// The largest weight of an operation.
const HEAVIEST: u64 = (1 << 24) - 1;

#[test]
fn in_nearly_full_blocks_counts_under_large_weights_are_never_too_low() {
    for (kind, parameters) in counting() {
        let memory = Arc::new(Memory::new());
        let mut filter = counter(kind, &parameters, &memory);
        let mut counts = [0_u64; 60];
        let mut number = 0;
        for round in 0..40_u64 {
            for key in 0..60_u64 {
                number += 1;
                // Small and large counts side by side: counters of all widths move each other.
                let weight = match (key + round) % 4 {
                    0 => 1,
                    1 => HEAVIEST,
                    2 => 1 << (number % 24),
                    _ => 1 + number * 7919 % HEAVIEST,
                };
                let call = filter.call().weight(weight as f64);
                let inserted = call.insert(key.to_le_bytes());
                inserted.unwrap_or_else(|error| panic!("{kind} {parameters:?}: {error}"));
                counts[key as usize] += weight;
            }
            if round % 8 == 3 {
                // Remove half of the counts of half of the keys, as far as the kind allows.
                for key in (0..60_u64).step_by(2) {
                    let half = (counts[key as usize] / 2).min(HEAVIEST);
                    match filter.call().weight(half as f64).remove(key.to_le_bytes()) {
                        Ok(true) => counts[key as usize] -= half,
                        Ok(false) | Err(ebbtide::Error::Unsupported { .. }) => {}
                        Err(error) => panic!("{kind}: {error}"),
                    }
                }
            }
            let undercounts = parameters.contains(&("policy", "rm"));
            for key in 0..60_u64 {
                let found = filter.estimate(key.to_le_bytes()).expect("an estimate");
                let count = counts[key as usize];
                let what = format!("{kind} {parameters:?}, round {round}, key {key}: {found:?}");
                assert!(found.count > 0.0 && contains(&filter, key), "{what}");
                let least = undercounts || found.at_least || found.count >= count as f64;
                assert!(least, "{what}, inserted {count} times");
            }
            if round % 10 == 9 {
                let before = filter.digest().expect("a digest").value;
                // Once from the log, once from a snapshot.
                filter = {
                    drop(filter);
                    Filter::open_on(memory.clone(), options().stripes(1)).expect("it opens")
                };
                let after = filter.digest().expect("a digest").value;
                assert_eq!(after, before, "{kind} {parameters:?}, round {round}: opened again");
            }
        }
    }
}

#[test]
fn inserts_of_any_weight_leave_nothing_after_their_removal() {
    for (kind, parameters) in counting() {
        let memory = Arc::new(Memory::new());
        let filter = counter(kind, &parameters, &memory);
        let exact =
            !parameters.contains(&("policy", "rm")) && !parameters.contains(&("policy", "mi"));
        // Counters of few bits stay at their maximum once they reach it.
        if !exact || kind == "counting" {
            continue;
        }
        let weight = |key: u64| 1 + (key * 104_729) % HEAVIEST;
        for round in 0..3_u64 {
            for key in 0..60_u64 {
                let call = filter.call().weight(weight(key + round) as f64);
                assert!(call.insert(key.to_le_bytes()).is_ok(), "{kind}, key {key}");
            }
        }
        for round in (0..3_u64).rev() {
            for key in 0..60_u64 {
                let call = filter.call().weight(weight(key + round) as f64);
                let removed = call.remove(key.to_le_bytes()).expect("room");
                assert!(removed, "{kind}, round {round}: key {key} is there");
            }
        }
        for key in 0..60_u64 {
            let found = filter.estimate(key.to_le_bytes()).expect("an estimate");
            assert_eq!(found.count, 0.0, "{kind}, key {key}");
            assert!(!contains(&filter, key), "{kind}, key {key}");
        }
        assert_eq!(filter.stat().expect("figures").fill, 0.0, "{kind}");
    }
}
