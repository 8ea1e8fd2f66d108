//! The two vectors of a block, and the rebuild of the second one.
//!
//! The `C_j` lie first, the `OF_j` behind them, from a word of their own on. The paper decides when
//! the OFV may shrink by the *counter level*, which counts the counters of each level below and
//! above its threshold. Only one of these numbers is ever used: how many counters are at or above
//! the threshold of the present width. It is kept, and counted again at each rebuild, which visits
//! all counters anyway.

use super::theory::{level, threshold};
use crate::block::Block;
use crate::block::packed::{Packed, words_for};

/// The kind word with `y` and the mark of a block that is in use.
const WIDTH: usize = 0;
/// Whether anything was ever inserted.
const USED: u64 = 1 << 32;
/// The number of counters at or above the threshold.
const HIGH: usize = 1;
/// Rebuilds.
pub(super) const REBUILDS: usize = 2;
/// Counters written by rebuilds.
pub(super) const REWRITTEN: usize = 3;
/// `y` times the counters.
pub(super) const OVERFLOW_BITS: usize = 4;

/// The layout of a block's counters.
#[derive(Debug, Clone, Copy)]
pub struct Vectors {
    /// The `C_j`.
    fixed: Packed,
    /// Bits of an `OF_j`.
    width: u32,
}

impl Vectors {
    /// Returns the vectors of a block with `counters` counters, whose `C_j` have `x` bits.
    #[must_use]
    #[inline]
    pub(super) fn of(block: &Block<'_>, counters: usize, x: u32) -> Self {
        let width = (block.own(WIDTH) as u32).min(64 - x);
        Self { width, ..Self::empty(counters, x) }
    }

    /// Returns the vectors of a block without inserts.
    #[must_use]
    pub(super) fn empty(counters: usize, x: u32) -> Self {
        Self { fixed: Packed { first: 0, bits: x, cells: counters }, width: 0 }
    }

    /// Returns the words that `counters` counters take at 64 bits each.
    #[must_use]
    pub(super) fn most_words(counters: usize) -> usize {
        counters + 1
    }

    /// Returns the number of counters.
    #[must_use]
    #[inline]
    pub(super) fn counters(&self) -> usize {
        self.fixed.cells
    }

    /// Returns `y`.
    #[must_use]
    #[inline]
    pub(super) fn width(&self) -> u32 {
        self.width
    }

    /// Returns whether nothing was ever inserted.
    #[must_use]
    pub(super) fn is_new(&self, block: &Block<'_>) -> bool {
        block.own(WIDTH) & USED == 0
    }

    /// Returns the words of cells at a width.
    #[must_use]
    #[inline]
    pub(super) fn words_at(&self, width: u32) -> usize {
        let words = |bits| words_for(self.fixed.cells as u64, bits) as usize;
        words(self.fixed.bits) + words(width)
    }

    /// Returns the `OF_j` at a width.
    #[inline]
    fn overflow_at(&self, width: u32) -> Packed {
        let first = words_for(self.fixed.cells as u64, self.fixed.bits) as usize;
        Packed { first, bits: width.max(1), cells: if width > 0 { self.fixed.cells } else { 0 } }
    }

    /// Returns the bits of `OF_j` that a value takes.
    #[must_use]
    #[inline]
    pub(super) fn width_of(&self, value: u64) -> u32 {
        level(value >> self.fixed.bits)
    }

    /// Returns the part of the block that is used at a width; nothing beyond it is saved when it is
    /// rewritten.
    #[must_use]
    pub(super) fn within<'a>(&self, block: &Block<'a>, width: u32) -> Block<'a> {
        let used = self.words_at(width.max(self.width)).min(block.cells.len());
        Block { cells: &block.cells[..used], ..*block }
    }

    /// Returns `V_j` (section 3.1).
    #[must_use]
    #[inline]
    pub(super) fn get(&self, block: &Block<'_>, at: usize) -> u64 {
        // A block without room is not read: it is a hole in its (sparse) file.
        if self.is_new(block) {
            return 0;
        }
        let overflow = self.overflow_at(self.width).get(block, at);
        overflow << self.fixed.bits | self.fixed.get(block, at)
    }

    /// Prefetches a counter.
    #[inline]
    pub(super) fn prefetch(&self, block: &Block<'_>, at: usize) {
        if self.is_new(block) {
            return;
        }
        self.fixed.prefetch(block, at);
        self.overflow_at(self.width).prefetch(block, at);
    }

    /// Returns the [`threshold`] of the present width.
    #[inline]
    pub(super) fn threshold(&self, lambda: f64) -> u64 {
        threshold(self.fixed.bits, self.width, lambda)
    }

    /// Sets counter `at`, whose value is `before`, to another value that its width holds.
    #[inline]
    pub(super) fn set(
        &self,
        block: &Block<'_>,
        at: usize,
        before: u64,
        after: u64,
        threshold: u64,
    ) {
        self.fixed.set(block, at, after);
        if (before ^ after) >> self.fixed.bits != 0 {
            self.overflow_at(self.width).set(block, at, after >> self.fixed.bits);
        }
        let high = block.own(HIGH);
        match (before >= threshold, after >= threshold) {
            (false, true) => block.set_own(HIGH, high.wrapping_add(1)),
            (true, false) => block.set_own(HIGH, high.wrapping_sub(1)),
            _ => {}
        }
    }

    /// Marks a block as one that has room from now on.
    #[inline]
    pub(super) fn begin(&self, block: &Block<'_>) {
        if self.is_new(block) {
            block.set_own(WIDTH, USED);
            // All counters are at or above a threshold of 0.
            block.set_own(HIGH, self.fixed.cells as u64);
        }
    }

    /// Rewrites the OFV with another width, which must hold all present values.
    pub(super) fn rebuild(&mut self, block: &Block<'_>, width: u32, lambda: f64) {
        let (from, to) = (self.overflow_at(self.width), self.overflow_at(width));
        let threshold = threshold(self.fixed.bits, width, lambda);
        let counters = self.fixed.cells;
        let mut new = Bits::default();
        let mut high = 0;
        for at in 0..counters {
            let overflow = from.get(block, at);
            let value = overflow << self.fixed.bits | self.fixed.get(block, at);
            high += u64::from(value >= threshold);
            new.push(overflow, width);
        }
        let end = self.words_at(self.width).max(self.words_at(width));
        for (word, value) in (to.first..end).zip(new.words.into_iter().chain(std::iter::repeat(0)))
        {
            if block.word(word) != value {
                block.set_word(word, value);
            }
        }
        let counters = counters as u64;
        block.set_own(WIDTH, USED | u64::from(width));
        block.set_own(HIGH, high);
        block.set_own(REBUILDS, block.own(REBUILDS).wrapping_add(1));
        block.set_own(REWRITTEN, block.own(REWRITTEN).wrapping_add(counters));
        block.set_own(OVERFLOW_BITS, counters * u64::from(width));
        self.width = width;
    }

    /// Narrows the OFV bit by bit as long as all counters are below the threshold (section 3.3).
    pub(super) fn shrink(&mut self, block: &Block<'_>, lambda: f64) {
        while self.width > 0 && block.own(HIGH) == 0 {
            self.rebuild(block, self.width - 1, lambda);
        }
    }
}

/// Contiguous numbers of a few bits, as in [`Packed`].
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    /// Used bits of the last word; 0 if it is full.
    used: u32,
}

impl Bits {
    #[inline]
    fn push(&mut self, value: u64, bits: u32) {
        if bits == 0 {
            return;
        }
        match self.words.last_mut() {
            Some(last) if self.used > 0 => {
                *last |= value << self.used;
                if self.used + bits > 64 {
                    self.words.push(value >> (64 - self.used));
                }
            }
            _ => self.words.push(value),
        }
        self.used = (self.used + bits) % 64;
    }
}
