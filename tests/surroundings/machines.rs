//! Identification of a boot of the machine, and of a device: boot ids that container managers
//! replace or hide, and a device that is removed and returns during one boot.
//!
//! Tests that need root, or a missing tool, report that they were skipped.

use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Reader, inspect};
use ebbtide_testkit::child;
use ebbtide_testkit::mount::{run, unmount, wait_until_unused};
use ebbtide_testkit::skipped::skipped;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Replaces the kernel's boot id, as LXC and `systemd-nspawn` do for each start of a container.
const OWN_ID: &str = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
/// Hides the boot id, as `ProcSubset=pid` of systemd does.
const NO_ID: &str = "mount -t proc -o subset=pid proc /proc && exec \"$@\"";

fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .stripes(2)
        .segment_bytes(64 << 10)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::stream())
}

fn create(dir: &Path) -> Filter {
    let kind = Any::new("bloom", Parameters::new().with("capacity", 50_000).with("fpr", "1e-9"));
    Filter::create(dir, kind, options()).expect("a filter")
}

fn open(dir: &Path) -> Filter {
    Filter::open(dir, options()).expect("it opens")
}

fn insert(filter: &Filter, keys: Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
}

fn assert_has(filter: &Filter, keys: Range<u64>) {
    for key in keys {
        assert!(filter.contains(key.to_le_bytes()).expect("an answer"), "{key} is gone");
    }
}

#[test]
fn the_child_plays_its_role_when_it_is_one() {
    let role = child::role().unwrap_or_default();
    let words: Vec<&str> = role.split(' ').collect();
    let &[role, dir, from, upto] = words.as_slice() else { return };
    let (dir, number) = (Path::new(dir), |text: &str| text.parse::<u64>().expect("a number"));
    let filter = open(dir);
    insert(&filter, number(from)..number(upto));
    if role == "half" {
        // The whole image reaches the disk, and the durable part of the log.
        filter.sync().expect("a sync");
        insert(&filter, number(upto)..2 * number(upto));
        File::open(dir.join("live")).and_then(|live| live.sync_all()).expect("a sync");
        std::mem::forget(filter);
        std::process::exit(0);
    }
    let source = filter.stat().expect("figures").boot_id;
    println!("ready {source:?}");
    let _ = std::io::stdin().read(&mut [0]);
    panic!("to be killed");
}

/// A child in a separate mount namespace, killed when dropped.
struct Running(Child);

impl Running {
    /// Starts a child that inserts keys in a namespace prepared by a script. Returns what it
    /// reports about its boot id; `None` if that is not possible here.
    fn start(script: &str, id: &Path, dir: &Path, keys: Range<u64>) -> Option<(Self, String)> {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(id);
        let role = format!("share {} {} {}", dir.display(), keys.start, keys.end);
        child::give(command.arg(child::program()), module_path!(), &role);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut running = Self(child.ok()?);
        let lines = BufReader::new(running.0.stdout.take().expect("piped")).lines();
        let said = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("ready ").map(|(_, source)| source.to_owned()));
        said.map(|said| (running, said))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The child may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether mounts are possible in a separate namespace.
fn can_mount() -> bool {
    let tried =
        Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        skipped("mounting needs to be root, and `unshare`");
    }
    can
}

#[test]
fn processes_with_different_or_no_boot_ids_share_a_filter_and_open_it_again() {
    if !can_mount() {
        return;
    }
    let home = tempfile::tempdir().expect("a temporary directory");
    let (dir, id) = (home.path().join("filter"), |number: u64| {
        let id = home.path().join(format!("id-{number}"));
        fs::write(&id, format!("00000000-0000-4000-8000-{number:012x}\n")).expect("space");
        id
    });
    create(&dir).close().expect("a clean end");
    let start = |script, number: u64, keys| {
        let started = Running::start(script, &id(number), &dir, keys);
        started.expect("it opens the filter with any boot id")
    };
    for round in 0..2_u64 {
        let first = 4000 * round;
        let (_one, source) = start(OWN_ID, 3 * round, first..first + 1000);
        assert_eq!(source, "MountedOver");
        let _two = start(OWN_ID, 3 * round + 1, first + 1000..first + 2000);
        let (_three, source) = start(NO_ID, 0, first + 2000..first + 3000);
        assert_eq!(source, "Missing");
        // The host itself, as a writer and as a reader.
        let reader = Reader::<Any>::open(&dir, options()).expect("a reader");
        assert!(reader.contains((first + 1500).to_le_bytes()).expect("an answer"));
        let filter = open(&dir);
        insert(&filter, first + 3000..first + 4000);
        assert_has(&filter, 0..first + 4000);
        assert!(inspect::verify(&dir).expect("a report").is_sound());
        filter.sync().expect("all of it is durable");
        std::mem::drop(filter);
        // Now all the other processes are killed.
    }
    let (_again, source) = start(NO_ID, 0, 8000..8001);
    assert_eq!(source, "Missing");
    assert_has(&open(&dir), 0..8001);
}

/// Shuts down a mounted ext4 file system without any further write: `EXT4_IOC_SHUTDOWN`.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

#[test]
fn a_device_removed_and_returned_during_one_boot_keeps_all_durable_inserts() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (image, place) = (home.path().join("image"), home.path().join("mount"));
    fs::create_dir(&place).expect("a directory");
    File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("space");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (image, mount) = (text(&image), text(&place));
    let device = Command::new("losetup").args(["--find", "--show", &image]).output();
    let device = device.ok().filter(|output| output.status.success());
    let Some(device) =
        device.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    else {
        skipped("no loop device is available");
        return;
    };
    if run("mkfs.ext4", &["-q", &device]) && run("mount", &[&device, &mount]) {
        let lost = std::panic::catch_unwind(|| lose_device(&device, &mount));
        unmount(&mount);
        run("losetup", &["--detach", &device]);
        lost.expect("see above");
    } else {
        run("losetup", &["--detach", &device]);
        skipped("no ext4 can be mounted here");
    }
}

fn lose_device(device: &str, mount: &str) {
    const KEYS: u64 = 10_000;
    let dir = Path::new(mount).join("filter");
    create(&dir).close().expect("a clean end");
    let role = format!("half {} 0 {KEYS}", dir.display());
    let child = child::give(&mut Command::new(child::program()), module_path!(), &role).output();
    assert!(child.expect("a child").status.success());
    if !run("python3", &["-c", SHUT_DOWN, mount]) {
        skipped("the file system cannot be stopped");
        return;
    }
    assert!(unmount(mount));
    // Otherwise it would be mounted as it is there: stopped.
    if !wait_until_unused(device) {
        skipped("another namespace keeps the file system mounted");
        return;
    }
    assert!(run("mount", &[device, mount]));
    assert!(inspect::verify(&dir).expect("a report").is_sound());
    let filter = open(&dir);
    assert_has(&filter, 0..KEYS);
    let inserts = filter.stat().expect("figures").inserts;
    assert!((KEYS..=2 * KEYS).contains(&inserts), "{inserts}");
    if inserts == 2 * KEYS {
        skipped("on this busy machine all had been written back before");
    }
    filter.close().expect("a clean end");
    assert!(inspect::verify(&dir).expect("a report").is_sound());
}
