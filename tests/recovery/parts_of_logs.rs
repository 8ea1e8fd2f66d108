//! What is asked of a log of which parts are gone is answered from what is there, or refused.

use crate::moments::options;
use ebbtide::history::{At, History, Unlogged};
use ebbtide::inspect::{restore_at_on, wal};
use ebbtide::media::{Access, Disk, Media, Memory};
use ebbtide::{AgePartitioned, Any, Code, Error, Filter, Keep, Reader, Timestamp};
use ebbtide_testkit::beside::Beside;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

const START: u64 = 1_700_000_000_000_000;

fn window(number: u64) -> AgePartitioned {
    AgePartitioned::last(2000 + number)
}

/// Returns a filter that keeps its log.
fn kept(media: &Arc<dyn Media>) -> Filter {
    let options = options().keep_log(Keep::Bytes(1 << 40));
    Filter::create_on(media.clone(), window(0), options).expect("a filter").into_any()
}

fn memory() -> Arc<dyn Media> {
    Arc::new(Memory::new())
}

fn second(second: u64) -> Timestamp {
    Timestamp::from_unix_micros(START + second * 1_000_000)
}

/// Inserts keys, each in the second of its number, with a checkpoint now and then.
fn insert(filter: &Filter, keys: Range<u64>) {
    for key in keys {
        filter.call().time(second(key)).insert(key.to_le_bytes()).expect("an insert");
        if key % 100 == 99 {
            filter.checkpoint().expect("a checkpoint");
        }
    }
}

fn digest(filter: &Filter) -> u128 {
    filter.digest().expect("a digest").value
}

fn at(media: &Arc<dyn Media>, at: At) -> std::result::Result<Reader<Any>, Error> {
    Reader::at_on(media.clone(), at, options())
}

/// Returns the names of kept segments that begin below an LSN, by the first of their records.
fn segments(media: &dyn Media, end: u64) -> Vec<(u64, String)> {
    let names = media.list().expect("a directory");
    let of = |name: String| {
        let (_, first) = name.strip_prefix("kept-")?.split_once("-wal-")?.1.split_once('-')?;
        Some((first.parse().expect("an LSN"), name))
    };
    let mut found: Vec<_> = names.into_iter().filter_map(of).collect();
    found.retain(|&(first, _)| first < end);
    found.sort();
    found
}

#[test]
fn a_reader_of_a_moment_before_an_alteration_stays_there_whatever_it_is_asked() {
    let media = memory();
    let filter = kept(&media);
    insert(&filter, 0..300);
    let (before, lsn) = (digest(&filter), filter.digest().expect("a digest").lsn);
    filter.clear().expect("a clear");
    for number in 1..3 {
        filter.alter(window(number), Unlogged::Refuse).expect("its log is kept");
    }
    let then = at(&media, At::Lsn(lsn - 1)).expect("it is kept");
    for _ in 0..2 {
        let explained = then.explain(&[7_u64.to_le_bytes()], 10).expect("its log is kept");
        assert!(explained.log.is_complete && explained.log.end == lsn, "{:?}", explained.log);
        assert!(explained.keys[0].present);
        assert_eq!(explained.keys[0].records.len(), 1);
        assert!(then.contains(7_u64.to_le_bytes()).expect("an answer"));
        assert_eq!(then.digest().expect("a digest").value, before);
        assert_eq!(then.parameters().get("window-items"), Some("2000"));
    }
    // What is kept is that of the whole filter.
    let (_, first) = &segments(&*media, 2)[0];
    media.remove(first).expect("a file");
    let from = filter.stat().expect("figures").kept_log_from;
    assert!(from.is_some_and(|from| from > 0), "{from:?}");
    assert_eq!(then.stat().expect("figures").kept_log_from, from);
}

#[test]
fn a_moment_after_log_whose_end_is_gone_is_that_of_the_log_that_follows() {
    let media = memory();
    let filter = kept(&media);
    insert(&filter, 0..450);
    let altered = filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
    insert(&filter, 450..460);
    let now = digest(&filter);
    let (first, last) = segments(&*media, altered.lsn + 1).pop().expect("kept log");
    assert!(first > 300, "{last}");
    media.remove(&last).expect("a file");
    let found = at(&media, At::Time(second(1000))).expect("it is kept");
    assert_eq!(found.digest().expect("a digest").value, now);
    let found = at(&media, At::Time(second(455))).expect("it is kept");
    assert!(found.contains(455_u64.to_le_bytes()).expect("an answer"));
    assert!(!found.contains(456_u64.to_le_bytes()).expect("an answer"));
    let opened = || History::open_on(media.clone()).expect("a log").with_undurable();
    let after = opened().after(At::Time(second(455))).expect("it is kept");
    assert_eq!(after.count(), 4);
    // Where log is gone.
    let gone = At::Time(second(448));
    assert_eq!(at(&media, gone).expect_err("it is gone").code(), Code::NotKept);
    assert_eq!(opened().after(gone).expect_err("it is gone").code(), Code::NotKept);
    // Before that.
    let found = at(&media, At::Time(second(100))).expect("it is kept");
    assert!(found.contains(100_u64.to_le_bytes()).expect("an answer"));
    assert!(!found.contains(101_u64.to_le_bytes()).expect("an answer"));
}

#[test]
fn a_time_after_the_last_operation_is_the_present_also_right_after_an_alteration() {
    let media = memory();
    let filter = kept(&media);
    insert(&filter, 0..50);
    filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
    let late = At::Time(second(1000));
    let found = at(&media, late).expect("it is kept").digest().expect("a digest").value;
    assert_eq!(found, digest(&filter));
    let history = History::open_on(media.clone()).expect("a log").with_undurable();
    assert_eq!(history.after(late).expect("it is kept").count(), 0);
    // A filter that was restored begins with a base, too.
    let (restored, lsn) = (memory(), filter.digest().expect("a digest").lsn);
    restore_at_on(&*media, At::Lsn(lsn - 1), &*restored).expect("it is kept");
    let found = at(&restored, late).expect("it is kept").digest().expect("a digest").value;
    assert_eq!(found, digest(&filter));
}

#[test]
fn a_late_time_needs_no_log_from_before_an_alteration_that_cannot_be_opened() {
    let media = memory();
    let filter = kept(&media);
    insert(&filter, 0..450);
    let altered = filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
    insert(&filter, 450..460);
    let (_, first) = &segments(&*media, altered.lsn)[0];
    let file = media.open(first, Access::Write).expect("kept log");
    file.write_at(&[0xFF; 8], 0).expect("a damage");
    for (time, present) in [(1000, 459), (455, 455), (430, 430)] {
        let found = at(&media, At::Time(second(time))).expect("it is kept");
        let has = |key: u64| found.contains(key.to_le_bytes()).expect("an answer");
        assert!(has(present) && !has(present + 1), "{time}");
    }
    let error = at(&media, At::Time(second(50))).expect_err("it is needed");
    assert_eq!(error.code(), Code::Damaged, "{error}");
}

#[test]
fn a_time_behind_an_alteration_needs_no_damaged_record_of_the_log_before() {
    let media = memory();
    let filter = kept(&media);
    insert(&filter, 0..420);
    // Behind the newest snapshot of that log, with what a sync notes behind it.
    let damaged = filter.digest().expect("a digest").lsn;
    insert(&filter, 420..450);
    filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
    insert(&filter, 450..460);
    let (first, name) = segments(&*media, damaged + 1).pop().expect("kept log");
    let file = media.open(&name, Access::Write).expect("kept log");
    file.write_at(&[0xFF; 8], 4096 + (damaged - first) * 32).expect("a damage");
    let log = || History::open_on(media.clone()).expect("a log").with_undurable();
    for (time, present) in [(1000, 459), (455, 455), (449, 449), (410, 410)] {
        let time = At::Time(second(time));
        let found = at(&media, time).unwrap_or_else(|error| panic!("{time}: {error}"));
        let has = |key: u64| found.contains(key.to_le_bytes()).expect("an answer");
        assert!(has(present) && !has(present + 1), "{time}");
        log().after(time).unwrap_or_else(|error| panic!("{time}: {error}"));
    }
    let needed = At::Time(second(430));
    assert_eq!(at(&media, needed).expect_err("it is needed").code(), Code::Damaged);
    assert_eq!(log().after(needed).expect_err("it is needed").code(), Code::Damaged);
}

#[test]
fn a_moment_before_an_alteration_needs_no_log_behind_it_that_cannot_be_opened() {
    let media = memory();
    let filter = kept(&media);
    insert(&filter, 0..450);
    let (before, lsn) = (digest(&filter), filter.digest().expect("a digest").lsn);
    let altered = filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
    insert(&filter, 450..1200);
    let mut all = segments(&*media, u64::MAX);
    all.retain(|&(first, _)| first > altered.lsn);
    let file = media.open(&all[0].1, Access::Write).expect("kept log");
    file.write_at(&[0xFF; 8], 0).expect("a damage");
    let found = at(&media, At::Lsn(lsn - 1)).expect("it is kept");
    assert_eq!(found.digest().expect("a digest").value, before);
    let found = at(&media, At::Time(second(440))).expect("it is kept");
    let has = |key: u64| found.contains(key.to_le_bytes()).expect("an answer");
    assert!(has(440) && !has(441));
}

#[test]
fn a_damaged_header_of_kept_log_hides_no_log_behind_it() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let media: Arc<dyn Media> = Arc::new(Disk::new(&dir));
    let filter = kept(&media);
    insert(&filter, 0..450);
    let altered = filter.alter(window(1), Unlogged::Refuse).expect("its log is kept").lsn;
    insert(&filter, 450..1200);
    let printed = || {
        let mut found = Vec::new();
        let read = wal(&dir, |entry| {
            found.push(entry.lsn);
            Ok(())
        });
        (found, read)
    };
    let (mut wanted, sound) = printed();
    sound.expect("no damage yet");
    assert_eq!(wanted[0], 1);
    let all = segments(&*media, u64::MAX);
    let now = all.iter().position(|&(first, _)| first > altered).expect("kept log");
    // A segment of the log now, then the first one of the log before.
    let known = all[now + 2].0;
    for (bad, begins) in [(now + 1, altered + 1), (0, 1)] {
        let ((_, name), &(next, _)) = (&all[bad], &all[bad + 1]);
        let file = media.open(name, Access::Write).expect("kept log");
        file.write_at(&[0xFF; 8], 0).expect("a damage");
        wanted.retain(|&lsn| lsn < begins || lsn >= next);
        let (found, read) = printed();
        assert_eq!(found, wanted);
        let error = read.expect_err("a header is damaged");
        assert_eq!(error.code(), Code::Damaged, "{error}");
        let reader = Reader::<Any>::open_on(media.clone(), options()).expect("a filter");
        let explained = reader.explain(&[1150_u64.to_le_bytes()], 10).expect("log behind it");
        assert!(explained.log.first == known && !explained.log.is_complete, "{:?}", explained.log);
        assert_eq!(explained.keys[0].records.len(), 1);
        let then = at(&media, At::Lsn(altered - 1));
        // Some of its operations may be missing; or it cannot be read itself.
        let of_then = then.and_then(|then| then.explain(&[440_u64.to_le_bytes()], 10));
        let error = of_then.expect_err("a header is damaged");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_log_without_a_base_says_what_it_has_with_an_lsn_of_it() {
    let media = memory();
    let filter = kept(&media);
    insert(&filter, 0..450);
    let end = filter.digest().expect("a digest").lsn;
    media.remove(&segments(&*media, 2)[0].1).expect("a file");
    for name in media.list().expect("a directory") {
        if name.contains("snap-") {
            let file = media.open(&name, Access::Write).expect("a snapshot");
            file.write_at(&[0xFF; 8], 0).expect("a damage");
        }
    }
    for moment in [At::Lsn(440), At::Time(second(440))] {
        let error = at(&media, moment).expect_err("nothing leads there");
        let Error::NotKept { from, .. } = error else { panic!("{error}") };
        assert!(from <= end, "{error}");
    }
}

#[test]
fn a_filter_restored_as_of_a_moment_lacks_no_operation_if_its_log_is_removed_meanwhile() {
    for (is_altered, is_open) in [(false, false), (true, false), (false, true), (true, true)] {
        let media = memory();
        let filter = kept(&media);
        insert(&filter, 0..199);
        let (before, lsn) = (digest(&filter), filter.digest().expect("a digest").lsn);
        insert(&filter, 199..450);
        if is_altered {
            filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
        }
        let _open = is_open.then_some(filter);
        // A checkpoint of others removes kept log.
        let others =
            || segments(&*media, u64::MAX).iter().try_for_each(|(_, name)| media.remove(name));
        let copy = Memory::new();
        let beside = Beside { to: &copy, others: &others };
        let restored = restore_at_on(&*media, At::Lsn(lsn - 1), &beside);
        if restored.is_ok() {
            let to: Arc<dyn Media> = Arc::new(copy);
            let found: Filter = Filter::open_on(to, options()).expect("a filter");
            assert_eq!(digest(&found), before, "{is_altered} {is_open}");
        }
    }
}

#[test]
fn who_is_shown_a_log_and_fails_is_shown_nothing_more_of_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let media: Arc<dyn Media> = Arc::new(Disk::new(parent.path().join("filter")));
    let filter = kept(&media);
    insert(&filter, 0..10);
    filter.alter(window(1), Unlogged::Refuse).expect("its log is kept");
    insert(&filter, 10..20);
    // An error as that of a damaged file.
    let failed = || Error::Io {
        action: "write",
        path: media.path().to_path_buf(),
        source: ErrorKind::InvalidData.into(),
    };
    let mut shown = 0;
    let error = wal(media.path(), |_| {
        shown += 1;
        Err(failed())
    });
    assert_eq!(error.expect_err("it fails").to_string(), failed().to_string());
    assert_eq!(shown, 1);
}
