//! Filters to be damaged: their files, their history, and their state after each operation.

use ebbtide::media::Memory;
use ebbtide::{Clock, Durability, Filter, Options, Timestamp};
use ebbtide_testkit::samples::Sample;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The bytes before a segment's first record, and of a record.
pub const PAGE: usize = 4096;
pub const RECORD: usize = 32;
/// The total number of operations.
const OPERATIONS: u64 = 640;

/// The files of a directory, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Creates a directory in memory if possible: thousands of filters are opened here.
pub fn place() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary directory")
}

/// Options with segments of 128 records, and without background work.
pub fn options() -> Options {
    Options::new()
        .hash_seed(4711)
        .stripes(3)
        .block_bytes(2048)
        .segment_bytes(PAGE as u64)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::stream())
}

/// The history of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    /// Two snapshots exist, and segments of two timelines from the older one on.
    Old,
    /// No snapshot, but the whole log, of four timelines.
    Young,
}

/// The end of the last handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All processes were killed, on the same boot of the machine.
    Killed,
    /// The power was cut, or the directory was copied.
    PowerCut,
}

/// A filter that no handle has open.
pub struct Scene {
    pub sample: &'static Sample,
    pub story: Story,
    pub end: End,
    pub files: Files,
    /// The LSN after each operation.
    pub ends: Vec<u64>,
    /// The digest of a filter in memory before each operation, and after the last.
    pub digests: Vec<u128>,
    /// Every LSN below was acknowledged as durable.
    pub durable: u64,
}

/// Returns the time of an operation: alternately fast and slow, so that banks open and close.
fn time(number: u64) -> Timestamp {
    let (turn, rest) = (number / 300, number % 300);
    let within = match rest / 100 {
        0 => rest * 10,
        1 => 1000 + (rest - 100) * 100,
        _ => 11_000 + (rest - 200) * 1000,
    };
    Timestamp::from_unix_micros(1_700_000_000_000_000 + turn * 111_000 + within)
}

impl Scene {
    /// Runs the operations of these numbers.
    pub fn feed(sample: &Sample, filter: &Filter, numbers: std::ops::Range<u64>) -> Vec<u64> {
        let mut ends = Vec::new();
        for number in numbers {
            let key = |number: u64| (number * 7 % 1000).to_le_bytes();
            sample.operate(filter.call().time(time(number)), number, key).expect("an operation");
            ends.push(filter.digest().expect("a digest").lsn);
        }
        ends
    }

    pub fn build(sample: &'static Sample, story: Story, end: End) -> Self {
        let place = place();
        let home = place.path().join("filter");
        let mut filter = Filter::create(&home, sample.spec(), options()).expect("a filter");
        let mut ends = Self::feed(sample, &filter, 0..100);
        if story == Story::Old {
            filter.checkpoint().expect("a snapshot");
        }
        for (number, upto) in [(1, 200), (2, 300)] {
            ends.extend(Self::feed(sample, &filter, ends.len() as u64..upto));
            filter = match story {
                Story::Old if number == 1 => {
                    filter.close().expect("a clean end");
                    Filter::open(&home, options()).expect("the same filter")
                }
                Story::Old => {
                    filter.checkpoint().expect("a snapshot");
                    filter
                }
                Story::Young => {
                    // The files that a power cut leaves continue in their own timeline.
                    let copy = place.path().join(number.to_string());
                    write(&copy, &read(filter_home(&place, number)));
                    drop(filter);
                    Filter::open(&copy, options()).expect("the same filter")
                }
            };
        }
        ends.extend(Self::feed(sample, &filter, 300..450));
        filter.sync().expect("a sync");
        // The durable note has the next LSN.
        let durable = *ends.last().expect("operations");
        ends.extend(Self::feed(sample, &filter, 450..OPERATIONS));
        let files = match story {
            Story::Old => read(home),
            Story::Young => read(filter_home(&place, 3)),
        };
        let digests = reference(sample);
        let now = filter.digest().expect("a digest").value;
        assert_eq!(digests.last(), Some(&now), "{} differs from memory", sample.name);
        Self { sample, story, end, files, ends, digests, durable }
    }

    /// Returns the LSN after the last record.
    pub fn tail(&self) -> u64 {
        *self.ends.last().expect("operations")
    }

    /// Returns how many operations lie below an LSN.
    pub fn operations_below(&self, lsn: u64) -> usize {
        self.ends.partition_point(|&end| end <= lsn)
    }

    /// Returns the files whose name begins with `start`, ascending.
    pub fn names(&self, start: &str) -> Vec<&str> {
        self.files.keys().map(String::as_str).filter(|name| name.starts_with(start)).collect()
    }

    /// Writes damaged files; if the processes were killed, adapts the live image to this directory.
    pub fn lay(&self, home: &Path, files: &Files) {
        write(home, files);
        let path = home.join("live");
        if let Some(bytes) = files.get("live").filter(|bytes| bytes.len() > 128)
            && self.end == End::Killed
        {
            let mut bytes = bytes.clone();
            let sound = crc32fast::hash(&bytes[..120]).to_le_bytes() == bytes[120..124];
            let inode = fs::metadata(&path).expect("a file").ino();
            bytes[56..64].copy_from_slice(&inode.to_le_bytes());
            if sound {
                seal(&mut bytes);
            }
            fs::write(&path, bytes).expect("a file");
        }
    }
}

/// Returns the directory after this many moves.
fn filter_home(place: &TempDir, moves: i32) -> std::path::PathBuf {
    let name = if moves <= 1 { "filter".to_owned() } else { (moves - 1).to_string() };
    place.path().join(name)
}

/// Returns the digests of a filter in memory, before each operation and after the last.
fn reference(sample: &Sample) -> Vec<u128> {
    let filter: Filter =
        Filter::create_on(Arc::new(Memory::new()), sample.spec(), options()).expect("a filter");
    let digest = || filter.digest().expect("a digest").value;
    let mut digests = vec![digest()];
    for number in 0..OPERATIONS {
        Scene::feed(sample, &filter, number..number + 1);
        digests.push(digest());
    }
    digests
}

/// Corrects the checksum of a header: its sixteenth word.
pub fn seal(bytes: &mut [u8]) {
    let sum = u64::from(crc32fast::hash(&bytes[..120]));
    bytes[120..128].copy_from_slice(&sum.to_le_bytes());
}

/// Returns all files of a directory.
pub fn read(home: impl AsRef<Path>) -> Files {
    let entries = fs::read_dir(home).expect("a directory").map(|entry| entry.expect("an entry"));
    // A process hands out the image at a socket.
    let entries = entries.filter(|entry| entry.path().is_file());
    let files = entries.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, fs::read(entry.path()).expect("a file"))
    });
    files.collect()
}

/// Writes files to a new directory.
pub fn write(home: &Path, files: &Files) {
    fs::create_dir(home).expect("a new directory");
    for (name, bytes) in files {
        fs::write(home.join(name), bytes).expect("a file");
    }
}
