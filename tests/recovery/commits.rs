//! The operations of a filter, read from its log.

use crate::moments::{Past, options};
use ebbtide::history::{At, Change, Commit, History, Unlogged};
use ebbtide::inspect::verify_on;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{AgePartitioned, Code, Durability, Error, Filter, Keep, Options, Reader};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::SAMPLES;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn opened(media: &Arc<dyn Media>) -> History {
    History::open_on(media.clone()).expect("a filter").with_undurable()
}

fn all(history: History) -> Vec<Commit> {
    history.collect::<Result<_, _>>().expect("it is whole")
}

fn count(commits: &[Commit], is: impl Fn(&Change) -> bool) -> u64 {
    let operations = commits.iter().flat_map(|commit| &commit.operations);
    operations.filter(|operation| is(&operation.change)).count() as u64
}

#[test]
fn each_operation_of_any_kind_is_read_once_in_its_order_with_its_batch() {
    for (seed, sample) in SAMPLES.iter().enumerate() {
        let mut past = Past::new(sample, Keep::Bytes(1 << 30));
        past.run(sample, &mut Random::new(seed as u64));
        let commits = all(opened(&past.media));
        assert!(commits.is_sorted_by(|one, next| one.lsn < next.lsn), "{}", sample.name);
        let lsns = commits.iter().flat_map(|commit| &commit.operations).map(|each| each.lsn);
        assert!(lsns.is_sorted_by(|one, next| one < next), "{}", sample.name);
        // Against the filter's own counts, which a clear resets.
        let clears = |commit: &Commit| commit.operations[0].change == Change::Clear;
        let since = commits.iter().rposition(clears).map_or(0, |clear| clear + 1);
        let counted = &commits[since..];
        let stat = past.filter().stat().expect("figures");
        let changes =
            |change: &Change| matches!(change, Change::Insert { .. } | Change::Remove { .. });
        assert_eq!(count(counted, changes), stat.operations, "{}", sample.name);
        let removals = stat.operations - stat.inserts;
        let removes = |change: &Change| matches!(change, Change::Remove { .. });
        assert_eq!(count(counted, removes), removals, "{}", sample.name);
        // A batch is one commit, with its position at the end.
        let batches = commits.iter().filter(|commit| {
            let last = commit.operations.last().expect("operations").change;
            matches!(last, Change::Position { source: 7, .. })
        });
        let sizes: Vec<_> = batches.map(|commit| commit.operations.len()).collect();
        assert!(sizes.len() > 20 && sizes.iter().all(|size| (2..=7).contains(size)), "{sizes:?}");
        // As of each commit the filter is what it was after it.
        let mut random = Random::new(seed as u64);
        for _ in 0..scaled(8) {
            let commit = &commits[random.below(commits.len() as u64) as usize];
            let moment = past.moments.iter().find(|moment| moment.0 >= commit.lsn);
            let &(lsn, digest, ..) = moment.expect("it was noted");
            if lsn == commit.lsn {
                assert_eq!(past.digest(At::Lsn(lsn)), digest, "{}", sample.name);
            }
        }
        // From anywhere it continues with what comes next.
        for _ in 0..scaled(8) {
            let at = random.below(commits.len() as u64) as usize;
            let after = opened(&past.media).after(At::Lsn(commits[at].lsn)).expect("it is kept");
            assert_eq!(all(after), commits[at + 1..], "{}", sample.name);
            // Within a batch, with the whole batch.
            let within = commits[at].operations[0].lsn;
            let from = if within < commits[at].lsn { at } else { at + 1 };
            let after = opened(&past.media).after(At::Lsn(within)).expect("it is kept");
            assert_eq!(all(after), commits[from..], "{} after {within}", sample.name);
        }
    }
}

#[test]
fn reading_after_a_commit_begins_at_the_next_lsn_also_if_a_batch_there_was_never_completed() {
    for published in 0..4 {
        let options = || options().segment_bytes(1 << 20);
        let disk = CrashDisk::new();
        let spec = AgePartitioned::last(1000);
        let filter = Filter::create_on(Arc::new(disk.clone()), spec, options());
        let filter = filter.expect("a filter");
        (0..10_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        let lsn = filter.digest().expect("a digest").lsn - 1;
        let mut batch = filter.batch();
        (0..5_u64).for_each(|key| batch.insert((100 + key).to_le_bytes()).expect("room"));
        batch.commit().expect("a commit");
        let end = filter.digest().expect("a digest").lsn;
        let left = disk.without_process();
        left.unpublish_slots(lsn + 1 + published..end);
        let filter = Filter::<AgePartitioned>::open_on(Arc::new(left.clone()), options());
        let filter = filter.expect("the filter");
        filter.insert("next").expect("an insert");
        let media: Arc<dyn Media> = Arc::new(left);
        let mut history = opened(&media).after(At::Lsn(lsn)).expect("it is there");
        assert_eq!(history.next_lsn(), lsn + 1, "{published}");
        let piece = history.read_piece().expect("no error").expect("an insert");
        assert_eq!(piece.first, lsn + 1, "{published}");
        let commits = all(opened(&media).after(At::Lsn(lsn)).expect("it is there"));
        assert_eq!(count(&commits, |change| matches!(change, Change::Insert { .. })), 1);
        for within in lsn + 1..end {
            let commits = all(opened(&media).after(At::Lsn(within)).expect("it is there"));
            assert_eq!(count(&commits, |change| matches!(change, Change::Insert { .. })), 1);
        }
    }
}

#[test]
fn a_batch_longer_than_what_is_read_at_once_is_one_commit() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let options = options().keep_log(Keep::Bytes(1 << 30));
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(100_000), options);
    let filter = filter.expect("a filter");
    filter.insert("before").expect("an insert");
    let mut batch = filter.batch();
    for number in 0..40_000_u64 {
        batch.insert(number.to_le_bytes()).expect("room");
    }
    batch.commit().expect("a commit");
    filter.insert("after").expect("an insert");
    let inserts = |change: &Change| matches!(change, Change::Insert { .. });
    let sizes = || -> Vec<_> {
        let commits = all(opened(&media));
        commits.iter().map(|commit| count(std::slice::from_ref(commit), inserts)).collect()
    };
    assert_eq!(sizes(), [1, 40_000, 1]);
    // Also in log from before an alteration.
    for round in 0..2 {
        let spec = AgePartitioned::last(100_001 + round);
        let altered = filter.alter(spec, Unlogged::Refuse).expect("its log is kept");
        assert_eq!(altered.operations, 40_002 + round);
        filter.insert((1 << 40 | round).to_le_bytes()).expect("an insert");
        let wanted = [1, 40_000, 1, 1, 1];
        assert_eq!(sizes(), wanted[..4 + round as usize]);
    }
}

#[test]
fn what_is_not_durable_is_returned_once_it_is() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options());
    let filter = filter.expect("a filter");
    let mut history = History::open_on(media.clone()).expect("a filter");
    for round in 0..5_u64 {
        for number in 0..3 {
            filter.insert((round, number).0.to_le_bytes()).expect("an insert");
        }
        assert_eq!(history.read().expect("no error"), None, "round {round}");
        assert_eq!(history.wait(Duration::from_millis(20)).expect("no error"), None);
        filter.sync().expect("a sync");
        for _ in 0..3 {
            let commit = history.read().expect("no error").expect("it is durable");
            assert_eq!(commit.operations.len(), 1);
        }
        assert_eq!(history.read().expect("no error"), None, "round {round}");
    }
    filter.insert("last").expect("an insert");
    filter.close().expect("a close");
    assert!(history.read().expect("no error").is_some(), "a close makes it durable");
    assert_eq!(history.read().expect("no error"), None);
}

#[test]
fn a_reader_that_waits_gets_each_operation_of_writers_that_open_and_close_once() {
    const ROUNDS: u64 = 6;
    const EACH: u64 = 700;
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("filter");
    let options = || {
        Options::new()
            .durability(Durability::Interval(Duration::from_millis(1)))
            .segment_bytes(8 << 10)
            .checkpoint_bytes(16 << 10)
            .keep_log(Keep::For(Duration::from_secs(3600)))
    };
    let spec = || AgePartitioned::last(10_000);
    Filter::create(&dir, spec(), options()).expect("a filter").close().expect("a close");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..ROUNDS {
                let filter = Filter::open_or_create(&dir, spec(), options()).expect("a filter");
                for number in 0..EACH {
                    filter.insert((round * EACH + number).to_le_bytes()).expect("an insert");
                }
                filter.close().expect("a close");
            }
        });
        let mut history = History::open(&dir).expect("a filter");
        let (mut hashes, begun) = (Vec::new(), Instant::now());
        while hashes.len() < (ROUNDS * EACH) as usize {
            assert!(begun.elapsed() < Duration::from_secs(120), "{} came", hashes.len());
            let commit = match history.wait(Duration::from_millis(100)) {
                // The filter is being opened.
                Err(Error::Locked { .. }) => continue,
                commit => commit.expect("no error"),
            };
            for operation in commit.iter().flat_map(|commit| &commit.operations) {
                let Change::Insert { hash, .. } = operation.change else { continue };
                hashes.push(hash);
            }
        }
        writer.join().expect("no panic");
        assert_eq!(history.read().expect("no error"), None);
        // The order is that of one writer, and no key came twice.
        assert_eq!(hashes.len(), (ROUNDS * EACH) as usize);
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), (ROUNDS * EACH) as usize);
    });
}

#[test]
fn a_reader_that_falls_behind_learns_from_where_it_may_continue() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options());
    let filter = filter.expect("a filter");
    let mut history = opened(&media);
    for round in 0..6_u64 {
        for number in 0..500 {
            filter.insert((round * 500 + number).to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
    }
    let error = history.read().expect_err("its log was removed");
    let Error::NotKept { from, .. } = error else { panic!("{error}") };
    assert!(from > 1000, "{error}");
    let mut again = opened(&media).after(At::Lsn(from)).expect("from there on it is kept");
    let first = again.read().expect("no error").expect("operations").operations[0].lsn;
    assert!(first > from && first < from + 10, "{first}");
    let all: Vec<_> = again.map(|commit| commit.expect("no error").lsn).collect();
    assert!(all.is_sorted() && all.len() > 500, "{}", all.len());
    let earlier = opened(&media).after(At::Lsn(from - 1)).expect_err("it is not kept");
    assert!(matches!(earlier, Error::NotKept { from: of, .. } if of == from), "{earlier}");
    let later = opened(&media).after(At::Lsn(1 << 40)).expect_err("it has not come");
    assert_eq!(later.code(), Code::NotKept);
    let past = Reader::<ebbtide::Any>::at_on(media.clone(), At::Lsn(5), options());
    assert_eq!(past.expect_err("it is not kept").code(), Code::NotKept);
}

#[test]
fn the_log_is_kept_as_long_as_it_is_wished_by_whichever_handle_says_so_last() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let spec = || AgePartitioned::last(1000);
    let kept = || {
        let names = media.list().expect("a directory");
        names.iter().filter(|name| name.starts_with("kept-")).count()
    };
    let run = |options: Options| {
        let opened = Filter::open_on(media.clone(), options.clone());
        let filter = opened.or_else(|_| Filter::create_on(media.clone(), spec(), options));
        let filter = filter.expect("a filter");
        for number in 0..2000_u64 {
            filter.insert(number.to_le_bytes()).expect("an insert");
            if number % 500 == 0 {
                filter.checkpoint().expect("a checkpoint");
            }
        }
        filter.close().expect("a close");
        kept()
    };
    assert_eq!(run(options()), 0, "nothing is kept unless it is wished");
    let first = run(options().keep_log(Keep::For(Duration::from_secs(3600))));
    assert!(first > 5, "{first}");
    let second = run(options());
    assert!(second > first, "a handle that says nothing changes nothing: {second}");
    let third = run(options().keep_log(Keep::Bytes(200 << 10)));
    assert!((1..=25).contains(&third), "{third}");
    assert_eq!(run(options().keep_log(Keep::Nothing)), 0);
}

#[test]
fn a_size_is_what_the_kept_log_is_at_most_however_many_files_it_has() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let most = 2 << 20;
    let options = options().keep_log(Keep::Bytes(most));
    let filter = Filter::create_on(media, AgePartitioned::last(200), options).expect("a filter");
    let mut largest = 0;
    for number in 0..60_000_u32 {
        filter.insert(number.to_le_bytes()).expect("an insert");
        if number % 500 == 0 {
            filter.checkpoint().expect("a checkpoint");
            largest = filter.stat().expect("no error").kept_log_bytes.max(largest);
        }
    }
    assert!((most * 3 / 4..=most).contains(&largest), "{largest}");
}

#[test]
fn a_size_is_what_the_kept_log_is_at_most_where_snapshots_are_large() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let most = 4 << 20;
    let options = options().keep_log(Keep::Bytes(most));
    let filter = Filter::create_on(media, AgePartitioned::last(100_000), options);
    let filter = filter.expect("a filter");
    let mut largest = 0;
    for number in 0..204_000_u32 {
        filter.insert(number.to_le_bytes()).expect("an insert");
        // At the end hardly any log from one snapshot to the next, beside many kept segments.
        if number % if number < 200_000 { 4000 } else { 50 } == 0 {
            filter.checkpoint().expect("a checkpoint");
            largest = filter.stat().expect("no error").kept_log_bytes.max(largest);
        }
    }
    assert!((most * 3 / 4..=most).contains(&largest), "{largest}");
}

#[test]
fn less_kept_than_wished_is_said_if_there_was_more() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let kind = AgePartitioned::last(200);
    let filter = Filter::create_on(media.clone(), kind, options()).expect("a filter");
    let insert = |filter: &Filter<AgePartitioned>| {
        for number in 0..5_000_u32 {
            filter.insert(number.to_le_bytes()).expect("an insert");
            if number % 1000 == 0 {
                filter.checkpoint().expect("a checkpoint");
            }
        }
    };
    let is_short =
        |filter: &Filter<AgePartitioned>| filter.stat().expect("no error").kept_log_is_short;
    insert(&filter);
    assert!(!is_short(&filter), "nothing is wished");
    filter.close().expect("a close");
    for (keep, expected) in [
        (Keep::For(Duration::from_secs(3600)), true),
        (Keep::Bytes(1 << 40), false),
        (Keep::For(Duration::ZERO), false),
    ] {
        let filter: Filter<AgePartitioned> =
            Filter::open_on(media.clone(), options().keep_log(keep)).expect("a filter");
        insert(&filter);
        assert_eq!(is_short(&filter), expected, "{keep}");
        filter.close().expect("a close");
    }
}

#[test]
fn on_a_full_disk_nothing_stays_kept_behind_a_gap_although_files_have_both_names() {
    for (pick, reopens) in [(0, false), (3, false), (0, true), (3, true)] {
        let memory = Memory::new();
        let media: Arc<dyn Media> = Arc::new(memory.clone());
        let keep = || options().keep_log(Keep::For(Duration::from_secs(3600)));
        let made = Filter::create_on(media.clone(), AgePartitioned::last(1000), keep());
        let mut made = Some(made.expect("a filter"));
        for number in 0..5000_u64 {
            let filter = made.as_ref().expect("it is open");
            filter.insert(number.to_le_bytes()).expect("an insert");
            if number % 400 == 0 {
                filter.checkpoint().expect("a checkpoint");
            }
        }
        if reopens {
            drop(made.take());
            media.remove("live").expect("the image");
        }
        let names = media.list().expect("a directory");
        let files = names.iter().map(|name| media.open(name, Access::Read).expect("a file"));
        memory.set_capacity(files.map(|file| file.allocated_bytes().expect("no error")).sum());
        // As a death while they were given their names leaves them: the oldest, or all but some.
        let names = media.list().expect("a directory").into_iter();
        let mut kept: Vec<_> = names.filter(|name| name.starts_with("kept-")).collect();
        kept.sort();
        for name in kept.iter().skip(pick) {
            let (_, former) = name["kept-".len()..].split_once('-').expect("a second");
            media.link_new(name, former).expect("it is new");
        }
        let open = || Filter::open_on(media.clone(), keep()).expect("room in what is kept");
        let filter = made.unwrap_or_else(open);
        let fill = |from: u64| {
            let refused = (from..1_000_000).find_map(|number| {
                let error = filter.insert(number.to_le_bytes()).err()?;
                Some((number, error))
            });
            let (number, error) = refused.expect("the disk is full");
            assert!(error.is_full(), "{error}");
            number
        };
        let is_whole = || {
            let report = verify_on(&*media).expect("no error");
            assert!(report.is_sound(), "{pick} {reopens}: {report:?}");
        };
        is_whole();
        let first = fill(5000);
        filter.checkpoint().expect("room in what is kept");
        is_whole();
        assert!(fill(first) > 8000, "what was kept made room");
        memory.set_capacity(u64::MAX);
        for number in 0..3 {
            filter.insert(number.to_string()).expect("an insert");
            filter.checkpoint().expect("a checkpoint");
        }
        is_whole();
    }
}

#[test]
fn on_a_full_disk_what_is_kept_goes_first_and_no_insert_fails_before_it_is_gone() {
    let memory = Memory::new();
    let media: Arc<dyn Media> = Arc::new(memory.clone());
    let options = options().keep_log(Keep::For(Duration::from_secs(3600)));
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options);
    let filter = filter.expect("a filter");
    let kept = || {
        let names = media.list().expect("a directory");
        names.iter().any(|name| name.starts_with("kept-"))
    };
    let insert = |number: u64| filter.insert(number.to_le_bytes());
    (0..5000).for_each(|number| {
        insert(number).expect("an insert");
        if number % 400 == 0 {
            filter.checkpoint().expect("a checkpoint");
        }
    });
    assert!(kept());
    assert!(!filter.stat().expect("no error").kept_log_is_short, "all there ever was is kept");
    // From here on the disk has no byte more.
    let names = media.list().expect("a directory");
    let files = names.iter().map(|name| media.open(name, Access::Read).expect("a file"));
    memory.set_capacity(files.map(|file| file.allocated_bytes().expect("no error")).sum());
    let mut number = 5000;
    let refused = loop {
        match insert(number) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
        assert!(number < 1_000_000, "the disk is not full");
    };
    assert!(refused.is_full(), "{refused}");
    assert!(!kept(), "it failed although something was only kept");
    assert!(number > 8000, "what was kept made room: {number}");
    // All of it is there, and inserts continue when there is space.
    memory.set_capacity(u64::MAX);
    insert(number).expect("an insert");
    assert_eq!(filter.stat().expect("figures").inserts, number + 1);
}

#[test]
fn a_reader_is_not_stopped_by_the_death_of_a_writer_that_went_beyond_what_it_had_listed() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let options = options().durability(Durability::Always).keep_log(Keep::Bytes(1 << 30));
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options);
    let filter = filter.expect("a filter");
    let insert = |keys: std::ops::Range<u64>| {
        let keys: Vec<_> = keys.map(u64::to_le_bytes).collect();
        filter.insert_all(&keys).expect("inserts");
    };
    insert(0..20_000);
    let mut history = History::open_on(media).expect("a filter");
    history.read().expect("no error").expect("the first");
    insert(20_000..30_000);
    drop(filter);
    let rest = all(history).len();
    assert_eq!(rest, 29_999);
}

#[test]
fn a_reader_waits_no_longer_than_it_wants_for_a_process_that_opens_the_filter() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options());
    let filter = filter.expect("a filter");
    filter.insert("first").expect("an insert");
    let mut history = opened(&media);
    assert!(history.read().expect("no error").is_some());
    filter.insert("second").expect("an insert");
    // The opening byte.
    let opener = media.locks("lock", Access::Write).expect("locks");
    assert!(opener.try_lock(0, Access::Write).expect("no error"));
    let begun = Instant::now();
    assert_eq!(history.wait(Duration::from_millis(10)).expect("no error"), None);
    let error = history.read().expect_err("it is being opened");
    assert_eq!(error.code(), Code::Locked, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(30), "60 s is the time of others");
    opener.unlock(0).expect("no error");
    let commit = history.wait(Duration::from_secs(60)).expect("no error").expect("the second");
    assert_eq!(commit.operations.len(), 1);
}

/// A page of log that was durable and reads as zeros now, as cold data on a failing disk may: no
/// dead writer has left it empty.
#[test]
fn durable_records_that_read_as_zeros_are_damage_to_whoever_reads_only_a_part_of_the_log() {
    zeros_are_damage(false);
}

/// The opened filter has no log of its own yet.
#[test]
fn so_they_are_while_a_filter_that_was_closed_is_open_again_and_has_no_record_yet() {
    zeros_are_damage(true);
}

fn zeros_are_damage(opens_again: bool) {
    const EMPTY: u64 = 20;
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let settings = options().durability(Durability::Always).segment_bytes(1 << 20);
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), settings.clone());
    let mut filter = filter.expect("a filter");
    for key in 0..100_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    if opens_again {
        filter.close().expect("a clean end");
        filter = Filter::open_on(media.clone(), settings.clone()).expect("a filter");
    }
    let mut names = media.list().expect("a directory");
    names.retain(|name| name.starts_with("wal-"));
    assert_eq!(names.len(), 1, "{names:?}");
    let segment = media.open(&names[0], Access::Write).expect("the log");
    segment.write_at(&[0; 32], 4096 + 32 * (EMPTY - 1)).expect("a damage");
    let reports = |error: Error, who: &str| {
        let text = error.to_string();
        assert!(matches!(error, Error::Damaged { .. }), "{who}: {text}");
        assert!(text.contains(&names[0]) && text.contains("4704"), "{who}: {text}");
    };
    let at = |lsn| Reader::<ebbtide::Any>::at_on(media.clone(), At::Lsn(lsn), settings.clone());
    at(EMPTY - 2).expect("nothing of it is needed");
    reports(at(EMPTY + 10).expect_err("a key would be missing"), "a reader of the past");
    let history = History::open_on(media.clone()).expect("a log");
    let read = history.collect::<Result<Vec<Commit>, _>>();
    reports(read.expect_err("a commit would be missing"), "a history");
    let report = verify_on(&*media).expect("it is there");
    assert!(!report.is_sound(), "{report:?}");
    let altered = filter.alter(AgePartitioned::last(900), Unlogged::Refuse);
    reports(altered.expect_err("a key would be missing"), "an alteration");
    let to = Memory::new();
    let restored = ebbtide::inspect::restore_at_on(&*media, At::Lsn(EMPTY + 10), &to);
    drop(filter);
    assert!(restored.is_err(), "{restored:?}");
}
