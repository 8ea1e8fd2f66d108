//! Cells of any width up to 64 bits, packed contiguously in the words of a block.
//!
//! A cell may lie across two words. Indices are untrusted: one beyond the last cell reads as 0 and
//! is not written.

use crate::block::{Block, prefetch};

/// The layout of cells in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// The word of cells in which the first one begins.
    pub first: usize,
    /// Bits of a cell, from 1 to 64.
    pub bits: u32,
    /// The number of cells.
    pub cells: usize,
}

/// Returns the words that `cells` cells of `bits` bits take.
#[must_use]
pub const fn words_for(cells: u64, bits: u32) -> u64 {
    cells.saturating_mul(bits as u64).div_ceil(64)
}

impl Packed {
    /// Returns the beginning of a cell: its word and the bit in it. `None` beyond the last one.
    #[inline]
    fn place(&self, index: usize) -> Option<(usize, u32)> {
        let bit = index as u64 * u64::from(self.bits);
        (index < self.cells).then_some((self.first + (bit / 64) as usize, (bit % 64) as u32))
    }

    /// Returns the largest value of a cell.
    #[must_use]
    #[inline]
    pub fn most(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Reads a cell.
    #[must_use]
    #[inline]
    pub fn get(&self, block: &Block<'_>, index: usize) -> u64 {
        let Some((word, shift)) = self.place(index) else {
            return 0;
        };
        let mut value = block.word(word) >> shift;
        if shift + self.bits > 64 {
            value |= block.word(word + 1) << (64 - shift);
        }
        value & self.most()
    }

    /// Writes a cell; `value` is at most [`Packed::most`]. Unchanged words are not written.
    #[inline]
    pub fn set(&self, block: &Block<'_>, index: usize, value: u64) {
        let Some((word, shift)) = self.place(index) else {
            return;
        };
        let value = value & self.most();
        let set = |word: usize, mask: u64, bits: u64| {
            let old = block.word(word);
            let new = old & !mask | bits;
            if new != old {
                block.set_word(word, new);
            }
        };
        set(word, self.most() << shift, value << shift);
        if shift + self.bits > 64 {
            set(word + 1, self.most() >> (64 - shift), value >> (64 - shift));
        }
    }

    /// Prefetches a cell.
    #[inline]
    pub fn prefetch(&self, block: &Block<'_>, index: usize) {
        if let Some((word, _)) = self.place(index)
            && let Some(word) = block.cells.get(word)
        {
            prefetch(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::AtomicU64;
    use crate::block::{OWN_WORDS, load};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cells_of_any_width_keep_what_they_are_given_and_leave_their_neighbours_alone(
            first in 0..3_usize,
            bits in 1..=64_u32,
            writes in prop::collection::vec((0..50_usize, any::<u64>()), 0..100),
        ) {
            let own: Vec<AtomicU64> = (0..OWN_WORDS).map(|_| AtomicU64::new(0)).collect();
            let words: Vec<AtomicU64> = (0..first + 51).map(|_| AtomicU64::new(0)).collect();
            let block = Block::alone(&own, &words);
            let packed = Packed { first, bits, cells: 48 };
            let mut model = vec![0; 50];
            for (index, value) in writes {
                let value = value & packed.most();
                packed.set(&block, index, value);
                if index < 48 {
                    model[index] = value;
                }
                for (index, &value) in model.iter().enumerate() {
                    prop_assert_eq!(packed.get(&block, index), value);
                }
            }
            prop_assert!(words[..first].iter().all(|word| load(word) == 0));
            let end = first + words_for(48, bits) as usize;
            prop_assert!(words[end..].iter().all(|word| load(word) == 0));
        }
    }
}
