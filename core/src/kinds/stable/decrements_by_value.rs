//! Decrements that depend on the values of cells (IBF-H, the paper's section IV-C): the same steps
//! over the block itself and, for a query, over a view of its future state.
//!
//! Decrement `d` tries numbered cells until one is accepted; a cell of value `v` is accepted with
//! probability `1/v`. Its effect depends on the values that the decrements before it left, in any
//! cell of the block. A query therefore replays them all, over an *overlay* of the cells that they
//! change: a small table on the stack while few are pending, a copy of the cells when many are.

use super::draws::{ATTEMPTS, Draws};
use crate::block::Block;
use crate::block::packed::Packed;
use std::ops::Range;

/// Cells as decrements see them.
pub(super) trait Values {
    /// Returns the value of a cell.
    fn get(&self, cell: usize) -> u64;
    /// Changes the value of a cell.
    fn set(&mut self, cell: usize, value: u64);
}

/// Lowers by one, for each of these decrements, the first cell that is accepted; if none of 64 is,
/// nothing. Calls `emptied` with each cell that becomes zero, and stops when it returns true.
/// Returns how many cells are in use then, and whether `emptied` stopped it.
#[inline]
pub(super) fn lower(
    draws: Draws,
    decrements: Range<u64>,
    mut used: u64,
    values: &mut impl Values,
    emptied: impl Fn(usize) -> bool,
) -> (u64, bool) {
    for decrement in decrements {
        if used == 0 {
            break;
        }
        for attempt in 0..ATTEMPTS {
            let (cell, chance) = draws.attempt(decrement, attempt);
            let value = values.get(cell);
            if !chance.accepts(value) {
                continue;
            }
            values.set(cell, value - 1);
            if value == 1 {
                used = used.saturating_sub(1);
                if emptied(cell) {
                    return (used, true);
                }
            }
            break;
        }
    }
    (used, false)
}

/// The block itself.
pub(super) struct Written<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) cells: &'a Packed,
}

impl Values for Written<'_> {
    #[inline]
    fn get(&self, cell: usize) -> u64 {
        self.cells.get(self.block, cell)
    }

    #[inline]
    fn set(&mut self, cell: usize, value: u64) {
        self.cells.set(self.block, cell, value);
    }
}

/// Returns whether these decrements, in a block with `used` cells in use, would bring a cell to
/// zero for which `asked` is true. Writes nothing.
pub(super) fn empties(
    block: &Block<'_>,
    cells: &Packed,
    draws: Draws,
    pending: Range<u64>,
    used: u64,
    asked: impl Fn(usize) -> bool,
) -> bool {
    let many = pending.end - pending.start;
    // Tables are at most half full.
    if many <= SMALL as u64 / 2 {
        let mut over = Overlay::<SMALL>::new(block, cells);
        lower(draws, pending, used, &mut over, asked).1
    } else if many <= LARGE as u64 / 2 {
        let mut over = Overlay::<LARGE>::new(block, cells);
        lower(draws, pending, used, &mut over, asked).1
    } else {
        let copy = (0..cells.cells).map(|cell| cells.get(block, cell) as u8);
        lower(draws, pending, used, &mut Copied(copy.collect()), asked).1
    }
}

/// Slots of the overlay for few decrements: cheap to clear.
const SMALL: usize = 128;

/// Slots of the overlay for more, 8 KiB.
const LARGE: usize = 2048;

/// The block with the changed cells on top: an open hash table of `cell + 1` above 8 bits of value,
/// 0 where free.
struct Overlay<'a, const SLOTS: usize> {
    block: &'a Block<'a>,
    cells: &'a Packed,
    slots: [u32; SLOTS],
}

impl<'a, const SLOTS: usize> Overlay<'a, SLOTS> {
    fn new(block: &'a Block<'a>, cells: &'a Packed) -> Self {
        const { assert!(SLOTS.is_power_of_two()) };
        Self { block, cells, slots: [0; SLOTS] }
    }

    /// Returns the slot of a cell, or the one where it would be inserted.
    #[inline]
    fn slot(&self, cell: usize) -> usize {
        let name = cell as u32 + 1;
        let mut slot = (name.wrapping_mul(0x9e37_79b1) >> 16) as usize % SLOTS;
        while self.slots[slot] != 0 && self.slots[slot] >> 8 != name {
            slot = (slot + 1) % SLOTS;
        }
        slot
    }
}

impl<const SLOTS: usize> Values for Overlay<'_, SLOTS> {
    #[inline]
    fn get(&self, cell: usize) -> u64 {
        match self.slots[self.slot(cell)] {
            0 => self.cells.get(self.block, cell),
            changed => u64::from(changed & 0xff),
        }
    }

    #[inline]
    fn set(&mut self, cell: usize, value: u64) {
        self.slots[self.slot(cell)] = (cell as u32 + 1) << 8 | (value as u32 & 0xff);
    }
}

/// All values, for more decrements than a table on the stack can hold.
struct Copied(Vec<u8>);

impl Values for Copied {
    #[inline]
    fn get(&self, cell: usize) -> u64 {
        self.0.get(cell).map_or(0, |&value| value.into())
    }

    #[inline]
    fn set(&mut self, cell: usize, value: u64) {
        if let Some(to) = self.0.get_mut(cell) {
            *to = value as u8;
        }
    }
}

// A cell's number and a spare bit fit beside its value.
const _: () = assert!((crate::block::Layout::MOST_BLOCK_WORDS as u64 * 64) < 1 << 23);
