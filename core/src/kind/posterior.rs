//! Posterior questions about one key, by the prior of its stream: checked before the key's blocks
//! are read, then answered from its evidence.

use super::decide::unsupported;
use super::{Inference, Kind, Query, State, Totals, Within};
use crate::block::Blocks;
use crate::error::{Error, Result};
use crate::inference::prior::{inserts_per_second, probability};
use crate::inference::{AgePosterior, Belief, Form, Prior, Survival, window_posterior};

/// The options of a posterior query.
#[derive(Debug, Clone, Copy, Default)]
pub struct PosteriorOptions {
    /// Replaces the filter's own window.
    pub window: Option<Within>,
    /// The formulas to use.
    pub form: Form,
}

/// A question for the probability that a key is in a window, or for the distribution of its age.
#[derive(Debug, Clone, Copy)]
pub struct PosteriorQuery<'a> {
    inference: &'a dyn Inference,
    belief: Belief<'a>,
    /// The width of the window, if it is not the filter's own.
    width: Option<u64>,
}

impl<'a> PosteriorQuery<'a> {
    /// Checks a question about a key. `operation` is its name in errors.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind has no evidence; [`Error::Parameter`] for a window in
    /// another unit than the kind's own, and for a prior that is not one.
    #[inline]
    pub fn new<P: Prior + ?Sized>(
        kind: &'a dyn Kind,
        operation: &'static str,
        key: &[u8],
        PosteriorOptions { window, form }: PosteriorOptions,
        prior: &'a P,
    ) -> Result<Self> {
        let inference = kind.inference().ok_or_else(|| unsupported(kind, operation))?;
        // A window of any width: it gives the unit of ages.
        let unit = inference.window(&Totals::default());
        let width = window.map(|window| width(unit, window)).transpose()?;
        let (probability, distinct) = (probability(prior, key)?, prior.distinct());
        let survival = survival(unit, prior, probability)?;
        let belief = Belief { probability, survival, distinct, form, width: u64::MAX };
        Ok(Self { inference, belief, width })
    }

    /// Returns the probability that the key is in the window.
    #[must_use]
    #[inline]
    pub fn in_window(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> f64 {
        let own = || self.inference.window(&query.totals).width();
        // The window begins at the first insert at the earliest: a key that was never inserted is
        // in no window.
        let history = self.inference.history_of(state, blocks, query);
        let width = self.width.unwrap_or_else(own).min(history);
        let belief = Belief { width, ..self.belief };
        window_posterior(belief.survival, width, |tell| {
            self.inference.evidence(state, blocks, query, &belief, tell);
        })
    }

    /// Returns the distribution of the key's age.
    #[must_use]
    pub fn ages(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> AgePosterior {
        let (inference, mut pieces) = (self.inference, Vec::new());
        inference.evidence(state, blocks, query, &self.belief, &mut |piece| pieces.push(piece));
        let history = inference.history_of(state, blocks, query);
        AgePosterior::new(self.belief.survival, history, pieces)
    }
}

/// Returns the width of a window, in this unit.
#[inline]
fn width(unit: Within, window: Within) -> Result<u64> {
    let (expected, found) = match (unit, window) {
        (Within::Items(_), Within::Items(_)) | (Within::Time(_), Within::Time(_)) => {
            return Ok(window.width());
        }
        (Within::Items(_), Within::Time(_)) => ("a number of inserts", "a time"),
        (Within::Time(_), Within::Items(_)) => ("a time", "a number of inserts"),
    };
    Err(Error::parameter("window", format!("{expected}, as this filter's own is"), found))
}

/// Returns the distribution of ages by a key's probability, in this unit.
#[inline]
fn survival<P: Prior + ?Sized>(unit: Within, prior: &P, probability: f64) -> Result<Survival> {
    Ok(match unit {
        Within::Items(_) => Survival::of_inserts(probability),
        Within::Time(_) => Survival::of_rate(probability * inserts_per_second(prior)? / 1e6),
    })
}
