//! The positions of a filter: how far each source was read.
//!
//! Unsorted pairs of source and value, written under stripe 0. A new source is stored before the
//! number of pairs is raised to include it. A value is one word, so readers need no lock.
//! `docs/protocols/batches.md` describes the protocol.

use crate::primitives::AtomicU64;
use ebbtide_core::block::{load, load_acquire, store, store_release};

/// The most sources of a filter.
pub const MOST_SOURCES: usize = 256;

/// Words of the table: the LSN last applied and the number of pairs, which are its head, and the
/// pairs.
pub const POSITIONS_WORDS: usize = HEAD_WORDS + 2 * MOST_SOURCES;

/// Words of the head: they have their space on the disk always, the pairs from the first on.
pub const HEAD_WORDS: usize = 2;

const COUNT: usize = 1;

/// The table of positions in the image.
#[derive(Debug, Clone, Copy)]
pub struct Positions<'a>(&'a [AtomicU64]);

/// Returns the value of a pair.
fn position(pair: &[AtomicU64]) -> u64 {
    // Acquire: pairs with the Release in `set`. A caller that sees a position sees the keys of its
    // batch, which their owner applies before.
    load_acquire(&pair[1])
}

impl<'a> Positions<'a> {
    /// Creates the table in these words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        debug_assert!(words.len() == POSITIONS_WORDS);
        Self(words)
    }

    /// Returns the LSN last applied, for the holder of stripe 0.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        load(&self.0[0])
    }

    fn pairs(&self) -> impl Iterator<Item = &'a [AtomicU64]> {
        // Acquire: pairs with the Release in `set`; the sources are there then. An image has no
        // checksums.
        let count = load_acquire(&self.0[COUNT]).min(MOST_SOURCES as u64);
        self.0[HEAD_WORDS..].chunks_exact(2).take(count as usize)
    }

    /// Returns the position of a source, if it has one.
    #[must_use]
    pub fn get(&self, source: u64) -> Option<u64> {
        self.pairs().find(|pair| load(&pair[0]) == source).map(position)
    }

    /// Returns the positions of all sources, by source.
    #[must_use]
    pub fn all(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = self.pairs().map(|pair| (load(&pair[0]), position(pair))).collect();
        all.sort_unstable();
        all
    }

    /// Returns whether a source has a position, or there is room for one.
    #[must_use]
    pub fn has_room_for<'s>(&self, sources: impl Iterator<Item = &'s u64>) -> bool {
        let mut known: Vec<_> = self.pairs().map(|pair| load(&pair[0])).collect();
        known.extend(sources);
        known.sort_unstable();
        known.dedup();
        known.len() <= MOST_SOURCES
    }

    /// Sets the position of a source, for the holder of stripe 0. Setting it again changes nothing.
    /// A source for which there is no room is left out; writers check that first.
    pub fn set(&self, lsn: u64, source: u64, value: u64) {
        if let Some(pair) = self.pairs().find(|pair| load(&pair[0]) == source) {
            // Release: pairs with the Acquire in `position`.
            store_release(&pair[1], value);
        } else {
            let count = self.pairs().count();
            if let Some(pair) = self.0[HEAD_WORDS..].chunks_exact(2).nth(count) {
                store(&pair[0], source);
                store(&pair[1], value);
                // Release: pairs with the Acquire in `pairs`.
                store_release(&self.0[COUNT], count as u64 + 1);
            }
        }
        // Release: an owner that takes over from a dead one and sees the LSN sees the value.
        store_release(&self.0[0], lsn);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..POSITIONS_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn each_source_has_the_value_that_was_set_last() {
        let words = words();
        let positions = Positions::new(&words);
        assert_eq!((positions.get(0), positions.all()), (None, vec![]));
        for (lsn, source, value) in [(3, 7, 1), (4, 0, 0), (6, 7, 5), (7, u64::MAX, u64::MAX)] {
            positions.set(lsn, source, value);
            assert_eq!((positions.lsn(), positions.get(source)), (lsn, Some(value)));
        }
        assert_eq!(positions.all(), [(0, 0), (7, 5), (u64::MAX, u64::MAX)]);
        assert_eq!(positions.get(1), None);
    }

    #[test]
    fn the_table_has_room_for_256_sources_whatever_its_count_says() {
        let words = words();
        let positions = Positions::new(&words);
        for source in 0..256 {
            assert!(positions.has_room_for([source].iter()));
            positions.set(source + 1, source, source);
        }
        assert!(positions.has_room_for([3, 200, 3].iter()));
        assert!(!positions.has_room_for([3, 256].iter()));
        positions.set(300, 256, 1);
        assert_eq!((positions.get(256), positions.all().len()), (None, 256));
        // Of a damaged image.
        store(&words[COUNT], u64::MAX);
        assert_eq!(positions.all().len(), 256);
    }
}
