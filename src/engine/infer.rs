//! Posterior queries, by the same protocol as other queries (`read`).

use crate::engine::read::Queries;
use crate::error::{Error, Result};
use ebbtide_core::inference::prior::{inserts_per_second, probability};
use ebbtide_core::inference::{
    AgePosterior, Belief, Form, Piece, Prior, Survival, window_posterior,
};
use ebbtide_core::kind::{Micros, Totals, Within};

/// The options of a posterior query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PosteriorOptions {
    /// Replaces the filter's own window.
    pub window: Option<Within>,
    pub form: Form,
}

/// Returns the probability that a key is in the window.
#[inline]
pub(crate) fn posterior<P: Prior + ?Sized>(
    queries: &Queries,
    key: &[u8],
    hash: u64,
    given: Option<Micros>,
    PosteriorOptions { window, form }: PosteriorOptions,
    prior: &P,
) -> Result<f64> {
    queries.shared.check_usable()?;
    let unit = window_unit(queries, "posterior")?;
    let asked = window.map(|window| width(unit, window)).transpose()?;
    let (probability, distinct) = (probability(prior, key)?, prior.distinct());
    let survival = survival(unit, prior, probability)?;
    queries.ask(hash, given, |kind, state, blocks, query| {
        let own = || match kind.window(&query.totals) {
            Some(Within::Items(own) | Within::Time(own)) => own,
            None => 0,
        };
        // The window begins at the first insert at the earliest: a key that was never inserted
        // is in no window.
        let width = asked.unwrap_or_else(own).min(kind.history(state, query));
        let belief = Belief { probability, survival, distinct, form, width };
        window_posterior(survival, width, |tell| {
            kind.evidence(state, blocks, query, &belief, tell);
        })
    })
}

/// Returns the distribution of a key's age.
pub(crate) fn age_posterior<P: Prior + ?Sized>(
    queries: &Queries,
    key: &[u8],
    hash: u64,
    given: Option<Micros>,
    form: Form,
    prior: &P,
) -> Result<AgePosterior> {
    queries.shared.check_usable()?;
    let unit = window_unit(queries, "age_posterior")?;
    let (probability, distinct) = (probability(prior, key)?, prior.distinct());
    let survival = survival(unit, prior, probability)?;
    let belief = Belief { probability, survival, distinct, form, width: u64::MAX };
    queries.ask(hash, given, |kind, state, blocks, query| {
        let mut pieces: Vec<Piece> = Vec::new();
        kind.evidence(state, blocks, query, &belief, &mut |piece| pieces.push(piece));
        AgePosterior::new(survival, kind.history(state, query), pieces)
    })
}

/// Returns a window of the kind, of any width: it gives the unit of ages.
#[inline]
fn window_unit(queries: &Queries, operation: &'static str) -> Result<Within> {
    let window = queries.shared.meta.kind.window(&Totals::default());
    window.ok_or_else(|| queries.shared.unsupported(operation))
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
