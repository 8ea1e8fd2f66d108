//! Distinct keys, by linear counting of the timers of an age: a timer has it just if one of the
//! keys that have the timer was inserted within it.

use super::stamps::in_use;
use super::{Timing, theory};
use crate::block::Block;
use crate::kind::distinct_in_block::{Counted, SubWindow};
use crate::kind::{DistinctKeys, Moment, State};

impl DistinctKeys for Timing {
    /// The depth is in inserts. With larger batches the batch in which it begins counts whole.
    fn sub_window(&self, _: &State<'_>, moment: &Moment, width: Option<u64>) -> SubWindow {
        let inserts = moment.totals.inserts;
        let depth = width.unwrap_or(u64::MAX).min(self.plan.window);
        let into_batch = inserts % self.plan.batch.max(1);
        let covered = theory::covered(depth, self.plan.batch, into_batch);
        SubWindow { depth, reach: covered.min(inserts) }
    }

    fn count(
        &self,
        _: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        moment: &Moment,
        depth: u64,
    ) -> Counted {
        let mut sum = Counted::default();
        for (_, block) in blocks {
            let (timers, now) = (self.timers(block), self.now(block, &moment.totals));
            let reach = theory::reach(depth, self.plan.batch, now.into_batch);
            let kept = reach.checked_sub(now.tick - now.own);
            self.ring.sweep(self.ring.stamp(now.own), kept).mark(&timers, block, 0, timers.cells);
            let (used, cells) = (in_use(&timers, block) as f64, timers.cells as f64);
            sum += Counted::of_occupied(cells, used, self.plan.k.into());
        }
        sum
    }
}
