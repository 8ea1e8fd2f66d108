//! The evidence of a key's counters about whether it is contained: section 2.4 of the Inferential
//! paper, for a filter from which keys are removed.

use super::Counting;
use crate::block::{Block, Blocks};
use crate::inference::{Belief, Form, Piece};
use crate::kind::{Inference, Query, State, Totals, Within};

/// Returns the inserts that were not removed. Ages count only these: to the counters it is as if
/// the others had never been made.
///
/// Records are counted, whatever their weights. Where one insert was removed in several parts, too
/// few remain, but never none: otherwise keys that are there would count as impossible.
fn remaining(totals: &Totals) -> u64 {
    totals.inserts.saturating_sub(totals.new_bits).max(u64::from(totals.inserts > 0))
}

impl Inference for Counting {
    /// Returns all inserts that were not removed.
    fn window(&self, totals: &Totals) -> Within {
        Within::Items(remaining(totals))
    }

    fn history(&self, _: &State<'_>, query: &Query) -> u64 {
        remaining(&query.totals)
    }

    /// Passes to `tell` the likelihood of a key's counters if it was one of the inserts that
    /// remain, and if it was none (equation 12, with a counter above 0 as a bit that is set).
    ///
    /// How high the counters are is no evidence used here: it depends on how often other keys were
    /// inserted, about which `D(j)` says nothing.
    fn evidence(
        &self,
        _: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let Some(block) = blocks.get(0) else {
            return;
        };
        let is_found = self.least(block, query.hash) > 0;
        // (Counters may prove an insert that the sums do not count yet.)
        let inserts = remaining(&query.totals).max(u64::from(is_found));
        let likelihood = if is_found {
            tell(Piece { from: 0, to: inserts, likelihood: 1.0 });
            raised(self, block, inserts, belief)
        } else {
            1.0
        };
        tell(Piece { from: inserts, to: Piece::ENDLESS, likelihood });
    }
}

/// Returns the probability that other keys raised all counters of a key (equation 1).
fn raised(kind: &Counting, block: &Block<'_>, inserts: u64, belief: &Belief<'_>) -> f64 {
    let (k, cells) = (kind.plan.k, kind.counters(block).cells as f64);
    let scatter = kind.scatter.of(cells, k, block.of as f64);
    match belief.form {
        Form::Paper => scatter.touched_of_all(k, inserts as f64),
        Form::Refined => scatter.touched(k, belief.distinct.of(inserts as f64)),
    }
}
