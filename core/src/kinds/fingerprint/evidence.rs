//! The evidence of a key's slot about its age in inserts: see `docs/inference.md`.

use super::items::Items;
use super::table::Found;
use super::timed::Timed;
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

impl<W: Word> Inference for Timed<W> {
    fn window(&self, _: &Totals) -> Within {
        Within::micros(self.window)
    }

    /// Late keys may have been inserted before the first one.
    fn history(&self, state: &State<'_>, query: &Query) -> u64 {
        let beginning = self.pressure(state).beginning();
        query.now.saturating_sub(beginning).saturating_add(1)
    }

    /// As for windows of inserts, with the youngest slot of all banks. How many keys its generation
    /// has is not recorded, so its slots in the key's blocks are counted.
    fn evidence(
        &self,
        _: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        _: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let now = self.generation_of(query.now);
        let (mut youngest, mut closed) = (None, None);
        let generation = |found: &Found, left: u32| {
            let age = self.table.life().saturating_sub(left);
            (left > 0).then(|| found.generation.saturating_sub(age.into()))
        };
        for (_, block) in blocks.iter() {
            let found = self.table.find(block, now, query.hash);
            youngest = youngest.max(generation(&found, found.slot));
            closed = closed.max(generation(&found, found.closed));
        }
        // The ages of keys of a generation: below the first, from the second on.
        let ages = |generation: u64| {
            let end = generation.saturating_add(1).saturating_mul(self.pace);
            let to = query.now.saturating_sub(generation.saturating_mul(self.pace));
            (query.now.saturating_add(1).saturating_sub(end), to.saturating_add(1))
        };
        let mut pieces = Pieces { tell, at: 0 };
        let oldest = (now + 1).saturating_sub(self.table.life().into());
        let older = ages(closed.unwrap_or(oldest.wrapping_sub(1)));
        let Some(age) = youngest else {
            let from = if closed.is_some() { older.0 } else { ages(oldest).1 };
            return pieces.to(from, Piece::ENDLESS, 1.0);
        };
        let (from, to) = ages(age);
        let hits = blocks.iter().map(|(_, block)| self.table.hit_in_generation(block, age));
        let others = hits.sum::<f64>().min(1.0);
        if closed.is_some_and(|closed| closed > age) {
            pieces.to(older.0, from, others);
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
