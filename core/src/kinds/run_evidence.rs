//! The evidence of a key's bits in slices of all ages about when it was inserted: pure functions of
//! numbers.
//!
//! The *row* of a key (see `slice_columns`) has a bit for each slice that is held, by age. An
//! insert in the generation of age `a` set the bits of the ages `a` to `a + k - 1`, as far as the
//! row still shows them; all other ones were set by other keys. The key can therefore have been
//! inserted only where such a run of ones starts, at the *starts*. Starts less than `k` apart have
//! starts at all ages in between: consecutive starts are a *chain*.
//!
//! Likelihoods here are those of the ones in runs: each one that no insert explains was set by
//! other keys. They are therefore probabilities: a product of many may vanish beside others, but
//! none overflows. The derivation is in `docs/inference.md`, whose names are `C` for the starts,
//! and `Λ`, `V`, `s` and `r` for the fields of [`Start`].

use std::ops::Range;

/// The generations and slices of a row, by age. The open generation and the slice that was made in
/// it have age 0.
pub(super) trait Ages {
    /// Returns the prior probability that the key was inserted in none of these generations.
    fn none(&self, generations: Range<u32>) -> f64;

    /// Returns the probabilities that the key was inserted in this generation, which is not the
    /// open one, and that it was not.
    fn insert(&self, generation: u32) -> (f64, f64);

    /// Returns the probability that other keys have set the key's bits in all of these slices.
    fn touched(&self, slices: Range<u32>) -> f64;
}

/// A key's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The ages of the starts, age 0 as the top bit.
    starts: u64,
    /// Slices that an insert sets.
    k: u32,
    /// Slices that the row shows.
    n: u32,
    /// Generations whose inserts the row shows.
    generations: u32,
}

/// A generation in which the key may have been inserted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    /// The generation.
    pub(super) age: u32,
    /// `Λ`: the likelihood of the ones from this age on if the key was inserted in this
    /// generation, and in no younger one.
    pub(super) inserted: f64,
    /// `V`: the likelihood if it was inserted in no younger generation.
    pub(super) perhaps: f64,
    /// The probability that other keys have set the ones from this start to the next older one, or
    /// to the end of its run.
    pub(super) left: f64,
    /// `s·Λ`, `s` the probability that the key was inserted in this generation.
    taken: f64,
    /// `1 - s`.
    none: f64,
}

/// The starts of a row with their likelihoods, from the oldest on.
#[derive(Debug)]
struct Starts<'a, A> {
    row: &'a Row,
    ages: &'a A,
    starts: &'a mut [Start],
    count: usize,
    /// The first of the youngest chain.
    chain: usize,
    /// `V` just beyond that chain's runs.
    beyond: f64,
    /// The probability that other keys have set the ones of the chain beyond the youngest start's
    /// run.
    rest: f64,
    /// The part of the youngest start's `Λ` that comes from older inserts whose runs meet its own.
    met: f64,
    /// The probability that the key was inserted in no generation of the chain that is older than
    /// the youngest start.
    unmet: f64,
}

/// The least probability that a key was inserted in no generation between two chains. A prior that
/// expects a thousand inserts in each generation must not make a row with gaps impossible: the
/// prior is wrong then, and the row counts.
const LEAST: f64 = 1e-150;

impl Row {
    /// Creates a row with these starts (age 0 as the top bit) among the first `generations`
    /// generations, and with `k` and `n` of its slices.
    #[inline]
    pub(super) fn new(starts: u64, (k, n): (u32, u32), generations: u64) -> Self {
        let generations = generations.min(n.into()) as u32;
        let others = u64::MAX.checked_shr(generations).unwrap_or(0);
        Self { starts: starts & !others, k, n, generations }
    }

    /// Returns the number of starts.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.starts.count_ones() as usize
    }

    /// Returns the youngest start, or the first generation whose inserts the row does not show.
    #[inline]
    pub(super) fn youngest(&self) -> u32 {
        self.starts.leading_zeros().min(self.generations)
    }

    /// Returns the generations whose inserts the row shows.
    #[inline]
    pub(super) fn generations(&self) -> u32 {
        self.generations
    }

    /// Computes the likelihoods of the starts, as many as `room` holds; the oldest first.
    #[inline]
    pub(super) fn weigh<'a>(&self, ages: &impl Ages, room: &'a mut [Start]) -> &'a [Start] {
        let mut found = self.found(ages, room);
        found.push_all();
        found.complete();
        let count = found.count;
        &room[..count]
    }

    /// Returns `V(0)`: the likelihood of the row's ones without evidence of when the key was
    /// inserted.
    pub(super) fn whole(&self, ages: &impl Ages) -> f64 {
        let mut room = [Start::default(); 64];
        let mut found = self.found(ages, &mut room);
        found.push_all();
        let (age, perhaps) = found.complete();
        ages.none(0..age).max(LEAST) * perhaps
    }

    #[inline]
    fn found<'a, A: Ages>(&'a self, ages: &'a A, starts: &'a mut [Start]) -> Starts<'a, A> {
        Starts {
            row: self,
            ages,
            starts,
            count: 0,
            chain: 0,
            beyond: 1.0,
            rest: 1.0,
            met: 0.0,
            unmet: 1.0,
        }
    }

    /// Returns the first age beyond the run of a start.
    #[inline]
    fn end(&self, age: u32) -> u32 {
        (age + self.k).min(self.n)
    }
}

impl<A: Ages> Starts<'_, A> {
    #[inline]
    fn push_all(&mut self) {
        let mut rest = self.row.starts;
        while rest != 0 && self.count < self.starts.len() {
            let age = 63 - rest.trailing_zeros();
            rest &= rest - 1;
            self.push(age);
        }
    }

    /// Adds the next younger start.
    #[inline]
    fn push(&mut self, age: u32) {
        let (row, ages) = (self.row, self.ages);
        let (older, perhaps) = self.complete();
        let left;
        if self.count > 0 && older == age + 1 {
            let last = self.starts[self.count - 1];
            left = ages.touched(age..older);
            if row.end(age) < row.end(older) {
                self.rest *= ages.touched(row.end(age)..row.end(older));
            }
            self.met = last.taken + last.none * self.met;
            self.unmet *= last.none;
        } else {
            self.chain = self.count;
            // The oldest chain nearly always reaches the end of the row.
            let none = if age + 1 < older { ages.none(age + 1..older).max(LEAST) } else { 1.0 };
            self.beyond = none * perhaps;
            left = ages.touched(age..row.end(age));
            (self.rest, self.met, self.unmet) = (1.0, 0.0, 1.0);
        }
        let inserted = if self.count - self.chain < row.k as usize {
            self.met + self.unmet * self.beyond * self.rest
        } else {
            self.inserted()
        };
        self.starts[self.count] = Start { age, inserted, left, ..Start::default() };
        self.count += 1;
    }

    /// Returns `Λ` of the next younger start of a chain that is longer than its run: the sum over
    /// the youngest older insert whose run meets this one's, and over none.
    fn inserted(&self) -> f64 {
        let (k, chain) = (self.row.k as usize, &self.starts[self.chain..self.count]);
        let (mut sum, mut none) = (0.0, 1.0);
        for older in chain.iter().rev().take(k - 1) {
            sum += none * older.taken;
            none *= older.none;
        }
        sum + none * chain[chain.len() - k].perhaps
    }

    /// Completes `V` of the youngest start, and returns its age and `V`. Without starts, returns
    /// those of the generation beyond all.
    #[inline]
    fn complete(&mut self) -> (u32, f64) {
        let Some(last) = self.count.checked_sub(1) else {
            return (self.row.generations, 1.0);
        };
        let older = if last > self.chain { self.starts[last - 1].perhaps } else { self.beyond };
        let start = &mut self.starts[last];
        let (some, none) = self.ages.insert(start.age);
        (start.taken, start.none) = (some * start.inserted, none);
        start.perhaps = none * start.left * older + start.taken;
        (start.age, start.perhaps)
    }
}

#[cfg(test)]
mod tests;
