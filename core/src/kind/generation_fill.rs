//! How full the generations of a block are.

use super::Age;

/// The cells of one generation of a block, or of several blocks together.
///
/// In kinds of slices or buffers a slice counts for the generation that began it, and has cells of
/// its own. In kinds whose cells name their generation (fingerprints, timers), all generations
/// share all cells, and their shares add up to the fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GenerationFill {
    /// How long ago the generation began, in the unit of the window: no key of it is older.
    pub began: Age,
    /// The cells in use.
    pub used: u64,
    /// All cells that the generation may use.
    pub cells: u64,
}

impl GenerationFill {
    /// Returns the share of cells in use, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        if self.cells == 0 { 0.0 } else { self.used as f64 / self.cells as f64 }
    }

    /// Adds the cells of the same generations of another block, the open one first in both.
    pub fn add_all(sums: &mut Vec<Self>, block: &[Self]) {
        for (at, &one) in block.iter().enumerate() {
            match sums.get_mut(at) {
                Some(sum) => {
                    sum.used = sum.used.saturating_add(one.used);
                    sum.cells = sum.cells.saturating_add(one.cells);
                }
                None => sums.push(one),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_blocks_are_added_by_their_order_and_longer_lists_are_kept() {
        let one = |used, cells| GenerationFill { began: Age::Items(7), used, cells };
        let mut sums = vec![one(1, 8)];
        GenerationFill::add_all(&mut sums, &[one(2, 8), one(3, 4)]);
        assert_eq!(sums, [one(3, 16), one(3, 4)]);
        assert_eq!((sums[1].fill(), one(0, 0).fill()), (0.75, 0.0));
    }
}
