//! Private copies of blocks, which a kind may settle.

use super::Kind;
use crate::atomic::AtomicU64;
use crate::block::{Block, Geometry, Layout, OWN_WORDS, load};

/// Returns a block without the cells that it has no room for.
#[must_use]
pub fn used<'a>(kind: &dyn Kind, block: Block<'a>) -> Block<'a> {
    let Some(growth) = kind.growth() else {
        return block;
    };
    let cells = &block.cells[..growth.room_now(&block).min(block.cells.len())];
    Block { cells, ..block }
}

/// A private copy of a block: the kind words, then the cells that it has room for.
#[derive(Debug)]
pub struct BlockCopy {
    words: Vec<AtomicU64>,
    number: u64,
    of: u64,
}

impl BlockCopy {
    /// Copies a block.
    #[must_use]
    pub fn new(kind: &dyn Kind, block: Block<'_>) -> Self {
        Self::into(Vec::new(), kind, block)
    }

    /// Copies a block into this memory.
    fn into(mut words: Vec<AtomicU64>, kind: &dyn Kind, block: Block<'_>) -> Self {
        let block = used(kind, block);
        words.clear();
        words.reserve(block.own.len() + block.cells.len());
        // In two runs: a chain of both would take four times the instructions.
        for part in [block.own, block.cells] {
            words.extend(part.iter().map(|word| AtomicU64::new(load(word))));
        }
        Self { words, number: block.number, of: block.of }
    }

    /// Copies a block with all words that it can have, for changes that need more room. Words that
    /// it has no room for are not read: they are zero. `memory` is that of a discarded copy.
    #[must_use]
    pub fn whole(memory: Vec<AtomicU64>, kind: &dyn Kind, block: Block<'_>) -> Self {
        let mut copy = Self::into(memory, kind, block);
        copy.words.resize_with(block.own.len() + block.cells.len(), || AtomicU64::new(0));
        copy
    }

    /// Creates the copy of a block of this number, of a bank of this geometry that is all zero.
    #[must_use]
    pub fn zero(layout: Layout, geometry: Geometry, number: u64) -> Self {
        let words = OWN_WORDS + geometry.words_per_block as usize;
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { words, number, of: layout.blocks(geometry) }
    }

    /// Returns the copy as a block.
    #[must_use]
    pub fn block(&self) -> Block<'_> {
        let (own, cells) = self.words.split_at(OWN_WORDS);
        Block { number: self.number, of: self.of, ..Block::alone(own, cells) }
    }

    /// Returns the memory of a copy that is not needed any more, without words, for another one.
    #[must_use]
    pub fn into_memory(mut self) -> Vec<AtomicU64> {
        self.words.clear();
        self.words
    }

    /// Returns the words of the copy.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}
