//! Reading without writing: beside writers, after them, without write permission, and unnoticed.

use ebbtide::media::{Media, Memory};
use ebbtide::{
    AgePartitioned, AgePosterior, Any, BlockTiming, Bloom, Call, Clock, Downtime, Error, Filter,
    Form, Handle, ManualClock, Options, Penalty, Reader, TimeLimited, Timestamp, Within,
};
use ebbtide_testkit::child::{self, Child};
use ebbtide_testkit::skipped::skipped;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The user id of `nobody`, on every distribution.
const OTHER: u32 = 65534;

fn options() -> Options {
    Options::new().hash_seed(7).clock(Clock::stream())
}

fn home() -> (TempDir, PathBuf) {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    (home, dir)
}

fn create(dir: &Path) -> Filter<AgePartitioned> {
    let options = options().stripes(4).segment_bytes(16 << 10);
    Filter::create(dir, AgePartitioned::last(100_000).fpr(1e-6), options).expect("a filter")
}

fn insert<K>(filter: &Filter<K>, keys: Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
}

/// Returns how many of the keys the reader finds.
fn found<K>(reader: &Reader<K>, keys: Range<u64>) -> usize {
    keys.filter(|key| reader.contains(key.to_le_bytes()).expect("an answer")).count()
}

fn read(dir: &Path) -> Reader {
    Reader::open(dir, options()).expect("a reader")
}

/// A longer wait means that something hangs: most steps take a second on an idle machine.
const HANG: Duration = Duration::from_secs(60);
fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < HANG, "not within {HANG:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the reader finds the key: a reader notices a new opener within a second.
fn notices<K>(reader: &Reader<K>, key: u64) {
    until("the key is found", || found(reader, key..key + 1) > 0);
}

/// Runs the role of a writing child on the directory.
fn play_writer(dir: &Path) {
    let filter = Filter::<Any>::open(dir, options()).expect("a filter");
    child::play(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        match words[0] {
            "insert" => insert(&filter, number(1)..number(2)),
            "digest" => return filter.digest().expect("a digest").to_string(),
            // Until it is killed: few blocks, all the time.
            "rush" => loop {
                insert(&filter, number(1)..number(2));
            },
            other => panic!("{other}"),
        }
        "done".to_owned()
    });
}

fn play_reader(dir: &Path) {
    let refused = Filter::<Any>::open(dir, options()).expect_err("writing is not allowed");
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    let reader = read(dir);
    child::play(|line| match line {
        "digest" => reader.digest().expect("a digest").to_string(),
        "stat" => reader.stat().expect("figures").inserts.to_string(),
        upto => found(&reader, 0..upto.parse().expect("a number")).to_string(),
    });
}

#[test]
fn the_child_plays_its_role_when_it_is_one() {
    match child::role().as_deref().and_then(|role| role.split_once(' ')) {
        Some(("write", dir)) => play_writer(Path::new(dir)),
        Some(("read", dir)) => play_reader(Path::new(dir)),
        _ => {}
    }
}

fn writer(dir: &Path) -> Child {
    Child::start(module_path!(), &format!("write {}", dir.display()))
}

#[test]
fn beside_a_writer_its_inserts_are_seen_at_once() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    let reader = read(&dir);
    assert_eq!(found(&reader, 0..200), 100);
    let mut other = writer(&dir);
    for round in 1..20 {
        insert(&filter, round * 100..round * 100 + 50);
        let (from, to) = (round * 100 + 50, round * 100 + 100);
        other.ask(&format!("insert {from} {to}"));
        assert_eq!(found(&reader, 0..round * 100 + 200), round as usize * 100 + 100);
    }
    let stat = reader.stat().expect("figures");
    assert_eq!((stat.handles, stat.inserts), (2, 2000));
    assert!(reader.age(0_u64.to_le_bytes()).expect("an age").is_some());
    assert_eq!((reader.kind(), reader.parameters()), (filter.kind(), filter.parameters()));
    other.end();
}

#[test]
fn banks_that_a_writer_opens_and_closes_are_followed() {
    let (_home, dir) = home();
    let spec = TimeLimited::window(Duration::from_secs(60)).rate(1.0);
    let filter = Filter::create(&dir, spec, options()).expect("a filter");
    let at = |key: u64| Timestamp::from_unix_millis(1_000_000 + key * 4);
    let reader = Reader::<TimeLimited>::open(&dir, options()).expect("a reader");
    let (mut most, mut closed) = (0, false);
    // Ten thousand keys, where sixty were expected; then none for two windows.
    for key in 0..10_000_u64 {
        filter.call().time(at(key)).insert(key.to_le_bytes()).expect("an insert");
        assert!(reader.contains(key.to_le_bytes()).expect("an answer"), "{key}");
        most = most.max(filter.stat().expect("figures").banks);
    }
    for key in (10_000..130_000_u64).step_by(250) {
        filter.call().time(at(key)).insert(key.to_le_bytes()).expect("an insert");
        assert!(reader.contains(key.to_le_bytes()).expect("an answer"), "{key}");
        closed |= filter.stat().expect("figures").banks < most;
    }
    assert!(most > 1 && closed, "{most} banks, closed: {closed}");
    for key in 0..130_000_u64 {
        let answers = [filter.contains(key.to_le_bytes()), reader.contains(key.to_le_bytes())];
        let [theirs, ours] = answers.map(|answer| answer.expect("an answer"));
        assert_eq!(theirs, ours, "{key}");
    }
    assert_eq!(reader.digest().expect("a digest").value, filter.digest().expect("a digest").value);
}

#[test]
fn a_reader_outlives_its_writers_and_notices_later_ones() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    let reader = read(&dir);
    filter.close().expect("a clean end");
    assert_eq!(found(&reader, 0..100), 100);
    assert_eq!(reader.stat().expect("figures").handles, 0);
    // A writer that is killed.
    let mut other = writer(&dir);
    other.ask("insert 100 200");
    notices(&reader, 100);
    assert_eq!(found(&reader, 0..200), 200);
    other.kill();
    assert_eq!(found(&reader, 0..200), 200);
    // A writer that recovers after that.
    let filter = Filter::<Any>::open(&dir, options()).expect("a filter");
    insert(&filter, 200..300);
    assert_eq!(found(&reader, 0..300), 300, "the image of the dead writer is abandoned at once");
    filter.close().expect("a clean end");
    assert_eq!(found(&reader, 0..300), 300);
    // A writer that opens and closes between two lookups.
    insert(&Filter::<Any>::open(&dir, options()).expect("a filter"), 300..400);
    notices(&reader, 300);
    assert_eq!(found(&reader, 0..400), 400);
}

/// Has readers look up keys while children are killed at any moment, and runs `check` on three
/// readers: one opened before the child, one opened with it, and one opened after its death.
fn killed_at_work(rounds: u64, dir: &Path, mut check: impl FnMut([&Reader; 3])) {
    let lasting = read(dir);
    let mut half_changed = 0;
    for round in 0..rounds {
        let mut rushing = writer(dir);
        rushing.ask("insert 0 10");
        let reader = read(dir);
        let inserts = || reader.stat().expect("figures").inserts;
        let before = inserts();
        rushing.tell("rush 0 200");
        until("the writer inserts", || inserts() >= before + 1000);
        let (began, wait) = (Instant::now(), Duration::from_micros(round * 97));
        while began.elapsed() < wait {
            assert_eq!(found(&reader, 0..200), 200);
        }
        rushing.kill();
        half_changed += usize::from(is_half_changed(dir));
        let began = Instant::now();
        check([&reader, &lasting, &read(dir)]);
        // An opener waits up to a minute; here no wait is necessary.
        assert!(began.elapsed() < Duration::from_secs(40), "round {round}");
    }
    println!("{half_changed} of {rounds} were killed during a change");
}

/// Creates a filter of one stripe with 200 keys. Large segments spare children the allocation.
fn one_stripe(dir: &Path) -> Filter<Bloom> {
    let options = options().stripes(1).segment_bytes(4 << 20).background(false);
    let filter = Filter::create(dir, Bloom::capacity(1000).fpr(1e-6), options).expect("a filter");
    insert(&filter, 0..200);
    filter
}

fn find_all(readers: [&Reader; 3]) {
    for reader in readers {
        assert_eq!(found(reader, 0..200), 200);
    }
}

#[test]
fn changes_left_incomplete_by_killed_writers_block_no_reader() {
    let (_home, dir) = home();
    one_stripe(&dir).close().expect("a clean end");
    killed_at_work(30, &dir, find_all);
}

#[test]
fn live_writers_repair_changes_left_incomplete_by_killed_ones_for_readers() {
    let (_home, dir) = home();
    drop(one_stripe(&dir));
    let _idle = Filter::<Any>::open(&dir, options()).expect("a filter");
    killed_at_work(30, &dir, find_all);
}

#[test]
fn a_reader_gets_an_error_if_live_writers_do_not_repair_the_changes_of_dead_ones() {
    let (_home, dir) = home();
    // A handle without threads repairs only the stripes that it needs.
    let idle = one_stripe(&dir);
    killed_at_work(30, &dir, |readers| {
        let told = (0..200_u64).find_map(|key| readers[0].contains(key.to_le_bytes()).err());
        assert!(matches!(told, None | Some(Error::Locked { .. })), "{told:?}");
        for key in 0..200_u64 {
            assert!(idle.contains(key.to_le_bytes()).expect("an answer"), "{key}");
        }
        find_all(readers);
    });
}

/// Returns whether some block's version is odd; `src/image/bank.rs` defines where they are in a
/// small bank.
fn is_half_changed(dir: &Path) -> bool {
    let names = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("a name"));
    let mut banks = names
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("live-")));
    banks.any(|bank| {
        let bytes = fs::read(bank.path()).expect("a bank");
        let each = 64 + 8 * u16::from_le_bytes([bytes[56], bytes[57]]) as usize;
        bytes[128..].iter().step_by(64).take((bytes.len() - 128) / each).any(|byte| byte & 1 != 0)
    })
}

/// Returns names, contents and times of all files.
fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let look = |path: PathBuf| {
        let about = fs::metadata(&path)?;
        let content = (fs::read(&path)?, about.mtime(), about.mtime_nsec());
        Ok((path, content))
    };
    // Repeat if a file was renamed in the meantime: a writer's threads may be active.
    loop {
        let paths = fs::read_dir(dir).expect("a directory");
        let paths = paths.map(|entry| entry.expect("a name").path());
        let paths = paths.filter(|path| path.is_file());
        match paths.map(look).collect::<io::Result<_>>() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            all => return all.expect("files"),
        }
    }
}

fn ask_everything(dir: &Path) {
    let reader = read(dir);
    assert_eq!(found(&reader, 0..300), 300);
    reader.stat().expect("figures");
    reader.digest().expect("a digest");
    reader.age(0_u64.to_le_bytes()).expect("an answer");
}

#[test]
fn a_reader_changes_no_file() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..200);
    filter.close().expect("a clean end");
    let mut other = writer(&dir);
    other.ask("insert 200 300");
    other.kill();
    let killed = files(&dir);
    ask_everything(&dir);
    assert!(files(&dir) == killed, "after a writer that was killed");
    drop(Filter::<Any>::open(&dir, options()).expect("a filter"));
    let closed = files(&dir);
    ask_everything(&dir);
    assert!(files(&dir) == closed, "after a writer that closed");
}

#[test]
fn a_reader_and_the_writers_have_the_same_digest() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..3000);
    let reader = read(&dir);
    let digest = || reader.digest().expect("a digest").value;
    let expected = filter.digest().expect("a digest").value;
    assert_eq!(digest(), expected);
    filter.checkpoint().expect("a snapshot");
    assert_eq!(digest(), expected);
    filter.close().expect("a clean end");
    assert_eq!(digest(), expected);
    let mut other = writer(&dir);
    other.ask("insert 3000 4000");
    let expected = other.ask("digest");
    notices(&reader, 3999);
    assert_eq!(reader.digest().expect("a digest").to_string(), expected);
    other.kill();
    assert_eq!(reader.digest().expect("a digest").to_string(), expected);
    assert_eq!(read(&dir).digest().expect("a digest").to_string(), expected);
}

#[test]
fn a_digest_can_be_taken_while_others_write() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..2000);
    let reader = read(&dir);
    let mut rushing = writer(&dir);
    rushing.ask("insert 0 1");
    rushing.tell("rush 0 2000");
    let mut before = 0;
    for _ in 0..20 {
        let digest = reader.digest().expect("a digest");
        assert!(digest.inserts >= before, "{} after {before}", digest.inserts);
        before = digest.inserts;
        filter.checkpoint().expect("a snapshot");
    }
    rushing.kill();
}

/// Starts a child that owns the files but may not write them, nor the directory.
fn reading_child(home: &Path, dir: &Path) -> Option<Child> {
    if fs::metadata("/proc/self").map_or(true, |process| process.uid() != 0) {
        skipped("only root can act as another user");
        return None;
    }
    // The other user may have no access to the build directory.
    let binary = home.join("tests");
    if !binary.exists() {
        let own = child::program();
        fs::copy(own, &binary).expect("a copy");
    }
    for (path, mode) in [(home, 0o755), (&binary, 0o755), (dir, 0o555)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root may");
    }
    for path in files(dir).into_keys() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("root may");
        chown(&path, Some(OTHER), Some(OTHER)).expect("root may");
    }
    let command = || {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={OTHER}")).arg(format!("--regid={OTHER}"));
        command.args(["--clear-groups", "--"]).arg(&binary);
        command
    };
    // A child that another thread is starting may have inherited the descriptor that wrote the
    // copy: the copy is then busy for a moment.
    let works = || command().arg("--list").output().is_ok_and(|output| output.status.success());
    if !(0..300).any(|_| {
        works() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    }) {
        skipped("there is no setpriv, or the other user cannot access the tests");
        return None;
    }
    let command = command();
    Some(Child::run(command, module_path!(), &format!("read {}", dir.display())))
}

#[test]
fn a_reader_needs_no_permission_to_write() {
    let (home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    let Some(mut beside) = reading_child(home.path(), &dir) else { return };
    assert_eq!(beside.ask("200"), "100");
    insert(&filter, 100..200);
    let expected = filter.digest().expect("a digest").to_string();
    let ask = |reader: &mut Child| {
        assert_eq!((reader.ask("200"), reader.ask("stat")), ("200".to_owned(), "200".to_owned()));
        assert_eq!(reader.ask("digest"), expected);
    };
    ask(&mut beside);
    filter.close().expect("root writes what it likes");
    let Some(mut after) = reading_child(home.path(), &dir) else { return };
    ask(&mut beside);
    ask(&mut after);
    beside.end();
    after.end();
}

type Change = fn(&mut Vec<u8>);

#[test]
fn damaged_files_give_readers_the_same_errors_as_writers() {
    let damage: [(&str, Change); 5] = [
        ("meta", |bytes| bytes[20] ^= 1),
        ("meta", Vec::clear),
        ("wal-", |bytes| bytes[20] ^= 1),
        ("wal-", |bytes| bytes.truncate(100)),
        ("lock", |_| {}),
    ];
    for (start, change) in damage {
        let (_home, dir) = home();
        let filter = create(&dir);
        insert(&filter, 0..2000);
        filter.checkpoint().expect("a snapshot");
        filter.close().expect("a clean end");
        for (path, (mut bytes, ..)) in files(&dir) {
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start)) {
                change(&mut bytes);
                fs::write(&path, bytes).expect("written");
            }
        }
        let reader = Reader::<Any>::open(&dir, options()).map(|_| ());
        let writer = Filter::<Any>::open(&dir, options()).map(|_| ());
        let [reader, writer] = [reader, writer].map(|opened| format!("{opened:?}"));
        assert_eq!(reader, writer, "{start}");
        assert_eq!(reader == "Ok(())", start == "lock", "{reader}");
    }
    let (home, dir) = home();
    for dir in [home.path(), &dir] {
        let error = Reader::<Any>::open(dir, options()).expect_err("nothing there");
        assert!(matches!(error, Error::NotAFilter { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(home.path()).expect("a directory").count(), 0);
    create(&dir).close().expect("a clean end");
    let error = Reader::<Bloom>::open(&dir, options()).expect_err("another kind");
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
}

#[test]
fn a_filter_without_a_lock_file_can_be_read() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..300);
    let expected = filter.digest().expect("a digest").value;
    filter.close().expect("a clean end");
    fs::remove_file(dir.join("lock")).expect("it was there");
    ask_everything(&dir);
    let reader = read(&dir);
    assert_eq!(reader.digest().expect("a digest").value, expected);
    assert!(!dir.join("lock").exists());
    let filter = Filter::<Any>::open(&dir, options()).expect("a filter");
    insert(&filter, 300..400);
    notices(&reader, 399);
}

#[test]
fn a_reader_notices_another_filter_in_the_same_directory() {
    let (_home, dir) = home();
    // A handle without threads, which might create a file while the directory is removed.
    let spec = AgePartitioned::last(100_000).fpr(1e-6);
    let filter = Filter::create(&dir, spec, options().background(false)).expect("a filter");
    insert(&filter, 0..100);
    let reader = read(&dir);
    let typed = Reader::<AgePartitioned>::open(&dir, options()).expect("a reader");
    // While handles have the filter open, whose files are gone.
    fs::remove_dir_all(&dir).expect("removed");
    assert_eq!(found(&reader, 0..100), 100);
    let other = create(&dir);
    insert(&other, 100..200);
    notices(&reader, 100);
    assert_eq!(found(&reader, 0..100), 0);
    drop(filter);
    // And while no handle has it open.
    other.close().expect("a clean end");
    assert_eq!(found(&reader, 100..200), 100);
    assert_eq!(found(&typed, 100..200), 100);
    fs::remove_dir_all(&dir).expect("removed");
    let bloom = Filter::create(&dir, Bloom::capacity(1000), options()).expect("a filter");
    insert(&bloom, 200..300);
    notices(&reader, 200);
    assert_eq!((found(&reader, 200..300), reader.kind()), (100, bloom.kind()));
    until("the other kind is noticed", || typed.contains("key").is_err());
    let error = typed.contains("key").expect_err("it stays another kind");
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
}

#[test]
fn many_threads_share_a_reader_while_writers_open_and_close() {
    let (_home, dir) = home();
    let filter = create(&dir);
    insert(&filter, 0..100);
    filter.close().expect("a clean end");
    let reader = read(&dir);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(found(&reader, 0..100), 100);
                }
            });
        }
        for round in 1..20_u64 {
            let filter = Filter::<Any>::open(&dir, options()).expect("a filter");
            insert(&filter, round * 100..round * 100 + 100);
            filter.close().expect("a clean end");
        }
        notices(&reader, 1999);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(found(&reader, 0..2000), 2000);
}

#[test]
fn a_filter_in_memory_is_read_like_one_on_disk() {
    let memory = Memory::new();
    let media = || Arc::new(memory.clone()) as Arc<dyn Media>;
    let missing = Reader::<Any>::open_on(media(), options()).expect_err("nothing there");
    assert!(matches!(missing, Error::NotAFilter { .. }), "{missing}");
    let spec = AgePartitioned::last(100_000).fpr(1e-6);
    let filter = Filter::create_on(media(), spec, options()).expect("a filter");
    let reader = Reader::<AgePartitioned>::open_on(media(), options()).expect("a reader");
    insert(&filter, 0..2000);
    assert_eq!(found(&reader, 0..3000), 2000);
    let expected = filter.digest().expect("a digest").value;
    assert_eq!(reader.digest().expect("a digest").value, expected);
    filter.close().expect("a clean end");
    assert_eq!(found(&reader, 0..3000), 2000);
    assert_eq!(reader.digest().expect("a digest").value, expected);
    let filter = Filter::<Any>::open_on(media(), options()).expect("a filter");
    insert(&filter, 2000..3000);
    notices(&reader, 2999);
}

#[test]
fn a_reader_gives_the_posteriors_of_the_filter() {
    let (_home, dir) = home();
    let spec = BlockTiming::last(1000).fpr(0.3);
    let filter = Filter::create(&dir, spec, options()).expect("a filter");
    insert(&filter, 0..3000);
    let reader = Reader::<BlockTiming>::open(&dir, options()).expect("a reader");
    fn about<H: Handle<Kind = BlockTiming>>(
        call: Call<'_, H>,
    ) -> ebbtide::Result<Vec<([f64; 2], bool, AgePosterior)>> {
        let (prior, dear) = (1e-4, Penalty { false_positive: 5.0, false_negative: 1.0 });
        let narrow = call.window(Within::Items(400)).form(Form::Paper);
        let one = |key| {
            let sure = [call.posterior(key, &prior)?, narrow.posterior(key, &prior)?];
            Ok((sure, call.contains_with(key, &prior, dear)?, call.age_posterior(key, &prior)?))
        };
        (1500..2500_u64).map(u64::to_le_bytes).map(one).collect()
    }
    let expected = about(filter.call()).expect("answers");
    assert!(expected.iter().any(|([own, nearer], ..)| 0.0 < *nearer && nearer < own));
    assert_eq!(about(reader.call()).expect("answers"), expected);
    filter.close().expect("a clean end");
    assert_eq!(about(reader.call()).expect("answers"), expected);
}

#[test]
fn readers_of_a_closed_frozen_filter_see_its_time_stopped() {
    let clock = ManualClock::new(Timestamp::from_unix_millis(1_000_000));
    let options = || options().downtime(Downtime::Freeze).clock(Clock::from(clock.clone()));
    let (_home, dir) = home();
    let spec = TimeLimited::window(Duration::from_secs(60));
    let filter = Filter::create(&dir, spec, options()).expect("a filter");
    insert(&filter, 0..10);
    filter.close().expect("a clean end");
    let reader = Reader::<TimeLimited>::open(&dir, options()).expect("a reader");
    clock.advance(Duration::from_secs(600));
    assert_eq!(found(&reader, 0..10), 10);
    let filter = Filter::<Any>::open(&dir, options()).expect("a filter");
    assert!(filter.contains(0_u64.to_le_bytes()).expect("an answer"));
}
