//! Private copies of blocks, which a kind may settle.

use super::Kind;
use crate::atomic::AtomicU64;
use crate::block::{Block, OWN_WORDS, load};

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
        Self::whole(&used(kind, block))
    }

    /// Copies a block with all words that it can have, for changes that need more room.
    #[must_use]
    pub fn whole(block: &Block<'_>) -> Self {
        let words = block.own.iter().chain(block.cells).map(|word| AtomicU64::new(load(word)));
        Self { words: words.collect(), number: block.number, of: block.of }
    }

    /// Returns the copy as a block.
    #[must_use]
    pub fn block(&self) -> Block<'_> {
        let (own, cells) = self.words.split_at(OWN_WORDS);
        Block { number: self.number, of: self.of, ..Block::alone(own, cells) }
    }

    /// Returns the words of the copy.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}
