//! The peers: one trait, and the list of its implementations.
//!
//! A peer reports whether keys are new and inserts them, in one atomic step for each key: of two
//! writers with the same new key exactly one finds it new. Everything else about a peer, in
//! particular its settings, is in its own file.

mod ebbtide;
mod fastbloom;
mod fjall;
mod lmdb;
mod moka;
mod redb;
mod redis;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
mod stripes;

use clap::ValueEnum;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An error of any peer.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A key of the stream.
pub type Key = [u8; 16];

/// The false-positive rate of all filters.
pub const FPR: f64 = 0.001;

/// The time after which peers with expiry remove a key: later than any run ends.
const EXPIRY: Duration = Duration::from_secs(3600);

/// The number of operations that share a transaction, a round trip or a call in grouped peers.
pub const GROUP: usize = 1000;

/// The peer with which all others are compared.
pub const OURS: &str = "ebbtide";

/// When an operation must have reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// When the kernel writes it back: no fsync.
    None,
    /// Before it is answered: an fsync for each, or one that several writers share.
    Always,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Always => "always",
        })
    }
}

/// The failure that an answered operation survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlives {
    /// None: there is no file.
    Nothing,
    /// The death of the process, if a durable commit followed.
    DeathOnceCommitted,
    /// The death of the process, except for the last transaction.
    DeathButGroup,
    /// The death of the process.
    Death,
    /// A power cut.
    PowerCut,
}

impl fmt::Display for Outlives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::DeathOnceCommitted => f.write_str("process death, after a durable commit only"),
            Self::DeathButGroup => {
                write!(f, "process death, except for the last {GROUP} operations")
            }
            Self::Death => f.write_str("process death"),
            Self::PowerCut => f.write_str("power cut"),
        }
    }
}

/// The parameters of a run that a peer may use.
pub struct Setup<'a> {
    /// An empty directory.
    pub dir: &'a Path,
    pub durability: Durability,
    /// The number of calling threads.
    pub writers: usize,
    /// The number of distinct keys of the stream.
    pub keys: usize,
}

impl Setup<'_> {
    /// Returns a cache size that holds all data, for any layout of 20 bytes in a database.
    fn cache_bytes(&self) -> usize {
        (64 << 20).max(256 * self.keys)
    }
}

/// An open peer.
pub trait Peer: Sync {
    /// Checks and inserts each key in turn; returns how many were new.
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64>;

    /// Writes data that is in memory only, and makes the files as small as the peer can.
    fn checkpoint(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the process that stores the keys, if it is not this one.
    fn server(&self) -> Option<u32> {
        None
    }
}

/// For peers that process one key at a time.
fn count_new(keys: &[Key], mut is_new: impl FnMut(&Key) -> Result<bool>) -> Result<u64> {
    keys.iter().try_fold(0, |new, key| Ok(new + u64::from(is_new(key)?)))
}

/// Returns the seconds since 1970, which databases without expiry store with a key: a job of the
/// user removes old keys by it.
fn seconds_now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// Opens a peer in the directory of its setup.
type Open = fn(&Setup<'_>) -> Result<Box<dyn Peer>>;

/// A peer with one way of using it.
pub struct Entry {
    /// The name on the command line and in tables.
    pub name: &'static str,
    /// The failure that an operation survives without fsync.
    pub unsynced: Outlives,
    /// Whether it may report a new key as present.
    pub filter: bool,
    /// The number of operations that share a transaction, a round trip or a call.
    pub group: usize,
    pub open: Open,
}

/// An exact peer.
const fn exact(name: &'static str, unsynced: Outlives, open: Open) -> Entry {
    Entry { name, unsynced, filter: false, group: 1, open }
}

/// An exact peer that processes many operations at once.
const fn grouped(name: &'static str, unsynced: Outlives, open: Open) -> Entry {
    Entry { name, unsynced, filter: false, group: GROUP, open }
}

// The names of peers that do not take part everywhere.
const PLAIN_FASTBLOOM: &str = "fastbloom";
const REDIS: &str = "redis";
const PIPELINED_REDIS: &str = "redis-1000";

/// All peers, in the order of the tables.
pub const ALL: &[Entry] = &[
    Entry { filter: true, ..exact(OURS, Outlives::Death, |setup| ebbtide::open(setup, false)) },
    Entry {
        filter: true,
        ..grouped("ebbtide-1000", Outlives::Death, |setup| ebbtide::open(setup, true))
    },
    Entry { filter: true, ..exact(PLAIN_FASTBLOOM, Outlives::Nothing, fastbloom::open_plain) },
    Entry { filter: true, ..exact("fastbloom-atomic", Outlives::Nothing, fastbloom::open_atomic) },
    exact("moka", Outlives::Nothing, moka::open),
    #[cfg(feature = "rocksdb")]
    exact("rocksdb", Outlives::Death, rocksdb::open),
    exact("fjall", Outlives::Death, fjall::open),
    exact("lmdb", Outlives::Death, |setup| lmdb::open(setup, 1)),
    grouped("lmdb-1000", Outlives::DeathButGroup, |setup| lmdb::open(setup, GROUP)),
    exact("redb", Outlives::DeathOnceCommitted, |setup| redb::open(setup, 1)),
    grouped("redb-1000", Outlives::DeathOnceCommitted, |setup| redb::open(setup, GROUP)),
    exact("sqlite", Outlives::Death, |setup| sqlite::open(setup, 1)),
    grouped("sqlite-1000", Outlives::DeathButGroup, |setup| sqlite::open(setup, GROUP)),
    exact(REDIS, Outlives::Death, |setup| redis::open(setup, 1)),
    grouped(PIPELINED_REDIS, Outlives::Death, |setup| redis::open(setup, GROUP)),
];

impl Entry {
    /// Returns the peer of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|entry| entry.name == name)
    }

    /// Returns the failure that an operation survives.
    pub fn outlives(&self, durability: Durability) -> Outlives {
        match durability {
            Durability::None => self.unsynced,
            Durability::Always => Outlives::PowerCut,
        }
    }

    /// Returns whether any data outlives the process.
    pub fn persists(&self) -> bool {
        self.unsynced != Outlives::Nothing
    }

    /// Returns the reason why it does not take part, if there is one.
    pub fn skipped(&self, durability: Durability, writers: usize) -> Option<&'static str> {
        if durability == Durability::Always && !self.persists() {
            Some("no files")
        } else if durability == Durability::Always && self.group > 1 {
            Some("many operations would share an fsync")
        } else if writers > 1 && self.name == PLAIN_FASTBLOOM {
            Some("for one thread")
        } else if [REDIS, PIPELINED_REDIS].contains(&self.name) && redis::version().is_none() {
            Some("`redis-server` is not installed")
        } else {
            None
        }
    }
}

/// Returns the peers with their versions: those that were compiled in, and the server that was
/// found.
pub fn versions() -> String {
    let lock = include_str!("../../Cargo.lock");
    let names = ["fastbloom", "moka", "rocksdb", "fjall", "heed", "redb", "rusqlite"];
    let of = |name: &&str| {
        let entry = lock
            .split("[[package]]")
            .find(|entry| entry.contains(&format!("name = \"{name}\"\n")))?;
        let version = entry.split("version = \"").nth(1)?.split('"').next()?;
        Some(format!("{name} {version}"))
    };
    let built = |name: &&&str| **name != "rocksdb" || cfg!(feature = "rocksdb");
    let crates = names.iter().filter(built).filter_map(of);
    crates.chain(redis::version()).collect::<Vec<_>>().join(", ")
}
