//! What a filter of another kind, altered or remade, takes over from a log.

use crate::moments;
use ebbtide::history::{At, History, Unlogged, plan, remake};
use ebbtide::media::{Media, Memory};
use ebbtide::{
    AgePartitioned, Bloom, Clock, Code, Counting, Durability, Error, Filter, ImportanceH, Keep,
    ManualClock, Options, Reader, Spectral, TimeLimited, Timestamp,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const START: Timestamp = Timestamp::from_unix_micros(1_700_000_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The weight of several records.
const LARGE: u64 = 50_000_000;

fn kept() -> Options {
    moments::options().keep_log(Keep::Bytes(1 << 40))
}

fn has<K>(filter: &Filter<K>, key: &str) -> bool {
    filter.contains(key).expect("an answer")
}

/// A filter in a directory, and what is made of it.
struct Made {
    home: tempfile::TempDir,
}

impl Made {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a directory") }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

#[test]
fn counts_are_no_importances_and_a_large_count_is_one_insert_of_a_kind_without_counts() {
    let made = Made::new();
    let (dir, new) = (made.at("dir"), made.at("new"));
    let filter = Filter::create(&dir, Spectral::capacity(1000), kept()).expect("a filter");
    for key in ["a", "b", "c"] {
        filter.insert(key).expect("an insert");
    }
    filter.call().times(LARGE).insert("large").expect("an insert");
    let window = || AgePartitioned::last(4);
    let remade = remake(&[&dir], &new, window(), kept(), None).expect("it is kept");
    assert_eq!(remade.operations, 4);
    let remade: Filter<AgePartitioned> = Filter::open(&new, kept()).expect("a filter");
    assert_eq!(remade.stat().expect("figures").inserts, 4);
    assert!(["a", "b", "c", "large"].iter().all(|key| has(&remade, key)));
    let filter = filter.into_any();
    let altered = filter.alter(window(), Unlogged::Refuse).expect("its log is kept");
    assert_eq!(altered.operations, 4);
    assert!(["a", "b", "c", "large"].iter().all(|key| has(&filter, key)));
    // As importances: all inserts are of the lowest level.
    let spec = || ImportanceH::cells(1000, 3, 4, 3).importance_max(100.0);
    let [twin, new] = [made.at("twin"), made.at("other")];
    let twin = Filter::create(&twin, spec(), kept()).expect("a filter");
    ["a", "b", "c", "large"].iter().for_each(|key| twin.insert(key).map(drop).expect("an insert"));
    remake(&[&dir], &new, spec(), kept(), None).expect("it is kept");
    let remade: Filter<ImportanceH> = Filter::open(&new, kept()).expect("a filter");
    let digests = [&twin, &remade].map(|of| of.digest().expect("a digest").value);
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_batch_with_a_large_count_is_one_insert_of_a_kind_without_counts_that_the_filter_has_become() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), Spectral::capacity(1000), kept());
    let filter = filter.expect("a filter");
    let any: Filter = Filter::open_on(media.clone(), kept()).expect("a filter");
    any.insert("a").expect("an insert");
    let mut batch = any.batch();
    let large = ebbtide::Entry::new("large").weight(LARGE as f64);
    batch.insert_entry(&large).expect("room");
    filter.into_any().alter(AgePartitioned::last(2), Unlogged::Refuse).expect("its log is kept");
    batch.commit().expect("a commit");
    assert_eq!(any.stat().expect("figures").inserts, 2);
    assert!(has(&any, "a") && has(&any, "large"));
}

#[test]
fn counts_of_a_batch_are_no_importances_of_a_kind_that_the_filter_has_become() {
    let importance = || ImportanceH::cells(1000, 3, 4, 3).importance_max(100.0);
    let key = |name, weight: u32| ebbtide::Entry::new(name).weight(f64::from(weight));
    let digests = [false, true].map(|alters| {
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let filter = Filter::create_on(media.clone(), Spectral::capacity(1000), kept());
        let filter = filter.expect("a filter").into_any();
        let other: Filter = Filter::open_on(media.clone(), kept()).expect("a filter");
        let mut batch = filter.batch();
        if alters {
            batch.insert_entry(&key("a", 4)).expect("room");
        }
        other.alter(importance(), Unlogged::Refuse).expect("its log is kept");
        // The handle meets the alteration here.
        assert!(!has(&filter, "a"));
        if !alters {
            batch.insert_entry(&key("a", 1)).expect("room");
        }
        batch.insert_entry(&key("b", 3)).expect("room");
        batch.commit().expect("a commit");
        filter.digest().expect("a digest").value
    });
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn counts_of_keys_that_are_written_together_are_importances_once_the_filter_has_become_such_a_kind()
{
    let importance = || ImportanceH::cells(1000, 3, 4, 3).importance_max(100.0);
    let keys = || ["a", "b"].map(|key| ebbtide::Entry::new(key).weight(4.0));
    let digests = [false, true].map(|meets_it_before| {
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let filter = Filter::create_on(media.clone(), Spectral::capacity(1000), kept());
        let filter = filter.expect("a filter").into_any();
        let other: Filter = Filter::open_on(media.clone(), kept()).expect("a filter");
        other.alter(importance(), Unlogged::Refuse).expect("its log is kept");
        if meets_it_before {
            assert!(!has(&filter, "a"));
        }
        filter.insert_entries(&keys()).expect("room");
        filter.digest().expect("a digest").value
    });
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_kind_without_removals_does_not_take_a_log_with_removals_unless_they_may_be_forgotten() {
    let made = Made::new();
    let (dir, new) = (made.at("dir"), made.at("new"));
    let filter = Filter::create(&dir, Counting::capacity(1000), kept()).expect("a filter");
    filter.insert("a").expect("an insert");
    filter.insert("removed").expect("an insert");
    assert!(filter.remove("removed").expect("an answer"));
    let filter = filter.into_any();
    let bloom = || Bloom::capacity(1000);
    let planned = plan(&dir, bloom()).expect("a plan");
    assert!(planned.has_window && planned.keeps_removed && planned.must_forget());
    assert!(!plan(&dir, Spectral::capacity(1000)).expect("a plan").must_forget());
    let error = filter.alter(bloom(), Unlogged::Refuse).expect_err("it cannot remove");
    assert_eq!(error.code(), Code::Parameter, "{error}");
    assert!(error.to_string().contains("--forget"), "{error}");
    assert!(!has(&filter, "removed") && filter.kind() == "counting");
    let error = remake(&[&dir], &new, bloom(), kept(), None).expect_err("it cannot remove");
    assert_eq!(error.code(), Code::Parameter, "{error}");
    assert!(!new.exists());
    // Those that a clear has ended are nothing to remove.
    filter.clear().expect("a clear");
    filter.insert("b").expect("an insert");
    assert!(!plan(&dir, bloom()).expect("a plan").must_forget());
    assert_eq!(remake(&[&dir], &new, bloom(), kept(), None).expect("a filter").operations, 2 + 1);
    let remade: Filter<Bloom> = Filter::open(&new, kept()).expect("a filter");
    assert!(has(&remade, "b") && !has(&remade, "a") && !has(&remade, "removed"));
    filter.call().insert("c").expect("an insert");
    filter.alter(bloom(), Unlogged::Refuse).expect("nothing to remove");
    assert!(has(&filter, "b") && has(&filter, "c") && !has(&filter, "removed"));
    // It may be forgotten.
    let dir = made.at("again");
    let filter = Filter::create(&dir, Counting::capacity(1000), kept()).expect("a filter");
    filter.insert("removed").expect("an insert");
    assert!(filter.remove("removed").expect("an answer"));
    let filter = filter.into_any();
    filter.alter(bloom(), Unlogged::Forget).expect("it may forget");
    assert!(has(&filter, "removed"));
}

#[test]
fn operations_that_were_refused_are_not_counted() {
    let made = Made::new();
    let (dir, new) = (made.at("dir"), made.at("new"));
    let at = |minutes: u32| START + minutes * MINUTE;
    let filter = Filter::create(&dir, TimeLimited::window(10 * HOUR), kept()).expect("a filter");
    filter.call().time(at(300)).insert("a").expect("an insert");
    filter.call().time(at(0)).insert("late").expect("an insert");
    let narrow = || TimeLimited::window(HOUR);
    let remade = remake(&[&dir], &new, narrow(), kept(), None).expect("it is kept");
    assert_eq!((remade.operations, remade.since), (1, Some(at(300))));
    let altered = filter.into_any().alter(narrow(), Unlogged::Refuse).expect("it is kept");
    assert_eq!(altered.operations, 1);
}

#[test]
fn a_clock_that_was_once_ahead_makes_no_key_older_of_a_kind_with_time_that_takes_it_over() {
    let made = Made::new();
    let (dir, new) = (made.at("dir"), made.at("new"));
    let clock = ManualClock::new(START);
    let options = || kept().clock(Clock::from(clock.clone()));
    let filter = Filter::create(&dir, Bloom::capacity(1000), options()).expect("a filter");
    filter.insert("a").expect("an insert");
    clock.set_wall(START + 48 * HOUR);
    filter.insert("ahead").expect("an insert");
    clock.set_wall(START + 5 * MINUTE);
    let window = || TimeLimited::window(HOUR);
    remake(&[&dir], &new, window(), options(), None).expect("it is kept");
    let remade: Filter<TimeLimited> = Filter::open(&new, options()).expect("a filter");
    assert!(has(&remade, "a") && has(&remade, "ahead"));
    let filter = filter.into_any();
    filter.alter(window(), Unlogged::Refuse).expect("its log is kept");
    assert!(has(&filter, "a") && has(&filter, "ahead"));
    for of in [&filter, &remade.into_any()] {
        assert_eq!(of.clock_lead(), None);
    }
    clock.advance(2 * HOUR);
    assert!(!has(&filter, "a") && !has(&filter, "ahead"));
}

#[test]
fn as_of_a_time_between_the_last_key_and_an_alteration_the_filter_has_its_former_parameters() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let clock = ManualClock::new(START);
    let options = || kept().clock(Clock::from(clock.clone()));
    let spec = AgePartitioned::last(100);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter").into_any();
    filter.insert("a").expect("an insert");
    clock.advance(10 * MINUTE);
    filter.alter(AgePartitioned::last(200), Unlogged::Refuse).expect("its log is kept");
    clock.advance(10 * MINUTE);
    filter.insert("b").expect("an insert");
    let items = |minutes: u32| {
        let at = At::Time(START + minutes * MINUTE);
        let reader: Reader = Reader::at_on(media.clone(), at, options()).expect("it is kept");
        assert!(reader.contains("a").expect("an answer"));
        reader.parameters().get("window-items").map(str::to_owned)
    };
    assert_eq!(items(5).as_deref(), Some("100"));
    assert_eq!(items(15).as_deref(), Some("200"));
}

#[test]
fn an_alteration_has_the_latest_time_of_the_keys_that_bring_theirs() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), Bloom::capacity(100), kept()).expect("a filter");
    let filter = filter.into_any();
    let at = |hours: u32| START + hours * HOUR;
    filter.call().time(at(0)).insert("a").expect("an insert");
    filter.alter(Bloom::capacity(200), Unlogged::Refuse).expect("its log is kept");
    filter.call().time(at(1)).insert("b").expect("an insert");
    let reader = |hours| Reader::at_on(media.clone(), At::Time(at(hours)), kept());
    let reader: Reader = reader(2).expect("it is kept");
    assert_eq!(reader.parameters().get("capacity"), Some("200"));
    assert!(["a", "b"].iter().all(|key| reader.contains(key).expect("an answer")));
}

#[test]
fn a_plan_counts_operations_and_no_other_records_and_no_time_of_a_lease() {
    let made = Made::new();
    let dir = made.at("dir");
    let clock = Clock::stream();
    let options = moments::options().durability(Durability::Always).clock(clock);
    let spec = AgePartitioned::last(2000);
    let filter = Filter::create(&dir, spec, options).expect("a filter");
    let insert = |keys: std::ops::Range<u64>| {
        keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
    };
    insert(0..600);
    filter.checkpoint().expect("a checkpoint");
    insert(600..900);
    filter.checkpoint().expect("a checkpoint");
    drop(filter.claim("claimed", MINUTE).expect("an answer"));
    insert(900..1000);
    let history = History::open(&dir).expect("a log").with_undurable();
    let left = history.map(|commit| commit.expect("sound").operations.len() as u64).sum::<u64>();
    let plan = |items: u64| plan(&dir, AgePartitioned::last(items)).expect("a plan");
    assert!(plan(50).first_lsn > 1 && plan(50).has_window);
    assert!(plan(50).records > left + 100, "notes of what is durable: {:?}", plan(50));
    assert!(!plan(left + 50).has_window, "{left} operations: {:?}", plan(left + 50));
    assert_eq!(plan(50).since, None, "the clock of leases is not the filter's");
    let filter = filter.into_any();
    let refused = filter.alter(AgePartitioned::last(left + 50), Unlogged::Refuse);
    assert!(matches!(refused, Err(Error::NotKept { .. })), "{refused:?}");
}
