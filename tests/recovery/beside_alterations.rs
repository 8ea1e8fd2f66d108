//! Whoever looks at the files of a filter while it is altered sees the filter before or after.

use crate::moments::options;
use ebbtide::history::{At, History, Unlogged, plan};
use ebbtide::inspect::{restore_at, verify, wal};
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Error, Filter, Keep};
use ebbtide_testkit::environment::scaled;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn window(number: u64) -> AgePartitioned {
    AgePartitioned::last(100 + 100 * (number % 4))
}

fn insert(filter: &Filter<AgePartitioned>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
}

#[test]
fn a_history_that_was_opened_before_an_alteration_continues_after_any_moment() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let kept = options().keep_log(Keep::Bytes(1 << 30));
    let filter = Filter::create_on(media.clone(), window(0), kept).expect("a filter");
    insert(&filter, 0..100);
    let history = History::open_on(media).expect("a log").with_undurable();
    let altered = filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
    insert(&filter, 100..150);
    let mut history = history.after(At::Lsn(altered.lsn)).expect("it is kept");
    assert_eq!(history.by_ref().count(), 50);
    let history = history.after(At::Lsn(0)).expect("it is kept");
    assert_eq!(history.count(), 150);
}

#[test]
fn a_reader_whose_log_an_alteration_has_removed_learns_what_there_is() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), window(0), options()).expect("a filter");
    insert(&filter, 0..100);
    let mut history = History::open_on(media).expect("a log").with_undurable();
    let altered = filter.alter(window(1), Unlogged::Refuse).expect("its log is there");
    insert(&filter, 100..150);
    let end = filter.stat().expect("figures").lsn;
    for _ in 0..2 {
        let error = history.read().expect_err("it was removed");
        let Error::NotKept { from, end: found, .. } = error else { panic!("{error}") };
        assert_eq!((from, found), (altered.lsn, end), "{error}");
    }
}

/// Looks again while the filter is being opened, as each alteration ends.
fn patient<T>(
    what: &'static str,
    mut look: impl FnMut() -> Result<T, Error>,
) -> Result<T, (&'static str, Error)> {
    loop {
        match look() {
            Err(Error::Locked { .. }) => std::thread::sleep(Duration::from_millis(1)),
            seen => return seen.map_err(|error| (what, error)),
        }
    }
}

#[test]
fn looks_at_a_filter_that_is_being_altered_succeed() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let kept = options().keep_log(Keep::Bytes(1 << 30));
    let filter = Filter::create(&dir, window(0), kept).expect("a filter");
    insert(&filter, 0..300);
    let moment = At::Lsn(filter.digest().expect("a digest").lsn - 1);
    let (ended, rounds) = (AtomicBool::new(false), scaled(8));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let altered = filter.alter(window(round), Unlogged::Refuse);
                altered.expect("its log is kept");
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let looks = || -> Result<(), (&str, Error)> {
            for round in 0..rounds {
                let report = patient("verify", || verify(&dir))?;
                assert!(report.is_sound(), "{report:?}");
                let inserts = patient("wal", || {
                    let mut inserts = 0;
                    wal(&dir, |entry| {
                        inserts += u64::from(entry.operation == "insert");
                        Ok(())
                    })?;
                    Ok(inserts)
                })?;
                assert_eq!(inserts, 300);
                let to = home.path().join(round.to_string());
                let restored = patient("restore", || restore_at(&dir, moment, &to))?;
                assert_eq!(restored.inserts, 300);
                let commits = patient("history", || {
                    let history = History::open(&dir)?.with_undurable().after(At::Lsn(0))?;
                    history.collect::<Result<Vec<_>, _>>()
                })?;
                assert_eq!(commits.len(), 300);
                assert!(patient("plan", || plan(&dir, window(1)))?.has_window);
            }
            Ok(())
        };
        let looked = looks();
        ended.store(true, Ordering::Relaxed);
        looked.unwrap_or_else(|(what, error)| panic!("{what}: {error}"));
    });
}
