//! Closing a handle that other threads still use: operations that had begun complete, later ones
//! fail, and no insert that returned is lost.

use ebbtide::{
    AgePartitioned, Bloom, Checked, Clock, Counting, Durability, Error, Filter, Options, Result,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const THREADS: u64 = 4;

fn options() -> Options {
    Options::new().hash_seed(7).clock(Clock::stream()).segment_bytes(16 << 10)
}

fn home() -> (TempDir, PathBuf) {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    (home, dir)
}

fn open(dir: &Path) -> Filter<Bloom> {
    Filter::open(dir, options()).expect("a filter")
}

fn is_closed<T: std::fmt::Debug>(answer: Result<T>, what: &str) {
    match answer {
        Err(Error::Closed { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn an_alteration_during_which_the_handle_is_closed_says_so_and_loses_nothing() {
    const KEYS: u64 = 30_000;
    let (_home, dir) = home();
    let spec = |capacity| Bloom::capacity(capacity);
    let keeps = options().keep_log(ebbtide::Keep::Bytes(1 << 30));
    Filter::create(&dir, spec(KEYS), keeps).expect("a filter").close().expect("a clean end");
    let mut interrupted = 0;
    for round in 0..20 {
        let filter = open(&dir);
        if round == 0 {
            (0..KEYS).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        }
        std::thread::scope(|scope| {
            let unlogged = ebbtide::history::Unlogged::Refuse;
            let (filter, wanted) = (&filter, spec(KEYS + 1 + round));
            let altering = scope.spawn(move || filter.alter(wanted, unlogged));
            std::thread::sleep(Duration::from_millis(round));
            filter.close().expect("it waits for no alteration");
            match altering.join().expect("no panic") {
                Err(Error::Closed { .. }) => interrupted += 1,
                altered => drop(altered.expect("done before")),
            }
        });
        drop(filter);
        let filter = open(&dir);
        assert!((0..KEYS).all(|key| filter.contains(key.to_le_bytes()).expect("an answer")));
        filter.close().expect("a clean end");
    }
    assert!(interrupted > 0, "no alteration was under way");
}

#[test]
fn a_closed_handle_refuses_every_operation_but_still_names_its_filter() {
    let (home, dir) = home();
    let filter = Filter::create(&dir, Counting::capacity(1000), options()).expect("a filter");
    filter.insert("a").expect("an insert");
    let filter = Arc::new(filter);
    let clone = filter.clone();
    filter.close().expect("a clean end");
    for handle in [&filter, &clone] {
        is_closed(handle.insert("b"), "insert");
        is_closed(handle.contains("a"), "contains");
        is_closed(handle.check_and_insert("b"), "check_and_insert");
        is_closed(handle.insert_all(&["b", "c"]), "insert_all");
        is_closed(handle.contains_all(&["a"]), "contains_all");
        is_closed(handle.check_and_insert_all(&["b"], &mut Vec::new()), "check_and_insert_all");
        is_closed(handle.call().durability(Durability::Always).insert("b"), "a durable insert");
        is_closed(handle.estimate("a"), "estimate");
        is_closed(handle.insert_and_estimate("a"), "insert_and_estimate");
        is_closed(handle.remove("a"), "remove");
        is_closed(handle.clear(), "clear");
        is_closed(handle.sync(), "sync");
        is_closed(handle.checkpoint(), "checkpoint");
        is_closed(handle.stat(), "stat");
        is_closed(handle.digest(), "digest");
        is_closed(handle.backup(home.path().join("copy")), "backup");
        assert_eq!((handle.kind(), handle.path()), ("counting", &*dir));
        handle.close().expect("closed already");
    }
    assert!(!home.path().join("copy").exists());
    let message = filter.insert("b").expect_err("closed").to_string();
    assert!(message.contains("filter was closed by this handle"), "{message}");
}

#[test]
fn a_closed_filter_can_be_opened_again_while_the_closed_handle_lives() {
    let (_home, dir) = home();
    let first = Filter::create(&dir, Bloom::capacity(1000), options()).expect("a filter");
    first.insert("a").expect("an insert");
    let digest = first.digest().expect("a digest");
    first.close().expect("a clean end");
    let second = open(&dir);
    let stat = second.stat().expect("figures");
    // The only handle, on the snapshot that closing has written.
    assert_eq!((stat.handles, stat.snapshots), (1, 1));
    assert_eq!(second.digest().expect("a digest").value, digest.value);
    second.insert("b").expect("an insert");
    is_closed(first.contains("b"), "the first");
    // Dropping the first handle must not close the second.
    drop(first);
    second.insert("c").expect("an insert");
    assert_eq!(second.contains_all(&["a", "b", "c"]).expect("answers"), [true; 3]);
    drop(second);
    assert!(open(&dir).contains("c").expect("an answer"), "dropping closes, too");
}

/// Runs threads that insert until they find the handle closed; returns the keys whose inserts
/// returned.
fn insert_until_closed(filter: &Arc<Filter<Bloom>>, durability: Durability) -> Vec<Vec<u64>> {
    let begun = AtomicBool::new(false);
    let insert = |thread: u64| {
        let call = filter.call().durability(durability);
        let mut done = Vec::new();
        for key in (0..).map(|number| number * THREADS + thread) {
            match call.check_and_insert(key.to_le_bytes()) {
                Ok(Checked::New) => done.push(key),
                Ok(other) => panic!("{key}: {other:?}"),
                Err(Error::Closed { .. }) => return done,
                Err(error) => panic!("{error}"),
            }
            begun.store(true, Ordering::Relaxed);
        }
        done
    };
    std::thread::scope(|scope| {
        let insert = &insert;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || insert(thread))).collect();
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(2));
        let closing: Vec<_> = (0..2).map(|_| scope.spawn(|| filter.close())).collect();
        closing.into_iter().for_each(|done| done.join().expect("no panic").expect("a clean end"));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Checks that exactly these keys are present; the filter is large enough to have no false
/// positive.
fn holds_exactly(filter: &Filter<Bloom>, done: &[Vec<u64>]) {
    let keys: Vec<_> = done.iter().flatten().map(|key| key.to_le_bytes()).collect();
    let found = filter.contains_all(&keys).expect("answers");
    assert_eq!(found.iter().filter(|found| !**found).count(), 0, "of {} keys", keys.len());
    assert_eq!(filter.stat().expect("figures").inserts, keys.len() as u64);
}

fn race(durability: Durability, rounds: u64) {
    for stripes in (0..rounds).map(|round| [1, 16][round as usize % 2]) {
        let (_home, dir) = home();
        let spec = Bloom::capacity(100_000).fpr(1e-9);
        let filter = Filter::create(&dir, spec, options().stripes(stripes)).expect("a filter");
        let filter = Arc::new(filter);
        let done = insert_until_closed(&filter, durability);
        // The handle is not dropped yet.
        holds_exactly(&open(&dir), &done);
    }
}

#[test]
fn exactly_the_inserts_that_returned_before_a_close_by_another_thread_are_present() {
    race(Durability::Never, 16);
}

#[test]
fn durable_inserts_that_returned_before_a_close_by_another_thread_are_present() {
    race(Durability::Always, 6);
}

#[test]
fn closing_a_handle_in_use_does_not_affect_other_handles() {
    let (_home, dir) = home();
    let spec = Bloom::capacity(100_000).fpr(1e-9);
    let other = Filter::create(&dir, spec, options().stripes(2)).expect("a filter");
    for round in 1..=16_u64 {
        let before = other.stat().expect("figures").inserts;
        let filter = Arc::new(open(&dir));
        let begin = round << 32;
        let stop = AtomicBool::new(false);
        let (done, own) = std::thread::scope(|scope| {
            let own = scope.spawn(|| {
                let mut inserted = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let key = begin + inserted;
                    assert!(other.insert(key.to_be_bytes()).expect("it is open here"));
                    inserted += 1;
                }
                inserted
            });
            let done = insert_some(&filter, begin);
            stop.store(true, Ordering::Relaxed);
            (done, own.join().expect("no panic"))
        });
        assert_eq!(other.stat().expect("figures").handles, 1, "the slot is given back");
        assert_eq!(other.stat().expect("figures").inserts, before + own + done.len() as u64);
        assert!(other.contains_all(&done).expect("answers").iter().all(|found| *found));
    }
    other.digest().expect("no stripe is held by the dead, and nothing is poisoned");
}

/// As [`insert_until_closed`], with different keys in each round.
fn insert_some(filter: &Arc<Filter<Bloom>>, begin: u64) -> Vec<[u8; 16]> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for number in 0_u64.. {
                        let key =
                            (u128::from(begin + thread) << 64 | u128::from(number)).to_le_bytes();
                        match filter.insert(key) {
                            Ok(_) => done.push(key),
                            Err(Error::Closed { .. }) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    done
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(3));
        filter.close().expect("a clean end");
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn queries_during_a_close_are_safe() {
    let (_home, dir) = home();
    let spec = AgePartitioned::last(10_000);
    let filter = Arc::new(Filter::create(&dir, spec, options()).expect("a filter"));
    filter.insert("a").expect("an insert");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    match filter.contains("a") {
                        Ok(found) => assert!(found),
                        Err(Error::Closed { .. }) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(5));
        filter.close().expect("a clean end");
    });
}
