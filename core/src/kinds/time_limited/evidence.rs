//! The evidence of a key's rows about its age in microseconds. The Inferential paper does not treat
//! this kind: see `docs/inference.md`.
//!
//! Banks share no slices, so the rows of each are weighed separately. Late keys, whose time was
//! earlier than the filter's, count like the others of their generation.

use super::super::run_evidence::{Ages, Row, Start};
use super::TimeLimited;
use super::fills::Measure;
use super::generations::{Generations, last_generation};
use crate::block::Blocks;
use crate::inference::{Belief, Piece, Survival, posterior::gone};
use crate::kind::{BankEntry, Inference, Micros, Query, State, Totals, Within};
use std::cell::Cell;
use std::ops::Range;

/// The greatest expected number of inserts of a key in silences. A prior that expects more is
/// wrong, and is treated as this one, so that likelihoods are finite.
const MOST_EXPECTED: f64 = 450.0;

/// Loads that differ by less than this need no exponential each.
const NEARLY: f64 = 0.1;

/// A bank whose row contains evidence: its generations and slices by age, 0 the youngest that the
/// key's block may have.
struct Bank<'a> {
    generations: Generations<'a>,
    prior: Arrivals,
    now: Micros,
    k: u64,
    /// The generation of age 0.
    newest: u64,
    /// The generations whose keys it has.
    serves: (u64, u64),
    rows: f64,
    /// Keys that the open generation took so far.
    open_keys: u64,
    /// The slices at the ends of the last run, and the keys they took: the next run mostly begins
    /// one slice younger.
    ends: [Cell<(u64, u64)>; 2],
}

/// The arrivals of a key: at any time while a generation is open, and as the insert that opens it.
#[derive(Clone, Copy)]
struct Arrivals {
    survival: Survival,
    /// The probability that an insert is of the key, and the resulting distribution for inserts
    /// that open generations.
    probability: f64,
    opening: Survival,
}

impl Arrivals {
    fn new(belief: &Belief<'_>) -> Self {
        let Belief { probability, survival, .. } = *belief;
        Self { survival, probability, opening: Survival::of_inserts(probability) }
    }

    /// Returns the probability that the key did not arrive during this open time, nor as one of
    /// this number of opening inserts.
    #[inline]
    fn none(&self, (open, opened): (Micros, u64)) -> f64 {
        self.survival.beyond(open) * self.opening.beyond(opened)
    }

    /// Returns the probability that it did: in the time after the opening inserts, or as one of
    /// them.
    #[inline]
    fn some(&self, (open, opened): (Micros, u64)) -> f64 {
        let (later, first) = (self.survival.within(open), self.opening.within(opened));
        later + (1.0 - later) * first
    }

    /// Returns how much likelier the microsecond of an opening insert is than one after it.
    fn opening(&self) -> f64 {
        let later = self.survival.within(1);
        if later > 0.0 { 1.0 + self.probability / later } else { 1.0 }
    }
}

/// A walk from the present to the past.
struct Past<'a> {
    generations: Generations<'a>,
    prior: Arrivals,
    now: Micros,
    /// The oldest generation that has been passed, or the one after the open one.
    at: u64,
    /// How long the passed generations were open, and how many of them an insert opened.
    open: (Micros, u64),
    /// The probability that other keys have set the ones that have been passed.
    unexplained: f64,
    /// The first age that is not yet covered by a piece.
    told: u64,
}

/// Returns the least age of keys inserted before a time.
#[inline]
fn since(now: Micros, time: Micros) -> u64 {
    now.saturating_add(1).saturating_sub(time)
}

impl Inference for TimeLimited {
    fn window(&self, _: &Totals) -> Within {
        Within::micros(self.plan.window)
    }

    /// Returns the age of the first insert, as long as it is on record: no key is older.
    fn history(&self, state: &State<'_>, query: &Query) -> u64 {
        let generations = self.plan.generations(state);
        match generations.beginning() {
            (generation, true) => since(query.now, generations.opened(generation)),
            (_, false) => u64::MAX,
        }
    }

    /// Passes to `tell` the likelihood of the key's rows at the ages of each generation in which it
    /// can have been inserted, and beyond.
    fn evidence(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let generations = self.plan.generations(state);
        let mut past = Past::new(generations, Arrivals::new(belief), query.now);
        let mut oldest = generations.current();
        let key = Rows { kind: self, state, blocks, query, belief };
        let mut entry = before(state, u64::MAX);
        while let Some(bank) = entry {
            entry = before(state, bank.since);
            let Some((rows, row)) = key.row(&bank) else {
                continue;
            };
            oldest = rows.newest.saturating_sub(u64::from(row.generations().max(1)) - 1);
            // If the row does not reach back to this bank's beginning, there is no evidence about
            // older ages.
            if oldest > bank.since {
                entry = None;
            }
            if past.told == 0 && rows.since(row.youngest()) >= belief.width {
                return;
            }
            if row.count() > 0 {
                let older = key.older(entry);
                let told = match row.count() {
                    1..=4 => past.tell_each::<4>(&rows, &row, older, belief.width, tell),
                    _ => past.tell_each::<64>(&rows, &row, older, belief.width, tell),
                };
                if told {
                    return;
                }
            }
        }
        past.tell_rest(oldest, tell);
    }
}

/// Returns the youngest bank that opened before a generation.
#[inline]
fn before(state: &State<'_>, generation: u64) -> Option<BankEntry> {
    state.bank_of_step(generation.checked_sub(1)?)
}

/// A key's rows, bank by bank.
struct Rows<'a> {
    kind: &'a TimeLimited,
    state: &'a State<'a>,
    blocks: &'a Blocks<'a>,
    query: &'a Query,
    belief: &'a Belief<'a>,
}

impl<'a> Rows<'a> {
    /// Returns the likelihood of the rows in this bank and all older ones: `V` of each.
    fn older(&self, mut entry: Option<BankEntry>) -> f64 {
        let mut all = 1.0;
        while let Some(bank) = entry {
            entry = before(self.state, bank.since);
            if let Some((rows, row)) = self.row(&bank) {
                all *= row.whole(&rows);
            }
        }
        all
    }

    /// Returns the key's row in a bank.
    #[inline]
    fn row(&self, bank: &BankEntry) -> Option<(Bank<'a>, Row)> {
        let Self { kind, state, blocks, query, belief } = *self;
        let (k, slices) = (kind.plan.k, &kind.slices);
        let block = blocks.get(bank.slot)?;
        let generations = kind.plan.generations(state);
        let current = generations.current();
        let last = last_generation(state, bank).min(current);
        let (ones, newest) = slices.ones(block, last, query.hash);
        let (beginning, _) = generations.beginning();
        let first = bank.since.max(beginning);
        let starts = slices.starts(ones);
        let row = Row::new(starts, slices.shape(), newest.saturating_add(1).saturating_sub(first));
        let rows = kind.plan.rows(block.cells.len() as u64 * block.of);
        let mut open_keys = 0;
        // Needed only for slices that still take inserts.
        if last == current && starts.leading_zeros() < k {
            let new_bits = query.totals.new_bits.saturating_sub(generations.new_bits());
            open_keys = Measure::new(&generations, k, bank.since, rows).keys(new_bits);
        }
        let bank = Bank {
            generations,
            prior: Arrivals::new(belief),
            now: query.now,
            k: k.into(),
            newest,
            serves: (first, last),
            rows: rows.max(1) as f64,
            open_keys,
            ends: [const { Cell::new((u64::MAX, 0)) }; 2],
        };
        Some((bank, row))
    }
}

impl Bank<'_> {
    /// Returns the measured keys of a generation; 0 for those that the bank does not serve.
    #[inline]
    fn keys(&self, generation: u64) -> u64 {
        let (first, last) = self.serves;
        if generation < first || generation > last {
            0
        } else if generation == self.generations.current() {
            self.open_keys
        } else {
            self.generations.keys(generation)
        }
    }
}

impl Bank<'_> {
    /// Returns the keys that a slice took: of its own generation and the `k-1` after it.
    fn keys_of_slice(&self, slice: u64) -> u64 {
        (slice..slice.saturating_add(self.k)).map(|generation| self.keys(generation)).sum()
    }

    /// Returns the same, where possible from those of the slice before it.
    #[inline]
    fn keys_near(&self, slice: u64) -> u64 {
        for end in &self.ends {
            let (at, keys) = end.get();
            if at.checked_add(1) == Some(slice) {
                let lost = self.keys(at);
                let keys =
                    keys.saturating_sub(lost).saturating_add(self.keys(at.saturating_add(self.k)));
                end.set((slice, keys));
                return keys;
            }
            if at == slice {
                return keys;
            }
        }
        self.keys_of_slice(slice)
    }

    /// Returns the least age of the keys of a generation.
    #[inline]
    fn since(&self, generation: u32) -> u64 {
        since(self.now, self.generations.closed(self.newest.saturating_sub(generation.into())))
    }

    /// Returns the probability that `keys` keys have set a bit of a slice.
    #[inline]
    fn touched_by(&self, keys: u64) -> f64 {
        gone(keys as f64 / self.rows)
    }

    /// Returns the same, from the value for a similar number of keys.
    #[inline]
    fn touched_after(&self, (before, touched): (u64, f64), keys: u64) -> f64 {
        let more = (keys as f64 - before as f64) / self.rows;
        if more.abs() > NEARLY || touched < NEARLY {
            return self.touched_by(keys);
        }
        // e^-more, to five digits.
        1.0 - (1.0 - touched) * (1.0 - more * (1.0 - more * (0.5 - more / 6.0)))
    }
}

impl Ages for Bank<'_> {
    #[inline]
    fn none(&self, generations: Range<u32>) -> f64 {
        let end = self.newest.saturating_add(1).saturating_sub(generations.start.into());
        let start = self.newest.saturating_add(1).saturating_sub(generations.end.into());
        self.prior.none(self.generations.open_in(start..end, self.now))
    }

    #[inline]
    fn insert(&self, generation: u32) -> (f64, f64) {
        let generation = self.newest.saturating_sub(generation.into());
        let open = self.generations.open_in(generation..generation.saturating_add(1), self.now);
        (self.prior.some(open), self.prior.none(open))
    }

    #[inline]
    fn touched(&self, slices: Range<u32>) -> f64 {
        if slices.is_empty() {
            return 1.0;
        }
        let mut slice = self.newest.saturating_sub(slices.start.into());
        if slices.len() == 1 {
            return self.touched_by(self.keys_near(slice));
        }
        // The next older slice takes one more older generation, and one younger one less.
        let mut keys = self.keys_of_slice(slice);
        self.ends[0].set((slice, keys));
        let mut last = (keys, self.touched_by(keys));
        let mut touched = last.1;
        for _ in 1..slices.len() {
            keys = keys.saturating_sub(self.keys(slice.saturating_add(self.k - 1)));
            slice = slice.saturating_sub(1);
            keys = keys.saturating_add(self.keys(slice));
            if keys != last.0 {
                last = (keys, self.touched_after(last, keys));
            }
            touched *= last.1;
        }
        self.ends[1].set((slice, keys));
        touched
    }
}

impl<'a> Past<'a> {
    fn new(generations: Generations<'a>, prior: Arrivals, now: Micros) -> Self {
        let at = generations.current().saturating_add(1);
        Self { generations, prior, now, at, open: (0, 0), unexplained: 1.0, told: 0 }
    }

    /// Passes the pieces of a row with at most `N` starts; `older` is the likelihood of the rows in
    /// older banks. All ages from `width` on are passed as one piece; then it returns true, and
    /// nothing is left.
    fn tell_each<const N: usize>(
        &mut self,
        bank: &Bank<'_>,
        row: &Row,
        older: f64,
        width: u64,
        tell: &mut dyn FnMut(Piece),
    ) -> bool {
        let mut room = [Start::default(); N];
        for start in row.weigh(bank, &mut room).iter().rev() {
            let generation = bank.newest.saturating_sub(start.age.into());
            let from = bank.since(start.age).max(self.told);
            let to = since(self.now, self.generations.opened(generation));
            let weight = self.unexplained * older * self.passed(generation, from);
            if from >= width {
                tell(Piece { from, to: Piece::ENDLESS, likelihood: weight * start.perhaps });
                return true;
            }
            // The generation was opened by its oldest insert, in the last of these microseconds.
            let opened = to.saturating_sub(1);
            let likelihood = weight * start.inserted;
            if from < opened {
                tell(Piece { from, to: opened, likelihood });
            }
            if from < to {
                let likelihood = likelihood * self.prior.opening();
                tell(Piece { from: from.max(opened), to, likelihood });
                self.told = to;
            }
            self.unexplained *= start.left;
        }
        false
    }

    /// Passes the piece of the ages before a generation, about which the rows contain no evidence.
    fn tell_rest(&mut self, generation: u64, tell: &mut dyn FnMut(Piece)) {
        let from = since(self.now, self.generations.opened(generation)).max(self.told);
        let from = from.min(Piece::ENDLESS - 1);
        let likelihood = self.unexplained * self.passed(generation.saturating_sub(1), from);
        tell(Piece { from, to: Piece::ENDLESS, likelihood });
    }

    /// Returns the correction to the prior of a generation that closed at this age: none of the
    /// younger ones was opened by the key, and silences between them do not count.
    ///
    /// No key arrived in a silence, so the absence of this one is no evidence.
    fn passed(&mut self, generation: u64, closed: u64) -> f64 {
        let next = generation.saturating_add(1);
        if next < self.at {
            let (open, opened) = self.generations.open_in(next..self.at, self.now);
            self.open = (self.open.0.saturating_add(open), self.open.1 + opened);
            self.at = next;
        }
        let silent = closed.saturating_sub(self.open.0) as f64;
        let silent = (-self.prior.survival.ln_q() * silent).min(MOST_EXPECTED).exp();
        silent * self.prior.opening.beyond(self.open.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_arrived_or_has_not() {
        for (rate, probability) in [(1e-9, 0.3), (1e-7, 1e-3), (3e-7, 0.9)] {
            let arrivals = Arrivals {
                survival: Survival::of_rate(rate),
                probability,
                opening: Survival::of_inserts(probability),
            };
            for generation in [(0, 0), (0, 1), (20_000, 0), (20_000, 1), (1_000_000, 50)] {
                let (some, none) = (arrivals.some(generation), arrivals.none(generation));
                assert!((some + none - 1.0).abs() < 1e-12, "{rate} {generation:?}: {some} {none}");
            }
        }
    }
}
