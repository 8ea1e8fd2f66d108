//! redb: a B-tree with copy-on-write pages, one writer at a time. Without fsync its commits stay in
//! memory until a durable one. It has no expiry: each key is stored with its time.

use super::peer::{Durability, Key, Peer, Result, Setup, seconds_now};
use redb::{Builder, Database, ReadableTable, TableDefinition};

const SEEN: TableDefinition<'_, &Key, u32> = TableDefinition::new("seen");

struct Redb {
    database: Database,
    durability: redb::Durability,
    group: usize,
}

/// `group`: operations per transaction.
pub fn open(setup: &Setup<'_>, group: usize) -> Result<Box<dyn Peer>> {
    let durability = match setup.durability {
        Durability::None => redb::Durability::None,
        Durability::Always => redb::Durability::Immediate,
    };
    let mut builder = Builder::new();
    builder.set_cache_size(setup.cache_bytes());
    let database = builder.create(setup.dir.join("seen.redb"))?;
    let transaction = database.begin_write()?;
    transaction.open_table(SEEN)?;
    transaction.commit()?;
    Ok(Box::new(Redb { database, durability, group }))
}

impl Redb {
    /// Runs one transaction; returns how many keys were new.
    fn transaction(&self, keys: &[Key], now: u32) -> Result<u64> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(self.durability)?;
        let mut new = 0;
        {
            let mut seen = transaction.open_table(SEEN)?;
            for key in keys {
                if seen.get(key)?.is_none() {
                    seen.insert(key, now)?;
                    new += 1;
                }
            }
        }
        // A commit without changes would sync as well.
        if new == 0 {
            transaction.abort()?
        } else {
            transaction.commit()?
        }
        Ok(new)
    }
}

impl Peer for Redb {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        let now = seconds_now();
        let groups = keys.chunks(self.group);
        groups.map(|group| self.transaction(group, now)).sum()
    }

    fn checkpoint(&mut self) -> Result<()> {
        // Durable by default, together with all earlier commits.
        self.database.begin_write()?.commit()?;
        self.database.compact()?;
        Ok(())
    }
}
