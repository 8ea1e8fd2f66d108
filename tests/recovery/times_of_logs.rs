//! A filter that is made from a log, altered, remade or followed, has the times that the log has.

use crate::moments;
use ebbtide::history::{History, Unlogged, plan, remake};
use ebbtide::inspect::{Assembly, origin_on};
use ebbtide::media::{Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Claim, Clock, Code, Downtime, Filter, Keep, ManualClock, Options,
    Parameters, Reader, Standby, TimeLimited, Timestamp,
};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const START: Timestamp = Timestamp::from_unix_micros(1_700_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn options(clock: impl Into<Clock>) -> Options {
    let options = moments::options().keep_log(Keep::Bytes(1 << 40)).downtime(Downtime::Age);
    options.clock(clock.into())
}

fn memory() -> Arc<dyn Media> {
    Arc::new(Memory::new())
}

fn window(of: Duration) -> TimeLimited {
    TimeLimited::window(of)
}

fn has<K>(filter: &Filter<K>, key: &str) -> bool {
    filter.contains(key).expect("an answer")
}

fn digest<K>(filter: &Filter<K>) -> u128 {
    filter.digest().expect("a digest").value
}

/// A clock with the time that it shows.
struct Hands {
    clock: ManualClock,
    now: Timestamp,
}

impl Hands {
    fn new() -> Self {
        Self { clock: ManualClock::new(START), now: START }
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.now += time;
    }

    fn options(&self) -> Options {
        options(self.clock.clone())
    }
}

#[test]
fn keys_by_the_clock_keep_their_times_through_an_alteration_also_after_one_with_its_own() {
    let (media, mut hands) = (memory(), Hands::new());
    let filter = Filter::create_on(media, window(HOUR), hands.options()).expect("a filter");
    filter.insert("a").expect("an insert");
    hands.pass(SECOND);
    filter.call().time(hands.now).insert("b").expect("an insert");
    hands.pass(30 * MINUTE);
    filter.insert("c").expect("an insert");
    let filter = filter.into_any();
    filter.alter(window(20 * MINUTE), Unlogged::Refuse).expect("its log is kept");
    assert!(has(&filter, "c"), "it came just now");
    hands.pass(15 * MINUTE);
    assert!(has(&filter, "c"));
    hands.pass(25 * MINUTE);
    assert!(!has(&filter, "c"), "40 minutes old");
}

#[test]
fn a_batch_from_before_an_alteration_inserts_at_its_commit_by_the_clock_of_the_new_kind() {
    for asks in [false, true] {
        let (media, mut hands) = (memory(), Hands::new());
        let spec = AgePartitioned::last(1000);
        let filter = Filter::create_on(media.clone(), spec, hands.options()).expect("a filter");
        let filter = filter.into_any();
        let fill = |key: &str| {
            let mut batch = filter.batch();
            if asks {
                assert!(batch.check_and_insert(key).expect("an answer").is_new());
            } else {
                batch.insert(key).expect("room");
            }
            batch
        };
        filter.insert("alone").expect("an insert");
        // From a kind that only records the wall clock to one that the elapsed time moves,
        let mut batch = fill("a");
        hands.pass(MINUTE);
        filter.alter(window(HOUR), Unlogged::Refuse).expect("its log is kept");
        batch.commit().expect("nobody has inserted the key");
        assert_eq!(filter.clock_lead(), None, "{asks}");
        hands.pass(30 * MINUTE);
        assert!(has(&filter, "alone") && has(&filter, "a"), "{asks}");
        // and back.
        let mut batch = fill("b");
        hands.pass(MINUTE);
        filter.alter(AgePartitioned::last(1000), Unlogged::Refuse).expect("its log is kept");
        batch.commit().expect("nobody has inserted the key");
        assert!(["alone", "a", "b"].iter().all(|key| has(&filter, key)), "{asks}");
        let history = History::open_on(media).expect("a log").with_undurable();
        let operations = history.flat_map(|commit| commit.expect("it is kept").operations);
        let times: Vec<_> = operations.map(|operation| operation.time).collect();
        let after = |time: Duration| Some(START + time);
        assert_eq!(times, [after(Duration::ZERO), after(MINUTE), after(32 * MINUTE)], "{asks}");
    }
}

/// Does the same to several filters: inserts by the clock, and of keys whose own times are later or
/// earlier. Ends with one by the clock.
fn operate(filters: &[&Filter], hands: &mut Hands, random: &mut Random, operations: u64) {
    for _ in 0..operations {
        hands.pass(Duration::from_millis(random.below(20_000)));
        let (key, by) = (random.below(400), Duration::from_secs(random.below(300)));
        let given = match random.below(10) {
            0 => Some(hands.now + by),
            1 | 2 => Some(hands.now - by),
            _ => None,
        };
        let clears = random.below(150) == 0;
        for filter in filters {
            let call = filter.call();
            let call = given.map_or(call, |given| call.time(given));
            call.insert(key.to_le_bytes()).expect("an insert");
            if clears {
                filter.clear().expect("a clear");
            }
        }
    }
    for filter in filters {
        filter.insert("by the clock").expect("an insert");
    }
}

#[test]
fn what_is_made_of_clock_and_event_times_is_the_filter_that_had_its_parameters_from_the_beginning()
{
    let kind = |name, of: Duration| {
        let window = Parameters::new().with("window", of.as_micros());
        Any::new(name, window.with("rate", 0.1))
    };
    let kinds = ["time-limited", "fingerprint"];
    for seed in 0..scaled(12) {
        let home = tempfile::tempdir().expect("a directory");
        let [dir, twin, made] = ["dir", "twin", "made"].map(|name| home.path().join(name));
        let (mut hands, mut random) = (Hands::new(), Random::new(seed));
        let [before, after] = [random.below(2), random.below(2)].map(|at| kinds[at as usize]);
        let spec = || kind(after, 40 * MINUTE);
        let filter = Filter::create(&dir, kind(before, 2 * HOUR), hands.options());
        let filter = filter.expect("a filter");
        let wanted = Filter::create(&twin, spec(), hands.options()).expect("a filter");
        operate(&[&filter, &wanted], &mut hands, &mut random, 400);
        let without = options(Clock::stream());
        remake(&[&dir], &made, spec(), without.clone(), None).expect("it is kept");
        let remade: Filter = Filter::open(&made, without).expect("a filter");
        assert_eq!(digest(&remade), digest(&wanted), "{seed} remade");
        drop(remade);
        filter.alter(spec(), Unlogged::Refuse).expect("its log is kept");
        assert_eq!(digest(&filter), digest(&wanted), "{seed} altered");
        operate(&[&filter, &wanted], &mut hands, &mut random, 400);
        assert_eq!(digest(&filter), digest(&wanted), "{seed} altered, and used");
        // With the machine's clock, as at the next boot.
        let remade: Filter = Filter::open(&made, hands.options()).expect("a filter");
        hands.pass(2 * HOUR);
        assert!(!has(&remade, "by the clock"), "{seed}: time advances");
    }
}

#[test]
fn a_kind_without_time_becomes_one_with_it_and_a_clock_that_was_set_back_makes_no_key_late() {
    let (media, mut hands) = (memory(), Hands::new());
    let filter = Filter::create_on(media, AgePartitioned::last(1000), hands.options());
    let filter = filter.expect("a filter").into_any();
    filter.insert("before").expect("an insert");
    filter.call().time(hands.now + 10 * MINUTE).insert("ahead").expect("an insert");
    hands.clock.set_wall(START - 3 * HOUR);
    hands.pass(MINUTE);
    filter.insert("after").expect("an insert");
    let altered = filter.alter(window(HOUR), Unlogged::Refuse).expect("its log is kept");
    assert_eq!(altered.operations, 3);
    assert!(["before", "ahead", "after"].iter().all(|key| has(&filter, key)));
}

#[test]
fn an_alteration_sets_no_time_back_that_passed_without_keys() {
    for downtime in [Downtime::Freeze, Downtime::Age] {
        let (media, mut hands) = (memory(), Hands::new());
        let options = || hands.options().downtime(downtime);
        let filter = Filter::create_on(media, window(HOUR), options()).expect("a filter");
        filter.insert("k").expect("an insert");
        hands.pass(3 * HOUR);
        assert!(!has(&filter, "k"));
        let filter = filter.into_any();
        filter.alter(window(2 * HOUR), Unlogged::Refuse).expect("its log is kept");
        assert!(!has(&filter, "k"), "{downtime:?}: three hours old");
        filter.insert("l").expect("an insert");
        hands.pass(HOUR);
        filter.alter(window(3 * HOUR), Unlogged::Refuse).expect("its log is kept");
        assert!(has(&filter, "l"), "{downtime:?}");
        hands.pass(HOUR);
        assert!(has(&filter, "l"), "{downtime:?}");
        hands.pass(3 * HOUR);
        assert!(!has(&filter, "l"), "{downtime:?}: five hours old");
    }
}

/// Returns the time of a filter's first record.
fn first_time(dir: &Path) -> Timestamp {
    let mut history = History::open(dir).expect("a log").with_undurable();
    let commit = history.read().expect("it is sound").expect("a commit");
    commit.operations[0].time.expect("a time")
}

#[test]
fn log_that_begins_with_late_keys_does_not_have_the_window_of_the_keys_before_it() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let noon = START + 12 * HOUR;
    let unkept = options(Clock::stream()).keep_log(Keep::Nothing);
    let filter = Filter::create(&dir, window(2 * HOUR), unkept).expect("a filter").into_any();
    let insert = |time, name: &str, count: u64| {
        for number in 0..count {
            let call = filter.call().time(time);
            call.insert(format!("{name} {number}")).expect("an insert");
        }
    };
    insert(noon, "m", 300);
    let late = noon - 55 * MINUTE;
    for round in ["first", "second"] {
        insert(late, round, 400);
        filter.checkpoint().expect("a checkpoint");
    }
    insert(noon + 10 * MINUTE, "last", 1);
    assert_eq!(first_time(&dir), late, "the log begins with a late key");
    let wide = || window(HOUR);
    assert!(!plan(&dir, wide()).expect("a plan").has_window);
    let error = filter.alter(wide(), Unlogged::Refuse).expect_err("m is ten minutes old");
    assert_eq!(error.code(), Code::NotKept, "{error}");
    assert!(has(&filter, "m 0"));
    // All keys of five minutes are there.
    let narrow = || window(5 * MINUTE);
    assert!(plan(&dir, narrow()).expect("a plan").has_window);
    filter.alter(narrow(), Unlogged::Refuse).expect("the window is there");
    assert!(has(&filter, "last 0"));
    // The state of the alteration says how late the keys before it were.
    assert!(!plan(&dir, wide()).expect("a plan").has_window);
}

#[test]
fn forgetting_sets_no_time_back() {
    let (media, noon) = (memory(), START + 12 * HOUR);
    let unkept = options(Clock::stream()).keep_log(Keep::Nothing);
    let filter = Filter::create_on(media, window(2 * HOUR), unkept).expect("a filter").into_any();
    filter.call().time(noon).insert("m").expect("an insert");
    for _ in 0..3 {
        for number in 0..400_u64 {
            let call = filter.call().time(noon - 90 * MINUTE);
            call.insert(number.to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
    }
    assert!(filter.contains(7_u64.to_le_bytes()).expect("an answer"));
    filter.alter(window(HOUR), Unlogged::Forget).expect("an alteration");
    assert_eq!(filter.stat().expect("figures").time, Some(noon));
    assert!(!filter.contains(7_u64.to_le_bytes()).expect("an answer"), "90 minutes old");
}

#[test]
fn forgetting_keeps_all_keys_in_the_log_of_a_kind_without_time_whose_clock_was_once_ahead() {
    let (media, hands) = (memory(), Hands::new());
    let unkept = hands.options().keep_log(Keep::Nothing);
    let filter = Filter::create_on(media, AgePartitioned::last(1000), unkept);
    let filter = filter.expect("a filter").into_any();
    hands.clock.set_wall(START + 24 * HOUR);
    filter.insert("ahead").expect("an insert");
    hands.clock.set_wall(START);
    for round in 0..3_u64 {
        for number in 0..400 {
            filter.insert((1000 * round + number).to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
    }
    let altered = filter.alter(window(HOUR), Unlogged::Forget).expect("an alteration");
    assert!(!altered.is_whole, "the key that was ahead is gone");
    let is_there = |number: &u64| filter.contains(number.to_le_bytes()).expect("an answer");
    assert_eq!((2000..2400).filter(is_there).count(), 400);
}

#[test]
fn a_filter_that_was_only_cleared_begins_its_clock_with_the_first_key_also_after_an_alteration() {
    let (media, hands) = (memory(), Hands::new());
    let filter = Filter::create_on(media, window(HOUR), hands.options()).expect("a filter");
    filter.clear_without_a_clock().expect("a clear");
    let filter = filter.into_any();
    filter.alter(window(20 * MINUTE), Unlogged::Refuse).expect("its log is kept");
    filter.insert("a").expect("an insert");
    assert_eq!(filter.stat().expect("figures").time, Some(START));
    filter.call().time(hands.now).insert("b").expect("an insert");
    assert!(has(&filter, "a") && has(&filter, "b"), "both came just now");
}

/// Makes a filter of the last hour, and closes it. The clock was `off` at its creation, as by the
/// function, and was set right while it was open.
fn make(dir: &Path, hands: &mut Hands, off: fn(Timestamp) -> Timestamp) {
    hands.clock.set_wall(off(hands.now));
    let filter = Filter::create(dir, window(HOUR), hands.options()).expect("a filter");
    filter.insert("before").expect("an insert");
    hands.clock.set_wall(hands.now);
    hands.pass(MINUTE);
    filter.insert("after").expect("an insert");
    filter.close().expect("a clean end");
}

#[test]
fn a_remade_filter_is_ahead_of_the_clock_or_behind_it_as_its_source() {
    let home = tempfile::tempdir().expect("a directory");
    for (name, off) in [
        ("behind", (|time| time - 24 * HOUR) as fn(Timestamp) -> Timestamp),
        ("ahead", |time| time + 24 * HOUR),
    ] {
        let [dir, made] = ["dir", "made"].map(|part| home.path().join(format!("{name} {part}")));
        let mut hands = Hands::new();
        make(&dir, &mut hands, off);
        let source: Filter = Filter::open(&dir, hands.options()).expect("a filter");
        let wanted = source.clock_lead();
        source.close().expect("a clean end");
        assert_eq!(wanted.is_some(), name == "ahead");
        remake(&[&dir], &made, window(HOUR), hands.options(), None).expect("it is kept");
        let remade: Filter = Filter::open(&made, hands.options()).expect("a filter");
        assert_eq!(remade.clock_lead(), wanted, "{name}");
        assert!(has(&remade, "before") && has(&remade, "after"), "{name}");
        hands.pass(30 * MINUTE);
        assert!(has(&remade, "before"), "{name}: 31 minutes old");
        hands.pass(HOUR);
        assert!(!has(&remade, "after"), "{name}: 90 minutes old");
    }
}

#[test]
fn a_union_is_as_far_from_the_clock_as_the_source_that_was_the_latest() {
    let home = tempfile::tempdir().expect("a directory");
    let [right, behind] = ["right", "behind"].map(|name| home.path().join(name));
    let mut hands = Hands::new();
    make(&right, &mut hands, |time| time);
    hands.pass(10 * HOUR);
    make(&behind, &mut hands, |time| time - 2 * HOUR);
    for (name, sources) in [("one", [&right, &behind]), ("other", [&behind, &right])] {
        let made = home.path().join(name);
        remake(&sources, &made, window(HOUR), hands.options(), None).expect("it is kept");
        let remade: Filter = Filter::open(&made, hands.options()).expect("a filter");
        assert!(has(&remade, "before") && has(&remade, "after"), "{name}: a minute old");
    }
}

#[test]
fn handles_of_a_remade_filter_have_one_time_of_leases() {
    let home = tempfile::tempdir().expect("a directory");
    let [dir, made] = ["dir", "made"].map(|name| home.path().join(name));
    let hands = Hands::new();
    let filter = Filter::create(&dir, window(3 * HOUR), hands.options()).expect("a filter");
    filter.insert("first").expect("an insert");
    remake(&[&dir], &made, window(2 * HOUR), hands.options(), None).expect("it is kept");
    let one: Filter = Filter::open(&made, hands.options()).expect("a filter");
    hands.clock.set_wall(START + HOUR);
    let other: Filter = Filter::open(&made, hands.options()).expect("a filter");
    let claimed = one.claim("k", MINUTE).expect("an answer");
    assert!(matches!(claimed, Claim::Yours(_)), "{claimed:?}");
    let again = other.claim("k", MINUTE).expect("an answer");
    assert!(matches!(again, Claim::InProgress { .. }), "{again:?}");
}

/// Returns options with a clock of another process, which counts from another moment.
fn elsewhere(wall: Timestamp) -> (ManualClock, Options) {
    let clock = ManualClock::new(wall);
    (clock.clone(), options(clock))
}

#[test]
fn a_handle_with_another_clock_ages_keys_also_if_it_was_opened_before_the_first_by_a_clock() {
    // Then both are set ahead.
    for step in [Duration::ZERO, 12 * HOUR] {
        let (media, mut hands) = (memory(), Hands::new());
        let filter = Filter::create_on(media.clone(), window(10 * MINUTE), hands.options());
        let filter = filter.expect("a filter").into_any();
        // The clock continues from there.
        filter.call().time(START - HOUR).insert("event").expect("an insert");
        let (clock, other) = elsewhere(START);
        let reader = Reader::<Any>::open_on(media.clone(), other.clone()).expect("a reader");
        let asking: Filter = Filter::open_on(media.clone(), other).expect("a filter");
        let know = |key: &str| {
            let by_clock = filter.contains(key).expect("an answer");
            let others = [reader.contains(key), asking.contains(key)];
            (by_clock, others.map(|answer| answer.expect("an answer")))
        };
        assert_eq!(know("event"), (true, [true; 2]), "{step:?}");
        filter.insert("by the clock").expect("an insert");
        assert_eq!(know("by the clock"), (true, [true; 2]), "{step:?}");
        hands.clock.set_wall(START + step);
        clock.set_wall(START + step);
        for (minutes, wanted) in [(5, true), (15, false)] {
            hands.pass(minutes * MINUTE);
            clock.advance(minutes * MINUTE);
            assert_eq!(know("by the clock"), (wanted, [wanted; 2]), "{step:?}, {minutes}");
        }
    }
}

#[test]
fn a_reader_with_another_clock_follows_keys_that_are_ahead() {
    let (media, mut hands) = (memory(), Hands::new());
    let filter = Filter::create_on(media.clone(), window(10 * MINUTE), hands.options());
    let filter = filter.expect("a filter");
    filter.insert("by the clock").expect("an insert");
    let (clock, other) = elsewhere(START);
    let reader = Reader::<Any>::open_on(media, other).expect("a reader");
    filter.call().time(START + 40 * MINUTE).insert("ahead").expect("an insert");
    filter.insert("after it").expect("an insert");
    let know = |key: &str| {
        [filter.contains(key), reader.contains(key)].map(|answer| answer.expect("an answer"))
    };
    assert_eq!(know("after it"), [true; 2]);
    hands.pass(15 * MINUTE);
    clock.advance(15 * MINUTE);
    assert_eq!(know("after it"), [false; 2]);
}

#[test]
fn the_times_of_leases_do_not_move_a_remade_filter() {
    let home = tempfile::tempdir().expect("a directory");
    let [dir, made] = ["dir", "made"].map(|name| home.path().join(name));
    let mut hands = Hands::new();
    let filter = Filter::create(&dir, window(3 * HOUR), hands.options()).expect("a filter");
    // Leases have the time of the creation, keys that of the first one.
    hands.clock.set_wall(START + HOUR);
    filter.insert("first").expect("an insert");
    for number in 0..10_u64 {
        hands.pass(SECOND);
        let Ok(Claim::Yours(lease)) = filter.claim(number.to_le_bytes(), MINUTE) else {
            panic!("nobody has it")
        };
        lease.confirm().expect("it is held");
    }
    remake(&[&dir], &made, window(2 * HOUR), options(Clock::stream()), None).expect("it is kept");
    let remade: Filter = Filter::open(&made, hands.options()).expect("a filter");
    assert!(has(&remade, "first"), "ten seconds old");
    hands.pass(HOUR);
    assert!(has(&remade, "first"));
    hands.pass(3 * HOUR);
    assert!(!has(&remade, "first"));
}

#[test]
fn late_keys_do_not_move_a_remade_filter() {
    let home = tempfile::tempdir().expect("a directory");
    let [dir, made] = ["dir", "made"].map(|name| home.path().join(name));
    let mut hands = Hands::new();
    let filter = Filter::create(&dir, window(3 * HOUR), hands.options()).expect("a filter");
    filter.insert("first").expect("an insert");
    for number in 0..20_u64 {
        hands.pass(SECOND);
        let late = filter.call().time(hands.now - 10 * MINUTE);
        late.insert(number.to_le_bytes()).expect("an insert");
        filter.insert((100 + number).to_le_bytes()).expect("an insert");
    }
    remake(&[&dir], &made, window(2 * HOUR), options(Clock::stream()), None).expect("it is kept");
    let remade: Filter = Filter::open(&made, hands.options()).expect("a filter");
    assert!(has(&remade, "first"), "20 seconds old");
}

/// A filter, and a copy that follows it from the beginning.
struct Followed {
    filter: Filter,
    history: History,
    standby: Standby,
    hands: Hands,
}

impl Followed {
    fn new(downtime: Downtime) -> Self {
        let (media, copy, hands) = (memory(), memory(), Hands::new());
        let options = || hands.options().downtime(downtime);
        let filter = Filter::create_on(media.clone(), window(MINUTE), options());
        let origin = origin_on(&*media).expect("a filter");
        let assembly = Assembly::begin_on(copy.clone(), &origin.meta, 1).expect("a directory");
        assembly.finish().expect("an empty copy");
        let standby = Standby::open_on(copy, options()).expect("a copy");
        let history = History::open_on(media).expect("a log").with_undurable();
        Self { filter: filter.expect("a filter").into_any(), history, standby, hands }
    }

    fn follow(&mut self) {
        while let Some(piece) = self.history.read_piece().expect("a log") {
            self.standby.apply(&piece).expect("it follows");
        }
    }

    /// Checks that both know a key, or that neither does.
    #[track_caller]
    fn assert_knows(&self, key: &str, wanted: bool) {
        let copied = self.standby.ask(|reader| reader.contains(key)).expect("an answer");
        assert_eq!((has(&self.filter, key), copied), (wanted, wanted), "{key}");
    }
}

#[test]
fn a_copy_that_was_empty_at_first_ages_as_its_source_also_when_that_is_idle() {
    let mut both = Followed::new(Downtime::Age);
    both.filter.insert("k").expect("an insert");
    both.follow();
    both.assert_knows("k", true);
    both.hands.pass(120 * SECOND);
    both.assert_knows("k", false);
}

#[test]
fn a_copy_ages_from_the_first_key_by_the_clock_and_with_keys_that_are_ahead() {
    let mut both = Followed::new(Downtime::Age);
    both.filter.call().time(both.hands.now).insert("event").expect("an insert");
    both.follow();
    both.hands.pass(120 * SECOND);
    both.assert_knows("event", true);
    both.filter.insert("by the clock").expect("an insert");
    // The last one has a time of its own again, also within one piece.
    let ahead = both.hands.now + 10 * MINUTE;
    both.filter.call().time(ahead).insert("ahead").expect("an insert");
    both.follow();
    both.assert_knows("ahead", true);
    both.filter.insert("after it").expect("an insert");
    both.follow();
    both.hands.pass(30 * SECOND);
    both.assert_knows("after it", true);
    both.hands.pass(90 * SECOND);
    both.assert_knows("ahead", false);
    both.assert_knows("after it", false);
}

#[test]
fn a_copy_of_a_filter_that_stands_still_while_closed_is_as_of_its_last_record() {
    let mut both = Followed::new(Downtime::Freeze);
    both.filter.insert("k").expect("an insert");
    both.follow();
    both.hands.pass(120 * SECOND);
    assert!(both.standby.ask(|reader| reader.contains("k")).expect("an answer"));
    both.filter.insert("l").expect("an insert");
    both.follow();
    both.assert_knows("k", false);
}
