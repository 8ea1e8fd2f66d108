//! Groups of keys of nearly the same probability, treated as equally likely, so that equation 15 is
//! a sum over hundreds and not over millions.
//!
//! A group keeps the number of its keys and the sum of their probabilities, so its error is of the
//! second order. With probabilities within a factor of `1+d`, it is at most `0.03·d²` of the
//! group's contribution to `D(j)`.

use crate::error::{Error, Result};

/// Ranks that differ by less than one in this number are grouped.
const RANKS: u64 = 32;
/// The bits of a probability that are dropped: those with the same upper four bits of the mantissa
/// are grouped.
const REST_BITS: u32 = f64::MANTISSA_DIGITS - 1 - 4;
/// One more than the group of the probability 1.
const ALL_GROUPS: usize = (1_f64.to_bits() >> REST_BITS) as usize + 1;

/// Sums of probabilities that differ from 1 by less than this are treated as 1.
const ROUNDING: f64 = 1e-9;
/// Sums of probabilities that exceed 1 by less than this are treated as the caller's rounding.
const EXCESS: f64 = 1e-6;

/// Returns the probability that a key occurs in `j` inserts, from the logarithm of the probability
/// that one insert misses it.
pub(super) fn met(ln_missed: f64, j: f64) -> f64 {
    if j > 0.0 { -(j * ln_missed).exp_m1() } else { 0.0 }
}

/// Keys that are treated as equally likely.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Group {
    pub keys: f64,
    /// The sum of their probabilities, or weights.
    pub mass: f64,
}

/// All keys of a stream.
#[derive(Debug)]
pub(super) struct Groups {
    /// The number of keys, and the logarithm of the probability that an insert misses one of them.
    likely: Vec<(f64, f64)>,
    /// The probability that an insert is of a key that never repeats.
    once: f64,
}

impl Groups {
    fn new(groups: impl Iterator<Item = Group>, sum: f64, once: f64) -> Self {
        let likely = groups
            .filter(|group| group.mass > 0.0)
            .map(|Group { keys, mass }| (keys, (-(mass / keys / sum).min(1.0)).ln_1p()));
        Self { likely: likely.collect(), once }
    }

    pub fn of_power_law(universe: u64, exponent: f64) -> Self {
        let sum = of_ranks(universe, exponent).map(|group| group.mass).sum();
        Self::new(of_ranks(universe, exponent), sum, 0.0)
    }

    pub fn of_probabilities(probabilities: impl IntoIterator<Item = f64>) -> Result<Self> {
        let mut groups = vec![Group::default(); ALL_GROUPS];
        for p in probabilities {
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::parameter("probability", "a number from 0 to 1", p));
            }
            // `abs` removes the sign of a negative zero.
            let group = &mut groups[(p.abs().to_bits() >> REST_BITS) as usize];
            group.keys += f64::from(u8::from(p > 0.0));
            group.mass += p;
        }
        let sum: f64 = groups.iter().map(|group| group.mass).sum();
        if sum > 1.0 + EXCESS {
            return Err(Error::parameter("probabilities", "a sum of at most 1", sum));
        }
        let once = if sum < 1.0 - ROUNDING { 1.0 - sum } else { 0.0 };
        Ok(Self::new(groups.into_iter(), sum.max(1.0), once))
    }

    /// Returns the number of keys.
    pub fn keys(&self) -> f64 {
        if self.once > 0.0 { f64::INFINITY } else { self.likely.iter().map(|group| group.0).sum() }
    }

    /// Returns `D(j)` (equation 15).
    pub fn distinct(&self, j: f64) -> f64 {
        let likely = self.likely.iter().map(|&(keys, ln_missed)| keys * met(ln_missed, j));
        likely.sum::<f64>() + self.once * j
    }
}

/// Returns the ranks from 1 to `universe` in groups, with the weight `rank^-exponent`; each of the
/// first ones is a group of its own.
pub(super) fn of_ranks(universe: u64, exponent: f64) -> impl Iterator<Item = Group> {
    let (mut first, mut left) = (1_u64, universe);
    std::iter::from_fn(move || {
        let keys = (first / RANKS).max(1).min(left);
        if keys == 0 {
            return None;
        }
        let group = Group { keys: keys as f64, mass: weight(first as f64, keys as f64, exponent) };
        (first, left) = (first.saturating_add(keys), left - keys);
        Some(group)
    })
}

/// Returns `Σ x^-s` over `count` values of `x` from `first` on: a single one directly, more by the
/// Euler–Maclaurin formula.
fn weight(first: f64, count: f64, s: f64) -> f64 {
    let f = |x: f64| x.powf(-s);
    if count == 1.0 {
        return f(first);
    }
    let end = first + count;
    let (ln, slope) = ((end / first).ln(), |x: f64| -s * f(x) / x);
    // The integral of x^-s, also where s is 1 or nearly.
    let exponent = (1.0 - s) * ln;
    let factor = if exponent == 0.0 { 1.0 } else { exponent.exp_m1() / exponent };
    let integral = first * f(first) * ln * factor;
    (integral + (f(first) - f(end)) / 2.0 + (slope(end) - slope(first)) / 12.0).max(0.0)
}
