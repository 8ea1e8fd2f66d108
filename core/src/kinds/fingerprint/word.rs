//! Buckets as numbers of 64, 128 or 256 bits, and how they lie in the cells of a block.
//!
//! A bucket takes a number of whole bytes, and follows the one before it without a gap: its bits
//! are counted from the lowest of the first cell on, and it may begin in one cell and end in
//! another one. All changes are noted for undo.

use super::wide::Wide;
use crate::block::Block;
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
    /// The most bytes of a bucket.
    const BYTES: u32;

    /// All bits zero.
    const ZERO: Self;

    /// Returns a number that fits in one cell.
    fn of(low: u64) -> Self;

    /// Returns the lowest 64 bits.
    fn low(self) -> u64;

    /// Returns the sum, modulo the range.
    fn plus(self, other: Self) -> Self;

    /// Returns the product, modulo the range.
    fn times(self, factor: u64) -> Self;

    /// Returns the place of the lowest bit that is set.
    fn lowest(self) -> u32;

    /// Reads a bucket of this many bytes; zero beyond the last one.
    #[inline(always)]
    fn load(block: &Block<'_>, bucket: usize, bytes: u32) -> Self {
        let place = Place::of(bucket, bytes);
        let mut word = Self::of(block.word(place.cell) >> place.shift);
        let mut from = 64 - place.shift;
        while from < 8 * bytes {
            word = word | Self::of(block.word(place.cell_of(from))) << from;
            from += 64;
        }
        // Without the bits of the next bucket.
        word & Self::ones(8 * bytes)
    }

    /// Writes a bucket of this many bytes by `set`, which is called with the number of a cell and
    /// its new content.
    #[inline]
    fn store(self, block: &Block<'_>, bucket: usize, bytes: u32, set: impl Fn(usize, u64)) {
        let place = Place::of(bucket, bytes);
        let all = Self::ones(8 * bytes);
        let replace = |cell: usize, mask: u64, new: u64| {
            let old = block.word(cell);
            if old & mask != new {
                set(cell, old & !mask | new);
            }
        };
        replace(place.cell, all.low() << place.shift, self.low() << place.shift);
        let mut from = 64 - place.shift;
        while from < 8 * bytes {
            replace(place.cell_of(from), (all >> from).low(), (self >> from).low());
            from += 64;
        }
    }

    /// Returns a number whose lowest bits are set, at least one.
    #[inline(always)]
    fn ones(bits: u32) -> Self {
        !Self::ZERO >> (8 * Self::BYTES - bits)
    }

    /// Returns the number of buckets in this many cells.
    #[inline(always)]
    fn buckets(cells: usize, bytes: u32) -> usize {
        // A product instead of a quotient: exact for up to 8192 cells, the most of a block.
        let inverse = (1_u64 << 32) / u64::from(bytes) + 1;
        ((8 * cells as u64 * inverse) >> 32) as usize
    }
}

/// Where a bucket begins.
struct Place {
    cell: usize,
    /// The lowest bit in the cell.
    shift: u32,
}

impl Place {
    #[inline(always)]
    fn of(bucket: usize, bytes: u32) -> Self {
        let at = bucket * bytes as usize;
        Self { cell: at / 8, shift: (at % 8) as u32 * 8 }
    }

    /// Returns the cell that has a bucket's bits from `from` on.
    #[inline(always)]
    fn cell_of(&self, from: u32) -> usize {
        self.cell + ((self.shift + from) / 64) as usize
    }
}

/// Returns the first cell of a bucket, and the one after its last.
#[inline(always)]
pub(super) fn cells_of(bucket: usize, bytes: u32) -> (usize, usize) {
    let at = bucket * bytes as usize;
    (at / 8, (at + bytes as usize).div_ceil(8))
}

impl Word for u64 {
    const BYTES: u32 = 8;
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
    fn times(self, factor: u64) -> Self {
        self.wrapping_mul(factor)
    }

    #[inline(always)]
    fn lowest(self) -> u32 {
        self.trailing_zeros()
    }

    #[inline(always)]
    fn load(block: &Block<'_>, bucket: usize, _: u32) -> Self {
        block.word(bucket)
    }

    #[inline(always)]
    fn store(self, _: &Block<'_>, bucket: usize, _: u32, set: impl Fn(usize, u64)) {
        set(bucket, self);
    }

    #[inline(always)]
    fn buckets(cells: usize, _: u32) -> usize {
        cells
    }
}

impl Word for u128 {
    const BYTES: u32 = 16;
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
    fn times(self, factor: u64) -> Self {
        self.wrapping_mul(factor.into())
    }

    #[inline(always)]
    fn lowest(self) -> u32 {
        self.trailing_zeros()
    }
}

impl Word for Wide {
    const BYTES: u32 = 32;
    const ZERO: Self = Wide::new(0, 0);

    #[inline(always)]
    fn of(low: u64) -> Self {
        Wide::new(0, low.into())
    }

    #[inline(always)]
    fn low(self) -> u64 {
        self.low as u64
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Wide::plus(self, other)
    }

    #[inline(always)]
    fn times(self, factor: u64) -> Self {
        Wide::times(self, factor)
    }

    #[inline(always)]
    fn lowest(self) -> u32 {
        if self.low == 0 { 128 + self.high.trailing_zeros() } else { self.low.trailing_zeros() }
    }
}
