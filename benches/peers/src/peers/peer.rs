//! A peer: the trait, the parameters of a run, and what an operation survives.

use clap::ValueEnum;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An error of any peer.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A key of the stream.
pub type Key = [u8; 16];

/// The false-positive rate of all filters.
pub const FPR: f64 = 0.001;

/// The time after which peers with expiry remove a key: later than any run ends.
pub const EXPIRY: Duration = Duration::from_secs(3600);

/// The number of operations that share a transaction, a round trip or a call in grouped peers.
pub const GROUP: usize = 1000;

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
    pub fn cache_bytes(&self) -> usize {
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

    /// Returns itself if its writers are tasks on two threads instead of threads.
    fn tasks(&self) -> Option<&dyn Awaited> {
        None
    }
}

/// A peer whose operations are awaited.
pub trait Awaited: Sync {
    /// Checks and inserts a key; returns whether it was new.
    fn check_and_insert<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<bool>> + 'a>>;
}

/// For peers that process one key at a time.
pub fn count_new(keys: &[Key], mut is_new: impl FnMut(&Key) -> Result<bool>) -> Result<u64> {
    keys.iter().try_fold(0, |new, key| Ok(new + u64::from(is_new(key)?)))
}

/// Returns the seconds since 1970, which databases without expiry store with a key: a job of the
/// user removes old keys by it.
pub fn seconds_now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
