//! Filters whose every life ends without a close, with few descriptors, on small disks: each opens
//! again, no key is missing, and the space that they need is bounded.

use ebbtide::{Any, Durability, Filter, Options, Parameters, Reader, inspect};
use ebbtide_testkit::copies::copy_files;
use ebbtide_testkit::mount::{run, unmount};
use ebbtide_testkit::{child, environment};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// The test that a life runs; it does nothing without a role.
const LIFE: &str = "a_life_inserts_and_ends_without_a_close_when_it_is_one";
/// The largest number of open files of a life, including the standard streams and libtest's.
const DESCRIPTORS: u32 = 48;

/// Returns the number of lives of each kind; the environment may request thousands.
fn lives() -> u64 {
    environment::number("EBBTIDE_LIVES").unwrap_or(150)
}

/// Three kinds that keep every one of this number of keys.
fn kinds() -> [(&'static str, Any); 3] {
    let of = |kind, parameters| (kind, Any::new(kind, parameters));
    [
        of("age-partitioned", Parameters::new().with("window-items", 20_000)),
        of("dynamic-count", Parameters::new().with("capacity", 20_000)),
        of("time-limited", Parameters::new().with("window", 3_600_000_000_u64)),
    ]
}

fn options() -> Options {
    Options::new().hash_seed(7).durability(Durability::Never)
}

#[test]
fn a_life_inserts_and_ends_without_a_close_when_it_is_one() {
    let Some(role) = child::role() else { return };
    let words: Vec<&str> = role.split('\n').collect();
    let &[dir, from, upto] = words.as_slice() else { panic!("{role}") };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let filter = Filter::<Any>::open(dir, options()).expect("it opens");
    for key in number(from)..number(upto) {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    // Ends as by a signal: neither closed nor dropped.
    std::mem::forget(filter);
    std::process::exit(0);
}

/// Runs a test of this program, in a role, with few descriptors.
fn limited(test: &str, dir: &Path, keys: std::ops::Range<u64>) -> ExitStatus {
    let limited = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).arg(child::program());
    let role = format!("{}\n{}\n{}", dir.display(), keys.start, keys.end);
    let output = child::give_to(&mut command, module_path!(), test, &role).output();
    let output = output.expect("a shell");
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status
}

/// Returns the bytes of disk space that the files of a filter take.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").metadata().map_or(0, |file| file.blocks() * 512))
        .sum()
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "space is not given back"
)]
fn after_any_number_of_lives_without_a_close_the_filter_opens_and_its_disk_space_is_bounded() {
    for (name, kind) in kinds() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = place.path().to_string_lossy().into_owned();
        let mounted = run("mount", &["-t", "tmpfs", "-o", "size=16m", "tmpfs", &path]);
        let outcome =
            std::panic::catch_unwind(|| many_lives(&place.path().join("filter"), name, kind));
        if mounted {
            assert!(unmount(&path), "unmounted");
        }
        outcome.expect(name);
    }
}

fn many_lives(dir: &Path, name: &str, kind: Any) {
    let filter = Filter::create(dir, kind, options()).expect("a filter");
    let memory = filter.stat().expect("figures").memory_bytes;
    filter.close().expect("a clean end");
    let mut most = 0;
    for life in 0..lives() {
        assert!(limited(LIFE, dir, life..life + 1).success(), "{name}: life {life}");
        most = most.max(disk_bytes(dir));
    }
    let filter = Filter::<Any>::open(dir, options()).expect("it opens");
    // `time-limited` grows with the rate of its keys.
    let memory = memory.max(filter.stat().expect("figures").memory_bytes);
    println!("{name}: {memory} bytes of memory, at most {most} of disk");
    // As README states: five times the memory, three segments (of at most 1 MiB here), and 8 KiB
    // for each timeline whose log is kept, twice 17.
    let bound = 5 * memory + (3 << 20) + 34 * (8 << 10);
    assert!(most <= bound, "{name}: {most} bytes of disk, {memory} of memory");
    for key in 0..lives() {
        assert!(filter.contains(key.to_le_bytes()).expect("an answer"), "{name}: {key} is missing");
    }
    assert_eq!(filter.stat().expect("figures").inserts, lives());
    filter.close().expect("a clean end");
    assert!(inspect::verify(dir).expect("a report").is_sound());
}

/// The test that runs in a separate process.
const LONG: &str = "a_log_of_2000_segments_is_used_with_few_descriptors_when_it_is_one";
const SEGMENTS: u64 = 2000;
/// The number of records in a segment of 4 KiB.
const RECORDS: u64 = 128;

/// Creates a filter with a log of this many segments, and without a snapshot.
fn long_log(options: &Options, dir: &Path) -> Filter {
    let kind = Any::new("age-partitioned", Parameters::new().with("window-items", 1_000_000));
    let filter = Filter::create(dir, kind, options.clone()).expect("a filter");
    for key in 0..SEGMENTS * RECORDS {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    filter
}

#[test]
fn a_log_of_2000_segments_is_used_with_few_descriptors_when_it_is_one() {
    let Some(role) = child::role() else { return };
    let home = Path::new(role.lines().next().expect("a directory"));
    let [dir, backup, copy, saved] =
        ["filter", "backup", "copy", "saved"].map(|name| home.join(name));
    let options = options().background(false).segment_bytes(4 << 10).checkpoint_bytes(1 << 40);
    let filter = long_log(&options, &dir);
    let before = filter.digest().expect("a digest");
    filter.sync().expect("each segment is synced");
    filter.backup(&backup).expect("a backup");
    assert!(inspect::verify(&dir).expect("a report").is_sound(), "beside a writer");
    std::mem::forget(filter);
    // The forgotten handle still holds its locks: the following steps read a copy.
    copy_files(&dir, &copy).expect("space");
    assert!(inspect::verify(&copy).expect("a report").is_sound());
    let reader = Reader::<Any>::open(&copy, options.clone()).expect("a reader");
    assert!(reader.contains(7_u64.to_le_bytes()).expect("an answer"));
    drop(reader);
    let mut records = 0;
    let counted = inspect::wal(&copy, |_| {
        records += 1;
        Ok(())
    });
    counted.expect("all of it");
    assert!(records >= SEGMENTS * RECORDS, "{records}");
    let restored = home.join("restored");
    inspect::restore(&copy, &restored).expect("a copy");
    let filter = Filter::<Any>::open(&restored, options.clone()).expect("it is recovered");
    assert_eq!(filter.digest().expect("a digest").value, before.value);
    filter.close().expect("a clean end");
    // One bit of a record in the middle.
    let name = format!("wal-000002-{:016}", 1 + 1000 * RECORDS);
    let mut bytes = fs::read(copy.join(&name)).expect("a segment");
    bytes[5000] ^= 1;
    fs::write(copy.join(&name), bytes).expect("space");
    inspect::salvage(&copy, &saved).expect("a part of it").expect("damage");
    let filter = Filter::<Any>::open(&saved, options).expect("what was saved");
    let inserts = filter.stat().expect("figures").inserts;
    assert!((900 * RECORDS..1001 * RECORDS).contains(&inserts), "{inserts}");
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "each segment keeps its file open"
)]
fn a_log_of_2000_segments_is_synced_recovered_verified_salvaged_and_read_with_48_descriptors() {
    // Creates and syncs thousands of files: in memory, if possible.
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let home = home.expect("a temporary directory");
    assert!(limited(LONG, home.path(), 0..0).success());
}

#[test]
fn a_filter_that_has_outgrown_the_default_gets_larger_segments_when_reopened() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("filter");
    let kind = Any::new("time-limited", Parameters::new().with("window", 3_600_000_000_u64));
    let largest = || {
        let entries = fs::read_dir(&dir).expect("a directory");
        let log = entries.map(|entry| entry.expect("an entry"));
        let log = log.filter(|entry| entry.file_name().to_string_lossy().starts_with("wal-"));
        log.map(|entry| entry.metadata().map_or(0, |file| file.len())).max().expect("a log")
    };
    let filter = Filter::create(&dir, kind, options()).expect("a filter");
    let first = largest();
    for key in 0..1_500_000_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    let memory = filter.stat().expect("figures").memory_bytes;
    assert!(memory > 8 * first, "it has grown: {memory} bytes, segments of {first}");
    let before = filter.digest().expect("a digest");
    filter.close().expect("a clean end");
    assert_eq!(largest(), first, "a timeline has one segment size");
    let filter = Filter::<Any>::open(&dir, options()).expect("it opens");
    assert!(largest() >= 2 * (first - 4096), "{}", largest());
    assert_eq!(filter.digest().expect("a digest").value, before.value);
    // Other handles, and repair, use the size of the timeline.
    let other = Filter::<Any>::open(&dir, options()).expect("it joins");
    for key in 2_000_000..2_100_000_u64 {
        other.insert(key.to_le_bytes()).expect("an insert");
    }
    drop(other);
    filter.close().expect("a clean end");
    assert!(inspect::verify(&dir).expect("a report").is_sound());
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "space is not given back"
)]
fn a_small_closed_filter_keeps_no_space_for_unused_log() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("filter");
    let kind = Any::new("age-partitioned", Parameters::new().with("window-items", 1000));
    let filter = Filter::create(&dir, kind, options()).expect("a filter");
    for key in 0..1000_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    let open = disk_bytes(&dir);
    filter.close().expect("a clean end");
    let closed = disk_bytes(&dir);
    println!("{open} bytes open, {closed} closed");
    // The image, a snapshot, and the log of 1,000 inserts.
    assert!(open <= 64 << 10 && closed <= 64 << 10, "{open} {closed}");
    let filter = Filter::<Any>::open(&dir, options()).expect("it opens");
    assert_eq!(filter.stat().expect("figures").inserts, 1000);
    filter.close().expect("a clean end");
    assert!(inspect::verify(&dir).expect("a report").is_sound());
}
