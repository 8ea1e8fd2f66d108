//! A reader of the log beside alterations and openings.

use super::*;
use crate::history::Unlogged;
use crate::locks::session_slots::Sessions;
use crate::media::{Access, Memory};
use crate::platform::fork::children::Child;
use crate::{Bloom, Durability, Filter, Keep, Options};

#[test]
fn a_reader_from_which_the_log_before_an_alteration_is_removed_says_that_it_is_not_kept() {
    let memory = Arc::new(Memory::new());
    let options = Options::new().background(false).keep_log(Keep::Bytes(1 << 20));
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    let filter = filter.expect("a filter");
    (0..9_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    filter.alter(Bloom::capacity(2000), Unlogged::Refuse).expect("its log is kept");
    let mut history = History::open_on(memory.clone()).expect("its log").with_undurable();
    assert_eq!(history.next_lsn(), 1);
    let names = memory.list().expect("a directory").into_iter();
    for kept in names.filter(|name| name.starts_with("kept-") && name.contains("-wal-")) {
        memory.remove(&kept).expect("a file");
    }
    let refused = history.read();
    assert!(matches!(refused, Err(Error::NotKept { from: 10, .. })), "{refused:?}");
}

#[test]
fn a_note_behind_an_alteration_hides_no_record_from_a_reader_that_follows() {
    let memory = Arc::new(Memory::new());
    let options = Options::new().background(false).keep_log(Keep::Bytes(1 << 20));
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    let filter = filter.expect("a filter");
    filter.insert("before").expect("an insert");
    let mut history = History::open_on(memory).expect("its log").with_undurable();
    assert!(history.read().expect("it is there").is_some());
    let altered = filter.alter(Bloom::capacity(2000), Unlogged::Refuse);
    // As if a sync had noted there what it had made durable, and that had been read.
    history.next = altered.expect("its log is kept").lsn + 2;
    filter.insert("after").expect("an insert");
    let commit = history.read().expect("it is there").expect("a commit");
    assert_eq!(commit.lsn, history.next_lsn() - 1);
    assert_eq!(history.read().expect("no error"), None);
}

#[test]
fn a_note_behind_an_alteration_hides_no_record_from_a_reader_of_pieces() {
    for inserts in 0..3_u64 {
        let memory = Arc::new(Memory::new());
        let options = Options::new().background(false).keep_log(Keep::Bytes(1 << 20));
        let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        filter.insert("before").expect("an insert");
        let mut history = History::open_on(memory).expect("its log").with_undurable();
        assert!(history.read_piece().expect("it is there").is_some());
        let altered = filter.alter(Bloom::capacity(2000), Unlogged::Refuse);
        let first = altered.expect("its log is kept").lsn + 1;
        // As if a sync had noted there what it had made durable, and that had been read.
        history.next = first + 1;
        (0..inserts).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        let piece = history.read_piece().expect("no error");
        let found = piece.map(|piece| (piece.first, piece.end(), piece.has_changes()));
        assert_eq!(found, (inserts > 0).then_some((first, first + inserts, true)));
        assert_eq!(history.read_piece().expect("no error"), None);
    }
}

#[test]
fn a_reader_of_all_durable_records_follows_an_alteration_that_has_removed_the_former_log() {
    for (read, is_all) in [(0, false), (1, true), (2, true)] {
        let memory = Arc::new(Memory::new());
        let options = Options::new().background(false).durability(Durability::Always);
        let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        filter.insert("before").expect("an insert");
        let mut history = History::open_on(memory).expect("its log");
        assert!(history.read().expect("it is there").is_some());
        let altered = filter.alter(Bloom::capacity(2000), Unlogged::Refuse);
        let altered = altered.expect("its log is there").lsn;
        // As if it had read the log up to the alteration, with it, or also with a note behind it.
        history.next = altered + read;
        filter.insert("after").expect("an insert");
        match history.read() {
            Ok(Some(commit)) if is_all => assert_eq!(commit.lsn, altered + 1),
            Err(Error::NotKept { from, .. }) if !is_all => assert_eq!(from, altered),
            other => panic!("{read}: {other:?}"),
        }
    }
}

#[test]
fn who_cannot_try_again_waits_for_a_process_that_opens_the_filter() {
    let memory = Arc::new(Memory::new());
    let options = Options::new().background(false);
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    filter.expect("a filter").insert("a key").expect("an insert");
    let mut history = History::open_on(memory.clone()).expect("its log");
    let opener = Sessions::open(&*memory, Access::Write).expect("the lock file");
    assert!(opener.try_opening().expect("no error"));
    assert!(matches!(history.read(), Err(Error::Locked { .. })));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            primitives::sleep(5 * BRIEFLY);
            opener.end_opening().expect("no error");
        });
        let read = history.read_patiently().expect("the filter, once it is open");
        assert!(read.is_some());
    });
}

#[test]
fn a_moved_directory_is_an_error_only_for_who_follows_its_log() {
    let home = tempfile::tempdir().expect("a directory");
    let [dir, moved] = ["dir", "moved"].map(|name| home.path().join(name));
    let options = Options::new().background(false);
    let filter = Filter::create(&dir, Bloom::capacity(1000), options).expect("a filter");
    let mut history = History::open(&dir).expect("its log").with_undurable();
    std::fs::rename(&dir, &moved).expect("moved");
    filter.insert("after").expect("an insert");
    std::thread::sleep(LOOK_EVERY);
    assert!(history.read_operations(None).is_ok_and(|read| read.len() == 1));
    assert_eq!(history.read_patiently().expect("no error"), None);
    assert!(history.read().is_err());
    history.looked = Instant::now() - LOOK_EVERY;
    assert!(history.wait(Duration::ZERO).is_err());
    history.looked = Instant::now() - LOOK_EVERY;
    assert!(history.read_piece().is_err());
}

#[test]
fn in_a_forked_child_a_history_is_refused_before_it_reads_what_is_not_mapped_there() {
    let home = tempfile::tempdir().expect("a directory");
    let options = Options::new().background(false).durability(Durability::Never);
    let filter = Filter::create(home.path(), Bloom::capacity(1000), options).expect("a filter");
    let keys: Vec<_> = (0..20_000_u64).map(u64::to_le_bytes).collect();
    filter.insert_all(&keys).expect("inserts");
    let mut history = History::open(home.path()).expect("its log").with_undurable();
    assert!(history.read().expect("no error").is_some());
    assert!(history.log.is_some() && !history.read.is_empty());
    let is_refused = |history: &mut History| {
        let read = matches!(history.read(), Err(Error::Forked { .. }));
        let waited = matches!(history.wait(Duration::ZERO), Err(Error::Forked { .. }));
        read && waited && matches!(history.read_piece(), Err(Error::Forked { .. }))
    };
    let mut child = Child::fork(|| {
        let with_commits = is_refused(&mut history);
        history.read.clear();
        with_commits && is_refused(&mut history)
    });
    assert!(child.holds());
    assert!(history.read().expect("no error").is_some(), "it is still the parent's");
}
