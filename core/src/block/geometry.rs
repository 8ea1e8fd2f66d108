//! How many blocks a bank has, how large they are, and which of them belongs to a key.

use crate::error::{Error, Result};
use crate::hash::scale;

/// The number and the size of a bank's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of each stripe.
    pub blocks_per_stripe: u32,
    /// Words of cells in each block.
    pub words_per_block: u32,
}

/// The properties that all banks of a filter share, fixed at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Stripes of the key-hash space.
    pub stripes: u32,
    /// The target size of a block, in words.
    pub block_words: u32,
}

impl Layout {
    /// Words in the smallest block: in smaller ones the number of keys varies too much.
    pub const LEAST_BLOCK_WORDS: u32 = 64;
    /// Default words of a block, 16 KiB: the size that plans assume.
    pub const PLANNED_BLOCK_WORDS: u32 = 2048;
    /// The greatest number of stripes of a filter.
    pub const MOST_STRIPES: u32 = 4096;
    /// Words in the largest block, 64 KiB; snapshots and options rely on it.
    pub const MOST_BLOCK_WORDS: u32 = 8192;
    /// Words of cells in the largest bank: far beyond memory, far below overflow.
    pub const MOST_BANK_WORDS: u64 = 1 << 40;

    /// Checks that a bank of this geometry is not absurd.
    ///
    /// # Errors
    /// [`Error::Parameter`] names what is wrong.
    pub fn check(&self, geometry: Geometry) -> Result<()> {
        let (blocks, block) = (geometry.blocks_per_stripe, geometry.words_per_block);
        if blocks == 0 || !(1..=Self::MOST_BLOCK_WORDS).contains(&block) {
            let expected = format!("blocks of 1 to {} words", Self::MOST_BLOCK_WORDS);
            return Err(Error::parameter("words", expected, format!("{geometry:?}")));
        }
        let words = self.words(geometry);
        if words > Self::MOST_BANK_WORDS {
            let expected = format!("at most {} words of cells in a bank", Self::MOST_BANK_WORDS);
            return Err(Error::parameter("words", expected, words));
        }
        Ok(())
    }

    /// Returns the geometry with at least `words` words of cells and blocks near the target size.
    ///
    /// Exceeds `words` by at most eight words a block (one cache line), or by what the smallest
    /// block requires.
    #[must_use]
    pub fn geometry(&self, words: u64) -> Geometry {
        let stripes = u64::from(self.stripes.max(1));
        let target = u64::from(self.block_words.max(Self::LEAST_BLOCK_WORDS));
        let a_stripe = words.div_ceil(stripes);
        let fewest = a_stripe.div_ceil(Self::MOST_BLOCK_WORDS.into()).max(1);
        let blocks = ((a_stripe + target / 2) / target).max(fewest).min(u32::MAX.into());
        let block =
            a_stripe.div_ceil(blocks).next_multiple_of(8).max(Self::LEAST_BLOCK_WORDS.into());
        Geometry {
            blocks_per_stripe: blocks as u32,
            words_per_block: u32::try_from(block).unwrap_or(u32::MAX),
        }
    }

    /// Blocks of a bank.
    #[must_use]
    #[inline]
    pub fn blocks(&self, geometry: Geometry) -> u64 {
        u64::from(self.stripes) * u64::from(geometry.blocks_per_stripe)
    }

    /// Words of cells of a bank.
    #[must_use]
    #[inline]
    pub fn words(&self, geometry: Geometry) -> u64 {
        self.blocks(geometry).saturating_mul(u64::from(geometry.words_per_block))
    }

    /// The stripe of a key.
    #[must_use]
    #[inline]
    pub fn stripe_of(&self, hash: u64) -> usize {
        scale(hash, u64::from(self.stripes)) as usize
    }

    /// The block of a key in a bank; it belongs to the key's stripe.
    #[must_use]
    #[inline]
    pub fn block_of(&self, geometry: Geometry, hash: u64) -> usize {
        scale(hash, self.blocks(geometry)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_geometry_holds_what_was_asked_with_little_to_spare() {
        for (stripes, block_words) in [(1, 2048), (16, 2048), (64, 2048), (1, 8192), (3, 8192)] {
            let layout = Layout { stripes, block_words };
            for words in [1, 1000, 12_000, 70_000, 412_345, 9_999_999, 1 << 27] {
                let geometry = layout.geometry(words);
                assert!(geometry.words_per_block <= Layout::MOST_BLOCK_WORDS);
                let spare = layout.words(geometry) - words;
                let blocks = layout.blocks(geometry);
                let least = u64::from(stripes) * u64::from(Layout::LEAST_BLOCK_WORDS);
                assert!(spare <= (blocks * 9).max(least), "{words} words: {geometry:?}");
            }
        }
    }
}
