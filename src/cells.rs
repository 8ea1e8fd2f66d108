//! Blocks of cells over shared words: a kind's view of a filter.
//!
//! A block is two runs of words: a few kind words (for example the step that the block has caught
//! up to), and the cells. Cells are read and written with relaxed loads and stores only. A writer
//! holds the block's stripe and a reader checks the block's version around its reads, so no
//! read-modify-write and no stronger ordering is needed here.

use crate::hash::scale;
use crate::sync::{AtomicU64, Ordering};
use crate::undo::Undo;

/// Kind words of a block header.
pub const OWN_WORDS: usize = 6;

/// The greatest number of banks of a filter at one time.
pub const MAX_BANKS: usize = 8;

/// One block as a kind sees it.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// The kind words of the block's header, [`OWN_WORDS`] of them, zero at first.
    pub own: &'a [AtomicU64],
    /// The cells, zero at first.
    pub cells: &'a [AtomicU64],
    /// The block's number in its bank, from 0.
    pub number: u64,
    /// The number of blocks of the bank.
    pub of: u64,
    /// Where old values are noted before changes, if they must be.
    pub undo: Undo<'a>,
}

impl<'a> Block<'a> {
    /// Creates the only block of its bank, or a private block; its changes are not noted for undo.
    #[must_use]
    pub fn alone(own: &'a [AtomicU64], cells: &'a [AtomicU64]) -> Self {
        Self { own, cells, number: 0, of: 1, undo: Undo::NONE }
    }

    /// Reads a kind word; 0 if there is none of this number.
    #[must_use]
    #[inline]
    pub fn own(&self, index: usize) -> u64 {
        self.own.get(index).map_or(0, load)
    }

    /// Reads a word of cells; 0 if there is none of this number.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.cells.get(index).map_or(0, load)
    }

    /// Writes a kind word so that the change can be undone.
    #[inline]
    pub fn set_own(&self, index: usize, value: u64) {
        if let Some(word) = self.own.get(index) {
            self.undo.note(self.own, self.cells, index, load(word));
            store(word, value);
        }
    }

    /// Replaces each word of cells by `new` of it, so that the change can be undone; for changes of
    /// nearly all words.
    #[inline]
    pub fn rewrite(&self, new: impl Fn(u64) -> u64) {
        self.undo.note_all(self.own, self.cells);
        self.cells.iter().for_each(|word| store(word, new(load(word))));
    }

    /// Writes a word of cells so that the change can be undone.
    #[inline]
    pub fn set_word(&self, index: usize, value: u64) {
        if let Some(word) = self.cells.get(index) {
            self.undo.note(self.own, self.cells, OWN_WORDS + index, load(word));
            store(word, value);
        }
    }
}

/// The blocks of one key, one for each bank (by its slot in the bank table).
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of one operation")]
pub enum Blocks<'a> {
    /// The block of the only bank, in slot 0: all that most kinds ever have.
    One(Block<'a>),
    /// The blocks of any banks.
    Many([Option<Block<'a>>; MAX_BANKS]),
}

impl<'a> Blocks<'a> {
    /// Returns the key's block in the bank of this slot, if there is one.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&Block<'a>> {
        match self {
            Self::One(block) => (slot == 0).then_some(block),
            Self::Many(slots) => slots.get(slot)?.as_ref(),
        }
    }
}

/// Reads a shared word. Consistency comes from the stripe lock or the block's version, not from
/// this load.
#[must_use]
#[inline]
pub fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Prefetches a word without waiting for it. Does nothing where [`hints`] has no instruction for
/// it.
#[inline]
pub fn prefetch(word: &AtomicU64) {
    hints::fetch(std::ptr::from_ref(word));
}

/// As [`prefetch`], for a word that will be written: its line is also taken from the core that
/// wrote it last.
#[inline]
pub fn prefetch_write(word: &AtomicU64) {
    hints::fetch_to_write(std::ptr::from_ref(word));
}

/// The prefetch instructions of x86-64.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
#[expect(unsafe_code, reason = "prefetches take raw pointers, and one has no intrinsic")]
mod hints {
    use crate::sync::AtomicU64;
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    #[inline]
    pub fn fetch(word: *const AtomicU64) {
        // SAFETY: a prefetch reads and writes nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) }
    }

    /// The compiler's intrinsic for it emits a prefetch for reading.
    #[inline]
    pub fn fetch_to_write(word: *const AtomicU64) {
        // SAFETY: a prefetch changes nothing, whatever the address; a processor without this
        // instruction ignores it.
        unsafe {
            std::arch::asm!(
                "prefetchw [{0}]",
                in(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

/// The prefetch instructions of AArch64, which have no intrinsics in stable Rust.
#[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
#[expect(unsafe_code, reason = "stable Rust has no intrinsics for these prefetches")]
mod hints {
    use crate::sync::AtomicU64;

    #[inline]
    pub fn fetch(word: *const AtomicU64) {
        // SAFETY: a prefetch reads and writes nothing, whatever the address.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{0}]",
                in(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
    }

    #[inline]
    pub fn fetch_to_write(word: *const AtomicU64) {
        // SAFETY: a prefetch reads and writes nothing, whatever the address.
        unsafe {
            std::arch::asm!(
                "prfm pstl1keep, [{0}]",
                in(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

/// Other processors load a word when it is used.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod hints {
    use crate::sync::AtomicU64;

    pub fn fetch(_: *const AtomicU64) {}

    pub fn fetch_to_write(_: *const AtomicU64) {}
}

/// Writes a shared word; only the holder of its stripe may do so.
#[inline]
pub fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

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
    /// Words in the largest block, 64 KiB; snapshots and options rely on it.
    pub const MOST_BLOCK_WORDS: u32 = 8192;

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

    /// Returns the number of blocks of a bank.
    #[must_use]
    pub fn blocks(&self, geometry: Geometry) -> u64 {
        u64::from(self.stripes) * u64::from(geometry.blocks_per_stripe)
    }

    /// Returns the number of words of cells of a bank.
    #[must_use]
    pub fn words(&self, geometry: Geometry) -> u64 {
        self.blocks(geometry).saturating_mul(u64::from(geometry.words_per_block))
    }

    /// Returns the stripe of a key.
    #[must_use]
    #[inline]
    pub fn stripe_of(&self, hash: u64) -> usize {
        scale(hash, u64::from(self.stripes)) as usize
    }

    /// Returns the block of a key in a bank; it belongs to the key's stripe.
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
