//! The number of distinct keys: the same from every handle, after an opening, beside writers.

use ebbtide::history::History;
use ebbtide::inspect::{Assembly, origin};
use ebbtide::media::{Media, Memory};
use ebbtide::{
    Any, Bloom, Durability, Error, Filter, Fingerprint, ManualClock, Options, Reader, Standby,
    TimeLimited, Timestamp, Within, monitoring,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn options() -> Options {
    Options::new().hash_seed(7).background(false).durability(Durability::Never)
}

/// Makes sure that a number is within four standard errors, and rounding.
fn check(found: ebbtide::Cardinality, truth: f64) {
    let most = 4.0 * found.standard_error + 0.5;
    assert!((found.keys - truth).abs() <= most, "{found:?}, in truth {truth}");
}

#[test]
fn every_handle_and_each_opening_tells_the_same() {
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("seen");
    let spec = Fingerprint::last(14_000);
    let options = || options().durability(Durability::Always);
    let seen = Filter::create(&dir, spec.clone(), options()).expect("a filter");
    let keys = |of: std::ops::Range<u64>| of.map(|key| (key % 9000).to_le_bytes());
    seen.insert_all(&keys(0..20_000).collect::<Vec<_>>()).expect("inserts");
    let whole = seen.distinct().expect("an answer");
    let lately = seen.distinct_within(Within::Items(3000)).expect("an answer");
    check(whole, 9000.0);
    assert_eq!(whole.reach, Within::Items(15_000));
    assert_eq!(lately.reach, Within::Items(3000));
    check(lately, lately.reach.width() as f64);
    let reader = Reader::<Fingerprint>::open(&dir, options()).expect("a reader");
    assert_eq!(reader.distinct().expect("an answer"), whole);
    assert_eq!(reader.distinct_within(Within::Items(3000)).expect("an answer"), lately);
    // A standby, which follows the log.
    let memory: Arc<dyn Media> = Arc::new(Memory::new());
    let meta = origin(&dir).expect("an origin").meta;
    let assembly = Assembly::begin_on(memory.clone(), &meta, 1).expect("an assembly");
    assembly.finish().expect("a filter");
    let standby = Standby::open_on(memory, Options::new()).expect("a standby");
    let mut history = History::open(&dir).expect("a history");
    while let Some(piece) = history.read_piece().expect("a piece") {
        standby.apply(&piece).expect("sound records");
    }
    assert_eq!(standby.ask(|reader| reader.distinct()).expect("an answer"), whole);
    seen.close().expect("a snapshot");
    assert_eq!(reader.distinct().expect("an answer"), whole);
    let again = Filter::open_or_create(&dir, spec, options()).expect("the filter");
    assert_eq!(again.distinct().expect("an answer"), whole);
    assert_eq!(again.distinct_within(Within::Items(3000)).expect("an answer"), lately);
    let (stat, details) = (again.stat().expect("figures"), again.details().expect("figures"));
    assert_eq!(stat.distinct_keys, Some(whole.keys), "few blocks: all are looked at");
    assert_eq!(stat.distinct_keys_error, Some(whole.standard_error));
    let metrics = monitoring::metrics(&stat, &details);
    let metric = metrics.iter().find(|metric| metric.name == "ebbtide_distinct_keys");
    assert_eq!(metric.map(|metric| metric.value), Some(whole.keys));
}

#[test]
fn a_silence_lets_keys_expire_although_no_block_is_touched() {
    let place = tempfile::tempdir().expect("a directory");
    let start = Timestamp::from_unix_millis(1_700_000_000_000);
    let clock = ManualClock::new(start);
    let options = || options().clock(clock.clone().into());
    let window = Duration::from_secs(140);
    let fingerprint = Fingerprint::window(window).rate(100.0);
    let filter = Filter::create(place.path().join("f"), fingerprint, options()).expect("a filter");
    let limited = TimeLimited::window(window).rate(100.0);
    let limited = Filter::create(place.path().join("t"), limited, options()).expect("a filter");
    let mut key = 0_u64;
    for _ in 0..10 {
        for _ in 0..500 {
            key += 1;
            assert!(filter.insert(key.to_le_bytes()).expect("an insert"));
            assert!(limited.insert(key.to_le_bytes()).expect("an insert"));
        }
        clock.advance(Duration::from_secs(10));
    }
    check(filter.distinct().expect("an answer"), 5000.0);
    check(limited.distinct().expect("an answer"), 5000.0);
    let lately = filter.distinct_within(Within::Time(Duration::from_secs(35))).expect("an answer");
    check(lately, 2000.0);
    // Keys of the first minute expire.
    clock.advance(Duration::from_secs(100));
    for found in [filter.distinct(), limited.distinct()].map(|found| found.expect("an answer")) {
        assert!((1500.0..=3600.0).contains(&found.keys), "{found:?}");
    }
    clock.advance(2 * window);
    assert_eq!(filter.distinct().expect("an answer").keys, 0.0);
    assert_eq!(limited.distinct().expect("an answer").keys, 0.0);
    // A question about the past is one as of the last insert: the filter's time never runs back.
    check(filter.call().time(start).distinct().expect("an answer"), 5000.0);
}

#[test]
fn what_a_kind_does_not_know_it_does_not_claim() {
    let make = |spec: Any| Filter::create_on(Arc::new(Memory::new()), spec, options());
    let decaying = "decaying capacity=100 epoch=1m lambda=0.9".parse().expect("a spec");
    let decaying = make(decaying).expect("a filter");
    assert!(matches!(decaying.distinct(), Err(Error::Unsupported { operation: "distinct", .. })));
    let stat = decaying.stat().expect("figures");
    assert_eq!((stat.distinct_keys, stat.distinct_keys_error), (None, None));
    let memory = Arc::new(Memory::new());
    let ever = Filter::create_on(memory, Bloom::capacity(100), options()).expect("a filter");
    ever.insert("a").expect("an insert");
    check(ever.distinct().expect("an answer"), 1.0);
    let part = ever.distinct_within(Within::Items(5));
    assert!(matches!(part, Err(Error::Unsupported { operation: "distinct_within", .. })));
    let recent = make("fingerprint last=100".parse().expect("a spec")).expect("a filter");
    let wrong = recent.distinct_within(Within::Time(Duration::from_secs(1)));
    let message = wrong.expect_err("another unit").to_string();
    assert!(message.contains("within") && message.contains("a number of inserts"), "{message}");
    let none = recent.distinct_within(Within::Items(0)).expect("an answer");
    assert_eq!((none.keys, none.reach), (0.0, Within::Items(0)));
}

#[test]
fn beside_writers_the_number_is_one_that_was_true_meanwhile() {
    let memory = Arc::new(Memory::new());
    // Ten generations in the time of a few walks.
    let spec = Fingerprint::last(140_000);
    let filter = Arc::new(Filter::create_on(memory, spec, options()).expect("a filter"));
    let keys: Vec<_> = (0..160_000_u64).map(u64::to_le_bytes).collect();
    filter.insert_all(&keys).expect("inserts");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2_u64)
        .map(|writer| {
            let (filter, stop) = (filter.clone(), stop.clone());
            thread::spawn(move || {
                let mut key = writer << 40 | 1 << 50;
                while !stop.load(Ordering::Relaxed) {
                    key += 1;
                    filter.insert(key.to_le_bytes()).expect("an insert");
                }
            })
        })
        .collect();
    let mut found = HashSet::new();
    for _ in 0..200 {
        let answer = filter.distinct().expect("an answer");
        // All keys are distinct: as many as the window has inserts, one generation more or less.
        let inserts = answer.reach.width() as f64;
        assert!((inserts - 11_000.0..=inserts + 11_000.0).contains(&answer.keys), "{answer:?}");
        found.insert(answer.keys as u64);
    }
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    assert!(found.len() > 1, "the filter changed meanwhile");
}
