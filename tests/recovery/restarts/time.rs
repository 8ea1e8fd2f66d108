//! Time across restarts: only records advance it, it never decreases, and an outage counts or not
//! as set for the filter.

use super::{digest, directory, kinds, names, options};
use ebbtide::media::Memory;
use ebbtide::{Clock, Downtime, Error, Filter, ManualClock, TimeLimited, Timestamp};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn an_outage_ages_keys_or_not_as_set_for_the_filter() {
    for (downtime, outage, there) in [
        (Downtime::Age, 11, false),
        (Downtime::Age, 5, true),
        (Downtime::Freeze, 11, true),
        (Downtime::Freeze, 100_000, true),
    ] {
        let home = directory();
        let dir = home.path().join("f");
        let hand = ManualClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
        let settings = || options().clock(Clock::from(hand.clone())).downtime(downtime);
        let spec = TimeLimited::window(Duration::from_secs(10));
        let filter = Filter::create(&dir, spec, settings()).expect("a filter");
        for _ in 0..30 {
            filter.insert("key").expect("an insert");
            hand.advance(Duration::from_millis(100));
        }
        filter.insert("key").expect("an insert");
        filter.close().expect("a clean close");
        hand.advance(Duration::from_secs(outage));
        let filter: Filter<TimeLimited> = Filter::open(&dir, settings()).expect("it opens");
        assert_eq!(filter.contains("key").expect("a query"), there, "{downtime:?}, {outage} s");
        // While the filter is open, time advances for either setting.
        filter.insert("another").expect("an insert");
        hand.advance(Duration::from_secs(12));
        filter.insert("a third").expect("an insert");
        assert!(!filter.contains("key").expect("a query"), "{downtime:?}, {outage} s");
    }
}

#[test]
fn time_does_not_decrease_across_a_restart() {
    for downtime in [Downtime::Age, Downtime::Freeze] {
        let home = directory();
        let dir = home.path().join("f");
        let hand = ManualClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
        let settings = || options().clock(Clock::from(hand.clone())).downtime(downtime);
        let spec = TimeLimited::window(Duration::from_secs(10));
        let filter = Filter::create(&dir, spec, settings()).expect("a filter");
        filter.insert("key").expect("an insert");
        let before = filter.stat().expect("a stat").time;
        filter.close().expect("a clean close");
        hand.set(Timestamp::from_unix_millis(1_600_000_000_000));
        let filter: Filter<TimeLimited> = Filter::open(&dir, settings()).expect("it opens");
        assert!(filter.contains("key").expect("a query"));
        assert!(filter.insert("another").expect("an insert"), "{downtime:?}: not too late");
        assert_eq!(filter.stat().expect("a stat").time, before, "{downtime:?}");
        hand.advance(Duration::from_secs(12));
        filter.insert("a third").expect("an insert");
        assert!(!filter.contains("key").expect("a query"), "{downtime:?}: it continues from there");
    }
}

#[test]
fn only_records_advance_time() {
    let home = directory();
    let dir = home.path().join("f");
    let hand = ManualClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
    let settings = || options().clock(Clock::from(hand.clone()));
    let spec = TimeLimited::window(Duration::from_secs(10));
    let filter = Filter::create(&dir, spec.clone(), settings()).expect("a filter");
    let witness = Filter::create_on(Arc::new(Memory::new()), spec, settings()).expect("a filter");
    let same = |filter: &Filter<TimeLimited>| {
        let [one, other] = [filter, &witness].map(|filter| filter.digest().expect("a digest"));
        assert_eq!((one.value, one.lsn, one.inserts), (other.value, other.lsn, other.inserts));
    };
    hand.advance(Duration::from_secs(1000));
    same(&filter);
    for filter in [&filter, &witness] {
        filter.insert("key").expect("an insert");
    }
    for seconds in [1, 100, 10_000] {
        hand.advance(Duration::from_secs(seconds));
        let far = Timestamp::from_unix_millis(1_900_000_000_000);
        filter.contains("key").expect("a query");
        filter.call().time(far).contains("key").expect("a query");
        filter.call().time(far).age("key").expect("a query");
        filter.stat().expect("a stat");
        filter.checkpoint().expect("a checkpoint");
        assert_eq!(
            filter.digest().expect("a digest").value,
            witness.digest().expect("a digest").value
        );
    }
    filter.close().expect("a clean close");
    let filter: Filter<TimeLimited> = Filter::open(&dir, settings()).expect("it opens");
    assert_eq!(filter.digest().expect("a digest").value, witness.digest().expect("a digest").value);
}

#[test]
fn a_time_too_far_ahead_is_refused_and_changes_nothing() {
    let hand = ManualClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
    let settings = options().clock(Clock::from(hand.clone())).max_lead(Duration::from_secs(60));
    for spec in kinds() {
        let filter =
            Filter::create_on(Arc::new(Memory::new()), spec, settings.clone()).expect("a filter");
        filter.insert("key").expect("an insert");
        let before = digest(&filter);
        let limit = 1_700_000_060_000_000;
        let ahead = filter.call().time(Timestamp::from_unix_micros(limit + 1));
        let refused = [
            ahead.insert("ahead").map(|_| ()),
            ahead.check_and_insert("ahead").map(|_| ()),
            ahead.insert_all(&["ahead", "too"]).map(|_| ()),
            filter.call().time(Timestamp::from_unix_micros(u64::MAX)).insert("ahead").map(|_| ()),
        ];
        for result in refused {
            let Err(Error::TimeAhead { limit: found, .. }) = result else {
                panic!("{result:?}");
            };
            assert_eq!(found, limit);
        }
        assert_eq!(digest(&filter), before);
        assert!(!filter.contains("ahead").expect("a query"));
        let just = filter.call().time(Timestamp::from_unix_micros(limit));
        assert!(just.insert("in time").expect("at the limit"));
    }
}

#[test]
fn late_keys_do_not_stop_the_clock_across_a_restart() {
    let home = directory();
    let dir = home.path().join("f");
    let now = 1_700_000_000_000;
    let hand = ManualClock::new(Timestamp::from_unix_millis(now));
    let settings = || options().clock(Clock::from(hand.clone()));
    let spec = TimeLimited::window(Duration::from_secs(10)).fpr(0.01).rate(1.0);
    let filter = Filter::create(&dir, spec.clone(), settings()).expect("a filter");
    let witness = Filter::create_on(Arc::new(Memory::new()), spec, settings()).expect("a filter");
    let late = Timestamp::from_unix_millis(now - 10);
    for filter in [&filter, &witness] {
        // Generations fill, and some of the steps occur with a late key.
        for key in 0..3000_u64 {
            filter.insert(key.to_le_bytes()).expect("an insert");
            let call = filter.call().time(late);
            call.insert((key + 10_000).to_le_bytes()).expect("an insert");
        }
    }
    drop(filter);
    let filter: Filter<TimeLimited> = Filter::open(&dir, settings()).expect("it opens");
    hand.advance(Duration::from_secs(3));
    for filter in [&filter, &witness] {
        filter.insert("key").expect("an insert");
    }
    let [one, other] = [&filter, &witness].map(|filter| filter.stat().expect("a stat").time);
    assert_eq!(one, other);
    let [one, other] = [&filter, &witness].map(|filter| filter.digest().expect("a digest").value);
    assert_eq!(one, other);
}

/// The event before a late key has the filter's time. Were that taken for one of a stream, no clock
/// would move the filter after a restart without its image.
#[test]
fn after_a_restart_keys_expire_by_the_clock_although_a_late_key_made_the_last_step() {
    let (home, now) = (directory(), 1_700_000_000_000);
    let hand = ManualClock::new(Timestamp::from_unix_millis(now));
    let settings = || options().clock(Clock::from(hand.clone()));
    let spec = TimeLimited::window(Duration::from_secs(10)).fpr(0.01).rate(1.0);
    let filter = Filter::create(home.path().join("f"), spec, settings()).expect("a filter");
    filter.insert("key").expect("an insert");
    let step = || filter.stat().expect("a stat").step;
    let (late, before) = (Timestamp::from_unix_millis(now - 10), step());
    for key in 0..3000_u64 {
        filter.call().time(late).insert(key.to_le_bytes()).expect("an insert");
    }
    assert!(step() > before, "late keys alone have made steps");
    filter.sync().expect("a sync");
    let copy = home.path().join("copy");
    fs::create_dir(&copy).expect("a directory");
    for name in names(&home.path().join("f"), "") {
        if name == "meta" || name.starts_with("wal-") || name.starts_with("snap-") {
            fs::copy(home.path().join("f").join(&name), copy.join(&name)).expect("a copy");
        }
    }
    let filter: Filter<TimeLimited> = Filter::open(&copy, settings()).expect("it opens");
    assert!(filter.contains("key").expect("an answer"));
    hand.advance(Duration::from_secs(30));
    assert!(!filter.contains("key").expect("an answer"), "three windows later");
}

#[test]
fn only_a_filter_advanced_by_a_clock_records_heartbeats() {
    let home = directory();
    let settings = || options().downtime(Downtime::Freeze).background(true);
    let create = |name: &str| {
        let spec = TimeLimited::window(Duration::from_secs(10));
        Filter::create(home.path().join(name), spec, settings()).expect("a filter")
    };
    let (fresh, fed, moved) = (create("fresh"), create("fed"), create("moved"));
    let time = Timestamp::from_unix_millis(1_600_000_000_000);
    fed.call().time(time).insert("key").expect("an insert");
    let before = [&fresh, &fed].map(|filter| filter.digest().expect("a digest"));
    moved.insert("key").expect("an insert");
    // Two heartbeats of the filter opened last: by then the others have had one.
    for _ in 0..2 {
        let (lsn, began) = (moved.stat().expect("a stat").lsn, Instant::now());
        while moved.stat().expect("a stat").lsn == lsn {
            assert!(began.elapsed() < Duration::from_secs(60), "no heartbeat");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!([&fresh, &fed].map(|filter| filter.digest().expect("a digest")), before);
    assert_eq!(fresh.stat().expect("a stat").time, None, "nothing has happened yet");
    assert_eq!(fed.stat().expect("a stat").time, Some(time), "only keys move it");
}
