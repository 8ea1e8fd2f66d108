//! Posterior queries, by the same protocol as other queries (`query`).

use crate::engine::Engine;
use crate::error::{Error, Result};
use ebbtide_core::inference::prior::{inserts_per_second, probability};
use ebbtide_core::inference::{
    AgePosterior, Belief, Form, Piece, Prior, Survival, window_posterior,
};
use ebbtide_core::kind::{Inference, Micros, Totals, Within};

/// The options of a posterior query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PosteriorOptions {
    /// Replaces the filter's own window.
    pub window: Option<Within>,
    pub form: Form,
}

impl Engine {
    /// Returns the probability that a key is in the window.
    #[inline]
    pub(crate) fn posterior<P: Prior + ?Sized>(
        &self,
        key: &[u8],
        hash: u64,
        given: Option<Micros>,
        PosteriorOptions { window, form }: PosteriorOptions,
        prior: &P,
    ) -> Result<f64> {
        self.check_usable()?;
        let inference = self.inference("posterior")?;
        let unit = inference.window(&Totals::default());
        let asked = window.map(|window| width(unit, window)).transpose()?;
        let (probability, distinct) = (probability(prior, key)?, prior.distinct());
        let survival = survival(unit, prior, probability)?;
        self.ask(hash, given, |_, state, blocks, query| {
            let own = || match inference.window(&query.totals) {
                Within::Items(own) | Within::Time(own) => own,
            };
            // The window begins at the first insert at the earliest: a key that was never inserted
            // is in no window.
            let width = asked.unwrap_or_else(own).min(inference.history(state, query));
            let belief = Belief { probability, survival, distinct, form, width };
            window_posterior(survival, width, |tell| {
                inference.evidence(state, blocks, query, &belief, tell);
            })
        })
    }

    /// Returns the distribution of a key's age.
    pub(crate) fn age_posterior<P: Prior + ?Sized>(
        &self,
        key: &[u8],
        hash: u64,
        given: Option<Micros>,
        form: Form,
        prior: &P,
    ) -> Result<AgePosterior> {
        self.check_usable()?;
        let inference = self.inference("age_posterior")?;
        let unit = inference.window(&Totals::default());
        let (probability, distinct) = (probability(prior, key)?, prior.distinct());
        let survival = survival(unit, prior, probability)?;
        let belief = Belief { probability, survival, distinct, form, width: u64::MAX };
        self.ask(hash, given, |_, state, blocks, query| {
            let mut pieces: Vec<Piece> = Vec::new();
            inference.evidence(state, blocks, query, &belief, &mut |piece| pieces.push(piece));
            AgePosterior::new(survival, inference.history(state, query), pieces)
        })
    }

    /// Returns the evidence of the kind.
    #[inline]
    fn inference(&self, operation: &'static str) -> Result<&dyn Inference> {
        self.meta.kind.inference().ok_or_else(|| self.unsupported(operation))
    }
}

/// Returns the width of a window, in this unit.
#[inline]
fn width(unit: Within, window: Within) -> Result<u64> {
    let (expected, found) = match (unit, window) {
        (Within::Items(_), Within::Items(width)) | (Within::Time(_), Within::Time(width)) => {
            return Ok(width);
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
