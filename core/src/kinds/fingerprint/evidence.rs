//! The evidence of a key's slot about its age: see `docs/inference.md`.
//!
//! # Keys older than the first insert
//!
//! A window of time knows when its first insert came, not how many keys came late, with times
//! before that. By the prior the stream has no beginning, so most keys of those times were never
//! inserted here. They count as never inserted, and a window begins at the first insert, unless the
//! key's youngest slot is of a generation that was over by then: only late keys set such slots. Its
//! `N` slots are counted. Each of these inserts was of the key with probability `p` (not by the
//! rate of the stream, most of which did not arrive), and each has set the slot of another key with
//! probability `h`: the odds are `p : h`.
//!
//! Omitted, because it takes a late key and a coincidence: a key older than the first insert whose
//! slot another key has renewed. A late key of the generation in which the first insert came has
//! the ages since that.

use super::items::Items;
use super::table::Found;
use super::timed::Timed;
use super::word::Word;
use crate::block::Blocks;
use crate::inference::{Belief, Piece, posterior::gone};
use crate::kind::{CountedGenerations, Inference, Micros, Query, State, Totals, Within};
use std::cmp::Ordering;

/// The greatest likelihood of a piece, so that all are finite at the least rates as well.
const MOST_LIKELY: f64 = 1e100;

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

    /// Late keys are older than the first insert by less than a window.
    fn history(&self, state: &State<'_>, query: &Query) -> u64 {
        match self.pressure(state).beginning() {
            0 => 0,
            first => first_age(query, first).saturating_add(self.window.saturating_sub(1)),
        }
    }

    /// Returns the age of the first insert, or a greater one if the key's slot is older than that.
    fn history_of(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> u64 {
        let (first, most) = (self.pressure(state).beginning(), self.history(state, query));
        let age = first_age(query, first).min(most);
        let (begun, oldest) = (self.generation_of(first), self.oldest(query.now));
        if oldest >= begun {
            return age;
        }
        match self.found_in(blocks, query) {
            (Some(slot), _) if slot < begun => self.ages_of(slot, query.now).1.min(most),
            (None, Some(closed)) if closed < begun => self.ages_of(oldest, query.now).1.min(most),
            _ => age,
        }
    }

    /// As for windows of inserts, with the youngest slot of all banks. How many keys its generation
    /// has is not recorded, so its slots in the key's blocks are counted.
    fn evidence(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let (youngest, closed) = self.found_in(blocks, query);
        let ages = |generation| self.ages_of(generation, query.now);
        let older = closed.map(|closed| ages(closed).0);
        let mut pieces = Pieces { tell, at: 0 };
        let Some(slot) = youngest else {
            let from = older.unwrap_or_else(|| ages(self.oldest(query.now)).1);
            return pieces.to(from, Piece::ENDLESS, 1.0);
        };
        let (from, to) = ages(slot);
        let hits = blocks.iter().map(|(_, block)| self.table.hit_in_generation(block, slot));
        let others = hits.sum::<f64>().min(1.0);
        let first = self.pressure(state).beginning();
        let began = first_age(query, first);
        if closed > youngest {
            pieces.to(older.unwrap_or(from), from.min(began), others);
        }
        match slot.cmp(&self.generation_of(first)) {
            Ordering::Greater => pieces.to(from, to, 1.0),
            Ordering::Equal => {
                // An insert came at the first moment, at whatever rate.
                pieces.to(from, began - 1, 1.0);
                pieces.to(began - 1, began, 1.0 + by_insert(belief, 1));
            }
            Ordering::Less => {
                let to = to.min(self.history(state, query));
                let ages = to.saturating_sub(from);
                pieces.to(from, to, self.slots_of(blocks, slot) * by_insert(belief, ages));
            }
        }
        pieces.to(from, Piece::ENDLESS, others);
    }
}

/// Returns how much likelier one insert makes this number of ages than the rate of the key does.
fn by_insert(belief: &Belief<'_>, ages: u64) -> f64 {
    let by_rate = belief.survival.within(ages);
    if by_rate <= 0.0 {
        return 0.0;
    }
    (belief.probability * belief.survival.beyond(ages) / by_rate).min(MOST_LIKELY)
}

/// Returns the first age beyond that of the filter's first insert.
fn first_age(query: &Query, first: Micros) -> u64 {
    query.now.saturating_sub(first).saturating_add(1)
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
