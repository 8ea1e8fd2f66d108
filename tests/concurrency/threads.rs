//! Many threads on one handle: their answers equal those of some order of the operations, without
//! false negatives.

use crate::faulty::Faulty;
use ebbtide::media::{Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Bloom, Checked, Clock, Durability, Error, Filter, ManualClock, Options,
    Parameters, TimeLimited, Timestamp,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

const THREADS: u64 = 4;

fn options() -> Options {
    Options::new()
        .hash_seed(99)
        .stripes(4)
        .block_bytes(2048)
        .segment_bytes(16 << 10)
        .checkpoint_bytes(64 << 10)
        .durability(Durability::Interval(Duration::from_millis(5)))
}

/// Kinds with a window that the test does not leave, and with negligible false-positive rates.
fn kinds() -> [Any; 5] {
    let parameters = || Parameters::new().with("fpr", 1e-7);
    [
        Any::new("bloom", parameters().with("capacity", 20_000)),
        Any::new("age-partitioned", parameters().with("window-items", 40_000)),
        Any::new("time-limited", parameters().with("window", 3_600_000_000_u64)),
        Any::new("double-buffering", parameters().with("window-items", 40_000)),
        Any::new("two-buffer", parameters().with("window-items", 40_000)),
    ]
}

/// Keys that threads missed: a panic in one thread would leave the others waiting at a barrier.
#[derive(Default)]
struct Missed(Mutex<Vec<String>>);

impl Missed {
    fn unless(&self, there: bool, what: impl FnOnce() -> String) {
        if !there {
            self.0.lock().expect("no thread panics here").push(what());
        }
    }

    fn check(self) {
        let missed = self.0.into_inner().expect("no thread panicked");
        assert!(missed.is_empty(), "{} missed, first {:?}", missed.len(), missed.first());
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn of_many_threads_with_the_same_new_key_exactly_one_receives_new() {
    const KEYS: u64 = 2000;
    for spec in kinds() {
        let home = directory();
        let filter =
            Filter::create(home.path().join("f"), spec.clone(), options()).expect("a filter");
        let counts: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    for (key, count) in counts.iter().enumerate() {
                        if filter.check_and_insert(key.to_le_bytes()).expect("an answer")
                            == Checked::New
                        {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        for (key, count) in counts.iter().enumerate() {
            assert_eq!(count.load(Ordering::Relaxed), 1, "{spec:?}, key {key}");
        }
        let stat = filter.stat().expect("a stat");
        assert_eq!(stat.inserts, KEYS * THREADS, "{spec:?}: every check inserts");
    }
}

#[test]
fn keys_in_the_window_are_found_while_shifts_checkpoints_and_inserts_run() {
    // A key stays for at least 3000 inserts. The test looks up each writer's last 500 of about 1500
    // inserts by all writers. A barrier bounds how far the other writers run ahead.
    const LAST: u64 = 500;
    let home = directory();
    let spec = AgePartitioned::last(3000).fpr(0.01);
    let filter = Filter::create(home.path().join("f"), spec, options()).expect("a filter");
    let (writers, over) = (3, AtomicBool::new(false));
    let returned: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let key = |writer: u64, number: u64| (number << 8 | writer).to_le_bytes();
    let missed = Missed::default();
    let barrier = Barrier::new(writers as usize + 1);
    std::thread::scope(|scope| {
        let (filter, returned, barrier, over) = (&filter, &returned, &barrier, &over);
        let missed = &missed;
        for writer in 0..writers {
            scope.spawn(move || {
                for round in 0..40 {
                    for number in round * LAST..(round + 1) * LAST {
                        filter.insert(key(writer, number)).expect("an insert");
                        returned[writer as usize].store(number + 1, Ordering::Release);
                    }
                    barrier.wait();
                }
            });
        }
        scope.spawn(move || {
            for round in 0..40 {
                // At most one round of all writers lies behind these keys, and one more may run.
                for number in (round * LAST).saturating_sub(LAST)..round * LAST {
                    for writer in 0..writers {
                        let there = filter.contains(key(writer, number)).expect("a query");
                        missed.unless(there, || {
                            format!("key {number} of writer {writer} in round {round}")
                        });
                        let done = returned[writer as usize].load(Ordering::Acquire);
                        if let Some(latest) = done.checked_sub(1) {
                            let there = filter.contains(key(writer, latest)).expect("a query");
                            missed.unless(there, || {
                                format!("the latest key {latest} of writer {writer}")
                            });
                        }
                    }
                }
                barrier.wait();
            }
            over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                filter.checkpoint().expect("a checkpoint");
            }
        });
    });
    missed.check();
    let stat = filter.stat().expect("a stat");
    assert!(stat.step > Some(10), "too few shifts during the test: {stat:?}");
    assert_eq!(stat.inserts, 40 * LAST * writers);
}

#[test]
fn keys_inserted_concurrently_after_a_pause_are_all_present() {
    let home = directory();
    let hand = ManualClock::new(Timestamp::from_unix_millis(1_000_000));
    let spec = TimeLimited::window(Duration::from_secs(10)).fpr(0.001);
    let settings = options().clock(Clock::from(hand.clone())).background(false);
    let filter = Filter::create(home.path().join("f"), spec, settings).expect("a filter");
    let missed = Missed::default();
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (filter, barrier, hand, missed) = (&filter, &barrier, &hand, &missed);
            scope.spawn(move || {
                for round in 0..5000_u64 {
                    if barrier.wait().is_leader() {
                        hand.advance(Duration::from_secs(25));
                    }
                    barrier.wait();
                    // All threads find that a step is due, and one of them takes it.
                    let key = (round << 8 | thread).to_le_bytes();
                    filter.insert(key).expect("an insert");
                    missed.unless(filter.contains(key).expect("a query"), || {
                        format!("round {round}, thread {thread}")
                    });
                }
            });
        }
    });
    missed.check();
}

#[test]
fn keys_of_the_window_are_found_while_banks_open_and_close() {
    let home = directory();
    let hand = ManualClock::new(Timestamp::from_unix_millis(1_000_000));
    let spec = TimeLimited::window(Duration::from_secs(1)).fpr(0.01).rate(10.0);
    let settings = options().clock(Clock::from(hand.clone()));
    let filter = Filter::create(home.path().join("f"), spec, settings).expect("a filter");
    let missed = Missed::default();
    let barrier = Barrier::new(THREADS as usize);
    let key = |thread: u64, number: u64| (number << 8 | thread).to_le_bytes();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (filter, barrier, hand, missed) = (&filter, &barrier, &hand, &missed);
            scope.spawn(move || {
                for round in 0..200_u64 {
                    // Bursts and lulls. Keys inserted a second ago or less must be present, so the
                    // last nine rounds.
                    let most = if round / 25 % 2 == 0 { 200 } else { 5 };
                    for number in 0..most {
                        filter.insert(key(thread, round * 1000 + number)).expect("an insert");
                    }
                    for number in 0..5 {
                        let other = (thread + 1) % THREADS;
                        for past in [round.saturating_sub(1), round.saturating_sub(9)] {
                            let whose = if past < round { other } else { thread };
                            let there = filter.contains(key(whose, past * 1000 + number));
                            missed.unless(there.expect("a query"), || {
                                format!("round {round}, key of {past}")
                            });
                        }
                    }
                    if barrier.wait().is_leader() {
                        hand.advance(Duration::from_millis(100));
                    }
                    barrier.wait();
                }
            });
        }
    });
    missed.check();
    let stat = filter.stat().expect("a stat");
    assert!(stat.step > Some(10), "{stat:?}");
}

#[test]
fn keys_are_found_while_their_block_is_repacked() {
    const KEYS: u64 = 20;
    // Counters have variable length and are packed: when one grows, those behind it move.
    let parameters = Parameters::new().with("capacity", 2000).with("fpr", 1e-7);
    let medium: Arc<dyn Media> = Arc::new(Memory::new());
    let settings = options().stripes(1).background(false).durability(Durability::Never);
    let filter = Filter::create_on(medium, Any::new("spectral", parameters), settings);
    let filter = filter.expect("a filter");
    (0..KEYS).for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
    let (done, missed) = (AtomicBool::new(false), Missed::default());
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for key in 0..KEYS {
                        let found = filter.contains(key.to_le_bytes()).expect("an answer");
                        missed.unless(found, || format!("{key}"));
                    }
                }
            });
        }
        for number in 0..20_000_u64 {
            // Some keys are frequent, so that their counters grow.
            filter.insert((KEYS + number % 97 * (number % 7)).to_le_bytes()).expect("an insert");
        }
        done.store(true, Ordering::Relaxed);
    });
    missed.check();
}

#[test]
fn the_digest_of_many_threads_equals_that_of_one() {
    const KEYS: u64 = 5000;
    // With one hash function the number of newly set bits, which is summed up, does not depend on
    // the order. The other kind has a generation longer than the test.
    let bloom = Parameters::new().with("capacity", 50_000).with("k", 1).with("bits", 1 << 20);
    let aged = Parameters::new().with("window-items", 400_000).with("k", 10).with("l", 10);
    for spec in [Any::new("bloom", bloom), Any::new("age-partitioned", aged)] {
        let home = directory();
        let settings = || options().clock(Clock::stream());
        let [one, many] = ["one", "many"].map(|name| {
            Filter::create(home.path().join(name), spec.clone(), settings()).expect("a filter")
        });
        for key in 0..KEYS * THREADS {
            one.insert(key.to_le_bytes()).expect("an insert");
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let many = &many;
                scope.spawn(move || {
                    for number in 0..KEYS {
                        many.insert((number * THREADS + thread).to_le_bytes()).expect("an insert");
                    }
                });
            }
        });
        let [one, many] = [one, many].map(|filter| filter.digest().expect("a digest"));
        assert_eq!((one.value, one.inserts), (many.value, many.inserts), "{spec:?}");
    }
}

#[test]
fn a_backup_beside_writers_contains_every_insert_that_returned_before() {
    for (at, spec) in kinds().into_iter().enumerate() {
        let home = directory();
        let filter = Filter::create(home.path().join("f"), spec, options()).expect("a filter");
        let over = AtomicBool::new(false);
        let returned = [AtomicU64::new(0), AtomicU64::new(0)];
        let key = |writer: usize, number: u64| (number << 8 | writer as u64).to_le_bytes();
        std::thread::scope(|scope| {
            for (writer, returned) in returned.iter().enumerate() {
                let (filter, over) = (&filter, &over);
                scope.spawn(move || {
                    for number in 0..8000 {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        filter.insert(key(writer, number)).expect("an insert");
                        returned.store(number + 1, Ordering::Release);
                    }
                });
            }
            for copy in 0..4 {
                let before = [0, 1].map(|writer: usize| returned[writer].load(Ordering::Acquire));
                let dir = home.path().join(format!("copy {copy}"));
                filter.backup(&dir).expect("a backup");
                let after = filter.digest().expect("a digest").inserts;
                let found: Filter = Filter::open(&dir, options()).expect("the backup opens");
                let inserts = found.digest().expect("a digest").inserts;
                assert!(before[0] + before[1] <= inserts && inserts <= after, "kind {at}");
                for (writer, &count) in before.iter().enumerate() {
                    for number in 0..count {
                        let there = found.contains(key(writer, number)).expect("a query");
                        assert!(there, "kind {at}, copy {copy}, key {number} of {writer}");
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn handles_on_one_filter_see_each_others_inserts_and_any_of_them_may_close() {
    let home = directory();
    let dir = home.path().join("f");
    let first = Filter::create(&dir, Bloom::capacity(100), options()).expect("a filter");
    first.insert("key").expect("an insert");
    let second: Filter<Bloom> = Filter::open(&dir, options()).expect("a second handle");
    let third = Filter::open_or_create(&dir, Bloom::capacity(100), options()).expect("a third");
    let created = Filter::create(&dir, Bloom::capacity(100), options());
    assert!(matches!(created, Err(Error::Exists { .. })), "{created:?}");
    assert!(ebbtide::inspect::verify(&dir).expect("a report").is_sound());
    assert_eq!(second.check_and_insert("key").expect("an answer"), Checked::Present);
    assert_eq!(second.check_and_insert("another").expect("an answer"), Checked::New);
    assert_eq!(third.stat().expect("figures").handles, 3);
    first.close().expect("a clean close");
    assert!(third.contains("another").expect("an answer"));
    third.insert("last").expect("an insert");
    let digest = second.digest().expect("a digest").value;
    drop(second);
    assert_eq!(third.digest().expect("a digest").value, digest);
    third.close().expect("the last one out");
    let again: Filter<Bloom> = Filter::open(&dir, options()).expect("no handle has it open");
    assert_eq!(again.digest().expect("a digest").value, digest);
    for key in ["key", "another", "last"] {
        assert!(again.contains(key).expect("an answer"));
    }
}

/// Checkpoints, digests and durable notes take stripe 0 from time to time. A step that is due must
/// wait for them: if it were postponed, the same operations would lead to another state.
#[test]
fn the_state_does_not_depend_on_background_work_beside_the_inserts() {
    // In memory a sync takes no time, so that more syncs coincide with a step.
    let media = || {
        let media = Memory::new();
        media.make().expect("a directory");
        Arc::new(media)
    };
    let options = || Options::new().hash_seed(5).stripes(4).durability(Durability::Never);
    let spec = || AgePartitioned::last(300);
    let alone = Filter::create_on(media(), spec(), options().background(false));
    let beside = Filter::create_on(media(), spec(), options().background(false));
    let (alone, beside) = (alone.expect("a filter"), beside.expect("a filter"));
    let done = AtomicBool::new(false);
    let busy = |work: fn(&Filter<AgePartitioned>)| {
        while !done.load(Ordering::Relaxed) {
            work(&beside);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| busy(|filter| filter.sync().expect("a sync")));
        scope.spawn(|| {
            busy(|filter| {
                filter.checkpoint().expect("a snapshot");
            })
        });
        for number in 0..200_000_u32 {
            for filter in [&alone, &beside] {
                filter.insert((number % 700).to_le_bytes()).expect("an insert");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(alone.digest().expect("a digest").value, beside.digest().expect("a digest").value);
}

#[test]
fn while_the_disk_creates_a_segment_for_a_bulk_writer_another_handle_inserts_under_its_stripe() {
    let media = Faulty::new(Memory::new());
    let faults = media.faults.clone();
    let options = Options::new().stripes(1).segment_bytes(512 << 10).background(false);
    let spec = Bloom::capacity(1000);
    let bulk = Filter::create_on(media.clone(), spec, options.clone()).expect("a filter");
    let other = Filter::<Bloom>::open_on(media, options).expect("the filter");
    // Into the second segment. From then on some of the log is kept for handles that write little.
    for key in 0..20_000_u64 {
        bulk.insert(key.to_le_bytes()).expect("an insert");
    }
    faults.busy.store(true, Ordering::SeqCst);
    let is_busy = || faults.busy.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut keys = 20_000_u64..;
            while is_busy() {
                let key = keys.next().expect("there are many");
                bulk.insert(key.to_le_bytes()).expect("an insert");
            }
        });
        while !faults.waits.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (done, is_done) = mpsc::channel();
        let other = &other;
        scope.spawn(move || {
            let keys = (1_u64 << 40)..;
            let inserted = keys.take(100).all(|key| other.insert(key.to_le_bytes()).is_ok());
            // The test may have ended.
            let _ = done.send(inserted);
        });
        let inserted = is_done.recv_timeout(Duration::from_secs(60));
        let was_busy = is_busy();
        faults.busy.store(false, Ordering::SeqCst);
        assert!(was_busy && inserted == Ok(true), "an insert waited for the disk: {inserted:?}");
    });
    assert!(other.contains((1_u64 << 40).to_le_bytes()).expect("an answer"));
}
