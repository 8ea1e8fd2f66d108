//! The Bloom filter in front (the paper's `BF0`), which answers for most absent keys.
//!
//! A plain one never expires keys, and on an endless stream it fills until it answers yes to all.
//! There are therefore two buffers. Inserts go into one for a *lifetime*, the number of half-lives
//! after which the largest count has decayed to nothing; then the other is cleared and takes over.
//! A query reads both, so a key is found for at least a whole lifetime after its insert: a "no"
//! still proves that nothing is left of the key's count, unless that exceeded the range of
//! `counter-bits`. Lifetimes are counted from the Unix epoch,
//! so a block swaps when it is next touched, and a query computes the result of a pending swap
//! without writing.
//!
//! The bits of a key come from separate hash functions, of which there may be another number: the
//! counters' positions would add no information.

use super::shape::Parts;
use crate::block::{Block, prefetch};
use crate::hash::Positions;

/// The number of the first hash function of the front; the lower ones belong to the counters.
const FIRST_FUNCTION: u32 = 64;

/// The bits of the first of two buffers in a word.
const EVEN_BITS: u64 = u64::MAX / 3;

/// The variants of the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Two buffers that swap.
    Swapped,
    /// One buffer that never expires keys: the paper's.
    Plain,
    /// None: the counters alone answer.
    None,
}

impl Mode {
    /// All variants, by name.
    pub const NAMES: [(&'static str, Self); 3] =
        [("swapped", Self::Swapped), ("plain", Self::Plain), ("none", Self::None)];

    /// Returns the number of buffers.
    #[must_use]
    pub fn buffers(self) -> u32 {
        match self {
            Self::Swapped => 2,
            Self::Plain => 1,
            Self::None => 0,
        }
    }

    /// Returns the name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

/// The front of one block. Bits of the same position in both buffers are neighbours.
#[derive(Debug, Clone, Copy)]
pub struct Front {
    mode: Mode,
    first: usize,
    bits: u32,
    k: u32,
}

impl Front {
    /// Creates the front among a block's parts.
    #[must_use]
    #[inline]
    pub fn of(mode: Mode, parts: &Parts, k: u32) -> Self {
        Self { mode, first: parts.front, bits: parts.front_bits, k }
    }

    /// Visits the key's places: a word, and the bit of the first buffer in it.
    #[inline]
    fn each_place(&self, hash: u64, mut visit: impl FnMut(usize, u32)) {
        let positions = Positions::new(hash, self.bits);
        let buffers = self.mode.buffers();
        let mut at = |position: usize| {
            let bit = position as u64 * u64::from(buffers);
            visit(self.first + (bit / 64) as usize, (bit % 64) as u32);
        };
        for pair in 0..self.k / 2 {
            let (even, odd) = positions.pair(FIRST_FUNCTION / 2 + pair);
            at(even);
            at(odd);
        }
        if self.k % 2 == 1 {
            at(positions.get(FIRST_FUNCTION + self.k - 1));
        }
    }

    /// Returns the buffer that takes the inserts of a lifetime.
    #[inline]
    fn buffer(&self, lifetime: u64) -> u32 {
        if self.mode == Mode::Swapped { (lifetime & 1) as u32 } else { 0 }
    }

    /// Records a key in a block that has caught up to `lifetime`.
    #[inline]
    pub fn insert(&self, block: &Block<'_>, hash: u64, lifetime: u64) {
        if self.mode == Mode::None {
            return;
        }
        let buffer = self.buffer(lifetime);
        self.each_place(hash, |word, bit| {
            let old = block.word(word);
            let new = old | 1 << (bit + buffer);
            if new != old {
                block.set_word(word, new);
            }
        });
    }

    /// Returns whether a key may be present in `lifetime`, in a block that has caught up to the
    /// lifetime `reached`.
    #[must_use]
    #[inline]
    pub fn contains(&self, block: &Block<'_>, hash: u64, reached: u64, lifetime: u64) -> bool {
        // One bit for each buffer whose content is still alive.
        let alive = match (self.mode, lifetime.saturating_sub(reached)) {
            (Mode::None, _) => return true,
            (Mode::Plain, _) => 0b1,
            (Mode::Swapped, 0) => 0b11,
            (Mode::Swapped, 1) => 1 << self.buffer(reached),
            (Mode::Swapped, _) => return false,
        };
        // All words are loaded, so that their misses overlap; an early exit would wait for each.
        let mut all = alive;
        self.each_place(hash, |word, bit| all &= block.word(word) >> bit);
        all != 0
    }

    /// Returns the share of set bits in each buffer of a block that has caught up; 0 for a buffer
    /// that does not exist.
    #[must_use]
    pub fn fills(&self, block: &Block<'_>) -> [f64; 2] {
        let buffers = self.mode.buffers();
        if buffers == 0 || self.bits == 0 {
            return [0.0; 2];
        }
        let words = self.first..self.first + (self.bits as usize * buffers as usize).div_ceil(64);
        let share = |mask: u64| {
            let set = words.clone().map(|word| (block.word(word) & mask).count_ones());
            f64::from(set.sum::<u32>()) / f64::from(self.bits)
        };
        if buffers == 1 { [share(u64::MAX), 0.0] } else { [share(EVEN_BITS), share(!EVEN_BITS)] }
    }

    /// Swaps the buffers once for each lifetime that has ended: clears the buffer with which a new
    /// lifetime begins.
    pub fn catch_up(&self, block: &Block<'_>, reached: u64, lifetime: u64) {
        let keep = match (self.mode, lifetime.saturating_sub(reached)) {
            (Mode::None | Mode::Plain, _) | (Mode::Swapped, 0) => return,
            (Mode::Swapped, 1) => EVEN_BITS << self.buffer(reached),
            (Mode::Swapped, _) => 0,
        };
        for word in self.first..self.first + (self.bits as usize).div_ceil(32) {
            let old = block.word(word);
            if old & keep != old {
                block.set_word(word, old & keep);
            }
        }
    }

    /// Prefetches the key's bits.
    #[inline]
    pub fn prefetch(&self, block: &Block<'_>, hash: u64) {
        if self.mode == Mode::None {
            return;
        }
        self.each_place(hash, |word, _| {
            if let Some(word) = block.cells.get(word) {
                prefetch(word);
            }
        });
    }
}
