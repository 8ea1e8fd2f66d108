//! Blocks that start small and get room on demand.

use super::Operation;
use crate::block::{Block, Layout};

/// The growth of blocks. The blocks of other kinds have all their room from the start.
pub trait Growth {
    /// Returns for how many of its words of cells a block must have room before this operation is
    /// applied. Room need not be kept: words beyond [`Growth::room_now`] may become zero at any
    /// time.
    fn room(&self, block: &Block<'_>, operation: &Operation) -> usize;

    /// Returns how many of its words of cells a block uses now; all words beyond are zero.
    fn room_now(&self, block: &Block<'_>) -> usize;

    /// Returns the words of cells that the blocks are expected to need when the filter is as full
    /// as planned.
    fn planned_words(&self, layout: Layout) -> u64;
}
