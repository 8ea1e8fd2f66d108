//! Distinct keys, by linear counting over the rows of one hash function: each key sets the bit of
//! one row, in the slices of that function.

use super::AgePartitioned;
use crate::block::Block;
use crate::kind::distinct_in_block::{Counted, SubWindow};
use crate::kind::{CountedGenerations, DistinctKeys, Moment, State};

impl DistinctKeys for AgePartitioned {
    /// The depth is the age of the oldest generation.
    fn sub_window(&self, state: &State<'_>, moment: &Moment, width: Option<u64>) -> SubWindow {
        let last = u64::from(self.l).min(CountedGenerations::current(state));
        let began = |age| self.generations.began(state, &moment.totals, age).width();
        SubWindow::reaching(width, last, began)
    }

    fn count(
        &self,
        state: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        _: &Moment,
        depth: u64,
    ) -> Counted {
        let generation = CountedGenerations::current(state);
        let mut sum = Counted::default();
        for (_, block) in blocks {
            let generation = generation.max(super::caught_up(block));
            let (set, rows) = self.slices.rows_set(block, generation, depth);
            sum += Counted::of_occupied(rows as f64, set as f64, 1.0);
        }
        sum
    }
}
