//! The whole distribution of a key's age (section 2.3.3).

use super::{Piece, Survival};
use std::ops::Range;

/// The distribution of a key's age, given the evidence of its cells: `P(i | R_x)`.
///
/// Ages are in the unit of the filter's window: inserts, or microseconds. No range of ages reaches
/// beyond the filter's first insert. The probability beyond it is that the key was
/// [never](Self::never) inserted.
#[derive(Debug, Clone, PartialEq)]
pub struct AgePosterior {
    survival: Survival,
    /// All inserted keys are younger than this age.
    history: u64,
    /// In the order of their ages, with likelihoods above 0.
    pieces: Vec<Piece>,
    /// The sum of likelihood times prior, relative to the youngest age of the first piece.
    total: f64,
}

/// Ages with a total probability below this are treated as nearly equally probable.
const NEARLY_EVEN: f64 = 1e-3;

impl AgePosterior {
    /// Creates the distribution from pieces in the order of their ages, of a filter whose first
    /// insert is younger than `history` ([`u64::MAX`] if that is unknown).
    #[must_use]
    pub fn new(survival: Survival, history: u64, pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces = pieces.into_iter().filter(|piece| piece.likelihood > 0.0).collect();
        let mut this = Self { survival, history, pieces, total: 0.0 };
        this.total = (0..this.pieces.len()).map(|at| this.weight(&this.pieces[at])).sum();
        this
    }

    /// Returns likelihood times prior, relative to the youngest possible age.
    fn weight(&self, piece: &Piece) -> f64 {
        let base = self.pieces.first().map_or(0, |first| first.from);
        let Piece { from, to, likelihood } = *piece;
        likelihood * self.survival.since(base, from) * self.survival.ends(from, to)
    }

    /// Returns `P(from <= I_x < to | R_x)`: the probability that the key was inserted, and that its
    /// age lies in the range.
    #[must_use]
    pub fn between(&self, ages: Range<u64>) -> f64 {
        self.share(ages.start..ages.end.min(self.history))
    }

    /// Returns the probability that the key was never inserted: the part beyond the first insert. 0
    /// if the time of the first insert is unknown.
    #[must_use]
    pub fn never(&self) -> f64 {
        self.share(self.history..Piece::ENDLESS)
    }

    fn share(&self, ages: Range<u64>) -> f64 {
        let inside = self.pieces.iter().fold(0.0, |sum, piece| {
            let (from, to) = (piece.from.max(ages.start), piece.to.min(ages.end));
            if from < to { sum + self.weight(&Piece { from, to, ..*piece }) } else { sum }
        });
        if self.total > 0.0 { (inside / self.total).min(1.0) } else { 0.0 }
    }

    /// Returns `P(I_x < width | R_x)`.
    #[must_use]
    pub fn within(&self, width: u64) -> f64 {
        self.between(0..width)
    }

    /// Returns `P(I_x = age | R_x)`.
    #[must_use]
    pub fn of(&self, age: u64) -> f64 {
        self.between(age..age.saturating_add(1))
    }

    /// Returns the most probable age; within a piece of ages that is the youngest.
    #[must_use]
    pub fn most_likely(&self) -> u64 {
        let first = |piece: &Piece| self.weight(&Piece { to: piece.from + 1, ..*piece });
        let best = self
            .pieces
            .iter()
            .reduce(|best, piece| if first(piece) > first(best) { piece } else { best });
        best.map_or(0, |piece| piece.from)
    }

    /// Returns `E[I_x | R_x]` (equation 8). A key that was never inserted counts as if it preceded
    /// all inserts, as in a stream without beginning (equation 4). Infinite for a key of prior 0.
    #[must_use]
    pub fn expected(&self) -> f64 {
        let sum: f64 =
            self.pieces.iter().map(|piece| self.weight(piece) * self.mean_of(piece)).sum();
        if self.total > 0.0 { sum / self.total } else { f64::INFINITY }
    }

    /// Returns the mean age in a piece: `S(α, β) / (q^α - q^β)` with
    /// `S(α, β) = Σ i·p·q^i = q^α(α + q/p) - q^β(β + q/p)`.
    fn mean_of(&self, piece: &Piece) -> f64 {
        let hazard = -self.survival.ln_q();
        let from = piece.from as f64;
        if piece.to == Piece::ENDLESS {
            // q/p
            return from + 1.0 / hazard.exp_m1();
        }
        let ages = (piece.to - piece.from) as f64;
        let mean = if ages * hazard < NEARLY_EVEN {
            // The two terms below nearly cancel, so their series is used.
            (ages - 1.0) / 2.0 - hazard * (ages * ages - 1.0) / 12.0
        } else {
            1.0 / hazard.exp_m1() - ages / (ages * hazard).exp_m1()
        };
        from + mean
    }

    /// Returns the pieces of ages with the probability of each, youngest first. The rest to 1 is
    /// [`never`](Self::never).
    pub fn spans(&self) -> impl Iterator<Item = (Range<u64>, f64)> + '_ {
        let held = self.pieces.iter().filter(|piece| piece.from < self.history);
        held.map(|piece| {
            let ages = piece.from..piece.to.min(self.history);
            (ages.clone(), self.share(ages))
        })
    }
}
