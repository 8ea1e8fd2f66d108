//! The probability that a key's age is below a bound (equations 5, 9 and 10).
//!
//! All sums have positive terms, so nothing cancels. All are relative to the youngest possible age,
//! so nothing that matters underflows.

/// Ages at which a key's cells have the same likelihood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// The least of the ages.
    pub from: u64,
    /// The first age beyond the piece; [`Piece::ENDLESS`] for all ages from `from` on.
    pub to: u64,
    /// The probability of the cells at these ages, up to a factor common to all pieces of a key.
    /// At least 0, finite.
    pub likelihood: f64,
}

impl Piece {
    /// The end of an unbounded piece.
    pub const ENDLESS: u64 = u64::MAX;
}

/// The distribution of ages without evidence (equations 3 to 5): `P(I_x >= i) = q^i` with
/// `q = 1 - p_x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Survival {
    /// `ln q`, from [`LEAST_LN_Q`] to 0.
    ln_q: f64,
}

/// Stands for the logarithm of 0: `exp` of it is 0, and its product with 0 is 0.
const LEAST_LN_Q: f64 = -1e9;

/// Below this probability three terms of the logarithm's series are exact.
const RARE: f64 = 1e-5;

/// Returns `1 - e^-x` for `x` from 0 on, to 13 digits, in a few nanoseconds.
#[must_use]
#[inline]
pub(crate) fn gone(x: f64) -> f64 {
    if x > 1.0 / 32.0 {
        return 1.0 - (-x).exp();
    }
    // The series: nothing cancels.
    let rest = 1.0 / 24.0 - x * (1.0 / 120.0 - x * (1.0 / 720.0));
    x * (1.0 - x * (0.5 - x * (1.0 / 6.0 - x * rest)))
}

impl Survival {
    /// Creates the distribution of a key that each insert is with probability `p`, clamped to 0 and
    /// 1.
    #[must_use]
    #[inline]
    pub fn of_inserts(p: f64) -> Self {
        let p = p.clamp(0.0, 1.0);
        // Most keys are rare: three terms of the series, which are exact there, cost less than the
        // logarithm.
        let ln_q = if p < RARE { -p * (1.0 + p * (0.5 + p / 3.0)) } else { (-p).ln_1p() };
        Self { ln_q: ln_q.max(LEAST_LN_Q) }
    }

    /// Creates the distribution of a key with a mean rate of `per_unit` inserts in each unit of
    /// time, independent of its earlier inserts.
    #[must_use]
    #[inline]
    pub fn of_rate(per_unit: f64) -> Self {
        Self { ln_q: (-per_unit).clamp(LEAST_LN_Q, 0.0) }
    }

    /// Returns `q^n`: the probability that the key was none of `n` inserts.
    #[must_use]
    #[inline]
    pub fn beyond(self, n: u64) -> f64 {
        (n as f64 * self.ln_q).exp()
    }

    /// Returns `1 - q^n`: the probability that the key was one of `n` inserts.
    #[must_use]
    #[inline]
    pub fn within(self, n: u64) -> f64 {
        gone(-(n as f64) * self.ln_q)
    }

    /// Returns `ln q`.
    #[must_use]
    pub fn ln_q(self) -> f64 {
        self.ln_q
    }

    /// Returns `P(I_x >= from | I_x >= base)`, for `base <= from`.
    #[must_use]
    #[inline]
    pub(super) fn since(self, base: u64, from: u64) -> f64 {
        if from == base { 1.0 } else { self.beyond(from - base) }
    }

    /// Returns `P(I_x < to | I_x >= from)`, for `from <= to`; `to` may be [`Piece::ENDLESS`].
    #[must_use]
    #[inline]
    pub(super) fn ends(self, from: u64, to: u64) -> f64 {
        if to == Piece::ENDLESS { 1.0 } else { self.within(to - from) }
    }
}

/// Returns `P(I_x < width | R_x)` (equation 9). `tell` passes the pieces to the closure that it
/// gets, in the order of their ages.
///
/// 0 if the pieces and the prior exclude each other.
///
/// ```
/// use ebbtide_core::inference::{Piece, Survival, window_posterior};
/// // Two ages fit the cells, the younger one three times as well; the prior is nearly flat.
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
    let (mut walk, mut inside, mut all) = (None, 0.0, 0.0);
    tell(&mut |Piece { from, to, likelihood }| {
        if likelihood <= 0.0 {
            return;
        }
        let walk = walk.get_or_insert_with(|| Walk::new(survival, from));
        let start = likelihood * walk.to(from);
        let whole = start * walk.ends(from, to);
        all += whole;
        inside += if to <= width { whole } else { start * survival.ends(from, width.max(from)) };
    });
    if inside > 0.0 { (inside / all).min(1.0) } else { 0.0 }
}

/// Steps [`Survival`] from one piece to the next: adjacent pieces, and pieces of one length, share
/// values.
struct Walk {
    survival: Survival,
    base: u64,
    /// An age, and [`Survival::since`] at that age.
    at: u64,
    since: f64,
    /// A length of pieces, and [`Survival::within`] of it.
    length: u64,
    within: f64,
}

impl Walk {
    #[inline]
    fn new(survival: Survival, base: u64) -> Self {
        Self { survival, base, at: base, since: 1.0, length: 0, within: 0.0 }
    }

    /// Returns [`Survival::since`] from the base.
    #[inline]
    fn to(&mut self, from: u64) -> f64 {
        if from != self.at {
            (self.at, self.since) = (from, self.survival.since(self.base, from));
        }
        self.since
    }

    /// Returns [`Survival::ends`], and advances to the end if that is cheap.
    #[inline]
    fn ends(&mut self, from: u64, to: u64) -> f64 {
        if to == Piece::ENDLESS {
            return 1.0;
        }
        if to - from != self.length {
            (self.length, self.within) = (to - from, self.survival.within(to - from));
        }
        // If little is left, the difference has too few digits.
        if self.within < 0.5 {
            (self.at, self.since) = (to, self.since * (1.0 - self.within));
        }
        self.within
    }
}
