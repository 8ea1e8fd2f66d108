//! Locks by key, for peers that cannot check and insert in one step.

use super::peer::Key;
use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64;

/// Many enough that writers rarely collide.
const STRIPES: u64 = 1024;

/// The locks, or none if there is one writer.
pub struct Stripes(Vec<Mutex<()>>);

impl Stripes {
    /// Creates the locks for this many writers.
    pub fn new(writers: usize) -> Self {
        let stripes = if writers > 1 { STRIPES } else { 0 };
        Self((0..stripes).map(|_| Mutex::new(())).collect())
    }

    /// Locks out all other threads with this key.
    pub fn lock(&self, key: &Key) -> Option<MutexGuard<'_, ()>> {
        if self.0.is_empty() {
            return None;
        }
        let stripe = self.0.get((xxh3_64(key) % STRIPES) as usize)?;
        Some(stripe.lock())
    }
}
