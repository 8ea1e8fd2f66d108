//! Bit columns: the slices of one bank in one block.
//!
//! Word `p` of a block holds bit `p` of 64 slices. The slice made in generation `s` is column `s mod 64`
//! and takes hash function `s mod k`; an insert in generation `g` sets one bit in each of the slices
//! `g-k+1..=g`. The block's first own word is the generation it has caught up to: columns of younger
//! slices have not been cleared yet and hold slices that are dead.
//! Knows nothing of time: which slices are alive is the caller's business.

use crate::cells::{Block, load, prefetch, store};
use crate::hash::Positions;
use crate::sync::AtomicU64;

/// Columns of a block.
pub(super) const COLUMNS: u64 = 64;

/// The bits 63, 63-k, 63-2k, …: in a row ordered by age, the slices of the youngest one's hash function.
#[must_use]
pub(super) fn every(k: u32) -> u64 {
    (0..64).step_by(k.max(1) as usize).fold(0, |bits, age| bits | 1 << (63 - age))
}

fn caught_up_to(block: &Block<'_>) -> u64 {
    block.own.first().map_or(0, load)
}

/// Visits the key's word of each hash function, with the age, below `k`, of the slice that uses the function
/// and takes inserts in `generation`. A block without cells has nothing to visit.
#[inline(always)]
fn visit<'a>(
    block: &Block<'a>,
    k: u32,
    generation: u64,
    hash: u64,
    mut each: impl FnMut(&'a AtomicU64, u32),
) {
    if block.cells.is_empty() {
        return;
    }
    let positions = Positions::new(hash, block.cells.len() as u32);
    let youngest = (generation % u64::from(k)) as u32;
    let age = |function: u32| youngest + if function > youngest { k } else { 0 } - function;
    for pair in 0..k / 2 {
        let (even, odd) = positions.pair(pair);
        each(&block.cells[even], age(2 * pair));
        each(&block.cells[odd], age(2 * pair + 1));
    }
    if k % 2 == 1 {
        each(&block.cells[positions.get(k - 1)], age(k - 1));
    }
}

/// The bit of the slice of this age.
fn bit(generation: u64, age: u32) -> u64 {
    1 << (generation.wrapping_sub(age.into()) % COLUMNS)
}

/// Clears the columns of the slices made since the block was last touched, up to `generation`.
/// `since` is the bank's first generation: a block that has seen none of the bank's is still all zero.
pub(super) fn catch_up(block: &Block<'_>, since: u64, generation: u64) {
    let caught = caught_up_to(block);
    if caught >= generation {
        return;
    }
    if caught >= since {
        let stale = match generation - caught {
            missed @ 0..COLUMNS => {
                ((1_u64 << missed) - 1).rotate_left((caught % COLUMNS) as u32 + 1)
            }
            _ => u64::MAX,
        };
        for cell in block.cells {
            store(cell, load(cell) & !stale);
        }
    }
    if let Some(own) = block.own.first() {
        store(own, generation);
    }
}

/// Asks the processor for the words of a key.
pub(super) fn fetch(block: &Block<'_>, k: u32, hash: u64) {
    visit(block, k, 0, hash, |cell, _| prefetch(cell));
}

/// Inserts a key in a generation. If the block is further on, slices whose columns have been recycled since
/// are left out.
pub(super) fn insert(block: &Block<'_>, k: u32, since: u64, generation: u64, hash: u64) {
    catch_up(block, since, generation);
    let behind = caught_up_to(block).saturating_sub(generation);
    visit(block, k, generation, hash, |cell, age| {
        if behind.saturating_add(age.into()) < COLUMNS {
            store(cell, load(cell) | bit(generation, age));
        }
    });
}

/// How many bits [`insert`] would newly set.
pub(super) fn novelty(block: &Block<'_>, k: u32, generation: u64, hash: u64) -> u32 {
    let caught = caught_up_to(block);
    let (behind, ahead) = (caught.saturating_sub(generation), generation.saturating_sub(caught));
    let mut new = 0;
    visit(block, k, generation, hash, |cell, age| {
        // Columns of slices made since the block was last touched have yet to be cleared.
        let empty = u64::from(age) < ahead || load(cell) & bit(generation, age) == 0;
        new += u32::from(empty && behind.saturating_add(age.into()) < COLUMNS);
    });
    new
}

/// The youngest generation, from `oldest` on, all of whose slices have the key's bits.
#[must_use]
pub(super) fn youngest(
    block: &Block<'_>,
    k: u32,
    every: u64,
    oldest: u64,
    hash: u64,
) -> Option<u64> {
    let caught = caught_up_to(block);
    let reach = caught.checked_sub(oldest)?;
    let found = runs(row(block, k, every, caught, hash), k);
    let within = found & !u64::MAX.checked_shr(reach.min(COLUMNS) as u32 + 1).unwrap_or(0);
    (within != 0).then(|| caught - u64::from(within.leading_zeros()))
}

/// The key's bits in all slices, ordered by age: bit 63 is the slice made in generation `caught`.
fn row(block: &Block<'_>, k: u32, every: u64, caught: u64, hash: u64) -> u64 {
    let turn = 63 - (caught % COLUMNS) as u32;
    let mut row = 0;
    visit(block, k, caught, hash, |cell, age| {
        row |= load(cell).rotate_left(turn) & (every >> age);
    });
    row
}

/// The bits of a row that begin (at the young end) `k` consecutive ones.
fn runs(row: u64, k: u32) -> u64 {
    let (mut found, mut length) = (row, 1);
    while length < k {
        let more = length.min(k - length);
        found &= found << more;
        length += more;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn ones(cells: &[AtomicU64]) -> u32 {
        cells.iter().map(|cell| load(cell).count_ones()).sum()
    }

    #[test]
    fn a_column_is_cleared_before_its_next_slice_is_made() {
        let (own, cells) = (words(6), words(64));
        let block = Block { own: &own, cells: &cells };
        for (generation, left) in [(100, 12), (152, 12), (153, 11), (158, 6), (164, 0), (900, 0)] {
            store(&own[0], 0);
            cells.iter().for_each(|cell| store(cell, 0));
            insert(&block, 12, 100, 100, 77);
            assert_eq!(ones(&cells), 12);
            catch_up(&block, 100, generation);
            assert_eq!(ones(&cells), left, "at {generation}");
        }
    }

    #[test]
    fn an_insert_far_behind_its_block_leaves_recycled_columns_alone() {
        let (own, cells) = (words(6), words(64));
        let block = Block { own: &own, cells: &cells };
        catch_up(&block, 0, 200);
        // Of the slices 129 to 140 the block still has those from 137 on.
        assert_eq!(novelty(&block, 12, 140, 77), 4);
        insert(&block, 12, 0, 140, 77);
        assert_eq!(ones(&cells), 4);
        assert_eq!(caught_up_to(&block), 200);
    }

    #[test]
    fn novelty_is_what_an_insert_sets() {
        let (own, cells) = (words(6), words(64));
        let block = Block { own: &own, cells: &cells };
        for i in 0..5000_u64 {
            let (generation, hash) = (100 + i / 40 - i % 7, crate::hash::mix(i));
            catch_up(&block, 90, 100 + i / 40);
            let (before, new) = (ones(&cells), novelty(&block, 12, generation, hash));
            insert(&block, 12, 90, generation, hash);
            assert_eq!(ones(&cells) - before, new, "insert {i}");
        }
    }
}
