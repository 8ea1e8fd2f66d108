//! The evidence of a key's row about its age in inserts. The Inferential paper does not treat this
//! kind: see `docs/inference.md`.

use super::super::run_evidence::{Ages, Row, Start};
use super::AgePartitioned;
use crate::block::Blocks;
use crate::inference::{Belief, Piece, posterior::gone};
use crate::kind::{CountedGenerations, Inference, Query, State, Totals, Within};
use std::ops::Range;

/// The generations of a filter by age, in inserts.
#[derive(Clone, Copy)]
struct Generations<'a> {
    belief: &'a Belief<'a>,
    /// Slices that take each insert.
    k: u32,
    /// Inserts of a closed generation.
    closed: u64,
    /// Inserts of the open generation.
    open: u64,
    /// The number of generations, including the open one.
    count: u64,
    /// The probability that a key hits a given row of its bank.
    hit: f64,
}

/// [`Generations`], with values that are used repeatedly.
struct Weighing<'a> {
    generations: Generations<'a>,
    /// The probabilities that the key was in a closed generation, and that it was not.
    insert: (f64, f64),
    /// The probability that other keys set the key's bit in a slice that took `k` closed
    /// generations.
    touched: f64,
    /// That probability for `k` such slices.
    run: f64,
}

impl Inference for AgePartitioned {
    fn window(&self, _: &Totals) -> Within {
        Within::Items(self.window)
    }

    /// Passes to `tell` the likelihood of the key's row at the ages of each generation in which it
    /// can have been inserted, and beyond.
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
        let current = CountedGenerations::current(state);
        let (ones, generation) = self.slices.ones(block, current, query.hash);
        let rows = (block.cells.len() as u64 * self.slices.lanes()) as f64;
        let mut generations = Generations {
            belief,
            k: self.k,
            closed: self.generations.length,
            open: self.inserts_in(state, generation, &query.totals),
            count: generation.saturating_add(1),
            hit: 1.0 / (rows * block.of as f64).max(1.0),
        };
        let row = Row::new(self.slices.starts(ones), self.slices.shape(), generations.count);
        if row.youngest() == 0 {
            // The key may be in a generation that the state or the sums do not show yet.
            generations.open = generations.open.max(1);
        }
        if generations.since(row.youngest()) >= belief.width {
            return;
        }
        match row.count() {
            0 => generations.tell_rest(&row, 1.0, tell),
            1 => generations.tell_each::<1>(&row, tell),
            2..=4 => generations.tell_each::<4>(&row, tell),
            5..=12 => generations.tell_each::<12>(&row, tell),
            _ => generations.tell_each::<64>(&row, tell),
        }
    }
}

impl Generations<'_> {
    /// Passes the pieces of a row with at most `N` starts.
    fn tell_each<const N: usize>(&self, row: &Row, tell: &mut dyn FnMut(Piece)) {
        let weighing = Weighing::new(self, N > 1);
        let mut room = [Start::default(); N];
        // The probability that other keys have set the one-bits in the slices younger than a start.
        let mut unexplained = 1.0;
        for start in row.weigh(&weighing, &mut room).iter().rev() {
            let (from, to) = (self.since(start.age), self.since(start.age + 1));
            if from >= self.belief.width {
                // Ages that are not requested separately: all insert patterns of this generation
                // and older ones at once.
                let likelihood = unexplained * start.perhaps;
                return tell(Piece { from, to: Piece::ENDLESS, likelihood });
            }
            if from < to {
                tell(Piece { from, to, likelihood: unexplained * start.inserted });
            }
            unexplained *= start.left;
        }
        self.tell_rest(row, unexplained, tell);
    }

    /// Passes the piece of older inserts, about which the row contains no evidence.
    #[inline]
    fn tell_rest(&self, row: &Row, likelihood: f64, tell: &mut dyn FnMut(Piece)) {
        let from = self.since(row.generations());
        tell(Piece { from, to: Piece::ENDLESS, likelihood });
    }

    /// Returns the number of inserts younger than those of a generation.
    #[inline]
    fn since(&self, generation: u32) -> u64 {
        match generation.checked_sub(1) {
            None => 0,
            Some(closed) => self.open.saturating_add(self.closed.saturating_mul(closed.into())),
        }
    }

    /// Returns the probability that other keys have set the key's bit in the slice of this age (`r`
    /// in `docs/inference.md`).
    #[inline]
    fn touched(&self, slice: u32) -> f64 {
        // The inserts of its own generation and of the k-1 younger ones, as far as they exist.
        let oldest = u64::from(slice).min(self.count - 1) as u32;
        let youngest = (slice + 1).saturating_sub(self.k);
        let inserts = self.since(oldest + 1).saturating_sub(self.since(youngest));
        self.touched_by(inserts)
    }

    /// Returns the probability that one of `inserts` inserts, of other keys, set a bit.
    #[inline]
    fn touched_by(&self, inserts: u64) -> f64 {
        // ln(1 - hit), by its series: a bank has at least 64 rows.
        let missed = self.hit * (1.0 + self.hit * 0.5);
        gone(self.belief.distinct.of(inserts as f64) * missed)
    }
}

impl<'a> Weighing<'a> {
    #[inline]
    fn new(generations: &Generations<'a>, several: bool) -> Self {
        let generations = *generations;
        let touched =
            generations.touched_by(generations.closed.saturating_mul(generations.k.into()));
        let mut insert = (0.0, 1.0);
        if several {
            let some = generations.belief.survival.within(generations.closed);
            let none = if some < 0.5 {
                1.0 - some
            } else {
                generations.belief.survival.beyond(generations.closed)
            };
            insert = (some, none);
        }
        Self { generations, insert, touched, run: power(touched, generations.k) }
    }
}

impl Ages for Weighing<'_> {
    #[inline]
    fn none(&self, generations: Range<u32>) -> f64 {
        let since = |age| self.generations.since(age);
        self.generations
            .belief
            .survival
            .beyond(since(generations.end).saturating_sub(since(generations.start)))
    }

    #[inline]
    fn insert(&self, _: u32) -> (f64, f64) {
        self.insert
    }

    #[inline]
    fn touched(&self, slices: Range<u32>) -> f64 {
        // From age k on, and as far back as generations exist, slices have taken the same number.
        let Range { start, end } = slices;
        let Generations { k, count, .. } = self.generations;
        if start >= k && u64::from(end) <= count {
            return match end - start {
                1 => self.touched,
                slices if slices == k => self.run,
                slices => power(self.touched, slices),
            };
        }
        self.touched_each(slices)
    }
}

impl Weighing<'_> {
    /// [`Ages::touched`] for slices that have taken different numbers.
    fn touched_each(&self, slices: Range<u32>) -> f64 {
        let Generations { k, count, .. } = self.generations;
        let same = |slice| slice >= k && u64::from(slice) < count;
        slices
            .map(|slice| if same(slice) { self.touched } else { self.generations.touched(slice) })
            .product()
    }
}

/// Returns `x` to a power of at most 64.
#[inline]
fn power(x: f64, mut times: u32) -> f64 {
    let (mut power, mut square) = (1.0, x);
    while times > 0 {
        if times & 1 == 1 {
            power *= square;
        }
        square *= square;
        times >>= 1;
    }
    power
}
