//! The peers: the list of the implementations of the trait [`Peer`].
//!
//! A peer reports whether keys are new and inserts them, in one atomic step for each key: of two
//! writers with the same new key exactly one finds it new. Everything else about a peer, in
//! particular its settings, is in its own file.

mod ebbtide;
mod fastbloom;
mod fjall;
mod lmdb;
mod moka;
mod peer;
mod redb;
mod redis;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
mod stripes;

use lmdb::Pages;
use redis::Command;

pub use peer::{Awaited, Durability, FPR, GROUP, Key, Outlives, Peer, Result, Setup};

/// The peer with which all others are compared.
pub const OURS: &str = "ebbtide";

/// The most writers that are threads.
const MOST_THREADS: usize = 64;

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
    /// Whether a power cut without fsync may destroy all data, not only the latest.
    pub fragile: bool,
    /// The number of operations that share a transaction, a round trip or a call.
    pub group: usize,
    pub open: Open,
}

/// An exact peer.
const fn exact(name: &'static str, unsynced: Outlives, open: Open) -> Entry {
    Entry { name, unsynced, filter: false, fragile: false, group: 1, open }
}

/// An exact peer that processes many operations at once.
const fn grouped(name: &'static str, unsynced: Outlives, open: Open) -> Entry {
    Entry { name, unsynced, filter: false, fragile: false, group: GROUP, open }
}

// The names of peers that do not take part everywhere.
const TICKETS: &str = "ebbtide-tickets";
const PLAIN_FASTBLOOM: &str = "fastbloom";
const SAFE_LMDB: &str = "lmdb-safe";
const REDIS: &str = "redis";
const PIPELINED_REDIS: &str = "redis-1000";
const MODULE: &str = "redis-module";
const MODULE_AT_ONCE: &str = "redis-module-1000";

/// All peers, in the order of the tables.
pub const ALL: &[Entry] = &[
    Entry { filter: true, ..exact(OURS, Outlives::Death, |setup| ebbtide::open(setup, false)) },
    Entry {
        filter: true,
        ..grouped("ebbtide-1000", Outlives::Death, |setup| ebbtide::open(setup, true))
    },
    Entry { filter: true, ..exact(TICKETS, Outlives::Death, ebbtide::open_tickets) },
    Entry { filter: true, ..exact(PLAIN_FASTBLOOM, Outlives::Nothing, fastbloom::open_plain) },
    Entry { filter: true, ..exact("fastbloom-atomic", Outlives::Nothing, fastbloom::open_atomic) },
    exact("moka", Outlives::Nothing, moka::open),
    #[cfg(feature = "rocksdb")]
    exact("rocksdb", Outlives::Death, rocksdb::open),
    exact("fjall", Outlives::Death, fjall::open),
    Entry {
        fragile: true,
        ..exact("lmdb", Outlives::Death, |setup| lmdb::open(setup, 1, Pages::Mapped))
    },
    Entry {
        fragile: true,
        ..grouped("lmdb-1000", Outlives::DeathButGroup, |setup| {
            lmdb::open(setup, GROUP, Pages::Mapped)
        })
    },
    exact(SAFE_LMDB, Outlives::Death, |setup| lmdb::open(setup, 1, Pages::Written)),
    grouped("lmdb-safe-1000", Outlives::DeathButGroup, |setup| {
        lmdb::open(setup, GROUP, Pages::Written)
    }),
    exact("redb", Outlives::DeathOnceCommitted, |setup| redb::open(setup, 1)),
    grouped("redb-1000", Outlives::DeathOnceCommitted, |setup| redb::open(setup, GROUP)),
    Entry { fragile: true, ..exact("sqlite", Outlives::Death, |setup| sqlite::open(setup, 1)) },
    Entry {
        fragile: true,
        ..grouped("sqlite-1000", Outlives::DeathButGroup, |setup| sqlite::open(setup, GROUP))
    },
    exact(REDIS, Outlives::Death, |setup| redis::open(setup, 1, Command::Set)),
    grouped(PIPELINED_REDIS, Outlives::Death, |setup| redis::open(setup, GROUP, Command::Set)),
    Entry {
        filter: true,
        ..exact(MODULE, Outlives::Death, |setup| redis::open(setup, 1, Command::Module))
    },
    Entry {
        filter: true,
        ..grouped(MODULE_AT_ONCE, Outlives::Death, |setup| {
            redis::open(setup, GROUP, Command::Module)
        })
    },
];

impl Entry {
    /// Returns the peer of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|entry| entry.name == name)
    }

    /// Returns whether it is ebbtide, as a library or in Redis.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with(OURS) || self.name.starts_with(MODULE)
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
        } else if durability == Durability::None && self.name == TICKETS {
            Some("nothing to wait for")
        } else if writers > MOST_THREADS && self.name != TICKETS {
            Some("more writers than threads make sense")
        } else if writers > 1 && self.name == PLAIN_FASTBLOOM {
            Some("for one thread")
        } else if durability == Durability::Always && self.name == SAFE_LMDB {
            Some("with fsync the same as lmdb")
        } else if self.name.starts_with(REDIS) && redis::version().is_none() {
            Some("`redis-server` is not installed")
        } else if self.name.starts_with(MODULE) && redis::module().is_none() {
            Some("`redis/target/release/libebbtide_redis.so` is not built")
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
