//! RocksDB with a time to live, configured for point lookups of mostly absent keys: Bloom filters
//! on memtables and tables. Get and put run under a lock by key, which makes them one step.
//! Concurrent writes with `sync` share one fsync.

use super::peer::{Durability, EXPIRY, Key, Peer, Result, Setup, count_new};
use super::stripes::Stripes;
use rocksdb::{DB, Options, WriteOptions};

struct RocksDb {
    db: DB,
    write: WriteOptions,
    stripes: Stripes,
}

/// The write-ahead log is on; it reaches the kernel with each put.
pub fn open(setup: &Setup<'_>) -> Result<Box<dyn Peer>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.optimize_for_point_lookup((setup.cache_bytes() >> 20) as u64);
    let threads = std::thread::available_parallelism()?.get();
    options.increase_parallelism(i32::try_from(threads)?);
    let db = DB::open_with_ttl(&options, setup.dir.join("rocksdb"), EXPIRY)?;
    let mut write = WriteOptions::default();
    write.set_sync(setup.durability == Durability::Always);
    Ok(Box::new(RocksDb { db, write, stripes: Stripes::new(setup.writers) }))
}

impl Peer for RocksDb {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        count_new(keys, |key| {
            let _held = self.stripes.lock(key);
            let new = self.db.get_pinned(key)?.is_none();
            if new {
                self.db.put_opt(key, [], &self.write)?;
            }
            Ok(new)
        })
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.db.flush()?;
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }
}
