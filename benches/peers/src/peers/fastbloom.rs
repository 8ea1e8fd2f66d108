//! Bloom filters in memory, without files, window or expiry.

use super::peer::{FPR, Key, Peer, Result, Setup, count_new};
use super::stripes::Stripes;
use fastbloom::{AtomicBloomFilter, BloomFilter};
use parking_lot::Mutex;

/// Locked once for all keys of a call: it belongs to one thread.
struct Plain(Mutex<BloomFilter>);

/// Opens the plain filter.
pub fn open_plain(setup: &Setup<'_>) -> Result<Box<dyn Peer>> {
    let filter = BloomFilter::with_false_pos(FPR).expected_items(setup.keys);
    Ok(Box::new(Plain(Mutex::new(filter))))
}

impl Peer for Plain {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        let mut filter = self.0.lock();
        count_new(keys, |key| Ok(!filter.insert(key)))
    }
}

/// Two threads that insert the same key may each set some of its bits, and both find it new: hence
/// the locks.
struct Atomic {
    filter: AtomicBloomFilter,
    stripes: Stripes,
}

/// Opens the atomic filter.
pub fn open_atomic(setup: &Setup<'_>) -> Result<Box<dyn Peer>> {
    let filter = AtomicBloomFilter::with_false_pos(FPR).expected_items(setup.keys);
    Ok(Box::new(Atomic { filter, stripes: Stripes::new(setup.writers) }))
}

impl Peer for Atomic {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        count_new(keys, |key| {
            let _held = self.stripes.lock(key);
            Ok(!self.filter.insert(key))
        })
    }
}
