//! A thin disk that is full for a moment: the system cannot write back pages of the live image.
//!
//! The disk is a loop device on a file of a small file system in memory. Where the file has holes
//! and the file system is full, and only there, writes fail. The holes are the blocks of the
//! image's banks.

use ebbtide::{Bloom, Clock, Durability, Error, Filter, ImagePlace, Options, Reader, inspect};
use ebbtide_testkit::mount::{run, unmount};
use ebbtide_testkit::skipped::skipped;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
/// A longer wait means that nobody finds out.
const AT_MOST: Duration = Duration::from_secs(120);

fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .durability(Durability::Never)
        .clock(Clock::stream())
        .image(ImagePlace::BesideLog)
}

/// Gives all blocks of a file space.
fn fill_holes(path: &Path) {
    let bytes = fs::read(path).expect("it is there");
    let file = OpenOptions::new().write(true).open(path).expect("ours");
    file.write_all_at(&bytes, 0).expect("there is space");
}

/// Takes all space of a file system.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("an inode");
    while file.write(&[1; 4096]).is_ok_and(|written| written > 0) {}
}

/// Returns the blocks of a file on its disk, as first block and number; `None` without the tool.
fn extents(path: &Path) -> Option<Vec<(u64, u64)>> {
    let block = format!("-b{BLOCK}");
    let output = Command::new("filefrag").args([block.as_str(), "-e"]).arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let extent = |line: &str| {
        let parts: Vec<&str> = line.split(':').map(str::trim).collect();
        parts.first()?.parse::<u64>().ok()?;
        let first = parts.get(2)?.split("..").next()?.trim().parse().ok()?;
        Some((first, parts.get(3)?.parse().ok()?))
    };
    let extents: Vec<_> = text.lines().filter_map(extent).collect();
    (!extents.is_empty()).then_some(extents)
}

/// Mounts such a disk of 24 MiB and runs `act` with the paths of the mount, of the disk's file and
/// of a file that takes all other space; or reports that this is not possible.
fn on_thin_disk(act: impl FnOnce(&Path, &Path, &Path)) {
    let home = tempfile::tempdir().expect("a temporary directory");
    let [thin, mount] = ["thin", "mount"].map(|name| home.path().join(name));
    [&thin, &mount].into_iter().for_each(|path| fs::create_dir(path).expect("ours"));
    let disk = thin.join("disk");
    let [thin_path, mount_path, disk_path] =
        [&thin, &mount, &disk].map(|path| path.to_string_lossy().into_owned());
    if !run("mount", &["-t", "tmpfs", "-o", "size=40m", "tmpfs", &thin_path]) {
        skipped("this user cannot mount a tmpfs");
        return;
    }
    let made = File::create(&disk).and_then(|file| file.set_len(24 << 20));
    made.expect("there is space");
    let made = run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard", &disk_path]);
    fill_holes(&disk);
    if made && run("mount", &["-o", "loop", &disk_path, &mount_path]) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            act(&mount, &disk, &thin.join("filling"));
        }));
        assert!(unmount(&mount_path) && unmount(&thin_path), "unmounted");
        outcome.expect("see above");
    } else {
        assert!(unmount(&thin_path), "unmounted");
        skipped("a loop device needs root in the initial namespace, and mkfs.ext4");
    }
}

fn is_refused<T>(result: &ebbtide::Result<T>) -> bool {
    matches!(result, Err(Error::Poisoned { .. }))
}

fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok(), "{key}"));
}

#[test]
fn an_image_that_a_full_thin_disk_did_not_take_is_refused_and_rebuilt() {
    on_thin_disk(|mount, disk, filling| {
        let dir = mount.join("filter");
        let sync = || run("sync", &["-f", &mount.to_string_lossy()]);
        let filter = Filter::create(&dir, Bloom::capacity(300_000), options()).expect("space");
        let reader = Reader::<Bloom>::open(&dir, options()).expect("a reader");
        insert(&filter, 0..2000);
        filter.sync().expect("the disk takes it");
        assert!(sync(), "it takes all");
        let names = fs::read_dir(&dir).expect("a directory");
        let banks = names.map(|entry| entry.expect("an entry").path());
        let is_bank = |path: &std::path::PathBuf| path.to_string_lossy().contains("/live-");
        for bank in banks.filter(is_bank) {
            let Some(extents) = extents(&bank) else {
                skipped("filefrag is missing");
                return;
            };
            for (first, blocks) in extents {
                let [at, bytes] = [first, blocks].map(|number| (number * BLOCK).to_string());
                let path = disk.to_string_lossy();
                assert!(run("fallocate", &["-p", "-o", &at, "-l", &bytes, &path]), "a hole");
            }
        }
        fill(filling);
        // The system may write back, and fail to, sooner or later than the filter syncs.
        let inserted = |key: &u64| !is_refused(&filter.insert(key.to_le_bytes()));
        let returned = 2000 + (2000..4000_u64).take_while(inserted).count() as u64;
        let synced = filter.sync();
        assert!(synced.is_ok() || is_refused(&synced), "the log has its space: {synced:?}");
        // Whether it says so or not, pages of the banks are lost.
        sync();
        let began = Instant::now();
        while !is_refused(&filter.contains(1_u64.to_le_bytes())) {
            assert!(began.elapsed() < AT_MOST, "nobody found out");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(is_refused(&reader.contains(1_u64.to_le_bytes())), "a reader sees the mark");
        assert!(is_refused(&filter.checkpoint()));
        assert!(is_refused(&filter.insert("another")));
        assert!(is_refused(&Filter::<Bloom>::open(&dir, options())));
        assert!(is_refused(&filter.close()));
        drop(filter);
        fs::remove_file(filling).expect("it is there");
        let filter = Filter::<Bloom>::open(&dir, options()).expect("it is rebuilt");
        for key in 0..returned {
            assert!(filter.contains(key.to_le_bytes()).expect("an answer"), "{key} is gone");
        }
        drop(reader);
        filter.close().expect("a clean end");
        assert!(inspect::verify(&dir).expect("a report").is_sound());
    });
}
