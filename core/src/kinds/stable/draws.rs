//! The numbered draws: which cells of a block are decremented, as a pure function of numbers.
//!
//! The papers decrement `P` cells of the whole filter at each insert. Here the same number is
//! distributed over the blocks in turn: after `S` inserts anywhere, [`owed`] draws of a block are
//! due, the first of them number 0, and each draw picks one of the block's cells. A draw depends
//! only on the block's number and its own number, so it does not matter when a block catches up.
//!
//! For a reimplementation (all arithmetic modulo 2^64, `G = 0x9e3779b97f4a7c15`, `mix` the
//! finaliser of SplitMix64, `n` the cells of the block):
//!
//! ```text
//! base(block)                          = mix(G · (block + 1))
//! cell(block, draw)                    = floor(mix(base(block) + G · (draw + 1)) · n / 2^64)
//! bits(block, decrement, attempt)      = mix(base(block) + G · (64 · decrement + attempt + 1)),
//!                                        attempt < 64
//! cell(block, decrement, attempt)      = floor((bits mod 2^32) · n / 2^32)
//! accepted(block, decrement, attempt)  = value > 0  and  floor(bits / 2^32) · value < 2^32
//! ```
//!
//! The second form is that of IBF-H, whose decrements try cells until one is accepted.

use crate::hash::{mix, scale};

/// The number of attempts after which a decrement that depends on values is skipped.
pub(super) const ATTEMPTS: u32 = 64;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns how many draws of a block are due after `inserts` inserts anywhere:
/// `floor((S·P + b) / blocks)`.
#[inline]
pub(super) fn owed(inserts: u64, decrements: u64, block: u64, of: u64) -> u64 {
    let (of, block) = (of.max(1), block.min(of.saturating_sub(1)));
    match inserts.checked_mul(decrements).and_then(|all| all.checked_add(block)) {
        Some(all) => all / of,
        None => {
            let all = u128::from(inserts) * u128::from(decrements) + u128::from(block);
            u64::try_from(all / u128::from(of)).unwrap_or(u64::MAX)
        }
    }
}

/// The draws of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws {
    base: u64,
    cells: u64,
}

impl Draws {
    /// Creates the draws of the block of this number, over `cells` cells.
    #[inline]
    pub(super) fn new(block: u64, cells: usize) -> Self {
        Self { base: mix(GOLDEN.wrapping_mul(block.wrapping_add(1))), cells: cells as u64 }
    }

    #[inline]
    fn bits(&self, number: u64) -> u64 {
        mix(self.base.wrapping_add(GOLDEN.wrapping_mul(number.wrapping_add(1))))
    }

    /// Returns the cell that a draw picks.
    #[inline]
    pub(super) fn cell(&self, draw: u64) -> usize {
        scale(self.bits(draw), self.cells) as usize
    }

    /// Returns the cell that an attempt at a decrement picks, and the chance that decides whether
    /// it is accepted.
    #[inline]
    pub(super) fn attempt(&self, decrement: u64, attempt: u32) -> (usize, Chance) {
        let first = decrement.wrapping_mul(ATTEMPTS.into());
        let bits = self.bits(first.wrapping_add(attempt.into()));
        let cell = (u64::from(bits as u32) * self.cells) >> 32;
        (cell as usize, Chance(bits >> 32))
    }
}

/// An even number below 2^32.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chance(u64);

impl Chance {
    /// Returns true with probability `1/value`; never for 0.
    #[inline]
    pub(super) fn accepts(self, value: u64) -> bool {
        value > 0 && self.0.saturating_mul(value) < 1 << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_debts_add_up_to_all_decrements_and_differ_by_one_at_most() {
        for (inserts, decrements, of) in
            [(0, 10, 7), (1, 10, 64), (12_345, 3, 64), (1 << 60, 1 << 20, 4096)]
        {
            let debts: Vec<_> = (0..of).map(|block| owed(inserts, decrements, block, of)).collect();
            let all: u128 = debts.iter().map(|&debt| u128::from(debt)).sum();
            if inserts < 1 << 50 {
                assert_eq!(all, u128::from(inserts) * u128::from(decrements));
            }
            assert!(debts[of as usize - 1] - debts[0] <= 1);
        }
        assert_eq!(owed(u64::MAX, u64::MAX, 0, 1), u64::MAX);
        // With one block, all decrements are its own: the papers' listing.
        assert_eq!(owed(17, 10, 0, 1), 170);
    }

    #[test]
    fn draws_are_even() {
        let draws = Draws::new(3, 100);
        let mut counts = [[0_u32; 100]; 2];
        for draw in 0..100_000 {
            counts[0][draws.cell(draw)] += 1;
            counts[1][draws.attempt(draw / 64, (draw % 64) as u32).0] += 1;
        }
        // Mean 1000, standard deviation 31.5; six of them.
        assert!(counts.as_flattened().iter().all(|&c| (811..=1189).contains(&c)), "{counts:?}");
    }

    #[test]
    fn a_value_is_accepted_once_in_as_many_attempts() {
        let draws = Draws::new(0, 1);
        for value in [1, 2, 7, 255] {
            let tries = 64_000;
            let accepted = (0..tries)
                .filter(|&i| draws.attempt(i / 64, (i % 64) as u32).1.accepts(value))
                .count() as f64;
            let mean = tries as f64 / value as f64;
            assert!((accepted - mean).abs() <= 6.0 * mean.sqrt(), "{value}: {accepted}");
        }
        assert!((0..64).all(|attempt| !draws.attempt(0, attempt).1.accepts(0)));
    }
}
