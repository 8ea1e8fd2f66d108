//! Typed handles: each spec creates a filter that behaves as the spec's traits state, and no filter
//! opens as another type.

use ebbtide::history::Unlogged;
use ebbtide::{
    Age, AgePartitioned, Ages, Any, BlockTiming, Bloom, Call, Checked, Clock, Counting, Counts,
    Decaying, DecayingOptimized, Decays, DoubleBuffering, DynamicCount, Error, Filter,
    Importance2c, ImportanceH, ImportanceMc, Options, Parameters, Policy, Reader, Removes, Since,
    Spec, Spectral, Stable, TimeLimited, Timestamp, Timing, TwoBuffer, Weighs, Within,
};
use ebbtide_core::kind::MOST_COUNT;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// The beginning of a minute long ago, in Unix seconds; decaying filters have epochs of one minute.
const START: u64 = 28_333_333 * 60;

const MINUTE: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_millis((START + seconds) * 1000)
}

fn options() -> Options {
    Options::new().hash_seed(7).clock(Clock::stream()).background(false)
}

/// A new filter of a spec, and its directory.
struct Made<K: Spec> {
    filter: Filter<K>,
    dir: PathBuf,
    _place: TempDir,
}

fn made<K: Spec + Clone>(spec: &K) -> Made<K> {
    let place = TempDir::new().expect("a directory");
    let dir = place.path().join("filter");
    let filter = Filter::create(&dir, spec.clone(), options()).expect("a filter");
    assert_eq!(filter.kind(), spec.name());
    Made { filter, dir, _place: place }
}

impl<K: Spec> Made<K> {
    /// Returns a call at a time in seconds.
    fn at(&self, seconds: u64) -> Call<'_, Filter<K>> {
        self.filter.call().time(at(seconds))
    }
}

/// Checks every filter: it contains the inserted keys, distinguishes new keys from present ones,
/// and reopens by its type, by name, or for reading. It does not open as another type.
fn remembers<K: Spec + Clone>(spec: &K) {
    let made = made(spec);
    assert!(made.at(0).insert("a").expect("an insert"));
    assert_eq!(made.at(0).check_and_insert("a").expect("a check"), Checked::Present);
    assert_eq!(made.at(0).check_and_insert("b").expect("a check"), Checked::New);
    let call = made.at(0).since(Since::LastAccepted);
    assert_eq!(call.check_and_insert("b").expect("a check"), Checked::Present);
    assert_eq!(made.at(0).contains_all(&["a", "b", "x"]).expect("answers"), [true, true, false]);
    let Made { filter, dir, _place } = made;
    filter.close().expect("a clean end");

    let filter = Filter::open_or_create(&dir, spec.clone(), options()).expect("the same filter");
    let reader: Reader<K> = Reader::open(&dir, options()).expect("a reader");
    assert!(filter.call().time(at(0)).contains("a").expect("an answer"));
    assert!(reader.call().time(at(0)).contains("a").expect("an answer"));
    let by_name: Filter = Filter::open(&dir, options()).expect("the same filter");
    assert_eq!(by_name.kind(), spec.name());
    assert_eq!(by_name.parameters(), filter.parameters());
    for (name, value) in spec.parameters().iter() {
        assert!(filter.parameters().get(name).is_some(), "{name} = {value} is lost");
    }
}

/// Checks that a filter does not open as another type.
fn is_no<K: Spec>(made: &Made<impl Spec>) {
    let wanted = K::KIND.expect("a type of its own");
    let refused = [
        Filter::<K>::open(&made.dir, options()).map(drop),
        Reader::<K>::open(&made.dir, options()).map(drop),
    ];
    for error in refused.map(|opened| opened.expect_err("another type")) {
        let Error::Mismatch { what, expected, found, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((what.as_str(), expected.as_str()), ("kind", wanted));
        assert_eq!(found, made.filter.kind());
    }
}

fn count<K: Counts>(call: Call<'_, Filter<K>>, key: &str) -> f64 {
    let estimate = call.estimate(key).expect("an estimate");
    assert!(!estimate.at_least);
    estimate.count
}

/// Checks counts of inserts and of weights, which are exact in a nearly empty filter.
fn counts<K: Counts + Clone>(spec: &K) -> Made<K> {
    remembers(spec);
    let made = made(spec);
    made.at(0).insert("a").expect("an insert");
    made.at(0).times(9).insert("a").expect("an insert");
    made.at(0).times(4).check_and_insert("b").expect("a check");
    made.at(0).times(3).insert_all(&["c", "d", "c"]).expect("inserts");
    for (key, expected) in [("a", 10.0), ("b", 4.0), ("c", 6.0), ("d", 3.0), ("x", 0.0)] {
        assert_eq!(count(made.at(0), key), expected, "{} {key}", spec.name());
    }
    for times in [0, MOST_COUNT + 1, u64::MAX] {
        let error = made.at(0).times(times).insert("a").expect_err("no weight");
        assert!(matches!(error, Error::Parameter { name: "weight", .. }), "{error}");
    }
    let reader: Reader<K> = Reader::open(&made.dir, options()).expect("a reader");
    let estimate = reader.call().time(at(0)).estimate("a").expect("an estimate");
    assert_eq!(
        (estimate.count, estimate.at_least),
        (10.0, false),
        "as before, and as others see it"
    );
    made
}

/// Checks counts that can be removed.
fn removes<K: Removes + Clone>(spec: &K) {
    let made = counts(spec);
    assert!(made.filter.remove("a").expect("a removal"));
    assert!(made.filter.call().times(8).remove("a").expect("a removal"));
    assert_eq!(made.filter.estimate("a").expect("an estimate").count, 1.0);
    assert!(!made.filter.call().times(2).remove("a").expect("nothing to remove"));
    assert!(made.filter.remove("a").expect("a removal"));
    assert!(!made.filter.remove("a").expect("nothing to remove"));
    assert!(!made.filter.remove("x").expect("nothing to remove"));
    assert!(!made.filter.contains("a").expect("an answer"));
    assert_eq!(made.filter.estimate("c").expect("an estimate").count, 6.0);
    let stat = made.filter.stat().expect("figures");
    assert_eq!((stat.inserts, stat.operations), (6, 9));
}

/// Checks counts that each minute halves.
fn decays<K: Decays + Clone>(spec: &K) {
    let made = counts(spec);
    for (minutes, left) in [(0, 10.0), (1, 5.0), (2, 2.5), (30, 0.0)] {
        assert_eq!(count(made.at(60 * minutes), "a"), left, "{}", spec.name());
        let frequency = made.at(60 * minutes).frequency("a").expect("a frequency");
        assert_eq!(frequency.count, left / 2.0, "{}", spec.name());
    }
    assert!(!made.at(1800).contains("a").expect("an answer"));
}

/// Checks that ages are never too high, and windows within the window.
fn ages<K: Ages + Clone>(spec: &K) {
    remembers(spec);
    let made = made(spec);
    for key in ["a", "b", "c"] {
        made.filter.insert(key).expect("an insert");
    }
    for (key, most) in [("a", 3), ("b", 2), ("c", 1)] {
        let age = made.filter.age(key).expect("an age");
        assert!(matches!(age, Some(Age::Items(age)) if age <= most), "{age:?}");
        assert!(made.filter.seen_within(key, Within::Items(most)).expect("an answer"));
    }
    assert_eq!(made.filter.age("x").expect("an age"), None);
    assert!(!made.filter.seen_within("x", Within::Items(1)).expect("an answer"));
    // A key as old as the window is not in a small part of it.
    let others: Vec<_> = (0..80).map(|number| format!("other {number}")).collect();
    made.filter.insert_all(&others).expect("inserts");
    assert!(made.filter.contains("a").expect("an answer"));
    assert!(!made.filter.seen_within("a", Within::Items(5)).expect("an answer"));
    let age = made.filter.age("a").expect("an age");
    assert!(matches!(age, Some(Age::Items(age)) if (40..=83).contains(&age)), "{age:?}");
}

/// Checks that more important keys stay longer, and that weights out of bounds are refused.
fn weighs<K: Weighs + Clone>(spec: &K) {
    remembers(spec);
    let made = made(spec);
    let keys = |kind: &str| (0..200).map(|number| format!("{kind} {number}")).collect::<Vec<_>>();
    let (dear, cheap, others) = (keys("dear"), keys("cheap"), keys("other"));
    made.filter.call().importance(100.0).insert_all(&dear).expect("inserts");
    made.filter.call().importance(0.0).insert_all(&cheap).expect("inserts");
    for _ in 0..3 {
        made.filter.call().importance(1.0).insert_all(&others).expect("inserts");
    }
    let present = |keys: &[String]| {
        let answers = made.filter.contains_all(keys).expect("answers");
        answers.into_iter().filter(|present| *present).count()
    };
    // See `important_keys_stay_longer` in the contract of the command.
    let (dear, cheap) = (present(&dear), present(&cheap));
    assert!(dear > cheap + 50, "{}: {dear} and {cheap}", spec.name());
    for importance in [-1.0, f64::NAN, f64::INFINITY] {
        let error = made.filter.call().importance(importance).insert("a").expect_err("no weight");
        assert!(matches!(error, Error::Parameter { name: "weight", .. }), "{error}");
    }
}

#[test]
fn counting_filters_count_and_remove() {
    removes(&Counting::capacity(1000).fpr(0.001));
    removes(&Counting::capacity(1000).counter_bits(32));
    removes(&Spectral::capacity(1000).fpr(0.001));
    removes(&Spectral::capacity(1000).policy(Policy::MinimumSelection));
    removes(&Spectral::capacity(1000).policy(Policy::RecurringMinimum));
    removes(&DynamicCount::capacity(1000).fpr(0.001).mean_count(3.0));
}

#[test]
fn minimal_increase_counts_but_does_not_remove() {
    let made = counts(&Spectral::capacity(1000).policy(Policy::MinimalIncrease));
    let error = made.filter.remove("a").expect_err("no removals");
    assert!(matches!(error, Error::Unsupported { kind: "spectral", operation: "remove" }));
    assert_eq!(made.filter.estimate("a").expect("an estimate").count, 10.0);
}

#[test]
fn a_full_counter_gives_a_lower_bound() {
    let made = made(&Counting::capacity(1000).counter_bits(3));
    made.filter.call().times(6).insert("a").expect("an insert");
    assert_eq!(count(made.filter.call(), "a"), 6.0);
    made.filter.call().times(6).insert("a").expect("an insert");
    let estimate = made.filter.estimate("a").expect("an estimate");
    assert_eq!((estimate.count, estimate.at_least), (7.0, true));
}

#[test]
fn decaying_filters_count_less_with_time() {
    decays(&Decaying::capacity(1000, 0.5, MINUTE).fpr(0.001));
    decays(&DecayingOptimized::capacity(1000, 0.5, MINUTE).fpr(0.001));
}

#[test]
fn windows_in_inserts_give_ages() {
    ages(&Timing::last(100).fpr(0.001));
    ages(&BlockTiming::last(100).fpr(0.001));
    ages(&BlockTiming::last(100).batch(4));
    ages(&AgePartitioned::last(100).fpr(0.001));
    ages(&AgePartitioned::last(100).slices(12, 20));
}

#[test]
fn a_window_in_time_gives_ages() {
    let spec = TimeLimited::window(MINUTE).fpr(0.001).rate(10.0);
    remembers(&spec);
    let made = made(&spec);
    made.at(0).insert("a").expect("an insert");
    let age = made.at(50).age("a").expect("an age");
    assert!(matches!(age, Some(Age::Time(time)) if time <= Duration::from_secs(50)), "{age:?}");
    let within = |seconds: u64| Within::Time(Duration::from_secs(seconds));
    assert!(made.at(50).seen_within("a", within(55)).expect("an answer"));
    assert!(!made.at(50).seen_within("a", within(10)).expect("an answer"));
    assert_eq!(made.at(600).age("a").expect("an age"), None);
}

#[test]
fn windows_without_ages_contain_their_keys() {
    remembers(&Bloom::capacity(1000).fpr(0.001));
    remembers(&DoubleBuffering::last(1000).fpr(0.001));
    remembers(&TwoBuffer::last(1000).fpr(0.001));
    remembers(&Stable::cells(10_000, 7, 4, 10));
}

#[test]
fn importance_aware_filters_keep_important_keys() {
    weighs(&Importance2c::cells(7000, 7, 4, 20).importance_max(100.0));
    weighs(&ImportanceMc::cells(7000, 7, 4, 20).importance_max(100.0));
    // Every draw of this kind finds a cell above zero.
    weighs(&ImportanceH::cells(7000, 7, 4, 3).importance_max(100.0));
}

#[test]
fn a_filter_is_not_opened_as_another_type() {
    let counting = made(&Counting::capacity(100));
    is_no::<Bloom>(&counting);
    is_no::<Spectral>(&counting);
    is_no::<DynamicCount>(&counting);
    let decaying = made(&Decaying::capacity(100, 0.5, MINUTE));
    is_no::<DecayingOptimized>(&decaying);
    is_no::<Counting>(&decaying);
    let timing = made(&Timing::last(100));
    is_no::<BlockTiming>(&timing);
    is_no::<AgePartitioned>(&timing);
    is_no::<TimeLimited>(&timing);
    let stable = made(&Stable::cells(100, 7, 4, 10));
    is_no::<Importance2c>(&stable);
    is_no::<ImportanceMc>(&stable);
    is_no::<ImportanceH>(&stable);
    let double = made(&DoubleBuffering::last(100));
    is_no::<TwoBuffer>(&double);
    is_no::<Decaying>(&double);
    is_no::<Stable>(&double);
    is_no::<Timing>(&double);
    is_no::<DoubleBuffering>(&made(&TwoBuffer::last(100)));
}

#[test]
fn a_kind_by_name_refuses_unsupported_operations_by_name() {
    let filter = made(&Any::new("bloom", Parameters::new().with("capacity", 100))).filter;
    let refused = [
        ("estimate", filter.estimate("a").map(drop)),
        ("frequency", filter.frequency("a").map(drop)),
        ("remove", filter.remove("a").map(drop)),
        ("age", filter.age("a").map(drop)),
        ("seen_within", filter.seen_within("a", Within::Items(1)).map(drop)),
        ("weights", filter.call().weight(2.0).insert("a").map(drop)),
    ];
    for (name, answer) in refused {
        let error = answer.expect_err(name);
        assert!(matches!(error, Error::Unsupported { kind: "bloom", .. }), "{error}");
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
    let counting = Any::new("counting", Parameters::new().with("capacity", 100));
    let filter = made(&counting).filter;
    filter.call().weight(3.0).insert("a").expect("an insert");
    assert_eq!(filter.estimate("a").expect("an estimate").count, 3.0);
}

#[test]
fn a_filter_with_other_parameters_is_refused() {
    let made = made(&Counting::capacity(100).counter_bits(4));
    let Made { filter, dir, _place } = made;
    filter.close().expect("a clean end");
    let other = Counting::capacity(100).counter_bits(5);
    let error = Filter::open_or_create(&dir, other, options()).expect_err("another width");
    assert!(matches!(&error, Error::Mismatch { what, .. } if what == "counter-bits"), "{error}");
}

#[test]
fn a_handle_has_the_type_of_the_kind_that_an_alteration_has_given_the_filter() {
    let Made { filter, dir, _place } = made(&Bloom::capacity(1000));
    let [by_name, another] = [(), ()].map(|()| Filter::open(&dir, options()).expect("a filter"));
    let [reads, other] = [(), ()].map(|()| Reader::<Any>::open(&dir, options()).expect("a reader"));
    filter.insert("a").expect("an insert");
    let counting = Counting::capacity(1000);
    filter.into_any().alter(counting, Unlogged::Forget).expect("altered");
    let by_name = by_name.typed::<Bloom>().expect_err("it is a counting filter now");
    let typed = by_name.typed::<Counting>().expect("it is a counting filter now");
    assert_eq!(typed.estimate("a").expect("an estimate").count, 1.0);
    assert!(another.typed::<Counting>().is_ok(), "without a call before");
    // A reader looks at the files at intervals only, unless writers have retired its image.
    assert_eq!(reads.kind(), "bloom", "as the last query found it");
    assert!(reads.contains("a").is_ok());
    assert_eq!(reads.kind(), "counting");
    let reads = reads.typed::<Bloom>().expect_err("it is a counting filter now");
    assert!(reads.typed::<Counting>().is_ok());
    assert!(other.typed::<Counting>().is_ok(), "without a call before");
}
