//! Tightly planned disks: a filter continues in the space that only a damaged filter would need.

use ebbtide::history::{At, History, Unlogged};
use ebbtide::media::{Access, Disk, Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Bloom, Claim, Clock, Code, Error, Filter, Keep, ManualClock, Options,
    Parameters, Reader, Spectral, TimeLimited, Timestamp, inspect,
};
use ebbtide_testkit::mount::mounted;
use ebbtide_testkit::space::{digest, options, shared, spec, used};
use std::time::Duration;

fn made(memory: &Memory) -> Filter<AgePartitioned> {
    Filter::create_on(shared(memory), spec(), options()).expect("room")
}

fn opened(memory: &Memory) -> Result<Filter, Error> {
    Filter::open_on(shared(memory), options())
}

fn insert<K>(filter: &Filter<K>, keys: std::ops::Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("space");
    }
}

/// Inserts keys from 0 on until there is no space; returns how many succeeded.
fn fill<K>(filter: &Filter<K>) -> u64 {
    let failed = (0_u64..).find(|key| filter.insert(key.to_le_bytes()).is_err());
    failed.expect("a disk has an end")
}

fn assert_full<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.expect_err("no space");
    assert!(error.is_full() && error.to_string().contains("nothing is lost"), "{error}");
}

fn names(memory: &dyn Media, start: &str) -> Vec<String> {
    let mut names = memory.list().expect("a directory");
    names.retain(|name| name.starts_with(start));
    names.sort();
    names
}

/// Returns the files as they are when every process of the filter is killed, on a disk without free
/// space.
fn killed(memory: &Memory) -> Memory {
    let copy = Memory::new();
    copy.make().expect("memory can be made");
    for name in memory.list().expect("a directory") {
        let file = memory.open(&name, Access::Read).expect("a file");
        let mut bytes = vec![0; file.bytes().expect("a length") as usize];
        file.read_at(&mut bytes, 0).expect("its bytes");
        let file = copy.create(&name, bytes.len() as u64).expect("memory is large");
        file.write_at(&bytes, 0).expect("memory is large");
    }
    copy.set_capacity(used(&copy));
    copy
}

/// Flips a bit at the end of a file.
fn damage(memory: &Memory, name: &str) {
    let file = memory.open(name, Access::Write).expect("a file");
    let (mut byte, at) = ([0], file.bytes().expect("a length") - 1);
    file.read_at(&mut byte, at).and_then(|()| file.write_at(&[byte[0] ^ 1], at)).expect("bytes");
}

/// Creates a filter with this many snapshots, some log after each, and no free space.
fn filled(memory: &Memory, snapshots: u64) -> Filter<AgePartitioned> {
    let filter = made(memory);
    for round in 0..snapshots {
        insert(&filter, round * 2000..(round + 1) * 2000);
        filter.checkpoint().expect("room");
    }
    insert(&filter, 9000..9300);
    memory.set_capacity(used(memory));
    filter
}

fn assert_survives(memory: &Memory, filter: Filter<AgePartitioned>) {
    let before = digest(&filter);
    assert!(inspect::verify_on(memory).expect("a report").is_sound());
    drop(filter);
    memory.set_capacity(u64::MAX);
    let filter = opened(memory).expect("the same filter");
    assert_eq!(digest(&filter).value, before.value);
    filter.close().expect("a clean end");
    assert!(inspect::verify_on(memory).expect("a report").is_sound());
}

#[test]
fn without_space_a_checkpoint_overwrites_the_oldest_snapshot() {
    let memory = Memory::new();
    let filter = filled(&memory, 2);
    let before = names(&memory, "snap-");
    // The changes since then may take a little more.
    memory.set_capacity(used(&memory) + 4096);
    let start = filter.checkpoint().expect("the space of the oldest snapshot");
    let after = names(&memory, "snap-");
    assert_eq!(after, [before[1].clone(), format!("snap-{start:016}")]);
    assert_eq!(names(&memory, "tmp-"), [""; 0]);
    assert_survives(&memory, filter);
}

#[test]
fn no_snapshot_is_overwritten_if_the_newer_one_is_damaged() {
    let memory = Memory::new();
    let filter = filled(&memory, 2);
    let before = names(&memory, "snap-");
    damage(&memory, &before[1]);
    assert_full(filter.checkpoint());
    assert_eq!(names(&memory, "snap-"), before);
    let before = digest(&filter);
    drop(filter);
    memory.set_capacity(u64::MAX);
    let filter = opened(&memory).expect("the older one is sound");
    assert_eq!(digest(&filter).value, before.value);
}

#[test]
fn without_space_the_log_below_a_single_snapshot_is_removed() {
    let memory = Memory::new();
    let filter = made(&memory);
    insert(&filter, 0..2000);
    filter.checkpoint().expect("room");
    insert(&filter, 2000..2300);
    memory.set_capacity(used(&memory));
    let log = names(&memory, "wal-").len();
    filter.checkpoint().expect("space for log is space for a snapshot");
    assert_eq!(names(&memory, "snap-").len(), 2);
    assert!(names(&memory, "wal-").len() + 10 < log);
    assert_survives(&memory, filter);
}

#[test]
fn without_an_intact_snapshot_a_checkpoint_fails_and_the_log_stays() {
    for snapshots in 0..2 {
        let memory = Memory::new();
        let filter = filled(&memory, snapshots);
        names(&memory, "snap-").iter().for_each(|name| damage(&memory, name));
        let before = (names(&memory, "snap-"), names(&memory, "wal-"));
        assert_full(filter.checkpoint());
        assert_eq!((names(&memory, "snap-"), names(&memory, "wal-")), before);
        let before = digest(&filter);
        drop(filter);
        memory.set_capacity(u64::MAX);
        let filter = opened(&memory).expect("the log is whole");
        assert_eq!(digest(&filter).value, before.value);
    }
}

#[test]
fn a_filter_that_died_on_a_full_disk_opens_and_works_there() {
    for snapshots in 1..4 {
        let memory = Memory::new();
        let filter = filled(&memory, snapshots);
        let keys = fill(&filter);
        let before = digest(&filter);
        let memory = killed(&memory);
        let filter = opened(&memory).expect("the newest snapshot and the log since are enough");
        assert_eq!(digest(&filter).value, before.value, "{snapshots} snapshots, {keys} keys");
        insert(&filter, 5000..5100);
        let before = digest(&filter);
        drop(filter);
        memory.set_capacity(u64::MAX);
        assert_eq!(digest(&opened(&memory).expect("the same filter")).value, before.value);
        assert!(inspect::verify_on(&memory).expect("a report").is_sound());
    }
}

#[test]
fn a_filter_without_a_snapshot_that_died_on_a_full_disk_opens_in_the_space_of_its_log() {
    let memory = Memory::new();
    let filter = made(&memory);
    // Several times as much log as the image needs.
    insert(&filter, 0..4000);
    memory.set_capacity(used(&memory));
    let keys = fill(&filter);
    let before = digest(&filter);
    let memory = killed(&memory);
    let log = names(&memory, "wal-").len();
    let filter = opened(&memory).expect("the log is whole");
    assert_eq!(digest(&filter).value, before.value, "{keys} keys");
    assert!(names(&memory, "wal-").len() < log && !names(&memory, "snap-").is_empty());
    insert(&filter, 5000..5100);
    let before = digest(&filter);
    drop(filter);
    memory.set_capacity(u64::MAX);
    assert_eq!(digest(&opened(&memory).expect("the same filter")).value, before.value);
    assert!(inspect::verify_on(&memory).expect("a report").is_sound());
}

#[test]
fn leases_and_the_time_are_not_those_of_the_wall_clock_after_opening_in_the_space_of_the_log() {
    const HOUR: Duration = Duration::from_secs(3600);
    let start = Timestamp::from_unix_millis(1_000_000);
    let clock = ManualClock::new(start);
    let options = || options().clock(Clock::from(clock.clone()));
    let memory = Memory::new();
    let spec = TimeLimited::window(HOUR);
    let filter = Filter::create_on(shared(&memory), spec, options()).expect("room");
    let Claim::Yours(lease) = filter.claim("claimed", HOUR).expect("an answer") else {
        panic!("nobody else has it")
    };
    let token = lease.into_token();
    insert(&filter, 0..4000);
    memory.set_capacity(used(&memory));
    fill(&filter);
    drop(filter);
    memory.set_capacity(used(&memory));
    let log = names(&memory, "wal-").len();
    // No time passes.
    clock.set_wall(start + 2 * HOUR);
    let filter: Filter = Filter::open_on(shared(&memory), options()).expect("the log is whole");
    assert!(names(&memory, "wal-").len() < log && !names(&memory, "snap-").is_empty());
    assert!(filter.contains(7_u64.to_le_bytes()).expect("an answer"), "its hour is not over");
    let again = filter.claim("claimed", HOUR).expect("an answer");
    assert!(matches!(again, Claim::InProgress { .. }), "{again:?}");
    filter.resume_claim("claimed", token).confirm().expect("it is held");
    clock.advance(2 * HOUR);
    assert!(!filter.contains(7_u64.to_le_bytes()).expect("an answer"));
}

#[test]
fn a_damaged_newest_snapshot_keeps_the_older_one_when_opened_on_a_full_disk() {
    let memory = Memory::new();
    let filter = filled(&memory, 2);
    fill(&filter);
    let before = digest(&filter);
    let memory = killed(&memory);
    let snapshots = names(&memory, "snap-");
    damage(&memory, &snapshots[1]);
    assert_full(opened(&memory));
    assert_eq!(names(&memory, "snap-"), snapshots);
    memory.set_capacity(u64::MAX);
    assert_eq!(digest(&opened(&memory).expect("the older one")).value, before.value);
}

#[test]
fn with_snapshots_close_together_writers_continue_in_the_space_of_the_older_one() {
    // Threads take part, so that each round is another order of events.
    (0..50).for_each(|_| continue_in_the_space_of_the_older_one());
}

fn continue_in_the_space_of_the_older_one() {
    let memory = Memory::new();
    let options = options().background(true).checkpoint_bytes(1 << 40);
    let filter = Filter::create_on(shared(&memory), spec(), options).expect("room");
    insert(&filter, 0..1000);
    for key in 1000..1002 {
        insert(&filter, key..key + 1);
        filter.checkpoint().expect("room");
    }
    memory.set_capacity(used(&memory) + 10 * 8192);
    insert(&filter, 1002..20_000);
    let before = digest(&filter);
    assert_eq!(before.inserts, 20_000);
    drop(filter);
    memory.set_capacity(u64::MAX);
    assert_eq!(digest(&opened(&memory).expect("the same filter")).value, before.value);
}

#[test]
fn growing_counters_use_the_space_of_removed_log() {
    let memory = Memory::new();
    let spec = Any::new("dynamic-count", Parameters::new().with("capacity", 20_000));
    let options = options().background(true).checkpoint_bytes(1 << 40);
    let filter = Filter::create_on(shared(&memory), spec, options).expect("room");
    insert(&filter, 0..2000);
    filter.checkpoint().expect("room");
    insert(&filter, 2000..5000);
    filter.checkpoint().expect("room");
    memory.set_capacity(used(&memory));
    let heavy = |key: u64| filter.call().times(1 << 12).insert(key.to_le_bytes());
    (0..20).for_each(|key| assert!(heavy(key).expect("the log below the newest snapshot")));
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn a_filter_whose_snapshot_has_no_space_is_refused_unless_its_blocks_grow() {
    const KEYS: u64 = 5_000_000;
    mounted(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"], |place| {
        let options = Options::new().hash_seed(7);
        let (fixed, growing) = (place.join("fixed"), place.join("growing"));
        let refused = Filter::create(&fixed, Bloom::capacity(KEYS), options.clone()).map(drop);
        assert!(refused.is_err_and(|error| error.is_full()));
        let filter = Filter::create(&growing, Spectral::capacity(KEYS), options.clone());
        let filter = filter.expect("it takes what is in it");
        insert(&filter, 0..100);
        filter.close().expect("room for a small snapshot");
        let left = Filter::<Any>::open(&fixed, options).map(drop);
        assert!(matches!(left, Err(Error::NotAFilter { .. })), "{left:?}");
    });
}

/// On a real file system, because mapped or open files take space there even without a name.
#[test]
fn threads_write_without_limit_on_a_disk_of_five_times_the_memory() {
    let tmpfs = ["-t", "tmpfs", "-o", "size=8m", "tmpfs"];
    mounted(&tmpfs, |place| on_tight_disk(&place.join("filter")));
}

/// On a tmpfs each name takes of the limit of files: 12 are enough for what recovery needs.
#[test]
fn where_the_disk_refuses_names_what_recovery_does_not_need_goes_before_an_insert_fails() {
    for names in 12..24 {
        let limit = format!("size=16m,nr_inodes={names}");
        mounted(&["-t", "tmpfs", "-o", &limit, "tmpfs"], |place| {
            let dir = place.join("filter");
            let kept = options().keep_log(Keep::Bytes(1 << 30)).segment_bytes(4 << 10);
            let filter = Filter::create(&dir, spec(), kept).expect("room");
            for round in 0..30 {
                insert(&filter, round * 100..(round + 1) * 100);
                filter.checkpoint().unwrap_or_else(|error| panic!("{names} {round}: {error}"));
                filter.sync().expect("space");
                let stat = filter.stat().expect("figures");
                // What is kept has no gap.
                let from = stat.kept_log_from.unwrap_or(stat.durable_lsn);
                for lsn in (from..stat.durable_lsn).step_by(60) {
                    let past = Reader::<Any>::at(&dir, At::Lsn(lsn), options());
                    past.unwrap_or_else(|error| panic!("{names} {round} {from} {lsn}: {error}"));
                }
            }
            let before = digest(&filter);
            drop(filter);
            let filter = Filter::<Any>::open(&dir, options()).expect("room");
            assert_eq!(digest(&filter).value, before.value, "{names} names");
        });
    }
}

fn on_tight_disk(home: &std::path::Path) {
    const MEMORY: u64 = 1_600_000;
    let options = Options::new().hash_seed(7).segment_bytes(128 << 10).checkpoint_bytes(MEMORY);
    let filter = Filter::create(home, AgePartitioned::last(400_000), options.clone());
    let filter = filter.expect("room");
    let memory = filter.stat().expect("figures").memory_bytes;
    assert!((MEMORY - 400_000..=MEMORY).contains(&memory), "{memory} bytes in 8 MiB");
    // Twenty times as much log as fits there.
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let filter = &filter;
            scope.spawn(move || insert(filter, thread << 32..(thread << 32) + 1_700_000));
        }
    });
    let before = digest(&filter);
    assert_eq!(before.inserts, 5_100_000);
    drop(filter);
    let filter = Filter::<Any>::open(home, options).expect("the same filter");
    assert_eq!(digest(&filter).value, before.value);
    filter.close().expect("a clean end");
    assert!(inspect::verify_on(&Disk::new(home)).expect("a report").is_sound());
}

/// Creates a filter that was altered, with kept log from before, whose `meta` is damaged. Returns
/// an LSN of that log, too.
fn with_damaged_past(memory: &Memory, keep: Keep) -> (Filter, u64) {
    let created = Filter::create_on(shared(memory), spec(), options().keep_log(keep));
    let filter = created.expect("room").into_any();
    insert(&filter, 0..500);
    let lsn = digest(&filter).lsn - 1;
    filter.alter(AgePartitioned::last(11_000), Unlogged::Refuse).expect("its log is kept");
    let mut metas = names(memory, "kept-");
    metas.retain(|name| name.contains("-meta-"));
    assert_eq!(metas.len(), 1);
    damage(memory, &metas[0]);
    for round in 1..5 {
        insert(&filter, round * 1000..round * 1000 + 1000);
        filter.checkpoint().expect("room");
    }
    (filter, lsn)
}

#[test]
fn damaged_parameters_of_kept_log_cost_moments_of_the_past_and_nothing_else() {
    let memory = Memory::new();
    let (filter, past) = with_damaged_past(&memory, Keep::Bytes(1 << 30));
    let at = |lsn| Reader::<Any>::at_on(shared(&memory), At::Lsn(lsn), options());
    let (stat, now) = (filter.stat().expect("figures"), digest(&filter));
    assert!(stat.kept_log_bytes > 100_000 && stat.kept_log_from > Some(past), "{stat:?}");
    assert_eq!(at(past).expect_err("it cannot be read").code(), Code::NotKept);
    let from = at(stat.kept_log_from.expect("some log")).expect("it is kept");
    assert!(from.contains(7_u64.to_le_bytes()).expect("an answer"));
    let present = at(now.lsn - 1).expect("it is now");
    assert_eq!(present.digest().expect("a digest").value, now.value);
    let reader = Reader::<Any>::open_on(shared(&memory), options()).expect("a reader");
    assert_eq!(reader.stat().expect("figures").kept_log_bytes, stat.kept_log_bytes);
    let mut history = History::open_on(shared(&memory)).expect("a log").with_undurable();
    let mut read = 0;
    while let Some(commit) = history.read().expect("a commit") {
        read += commit.operations.len();
    }
    assert_eq!(read, 4000, "what came after the alteration");
    let report = inspect::verify_on(&memory).expect("a report");
    let unsound: Vec<_> = report.files.iter().filter(|file| !file.damage.is_empty()).collect();
    assert!(unsound.len() == 1 && unsound[0].name.contains("-meta-"), "{unsound:?}");
    let what = unsound[0].damage[0].to_string();
    assert!(what.contains("the filter does not need this file"), "{what}");
    filter.alter(AgePartitioned::last(3000), Unlogged::Refuse).expect("the window is there");
    assert!(filter.contains(4999_u64.to_le_bytes()).expect("an answer"));
}

#[test]
fn what_is_kept_with_damaged_parameters_is_removed_in_its_turn_and_with_all_else() {
    let memory = Memory::new();
    let (filter, _) = with_damaged_past(&memory, Keep::Bytes(64 << 10));
    for round in 5..30 {
        insert(&filter, round * 1000..round * 1000 + 1000);
        filter.checkpoint().expect("room");
        let bytes = filter.stat().expect("figures").kept_log_bytes;
        assert!(bytes <= 64 << 10, "{bytes} in round {round}");
    }
    assert!(names(&memory, "kept-").iter().all(|name| !name.contains("-meta-")));
    let memory = Memory::new();
    drop(with_damaged_past(&memory, Keep::Bytes(1 << 30)));
    let none = options().keep_log(Keep::Nothing);
    let filter = Filter::<Any>::open_on(shared(&memory), none).expect("a filter");
    insert(&filter, 5000..5010);
    filter.checkpoint().expect("room");
    assert_eq!(names(&memory, "kept-"), [""; 0]);
}

#[test]
fn a_full_disk_takes_what_is_kept_also_if_its_parameters_are_damaged() {
    let memory = Memory::new();
    let (filter, _) = with_damaged_past(&memory, Keep::Bytes(1 << 30));
    memory.set_capacity(used(&memory));
    filter.checkpoint().expect("kept log is space");
    let other = Filter::<Any>::open_on(shared(&memory), options().background(true));
    let other = other.expect("it is open");
    insert(&other, 5000..7000);
    other.checkpoint().expect("kept log is space");
    drop((other, filter));

    let memory = Memory::new();
    drop(with_damaged_past(&memory, Keep::Bytes(1 << 30)));
    memory.set_capacity(used(&memory));
    let filter = opened(&memory).expect("kept log is space");
    insert(&filter, 5000..7000);
    assert!(filter.contains(4999_u64.to_le_bytes()).expect("an answer"));
}
