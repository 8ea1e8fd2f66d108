//! The probability that a key's age is below a bound (equations 5, 9 and 10).
//!
//! All sums are sums of what is positive, so nothing cancels, and all are relative to the youngest age that is possible at all, so
//! nothing underflows that matters.

use super::Piece;

/// The distribution of ages before anything is known (equations 3 to 5): `P(I_x >= i) = q^i` with `q = 1 - p_x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Survival {
    /// `ln q`, from [`LEAST_LN_Q`] to 0.
    ln_q: f64,
}

/// In place of the logarithm of 0: `e` to it is 0, and times 0 it is 0.
const LEAST_LN_Q: f64 = -1e9;

impl Survival {
    /// A key that each insert is with probability `p`, which is taken to 0 or 1 if it lies beyond.
    #[must_use]
    #[inline]
    pub fn of_inserts(p: f64) -> Self {
        Self { ln_q: (-p.clamp(0.0, 1.0)).ln_1p().max(LEAST_LN_Q) }
    }

    /// A key that comes so many times in each unit of time on average, independently of when it came before.
    #[must_use]
    #[inline]
    pub fn of_rate(per_unit: f64) -> Self {
        Self { ln_q: (-per_unit).clamp(LEAST_LN_Q, 0.0) }
    }

    /// `q^n`: the probability that the key was none of so many inserts.
    #[must_use]
    #[inline]
    pub fn beyond(self, n: u64) -> f64 {
        (n as f64 * self.ln_q).exp()
    }

    /// `1 - q^n`: the probability that the key was one of so many inserts.
    #[must_use]
    #[inline]
    pub fn within(self, n: u64) -> f64 {
        -(n as f64 * self.ln_q).exp_m1()
    }

    /// `ln q`.
    #[must_use]
    pub fn ln_q(self) -> f64 {
        self.ln_q
    }

    /// `P(I_x >= from | I_x >= base)`, for `base <= from`.
    #[must_use]
    #[inline]
    pub(super) fn since(self, base: u64, from: u64) -> f64 {
        if from == base { 1.0 } else { self.beyond(from - base) }
    }

    /// `P(I_x < to | I_x >= from)`, for `from <= to`; `to` may be [`Piece::ENDLESS`].
    #[must_use]
    #[inline]
    pub(super) fn ends(self, from: u64, to: u64) -> f64 {
        if to == Piece::ENDLESS { 1.0 } else { self.within(to - from) }
    }
}

/// `P(I_x < width | R_x)` (equation 9), from pieces in the order of their ages that are told to the closure it is given.
///
/// 0 if the pieces and the prior exclude each other.
///
/// ```
/// use ebbtide::inference::{Piece, Survival, window_posterior};
/// // Each of two ages fits the cells, the younger one three times as well; the prior knows nothing (nearly).
/// let prior = Survival::of_inserts(1e-9);
/// let posterior = window_posterior(prior, 1, |piece| {
///     piece(Piece { from: 0, to: 1, likelihood: 0.3 });
///     piece(Piece { from: 1, to: 2, likelihood: 0.1 });
/// });
/// assert!((posterior - 0.75).abs() < 1e-6);
/// ```
#[must_use]
#[inline]
pub fn window_posterior(
    survival: Survival,
    width: u64,
    tell: impl FnOnce(&mut dyn FnMut(Piece)),
) -> f64 {
    let (mut base, mut inside, mut all) = (None, 0.0, 0.0);
    tell(&mut |Piece { from, to, likelihood }| {
        if likelihood <= 0.0 {
            return;
        }
        let base = *base.get_or_insert(from);
        let start = likelihood * survival.since(base, from);
        let whole = start * survival.ends(from, to);
        all += whole;
        inside += if to <= width { whole } else { start * survival.ends(from, width.max(from)) };
    });
    if inside > 0.0 { (inside / all).min(1.0) } else { 0.0 }
}
