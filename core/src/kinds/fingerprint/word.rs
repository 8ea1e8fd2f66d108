//! The words of buckets: one or two words of cells, as one number.
//!
//! Owns: the access to a bucket in a block. All changes are noted for undo.

use crate::block::{Block, load, store};
use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};

/// A bucket as a number.
pub(super) trait Word:
    Copy
    + Ord
    + Debug
    + Send
    + Sync
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
    + 'static
{
    /// Words of cells of a bucket.
    const WORDS: usize;

    /// All bits zero.
    const ZERO: Self;

    /// Returns a number that fits in one word.
    fn of(low: u64) -> Self;

    /// Returns the low word.
    fn low(self) -> u64;

    /// Returns the sum, modulo the range.
    fn plus(self, other: Self) -> Self;

    /// Returns the product, modulo the range.
    fn times(self, other: Self) -> Self;

    /// Returns the place of the lowest bit that is set.
    fn lowest(self) -> u32;

    /// Reads a bucket; zero beyond the last one.
    fn load(block: &Block<'_>, bucket: usize) -> Self;

    /// Writes a bucket.
    fn store(self, block: &Block<'_>, bucket: usize);

    /// Replaces each bucket of a block by `new` of it.
    fn rewrite(block: &Block<'_>, new: impl FnMut(Self) -> Self);
}

impl Word for u64 {
    const WORDS: usize = 1;
    const ZERO: Self = 0;

    #[inline(always)]
    fn of(low: u64) -> Self {
        low
    }

    #[inline(always)]
    fn low(self) -> u64 {
        self
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    #[inline(always)]
    fn lowest(self) -> u32 {
        self.trailing_zeros()
    }

    #[inline(always)]
    fn load(block: &Block<'_>, bucket: usize) -> Self {
        block.word(bucket)
    }

    #[inline]
    fn store(self, block: &Block<'_>, bucket: usize) {
        block.set_word(bucket, self);
    }

    fn rewrite(block: &Block<'_>, new: impl FnMut(Self) -> Self) {
        block.rewrite(new);
    }
}

impl Word for u128 {
    const WORDS: usize = 2;
    const ZERO: Self = 0;

    #[inline(always)]
    fn of(low: u64) -> Self {
        low.into()
    }

    #[inline(always)]
    fn low(self) -> u64 {
        self as u64
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    #[inline(always)]
    fn lowest(self) -> u32 {
        self.trailing_zeros()
    }

    #[inline(always)]
    fn load(block: &Block<'_>, bucket: usize) -> Self {
        Self::from(block.word(2 * bucket + 1)) << 64 | Self::from(block.word(2 * bucket))
    }

    #[inline]
    fn store(self, block: &Block<'_>, bucket: usize) {
        block.set_word(2 * bucket, self as u64);
        block.set_word(2 * bucket + 1, (self >> 64) as u64);
    }

    fn rewrite(block: &Block<'_>, mut new: impl FnMut(Self) -> Self) {
        block.undo.note_all(block.own, block.cells);
        for pair in block.cells.chunks_exact(2) {
            let word = new(Self::from(load(&pair[1])) << 64 | Self::from(load(&pair[0])));
            store(&pair[0], word as u64);
            store(&pair[1], (word >> 64) as u64);
        }
    }
}
