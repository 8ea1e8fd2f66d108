//! Sums of exponentials that follow a polynomial decay function from above, for `polynomial.rs`.
//!
//! `(1+x)^-a` is the Laplace transform of a positive function, so it is a mixture of exponentials,
//! and few of them approximate it closely over a bounded range of ages. A sum consists of terms
//! `w·λ^x` with positive weights. Their sum is at least `(1+x)^-a` at every whole age up to the
//! horizon, and at most `1 + excess` times it at every age.
//!
//! * The rates `-ln λ` form a geometric sequence, of which the first and the last are searched for.
//! * For given rates, the weights minimise the greatest relative deviation. The functions
//!   `λ^x·(1+x)^a` form a Chebyshev system, so the optimum deviates by the same amount, with
//!   alternating signs, at one age more than there are terms. The Remez exchange finds those ages.
//!   The weights are then raised until no age is below.
//!
//! The search is in floating point. A filter stores its terms, so that nothing about its state
//! depends on the search.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The greatest number of terms.
pub(super) const MOST_TERMS: usize = 12;

/// The greatest horizon in epochs. All its ages are checked when a filter is opened.
pub(super) const MOST_HORIZON: u64 = 1 << 20;

/// Binary places of a weight.
pub(super) const PART_PLACES: u32 = 31;

/// The greatest weight. A single term needs slightly more than 1.
const MOST_WEIGHT: f64 = 2.0;

/// The part of the excess that the sum of exponentials may use. The rest is for rounding.
const PART_OF_FIT: f64 = 0.75;

/// Ages of the search beside the first ones, spaced geometrically.
const SPARSE_AGES: usize = 400;

/// The first ages, all of which the search considers.
const DENSE_AGES: u64 = 64;

/// Rounds of exchange, of one age each: the deviation stops changing after three for each term.
const EXCHANGES: usize = 100;

/// Values of each end in the first search for rates.
const GRID: usize = 10;

/// Reductions of the step in the second search.
const REFINEMENTS: usize = 16;

/// Up to this multiple of the horizon the sum is compared with the function. Long before, the
/// slowest term has fallen below it.
const BEYOND: f64 = 64.0;

/// Ages beyond the horizon that are compared.
const BEYOND_AGES: usize = 60;

/// A term: a weight with [`PART_PLACES`] binary places, times `lambda` to the age.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Term {
    /// The weight, at most 2.
    pub part: u64,
    /// What an epoch leaves, between 0 and 1, both excluded.
    pub lambda: f64,
}

impl Term {
    fn weight(&self) -> f64 {
        self.part as f64 / (1_u64 << PART_PLACES) as f64
    }
}

/// The terms of a sum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Terms(pub Vec<Term>);

impl fmt::Display for Terms {
    /// Writes `weight:lambda` pairs, separated by commas; the numbers read back exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, term) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { "," };
            write!(f, "{separator}{}:{}", term.weight(), term.lambda)?;
        }
        Ok(())
    }
}

impl FromStr for Terms {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let term = |pair: &str| {
            let (weight, lambda) = pair.split_once(':')?;
            let (weight, lambda): (f64, f64) = (weight.parse().ok()?, lambda.parse().ok()?);
            let is_sound = weight > 0.0 && weight <= MOST_WEIGHT && lambda > 0.0 && lambda < 1.0;
            is_sound.then(|| Term { part: quantised(weight), lambda })
        };
        let terms: Option<Vec<_>> = text.split(',').map(term).collect();
        terms.filter(|terms| terms.len() <= MOST_TERMS).map(Self).ok_or(())
    }
}

/// Returns a weight with [`PART_PLACES`] binary places, rounded up.
fn quantised(weight: f64) -> u64 {
    (weight * (1_u64 << PART_PLACES) as f64).ceil().max(1.0) as u64
}

/// The function `(1+x)^-exponent` up to a horizon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Polynomial {
    pub exponent: f64,
    pub horizon: u64,
}

impl Polynomial {
    /// Returns the function's value at an age in epochs.
    pub fn at(&self, age: f64) -> f64 {
        (1.0 + age).powf(-self.exponent)
    }

    /// Returns the fewest terms that leave enough of `excess` for rounding.
    ///
    /// # Errors
    /// [`Error::Parameter`] if [`MOST_TERMS`] do not suffice.
    pub fn terms(&self, excess: f64) -> Result<Terms> {
        let most = PART_OF_FIT * excess;
        let found = (1..=MOST_TERMS).find_map(|count| {
            let terms = self.best(count, most)?;
            self.excess(&terms).filter(|&found| found <= most).map(|_| terms)
        });
        found.ok_or_else(|| {
            let expected = format!(
                "a horizon that {MOST_TERMS} exponentials follow within {excess} (raise excess, \
                 or shorten the horizon)"
            );
            Error::parameter("horizon", expected, self.horizon)
        })
    }

    /// Returns by how much the sum of terms is above the function at most, relatively, at any age;
    /// `None` if it is below at a whole age up to the horizon.
    pub fn excess(&self, terms: &Terms) -> Option<f64> {
        // The powers by repeated multiplication: a relative error of 2^-53 for each age.
        let mut powers = vec![1.0; terms.0.len()];
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for age in 0..=self.horizon {
            let pairs = terms.0.iter().zip(&mut powers);
            let sum: f64 = pairs
                .map(|(term, power)| {
                    let value = term.weight() * *power;
                    *power *= term.lambda;
                    value
                })
                .sum();
            let ratio = sum / self.at(age as f64);
            (least, most) = (least.min(ratio), most.max(ratio));
        }
        let pairs = terms.0.iter().map(|term| (-term.lambda.ln(), term.weight()));
        let (rates, weights): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let most = (most - 1.0).max(self.beyond(&rates, &weights));
        (least >= 1.0 - 1e-9).then_some(most)
    }

    /// Returns the best sum with this number of terms, if the search finds one that may be within
    /// `most` of the function.
    fn best(&self, count: usize, most: f64) -> Option<Terms> {
        let ages = self.ages();
        let ends = |[slow, fast]: [f64; 2]| {
            let step = if count > 1 { (fast - slow) / (count - 1) as f64 } else { 0.0 };
            (0..count).map(move |number| (slow + step * number as f64).exp()).collect::<Vec<_>>()
        };
        let deviation = |at: [f64; 2]| {
            let rates = ends(at);
            self.fitted(&rates, &ages).map_or(f64::INFINITY, |(deviation, weights)| {
                // After the weights are raised, the excess is about twice this.
                deviation.max((deviation + self.beyond(&rates, &weights)) / 2.0)
            })
        };
        // Logarithms of the slowest and the fastest rate: first a coarse grid, then smaller and
        // smaller steps in all directions.
        let slow = -(self.horizon as f64).ln();
        let grid = (0..GRID * GRID).map(|number| {
            let part = |number: usize| 4.0 * number as f64 / GRID as f64;
            [slow + part(number % GRID) - 2.5, part(number / GRID) - 1.5]
        });
        let (mut least, mut at) = (f64::INFINITY, [slow, 0.0]);
        let try_at = |next: [f64; 2], least: &mut f64, at: &mut [f64; 2]| {
            let found = deviation(next);
            let is_better = found < *least;
            if is_better {
                (*least, *at) = (found, next);
            }
            is_better
        };
        grid.for_each(|next| {
            try_at(next, &mut least, &mut at);
        });
        let mut step = 2.0 / GRID as f64;
        for _ in 0..REFINEMENTS {
            let mut has_moved = true;
            while has_moved {
                let around = (0..9).map(|number| [number / 3, number % 3]);
                let next = around.map(|by| by.map(|by| step * (f64::from(by) - 1.0)));
                let from = at;
                has_moved = false;
                for by in next {
                    has_moved |= try_at([from[0] + by[0], from[1] + by[1]], &mut least, &mut at);
                }
            }
            step *= 0.6;
        }
        // Raised until it is nowhere below, a sum is above by its deviation at least. Most counts
        // end here, without a look at every age.
        if least > most {
            return None;
        }
        let rates = ends(at);
        let (_, weights) = self.fitted(&rates, &ages)?;
        self.raised(&rates, &weights)
    }

    /// Returns by how much a sum is above the function at most beyond the horizon, relatively.
    fn beyond(&self, rates: &[f64], weights: &[f64]) -> f64 {
        let above = |step: usize| {
            let age = self.horizon as f64 * BEYOND.powf(step as f64 / BEYOND_AGES as f64);
            let pairs = weights.iter().zip(rates);
            let sum: f64 = pairs.map(|(weight, rate)| weight * (-rate * age).exp()).sum();
            sum / self.at(age) - 1.0
        };
        (0..=BEYOND_AGES).map(above).fold(0.0, f64::max)
    }

    /// Returns terms with these rates, the weights raised until no whole age is below.
    fn raised(&self, rates: &[f64], weights: &[f64]) -> Option<Terms> {
        let pairs = || weights.iter().zip(rates);
        let sum =
            |age: f64| pairs().map(|(weight, rate)| weight * (-rate * age).exp()).sum::<f64>();
        let ratio = |age: u64| sum(age as f64) / self.at(age as f64);
        let least = (0..=self.horizon).map(ratio).fold(f64::INFINITY, f64::min);
        let up = (1.0 + 1e-7) / least;
        let term = |(weight, rate): (&f64, &f64)| {
            let weight = weight * up;
            // Not more digits than the search determines, so that they are the same everywhere.
            let lambda = ((-rate).exp() * 2_f64.powi(40)).ceil() * 2_f64.powi(-40);
            let is_sound = weight > 0.0 && weight <= MOST_WEIGHT && lambda > 0.0 && lambda < 1.0;
            is_sound.then(|| Term { part: quantised(weight), lambda })
        };
        pairs().map(term).collect::<Option<Vec<_>>>().map(Terms)
    }

    /// Returns the ages of the search: the first ones, then a geometric sequence.
    fn ages(&self) -> Vec<f64> {
        let end = self.horizon as f64;
        let sparse = (0..=SPARSE_AGES).map(|step| {
            let age = (1.0 + end).powf(step as f64 / SPARSE_AGES as f64) - 1.0;
            age.round().min(end)
        });
        let dense = (0..=DENSE_AGES.min(self.horizon)).map(|age| age as f64);
        let mut ages: Vec<f64> = dense.chain(sparse).collect();
        ages.sort_by(f64::total_cmp);
        ages.dedup();
        ages
    }

    /// Returns the least possible deviation with these rates, and the weights, all positive.
    fn fitted(&self, rates: &[f64], ages: &[f64]) -> Option<(f64, Vec<f64>)> {
        let rows: Vec<Vec<f64>> = ages
            .iter()
            .map(|&age| {
                let over = 1.0 / self.at(age);
                rates.iter().map(|rate| (-rate * age).exp() * over).collect()
            })
            .collect();
        let points = rates.len() + 1;
        if ages.len() < points {
            return None;
        }
        let mut reference: Vec<usize> =
            (0..points).map(|point| point * (ages.len() - 1) / (points - 1)).collect();
        let mut best = None;
        for _ in 0..EXCHANGES {
            let (level, weights) = levelled(&rows, &reference)?;
            let errors: Vec<f64> = rows.iter().map(|row| dot(row, &weights) - 1.0).collect();
            let worst = errors.iter().fold(0.0_f64, |worst, error| worst.max(error.abs()));
            let is_positive = weights.iter().all(|&weight| weight > 0.0);
            if is_positive && best.as_ref().is_none_or(|(least, _)| worst < *least) {
                best = Some((worst, weights));
            }
            if worst <= level.abs() * (1.0 + 1e-4) + 1e-12 {
                break;
            }
            exchange(&mut reference, &errors);
        }
        best
    }
}

fn dot(row: &[f64], weights: &[f64]) -> f64 {
    row.iter().zip(weights).map(|(a, b)| a * b).sum()
}

/// Returns the deviation and the weights with which the errors at the reference ages are equal and
/// alternate in sign.
fn levelled(rows: &[Vec<f64>], reference: &[usize]) -> Option<(f64, Vec<f64>)> {
    let equation = |(number, &at): (usize, &usize)| {
        let sign = if number % 2 == 0 { 1.0 } else { -1.0 };
        rows[at].iter().copied().chain([sign, 1.0]).collect::<Vec<f64>>()
    };
    let mut system: Vec<Vec<f64>> = reference.iter().enumerate().map(equation).collect();
    let size = reference.len();
    for column in 0..size {
        let pivot = (column..size)
            .max_by(|&a, &b| system[a][column].abs().total_cmp(&system[b][column].abs()))?;
        system.swap(column, pivot);
        let lead = system[column].clone();
        if lead[column] == 0.0 || !lead[column].is_finite() {
            return None;
        }
        for row in system.iter_mut().skip(column + 1) {
            let factor = row[column] / lead[column];
            row.iter_mut().zip(&lead).for_each(|(entry, lead)| *entry -= factor * lead);
        }
    }
    let mut solution = vec![0.0; size];
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|at| system[row][at] * solution[at]).sum();
        solution[row] = (system[row][size] - known) / system[row][row];
    }
    let level = solution.pop()?;
    Some((level, solution))
}

/// Puts the age with the largest error in place of a reference age, so that the signs still
/// alternate.
fn exchange(reference: &mut [usize], errors: &[f64]) {
    let larger = |&a: &usize, &b: &usize| errors[a].abs().total_cmp(&errors[b].abs());
    let Some(worst) = (0..errors.len()).max_by(larger) else {
        return;
    };
    let same_sign = |at: usize| (errors[at] > 0.0) == (errors[worst] > 0.0);
    let (next, last) = (reference.partition_point(|&at| at < worst), reference.len() - 1);
    if next == 0 && !same_sign(reference[0]) {
        reference.rotate_right(1);
        reference[0] = worst;
    } else if next > last && !same_sign(reference[last]) {
        reference.rotate_left(1);
        reference[last] = worst;
    } else if next <= last && same_sign(reference[next]) {
        reference[next] = worst;
    } else {
        reference[next.saturating_sub(1)] = worst;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_exponentials_follow_one_over_one_plus_x_over_a_year_of_hours_within_three_percent() {
        let function = Polynomial { exponent: 1.0, horizon: 8760 };
        let terms = function.terms(0.03).expect("a plan");
        let excess = function.excess(&terms).expect("never below");
        println!("{} terms, at most {excess:.5} above: {terms}", terms.0.len());
        assert!(terms.0.len() <= 8 && excess < 0.0225);
        // By powers, without the recurrence of `excess`.
        for age in 0..=8760 {
            let value = |term: &Term| term.weight() * term.lambda.powi(age);
            let sum: f64 = terms.0.iter().map(value).sum();
            let exact = 1.0 / f64::from(1 + age);
            assert!(sum >= exact * (1.0 - 1e-12) && sum <= exact * 1.03, "{age}: {sum}");
        }
    }

    #[test]
    fn terms_read_back_exactly() {
        for (exponent, horizon) in [(1.0, 100), (2.0, 1000), (0.5, 3)] {
            let terms = Polynomial { exponent, horizon }.terms(0.05).expect("a plan");
            assert_eq!(terms.to_string().parse(), Ok(terms));
        }
        for text in ["", "1", "1:2", "0:0.5", "2.1:0.5", "1:0.5,", "1:0", "x:0.5", "NaN:0.5"] {
            assert!(text.parse::<Terms>().is_err(), "{text}");
        }
    }

    #[test]
    fn many_functions_have_a_plan_that_is_never_below() {
        for exponent in [0.1, 0.5, 1.0, 1.5, 2.0, 3.0] {
            for horizon in [1, 2, 5, 30, 365, 1000] {
                let function = Polynomial { exponent, horizon };
                let terms = function.terms(0.05).expect("a plan");
                let excess = function.excess(&terms).expect("never below");
                println!("{exponent}, {horizon}: {} terms, {excess:.5}", terms.0.len());
                assert!(excess <= 0.0375);
            }
        }
    }
}
