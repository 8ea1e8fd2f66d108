//! The live image in memory: who can attach to it and how, what it leaves, and what it takes.

use ebbtide::history::Unlogged;
use ebbtide::inspect;
use ebbtide::{AgePartitioned, BankPlace, Bloom, Filter, ImagePlace, Keep, Options, Reader};
use ebbtide::{Error, Fingerprint, Timestamp};
use ebbtide_testkit::child::{self, Child};
use ebbtide_testkit::mount::mounted;
use ebbtide_testkit::skipped::skipped;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The number of keys of the filters here: some megabytes.
const KEYS: u64 = 1_000_000;
/// The number of keys that a child inserts: 640 KB of log.
const FILLED: u64 = 20_000;

/// Returns the bytes that this process has given the system to write.
fn written() -> u64 {
    let counted = fs::read_to_string("/proc/self/io").expect("figures");
    let line = counted.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.expect("a line").parse().expect("a number")
}

fn options() -> Options {
    Options::new().background(false).durability(ebbtide::Durability::Never)
}

fn create(dir: &Path) -> Filter<AgePartitioned> {
    Filter::create(dir, AgePartitioned::last(KEYS), options()).expect("a filter")
}

fn place<K>(filter: &Filter<K>) -> BankPlace {
    filter.stat().expect("figures").image
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("a name").file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

/// A child opens the filter of its role, and answers `insert KEY`, `contains KEY`, `place`, `taken`
/// (bytes of memory) and `read KEY`, with a reader; `opening` is answered with the bytes that it
/// writes, `fill` inserts [`FILLED`] keys, and `sync` makes them durable.
#[test]
fn the_child_plays_its_role_when_it_is_one() {
    let Some(role) = child::role() else { return };
    let dir = Path::new(&role).to_path_buf();
    let mut filter = None;
    let mut reader = None;
    child::play(|command| {
        let (word, key) = command.split_once(' ').unwrap_or((command, ""));
        let mut act = || -> ebbtide::Result<String> {
            if word == "read" {
                if reader.is_none() {
                    reader = Some(Reader::<ebbtide::Any>::open(&dir, Options::new())?);
                }
                return Ok(reader.as_ref().expect("a reader").contains(key)?.to_string());
            }
            let before = written();
            if filter.is_none() {
                filter = Some(Filter::<ebbtide::Any>::open(&dir, options())?);
            }
            let filter = filter.as_ref().expect("a filter");
            match word {
                "opening" => Ok((written() - before).to_string()),
                "fill" => (0..FILLED)
                    .try_for_each(|key| filter.insert(key.to_le_bytes()).map(drop))
                    .map(|()| "done".to_owned()),
                "sync" => filter.sync().map(|()| "done".to_owned()),
                "insert" => filter.insert(key).map(|_| "done".to_owned()),
                "contains" => filter.contains(key).map(|is| is.to_string()),
                "taken" => Ok(memory_taken().to_string()),
                "place" => filter.stat().map(|stat| stat.image.to_string()),
                other => panic!("{other}"),
            }
        };
        act().unwrap_or_else(|error| error.to_string().replace('\n', " "))
    });
}

#[test]
fn the_banks_of_a_filter_lie_in_memory_and_those_of_one_that_stays_small_beside_the_log() {
    let home = tempfile::tempdir().expect("a directory");
    let large = create(&home.path().join("large"));
    assert_eq!(place(&large), BankPlace::Memory);
    let found = names(&home.path().join("large"));
    assert!(!found.iter().any(|name| name.starts_with("live-")), "{found:?}");
    let small = Filter::create(home.path().join("small"), Bloom::capacity(1000), options());
    assert_eq!(place(&small.expect("a filter")), BankPlace::BesideLog);
    let grows = Fingerprint::window(Duration::from_secs(600));
    let grows = Filter::create(home.path().join("grows"), grows, options()).expect("a filter");
    assert_eq!(place(&grows), BankPlace::Memory);
}

#[test]
fn an_attached_handle_follows_what_is_whatever_it_asks_for() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let first = create(&dir);
    let asking = options().image(ImagePlace::BesideLog);
    let second = Filter::<AgePartitioned>::open(&dir, asking.clone()).expect("attached");
    assert_eq!((place(&first), place(&second)), (BankPlace::Memory, BankPlace::Memory));
    first.insert("a").expect("an insert");
    assert!(second.contains("a").expect("an answer"));
    first.close().expect("closed");
    second.insert("b").expect("an insert");
    second.close().expect("closed");
    let alone = Filter::<AgePartitioned>::open(&dir, asking).expect("opened");
    assert_eq!(place(&alone), BankPlace::BesideLog);
    assert!(alone.contains("a").expect("an answer") && alone.contains("b").expect("an answer"));
}

#[test]
fn an_old_handle_leaves_the_socket_of_the_filter_that_is_in_its_place_now() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let sockets = || -> Vec<String> {
        names(&dir).into_iter().filter(|name| name.starts_with("attach-")).collect()
    };
    let old = create(&dir);
    let found = sockets();
    assert_eq!(found.len(), 1, "{found:?}");
    for name in names(&dir) {
        fs::remove_file(dir.join(name)).expect("its file");
    }
    let new = create(&dir);
    assert_eq!(sockets(), found, "the same session of another filter");
    drop(old);
    assert_eq!(sockets(), found);
    // That of another process.
    fs::remove_file(dir.join(&found[0])).expect("a name");
    let _other = UnixListener::bind(dir.join(&found[0])).expect("a socket");
    drop(new);
    assert_eq!(sockets(), found);
    fs::remove_file(dir.join(&found[0])).expect("a name");
    drop(Filter::<AgePartitioned>::open(&dir, options()).expect("a filter"));
    assert_eq!(sockets(), [""; 0], "its own");
}

#[test]
fn an_image_that_could_not_be_handed_out_is_handed_out_later() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    drop(create(&dir));
    // A directory has the name of the socket, so that it cannot be made.
    let name = dir.join("attach-0");
    fs::create_dir(&name).expect("a directory");
    let filter =
        Filter::<AgePartitioned>::open(&dir, options().background(true)).expect("a filter");
    assert_eq!(place(&filter), BankPlace::Memory);
    assert!(name.is_dir());
    fs::remove_dir(&name).expect("nobody uses it");
    let begun = std::time::Instant::now();
    while !name.exists() {
        assert!(begun.elapsed().as_secs() < 30, "nobody tries again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(fs::metadata(&name).expect("it is there").file_type().is_socket());
    filter.close().expect("closed");
    assert!(!name.exists());
}

#[test]
fn an_alteration_frees_the_space_of_an_image_beside_the_log_although_handles_stay() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let beside = options().image(ImagePlace::BesideLog).keep_log(Keep::Bytes(1 << 30));
    let filter = Filter::create(&dir, Bloom::capacity(KEYS), beside).expect("a filter");
    (0..FILLED).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    let bank = names(&dir).into_iter().find(|name| name.starts_with("live-")).expect("a bank");
    let bank = fs::File::open(dir.join(bank)).expect("a bank");
    let taken = || bank.metadata().expect("figures").blocks() * 512;
    assert!(taken() > 1 << 20, "{}", taken());
    filter.alter(Bloom::capacity(2 * KEYS), Unlogged::Refuse).expect("its log is kept");
    assert!(taken() <= 64 << 10, "{}", taken());
    assert!(filter.contains(7_u64.to_le_bytes()).expect("an answer"));
}

#[test]
fn a_named_directory_holds_the_image_without_a_name() {
    let home = tempfile::tempdir().expect("a directory");
    let (dir, there) = (home.path().join("filter"), home.path().join("there"));
    fs::create_dir(&there).expect("a directory");
    let named = options().image(ImagePlace::Directory(there.clone()));
    let spec = AgePartitioned::last(KEYS);
    let filter = Filter::create(&dir, spec.clone(), named.clone()).expect("a filter");
    assert!(matches!(place(&filter), BankPlace::DiskDirectory | BankPlace::MemoryDirectory));
    filter.insert("a").expect("an insert");
    let other = Filter::<AgePartitioned>::open(&dir, options()).expect("attached");
    assert!(other.contains("a").expect("an answer"));
    assert_eq!(names(&there), [""; 0]);
    drop((filter, other));
    fs::remove_dir(&there).expect("it is empty");
    let error = Filter::<AgePartitioned>::open(&dir, named).expect_err("there is no directory");
    assert!(error.to_string().contains("there"), "{error}");
}

/// The space of the image is not that of the log, which is left alone.
#[test]
fn without_space_where_the_image_is_to_lie_no_log_is_removed() {
    mounted(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], |there| {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("filter");
        let kept = options().segment_bytes(64 << 10).keep_log(Keep::Bytes(1 << 30));
        let filter = Filter::create(&dir, Bloom::capacity(KEYS), kept).expect("a filter");
        for round in 0..4_u64 {
            for key in 0..FILLED / 4 {
                filter.insert((round << 32 | key).to_le_bytes()).expect("an insert");
            }
            filter.checkpoint().expect("a snapshot");
        }
        let from = |filter: &Filter<Bloom>| filter.stat().expect("figures").kept_log_from;
        assert_eq!(from(&filter), Some(0));
        drop(filter);
        let before = names(&dir);
        let small = options().image(ImagePlace::Directory(there.to_path_buf()));
        let error = Filter::<Bloom>::open(&dir, small.clone()).expect_err("1.8 MB in one");
        assert!(!error.is_full() && error.to_string().contains("image"), "{error}");
        assert_eq!(names(&dir), before);
        let filter = Filter::<Bloom>::open(&dir, options()).expect("in memory");
        assert_eq!(from(&filter), Some(0));
        drop(filter);

        // A filter that is altered grows beyond the space.
        let dir = home.path().join("altered");
        let kept = small.keep_log(Keep::Bytes(1 << 30));
        let filter = Filter::create(&dir, Bloom::capacity(KEYS / 10), kept).expect("180 kB");
        filter.insert("a").expect("an insert");
        let larger = Bloom::capacity(KEYS);
        let error = filter.alter(larger, Unlogged::Refuse).expect_err("1.8 MB");
        assert!(!error.is_full(), "{error}");
        filter.insert("b").expect("an insert");
        assert_eq!(filter.stat().expect("figures").inserts, 2);
    });
}

#[test]
fn another_process_attaches_also_while_all_holders_are_stopped() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    drop(create(&dir));
    let mut holder = Child::start(module_path!(), dir.to_str().expect("a path"));
    assert_eq!(holder.ask("place"), "memory");
    holder.ask("insert a");
    holder.signal(Signal::STOP);
    let filter = Filter::<AgePartitioned>::open(&dir, options()).expect("attached");
    assert_eq!(place(&filter), BankPlace::Memory);
    assert!(filter.contains("a").expect("an answer"));
    filter.insert("b").expect("an insert");
    holder.signal(Signal::CONT);
    assert_eq!(holder.ask("contains b"), "true");
    // The new handle keeps the image when all others are gone.
    holder.kill();
    assert!(filter.contains("a").expect("an answer"));
    let reader: Reader = Reader::open(&dir, Options::new()).expect("a reader");
    assert!(reader.contains("b").expect("an answer"));
}

/// Runs this binary as a child in namespaces of its own: only the filter's directory is shared.
fn in_container(dir: &Path) -> Option<Child> {
    let mut command = Command::new("unshare");
    let namespaces =
        ["--mount", "--pid", "--ipc", "--net", "--fork", "--mount-proc", "--kill-child"];
    let tried = Command::new("unshare").args(namespaces).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skipped("namespaces need root, and `unshare`");
        return None;
    }
    command.args(namespaces).arg(child::program());
    Some(Child::run(command, module_path!(), dir.to_str().expect("a path")))
}

#[test]
fn a_container_that_shares_only_the_directory_attaches_and_is_attached_to() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let filter = create(&dir);
    let Some(mut child) = in_container(&dir) else { return };
    assert_eq!(child.ask("place"), "memory");
    filter.insert("a").expect("an insert");
    assert_eq!(child.ask("contains a"), "true");
    assert_eq!(child.ask("read a"), "true");
    child.ask("insert b");
    assert!(filter.contains("b").expect("an answer"));
    // The other way round: only the container has it.
    drop(filter);
    let filter = Filter::<AgePartitioned>::open(&dir, options()).expect("attached");
    assert_eq!(place(&filter), BankPlace::Memory);
    assert!(filter.contains("b").expect("an answer"));
}

/// Runs this binary as a child of another user and of a group.
fn as_user(dir: &Path, user: u32, group: u32) -> Option<Child> {
    let arguments =
        [format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()];
    let tried = Command::new("setpriv").args(&arguments).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skipped("another user needs root, and `setpriv`");
        return None;
    }
    let mut command = Command::new("setpriv");
    // The binary may lie where the user may not enter.
    let copy = dir.parent().expect("a parent").join(format!("program-{user}"));
    fs::copy(child::program(), &copy).expect("space");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("owned");
    command.args(arguments).arg(copy);
    Some(Child::run(command, module_path!(), dir.to_str().expect("a path")))
}

#[test]
fn users_of_a_group_attach_to_each_other_and_one_who_may_only_read_can_only_read() {
    let home = tempfile::tempdir().expect("a directory");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("owned");
    let dir = home.path().join("filter");
    let spec = AgePartitioned::last(KEYS);
    let filter = Filter::create(&dir, spec, options().mode(0o664)).expect("a filter");
    filter.insert("a").expect("an insert");
    // Of root's group: it may write.
    let Some(mut member) = as_user(&dir, 4321, 0) else { return };
    assert_eq!(member.ask("place"), "memory");
    assert_eq!(member.ask("contains a"), "true");
    member.ask("insert b");
    assert!(filter.contains("b").expect("an answer"));
    let mut outsider = as_user(&dir, 5432, 5432).expect("another user");
    assert_eq!(outsider.ask("read b"), "true");
    let refused = outsider.ask("insert c");
    assert!(refused.contains("permission denied"), "{refused}");
    let maps = fs::read_to_string(format!("/proc/{}/maps", outsider.id())).expect("its mappings");
    let shared: Vec<_> = maps.lines().filter(|line| line.contains("memfd:ebbtide")).collect();
    assert!(!shared.is_empty(), "{maps}");
    assert!(shared.iter().all(|line| line.contains(" r--s ")), "{shared:?}");
    // The user who has created the image has gone.
    drop(filter);
    assert_eq!(member.ask("read b"), "true");
    let mut late = as_user(&dir, 5433, 5433).expect("another user");
    assert_eq!(late.ask("read b"), "true");
    let refused = late.ask("insert c");
    assert!(refused.contains("permission denied"), "{refused}");
    // Root attaches to a member's image as well.
    let again = Filter::<AgePartitioned>::open(&dir, options()).expect("attached");
    assert!(again.contains("b").expect("an answer"));
    assert_eq!(place(&again), BankPlace::Memory);
}

#[test]
fn a_stopped_holder_of_another_user_is_named_in_the_error_and_nothing_is_lost() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    drop(create(&dir));
    let Some(mut holder) = in_container(&dir) else { return };
    holder.ask("insert a");
    let number = fs::read_dir("/proc").expect("processes").filter_map(|entry| {
        let number: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let role = fs::read(format!("/proc/{number}/environ")).ok()?;
        let is_holder = String::from_utf8_lossy(&role).contains(dir.to_str()?);
        let name = fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
        (is_holder && !name.starts_with("unshare")).then_some(number)
    });
    let number = number.max().expect("the holder");
    let number = Pid::from_raw(number).expect("a process");
    let signal = |signal| kill_process(number, signal).expect("it lives");
    signal(Signal::STOP);
    // Root reaches it below `/proc`: in the namespace of this test, under another number.
    let opened = Filter::<AgePartitioned>::open(&dir, options());
    if let Err(error) = &opened {
        assert!(error.to_string().contains("does not answer"), "{error}");
    }
    drop(opened);
    signal(Signal::CONT);
    let filter = Filter::<AgePartitioned>::open(&dir, options()).expect("attached");
    assert!(filter.contains("a").expect("an answer"));
}

/// Returns the processor time that a process has used.
fn processor_time(process: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let fields = stat.rsplit(')').next().expect("fields after the name").split_whitespace();
    let ticks: u64 =
        fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

#[test]
fn a_holder_without_a_free_descriptor_costs_no_processor_and_answers_once_it_has_one() {
    let home = tempfile::tempdir().expect("a directory");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("owned");
    let dir = home.path().join("filter");
    let spec = AgePartitioned::last(KEYS);
    drop(Filter::create(&dir, spec, options().mode(0o660)).expect("a filter"));
    let mut holder = Child::start(module_path!(), dir.to_str().expect("a path"));
    holder.ask("insert a");
    // Of root's group: it may write, but not look below `/proc/PID/fd` of root's process.
    let Some(mut member) = as_user(&dir, 4321, 0) else { return };
    let number = holder.id() as i32;
    let process = Pid::from_raw(number).expect("a process");
    let limit = |most| {
        let limit = Rlimit { current: Some(most), maximum: Some(4096) };
        prlimit(Some(process), Resource::Nofile, limit).expect("root may");
    };
    // No number is left for a new one.
    limit(3);
    let before = processor_time(number);
    let refused = member.ask("insert b");
    assert!(refused.contains("no file descriptor left"), "{refused}");
    // It waited for two seconds.
    let used = processor_time(number) - before;
    assert!(used < Duration::from_millis(500), "{used:?}");
    limit(4096);
    member.ask("insert b");
    assert_eq!(holder.ask("contains b"), "true");
}

#[test]
fn after_the_death_of_all_nothing_is_left_and_the_next_has_the_state() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    drop(create(&dir));
    for round in 0..3 {
        let mut first = Child::start(module_path!(), dir.to_str().expect("a path"));
        let mut second = Child::start(module_path!(), dir.to_str().expect("a path"));
        first.ask(&format!("insert first {round}"));
        second.ask(&format!("insert second {round}"));
        first.kill();
        second.kill();
    }
    let filter = Filter::<AgePartitioned>::open(&dir, options()).expect("opened");
    for round in 0..3 {
        for of in ["first", "second"] {
            assert!(filter.contains(format!("{of} {round}")).expect("an answer"));
        }
    }
    filter.close().expect("closed");
    let left = names(&dir);
    let is_ours = |name: &String| {
        ["live", "lock", "meta"].contains(&name.as_str())
            || name.starts_with("wal-")
            || name.starts_with("snap-")
    };
    assert!(left.iter().all(is_ours), "{left:?}");
    assert!(inspect::verify(&dir).expect("a report").is_sound());
}

/// After a failed sync the pages of the log count as clean, as after any sync of another program.
#[test]
fn an_opening_writes_log_again_unless_dead_writers_knew_that_it_was_durable() {
    let home = tempfile::tempdir().expect("a directory");
    let opening = |name: &str, is_synced: bool| {
        let dir = home.path().join(name);
        drop(create(&dir));
        let role = dir.to_str().expect("a path");
        let mut writer = Child::start(module_path!(), role);
        assert_eq!(writer.ask("fill"), "done");
        if is_synced {
            assert_eq!(writer.ask("sync"), "done");
        }
        writer.kill();
        for name in names(&dir).iter().filter(|name| name.starts_with("wal-")) {
            let file = fs::File::open(dir.join(name));
            file.and_then(|file| file.sync_all()).expect("a sound disk");
        }
        let mut next = Child::start(module_path!(), role);
        next.ask("opening").parse::<u64>().expect("a number")
    };
    let (unknown, known) = (opening("unknown", false), opening("known", true));
    if unknown == 0 {
        skipped("stores to the temporary directory are not counted (tmpfs)");
        return;
    }
    let log = FILLED * 32;
    assert!(unknown >= log, "{unknown} bytes");
    assert!(known < log / 2, "{known} bytes");
}

#[test]
fn memory_that_is_not_there_is_an_error_before_any_is_taken() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let (memory, disk) = (memory_available(), disk_free(home.path()));
    // Half more than there is; on a disk that could take it, which is asked first.
    let bytes = memory + memory / 2;
    if bytes >= disk {
        skipped("the disk has less space than the machine memory");
        return;
    }
    let spec = Bloom::capacity(bytes * 8 / 14);
    let error = Filter::create(&dir, spec, options()).expect_err("no machine has that");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("of memory") && told.contains("EBBTIDE_IMAGE=beside-log"), "{told}");
    assert!(!names(&dir).iter().any(|name| name != "lock"), "{:?}", names(&dir));
}

#[test]
fn banks_that_come_and_go_take_the_memory_of_those_that_are_there() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    let spec = Fingerprint::window(Duration::from_secs(600)).rate(500.0);
    let memory = options().image(ImagePlace::Memory).clock(ebbtide::Clock::stream());
    let filter = Filter::create(&dir, spec, memory).expect("a filter");
    let mut other = Child::start(module_path!(), dir.to_str().expect("a path"));
    assert_eq!(other.ask("place"), "memory");
    let mut most = 0;
    for minute in 0..60_u64 {
        for key in 0..10_000_u64 {
            let at = Timestamp::from_unix_micros(minute * 60_000_000 + key * 6000);
            filter.call().time(at).insert(format!("{minute} {key}")).expect("an insert");
        }
        other.ask("contains x");
        let taken: u64 = other.ask("taken").parse().expect("a number");
        let told = filter.stat().expect("figures").memory_bytes;
        assert!(taken <= told + told / 2 + (1 << 20), "minute {minute}: {taken} of {told}");
        most = most.max(taken);
    }
    assert!(most > 0);
}

fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("figures");
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("a line");
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kib << 10
}

fn disk_free(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).expect("figures");
    found.f_bfree * found.f_frsize
}

/// Returns the memory of the only image that this process has.
fn memory_taken() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let descriptors = fs::read_dir("/proc/self/fd").expect("descriptors");
    let mut images = descriptors.filter_map(|entry| {
        let path = entry.ok()?.path();
        let target = fs::read_link(&path).ok()?;
        let is_image = target.to_str()?.starts_with("/memfd:ebbtide");
        is_image.then(|| fs::metadata(path).expect("it is open").blocks() * 512)
    });
    images.next().expect("an image")
}
