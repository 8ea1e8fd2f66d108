//! fjall, a log-structured tree like RocksDB. Its expiry is a compaction filter that reads the time
//! in the value. Get and insert run under a lock by key, which makes them one step; each fsync
//! belongs to one writer.

use super::peer::{Durability, EXPIRY, Key, Peer, Result, Setup, count_new, seconds_now};
use super::stripes::Stripes;
use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::sync::Arc;

struct Fjall {
    database: Database,
    seen: Keyspace,
    durability: Durability,
    stripes: Stripes,
}

/// The journal reaches the kernel with each insert.
pub fn open(setup: &Setup<'_>) -> Result<Box<dyn Peer>> {
    let database = Database::builder(setup.dir.join("fjall"))
        .cache_size(setup.cache_bytes() as u64)
        .with_compaction_filter_factories(Arc::new(|_| Some(Arc::new(Expiry))))
        .open()?;
    let seen = database.keyspace("seen", KeyspaceCreateOptions::default)?;
    let (durability, stripes) = (setup.durability, Stripes::new(setup.writers));
    Ok(Box::new(Fjall { database, seen, durability, stripes }))
}

impl Peer for Fjall {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        let now = seconds_now().to_le_bytes();
        count_new(keys, |key| {
            let _held = self.stripes.lock(key);
            let new = !self.seen.contains_key(key)?;
            if new {
                self.seen.insert(key, now)?;
                if self.durability == Durability::Always {
                    self.database.persist(PersistMode::SyncData)?;
                }
            }
            Ok(new)
        })
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.seen.rotate_memtable_and_wait()?;
        self.seen.major_compact()?;
        self.database.persist(PersistMode::SyncAll)?;
        Ok(())
    }
}

/// Removes old keys during compaction.
struct Expiry;

/// Removes entries older than this.
struct OlderThan(u32);

impl Factory for Expiry {
    fn name(&self) -> &str {
        "expiry"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let expiry = u32::try_from(EXPIRY.as_secs()).unwrap_or(u32::MAX);
        Box::new(OlderThan(seconds_now().saturating_sub(expiry)))
    }
}

impl CompactionFilter for OlderThan {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        let time = item.value()?.as_ref().try_into().map(u32::from_le_bytes);
        Ok(if time.is_ok_and(|time| time < self.0) { Verdict::Remove } else { Verdict::Keep })
    }
}
