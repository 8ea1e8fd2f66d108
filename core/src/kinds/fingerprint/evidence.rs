//! The evidence of a key's slot about its age in inserts: see `docs/inference.md`.

use super::items::Items;
use super::table::Found;
use super::word::Word;
use crate::block::Blocks;
use crate::inference::{Belief, Piece, posterior::gone};
use crate::kind::{CountedGenerations, Inference, Query, State, Totals, Within};

impl<W: Word> Inference for Items<W> {
    fn window(&self, _: &Totals) -> Within {
        Within::Items(self.window)
    }

    /// Passes to `tell` the likelihood of the key's slot at the ages of its generation and beyond.
    ///
    /// A key has a live slot that is at least as young as itself. So it is in the generation of the
    /// slot that was found, or in an older one or in none if another key has set that slot: one
    /// with the same fingerprint and buckets. A closed bucket may hold any key of its generation
    /// and of older ones.
    fn evidence(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let Some(block) = blocks.get(0) else {
            return;
        };
        let found = self.table.find(block, CountedGenerations::current(state), query.hash);
        let Found { generation, slot, closed } = found;
        let open = self.inserts_in(state, generation, &query.totals);
        let since = |age: u32| match age.checked_sub(1) {
            None => 0,
            Some(closed) => {
                open.saturating_add(self.generations.length.saturating_mul(closed.into()))
            }
        };
        let age_of = |left: u32| self.table.life().saturating_sub(left);
        let mut pieces = Pieces { tell, at: 0 };
        let older = since(age_of(closed));
        if slot == 0 {
            return pieces.to(older, Piece::ENDLESS, 1.0);
        }
        let age = age_of(slot);
        let (from, to) = (since(age), since(age + 1));
        // (A block may be ahead of the sums: then at least one insert was in the open generation.)
        let to = to.max(from + 1);
        let hit = self.table.hit(block);
        // ln(1 - hit), by its series.
        let missed = hit * (1.0 + hit * 0.5);
        let others = gone(belief.distinct.of((to - from) as f64) * missed);
        if closed > 0 && older < from {
            pieces.to(older, from, others);
        }
        pieces.to(from, to, 1.0);
        pieces.to(to, Piece::ENDLESS, others);
    }
}

/// Passes pieces of ages, one after the other.
struct Pieces<'a> {
    tell: &'a mut dyn FnMut(Piece),
    at: u64,
}

impl Pieces<'_> {
    fn to(&mut self, from: u64, to: u64, likelihood: f64) {
        let from = from.max(self.at);
        if from < to {
            (self.tell)(Piece { from, to, likelihood });
            self.at = to;
        }
    }
}
