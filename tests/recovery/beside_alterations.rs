//! Whoever looks at the files of a filter while it is altered sees the filter before or after; when
//! an alteration is refused, and what others need after one.

use crate::moments::options;
use ebbtide::history::{At, History, Unlogged, plan};
use ebbtide::inspect::{restore_at, verify, wal};
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Bloom, Code, Error, Filter, Keep, Reader};
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

#[test]
fn a_reader_with_the_options_of_the_creation_follows_an_alteration_that_changes_their_defaults() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    // The default of this memory, but not of that of the new parameters.
    let options = || options().segment_bytes(1 << 20);
    let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options());
    let filter = filter.expect("a filter");
    filter.insert("a key").expect("an insert");
    let reader = Reader::<Bloom>::open_on(media.clone(), options()).expect("the filter");
    assert!(reader.contains("a key").expect("an answer"));
    filter.alter(Bloom::capacity(2_000_000), Unlogged::Refuse).expect("room");
    assert!(reader.contains("a key").expect("it is open again"));
    assert!(Reader::<Bloom>::open_on(media, options()).is_err(), "the segments are larger");
}

#[test]
fn with_all_session_slots_taken_nothing_is_altered() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options());
    let filter = filter.expect("a filter");
    let open = || Filter::<Bloom>::open_on(media.clone(), options());
    let mut others: Vec<_> = std::iter::repeat_with(open).map_while(Result::ok).collect();
    assert_eq!(others.len(), 125);
    let parameters = || filter.stat().expect("figures").parameters;
    let before = parameters();
    let error = filter.alter(Bloom::capacity(2000), Unlogged::Refuse).expect_err("no slot");
    assert!(matches!(error, Error::Crowded { most: 126, .. }), "{error}");
    assert_eq!(parameters(), before);
    assert!(filter.insert("a key").expect("writers continue"));
    drop(others.pop());
    filter.alter(Bloom::capacity(2000), Unlogged::Refuse).expect("a slot is free");
    assert!(filter.contains("a key").expect("an answer") && parameters() != before);
}

#[test]
fn after_a_clear_that_is_in_the_log_nothing_from_before_the_log_is_missing() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let few = options().segment_bytes(4 << 10).checkpoint_bytes(4 << 10);
    let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), few).expect("a filter");
    for key in 0..600_u64 {
        assert!(filter.insert(key.to_le_bytes()).is_ok());
        if key % 200 == 199 {
            filter.checkpoint().expect("room");
        }
    }
    assert!(History::open_on(media.clone()).expect("a log").next_lsn() > 1);
    let alter = || filter.alter(Bloom::capacity(2000), Unlogged::Refuse);
    let error = alter().expect_err("the first keys are not in the log");
    assert_eq!(error.code(), Code::NotKept, "{error}");
    filter.clear().expect("room");
    filter.insert("a key").expect("an insert");
    let altered = alter().expect("nothing is missing");
    assert!(!altered.is_whole && altered.operations < 600, "{altered:?}");
    assert!(filter.contains("a key").expect("an answer"));
    assert!((0..600_u64).all(|key| !filter.contains(key.to_le_bytes()).expect("an answer")));
}
