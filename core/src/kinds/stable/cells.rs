//! The cells of a block: raised by keys, lowered by numbered draws, and queried without being
//! written.
//!
//! Kind words of a block: [`DRAWN`], the draws that it has settled so far, and [`USED`], its cells
//! that are not zero. `USED` makes the fill free. It also bounds the work for a block that was idle
//! for millions of inserts: draws from a block of zeros change nothing, so they are skipped. A
//! block of `n` cells is all zeros after about `n · (Max + ln n)` draws, or about a million.
//!
//! A query replays the pending draws against the key's own cells. Draws only lower these, so a cell
//! that is zero, or becomes zero, ends the replay.

use super::decrements_by_value;
use super::draws::{Draws, owed};
use crate::block::Block;
use crate::block::packed::Packed;
use crate::hash::Positions;
use std::ops::Range;

/// The kind word with the number of draws that the block has settled.
pub(super) const DRAWN: usize = 0;

/// The kind word with the number of its cells that are not zero.
pub(super) const USED: usize = 1;

/// The greatest number of cells of a key.
pub(in crate::kinds) const MOST_FUNCTIONS: usize = 64;

/// After this many draws a cell, [`USED`] is counted again.
const RECOUNTED: u64 = 64;

/// Draws whose cells are prefetched together.
const TOGETHER: u64 = 16;

/// The choice of the cells that are decremented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// All cells with equal probability (the paper's Random-delete).
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
    /// The choice of the decremented cells.
    pub(super) deletion: Deletion,
}

impl Cells {
    /// Returns the cells in a block of `words` words, one of `of` blocks; with one block exactly
    /// the requested number.
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

    /// Prefetches the key's cells.
    #[inline]
    pub(super) fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let cells = self.of(block);
        self.positions(&cells, hash, |cell| cells.prefetch(block, cell));
    }

    /// Returns the draws that the block has not settled yet, after `inserts` inserts anywhere.
    #[inline]
    fn pending(&self, block: &Block<'_>, inserts: u64) -> Range<u64> {
        block.own(DRAWN)..owed(inserts, self.decrements, block.number, block.of)
    }

    /// Settles all draws that are due after `inserts` inserts anywhere.
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
                    let mut written = decrements_by_value::Written { block, cells: &cells };
                    decrements_by_value::lower(draws, from..until, used, &mut written, |_| false).0
                }
            };
            // In a damaged block the number may be anything, and never reach zero.
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

    /// Raises the key's cells to a value where they are lower. A cell shared by several functions
    /// is raised once.
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

    /// Returns whether none of the key's cells is zero after a replay of the draws that are due
    /// after `inserts` inserts anywhere.
    #[inline]
    pub(super) fn holds(&self, block: &Block<'_>, hash: u64, inserts: u64) -> bool {
        let cells = self.of(block);
        let pending = self.pending(block, inserts);
        // All cells are loaded before any is judged, and little else is done, so that their misses
        // overlap.
        let mut all = true;
        self.positions(&cells, hash, |cell| all &= cells.get(block, cell) > 0);
        all && (pending.is_empty() || self.outlives(block, &cells, hash, pending))
    }

    /// Returns whether none of the key's cells, which are all above zero, becomes zero by these
    /// draws.
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
                let used = block.own(USED);
                !decrements_by_value::empties(block, cells, draws, pending, used, |cell| {
                    key.has(cell)
                })
            }
        }
    }
}

/// Lowers the cells that these draws pick by one, if above zero (the listings' first inner loop).
/// Returns how many cells are in use afterwards.
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

/// A key's cells and their remaining values. A cell shared by several functions has a copy for
/// each, and these stay equal.
struct Key {
    cells: [u32; MOST_FUNCTIONS],
    values: [u32; MOST_FUNCTIONS],
    count: usize,
    /// The low six bits of the cells, as a set: it excludes most draws of other cells in one test.
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

    /// Returns the lowest value.
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

    /// Lowers a cell, if it is one of the key's and above zero. Returns false if it is then zero.
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
