//! The evidence of a key's bits about whether it was inserted: section 2.4 of the Inferential
//! paper.

use super::Bloom;
use crate::block::{Block, Blocks};
use crate::inference::{Belief, Form, Piece};
use crate::kind::{Inference, Query, State, Totals, Within};

impl Inference for Bloom {
    /// Returns all inserts: section 2.4 of the Inferential paper.
    fn window(&self, totals: &Totals) -> Within {
        Within::Items(totals.inserts)
    }

    /// Passes to `tell` the likelihood of a key's bits if it was one of the `n` inserts, and if it
    /// was none (equation 12).
    ///
    /// If all are set: certain if it was inserted, and otherwise the probability that other keys
    /// set them. If not all are set, it was not inserted.
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
        let all_set = self.all_set(block, query.hash);
        // (Bits that are set prove an insert that the sums may not count yet.)
        let inserts = query.totals.inserts.max(u64::from(all_set));
        let likelihood = if all_set {
            tell(Piece { from: 0, to: inserts, likelihood: 1.0 });
            false_positive(self, block, inserts, belief)
        } else {
            1.0
        };
        tell(Piece { from: inserts, to: Piece::ENDLESS, likelihood });
    }
}

/// Returns `P_FP` (equation 1), with `r_x = k`.
fn false_positive(kind: &Bloom, block: &Block<'_>, inserts: u64, belief: &Belief<'_>) -> f64 {
    let scatter = kind.scatter.of(f64::from(kind.bits(block)), kind.plan.k, block.of as f64);
    match belief.form {
        Form::Paper => scatter.touched_of_all(kind.plan.k, inserts as f64),
        Form::Refined => scatter.touched(kind.plan.k, belief.distinct.of(inserts as f64)),
    }
}
