//! The number of distinct keys of kinds in which every present key has `k` cells in use, and no
//! cell is in use without a key.

use crate::block::Block;
use crate::kind::distinct_in_block::{Counted, SubWindow};
use crate::kind::{Describe, DistinctKeys, Moment, State};

/// A kind whose [fill](Describe::fill) follows from its keys.
pub(super) trait ByFill: Describe {
    /// Returns the cells of a key, `k`.
    fn cells_of_a_key(&self) -> u32;
}

impl<K: ByFill> DistinctKeys for K {
    /// Keys of all ages look the same.
    fn has_sub_windows(&self) -> bool {
        false
    }

    /// All inserts so far.
    fn sub_window(&self, _: &State<'_>, moment: &Moment, _: Option<u64>) -> SubWindow {
        SubWindow { depth: 0, reach: moment.totals.inserts }
    }

    fn count(&self, _: &State<'_>, blocks: &[(usize, Block<'_>)], _: &Moment, _: u64) -> Counted {
        let mut sum = Counted::default();
        for (_, block) in blocks {
            let (used, cells) = self.fill(block);
            sum += Counted::of_occupied(cells as f64, used as f64, self.cells_of_a_key().into());
        }
        sum
    }
}
