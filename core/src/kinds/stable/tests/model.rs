//! The listings of the Importance-aware paper, literally, over all blocks at once: each insert
//! makes the draws that have become due in every block, then raises its key's cells. The draws are
//! implemented again from their description, not taken from the code.

use crate::block::{Geometry, Layout};
use crate::conformance::Model;
use crate::hash::{Positions, mix};
use crate::kind::Micros;

const G: u64 = 0x9e37_79b9_7f4a_7c15;

/// A filter as in the papers.
pub(in crate::kinds) struct Naive {
    blocks: Vec<Vec<u64>>,
    drawn: Vec<u64>,
    functions: u32,
    decrements: u64,
    inserts: u64,
    by_value: bool,
    /// The value for a weight.
    value: fn(u32) -> u64,
    place: (Layout, Geometry),
}

impl Naive {
    /// Creates a filter of `cells` cells in blocks of this layout.
    pub(in crate::kinds) fn new(
        (layout, cells, max): (Layout, u64, u64),
        (functions, decrements): (u32, u64),
        by_value: bool,
        value: fn(u32) -> u64,
    ) -> Self {
        let bits = u64::from(64 - max.leading_zeros());
        let geometry = layout.geometry((cells * bits).div_ceil(64));
        let blocks = layout.blocks(geometry);
        let fit = u64::from(geometry.words_per_block) * 64 / bits;
        let in_block = fit.min(cells.div_ceil(blocks)) as usize;
        Self {
            blocks: vec![vec![0; in_block]; blocks as usize],
            drawn: vec![0; blocks as usize],
            functions,
            decrements,
            inserts: 0,
            by_value,
            value,
            place: (layout, geometry),
        }
    }

    /// Returns the cells of all blocks.
    pub(in crate::kinds) fn cells(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flatten().copied()
    }

    fn base(block: usize) -> u64 {
        mix(G.wrapping_mul(block as u64 + 1))
    }

    fn decrement(&mut self, block: usize) {
        let number = self.drawn[block];
        let cells = &mut self.blocks[block];
        let n = cells.len() as u128;
        if self.by_value {
            for attempt in 0..64 {
                let at = number.wrapping_mul(64).wrapping_add(attempt + 1);
                let bits = mix(Self::base(block).wrapping_add(G.wrapping_mul(at)));
                let cell = &mut cells[((u128::from(bits as u32) * n) >> 32) as usize];
                if *cell > 0 && (bits >> 32) * *cell < 1 << 32 {
                    *cell -= 1;
                    break;
                }
            }
        } else {
            let bits = mix(Self::base(block).wrapping_add(G.wrapping_mul(number + 1)));
            let cell = &mut cells[((u128::from(bits) * n) >> 64) as usize];
            if *cell >= 1 {
                *cell -= 1;
            }
        }
        self.drawn[block] += 1;
    }

    fn block_of(&self, hash: u64) -> usize {
        self.place.0.block_of(self.place.1, hash)
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_weighing(hash, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, _: Micros, weight: u32) {
        self.inserts += 1;
        let of = self.blocks.len() as u64;
        for block in 0..self.blocks.len() {
            while self.drawn[block] < (self.inserts * self.decrements + block as u64) / of {
                self.decrement(block);
            }
        }
        let (block, value) = (self.block_of(hash), (self.value)(weight));
        let cells = &mut self.blocks[block];
        let positions = Positions::new(hash, cells.len() as u32);
        for function in 0..self.functions {
            let cell = &mut cells[positions.get(function)];
            *cell = value.max(*cell);
        }
    }

    fn contains(&self, hash: u64, _: Micros) -> bool {
        let cells = &self.blocks[self.block_of(hash)];
        let positions = Positions::new(hash, cells.len() as u32);
        (0..self.functions).all(|function| cells[positions.get(function)] > 0)
    }
}
