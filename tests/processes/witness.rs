//! What children note after it happened, in files that survive them: one pair of files for each child.
//!
//! `returned-<child>` holds for each of its two streams how many operations have returned. `pool-<child>-<thread>` holds, for
//! each key of the pool that it tried, that it began and what it was told.

use crate::random::mix;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Threads of a child that insert, each with a stream of its own.
pub const THREADS: u64 = 2;

/// Different keys of a stream: its operations go round and round them.
pub const ROUND: u64 = 512;

/// The key of an operation: a function of the seed, the child, its thread and the operation's number.
pub fn key(seed: u64, child: u64, thread: u64, operation: u64) -> [u8; 16] {
    let stream = mix(seed) ^ (child * THREADS + thread);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&stream.to_le_bytes());
    key[8..].copy_from_slice(&(operation % ROUND).to_le_bytes());
    key
}

/// A key that children compete for.
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

/// One child's counts.
#[derive(Debug)]
pub struct Returned(File);

impl Returned {
    /// Those of a child in this directory.
    pub fn new(home: &Path, child: u64) -> Self {
        Self(open(home.join(format!("returned-{child}"))))
    }

    /// So many operations of the thread have returned.
    pub fn note(&self, thread: u64, count: u64) {
        self.0.write_all_at(&count.to_le_bytes(), thread * 8).expect("a note");
    }

    /// How many have.
    pub fn read(&self, thread: u64) -> u64 {
        let mut bytes = [0; 8];
        match self.0.read_exact_at(&mut bytes, thread * 8) {
            Ok(()) => u64::from_le_bytes(bytes),
            // Nothing noted yet.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(error) => panic!("notes cannot be read: {error}"),
        }
    }
}

/// How many operations of these children have returned.
pub fn total(home: &Path, children: impl Iterator<Item = u64>) -> u64 {
    let of = |child| {
        let returned = Returned::new(home, child);
        (0..THREADS).map(|thread| returned.read(thread)).sum::<u64>()
    };
    children.map(of).sum()
}

/// What a child was told about a key of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// Nothing so far.
    Begun = 0,
    /// That it was the first.
    Won = 1,
    /// That somebody else was.
    Lost = 2,
}

/// One thread's notes about the pool.
#[derive(Debug)]
pub struct Tries {
    file: File,
    count: u64,
}

impl Tries {
    /// Those of a child's thread, none so far.
    pub fn new(home: &Path, child: u64, thread: u64) -> Self {
        Self { file: open(home.join(format!("pool-{child}-{thread}"))), count: 0 }
    }

    fn write(&self, number: u64, what: Try) {
        let entry = number << 2 | what as u64;
        self.file.write_all_at(&entry.to_le_bytes(), self.count * 8).expect("a note");
    }

    /// Notes that it begins, lets it happen, notes what was told.
    pub fn note(&mut self, number: u64, happen: impl FnOnce() -> Try) {
        self.write(number, Try::Begun);
        let told = happen();
        self.write(number, told);
        self.count += 1;
    }
}

/// What all children together were told about a key of the pool.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Who were told that they came first.
    pub won: u64,
    /// Who were told that somebody else did.
    pub lost: u64,
    /// Who died before they could note what they were told.
    pub silent: u64,
}

impl Tally {
    /// Whether an operation with the key has returned.
    pub fn is_there(self) -> bool {
        self.won + self.lost > 0
    }

    /// Whether exactly one came first; one that died may be the one. Without `exact` a false positive may stand for it.
    pub fn is_fair(self, exact: bool) -> bool {
        self.won == 1 || self.won == 0 && (self.lost == 0 || self.silent > 0 || !exact)
    }
}

/// All keys of the pool that anybody tried in this directory.
pub fn pool(home: &Path) -> io::Result<HashMap<u64, Tally>> {
    let mut tallies = HashMap::<u64, Tally>::new();
    for entry in std::fs::read_dir(home)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("pool-") {
            continue;
        }
        for bytes in std::fs::read(entry.path())?.as_chunks::<8>().0 {
            let entry = u64::from_le_bytes(*bytes);
            let tally = tallies.entry(entry >> 2).or_default();
            match entry & 3 {
                1 => tally.won += 1,
                2 => tally.lost += 1,
                _ => tally.silent += 1,
            }
        }
    }
    Ok(tallies)
}
