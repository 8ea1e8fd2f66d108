//! Filters to be damaged: the bytes of all their files, and their contents.

use ebbtide::{
    Any, Clock, Digest, Durability, Filter, ManualClock, Options, Parameters, Timestamp,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

/// Creates a directory in memory if possible: thousands of filters are opened here.
pub fn place() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary directory")
}

/// Options of a handle without threads and with a stopped clock, so that no background work
/// happens.
pub fn options() -> Options {
    let clock = ManualClock::new(Timestamp::from_unix_millis(1_000_000));
    Options::new()
        .hash_seed(7)
        .image(ebbtide::ImagePlace::BesideLog)
        .stripes(2)
        .block_bytes(512)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::from(clock))
}

/// Two kinds: one with a single bank, and one that opens and closes banks.
pub fn kinds() -> [Any; 2] {
    [
        Any::new("age-partitioned", Parameters::new().with("window-items", 300).with("fpr", 0.01)),
        Any::new("time-limited", Parameters::new().with("window", 60_000_000).with("rate", 1)),
    ]
}

/// The end of the last handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The handle was closed.
    Closed,
    /// The process was killed, and the kernel survived: every insert that returned must be present.
    Killed,
    /// The power was cut (or, equivalently, the directory was copied while the filter was open):
    /// from some record on, unsynced records may be missing.
    PowerCut,
}

pub const ENDS: [End; 3] = [End::Closed, End::Killed, End::PowerCut];

/// A filter that no handle has open.
pub struct State {
    pub end: End,
    pub files: BTreeMap<String, Vec<u8>>,
    pub digest: Digest,
    /// The number of inserts that were acknowledged as durable.
    pub durable: u64,
}

fn insert(filter: &Filter, keys: std::ops::Range<u64>) {
    for key in keys {
        let time = Timestamp::from_unix_millis(1_000_000 + key * 20);
        let inserted = filter.call().time(time).insert(key.to_le_bytes());
        assert!(inserted.expect("nothing is wrong yet"), "{key} is not late");
    }
}

/// Builds a filter with two snapshots, segments of two timelines, and records beyond the newest
/// snapshot, some of them synced. Every call builds another filter with the same inserts.
pub fn build(kind: &Any, end: End) -> State {
    let place = place();
    let home = place.path().join("filter");
    let filter = Filter::create(&home, kind.clone(), options()).expect("a new filter");
    insert(&filter, 0..150);
    filter.close().expect("a clean end");
    let filter: Filter = Filter::open(&home, options()).expect("the same filter");
    insert(&filter, 150..300);
    filter.checkpoint().expect("a snapshot");
    insert(&filter, 300..360);
    filter.sync().expect("a sync");
    let durable = filter.digest().expect("a digest").inserts;
    insert(&filter, 360..400);
    let digest = filter.digest().expect("a digest");
    // No thread is active: the files are those of a killed process.
    let files = if end == End::Closed {
        filter.close().expect("a clean end");
        read(&home)
    } else {
        read(&home)
    };
    State { end, files, digest, durable }
}

fn read(home: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(home).expect("a directory");
    // A socket, at which a process hands out the image, is not copied.
    let files = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    let files = files.map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read(path).expect("a file"))
    });
    files.collect()
}

impl State {
    /// Writes the files to a new directory. Except for a power cut, adapts the live image to this
    /// directory.
    pub fn lay(&self, home: &Path) {
        fs::create_dir(home).expect("a new directory");
        for name in self.files.keys() {
            self.put_back(home, name);
        }
    }

    /// Writes one file as recorded.
    pub fn put_back(&self, home: &Path, name: &str) {
        let path = home.join(name);
        fs::write(&path, &self.files[name]).expect("a file");
        if name == "live" && self.end != End::PowerCut {
            let inode = fs::metadata(&path).expect("a file").ino();
            let mut bytes = self.files[name].clone();
            bytes[56..64].copy_from_slice(&inode.to_le_bytes());
            seal(&mut bytes);
            fs::write(&path, &bytes).expect("a file");
        }
    }

    /// Returns the files whose name begins with `start`, ascending.
    pub fn names(&self, start: &str) -> Vec<String> {
        let names = self.files.keys().filter(|name| name.starts_with(start));
        names.cloned().collect()
    }
}

/// Corrects the checksum of a header: its sixteenth word.
pub fn seal(bytes: &mut [u8]) {
    let at = 120;
    let sum = u64::from(crc32fast::hash(&bytes[..at]));
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
}
