//! The whole distribution of a key's age (section 2.3.3).

use super::{Piece, Survival};
use std::ops::Range;

/// The distribution of a key's age, given what the filter has kept of it: `P(i | R_x)`.
///
/// Ages are in the unit of the filter's window: inserts, or microseconds. No range of ages reaches beyond the filter's first insert; what
/// lies there is the probability that the key was [never](Self::never) inserted.
#[derive(Debug, Clone, PartialEq)]
pub struct AgePosterior {
    survival: Survival,
    /// No key that was inserted is of this age or older.
    history: u64,
    /// In the order of their ages, likelihoods above 0.
    pieces: Vec<Piece>,
    /// The sum of likelihood times prior, relative to the first piece's youngest age.
    total: f64,
}

/// Ages that together are less probable than this are nearly equally probable.
const NEARLY_EVEN: f64 = 1e-3;

impl AgePosterior {
    /// From pieces in the order of their ages, of a filter whose first insert is younger than `history` ([`u64::MAX`] if that is not
    /// known).
    #[must_use]
    pub fn new(survival: Survival, history: u64, pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces = pieces.into_iter().filter(|piece| piece.likelihood > 0.0).collect();
        let mut this = Self { survival, history, pieces, total: 0.0 };
        this.total = (0..this.pieces.len()).map(|at| this.weight(&this.pieces[at])).sum();
        this
    }

    /// Likelihood times prior, relative to the youngest age that is possible.
    fn weight(&self, piece: &Piece) -> f64 {
        let base = self.pieces.first().map_or(0, |first| first.from);
        let Piece { from, to, likelihood } = *piece;
        likelihood * self.survival.since(base, from) * self.survival.ends(from, to)
    }

    /// `P(from <= I_x < to | R_x)`: that the key was inserted, and its age lies in a range.
    #[must_use]
    pub fn between(&self, ages: Range<u64>) -> f64 {
        self.share(ages.start..ages.end.min(self.history))
    }

    /// That the key was never inserted: what lies beyond the first insert. 0 if the filter does not know when that was.
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

    /// `P(I_x < width | R_x)`.
    #[must_use]
    pub fn within(&self, width: u64) -> f64 {
        self.between(0..width)
    }

    /// `P(I_x = age | R_x)`.
    #[must_use]
    pub fn of(&self, age: u64) -> f64 {
        self.between(age..age.saturating_add(1))
    }

    /// The age that is more probable than each other one; of a piece of ages it is the youngest.
    #[must_use]
    pub fn most_likely(&self) -> u64 {
        let first = |piece: &Piece| self.weight(&Piece { to: piece.from + 1, ..*piece });
        let best = self
            .pieces
            .iter()
            .reduce(|best, piece| if first(piece) > first(best) { piece } else { best });
        best.map_or(0, |piece| piece.from)
    }

    /// `E[I_x | R_x]` (equation 8), in which a key that was never inserted counts as if it had been before all else, as in a stream
    /// without beginning (equation 4). Infinite for a key of prior 0.
    #[must_use]
    pub fn expected(&self) -> f64 {
        let sum: f64 =
            self.pieces.iter().map(|piece| self.weight(piece) * self.mean_of(piece)).sum();
        if self.total > 0.0 { sum / self.total } else { f64::INFINITY }
    }

    /// The mean age in a piece: `S(α, β) / (q^α - q^β)` with `S(α, β) = Σ i·p·q^i = q^α(α + q/p) - q^β(β + q/p)`.
    fn mean_of(&self, piece: &Piece) -> f64 {
        let hazard = -self.survival.ln_q();
        let from = piece.from as f64;
        if piece.to == Piece::ENDLESS {
            // q/p
            return from + 1.0 / hazard.exp_m1();
        }
        let ages = (piece.to - piece.from) as f64;
        let mean = if ages * hazard < NEARLY_EVEN {
            // The two terms below nearly cancel: their series.
            (ages - 1.0) / 2.0 - hazard * (ages * ages - 1.0) / 12.0
        } else {
            1.0 / hazard.exp_m1() - ages / (ages * hazard).exp_m1()
        };
        from + mean
    }

    /// The pieces of ages and the probability of each, youngest first. What they lack of 1 is [`never`](Self::never).
    pub fn spans(&self) -> impl Iterator<Item = (Range<u64>, f64)> + '_ {
        let held = self.pieces.iter().filter(|piece| piece.from < self.history);
        held.map(|piece| {
            let ages = piece.from..piece.to.min(self.history);
            (ages.clone(), self.share(ages))
        })
    }
}
