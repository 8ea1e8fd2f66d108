//! Durability of what is no insert: a clear, a backup, and at every moment two recovery bases.

use crate::claims::options;
use ebbtide::history::{At, Change, History};
use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Bloom, Durability, Entry, Error, Filter, Keep, Reader, Timestamp};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::failing::Failing;
use ebbtide_testkit::random::Random;
use std::io::ErrorKind;
use std::sync::Arc;

/// The claims, by name.
pub const ALL: [(&str, fn()); 9] = [
    ("a_handle_has_the_durability_that_it_asks_for_whatever_the_filter_was_created_with", own),
    ("a_clear_that_returned_survives_a_power_cut", cleared),
    ("a_backup_that_returned_survives_a_power_cut", backed_up),
    ("a_backup_whose_writer_died_is_the_whole_copy_or_no_filter", killed),
    ("at_every_moment_the_files_are_two_recovery_bases", two_bases),
    ("a_sound_snapshot_in_the_place_of_a_damaged_one_is_a_base", replaced),
    ("after_any_crash_the_kept_log_has_every_moment_that_was_durable", every_moment),
    ("whichever_call_fails_while_log_is_kept_no_moment_is_lost", any_failing_call),
    ("operations_of_a_batch_whose_writer_died_within_it_are_not_in_the_history", broken_batch),
];

fn create(media: Arc<dyn Media>) -> Filter<Bloom> {
    let options = options().durability(Durability::Never);
    Filter::create_on(media, Bloom::capacity(2000), options).expect("a filter")
}

fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

fn open(media: Arc<dyn Media>) -> ebbtide::Result<Filter<Bloom>> {
    Filter::open_on(media, options())
}

fn value(filter: &Filter<Bloom>) -> u128 {
    filter.digest().expect("a digest").value
}

fn own() {
    let disk = CrashDisk::new();
    let first = create(Arc::new(disk.clone()));
    let always = options().durability(Durability::Always);
    let second: Filter<Bloom> =
        Filter::open_on(Arc::new(disk.clone()), always).expect("another handle");
    for (round, key) in (0..20_u64).enumerate() {
        let syncs = disk.log_syncs();
        assert!(first.insert((1000 + key).to_le_bytes()).is_ok());
        assert_eq!(disk.log_syncs(), syncs, "the first handle waits for nothing");
        assert!(second.insert(key.to_le_bytes()).is_ok());
        assert!(disk.log_syncs() > syncs);
        let after = open(Arc::new(disk.without_power(Random::new(round as u64))));
        let after = after.expect("a filter");
        assert!((0..=key).all(|key| after.contains(key.to_le_bytes()).expect("an answer")));
    }
    assert_eq!(second.stat().expect("a stat").durability, Durability::Always);
    assert_eq!(first.stat().expect("a stat").durability, Durability::Never);
    // What the filter was created with holds for handles that name nothing.
    let third = open(Arc::new(disk)).expect("another handle");
    assert_eq!(third.stat().expect("a stat").durability, Durability::Never);
}

fn cleared() {
    for seed in 0..scaled(40) {
        let disk = CrashDisk::new();
        let filter = create(Arc::new(disk.clone()));
        insert(&filter, 0..100 + 10 * seed);
        if seed % 2 == 0 {
            filter.checkpoint().expect("a checkpoint");
        }
        filter.clear().expect("a clear");
        let after = open(Arc::new(disk.without_power(Random::new(seed)))).expect("a filter");
        assert_eq!(after.digest().expect("a digest").inserts, 0, "seed {seed}");
        assert!(!after.contains(1_u64.to_le_bytes()).expect("an answer"), "seed {seed}");
    }
}

fn backed_up() {
    let filter = create(Arc::new(Memory::new()));
    insert(&filter, 0..500);
    let disk = CrashDisk::new();
    filter.backup_on(&disk).expect("a backup");
    for seed in 0..scaled(60) {
        let left = disk.without_power(Random::new(seed));
        let copy = open(Arc::new(left)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(value(&copy), value(&filter), "seed {seed}");
    }
}

/// Checks what a writer of a backup has left: it is the whole copy, or no filter, and a later
/// backup either has all or is refused.
fn check_left(left: &CrashDisk, filter: &Filter<Bloom>, what: &str) {
    match open(Arc::new(left.clone())) {
        Ok(copy) => assert_eq!(value(&copy), value(filter), "{what}"),
        // Without `meta`: nothing, or snapshots and log.
        Err(Error::NotAFilter { .. } | Error::Damaged { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    match filter.backup_on(left) {
        Ok(()) => {
            let copy = open(Arc::new(left.clone())).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(value(&copy), value(filter), "{what}, again");
        }
        Err(Error::Exists { .. } | Error::Damaged { .. }) => {}
        Err(error) => panic!("{what}, again: {error}"),
    }
}

fn killed() {
    let filter = create(Arc::new(Memory::new()));
    insert(&filter, 0..300);
    let mut deaths = 0;
    for calls in 0..1000 {
        let disk = CrashDisk::new();
        disk.die_after(calls);
        let made = filter.backup_on(&disk);
        let Some(left) = disk.left() else {
            made.expect("nobody died");
            break;
        };
        deaths += 1;
        let cut = left.without_power(Random::new(calls));
        check_left(&left, &filter, &format!("dead after {calls} calls"));
        check_left(&cut, &filter, &format!("dead after {calls} calls, and a power cut"));
    }
    assert!(deaths > 20, "{deaths} deaths");
}

/// The names of log segments and snapshots at one moment.
#[derive(Debug, Default, PartialEq)]
struct Files {
    /// Starts, ascending.
    snapshots: Vec<u64>,
    /// Timelines and first LSNs, ascending.
    segments: Vec<(u64, u64)>,
}

impl Files {
    fn add(&mut self, name: &str) {
        let parts: Vec<u64> =
            name.split('-').skip(1).filter_map(|part| part.parse().ok()).collect();
        match (name.split('-').next(), &parts[..]) {
            (Some("snap"), &[start]) => self.snapshots.push(start),
            (Some("wal"), &[timeline, first]) => self.segments.push((timeline, first)),
            _ => {}
        }
    }

    /// Returns whether the log has no gap from this LSN on. A segment has room for `capacity`
    /// records; the next one of its timeline begins right behind it.
    fn leads_from(&self, start: u64, capacity: u64) -> bool {
        let first = self.segments.iter().rposition(|&(_, first)| first <= start);
        let Some(first) = first else { return false };
        self.segments[first..].windows(2).all(|pair| {
            let ((timeline, lsn), (next_timeline, next)) = (pair[0], pair[1]);
            let end = lsn + capacity;
            if timeline == next_timeline { next == end } else { next <= end }
        })
    }
}

fn two_bases() {
    // 4 KiB, of 32 bytes each.
    const CAPACITY: u64 = 128;
    let mut random = Random::new(7);
    let disk = CrashDisk::new();
    let mut filter = create(Arc::new(disk.clone()));
    let mut next = 0;
    // Fewer leave too few moments with two snapshots.
    for round in 0..scaled(40).max(16) {
        let count = 1 + random.below(400);
        insert(&filter, next..next + count);
        next += count;
        match random.below(6) {
            0 => {
                drop(filter);
                filter = open(Arc::new(disk.clone())).expect("the filter");
            }
            1 => filter.clear().expect("a clear"),
            2 => filter.sync().expect("a sync"),
            _ => drop(filter.checkpoint().expect("a checkpoint")),
        }
        // A segment ends exactly where a snapshot starts, and one record before and behind it.
        if round % 5 == 0 {
            let tail = filter.stat().expect("a stat").lsn;
            let rest = CAPACITY - tail % CAPACITY;
            insert(&filter, next..next + rest + round % 3);
            next += rest + round % 3;
            filter.checkpoint().expect("a checkpoint");
        }
    }
    let tape = disk.tape();
    let (mut moments, mut both) = (0, 0);
    let mut had_two = false;
    for moment in 0..=tape.now {
        let mut files = Files::default();
        for (name, course) in &tape.names {
            if course.at(moment).is_some() {
                files.add(name);
            }
        }
        files.snapshots.sort_unstable();
        files.segments.sort_unstable();
        moments += 1;
        had_two |= files.snapshots.len() >= 2;
        if !had_two {
            // Without an older snapshot the whole log is the other base.
            assert!(files.segments.is_empty() || files.segments[0].1 == 1, "{moment}: {files:?}");
            continue;
        }
        let [.., older, newest] = files.snapshots[..] else { panic!("{moment}: {files:?}") };
        both += 1;
        for start in [older, newest] {
            assert!(files.leads_from(start, CAPACITY), "{moment}, from {start}: {files:?}");
        }
    }
    assert!(2 * both > moments, "{both} of {moments} moments");
}

/// A power cut may take the note behind the newest snapshot. If that is damaged, too, the next one
/// has its name.
fn replaced() {
    let mut same = 0;
    for seed in 0..20 {
        let disk = CrashDisk::new();
        let filter = create(Arc::new(disk.clone()));
        for round in 0..3 {
            insert(&filter, 100 * round..100 * round + 100);
            filter.checkpoint().expect("a checkpoint");
        }
        let left = disk.without_power(Random::new(seed));
        let snapshots = || {
            let mut names = left.names("snap-");
            names.sort_unstable();
            names
        };
        let newest = snapshots().pop().expect("a snapshot");
        let middle = left.content(&newest).len() as u64 / 2;
        left.overwrite(&newest, middle, b"damaged");
        let filter = open(Arc::new(left.clone())).expect("the older one is sound");
        filter.checkpoint().expect("a checkpoint");
        if snapshots().last() != Some(&newest) {
            continue;
        }
        same += 1;
        insert(&filter, 300..400);
        filter.checkpoint().expect("a checkpoint");
        let found = snapshots();
        assert!(found.len() == 2 && found[0] == newest, "no others are needed: {found:?}");
    }
    assert!(same > 0, "no snapshot got the name of a damaged one");
}

fn every_moment() {
    const OPERATIONS: u64 = 600;
    for seed in 0..scaled(20) {
        let mut random = Random::new(seed);
        let mut disk = CrashDisk::new();
        let keep = options().keep_log(Keep::Bytes(1 << 30)).durability(Durability::Always);
        let spec = Bloom::capacity(2000);
        let mut filter = Filter::create_on(Arc::new(disk.clone()), spec, keep).expect("a filter");
        let mut moments = Vec::new();
        for number in 0..OPERATIONS {
            insert(&filter, number..number + 1);
            // What comes behind it, such as a note, may be lost, and its LSN used again.
            moments.push((filter.durable_upto().expect("no error") - 1, value(&filter)));
            match random.below(40) {
                0 | 1 => drop(filter.checkpoint().expect("a checkpoint")),
                // A crash now, or during the next checkpoint.
                crash @ 2..=4 => {
                    if crash == 4 {
                        disk.die_after(random.below(80));
                        let _ = filter.checkpoint();
                    }
                    let left = disk.left().unwrap_or_else(|| disk.without_process());
                    let left = match random.below(2) {
                        0 => left.without_power(Random::new(random.below(u64::MAX))),
                        _ => left,
                    };
                    std::mem::forget(filter);
                    disk = left;
                    let reader = |(lsn, value): (u64, u128)| {
                        let media = Arc::new(disk.clone());
                        let past = Reader::<Any>::at_on(media, At::Lsn(lsn), options());
                        let past = past.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                        assert_eq!(past.digest().expect("one").value, value, "seed {seed}: {lsn}");
                    };
                    let any = |random: &mut Random| random.below(moments.len() as u64) as usize;
                    // Before recovery, and after it.
                    reader(moments[any(&mut random)]);
                    filter = open(Arc::new(disk.clone())).expect("it recovers");
                    (0..4).for_each(|_| reader(moments[any(&mut random)]));
                    reader(moments[0]);
                }
                _ => {}
            }
        }
    }
}

fn any_failing_call() {
    for call in 1.. {
        let media = Failing::new(Memory::new());
        let shared: Arc<dyn Media> = Arc::new(media.clone());
        let keep = options().keep_log(Keep::Bytes(64 << 10)).durability(Durability::Never);
        let spec = Bloom::capacity(2000);
        let filter = Filter::create_on(shared.clone(), spec, keep).expect("a filter");
        let mut moments = Vec::new();
        for number in 0..900 {
            insert(&filter, number..number + 1);
            let digest = filter.digest().expect("a digest");
            moments.push((digest.lsn - 1, digest.value));
            if number % 200 == 199 && number < 899 {
                filter.checkpoint().expect("a checkpoint");
            }
        }
        media.fail_after(call, ErrorKind::Other);
        let written = filter.checkpoint();
        let happened = !media.clear_faults();
        assert!(written.is_ok() || happened, "{written:?}");
        match filter.checkpoint() {
            Ok(_) | Err(Error::Poisoned { .. }) => {}
            Err(error) => panic!("call {call}: {error}"),
        }
        let from = Reader::<Any>::open_on(shared.clone(), options()).expect("a reader");
        let from = from.stat().expect("figures").kept_log_from.expect("a base");
        let at = |lsn| Reader::<Any>::at_on(shared.clone(), At::Lsn(lsn), options());
        let reached = moments.iter().filter(|(lsn, _)| *lsn >= from);
        for &(lsn, value) in reached.step_by(101) {
            let past = at(lsn).unwrap_or_else(|error| panic!("call {call}: {error}"));
            assert_eq!(past.digest().expect("one").value, value, "call {call}: {lsn}");
        }
        if !happened {
            assert!(call > 20, "only {call} calls");
            break;
        }
    }
}

fn broken_batch() {
    let disk = CrashDisk::new();
    let filter = create(Arc::new(disk.clone()));
    insert(&filter, 0..3);
    let mut batch = filter.batch();
    for key in 10..15_u64 {
        let time = Timestamp::from_unix_micros(77);
        batch.insert_entry(&Entry::new(key.to_le_bytes()).time(time)).expect("room");
    }
    batch.commit().expect("a commit");
    let killed = disk.without_process();
    // Its last record was not written.
    killed.unpublish(77);
    let hash = |key: u64| filter.key_hash(key.to_le_bytes());
    let found = |media: &CrashDisk| -> Vec<u64> {
        let history = History::open_on(Arc::new(media.clone())).expect("a filter");
        let commits = history.with_undurable().map(|commit| commit.expect("no error"));
        let operations = commits.flat_map(|commit| commit.operations);
        let inserted = |change: Change| match change {
            Change::Insert { hash, .. } => hash,
            other => panic!("{other:?}"),
        };
        operations.map(|operation| inserted(operation.change)).collect()
    };
    let before: Vec<u64> = (0..3).map(hash).collect();
    assert_eq!(found(&disk), (0..3).chain(10..15).map(hash).collect::<Vec<_>>());
    assert_eq!(found(&killed), before, "before recovery");
    let after = open(Arc::new(killed.clone())).expect("it recovers");
    insert(&after, 20..21);
    assert_eq!(found(&killed), [before, vec![hash(20)]].concat(), "and after it");
}
