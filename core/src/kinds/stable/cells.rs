//! The cells of a block: raised by keys, lowered by numbered draws, and asked without being written.
//!
//! Own words of a block: [`DRAWN`], the draws that it has settled so far, and [`USED`], its cells that are
//! not zero. `USED` makes the fill free, and bounds the work of a block that was left alone for millions of
//! inserts: draws from a block of zeros change nothing, so they are passed over. A block of `n` cells is all
//! zeros after about `n · (Max + ln n)` draws, or about a million.
//!
//! A question replays the pending draws against the key's own cells. These only go down by draws, so one that is
//! zero, or one that comes to it, ends the replay.

use super::draws::{Draws, owed};
use super::replay;
use crate::block::Block;
use crate::block::packed::Packed;
use crate::hash::Positions;
use std::ops::Range;

/// The own word that says how many draws the block has settled.
pub(super) const DRAWN: usize = 0;

/// The own word that says how many of its cells are not zero.
pub(super) const USED: usize = 1;

/// The most cells of a key.
pub(in crate::kinds) const MOST_FUNCTIONS: usize = 64;

/// After so many draws a cell [`USED`] is counted anew.
const RECOUNTED: u64 = 64;

/// Draws whose cells are fetched together.
const TOGETHER: u64 = 16;

/// How cells are chosen to be decremented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// All alike (the paper's Random-delete).
    Uniform,
    /// With a probability inverse to their value, zeros never (Probabilistic-delete-val).
    ByValue,
}

/// The cells of a filter, by its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cells {
    /// Cells in all, `m` in the paper.
    pub(super) all: u64,
    /// Bits of each.
    pub(super) bits: u32,
    /// Cells of a key, `K`.
    pub(super) functions: u32,
    /// Decrements an insert, `P`.
    pub(super) decrements: u64,
    /// How they are chosen.
    pub(super) deletion: Deletion,
}

impl Cells {
    /// Those that lie in a block of so many words, one of `of` blocks: with one block exactly as many as were
    /// asked for.
    #[inline]
    pub(super) fn in_block(&self, words: usize, of: u64) -> Packed {
        let fit = words as u64 * 64 / u64::from(self.bits);
        let cells = fit.min(self.all.div_ceil(of.max(1))) as usize;
        Packed { first: 0, bits: self.bits, cells }
    }

    #[inline]
    fn of(&self, block: &Block<'_>) -> Packed {
        self.in_block(block.cells.len(), block.of)
    }

    #[inline]
    fn positions(&self, cells: &Packed, hash: u64, mut visit: impl FnMut(usize)) {
        let positions = Positions::new(hash, cells.cells as u32);
        for pair in 0..self.functions / 2 {
            let (even, odd) = positions.pair(pair);
            visit(even);
            visit(odd);
        }
        if self.functions % 2 == 1 {
            visit(positions.get(self.functions - 1));
        }
    }

    /// Asks the processor for the key's cells.
    #[inline]
    pub(super) fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let cells = self.of(block);
        self.positions(&cells, hash, |cell| cells.prefetch(block, cell));
    }

    /// The draws that the block owes after so many inserts anywhere and has not settled.
    #[inline]
    fn pending(&self, block: &Block<'_>, inserts: u64) -> Range<u64> {
        block.own(DRAWN)..owed(inserts, self.decrements, block.number, block.of)
    }

    /// Settles all draws that the block owes after so many inserts anywhere.
    pub(super) fn settle(&self, block: &Block<'_>, inserts: u64) {
        let pending = self.pending(block, inserts);
        if pending.is_empty() {
            return;
        }
        let (cells, before) = (self.of(block), block.own(USED));
        let draws = Draws::new(block.number, cells.cells);
        let (mut from, mut used) = (pending.start, before);
        while from < pending.end && used > 0 {
            let until = pending.end.min(from.saturating_add(RECOUNTED * cells.cells.max(1) as u64));
            used = match self.deletion {
                Deletion::Uniform => lower(block, &cells, draws, from..until, used),
                Deletion::ByValue => {
                    let mut written = replay::Written { block, cells: &cells };
                    replay::lower(draws, from..until, used, &mut written, |_| false).0
                }
            };
            // Of a damaged block the number may be any, and never come to zero.
            if until < pending.end {
                used = (0..cells.cells).filter(|&cell| cells.get(block, cell) > 0).count() as u64;
            }
            from = until;
        }
        if used != before {
            block.set_own(USED, used);
        }
        block.set_own(DRAWN, pending.end);
    }

    /// Raises the key's cells to a value where they are lower. Functions that meet in one cell raise it once.
    pub(super) fn raise(&self, block: &Block<'_>, hash: u64, value: u64) {
        let cells = self.of(block);
        let mut new = 0;
        self.positions(&cells, hash, |cell| {
            let old = cells.get(block, cell);
            if old < value {
                new += u64::from(old == 0);
                cells.set(block, cell, value);
            }
        });
        if new > 0 {
            block.set_own(USED, block.own(USED).saturating_add(new));
        }
    }

    /// Whether none of the key's cells is zero, once the draws that are owed after so many inserts anywhere
    /// are replayed.
    #[inline]
    pub(super) fn holds(&self, block: &Block<'_>, hash: u64, inserts: u64) -> bool {
        let cells = self.of(block);
        let pending = self.pending(block, inserts);
        // All cells are loaded before any is judged, and little else is done, so that their misses overlap.
        let mut all = true;
        self.positions(&cells, hash, |cell| all &= cells.get(block, cell) > 0);
        all && (pending.is_empty() || self.outlives(block, &cells, hash, pending))
    }

    /// Whether none of the key's cells, which are all above zero, comes to zero by these draws.
    fn outlives(&self, block: &Block<'_>, cells: &Packed, hash: u64, pending: Range<u64>) -> bool {
        let mut key = Key::new();
        self.positions(cells, hash, |cell| key.push(cell, cells.get(block, cell)));
        // A draw lowers a cell by one at most.
        if pending.end - pending.start < key.least() {
            return true;
        }
        let draws = Draws::new(block.number, cells.cells);
        match self.deletion {
            Deletion::Uniform => pending.into_iter().all(|draw| key.lower(draws.cell(draw))),
            Deletion::ByValue => {
                !replay::empties(block, cells, draws, pending, |cell| key.has(cell))
            }
        }
    }
}

/// Lowers the cells that these draws pick by one, those above zero (the listings' first inner loop). Returns
/// how many are used then.
fn lower(
    block: &Block<'_>,
    cells: &Packed,
    draws: Draws,
    pending: Range<u64>,
    mut used: u64,
) -> u64 {
    let mut from = pending.start;
    while from < pending.end && used > 0 {
        let until = pending.end.min(from.saturating_add(TOGETHER));
        for draw in from..until {
            cells.prefetch(block, draws.cell(draw));
        }
        for draw in from..until {
            let cell = draws.cell(draw);
            let value = cells.get(block, cell);
            if value > 0 {
                cells.set(block, cell, value - 1);
                used = used.saturating_sub(u64::from(value == 1));
            }
        }
        from = until;
    }
    used
}

/// A key's cells and what is left of them. Functions that meet have a copy each, and these stay alike.
struct Key {
    cells: [u32; MOST_FUNCTIONS],
    values: [u32; MOST_FUNCTIONS],
    count: usize,
    /// The low six bits of the cells, as a set: most draws of other cells are told by one look.
    low_bits: u64,
}

impl Key {
    fn new() -> Self {
        let none = [0; MOST_FUNCTIONS];
        Self { cells: none, values: none, count: 0, low_bits: 0 }
    }

    #[inline]
    fn push(&mut self, cell: usize, value: u64) {
        let at = self.count;
        if let (Some(to), Some(left)) = (self.cells.get_mut(at), self.values.get_mut(at)) {
            (*to, *left) = (cell as u32, value as u32);
            self.low_bits |= 1 << (cell % 64);
            self.count += 1;
        }
    }

    /// The lowest value.
    fn least(&self) -> u64 {
        self.values.iter().take(self.count).min().map_or(0, |&least| least.into())
    }

    #[inline]
    fn may_have(&self, cell: usize) -> bool {
        self.low_bits >> (cell % 64) & 1 == 1
    }

    fn has(&self, cell: usize) -> bool {
        self.may_have(cell) && self.cells.iter().take(self.count).any(|&own| own as usize == cell)
    }

    /// Lowers a cell, if it is one of the key's and above zero. False if it is zero then.
    #[inline]
    fn lower(&mut self, drawn: usize) -> bool {
        if !self.may_have(drawn) {
            return true;
        }
        let mut left = true;
        for (cell, value) in self.cells.iter().zip(&mut self.values).take(self.count) {
            if *cell as usize == drawn {
                *value = value.saturating_sub(1);
                left &= *value > 0;
            }
        }
        left
    }
}
