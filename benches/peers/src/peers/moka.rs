//! A concurrent cache in memory with expiry. It is unbounded: with a bound it would evict by use,
//! not by age.

use super::peer::{EXPIRY, Key, Peer, Result, Setup, count_new};
use moka::sync::Cache;

struct Moka(Cache<Key, ()>);

/// Reserves space for all keys at the start.
pub fn open(setup: &Setup<'_>) -> Result<Box<dyn Peer>> {
    let cache = Cache::builder().initial_capacity(setup.keys).time_to_live(EXPIRY).build();
    Ok(Box::new(Moka(cache)))
}

impl Peer for Moka {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        count_new(keys, |key| Ok(self.0.entry(*key).or_insert(()).is_fresh()))
    }
}
