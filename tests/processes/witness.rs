//! The notes of children, written after each operation to files that survive them: one pair of
//! files for each child.
//!
//! `returned-<child>` contains for each of its two streams how many operations have returned.
//! `pool-<child>-<thread>` contains, for each pool key that it tried, whether it began and the
//! answer.

use ebbtide_testkit::random::mix;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The number of inserting threads of a child, each with its own stream.
pub const THREADS: u64 = 2;

/// The number of distinct keys of a stream, which its operations use cyclically.
pub const ROUND: u64 = 512;

/// Returns the key of an operation: a function of the seed, the child, its thread and the
/// operation's number.
pub fn key(seed: u64, child: u64, thread: u64, operation: u64) -> [u8; 16] {
    let stream = mix(seed) ^ (child * THREADS + thread);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&stream.to_le_bytes());
    key[8..].copy_from_slice(&(operation % ROUND).to_le_bytes());
    key
}

/// Returns a key for which children compete.
pub fn pool_key(number: u64) -> [u8; 12] {
    let mut key = *b"pool........";
    key[4..].copy_from_slice(&number.to_le_bytes());
    key
}

fn open(path: PathBuf) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("a file for notes")
}

/// The counts of one child.
#[derive(Debug)]
pub struct Returned(File);

impl Returned {
    /// Opens the counts of a child in this directory.
    pub fn new(home: &Path, child: u64) -> Self {
        Self(open(home.join(format!("returned-{child}"))))
    }

    /// Notes that this many operations of the thread have returned.
    pub fn note(&self, thread: u64, count: u64) {
        self.0.write_all_at(&count.to_le_bytes(), thread * 8).expect("a note");
    }

    /// Returns how many operations have returned.
    pub fn read(&self, thread: u64) -> u64 {
        let mut bytes = [0; 8];
        match self.0.read_exact_at(&mut bytes, thread * 8) {
            Ok(()) => u64::from_le_bytes(bytes),
            // No note yet.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(error) => panic!("notes cannot be read: {error}"),
        }
    }
}

/// Returns how many operations of these children have returned.
pub fn total(home: &Path, children: impl Iterator<Item = u64>) -> u64 {
    let of = |child| {
        let returned = Returned::new(home, child);
        (0..THREADS).map(|thread| returned.read(thread)).sum::<u64>()
    };
    children.map(of).sum()
}

/// The answer to an insert of a pool key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// No answer yet.
    Begun = 0,
    /// The key was new.
    Won = 1,
    /// The key was present.
    Lost = 2,
}

/// The notes of one thread about the pool.
#[derive(Debug)]
pub struct Tries {
    file: File,
    count: u64,
}

impl Tries {
    /// Creates the notes of a child's thread.
    pub fn new(home: &Path, child: u64, thread: u64) -> Self {
        Self { file: open(home.join(format!("pool-{child}-{thread}"))), count: 0 }
    }

    fn write(&self, number: u64, what: Try) {
        let entry = number << 2 | what as u64;
        self.file.write_all_at(&entry.to_le_bytes(), self.count * 8).expect("a note");
    }

    /// Notes the beginning, runs the operation, and notes the answer.
    pub fn note(&mut self, number: u64, happen: impl FnOnce() -> Try) {
        self.write(number, Try::Begun);
        let told = happen();
        self.write(number, told);
        self.count += 1;
    }
}

/// The answers of all children about one pool key.
#[derive(Debug, Default, Clone, Copy)]
pub struct Answers {
    /// The number of children for which the key was new.
    pub won: u64,
    /// The number of children for which the key was present.
    pub lost: u64,
    /// The number of children that died before they noted the answer.
    pub silent: u64,
}

impl Answers {
    /// Returns whether an operation with the key has returned.
    pub fn is_there(self) -> bool {
        self.won + self.lost > 0
    }

    /// Returns whether exactly one child came first, possibly one that died. Without `exact` a
    /// false positive may replace it.
    pub fn is_fair(self, exact: bool) -> bool {
        self.won == 1 || self.won == 0 && (self.lost == 0 || self.silent > 0 || !exact)
    }
}

/// Returns all pool keys that were tried in this directory.
pub fn pool(home: &Path) -> io::Result<HashMap<u64, Answers>> {
    let mut pool = HashMap::<u64, Answers>::new();
    for entry in std::fs::read_dir(home)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("pool-") {
            continue;
        }
        for bytes in std::fs::read(entry.path())?.as_chunks::<8>().0 {
            let entry = u64::from_le_bytes(*bytes);
            let answers = pool.entry(entry >> 2).or_default();
            match entry & 3 {
                1 => answers.won += 1,
                2 => answers.lost += 1,
                _ => answers.silent += 1,
            }
        }
    }
    Ok(pool)
}
