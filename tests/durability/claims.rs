//! Single claims about syncs, cuts and deaths.

use ebbtide::media::{Media, Memory};
use ebbtide::{
    AgePartitioned, Bloom, Clock, Durability, Error, Filter, Options, Timestamp, inspect,
};
use ebbtide_testkit::crash::choices::{Chooser, Detail};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::fault::{Fault, Plan};
use ebbtide_testkit::crash::tape::Tape;
use ebbtide_testkit::failing::Failing;
use ebbtide_testkit::random::Random;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A longer wait means that something hangs.
const HANG: Duration = Duration::from_secs(60);

/// All claims.
pub const ALL: [(&str, fn()); 19] = [
    (
        "a_file_that_a_creator_left_is_not_called_foreign_because_another_one_cannot_be_opened",
        a_file_that_a_creator_left_is_not_called_foreign_because_another_one_cannot_be_opened,
    ),
    (
        "after_a_failed_sync_every_write_is_refused_and_reads_work_until_reopened",
        after_a_failed_sync_every_write_is_refused_and_reads_work_until_reopened,
    ),
    ("a_failed_sync_fails_every_waiting_caller", a_failed_sync_fails_every_waiting_caller),
    ("concurrent_durable_inserts_share_syncs", concurrent_durable_inserts_share_syncs),
    (
        "a_durable_answer_present_waits_for_the_record_it_depends_on",
        a_durable_answer_present_waits_for_the_record_it_depends_on,
    ),
    (
        "while_a_sync_is_under_way_nothing_more_counts_as_durable",
        while_a_sync_is_under_way_nothing_more_counts_as_durable,
    ),
    (
        "at_an_interval_inserts_become_durable_without_a_request",
        at_an_interval_inserts_become_durable_without_a_request,
    ),
    (
        "after_a_process_died_an_empty_slot_below_the_durable_end_is_damage",
        after_a_process_died_an_empty_slot_below_the_durable_end_is_damage,
    ),
    (
        "after_a_process_died_the_empty_slot_of_its_writer_is_skipped",
        after_a_process_died_the_empty_slot_of_its_writer_is_skipped,
    ),
    (
        "a_wrong_record_below_the_tail_of_a_process_that_died_is_damage",
        a_wrong_record_below_the_tail_of_a_process_that_died_is_damage,
    ),
    (
        "a_power_cut_loses_no_more_than_was_not_synced",
        a_power_cut_loses_no_more_than_was_not_synced,
    ),
    (
        "a_checkpoint_is_never_ahead_of_the_durable_log",
        a_checkpoint_is_never_ahead_of_the_durable_log,
    ),
    (
        "recovered_records_are_durable_before_anything_is_built_on_them",
        recovered_records_are_durable_before_anything_is_built_on_them,
    ),
    (
        "a_failed_backup_leaves_no_files_and_can_be_repeated_there",
        a_failed_backup_leaves_no_files_and_can_be_repeated_there,
    ),
    (
        "snapshots_that_cannot_be_read_for_a_while_are_not_removed",
        snapshots_that_cannot_be_read_for_a_while_are_not_removed,
    ),
    (
        "where_a_creator_died_and_the_power_failed_a_filter_can_be_opened_or_created",
        where_a_creator_died_and_the_power_failed_a_filter_can_be_opened_or_created,
    ),
    (
        "where_creating_failed_and_the_power_failed_a_filter_can_be_opened_or_created",
        where_creating_failed_and_the_power_failed_a_filter_can_be_opened_or_created,
    ),
    (
        "a_segment_whose_creator_failed_is_durable_before_it_is_used",
        a_segment_whose_creator_failed_is_durable_before_it_is_used,
    ),
    (
        "a_snapshot_whose_name_may_be_lost_replaces_no_log",
        a_snapshot_whose_name_may_be_lost_replaces_no_log,
    ),
];

/// Options with small segments, without background work.
pub fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .stripes(4)
        .block_bytes(512)
        .segment_bytes(4 << 10)
        .clock(Clock::stream())
        .background(false)
}

pub fn always() -> Options {
    options().durability(Durability::Always)
}

pub fn create(disk: &CrashDisk, options: Options) -> Filter<Bloom> {
    let spec = Bloom::capacity(10_000).fpr(1e-6);
    Filter::create_on(Arc::new(disk.clone()), spec, options).expect("a filter on the crash disk")
}

pub fn reopen(disk: &CrashDisk) -> Result<Filter<Bloom>, Error> {
    Filter::open_on(Arc::new(disk.clone()), options())
}

fn after_a_failed_sync_every_write_is_refused_and_reads_work_until_reopened() {
    let disk = CrashDisk::new();
    let filter = create(&disk, always());
    filter.insert("before").expect("the disk is sound");
    disk.fail_next_log_sync();
    let refused =
        |result: Result<bool, Error>| assert!(matches!(result, Err(Error::Poisoned { .. })));
    refused(filter.insert("during"));
    // The disk works again, but its content is unknown.
    let never = filter.call().durability(Durability::Never);
    for _ in 0..3 {
        refused(filter.insert("after"));
        refused(never.insert("after"));
        let checked = filter.check_and_insert("after");
        assert!(matches!(checked, Err(Error::Poisoned { .. })));
        assert!(matches!(filter.sync(), Err(Error::Poisoned { .. })));
        assert!(matches!(filter.checkpoint(), Err(Error::Poisoned { .. })));
        assert!(filter.contains("before").expect("reads work"));
        assert!(!filter.contains("after").expect("reads work"));
    }
    assert!(matches!(filter.close(), Err(Error::Poisoned { .. })));
    let filter = reopen(&disk).expect("recovery");
    assert!(filter.contains("before").expect("a query"));
    assert!(!filter.contains("after").expect("a query"));
    filter.insert("after").expect("a new handle writes again");
    filter.close().expect("a sound disk");
}

fn a_failed_sync_fails_every_waiting_caller() {
    let disk = CrashDisk::new();
    let filter = create(&disk, always());
    let failed: usize = std::thread::scope(|scope| {
        disk.hold_log_syncs(true);
        let insert = |thread: u64| filter.insert(thread.to_le_bytes());
        let waiting: Vec<_> = (0..8).map(|thread| scope.spawn(move || insert(thread))).collect();
        wait_until(|| {
            (0..8_u64).all(|thread| filter.contains(thread.to_le_bytes()).expect("a query"))
        });
        // The held sync succeeds; callers that came after it began wait for the next, which fails.
        disk.fail_next_log_sync();
        disk.hold_log_syncs(false);
        let ended = waiting.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.filter(|result| matches!(result, Err(Error::Poisoned { .. }))).count()
    });
    // The leader's sync may have covered all of them if it began last; then the next sync fails.
    let refused = filter.insert("one more");
    assert!(matches!(refused, Err(Error::Poisoned { .. })), "{failed} failed before");
}

fn concurrent_durable_inserts_share_syncs() {
    const ROUNDS: u64 = 20;
    let disk = CrashDisk::new();
    let filter = create(&disk, always().segment_bytes(1 << 20));
    let before = disk.log_syncs();
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            disk.hold_log_syncs(true);
            let key = |thread: u64| (round * 8 + thread).to_le_bytes();
            for thread in 0..8 {
                let filter = &filter;
                scope.spawn(move || filter.insert(key(thread)).expect("an insert"));
            }
            wait_until(|| (0..8).all(|thread| filter.contains(key(thread)).expect("a query")));
            disk.hold_log_syncs(false);
        });
    }
    let syncs = disk.log_syncs() - before;
    // All eight have their LSN before the first sync ends, so the next leader syncs for all the
    // others; all records lie in one segment. On a busy machine the first leader may appear stopped
    // and be overtaken, and the second too.
    assert!(syncs <= 4 * ROUNDS, "{syncs} syncs for {} inserts", 8 * ROUNDS);
    assert!(syncs >= ROUNDS, "{syncs} syncs for {ROUNDS} rounds that each waited for one");
}

/// Waits for other threads; the test harness limits the time.
fn wait_until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

fn a_durable_answer_present_waits_for_the_record_it_depends_on() {
    use ebbtide::{Checked, Since};
    let disk = CrashDisk::new();
    let filter = create(&disk, options().durability(Durability::Never));
    filter.insert("key").expect("an insert");
    let call = filter.call().since(Since::LastAccepted);
    let checked = call.durability(Durability::Always).check_and_insert("key");
    assert_eq!(checked.expect("an answer"), Checked::Present);
    for seed in 0..20 {
        let left = disk.without_power(Random::new(seed));
        let filter = reopen(&left).expect("recovery");
        assert!(filter.contains("key").expect("a query"), "seed {seed}");
    }
}

fn while_a_sync_is_under_way_nothing_more_counts_as_durable() {
    let disk = CrashDisk::new();
    let filter = create(&disk, always());
    filter.insert("before").expect("an insert");
    let durable = || filter.stat().expect("figures").durable_lsn;
    let (before, syncs) = (durable(), disk.log_syncs());
    disk.hold_log_syncs(true);
    let during = std::thread::scope(|scope| {
        scope.spawn(|| filter.insert("during").expect("an insert"));
        wait_until(|| disk.log_syncs() > syncs);
        let during = durable();
        disk.hold_log_syncs(false);
        during
    });
    assert_eq!(during, before);
    assert!(durable() > before);
}

fn at_an_interval_inserts_become_durable_without_a_request() {
    let disk = CrashDisk::new();
    let every = Durability::Interval(Duration::from_millis(1));
    let filter = create(&disk, options().durability(every).background(true));
    for key in 0..100_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    // The last durable note need not be durable, so LSNs do not say when the inserts are.
    let begun = Instant::now();
    let holds = |seed| {
        let found = reopen(&disk.without_power(Random::new(seed))).expect("recovery");
        found.digest().expect("a digest").inserts == 100
    };
    while !(0..20).all(holds) {
        assert!(begun.elapsed() < HANG, "no sync within the limit");
    }
}

/// Returns the segment and offset of an LSN in the last timeline of a disk whose segments hold 128
/// records.
fn place(disk: &CrashDisk, lsn: u64) -> (String, u64) {
    let log = disk.names("wal-");
    let first = |name: &str| name.rsplit('-').next().and_then(|first| first.parse().ok());
    let name = log.iter().rev().find(|name| first(name).is_some_and(|first: u64| first <= lsn));
    let name = name.expect("a segment").clone();
    let offset = 4096 + 32 * (lsn - first(&name).expect("a number"));
    (name, offset)
}

fn after_a_process_died_an_empty_slot_below_the_durable_end_is_damage() {
    let disk = CrashDisk::new();
    let filter = create(&disk, options().durability(Durability::Never));
    for key in 0..100_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    // The device may have lost any part of the log that was not durable: the log ends there.
    let killed = disk.without_process();
    let (name, offset) = place(&killed, 50);
    killed.overwrite(&name, offset, &[0; 32]);
    let found = reopen(&killed).expect("recovery").digest().expect("a digest").inserts;
    assert!((40..50).contains(&found), "{found} inserts before record 50");
    filter.sync().expect("a sync");
    let killed = disk.without_process();
    let (name, offset) = place(&killed, 50);
    killed.overwrite(&name, offset, &[0; 32]);
    let Err(Error::Damaged { path, offset: at, .. }) = reopen(&killed) else {
        panic!("a durable record is missing without an error");
    };
    assert!(path.ends_with(&name) && at == offset, "{path:?} {at}");
}

fn after_a_process_died_the_empty_slot_of_its_writer_is_skipped() {
    let disk = CrashDisk::new();
    let filter = create(&disk, options().durability(Durability::Never));
    for key in 0..100_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    let killed = disk.without_process();
    let (name, offset) = place(&killed, 50);
    killed.overwrite(&name, offset, &[0; 32]);
    // The lock word of the first ordinary stripe, held by slot 0: the second entry of the table at
    // word 256.
    killed.overwrite("live", 8 * (256 + 8), &2_u64.to_le_bytes());
    // The recovering process dies, too, so that the next one reads the same log.
    let mut left = killed;
    for _ in 0..3 {
        let filter = reopen(&left).expect("recovery");
        assert_eq!(filter.digest().expect("a digest").inserts, 99);
        left = left.without_process();
    }
}

fn a_wrong_record_below_the_tail_of_a_process_that_died_is_damage() {
    let disk = CrashDisk::new();
    let filter = create(&disk, options().durability(Durability::Never));
    for key in 0..300_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    for lsn in [1, 128, 129, 300] {
        let killed = disk.without_process();
        let (name, offset) = place(&killed, lsn);
        let byte = killed.content(&name)[offset as usize + 3] ^ 0x10;
        killed.overwrite(&name, offset + 3, &[byte]);
        let Err(Error::Damaged { path, offset: at, .. }) = reopen(&killed) else {
            panic!("record {lsn} is damaged without an error");
        };
        assert!(path.ends_with(&name) && at == offset, "{path:?} {at}");
        let report = inspect::verify_on(&killed).expect("a report");
        assert!(!report.is_sound(), "record {lsn}");
    }
}

fn a_power_cut_loses_no_more_than_was_not_synced() {
    let disk = CrashDisk::new();
    let spec = AgePartitioned::last(100);
    let filter =
        Filter::create_on(Arc::new(disk.clone()), spec, options().durability(Durability::Never))
            .expect("a filter");
    let time = Timestamp::from_unix_millis(5);
    for key in 0..500_u64 {
        filter.call().time(time).insert(key.to_le_bytes()).expect("an insert");
    }
    filter.sync().expect("a sync");
    let synced = filter.digest().expect("a digest");
    for seed in 0..20 {
        let left = disk.without_power(Random::new(seed));
        let filter: Filter<AgePartitioned> =
            Filter::open_on(Arc::new(left), options()).expect("recovery");
        assert_eq!(filter.digest().expect("a digest").value, synced.value, "seed {seed}");
    }
}

fn a_checkpoint_is_never_ahead_of_the_durable_log() {
    for seed in 0..40 {
        let disk = CrashDisk::new();
        let filter = create(&disk, options().durability(Durability::Never));
        for key in 0..300_u64 {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
        let left = disk.without_power(Random::new(seed));
        // The snapshot may turn out to be damaged: then the log leads to the same state.
        if seed % 2 == 0 {
            let name = left.names("snap-").pop().expect("a snapshot");
            left.overwrite(&name, 4096, &[0xFF; 8]);
        }
        let found = reopen(&left).expect("recovery");
        let inserts = found.digest().expect("a digest").inserts;
        assert_eq!(inserts, 300, "seed {seed}");
    }
}

fn recovered_records_are_durable_before_anything_is_built_on_them() {
    for seed in 0..40 {
        let disk = CrashDisk::new();
        let filter = create(&disk, options().durability(Durability::Never));
        for key in 0..300_u64 {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
        // The process dies before any sync.
        let killed = disk.without_process();
        let filter = reopen(&killed).expect("recovery");
        let call = filter.call().durability(Durability::Always);
        call.insert("durable").expect("an insert");
        let left = killed.without_power(Random::new(seed));
        let found = reopen(&left).expect("recovery");
        let inserts = found.digest().expect("a digest").inserts;
        assert_eq!(inserts, 301, "seed {seed}");
    }
}

fn a_failed_backup_leaves_no_files_and_can_be_repeated_there() {
    let disk = CrashDisk::new();
    let filter = create(&disk, options().durability(Durability::Never));
    for key in 0..300_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    let home = tempfile::tempdir().expect("a temporary directory");
    let copy = home.path().join("copy");
    // The copy of the state is complete by then; the log cannot be made durable through its end.
    disk.fail_next_log_sync();
    let refused = filter.backup(&copy);
    assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    let left: Vec<_> = std::fs::read_dir(&copy)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["lock"], "`lock` is empty and is never removed");
    drop(filter);
    let filter = reopen(&disk).expect("recovery");
    filter.backup(&copy).expect("a backup in the same place");
    let found: Filter<Bloom> = Filter::open(&copy, options()).expect("the backup opens");
    let [found, before] = [&found, &filter].map(|filter| filter.digest().expect("a digest"));
    assert_eq!((found.value, found.inserts), (before.value, before.inserts));
}

fn snapshots_that_cannot_be_read_for_a_while_are_not_removed() {
    let disk = CrashDisk::new();
    let filter = create(&disk, options().durability(Durability::Never));
    let insert = |key: u64| assert!(filter.insert(key.to_le_bytes()).expect("an insert"));
    for round in 0..2 {
        (round * 300..(round + 1) * 300).for_each(insert);
        filter.checkpoint().expect("a checkpoint");
    }
    (600..900).for_each(insert);
    // Every read returns a wrong bit: all snapshots look damaged. The log before the first of them
    // is already removed.
    disk.plan(Some(Plan::new(Fault::BitFlip, 1, true)));
    filter.checkpoint().expect("a checkpoint does not depend on reads");
    disk.plan(None);
    let found = reopen(&disk.without_process()).expect("recovery");
    assert_eq!(found.digest().expect("a digest").inserts, 900);
}

fn where_a_creator_died_and_the_power_failed_a_filter_can_be_opened_or_created() {
    for calls in 0.. {
        let disk = CrashDisk::new();
        disk.die_after(calls);
        drop(create(&disk, always()));
        let Some(killed) = disk.left() else {
            assert!(calls > 40, "creating takes more calls than {calls}");
            return;
        };
        // The next process on the living kernel opens files that may not be durable, or creates the
        // filter again.
        let next = reopen(&killed).or_else(|_| {
            let spec = Bloom::capacity(10_000).fpr(1e-6);
            Filter::create_on(Arc::new(killed.clone()), spec, always())
        });
        let (tape, _ended) = (killed.end(), next.expect("nothing is damaged"));
        all_cuts_leave_a_filter_or_none(&tape, &format!("died at call {calls}"));
    }
}

fn a_file_that_a_creator_left_is_not_called_foreign_because_another_one_cannot_be_opened() {
    for call in 1.. {
        let media = Failing::new(Memory::new());
        media.inner().make().expect("a directory");
        media.inner().create("lock", 0).expect("a file");
        // After a power cut its content is anything.
        let left = media.inner().create("live-000002-0000", 64).expect("a file");
        left.write_at(&[7; 64], 0).expect("space");
        media.fail_after(call, ErrorKind::Other);
        let spec = Bloom::capacity(1000);
        let made = Filter::create_on(Arc::new(media.clone()), spec, always().background(false));
        if media.clear_faults() {
            assert!(made.is_ok() && call > 20, "{made:?} after {call} calls");
            return;
        }
        let error = made.err();
        assert!(!matches!(error, Some(Error::Occupied { .. })), "call {call}: {error:?}");
    }
}

/// Cuts the power at every moment, with all results: no file is ever damaged.
fn all_cuts_leave_a_filter_or_none(tape: &Arc<Tape>, what: &str) {
    for at in tape.fullest() {
        let by = Chooser::first(Detail::Subsets).shared();
        loop {
            let left = CrashDisk::after_cut(tape, at, &by, false);
            let opened = reopen(&left);
            let fine = matches!(opened, Ok(_) | Err(Error::NotAFilter { .. }));
            assert!(fine, "{what}, cut at {at}: {opened:?}");
            left.end();
            if !by.lock().advance() {
                break;
            }
        }
    }
}

fn where_creating_failed_and_the_power_failed_a_filter_can_be_opened_or_created() {
    let faults = [(Fault::InputOutput, false), (Fault::DirectorySyncFails, true)];
    for (fault, sticky) in faults {
        for call in 1.. {
            let disk = CrashDisk::new();
            disk.plan(Some(Plan::new(fault, call, sticky)));
            let spec = Bloom::capacity(10_000).fpr(1e-6);
            let create = || Filter::create_on(Arc::new(disk.clone()), spec.clone(), always());
            let created = create().or_else(|_| create());
            let struck = disk.plan(None).is_some_and(|plan| plan.has_struck());
            let (tape, _ended) = (disk.end(), created);
            all_cuts_leave_a_filter_or_none(&tape, &format!("{fault:?} at call {call}"));
            if !struck {
                break;
            }
        }
    }
}

/// Ends the use of a disk, and checks what power cuts now leave of the filter.
fn power_cuts_lose_nothing_durable(disk: &CrashDisk, filter: Filter<Bloom>, cuts: u64, what: &str) {
    let durable = disk.told().durable[0];
    let (tape, _ended) = (disk.end(), filter);
    for seed in 0..cuts {
        let by = Chooser::chance(Random::new(tape.now << 8 | seed)).shared();
        let left = CrashDisk::after_cut(&tape, tape.now, &by, false);
        let opened = reopen(&left);
        let filter = opened.unwrap_or_else(|error| panic!("{what}, seed {seed}: {error}"));
        let found = filter.digest().expect("a digest").inserts;
        assert!(found >= durable, "{what}, seed {seed}: {found} of {durable}");
        left.end();
    }
}

fn a_segment_whose_creator_failed_is_durable_before_it_is_used() {
    const KEYS: u64 = 300;
    let mut failed = 0;
    for fault in [Fault::DirectorySyncFails, Fault::DoneAndFailed] {
        for call in 1.. {
            let disk = CrashDisk::new();
            let filter = create(&disk, always());
            disk.plan(Some(Plan::new(fault, call, false)));
            let insert = |key: u64| filter.insert(key.to_le_bytes());
            for key in 0..KEYS {
                if let Err(error) = insert(key) {
                    if matches!(error, Error::Poisoned { .. }) {
                        break;
                    }
                    failed += 1;
                    insert(key).expect("it fails once");
                }
                disk.tell_durable(0, key + 1, &[]);
            }
            let struck = disk.plan(None).is_some_and(|plan| plan.has_struck());
            power_cuts_lose_nothing_durable(&disk, filter, 8, &format!("{fault:?} at call {call}"));
            if !struck {
                break;
            }
        }
    }
    assert!(failed > 3, "{failed} inserts had to be repeated");
}

fn a_snapshot_whose_name_may_be_lost_replaces_no_log() {
    const KEYS: u64 = 600;
    let mut refused = 0;
    for call in 1.. {
        let disk = CrashDisk::new();
        let filter = create(&disk, always());
        disk.plan(Some(Plan::new(Fault::DirectorySyncFails, call, false)));
        for key in 0..KEYS {
            if filter.insert(key.to_le_bytes()).is_ok() {
                disk.tell_durable(0, key + 1, &[]);
            }
            if key % 100 == 99 {
                // The second one removes what the first one has replaced, if it may.
                let checkpoints = [filter.checkpoint(), filter.checkpoint()];
                let poisoned = checkpoints.map(|it| matches!(it, Err(Error::Poisoned { .. })));
                refused += poisoned.iter().filter(|&&it| it).count();
            }
        }
        let struck = disk.plan(None).is_some_and(|plan| plan.has_struck());
        power_cuts_lose_nothing_durable(&disk, filter, 16, &format!("call {call}"));
        if !struck {
            break;
        }
    }
    assert!(refused > 6, "{refused} checkpoints were refused");
}
