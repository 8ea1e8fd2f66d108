//! Children made by fork: an inherited handle refuses every operation without harm, and filters
//! that a child opens work normally.
//!
//! A fork beside other threads is unsafe in the test harness. Each claim is therefore tested in a
//! separate process of this binary, whose only other threads are the filter's own.

mod every_kind;

use ebbtide::{
    AgePartitioned, Checked, Clock, Durability, Error, Filter, Options, Reader, TimeLimited,
    Timestamp,
};
use ebbtide_testkit::environment;
use futures::executor::block_on;
use futures::future::poll_immediate;
use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Environment variables of a process that tests a claim: the claim and the directory.
const CLAIM: &str = "EBBTIDE_FORK_CLAIM";
const HOME: &str = "EBBTIDE_FORK_HOME";
/// A role that is not a claim: a parent that is killed while its child lives.
const ABANDONING: &str = "abandons a child";
/// A longer wait means that something hangs.
const HANG: Duration = Duration::from_secs(60);

/// A claim, and its test in an empty directory.
type Claim = (&'static str, fn(&Path));

const CLAIMS: [Claim; 11] = [
    ("an_inherited_handle_refuses_everything_and_is_dropped_without_harm", refuses_everything),
    ("an_inherited_handle_of_no_kind_reads_the_image", every_kind::reads_nothing),
    ("an_inherited_handle_may_be_closed_or_left_behind", closed_or_left),
    ("the_parents_handle_works_while_the_child_lives_and_after", parent_works),
    ("a_parent_that_closes_is_gone_although_its_child_lives", parent_closes),
    ("a_parent_that_is_killed_is_dead_although_its_child_lives", parent_is_killed),
    ("a_child_opens_the_filter_for_itself_and_works_beside_its_parent", side_by_side),
    ("workers_of_a_parent_without_a_handle_share_the_filter", workers),
    ("an_inherited_ticket_fails_and_its_parents_ends", tickets),
    ("an_inherited_reader_refuses_everything", readers),
    ("no_child_of_a_busy_parent_crashes_or_hangs_or_leaves_a_stripe_held", storm),
];

/// Runs the claim or role of this process; returns false if it has none.
pub fn play_role() -> bool {
    let (Ok(claim), Ok(home)) = (std::env::var(CLAIM), std::env::var(HOME)) else {
        return false;
    };
    let home = PathBuf::from(home);
    if claim == ABANDONING {
        abandon(&home);
    } else {
        let (_, show) = CLAIMS.iter().find(|(name, _)| *name == claim).expect("a claim");
        show(&home);
    }
    true
}

/// Returns the tests of all claims.
pub fn trials() -> Vec<Trial> {
    CLAIMS.map(|(claim, _)| Trial::test(format!("fork::{claim}"), move || run(claim))).into()
}

fn itself(claim: &str, home: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a name"));
    command.env(CLAIM, claim).env(HOME, home);
    command
}

/// Tests the claim in a separate process.
fn run(claim: &str) -> Result<(), Failed> {
    let home = tempfile::TempDir::new()?;
    let output = itself(claim, home.path()).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// A forked child; killed when dropped if it is still running.
struct Child(Option<Pid>);

/// Forks. The child runs `child` and exits, with success unless it panicked.
#[expect(unsafe_code, reason = "tests of forks need forks")]
fn fork(child: impl FnOnce()) -> Child {
    // SAFETY: the filter's threads hold no lock that the child needs except the allocator's, which
    // the C library keeps consistent in both processes; the child leaves by `_exit`.
    match unsafe { libc::fork() } {
        -1 => panic!("no fork"),
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: it only ends the process.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => Child(Pid::from_raw(pid)),
    }
}

impl Child {
    /// Waits until the child ends with success.
    fn ends(mut self) {
        let pid = self.0.expect("a child");
        let began = Instant::now();
        while began.elapsed() < HANG {
            if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).expect("a child") {
                self.0 = None;
                assert_eq!(how(status), (Some(0), None));
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the child hangs");
    }

    /// Returns whether a child of the storm has ended, with success or by our signal. Kills some
    /// children after a while.
    fn is_over(&mut self, number: u64, age: Duration) -> bool {
        let pid = self.0.expect("a child");
        let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).expect("a child") else {
            // Children that would never end are killed, some before they have opened the filter.
            let after = Duration::from_millis(number / 4 * 7 % 50);
            if number % 4 == 2 && age >= after {
                kill_process(pid, Signal::KILL).expect("it is a child");
            }
            assert!(age < HANG / 2, "child {number} hangs");
            return false;
        };
        self.0 = None;
        let killed = status.terminating_signal() == Some(Signal::KILL.as_raw());
        assert!(killed || status.exit_status() == Some(0), "child {number}: {:?}", how(status));
        true
    }
}

/// Returns the exit status, or the signal that ended the process.
fn how(status: WaitStatus) -> (Option<i32>, Option<i32>) {
    (status.exit_status(), status.terminating_signal())
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// Forks a child that does nothing until it is killed. When this returns, the child runs and has
/// inherited its parent's handles.
fn idle() -> Child {
    let (mut ear, mut mouth) = std::io::pipe().expect("a pipe");
    let child = fork(|| {
        mouth.write_all(b"!").expect("its parent reads");
        std::thread::sleep(HANG);
    });
    drop(mouth);
    ear.read_exact(&mut [0]).expect("it begins");
    child
}

fn options() -> Options {
    Options::new().hash_seed(7).stripes(4).segment_bytes(16 << 10).clock(Clock::stream())
}

fn create(dir: &Path) -> Filter<AgePartitioned> {
    Filter::create(dir, AgePartitioned::last(100_000).fpr(1e-9), options()).expect("a filter")
}

fn open(dir: &Path) -> Filter {
    Filter::open(dir, options()).expect("a filter")
}

fn insert<K>(filter: &Filter<K>, keys: Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
}

fn assert_has<K>(filter: &Filter<K>, keys: Range<u64>) {
    for key in keys {
        assert!(filter.contains(key.to_le_bytes()).expect("an answer"), "{key}");
    }
}

fn handles<K>(filter: &Filter<K>) -> u32 {
    filter.stat().expect("figures").handles
}

fn assert_forked<T>(result: ebbtide::Result<T>, what: &str) {
    match result {
        Err(Error::Forked { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what} was allowed"),
    }
}

fn assert_refuses_everything(filter: &Filter<AgePartitioned>, copy: &Path) {
    let keys = ["a", "b"];
    assert_forked(filter.insert("a"), "insert");
    assert_forked(filter.contains("a"), "contains");
    assert_forked(filter.check_and_insert("a"), "check_and_insert");
    assert_forked(filter.insert_all(&keys), "insert_all");
    assert_forked(filter.contains_all(&keys), "contains_all");
    assert_forked(filter.check_and_insert_all(&keys, &mut Vec::new()), "check_and_insert_all");
    assert_forked(filter.age("a"), "age");
    assert_forked(filter.seen_within("a", ebbtide::Within::Items(5)), "seen_within");
    assert_forked(filter.sync(), "sync");
    assert_forked(filter.checkpoint(), "checkpoint");
    assert_forked(filter.digest(), "digest");
    assert_forked(filter.stat(), "stat");
    assert_forked(filter.backup(copy), "backup");
    assert!(!copy.exists(), "a refused backup leaves no files");
    assert_eq!(filter.kind(), "age-partitioned");
    assert!(format!("{filter:?}").contains("age-partitioned"));
}

fn refuses_everything(home: &Path) {
    let (dir, copy) = (home.join("filter"), home.join("copy"));
    for background in [true, false] {
        let spec = AgePartitioned::last(100_000);
        let dir = dir.with_extension(background.to_string());
        let filter = Filter::create(&dir, spec, options().background(background));
        let mut filter = Some(filter.expect("a filter"));
        insert(filter.as_ref().expect("it is there"), 0..2000);
        let child = fork(|| {
            let filter = filter.take().expect("it is there");
            assert_refuses_everything(&filter, &copy);
            // A grandchild gets the same refusals.
            fork(|| assert_refuses_everything(&filter, &copy)).ends();
            drop(filter);
        });
        child.ends();
        let filter = filter.expect("it is there");
        assert_has(&filter, 0..2000);
        filter.close().expect("a clean end");
    }
    // What has no error to return does not look at the image either.
    let spec = TimeLimited::window(HANG);
    let filter = Filter::create(home.join("timed"), spec, options()).expect("a filter");
    let ahead = Timestamp::now() + 60 * HANG;
    filter.call().time(ahead).insert("a").expect("an insert");
    assert!(filter.clock_lead().is_some());
    fork(|| assert_eq!(filter.clock_lead(), None)).ends();
}

fn tickets(home: &Path) {
    let dir = home.join("filter");
    let filter = create(&dir);
    let issue = |key: u64| filter.issue(|call| call.insert(key.to_le_bytes())).expect("an insert");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The list of tickets, and the task that syncs, are busy at most forks.
        for thread in 1..3 {
            let (issue, stop) = (&issue, &stop);
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut ticket = issue(thread << 32 | number);
                    let mut is_durable = |_| block_on(poll_immediate(&mut ticket)).is_some();
                    (0..50).any(&mut is_durable);
                    // It is dropped while it waits; others are awaited.
                    if number % 10 == 0 {
                        block_on(issue(thread << 32 | number)).expect("durable");
                    }
                }
            });
        }
        for round in 0..environment::scaled(100) {
            let mut tickets = Some([0, 1, 2, 3, 4].map(|number| issue(round * 5 + number)));
            // Their wakers are in the list, or their records are durable.
            let waits = |ticket| block_on(poll_immediate(ticket)).is_none();
            let pending = tickets.iter_mut().flatten().map(waits).collect::<Vec<_>>();
            let child = fork(|| {
                let [first, second, third, rest @ ..] = tickets.take().expect("they are there");
                assert!(!first.is_durable());
                if pending[..3] == [true; 3] {
                    assert_forked(block_on(first), "awaiting");
                    assert_forked(second.wait(), "waiting");
                    let (told, heard) = std::sync::mpsc::channel();
                    third.on_durable(move |answer| told.send(answer).expect("heard"));
                    assert_forked(heard.try_recv().expect("at once"), "a function");
                }
                drop(rest);
                let own = open(&dir);
                let ticket = own.issue(|call| call.insert("of the child")).expect("an insert");
                assert!(block_on(ticket).expect("durable"));
            });
            child.ends();
            for (ticket, waits) in tickets.into_iter().flatten().zip(pending) {
                if waits {
                    assert!(block_on(ticket).expect("durable"));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    filter.close().expect("a clean end");
}

fn closed_or_left(home: &Path) {
    let dir = home.join("filter");
    let mut filter = Some(create(&dir));
    let close = || assert_forked(filter.take().expect("it is there").close(), "close");
    fork(close).ends();
    // The handle is left open until the end of the process.
    fork(|| {}).ends();
    let filter = filter.expect("it is there");
    insert(&filter, 0..100);
    assert_eq!(handles(&filter), 1);
}

fn parent_works(home: &Path) {
    let filter = create(&home.join("filter"));
    insert(&filter, 0..100);
    let child = idle();
    insert(&filter, 100..5000);
    filter.sync().expect("a sync");
    filter.checkpoint().expect("a snapshot");
    assert_eq!((handles(&filter), filter.digest().expect("a digest").inserts), (1, 5000));
    drop(child);
    insert(&filter, 5000..9000);
    assert_has(&filter, 0..9000);
    filter.backup(home.join("copy")).expect("a backup");
    filter.close().expect("a clean end");
    assert_has(&open(&home.join("copy")), 0..9000);
}

fn timelines(dir: &Path) -> u64 {
    let names = std::fs::read_dir(dir).expect("a directory");
    let names = names.map(|entry| entry.expect("a name").file_name().into_string());
    let names = names.map_while(Result::ok);
    let timelines = names.filter_map(|name| name.strip_prefix("wal-")?.get(..6)?.parse().ok());
    timelines.max().expect("a log")
}

fn parent_closes(home: &Path) {
    let dir = home.join("filter");
    let filter = create(&dir);
    insert(&filter, 0..3000);
    let _child = idle();
    let expected = filter.digest().expect("a digest").value;
    let before = timelines(&dir);
    filter.close().expect("a clean end");
    let filter = open(&dir);
    assert_eq!(handles(&filter), 1);
    assert_eq!(filter.digest().expect("a digest").value, expected);
    insert(&filter, 3000..4000);
    // At the latest now: where the snapshot has everything, the first record creates the log.
    assert_eq!(timelines(&dir), before + 1, "the first opener recovers");
    assert_has(&filter, 0..4000);
}

/// Opens the filter, forks a child, prints its process id, inserts until killed.
fn abandon(home: &Path) {
    let filter = open(&home.join("filter"));
    let child = idle();
    println!("{}", child.0.expect("a child").as_raw_nonzero());
    for round in 0.. {
        insert(&filter, 0..1000);
        if round == 0 {
            println!("inserted");
        }
    }
}

fn parent_is_killed(home: &Path) {
    let dir = home.join("filter");
    create(&dir).close().expect("a clean end");
    for round in 0..10 {
        let mut parent = itself(ABANDONING, home).stdout(Stdio::piped()).spawn().expect("a child");
        let lines = BufReader::new(parent.stdout.take().expect("a pipe")).lines();
        let mut lines = lines.map(|line| line.expect("a line"));
        let orphan = lines.next().expect("a number").parse().expect("a number");
        let orphan = Pid::from_raw(orphan).expect("a process");
        assert_eq!(lines.next().expect("a line"), "inserted");
        std::thread::sleep(Duration::from_micros(round * 300));
        parent.kill().expect("it lives");
        parent.wait().expect("it ends");
        let before = timelines(&dir);
        let filter = open(&dir);
        assert_eq!(handles(&filter), 1, "no other handle is alive");
        assert_has(&filter, 0..1000);
        insert(&filter, 0..1000);
        assert_eq!(timelines(&dir), before + 1, "the first opener recovers");
        filter.digest().expect("no stripe is held");
        kill_process(orphan, Signal::KILL).expect("it was alive all the time");
        filter.close().expect("a clean end");
    }
}

/// Inserts the keys; returns how many were new.
fn offer<K>(filter: &Filter<K>, keys: impl Iterator<Item = u64>) -> u64 {
    let mut new = 0;
    for key in keys {
        let checked = filter.check_and_insert(key.to_le_bytes()).expect("an insert");
        new += u64::from(checked == Checked::New);
    }
    new
}

fn side_by_side(home: &Path) {
    let dir = home.join("filter");
    let mut filter = Some(create(&dir));
    let (report, mut reporting) = std::io::pipe().expect("a pipe");
    let child = fork(|| {
        let inherited = filter.take().expect("it is there");
        assert_forked(inherited.insert("a"), "insert");
        let own = open(&dir);
        assert!(handles(&own) == 2);
        // Dropped while the new handle is in use: the new handle may own the resources that the old
        // one owned.
        drop(inherited);
        let new = offer(&own, 0..20_000);
        insert(&own, 20_000..25_000);
        assert_has(&own, 0..25_000);
        own.close().expect("a clean end");
        use std::io::Write;
        writeln!(reporting, "{new}").expect("the parent reads");
    });
    let filter = filter.expect("it is there");
    let ours = offer(&filter, (0..20_000).rev());
    insert(&filter, 25_000..30_000);
    // Otherwise the end of a dead child would never be noticed.
    drop(reporting);
    let mut theirs = String::new();
    BufReader::new(report).read_line(&mut theirs).expect("a line");
    child.ends();
    let theirs: u64 = theirs.trim().parse().expect("a number");
    // False positives: fewer than one in 10,000 runs.
    assert_eq!(ours + theirs, 20_000, "each key was new once");
    assert_has(&filter, 0..30_000);
    assert_eq!((handles(&filter), filter.stat().expect("figures").inserts), (1, 50_000));
    let expected = filter.digest().expect("a digest").value;
    filter.close().expect("a clean end");
    assert_eq!(open(&dir).digest().expect("a digest").value, expected);
}

fn workers(home: &Path) {
    let dir = home.join("filter");
    create(&dir).close().expect("a clean end");
    let work = |number: u64| {
        let filter = open(&dir);
        insert(&filter, number * 5000..number * 5000 + 5000);
        filter.close().expect("a clean end");
    };
    let children: Vec<_> = (0..4).map(|number| fork(|| work(number))).collect();
    children.into_iter().for_each(Child::ends);
    let filter = open(&dir);
    assert_has(&filter, 0..20_000);
    assert_eq!((handles(&filter), filter.stat().expect("figures").inserts), (1, 20_000));
}

/// The environment variable with the number of children that the storm forks, a few hundred by
/// default.
const STORM: &str = "EBBTIDE_FORKS";
/// The number of children that run at a time.
const AT_ONCE: usize = 6;

/// Draws a number that depends on the seed only.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *seed >> 33
}

/// Runs a child of the storm: it opens the filter, works, and ends in one of three ways.
fn weather(dir: &Path, number: u64, inherited: &Filter<AgePartitioned>) {
    let mut seed = number;
    if draw(&mut seed).is_multiple_of(3) {
        assert_forked(inherited.insert("a"), "insert");
        assert_forked(inherited.sync(), "sync");
        assert_forked(inherited.close(), "close");
    }
    let filter = Filter::<AgePartitioned>::open(dir, options()).expect("a filter");
    let keys = 1_000_000 + number * 1000;
    let count = draw(&mut seed) % 300;
    for key in keys..keys + count {
        filter.check_and_insert(key.to_le_bytes()).expect("an insert");
        assert!(filter.contains(key.to_le_bytes()).expect("an answer"), "{key}");
    }
    match number % 4 {
        0 => filter.close().expect("a clean end"),
        1 => drop(filter),
        // Killed during an operation, or ended without a close.
        2 => insert(&filter, 0..1_000_000),
        _ => std::mem::forget(filter),
    }
}

/// Runs a call and updates the longest duration.
fn timed(longest: &mut Duration, call: impl FnOnce()) {
    let began = Instant::now();
    call();
    *longest = began.elapsed().max(*longest);
}

fn storm(home: &Path) {
    let forks = environment::number(STORM).unwrap_or(300);
    let dir = home.join("filter");
    let spec = AgePartitioned::last(100_000).fpr(1e-9);
    let often = options().durability(Durability::Interval(Duration::from_millis(1)));
    let filter = Filter::create(&dir, spec, often).expect("a filter");
    let done = AtomicBool::new(false);
    let (filter, done) = (&filter, &done);
    let longest = std::thread::scope(|scope| {
        let inserters: Vec<_> = (0..2_u64)
            .map(|thread| {
                scope.spawn(move || {
                    let mut longest = Duration::ZERO;
                    for key in (0_u64..).take_while(|_| !done.load(Ordering::Relaxed)) {
                        timed(&mut longest, || {
                            insert(filter, 2 * key + thread..2 * key + thread + 1)
                        });
                    }
                    longest
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                filter.checkpoint().expect("a snapshot");
            }
        });
        let bearing = std::panic::AssertUnwindSafe(|| bear_children(&dir, forks, filter));
        let borne = std::panic::catch_unwind(bearing);
        done.store(true, Ordering::Relaxed);
        let longest = inserters.into_iter().map(|thread| thread.join().expect("no panic")).max();
        if let Err(panic) = borne {
            std::panic::resume_unwind(panic);
        }
        longest.expect("two threads")
    });
    println!("{forks} forks; the longest insert beside them took {longest:?}");
    let expected = filter.digest().expect("a digest").value;
    // A killed life: the files on the disk must lead to the same state.
    let copy = home.join("copy");
    filter.backup(&copy).expect("a backup");
    assert_eq!(open(&copy).digest().expect("a digest").value, expected);
}

/// Forks children, several at a time, kills some, and checks how each ends.
fn bear_children(dir: &Path, forks: u64, filter: &Filter<AgePartitioned>) {
    let mut seed = 7;
    let mut living: Vec<(u64, Child, Instant)> = Vec::new();
    for number in 0..forks {
        living.push((number, fork(|| weather(dir, number, filter)), Instant::now()));
        std::thread::sleep(Duration::from_micros(draw(&mut seed) % 3000));
        while living.len() >= AT_ONCE {
            living.retain_mut(|(number, child, since)| !child.is_over(*number, since.elapsed()));
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    while !living.is_empty() {
        living.retain_mut(|(number, child, since)| !child.is_over(*number, since.elapsed()));
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn readers(home: &Path) {
    let dir = home.join("filter");
    let filter = create(&dir);
    insert(&filter, 0..100);
    let read = || Reader::<AgePartitioned>::open(&dir, options()).expect("a reader");
    let beside = read();
    let mut filter = Some(filter);
    for alone in [false, true] {
        if alone {
            filter.take().expect("it is there").close().expect("a clean end");
        }
        let mut readers = Some([read(), read()]);
        let child = fork(|| {
            let [reader, other] = readers.take().expect("they are there");
            for reader in [&reader, &beside] {
                assert_forked(reader.contains("a"), "contains");
                assert_forked(reader.age("a"), "age");
                assert_forked(reader.stat(), "stat");
                assert_forked(reader.digest(), "digest");
                assert_eq!(reader.kind(), "age-partitioned");
            }
            let own = read();
            drop((reader, other));
            assert!(own.contains(0_u64.to_le_bytes()).expect("an answer"));
        });
        child.ends();
        for reader in readers.iter().flatten().chain([&beside]) {
            assert!(reader.contains(0_u64.to_le_bytes()).expect("an answer"));
        }
    }
}
