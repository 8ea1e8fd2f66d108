//! Distinct keys, by linear counting of the buffers' bits.
//!
//! Both buffers have the same hash functions, so a place that is set in either of them is set by a
//! key of either: their union is the Bloom filter of both generations' keys.

use super::buffers::{self, BOTH, caught_up, cleared_for};
use super::{Buffering, Scheme};
use crate::block::Block;
use crate::kind::distinct_in_block::{Counted, SubWindow};
use crate::kind::{CountedGenerations, DistinctKeys, Moment, State};

impl DistinctKeys for Buffering {
    /// Depth 0 is the open generation, depth 1 also the one before.
    fn sub_window(&self, state: &State<'_>, moment: &Moment, width: Option<u64>) -> SubWindow {
        let last = CountedGenerations::current(state).min(1);
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
            let open = cleared_for(generation.max(caught_up(block)));
            let (used, places) = match (self.scheme, depth) {
                (_, 0) => buffers::used(block, open),
                (Scheme::Two, _) => buffers::used_in_any(block),
                // The active buffer has taken the keys of both generations.
                (Scheme::Double, _) => buffers::used(block, BOTH & !open),
            };
            sum += Counted::of_occupied(places as f64, used as f64, self.plan.k.into());
        }
        sum
    }
}
