//! SQLite with a write-ahead log and prepared statements. Writers use one connection in turn,
//! because SQLite permits one writer at a time. It has no expiry: each key is stored with its time.

use super::peer::{Durability, Key, Peer, Result, Setup, seconds_now};
use parking_lot::Mutex;
use rusqlite::Connection;

struct Sqlite {
    connection: Mutex<Connection>,
    group: usize,
}

/// `group`: operations per transaction.
pub fn open(setup: &Setup<'_>, group: usize) -> Result<Box<dyn Peer>> {
    let connection = Connection::open(setup.dir.join("seen.sqlite"))?;
    let synchronous = match setup.durability {
        Durability::None => "OFF",
        Durability::Always => "FULL",
    };
    // A log of up to 40 MB: pages are written back less often, each with more changes.
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = {synchronous};
         PRAGMA wal_autocheckpoint = 10000;
         PRAGMA cache_size = -{};
         CREATE TABLE seen (key BLOB PRIMARY KEY, time INTEGER NOT NULL) WITHOUT ROWID;",
        setup.cache_bytes() >> 10,
    ))?;
    Ok(Box::new(Sqlite { connection: Mutex::new(connection), group }))
}

impl Sqlite {
    /// Runs one transaction; returns how many keys were new. A single statement is its own
    /// transaction.
    fn transaction(&self, keys: &[Key], now: u32) -> Result<u64> {
        let connection = self.connection.lock();
        if self.group > 1 {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        }
        let mut new = 0;
        let mut insert = connection.prepare_cached("INSERT OR IGNORE INTO seen VALUES (?1, ?2)")?;
        for key in keys {
            new += insert.execute((key, now))? as u64;
        }
        if self.group > 1 {
            connection.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(new)
    }
}

impl Peer for Sqlite {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        let now = seconds_now();
        let groups = keys.chunks(self.group);
        groups.map(|group| self.transaction(group, now)).sum()
    }

    fn checkpoint(&mut self) -> Result<()> {
        let connection = self.connection.get_mut();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}
