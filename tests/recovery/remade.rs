//! Filters made from the operations of others: with other parameters, of several, of a share.

use ebbtide::history::{Change, History, Share, remake};
use ebbtide::{
    AgePartitioned, Any, Bloom, Clock, Code, Counting, Durability, Filter, Fingerprint, Keep,
    KeyHash, ManualClock, Options, Parameters, TimeLimited, Timestamp,
};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START: u64 = 1_700_000_000_000_000;

/// The source of times.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Times {
    WithKeys,
    Clock,
}

fn options(clock: Clock) -> Options {
    Options::new()
        .hash_seed(11)
        .stripes(2)
        .segment_bytes(8 << 10)
        .checkpoint_bytes(32 << 10)
        .durability(Durability::Never)
        .background(false)
        .clock(clock)
        .keep_log(Keep::Bytes(1 << 40))
}

/// One machine's filter of several, in a directory.
struct Machine {
    filter: Filter,
    clock: ManualClock,
    times: Times,
}

impl Machine {
    fn new(dir: &Path, spec: Any, times: Times) -> Self {
        let clock = ManualClock::new(Timestamp::from_unix_micros(START));
        let used = match times {
            Times::WithKeys => Clock::stream(),
            Times::Clock => Clock::from(clock.clone()),
        };
        let filter = Filter::create(dir, spec, options(used)).expect("a filter");
        Self { filter, clock, times }
    }

    fn operate(&self, sample: &Sample, number: u64, time: u64) {
        let time = Timestamp::from_unix_micros(time);
        self.clock.set(time);
        let call = match self.times {
            Times::WithKeys => self.filter.call().time(time),
            Times::Clock => self.filter.call(),
        };
        sample.operate(call, number, |number| format!("key {}", number % 300)).expect("done");
        if number % 97 == 13 {
            self.filter.checkpoint().expect("a checkpoint");
        }
    }
}

fn with(sample: &Sample, name: &str, value: &str) -> Any {
    let pairs = sample.parameters.iter().filter(|(of, _)| *of != name);
    let all = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
    Any::new(sample.kind, all.with(name, value))
}

fn digest(dir: &Path) -> u128 {
    let filter: Filter = Filter::open(dir, Options::new().clock(Clock::stream())).expect("one");
    filter.digest().expect("a digest").value
}

fn directories(home: &Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|number| home.join(format!("machine {number}"))).collect()
}

#[test]
fn filters_of_several_machines_are_united_to_the_filter_of_the_whole_stream() {
    for (seed, sample) in SAMPLES.iter().enumerate() {
        for times in [Times::WithKeys, Times::Clock] {
            let home = tempfile::tempdir().expect("a directory");
            let dirs = directories(home.path(), 3);
            let (whole, united) = (home.path().join("whole"), home.path().join("united"));
            let machines = dirs.iter().map(|dir| Machine::new(dir, sample.spec(), times));
            let machines: Vec<_> = machines.collect();
            let all = Machine::new(&whole, sample.spec(), times);
            let (mut random, mut time) = (Random::new(seed as u64), START);
            for number in 0..scaled(1200) {
                // A removal is by the machine of its insert.
                if !sample.is_removal(number) {
                    time += 1 + random.below(2000);
                    random.below(1);
                }
                let at = (number / 2 * 7919 % 3) as usize;
                machines[at].operate(sample, number, time);
                all.operate(sample, number, time);
                time += 1;
            }
            drop((machines, all));
            let made = remake(&dirs, &united, sample.spec(), options(Clock::stream()), None);
            let made = made.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
            assert!(made.is_whole, "{}", sample.name);
            assert_eq!(made.operations, scaled(1200), "{}", sample.name);
            assert_eq!(digest(&united), digest(&whole), "{}, {times:?}", sample.name);
        }
    }
}

#[test]
fn a_filter_remade_with_other_parameters_is_one_that_had_them_from_the_beginning() {
    let other = |sample: &Sample| match sample.kind {
        "age-partitioned" | "fingerprint" | "time-limited" => ("fpr", "0.0001"),
        "bloom" | "counting" | "spectral" | "dynamic-count" => ("capacity", "900"),
        "timing" | "block-timing" => ("fpr", "0.002"),
        _ => ("", ""),
    };
    let mut tried = 0;
    for (seed, sample) in SAMPLES.iter().enumerate() {
        let (name, value) = other(sample);
        if name.is_empty() {
            continue;
        }
        tried += 1;
        let home = tempfile::tempdir().expect("a directory");
        let (dir, wanted, made) =
            (home.path().join("dir"), home.path().join("wanted"), home.path().join("made"));
        let spec = || with(sample, name, value);
        let before = Machine::new(&dir, sample.spec(), Times::WithKeys);
        let after = Machine::new(&wanted, spec(), Times::WithKeys);
        let (mut random, mut time) = (Random::new(seed as u64), START);
        for number in 0..scaled(1500) {
            time += random.below(3000);
            before.operate(sample, number, time);
            after.operate(sample, number, time);
        }
        // While it is open.
        remake(&[&dir], &made, spec(), options(Clock::stream()), None).expect("it is kept");
        let remade: Filter = Filter::open(&made, options(Clock::stream())).expect("a filter");
        for number in 0..300 {
            let key = format!("key {number}");
            let answers = [&after.filter, &remade].map(|of| of.contains(&key).expect("an answer"));
            assert_eq!(answers[0], answers[1], "{}: {key}", sample.name);
        }
        let digests = [&after.filter, &remade].map(|of| of.digest().expect("a digest").value);
        assert_eq!(digests[0], digests[1], "{}", sample.name);
    }
    assert!(tried > 8, "{tried}");
}

#[test]
fn another_kind_answers_as_it_would_have_from_the_beginning() {
    let home = tempfile::tempdir().expect("a directory");
    let [dir, wanted, made] = ["dir", "wanted", "made"].map(|name| home.path().join(name));
    let clock = ManualClock::new(Timestamp::from_unix_micros(START));
    let used = || options(Clock::from(clock.clone()));
    let before = Filter::create(&dir, AgePartitioned::last(500), used()).expect("a filter");
    let window = || TimeLimited::window(Duration::from_secs(60)).rate(50.0);
    let after = Filter::create(&wanted, window(), used()).expect("a filter");
    let mut random = Random::new(9);
    for _ in 0..4000 {
        clock.advance(Duration::from_millis(random.below(40)));
        let key = random.below(2000).to_le_bytes();
        before.insert(key).expect("an insert");
        after.insert(key).expect("an insert");
    }
    let shared = options(Clock::stream()).mode(0o640);
    remake(&[&dir], &made, window(), shared, None).expect("it is kept");
    let meta = std::fs::metadata(made.join("meta")).expect("it is there");
    assert_eq!(meta.permissions().mode() & 0o777, 0o640, "all settings hold");
    let made: Filter<TimeLimited> = Filter::open(&made, used()).expect("a filter");
    let present = (0..2000_u64).filter(|key| {
        let answers = [&after, &made].map(|of| of.contains(key.to_le_bytes()).expect("one"));
        assert_eq!(answers[0], answers[1], "{key}");
        answers[0]
    });
    assert!((900..1999).contains(&present.count()), "some are in the window, some are not");
}

#[test]
fn shares_have_each_key_once_and_united_again_they_are_the_filter() {
    const SHARES: u64 = 3;
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("dir");
    let spec = || Counting::capacity(3000).fpr(1e-4);
    let filter = Filter::create(&dir, spec(), options(Clock::stream())).expect("a filter");
    let key = |number: u64| number.to_le_bytes();
    for number in 0..2000_u64 {
        let call = filter.call().time(Timestamp::from_unix_micros(START + number));
        call.insert(key(number)).expect("an insert");
        if number % 5 == 4 {
            assert!(call.remove(key(number - 2)).expect("an answer"));
        }
    }
    let mut batch = filter.batch();
    batch.set_position(3, 77).expect("room");
    batch.commit().expect("a commit");
    let dirs: Vec<_> = (0..SHARES).map(|number| home.path().join(format!("{number}"))).collect();
    for (number, to) in (0..).zip(&dirs) {
        let share = Share { number, count: SHARES };
        let made = remake(&[&dir], to, spec(), options(Clock::stream()), Some(share));
        let operations = made.expect("it is kept").operations;
        assert!((600..1000).contains(&operations), "{operations}");
    }
    let parts = dirs.iter().map(|dir| Filter::<Counting>::open(dir, options(Clock::stream())));
    let parts: Vec<_> = parts.map(|part| part.expect("a filter")).collect();
    let mut wrong = 0;
    for number in 0..2000 {
        let own = Share::of(filter.key_hash(key(number)), SHARES) as usize;
        let estimate = |of: &Filter<Counting>| of.estimate(key(number)).expect("one");
        assert_eq!(estimate(&parts[own]), estimate(&filter), "{number}");
        let others = parts.iter().enumerate().filter(|(at, _)| *at != own);
        wrong += others.filter(|(_, of)| of.contains(key(number)).expect("one")).count();
    }
    // 4,000 questions at a rate of 1e-4 at most.
    assert!(wrong <= 5, "{wrong}");
    assert!(parts.iter().all(|part| part.position(3).expect("an answer") == Some(77)));
    drop(parts);
    let united = home.path().join("united");
    remake(&dirs, &united, spec(), options(Clock::stream()), None).expect("they are kept");
    let united: Filter<Counting> = Filter::open(&united, options(Clock::stream())).expect("one");
    let digests = [&filter, &united].map(|of| of.digest().expect("a digest").value);
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_clear_of_one_of_several_filters_removes_its_own_keys_only_and_no_positions() {
    let home = tempfile::tempdir().expect("a directory");
    let [a, b, united] = ["a", "b", "united"].map(|name| home.path().join(name));
    let spec = || AgePartitioned::last(1000);
    let [first, second] = [&a, &b].map(|dir| {
        let filter = Filter::create(dir, spec(), options(Clock::stream())).expect("a filter");
        let set = |source, position| {
            let mut batch = filter.batch();
            batch.insert(format!("batch {source}")).expect("room");
            batch.set_position(source, position).expect("room");
            batch.commit().expect("a commit");
        };
        set(3, 77);
        filter
    });
    second.insert("two").expect("an insert");
    first.insert("one").expect("an insert");
    first.clear().expect("a clear");
    first.insert("since").expect("an insert");
    let made = remake(&[&a, &b], &united, spec(), options(Clock::stream()), None).expect("kept");
    assert_eq!(made.operations, 3);
    let made: Filter<AgePartitioned> =
        Filter::open(&united, options(Clock::stream())).expect("a filter");
    let has = |key: &str| made.contains(key).expect("an answer");
    assert!(has("two") && has("batch 3") && has("since"));
    assert!(!has("one"));
    assert_eq!(made.position(3).expect("an answer"), Some(77));
}

#[test]
fn what_the_log_does_not_have_any_more_is_said_and_a_refusal_leaves_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let [dir, other, made] = ["dir", "other", "made"].map(|name| home.path().join(name));
    let unkept = || options(Clock::stream()).keep_log(Keep::Nothing);
    let filter = Filter::create(&dir, Bloom::capacity(5000), unkept()).expect("a filter");
    for number in 0..3000_u64 {
        filter.insert(number.to_le_bytes()).expect("an insert");
        if number % 500 == 0 {
            filter.checkpoint().expect("a checkpoint");
        }
    }
    let larger = || Bloom::capacity(9000);
    let found = remake(&[&dir], &made, larger(), options(Clock::stream()), None).expect("made");
    assert!(!found.is_whole && found.operations < 3000, "{found:?}");
    let exists = remake(&[&dir], &made, larger(), options(Clock::stream()), None);
    assert_eq!(exists.expect_err("it is there").code(), Code::Exists);
    let seeded = || options(Clock::stream()).hash_seed(12);
    drop(Filter::create(&other, Bloom::capacity(500), seeded()).expect("a filter"));
    let new = home.path().join("new");
    let differs = remake(&[&dir, &other], &new, larger(), options(Clock::stream()), None);
    assert_eq!(differs.expect_err("other hashes").code(), Code::Mismatch);
    for other in [options(Clock::stream()).key_hash(KeyHash::Keyed), seeded()] {
        let hashes = remake(&[&dir], &new, larger(), other, None);
        assert_eq!(hashes.expect_err("another hash").code(), Code::Mismatch);
    }
    let none: [&Path; 0] = [];
    assert!(remake(&none, &new, larger(), options(Clock::stream()), None).is_err());
    let share = Some(Share { number: 2, count: 2 });
    assert!(remake(&[&dir], &new, larger(), options(Clock::stream()), share).is_err());
    let missing = remake(&[&new], &new, larger(), options(Clock::stream()), None);
    assert_eq!(missing.expect_err("there is none").code(), Code::NotAFilter);
    let impossible = Fingerprint::last(0);
    assert!(remake(&[&dir], &new, impossible, options(Clock::stream()), None).is_err());
    let left = std::fs::read_dir(home.path()).expect("a directory");
    assert_eq!(left.count(), 3, "dir, other and made");
    // The hash of a key is that in the log.
    let history = History::open(&dir).expect("a filter").with_undurable();
    let last = history.last().expect("operations").expect("no error").operations[0].change;
    let hash = filter.key_hash(2999_u64.to_le_bytes());
    assert!(matches!(last, Change::Insert { hash: of, .. } if of == hash), "{last:?}");
}

#[test]
fn a_filter_that_another_process_is_making_is_left_alone() {
    let home = tempfile::tempdir().expect("a directory");
    let [dir, made] = ["dir", "made"].map(|name| home.path().join(name));
    let unfinished = home.path().join(".made.ebbtide-unfinished");
    let spec = || Bloom::capacity(500);
    let filter = Filter::create(&dir, spec(), options(Clock::stream())).expect("a filter");
    filter.insert("a").expect("an insert");
    let make = || remake(&[&dir], &made, spec(), options(Clock::stream()), None);
    fs::create_dir(&unfinished).expect("a directory");
    fs::write(unfinished.join("meta"), "partial").expect("a file");
    let held = File::open(&unfinished).expect("a directory");
    held.lock().expect("nobody has it");
    let error = make().expect_err("it is being made");
    assert_eq!(error.code(), Code::Locked, "{error}");
    assert!(error.to_string().contains(".made.ebbtide-unfinished"), "{error}");
    assert_eq!(fs::read(unfinished.join("meta")).expect("it is there"), b"partial");
    assert!(!made.exists());
    // Its process has died.
    drop(held);
    assert_eq!(make().expect("a filter").operations, 1);
    assert!(!unfinished.exists() && made.join("meta").exists());
    assert_eq!(make().expect_err("it is there").code(), Code::Exists);
    assert!(!unfinished.exists());
    let changes = History::open(&made).expect("a log").with_undurable();
    let changes: Vec<_> =
        changes.map(|commit| commit.expect("sound").operations[0].change).collect();
    assert!(matches!(changes[..], [Change::Insert { .. }]), "{changes:?}");
}
