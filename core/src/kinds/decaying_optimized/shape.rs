//! The layout of a block: its kind words, and the four structures of the paper's section 4.1. Pure
//! arithmetic.
//!
//! ```text
//! | front: 2 buffers of bits | counters: 4 + F + 2 bits each |
//! | table: 24 bits a line | pool: slots of 8 bits |
//! ```
//!
//! Sixteen counters are a *line*. The lookup table has an entry for each line, and the pool
//! `⌈16 · pool⌉` slots, of which at most as many are in use at a time as the pool has digits. Each
//! part begins at a word boundary.

use crate::block::Layout;
use crate::block::packed::{Packed, words_for};

/// The kind word with the half-life that the block has caught up to.
pub const HALF_LIFE: usize = 0;
/// The kind word with the number of digits of the pool in use.
pub const IN_USE: usize = 1;
/// The kind word with the number of additions for which the pool had no digit.
pub const EXHAUSTIONS: usize = 2;
/// The kind word with the number of additions cut short at `counter-bits`.
pub const SATURATED: usize = 3;
/// The kind word with one more than the lifetime of the latest of both while it matters, else 0.
pub const LOST: usize = 4;
/// The kind word with the number of counters marked as lossy.
pub const FLAGGED: usize = 5;

/// The greatest number of hash functions, as in [`Plan`](crate::kinds::bloom::Plan).
pub const MOST_FUNCTIONS: usize = 64;

/// Counters of a line.
pub const LINE: usize = 16;

/// Integer bits of a base counter, and bits of a digit of the pool.
pub const DIGIT_BITS: u32 = 4;

/// Bits of a slot of the pool: a digit, and the number of its counter in its line.
pub const SLOT_BITS: u32 = 8;

/// Bits of an entry of the lookup table: where the line's digits begin, and how many they are.
pub const ENTRY_BITS: u32 = 24;

/// Bits of a counter beside its value: whether it continues in the pool, and whether it has lost
/// something.
pub const MARK_BITS: u32 = 2;

/// The greatest number of digits in the pool for each counter.
pub const MOST_POOL: f64 = 4.0;

/// The greatest number of front bits for each counter.
pub const MOST_FRONT: u64 = 64;

/// Words of a block that lines may be unable to use, because parts begin at word boundaries.
const LOOSE_WORDS: u64 = 4;

/// The parameters for all blocks together.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Counters in all.
    pub cells: u64,
    /// Bits of each front buffer in all.
    pub front_bits: u64,
    /// Front buffers: two that swap, one, or none.
    pub buffers: u32,
    /// Digits in the pool for each counter.
    pub pool: f64,
    /// Bits of a base counter's value: its four integer bits and the fraction.
    pub base_bits: u32,
}

/// The parts of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// The word of cells in which the front begins.
    pub front: usize,
    /// Bits of each of its buffers.
    pub front_bits: u32,
    /// The base counters: `TBF1`.
    pub base: Packed,
    /// The lookup table: `LT`.
    pub table: Packed,
    /// The slots for digits: `FCP`.
    pub slots: Packed,
    /// The number of digits that may be in use.
    pub pool: u64,
}

impl Shape {
    /// Returns the bits of a base counter with its marks.
    #[must_use]
    pub fn counter_bits(&self) -> u32 {
        self.base_bits + MARK_BITS
    }

    /// Returns the slots of the pool for each line.
    #[must_use]
    #[inline]
    pub fn slots_a_line(&self) -> u64 {
        rounded_up(self.pool * LINE as f64)
    }

    /// Returns the bits that a line takes in all.
    #[must_use]
    pub fn line_bits(&self) -> u64 {
        let counters = LINE as u64 * u64::from(self.counter_bits());
        let pool = self.slots_a_line() * u64::from(SLOT_BITS);
        counters + u64::from(ENTRY_BITS) + pool + self.line_front() * u64::from(self.buffers)
    }

    /// Returns the bits of each front buffer for each line.
    #[inline]
    fn line_front(&self) -> u64 {
        self.front_share(LINE as u64)
    }

    /// Returns the front bits that come with `counters` counters.
    #[inline]
    fn front_share(&self, counters: u64) -> u64 {
        match self.buffers {
            0 => 0,
            _ if self.front_bits == self.cells => counters,
            _ => {
                let share = u128::from(counters) * u128::from(self.front_bits);
                share.div_ceil(self.cells.max(1).into()) as u64
            }
        }
    }

    /// Returns the words that a block of `counters` counters takes.
    #[must_use]
    #[inline]
    pub fn words(&self, counters: u64) -> u64 {
        let lines = counters.div_ceil(LINE as u64);
        words_for(self.front_share(counters), self.buffers)
            + words_for(counters, self.counter_bits())
            + words_for(lines, ENTRY_BITS)
            + words_for(lines * self.slots_a_line(), SLOT_BITS)
    }

    /// Returns the words that the filter should have: those of one block, if it can hold
    /// everything. Otherwise enough that the counters still fit when each block of the usual 16 KiB
    /// has lost its loose words and a part of a line.
    #[must_use]
    pub fn first_words(&self) -> u64 {
        let words = self.words(self.cells);
        if words <= u64::from(Layout::LEAST_BLOCK_WORDS) {
            return words;
        }
        words.saturating_add(words / 128)
    }

    /// Returns the number of counters of a block: its share of all, if they fit.
    #[must_use]
    #[inline]
    pub fn counters(&self, words: u64, blocks: u64) -> u64 {
        let share = if blocks <= 1 { self.cells } else { self.cells.div_ceil(blocks) };
        if self.words(share) <= words {
            return share;
        }
        let lines = words.saturating_sub(LOOSE_WORDS) * 64 / self.line_bits();
        share.min(lines * LINE as u64)
    }

    /// Returns the parts of a block with `words` words, one of `blocks` blocks.
    #[must_use]
    #[inline]
    pub fn parts(&self, words: usize, blocks: u64) -> Parts {
        let words = words.min(Layout::MOST_BLOCK_WORDS as usize) as u64;
        let counters = self.counters(words, blocks);
        let lines = counters.div_ceil(LINE as u64);
        let slots = lines * self.slots_a_line();
        let front_bits = self.front_share(counters);
        let base = words_for(front_bits, self.buffers);
        let table = base + words_for(counters, self.counter_bits());
        let pool = table + words_for(lines, ENTRY_BITS);
        let packed = |first: u64, bits, cells: u64| Packed {
            first: first as usize,
            bits,
            cells: cells as usize,
        };
        Parts {
            front: 0,
            front_bits: front_bits as u32,
            base: packed(base, self.counter_bits(), counters),
            table: packed(table, ENTRY_BITS, lines),
            slots: packed(pool, SLOT_BITS, slots),
            pool: rounded_up(counters as f64 * self.pool),
        }
    }
}

/// Returns a number from 0 to 2^53, rounded up. `ceil` is a function call without instructions that
/// not all processors have, and this is called for each key.
#[inline]
fn rounded_up(number: f64) -> u64 {
    let whole = number as u64;
    whole + u64::from((whole as f64) < number)
}
