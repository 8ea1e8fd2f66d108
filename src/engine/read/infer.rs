//! Posterior queries, by the same protocol as other queries (`query`).

use crate::engine::read::query::Queries;
use crate::engine::write::request::Given;
use crate::error::Result;
use ebbtide_core::inference::{AgePosterior, Form, Prior};
use ebbtide_core::kind::posterior::PosteriorQuery;

pub(crate) use ebbtide_core::kind::posterior::PosteriorOptions;

/// Returns the probability that a key is in the window.
#[inline]
pub(crate) fn posterior<P: Prior + ?Sized>(
    queries: &Queries,
    key: &[u8],
    hash: u64,
    given: Given,
    options: PosteriorOptions,
    prior: &P,
) -> Result<f64> {
    queries.shared.check_usable()?;
    let asked = PosteriorQuery::new(queries.shared.kind(), "posterior", key, options, prior)?;
    queries.ask(hash, given, |_, state, blocks, query| asked.in_window(state, blocks, query))
}

/// Returns the distribution of a key's age.
pub(crate) fn age_posterior<P: Prior + ?Sized>(
    queries: &Queries,
    key: &[u8],
    hash: u64,
    given: Given,
    form: Form,
    prior: &P,
) -> Result<AgePosterior> {
    queries.shared.check_usable()?;
    let options = PosteriorOptions { window: None, form };
    let asked = PosteriorQuery::new(queries.shared.kind(), "age_posterior", key, options, prior)?;
    queries.ask(hash, given, |_, state, blocks, query| asked.ages(state, blocks, query))
}
