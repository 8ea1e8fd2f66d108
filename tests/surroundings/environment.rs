//! The environment of a filter: files truncated under a running process, links in the place of
//! files, other users, any umask, quotas, file systems in memory. (Full disks: `tests/space`;
//! read-only directories: `tests/bad_input`; readers without write permission:
//! `tests/concurrency/reader.rs`.)
//!
//! Tests that need root, or a missing tool, report that they were skipped.

use ebbtide::history::At;
use ebbtide::{Any, Clock, Durability, Error, Filter, Keep, Options, Parameters, Reader, inspect};
use ebbtide_testkit::child;
use ebbtide_testkit::mount::{mounted, run};
use ebbtide_testkit::skipped::skipped;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use tempfile::TempDir;

/// The user id of `nobody`, on every distribution.
const OTHER: u32 = 65534;
/// The signal that ends a process that touches a page of a mapped file beyond the file's end.
const SIGBUS: i32 = 7;

/// Marks a child's messages in the output of the test harness.
const MARK: &str = "says: ";

fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .image(ebbtide::ImagePlace::BesideLog)
        .stripes(2)
        .block_bytes(4096)
        .segment_bytes(16 << 10)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::stream())
}

fn spec() -> Any {
    Any::new("bloom", Parameters::new().with("capacity", 20_000).with("fpr", "0.000001"))
}

fn home() -> (TempDir, PathBuf) {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    (home, dir)
}

fn insert<K>(filter: &Filter<K>, keys: Range<u64>) -> Result<(), Error> {
    keys.into_iter().try_for_each(|key| filter.insert(key.to_le_bytes()).map(drop))
}

/// Creates a closed filter with two snapshots and records after them.
fn create(dir: &Path) -> Filter {
    let filter = Filter::create(dir, spec(), options()).expect("a filter");
    for round in 0..2 {
        insert(&filter, round * 600..(round + 1) * 600).expect("inserts");
        filter.checkpoint().expect("a snapshot");
    }
    insert(&filter, 1200..KEYS).expect("inserts");
    filter
}

const KEYS: u64 = 1500;

fn assert_has(filter: &Filter, keys: Range<u64>, what: &str) {
    for key in keys {
        assert!(filter.contains(key.to_le_bytes()).expect("an answer"), "{what}: {key} is gone");
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// A child with its open filter.
struct Running {
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Running {
    /// Runs this binary in a role, directly or by this command, until its first message.
    fn start(mut command: Command, role: &str) -> (Self, String) {
        child::give(&mut command, module_path!(), role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a child");
        let says = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut running = Self { process, says };
        let said = running.hear();
        (running, said)
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.says.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
            line.clear();
        }
        String::new()
    }

    /// Lets the child continue; returns its message and its exit status.
    fn resume(mut self) -> (String, ExitStatus) {
        let mut stdin = self.process.stdin.take().expect("a pipe");
        // It may have died before.
        let _ = writeln!(stdin, "continue");
        let said = self.hear();
        drop(stdin);
        (said, self.process.wait().expect("it ends"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn myself() -> Command {
    Command::new(child::program())
}

fn say(text: impl std::fmt::Display) {
    println!("{MARK}{text}");
}

/// Waits for a line from the parent.
fn wait() {
    std::io::stdin().read_line(&mut String::new()).expect("the parent lives");
}

/// Opens a filter, waits, and then uses every part of it.
fn use_all(dir: &Path) {
    let filter = Filter::<Any>::open(dir, options()).expect("a filter");
    say("ready");
    wait();
    let used = insert(&filter, KEYS..KEYS + 2000)
        .and_then(|()| filter.digest().map(drop))
        .and_then(|()| filter.checkpoint().map(drop))
        .and_then(|()| filter.close());
    say(used.map_or_else(|error| error.to_string(), |()| "success".to_owned()));
}

/// Creates a filter and closes it.
fn make(dir: &Path) {
    let made = Filter::create(dir, spec(), options()).and_then(|filter| {
        insert(&filter, 0..1000)?;
        filter.checkpoint()?;
        filter.close()
    });
    say(made.map_or_else(|error| error.to_string(), |()| "made".to_owned()));
}

/// Opens another user's filter, for writing and for reading.
fn intrude(dir: &Path) {
    let opened = Filter::<Any>::open(dir, options()).map(drop);
    let read = Reader::<Any>::open(dir, options()).map(drop);
    let created = Filter::create(dir, spec(), options()).map(drop);
    let said = [opened, read, created].map(|refused| match refused {
        Err(error @ Error::Io { .. }) => error.to_string(),
        other => format!("{other:?}?"),
    });
    say(said.join(" | "));
}

/// Fills a filter until an insert fails, waits, and then continues.
fn fill(dir: &Path) {
    let filter = Filter::create(dir, spec(), options().segment_bytes(256 << 10)).expect("room");
    let full = (0..10_000_000).find_map(|key: u64| {
        let failed = filter.insert(key.to_le_bytes()).err()?;
        Some((key, failed))
    });
    let (key, error) = full.expect("there is an end to it");
    say(format!("{key} {} {error}", error.is_full()));
    wait();
    let more = insert(&filter, key..key + 1000).and_then(|()| filter.close());
    say(more.map_or_else(|error| error.to_string(), |()| "success".to_owned()));
}

#[test]
fn the_child_plays_its_role_when_it_is_one() {
    let role = child::role().unwrap_or_default();
    match role.split_once(' ') {
        Some(("use", dir)) => use_all(Path::new(dir)),
        Some(("make", dir)) => make(Path::new(dir)),
        Some(("intrude", dir)) => intrude(Path::new(dir)),
        Some(("fill", dir)) => fill(Path::new(dir)),
        _ => {}
    }
}

/// Returns the command of a child of another user, in a directory that this user can access.
fn of_another(home: &Path) -> Option<Command> {
    if !is_root() {
        skipped("only root can act as another user");
        return None;
    }
    // The other user may have no access to the build directory.
    let binary = home.join("tests");
    fs::copy(child::program(), &binary).expect("a copy");
    for path in [home, &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("root may");
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={OTHER}")).arg(format!("--regid={OTHER}"));
    command.args(["--clear-groups", "--"]).arg(&binary);
    // The copy may be busy for a moment: a child that another thread is starting may have inherited
    // the descriptor that wrote it.
    for _ in 0..300 {
        let mut works = Command::new(command.get_program());
        if works.args(command.get_args()).arg("--list").output().is_ok_and(|it| it.status.success())
        {
            return Some(command);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    skipped("there is no setpriv, or the other user cannot access the tests");
    None
}

/// Returns whether a file is part of the shared memory of the running processes; the log is not.
fn is_image(name: &str) -> bool {
    name == "live" || name.starts_with("live-")
}

#[test]
fn truncating_a_file_at_most_kills_the_process_by_a_signal_and_loses_only_the_cut_part() {
    let mut cut = Vec::new();
    loop {
        let mut file = None;
        for keep in [0, 1] {
            let (_home, dir) = home();
            drop(create(&dir));
            let (running, said) = Running::start(myself(), &format!("use {}", dir.display()));
            assert_eq!(said, "ready");
            file = names(&dir).into_iter().nth(cut.len());
            let Some(name) = &file else { break };
            let path = dir.join(name);
            let length = fs::metadata(&path).expect("a file").len();
            // Whole pages: the rest of a partial page would read as zeros, which cannot be
            // distinguished from its former contents.
            let bytes = length / 2 / 4096 * 4096 * keep;
            let shortened = fs::OpenOptions::new().write(true).open(&path);
            shortened.and_then(|file| file.set_len(bytes)).expect("it is cut");
            let (said, status) = running.resume();
            let what = format!("{name} cut from {length} to {bytes} bytes: {said:?}, {status}");
            println!("{what}");
            let died = status.signal();
            assert!(died == Some(SIGBUS) || status.success() && !said.is_empty(), "{what}");
            // The last page of `live` holds positions, of which this filter has none.
            let is_unused = name == "live" && keep == 1;
            assert!(!is_image(name) || is_unused || died.is_some(), "{what}: unnoticed");
            holds_what_was_not_cut(&dir, name, &what);
        }
        match file {
            Some(name) => cut.push(name),
            None => break,
        }
    }
    let kinds = ["live", "live-", "lock", "meta", "snap-", "wal-"];
    assert!(kinds.iter().all(|kind| cut.iter().any(|name| name.starts_with(kind))), "{cut:?}");
}

/// Checks that all earlier inserts are present, unless the log or `meta` was cut. In that case the
/// error must name the file and the remedy, and salvage must recover what the rest proves.
fn holds_what_was_not_cut(dir: &Path, name: &str, what: &str) {
    match Filter::<Any>::open(dir, options()) {
        Ok(filter) => assert_has(&filter, 0..KEYS, what),
        Err(error) => {
            let text = error.to_string();
            assert!(name.starts_with("wal-") || name == "meta", "{what}: {text}");
            assert!(matches!(error, Error::Damaged { .. }), "{what}: {text}");
            assert!(text.contains(&*dir.join(name).to_string_lossy()), "{what}: {text}");
            assert!(text.contains("; "), "{what}: no remedy in {text}");
            let saved = dir.with_extension("saved");
            if name == "meta" {
                inspect::salvage(dir, &saved).expect_err("the seed is stored nowhere else");
                return;
            }
            let salvaged = inspect::salvage(dir, &saved).expect("the rest can be saved");
            let salvaged = salvaged.expect("it is damaged");
            assert!(salvaged.inserts >= 1200, "{what}: {salvaged:?}");
            let filter = Filter::<Any>::open(&saved, options()).expect("what was saved");
            assert_has(&filter, 0..salvaged.inserts.min(KEYS), what);
        }
    }
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused_and_its_target_not_changed() {
    let (_home, model) = home();
    create(&model).close().expect("a clean end");
    let mut refused = 0;
    for name in names(&model) {
        let (home, dir) = home();
        create(&dir).close().expect("a clean end");
        let (path, target) = (dir.join(&name), home.path().join("foreign"));
        if !path.exists() {
            continue;
        }
        fs::rename(&path, &target).expect("it moves");
        symlink(&target, &path).expect("a link");
        let before = (fs::read(&target).expect("bytes"), fs::metadata(&target).expect("it").mode());
        let used = Filter::<Any>::open(&dir, options()).and_then(|filter| {
            insert(&filter, KEYS..KEYS + 1000)?;
            filter.checkpoint()?;
            filter.close()
        });
        if let Err(error) = used {
            refused += 1;
            let text = error.to_string();
            assert!(text.contains(&*path.to_string_lossy()), "{name}: {text}");
            assert!(text.contains("found a symbolic link; remove it"), "{name}: {text}");
        }
        let after = (fs::read(&target).expect("bytes"), fs::metadata(&target).expect("it").mode());
        assert!(before == after, "{name}: the target of the link was changed");
    }
    assert!(refused >= 3, "`meta`, `lock` and the log are refused: {refused}");
}

#[test]
fn a_link_at_the_name_of_a_future_file_creates_no_file_elsewhere() {
    let (_home, model) = home();
    let filter = create(&model);
    let mut later: Vec<String> = names(&model);
    insert(&filter, KEYS..KEYS + 3000).expect("inserts");
    filter.checkpoint().expect("a snapshot");
    drop(filter);
    drop(Filter::<Any>::open(&model, options()).expect("recovery"));
    later.extend(names(&model));
    later.extend((0..4).map(|slot| format!("tmp-{slot}")));
    later.sort();
    later.dedup();
    for name in later {
        let (home, dir) = home();
        fs::create_dir(&dir).expect("a directory");
        let target = home.path().join("foreign");
        symlink(&target, dir.join(&name)).expect("a link");
        let used = Filter::create(&dir, spec(), options()).and_then(|filter| {
            insert(&filter, 0..KEYS + 3000)?;
            filter.checkpoint()?;
            drop(filter);
            Filter::<Any>::open(&dir, options())?.close()
        });
        assert!(!target.exists(), "{name}: a file was created elsewhere");
        if let Err(error) = used {
            let text = error.to_string();
            assert!(text.contains(&*dir.to_string_lossy()), "{name}: {text}");
        }
    }
}

#[test]
fn a_link_to_the_directory_is_followed() {
    let (home, dir) = home();
    let link = home.path().join("link");
    symlink(&dir, &link).expect("a link");
    drop(create(&dir));
    let filter = Filter::<Any>::open(&link, options()).expect("the same filter");
    assert_has(&filter, 0..KEYS, "through a link");
}

/// Returns the mode of the directory and of all files.
fn modes(dir: &Path) -> BTreeMap<String, u32> {
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
    let files = names(dir).into_iter().map(|name| (name.clone(), mode(&dir.join(name))));
    files.chain([(".".to_owned(), mode(dir))]).collect()
}

#[test]
fn copies_of_a_filter_have_its_mode() {
    let (home, dir) = home();
    let at = |name: &str| home.path().join(name);
    let options = options().mode(0o660).keep_log(Keep::Bytes(1 << 20));
    let filter = Filter::create(&dir, spec(), options).expect("a filter");
    insert(&filter, 0..KEYS).expect("inserted");
    filter.backup(at("backup")).expect("a backup");
    filter.close().expect("closed");
    inspect::restore(at("backup"), at("restored")).expect("a filter");
    inspect::restore_at(&dir, At::Lsn(9), at("of then")).expect("a filter");
    let damaged = at("damaged");
    inspect::restore(&dir, &damaged).expect("a filter");
    for name in names(&damaged).into_iter().filter(|name| name.starts_with("snap-")) {
        fs::write(damaged.join(name), "x").expect("a damaged snapshot");
    }
    inspect::salvage(&damaged, at("salvaged")).expect("what is left");
    for copy in ["backup", "restored", "of then", "damaged", "salvaged"] {
        let files = modes(&at(copy));
        assert!(files.contains_key("meta"), "{copy}: {files:?}");
        for (name, mode) in files {
            let expected = if name == "." { 0o775 } else { 0o660 };
            assert_eq!(mode, expected, "{copy}: {name} has {mode:o}");
        }
    }
}

#[test]
fn for_any_umask_other_users_can_neither_read_the_files_nor_change_the_directory() {
    for umask in ["000", "022", "077", "277", "777"] {
        let (_home, dir) = home();
        let below = dir.join("below");
        let mut command = Command::new("sh");
        let own = child::program();
        command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(own);
        let (running, said) = Running::start(command, &format!("make {}", below.display()));
        assert!(running.resume().1.success(), "{umask}");
        if said == "made" {
            for (name, mode) in modes(&below) {
                let most = if name == "." { 0o755 } else { 0o600 };
                assert_eq!(mode & !most, 0, "{umask}: {name} has {mode:o}");
            }
            assert_eq!(modes(&dir)["."] & 0o022, 0, "{umask}: the directory above");
        } else {
            // Only if the user has no access to the user's own files.
            assert!(umask.starts_with(['2', '7']) && !is_root(), "{umask}: {said}");
            assert!(said.contains(&*dir.to_string_lossy()), "{umask}: {said}");
        }
    }
}

#[test]
fn no_umask_excludes_a_user_from_their_own_filter() {
    let (home, dir) = home();
    let Some(command) = of_another(home.path()) else { return };
    fs::create_dir(&dir).expect("a directory");
    chown(&dir, Some(OTHER), Some(OTHER)).expect("root may");
    for umask in ["277", "777"] {
        let mut strict = Command::new("sh");
        strict.args(["-c", "umask $0; exec \"$@\"", umask]).arg(command.get_program());
        strict.args(command.get_args());
        let (running, said) = Running::start(strict, &format!("make {}", dir.display()));
        assert!(running.resume().1.success(), "{umask}");
        assert_eq!(said, "made", "{umask}");
        let files = modes(&dir);
        let files = files.iter().filter(|(name, _)| *name != ".");
        files.for_each(|(name, mode)| assert_eq!(*mode, 0o600, "{umask}: {name}"));
        for name in names(&dir) {
            fs::remove_file(dir.join(name)).expect("root may");
        }
    }
}

#[test]
fn another_user_gets_an_error_with_the_file_name_and_changes_nothing() {
    let (home, dir) = home();
    let filter = create(&dir);
    let Some(command) = of_another(home.path()) else { return };
    // Even if the other user may write the directory.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("root may");
    let before = names(&dir);
    let (running, said) = Running::start(command, &format!("intrude {}", dir.display()));
    assert!(running.resume().1.success());
    let refusals: Vec<_> = said.split(" | ").collect();
    assert_eq!(refusals.len(), 3, "{said}");
    for refusal in refusals {
        assert!(refusal.contains(&*dir.to_string_lossy()), "{refusal}");
        assert!(refusal.contains("ermission denied"), "{refusal}");
    }
    assert_eq!(names(&dir), before);
    insert(&filter, KEYS..KEYS + 10).expect("its owner can use it");
    filter.close().expect("a clean end");
    let filter = Filter::<Any>::open(&dir, options()).expect("the same filter");
    assert_has(&filter, 0..KEYS + 10, "after an intruder");
}

#[test]
fn on_tmpfs_a_filter_outlives_its_processes() {
    mounted(&["-t", "tmpfs", "-o", "size=64m", "tmpfs"], |place| {
        let dir = place.join("filter");
        drop(create(&dir));
        let (mut running, said) = Running::start(myself(), &format!("use {}", dir.display()));
        assert_eq!(said, "ready");
        let beside = Filter::<Any>::open(&dir, options()).expect("attached");
        insert(&beside, KEYS..KEYS + 100).expect("inserts");
        drop(beside);
        running.process.kill().expect("it lives");
        running.process.wait().expect("it ends");
        let filter = Filter::<Any>::open(&dir, options()).expect("recovery");
        assert_has(&filter, 0..KEYS + 100, "on tmpfs");
        filter.close().expect("a clean end");
    });
}

/// The engine then rebuilds the state in memory, to free space; this one does not fit there either.
#[test]
fn a_filter_larger_than_disk_and_memory_is_refused_as_larger_than_the_disk() {
    mounted(&["-t", "tmpfs", "-o", "size=64m", "tmpfs"], |place| {
        let dir = place.join("filter");
        let spec = Any::new("bloom", Parameters::new().with("capacity", 200_000_000_000_u64));
        let error = Filter::create(&dir, spec, options()).expect_err("64 MiB");
        assert!(error.is_full() && error.to_string().contains("live"), "{error}");
        // Nothing of it is in the way of a smaller one.
        drop(create(&dir));
    });
}

/// On btrfs, whose quotas apply to a part of the file system, for all users.
#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn an_exhausted_quota_is_a_full_disk_and_the_same_handle_works_when_it_is_raised() {
    let home = TempDir::new().expect("a directory");
    let disk = home.path().join("disk").to_string_lossy().into_owned();
    fs::File::create(&disk).and_then(|file| file.set_len(256 << 20)).expect("a sparse file");
    if !run("mkfs.btrfs", &["-q", &disk]) {
        skipped("there is no mkfs.btrfs");
        return;
    }
    mounted(&["-o", "loop", &disk], |place| {
        let (path, part) = (place.to_string_lossy(), place.join("part"));
        let part = part.to_string_lossy().into_owned();
        assert!(run("btrfs", &["quota", "enable", &path]), "it has quotas");
        assert!(run("btrfs", &["subvolume", "create", &part]), "a part of it");
        let limit = |bytes: &str| run("btrfs", &["qgroup", "limit", bytes, &part]);
        assert!(limit("2M"), "the first limit");
        let dir = Path::new(&part).join("filter");
        let (running, said) = Running::start(myself(), &format!("fill {}", dir.display()));
        let (keys, error) = said.split_once(' ').expect("a number and an error");
        let keys: u64 = keys.parse().expect("a number");
        assert!(keys > 0 && error.starts_with("true cannot "), "{said}");
        assert!(error.contains(&*dir.to_string_lossy()), "{said}");
        assert!(error.contains("uota") && error.contains("nothing is lost"), "{said}");
        assert!(limit("64M"), "the second limit");
        let (said, status) = running.resume();
        assert!(status.success() && said == "success", "{said:?}, {status}");
        let again = options().segment_bytes(256 << 10);
        let filter = Filter::<Any>::open(&dir, again).expect("it was closed");
        assert_has(&filter, 0..keys + 1000, "after a quota");
    });
}
