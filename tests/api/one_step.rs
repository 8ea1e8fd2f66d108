//! Operations that combine several others into one step or one call: they must have the same
//! result, and be one atomic step for all other handles.

use ebbtide::inspect::wal;
use ebbtide::media::Memory;
use ebbtide::{
    Any, Bloom, Checked, Clock, Counting, Counts, Decaying, Durability, DynamicCount, Entry, Error,
    Estimate, Filter, Importance2c, KeyHash, Options, Parameters, Policy, Reader, Spec, Spectral,
    TimeLimited, Timestamp,
};
use ebbtide_core::kind::{MOST_COUNT, MOST_WEIGHT};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const THREADS: usize = 4;

fn options() -> Options {
    Options::new().hash_seed(7).clock(Clock::stream()).background(false).segment_bytes(64 << 10)
}

fn made<K: Spec>(spec: K) -> Filter<K> {
    Filter::create_on(Arc::new(Memory::new()), spec, options()).expect("a filter")
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_millis((1_700_000_000 + seconds) * 1000)
}

fn exactly(count: f64) -> Estimate {
    Estimate { count, at_least: false }
}

/// Creates two handles on one filter, as two processes have.
fn two_handles<K: Spec>(spec: K) -> (TempDir, [Filter<K>; 2]) {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    let first = Filter::create(&dir, spec, options()).expect("a filter");
    let second = Filter::open(&dir, options()).expect("the same");
    (home, [first, second])
}

/// Returns the results of all threads on both handles, in one list.
fn from_all_threads<K: Spec, T: Send>(
    handles: &[Filter<K>; 2],
    act: impl Fn(&Filter<K>) -> Vec<T> + Sync,
) -> Vec<T> {
    let act = &act;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|at| scope.spawn(move || act(&handles[at % 2]))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn gives_each_insert_a_count_of_its_own<K: Counts>(spec: K) {
    const INSERTS: usize = 2000;
    let (_home, handles) = two_handles(spec);
    for key in ["a", "b"] {
        let mut counts = from_all_threads(&handles, |filter| {
            let count = |_| filter.insert_and_estimate(key).expect("an insert").count as usize;
            (0..INSERTS).map(count).collect()
        });
        counts.sort_unstable();
        let expected: Vec<_> = (1..=INSERTS * THREADS).collect();
        assert!(counts == expected, "{}: the counts are not distinct", handles[0].kind());
    }
}

#[test]
fn concurrent_inserts_receive_distinct_counts() {
    gives_each_insert_a_count_of_its_own(Counting::capacity(1000).counter_bits(16));
    gives_each_insert_a_count_of_its_own(Spectral::capacity(1000));
    gives_each_insert_a_count_of_its_own(Spectral::capacity(1000).policy(Policy::MinimalIncrease));
    gives_each_insert_a_count_of_its_own(DynamicCount::capacity(1000));
}

fn admits_as_many_as_the_limit_says<K: Counts>(spec: K) {
    const LIMIT: usize = 1500;
    let (_home, handles) = two_handles(spec);
    let admissions = from_all_threads(&handles, |filter| {
        let admit = |_| filter.insert_up_to("a", LIMIT as f64).expect("an answer");
        (0..1000).map(admit).collect()
    });
    let admitted: Vec<_> = admissions.iter().filter(|admission| admission.admitted).collect();
    let mut counts: Vec<_> =
        admitted.iter().map(|admission| admission.estimate.count as usize).collect();
    counts.sort_unstable();
    assert!(counts == (1..=LIMIT).collect::<Vec<_>>(), "{} were admitted", admitted.len());
    let refused = admissions.iter().filter(|admission| !admission.admitted);
    assert!(refused.clone().all(|refused| refused.estimate == exactly(LIMIT as f64)));
    assert_eq!(refused.count(), 1000 * THREADS - LIMIT);
    let stat = handles[1].stat().expect("figures");
    assert_eq!(stat.inserts, LIMIT as u64, "refused attempts are not counted");
}

#[test]
fn concurrent_inserts_are_admitted_exactly_up_to_the_limit() {
    admits_as_many_as_the_limit_says(Counting::capacity(1000).counter_bits(16));
    admits_as_many_as_the_limit_says(Spectral::capacity(1000));
    admits_as_many_as_the_limit_says(DynamicCount::capacity(1000));
}

#[test]
fn a_limit_counts_weights_and_refuses_counters_at_their_maximum() {
    let filter = made(Counting::capacity(1000).counter_bits(4));
    let up_to = |times, limit| filter.call().times(times).insert_up_to("a", limit).expect("it");
    assert_eq!((up_to(6, 5.5).admitted, up_to(6, 5.5).estimate), (false, exactly(0.0)));
    assert_eq!((up_to(6, 6.0).admitted, up_to(0x10, 9.0).admitted), (true, false));
    let admission = up_to(4, 10.0);
    assert_eq!((admission.admitted, admission.estimate), (true, exactly(10.0)));
    assert!(!up_to(1, 10.0).admitted && !up_to(1, -1.0).admitted);
    let full = up_to(9, f64::INFINITY);
    assert_eq!((full.admitted, full.estimate.at_least), (true, true));
    assert!(!up_to(1, f64::INFINITY).admitted, "its count may be any higher one");
    let error = filter.insert_up_to("b", f64::NAN).expect_err("no number");
    assert!(matches!(error, Error::Parameter { name: "limit", .. }), "{error}");
    assert_eq!(filter.stat().expect("figures").inserts, 3);
}

#[test]
fn a_count_beyond_one_record_is_one_operation() {
    const MANY: u64 = 40_000_000_000;
    let place = tempfile::tempdir().expect("a directory");
    let options = Options::new().durability(Durability::Never).background(false);
    let dir = place.path().join("bytes");
    let filter = Filter::create(&dir, Spectral::capacity(1000), options).expect("a filter");
    let times = |count| filter.call().times(count);
    let counted = || filter.estimate("flow").expect("a count");
    assert!(times(MANY).check_and_insert("flow").expect("an answer").is_new());
    assert!(times(MANY).check_and_insert("flow").expect("an answer").is_present());
    assert_eq!(counted(), exactly(2.0 * MANY as f64));
    let up_to = |limit| times(MANY).insert_up_to("flow", limit).expect("an answer");
    assert!(!up_to(3.0 * MANY as f64 - 1.0).admitted);
    let admission = up_to(3.0 * MANY as f64);
    assert_eq!((admission.admitted, admission.estimate), (true, exactly(3.0 * MANY as f64)));
    let mut batch = filter.batch();
    batch.insert_entry(&Entry::new("flow").times(MANY)).expect("room");
    batch.commit().expect("a batch");
    assert_eq!(counted(), exactly(4.0 * MANY as f64));
    for wrong in [MOST_COUNT + 1, u64::MAX] {
        let error = times(wrong).insert("flow").expect_err("no count");
        assert!(matches!(error, Error::Parameter { name: "weight", .. }), "{error}");
    }
    assert!(times(MOST_COUNT).insert("most").expect("the most"));
    assert_eq!(filter.estimate("most").expect("a count"), exactly(MOST_COUNT as f64));
    let (mut batches, mut inserts, mut continues) = (0, 0, false);
    wal(&dir, |entry| {
        batches += usize::from(continues && !entry.continues());
        inserts += u64::from(entry.operation == "insert");
        continues = entry.continues();
        Ok(())
    })
    .expect("a log");
    let records = 4 * MANY.div_ceil(MOST_WEIGHT.into()) + (1 << 16);
    assert_eq!((batches, inserts), (5, records));
}

#[test]
fn a_count_beyond_the_counters_writes_the_records_that_fill_them() {
    let place = tempfile::tempdir().expect("a directory");
    let options = Options::new().durability(Durability::Never).background(false);
    for (bits, records) in [(4, 1), (26, 5)] {
        let dir = place.path().join(bits.to_string());
        let counting = Counting::capacity(1000).counter_bits(bits);
        let filter = Filter::create(&dir, counting, options.clone()).expect("a filter");
        let most = filter.call().times(MOST_COUNT);
        assert!(most.check_and_insert("flow").expect("an answer").is_new());
        let full = filter.estimate("flow").expect("a count");
        assert_eq!((full.count, full.at_least), (f64::from((1 << bits) - 1), true));
        assert_eq!(filter.stat().expect("figures").inserts, records);
        // The same in a batch, beside a key that is not full.
        let mut batch = filter.batch();
        batch.insert_entry(&Entry::new("other").times(MOST_COUNT)).expect("room");
        batch.insert_entry(&Entry::new("few").times(3)).expect("room");
        batch.commit().expect("a batch");
        assert_eq!(filter.stat().expect("figures").inserts, 2 * records + 1);
        assert!(filter.estimate("other").expect("a count").at_least);
        assert_eq!(filter.estimate("few").expect("a count"), exactly(3.0));
        // A limit counts the whole weight.
        let limited = filter.call().times(MOST_COUNT).insert_up_to("new", 1e9).expect("an answer");
        assert!(!limited.admitted);
        assert!(!filter.call().times(MOST_COUNT).remove("few").expect("an answer"));
        assert!(filter.call().times(MOST_COUNT).remove("flow").expect("an answer"), "it is full");
        let digest = filter.digest().expect("a digest").to_string();
        filter.close().expect("a clean end");
        let again = Filter::<Any>::open(&dir, Options::new().background(false)).expect("a filter");
        assert_eq!(again.digest().expect("a digest").to_string(), digest);
    }
}

#[test]
fn a_count_beyond_one_record_is_removed_as_a_whole() {
    const MANY: u64 = 40_000_000_000;
    let filter = made(DynamicCount::capacity(1000));
    let times = |count| filter.call().times(count);
    assert!(times(MANY).insert("flow").expect("an insert"));
    assert!(!times(MANY + 1).remove("flow").expect("an answer"), "it is not there that often");
    assert_eq!(filter.estimate("flow").expect("a count"), exactly(MANY as f64));
    assert!(times(MANY - 7).remove("flow").expect("an answer"));
    assert_eq!(filter.estimate("flow").expect("a count"), exactly(7.0));
}

#[test]
fn a_decayed_count_makes_room_again() {
    let filter = made(Decaying::capacity(1000, 0.5, Duration::from_secs(60)));
    let up_to = |second| filter.call().time(at(second)).insert_up_to("a", 4.0).expect("it");
    let minute = 40; // an epoch begins there
    for expected in 1..=4 {
        assert_eq!(up_to(minute).estimate, exactly(f64::from(expected)));
    }
    assert!(!up_to(minute).admitted);
    let later = up_to(minute + 60);
    assert_eq!((later.admitted, later.estimate), (true, exactly(3.0)));
    assert!(up_to(minute + 60).admitted && !up_to(minute + 60).admitted);
}

#[test]
fn a_kind_that_does_not_count_refuses_before_any_change() {
    let filter = made(Any::new("bloom", Parameters::new().with("capacity", 100)));
    let answers = [
        filter.insert_and_estimate("a").map(drop),
        filter.insert_up_to("a", 5.0).map(drop),
        filter.estimate_all(&["a"]).map(drop),
    ];
    for answer in answers {
        let error = answer.expect_err("it does not count");
        assert!(matches!(error, Error::Unsupported { operation: "estimate", .. }), "{error}");
    }
    assert!(!filter.contains("a").expect("an answer"));
    assert_eq!(filter.stat().expect("figures").inserts, 0);
}

/// Draws keys of a small alphabet, seconds, and weights.
fn operations() -> impl Strategy<Value = Vec<(u8, u64, u32)>> {
    prop::collection::vec((0_u8..12, 0_u64..300, 1_u32..5), 1..120)
}

/// Runs the same operations on two filters, in two ways, and compares the answers and the final
/// states.
fn same<K: Spec + Clone, A: PartialEq + std::fmt::Debug>(
    spec: &K,
    one: impl Fn(&Filter<K>) -> A,
    other: impl Fn(&Filter<K>) -> A,
) {
    let [first, second] = [made(spec.clone()), made(spec.clone())];
    assert_eq!(one(&first), other(&second));
    let digests = [first, second].map(|filter| filter.digest().expect("a digest"));
    assert_eq!(digests[0], digests[1]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn an_insert_with_its_count_equals_an_insert_followed_by_an_estimate(
        operations in operations(),
    ) {
        fn check<K: Counts + Clone>(spec: &K, operations: &[(u8, u64, u32)]) {
            let both = |filter: &Filter<K>| -> Vec<_> {
                let both = |&(key, second, times): &(u8, u64, u32)| {
                    let call = filter.call().time(at(second)).times(times.into());
                    call.insert([key]).expect("an insert");
                    call.estimate([key]).expect("an estimate")
                };
                operations.iter().map(both).collect()
            };
            let at_once = |filter: &Filter<K>| -> Vec<_> {
                let at_once = |&(key, second, times): &(u8, u64, u32)| {
                    let call = filter.call().time(at(second)).times(times.into());
                    call.insert_and_estimate([key]).expect("an insert")
                };
                operations.iter().map(at_once).collect()
            };
            same(spec, both, at_once);
        }
        check(&Counting::capacity(20).fpr(0.1), &operations);
        check(&Spectral::capacity(20).fpr(0.1), &operations);
        check(&DynamicCount::capacity(20).fpr(0.1), &operations);
        check(&Decaying::capacity(20, 0.7, Duration::from_secs(30)).fpr(0.1), &operations);
    }

    #[test]
    fn an_insert_up_to_a_limit_equals_an_insert_if_the_count_allows_it(operations in operations()) {
        fn check<K: Counts + Clone>(spec: &K, operations: &[(u8, u64, u32)]) {
            const LIMIT: f64 = 9.0;
            let asked = |filter: &Filter<K>| -> Vec<_> {
                let asked = |&(key, second, times): &(u8, u64, u32)| {
                    let call = filter.call().time(at(second)).times(times.into());
                    let before = call.estimate([key]).expect("an estimate");
                    let room = before.count + f64::from(times) <= LIMIT;
                    let inserted = room && call.insert([key]).expect("an insert");
                    (inserted, call.estimate([key]).expect("an estimate"))
                };
                operations.iter().map(asked).collect()
            };
            let at_once = |filter: &Filter<K>| -> Vec<_> {
                let at_once = |&(key, second, times): &(u8, u64, u32)| {
                    let call = filter.call().time(at(second)).times(times.into());
                    let admission = call.insert_up_to([key], LIMIT).expect("an answer");
                    (admission.admitted, admission.estimate)
                };
                operations.iter().map(at_once).collect()
            };
            same(spec, asked, at_once);
        }
        check(&Counting::capacity(20).fpr(0.1), &operations);
        check(&DynamicCount::capacity(20).fpr(0.1), &operations);
        check(&Decaying::capacity(20, 0.7, Duration::from_secs(30)).fpr(0.1), &operations);
    }

    #[test]
    fn entries_equal_single_calls(operations in operations()) {
        fn check<K: Spec + Clone>(
            spec: &K,
            operations: &[(u8, u64, u32)],
            entry: impl Fn(u8, u64, u32) -> Entry<[u8; 1], K>,
            single: impl Fn(&Filter<K>, u8, u64, u32) -> Checked,
        ) {
            let one_by_one = |filter: &Filter<K>| -> Vec<_> {
                operations.iter().map(|&(key, second, weight)| single(filter, key, second, weight))
                    .collect()
            };
            let entries: Vec<_> = operations.iter()
                .map(|&(key, second, weight)| entry(key, second, weight)).collect();
            let checked = |filter: &Filter<K>| {
                let mut answers = Vec::new();
                filter.check_and_insert_entries(&entries, &mut answers).expect("answers");
                answers
            };
            same(spec, one_by_one, checked);
            let count = |answers: &[Checked]| {
                answers.iter().filter(|checked| !checked.is_too_late()).count()
            };
            let inserted = |filter: &Filter<K>| filter.insert_entries(&entries).expect("inserts");
            // A key too late to insert may still be present, which a plain insert does not check.
            let late = |filter: &Filter<K>| {
                let refused = filter.stat().expect("figures").refused as usize;
                (operations.len() - refused, ())
            };
            let [first, second] = [made(spec.clone()), made(spec.clone())];
            let answers = checked(&first);
            assert_eq!(inserted(&second), late(&second).0);
            assert!(count(&answers) >= late(&first).0);
            assert_eq!(first.digest().expect("one"), second.digest().expect("other"));
        }
        check(
            &TimeLimited::window(Duration::from_secs(60)),
            &operations,
            |key, second, _| Entry::new([key]).time(at(second)),
            |filter, key, second, _| {
                filter.call().time(at(second)).check_and_insert([key]).expect("an answer")
            },
        );
        check(
            &Decaying::capacity(20, 0.7, Duration::from_secs(30)).fpr(0.1),
            &operations,
            |key, second, times| Entry::new([key]).time(at(second)).times(times.into()),
            |filter, key, second, times| {
                let call = filter.call().time(at(second)).times(times.into());
                call.check_and_insert([key]).expect("an answer")
            },
        );
        check(
            &Importance2c::cells(1000, 7, 4, 20).importance_max(100.0),
            &operations,
            |key, _, weight| Entry::new([key]).importance(f64::from(weight) * 20.0),
            |filter, key, _, weight| {
                let call = filter.call().importance(f64::from(weight) * 20.0);
                call.check_and_insert([key]).expect("an answer")
            },
        );
    }
}

#[test]
fn an_entry_inherits_the_settings_of_its_call() {
    let filter = made(Decaying::capacity(100, 0.5, Duration::from_secs(60)));
    let call = filter.call().time(at(100)).times(3);
    call.insert_entries(&[Entry::new("a"), Entry::new("b").times(5), "c".into()]).expect("it");
    call.insert_entries(&[Entry::new("a").time(at(160))]).expect("an insert");
    let counts = filter.call().time(at(160)).estimate_all(&["a", "b", "c", "d"]);
    assert_eq!(counts.expect("estimates"), [4.5, 2.5, 1.5, 0.0].map(exactly));
    let any = made(Any::new("bloom", Parameters::new().with("capacity", 100)));
    let error = any.insert_entries(&[Entry::new("a").weight(2.0)]).expect_err("no weights");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(!any.contains("a").expect("an answer"));
}

#[test]
fn bulk_lookups_equal_single_lookups_for_filters_and_readers() {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    let spec = Decaying::capacity(500, 0.5, Duration::from_secs(60)).fpr(0.3);
    let filter = Filter::create(&dir, spec, options()).expect("a filter");
    let keys: Vec<_> = (0..1000_u64).map(u64::to_le_bytes).collect();
    filter.call().time(at(0)).insert_all(&keys[..500]).expect("inserts");
    let reader: Reader<Decaying> = Reader::open(&dir, options()).expect("a reader");
    let check = || {
        for second in [0, 60, 600] {
            let (call, look) = (filter.call().time(at(second)), reader.call().time(at(second)));
            let one_by_one = |key: &[u8; 8]| {
                let contained = look.contains(key).expect("an answer");
                (contained, look.estimate(key).expect("an estimate"))
            };
            let (contained, estimates): (Vec<_>, Vec<_>) = keys.iter().map(one_by_one).unzip();
            assert_eq!(look.contains_all(&keys).expect("answers"), contained);
            assert_eq!(look.estimate_all(&keys).expect("estimates"), estimates);
            if let Ok(answers) = call.contains_all(&keys) {
                assert_eq!(answers, contained);
                assert_eq!(call.estimate_all(&keys).expect("estimates"), estimates);
            }
        }
        let now = (reader.contains_all(&keys), reader.estimate_all(&keys));
        assert_eq!((now.0.expect("answers").len(), now.1.expect("estimates").len()), (1000, 1000));
    };
    check();
    filter.close().expect("a clean end");
    // From a state recovered by the reader alone.
    check();
    assert!(reader.contains_all::<&str>(&[]).expect("no answers").is_empty());
    assert_eq!((reader.path(), filter.path()), (&*dir, &*dir));
}

#[test]
fn the_bytes_of_a_number_are_a_key_whose_bits_need_not_be_uniform() {
    for function in [KeyHash::Fast, KeyHash::Keyed] {
        let options = options().key_hash(function);
        let home = TempDir::new().expect("a directory");
        let dir = home.path().join("filter");
        // Consecutive numbers instead of hashes.
        let spec = Bloom::capacity(20_000).fpr(0.01);
        let filter = Filter::create(&dir, spec, options.clone()).expect("a filter");
        for hash in 0..10_000_u64 {
            assert!(filter.insert(hash.to_le_bytes()).expect("an insert"));
            assert!(filter.contains(hash.to_le_bytes()).expect("an answer"));
        }
        for hash in 10_000..20_000_u64 {
            filter.check_and_insert(hash.to_le_bytes()).expect("an insert");
            assert!(filter.check_and_insert(hash.to_le_bytes()).expect("a check").is_present());
        }
        let reader: Reader = Reader::open(&dir, options).expect("a reader");
        let mut wrong = 0;
        for hash in 20_000..120_000_u64 {
            let found = filter.contains(hash.to_le_bytes()).expect("an answer");
            assert_eq!(reader.contains(hash.to_le_bytes()).expect("an answer"), found);
            wrong += u32::from(found);
        }
        // 0.01 of 100,000 is 1000, with a standard deviation of 32; blocks add some per cent.
        assert!((500..1500).contains(&wrong), "{wrong} of 100,000 with {function}");
    }
}

#[test]
fn a_handle_by_name_becomes_one_of_its_kind_and_no_other() {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    let created = Filter::create(&dir, DynamicCount::capacity(100), options()).expect("a filter");
    created.insert("a").expect("an insert");
    let any: Filter = created.into_any();
    let any = any.typed::<Counting>().expect_err("another kind");
    let any = any.typed::<Bloom>().expect_err("another kind");
    let typed: Filter<DynamicCount> = any.typed().expect("its kind");
    assert_eq!(typed.insert_and_estimate("a").expect("an insert"), exactly(2.0));
    let reader: Reader = Reader::open(&dir, options()).expect("a reader");
    let reader = reader.typed::<Counting>().expect_err("another kind");
    let reader: Reader<DynamicCount> = reader.typed().expect("its kind");
    assert_eq!(reader.estimate("a").expect("an estimate"), exactly(2.0));
    assert_eq!(reader.into_any().kind(), "dynamic-count");
    typed.close().expect("a clean end");
}
