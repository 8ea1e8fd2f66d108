//! Blocks of cells over shared words: what a kind sees of a filter.
//!
//! A block is two runs of words: a few that its kind keeps beside the cells (the step it has caught
//! up to, say), and the cells. Cells are read and written with relaxed loads and stores only;
//! whoever writes holds the block's stripe, whoever reads checks the block's version around the
//! reads, so no read-modify-write and no stronger ordering is needed here.

pub mod geometry;
pub mod packed;
pub mod places;
pub mod prefetch;
pub mod undo_log;

pub use geometry::{Geometry, Layout};
pub use places::BankPlaces;
pub use prefetch::{prefetch, prefetch_write};
pub use undo_log::UndoRoom;

use crate::atomic::{AtomicU64, Ordering};
use undo_log::Undo;

/// Kind words of a block header.
pub const OWN_WORDS: usize = 6;

/// The greatest number of banks of a filter at one time, of any kind.
pub const MAX_BANKS: usize = 32;

/// The greatest number of banks of a filter of most kinds.
pub const FEW_BANKS: usize = 8;

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

    /// Reads an own word; 0 if there is none of this number.
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

    /// Writes the first kind word, which says up to which step the cells are complete. Not noted
    /// for undo, because cells that are complete stay so.
    #[inline]
    pub fn complete(&self, step: u64) {
        if let Some(word) = self.own.first() {
            // A takeover that reads this step after the writer's death finds the cells complete.
            store_release(word, step);
        }
    }

    /// Replaces each word of cells by `new` of it, so that the change can be undone; for changes of
    /// nearly all words.
    #[inline]
    pub fn rewrite(&self, mut new: impl FnMut(u64) -> u64) {
        self.undo.note_all(self.own, self.cells);
        self.cells.iter().for_each(|word| store(word, new(load(word))));
    }

    /// Notes cells from number `from` on for undo, all at once, before [`Block::overwrite`] changes
    /// them.
    #[inline]
    pub fn note_cells(&self, from: usize, count: usize) {
        if let Some(cells) = self.cells.get(from..from + count) {
            self.undo.note_cells(self.own.len(), from, cells);
        }
    }

    /// Writes a word of cells that [`Block::note_cells`] has noted.
    #[inline]
    pub fn overwrite(&self, index: usize, value: u64) {
        if let Some(word) = self.cells.get(index) {
            store(word, value);
        }
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
    /// The block of one bank, with its slot: all that most kinds ever have.
    One(usize, Block<'a>),
    /// The blocks of banks in the first slots.
    Few([Option<Block<'a>>; FEW_BANKS]),
    /// The blocks of banks in any slots.
    Many([Option<Block<'a>>; MAX_BANKS]),
}

impl<'a> AsRef<Blocks<'a>> for Blocks<'a> {
    #[inline]
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<'a> Blocks<'a> {
    /// Returns room for the blocks of banks in slots below `slots`.
    #[must_use]
    #[inline]
    pub fn below(slots: usize) -> Self {
        if slots <= FEW_BANKS {
            Self::Few([None; FEW_BANKS])
        } else {
            Self::Many([None; MAX_BANKS])
        }
    }

    /// Sets the block in a slot for which there is room.
    #[inline]
    pub fn set(&mut self, slot: usize, block: Block<'a>) {
        let place = match self {
            Self::One(..) => None,
            Self::Few(slots) => slots.get_mut(slot),
            Self::Many(slots) => slots.get_mut(slot),
        };
        if let Some(place) = place {
            *place = Some(block);
        }
    }

    /// Returns the blocks with their slots.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Block<'a>)> {
        let (first, slots) = match self {
            Self::One(slot, block) => (Some((*slot, block)), [].as_slice()),
            Self::Few(slots) => (None, slots.as_slice()),
            Self::Many(slots) => (None, slots.as_slice()),
        };
        let each = slots.iter().enumerate();
        first.into_iter().chain(each.filter_map(|(slot, block)| Some((slot, block.as_ref()?))))
    }

    /// The key's block in the bank of this slot, if there is one.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&Block<'a>> {
        match self {
            Self::One(only, block) => (slot == *only).then_some(block),
            Self::Few(slots) => slots.get(slot)?.as_ref(),
            Self::Many(slots) => slots.get(slot)?.as_ref(),
        }
    }
}

/// Reads a shared word. Consistency comes from the stripe lock or the block's version, not from
/// here.
#[must_use]
#[inline]
pub fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Writes a shared word; only the holder of its stripe may do so.
#[inline]
pub fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// As [`load`]; a caller that sees a value of [`store_release`] sees all that was stored before it.
#[must_use]
#[inline]
pub fn load_acquire(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// As [`store`], after all that the caller stored before; the partner of [`load_acquire`], or of
/// the death of the writer.
#[inline]
pub fn store_release(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}
