//! Distinct keys, by linear counting of the rows in which slices of one hash function are set, in
//! each bank.
//!
//! A key that was inserted while one bank served and again while another did is in both, and their
//! rows cannot be compared. The true number is between that of the larger bank and the sum of all.
//! The middle is returned, and its distance from both as an error. With one bank, which is the
//! case a window after the rate has last risen, there is no such error.

use super::TimeLimited;
use super::generations::last_generation;
use crate::block::Block;
use crate::kind::distinct_in_block::{Counted, SubWindow};
use crate::kind::{DistinctKeys, Moment, State};

impl DistinctKeys for TimeLimited {
    /// The depth is the number of generations, 0 if none of them ended within the time.
    fn sub_window(&self, state: &State<'_>, moment: &Moment, width: Option<u64>) -> SubWindow {
        let generations = self.plan.generations(state);
        let width = width.unwrap_or(u64::MAX).min(self.plan.window);
        let oldest = generations.first_since(moment.now, width);
        let depth = generations.current().saturating_add(1).saturating_sub(oldest);
        // Nothing was inserted between two generations.
        let opened = if depth == 0 { moment.now } else { generations.opened(oldest) };
        SubWindow { depth, reach: moment.now.saturating_sub(opened).max(width) }
    }

    fn count(
        &self,
        state: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        _: &Moment,
        depth: u64,
    ) -> Counted {
        let generations = self.plan.generations(state);
        let current = generations.current();
        let oldest = current.saturating_add(1).saturating_sub(depth);
        let mut sum = Counted::default();
        for (slot, block) in blocks {
            let Some(bank) = state.bank(*slot) else { continue };
            let last = last_generation(state, &bank).min(current);
            let Some(ages) = last.checked_sub(oldest.max(bank.since)) else { continue };
            let (set, rows) = self.slices.rows_set(block, last, ages);
            sum += Counted::of_occupied(rows as f64, set as f64, 1.0);
        }
        sum
    }

    /// Half of what the smaller banks have is the doubt.
    fn of_banks(&self, banks: &[Counted]) -> Counted {
        let (mut sum, mut largest) = (Counted::default(), 0.0_f64);
        for bank in banks {
            largest = largest.max(bank.keys);
            sum += *bank;
        }
        let apart = (sum.keys - largest) / 2.0;
        Counted { keys: sum.keys - apart, doubt: sum.doubt + apart, ..sum }
    }
}
