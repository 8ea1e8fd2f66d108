//! Posterior queries, by the same protocol as other queries (`query`).

use crate::engine::Engine;
use crate::error::Result;
use ebbtide_core::inference::{AgePosterior, Form, Prior};
use ebbtide_core::kind::Micros;
use ebbtide_core::kind::posterior::PosteriorQuery;

pub(crate) use ebbtide_core::kind::posterior::PosteriorOptions;

impl Engine {
    /// Returns the probability that a key is in the window.
    #[inline]
    pub(crate) fn posterior<P: Prior + ?Sized>(
        &self,
        key: &[u8],
        hash: u64,
        given: Option<Micros>,
        options: PosteriorOptions,
        prior: &P,
    ) -> Result<f64> {
        self.check_usable()?;
        let asked = PosteriorQuery::new(&*self.meta.kind, "posterior", key, options, prior)?;
        self.ask(hash, given, |kind, state, blocks, query| {
            asked.in_window(kind, state, blocks, query)
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
        let options = PosteriorOptions { window: None, form };
        let asked = PosteriorQuery::new(&*self.meta.kind, "age_posterior", key, options, prior)?;
        self.ask(hash, given, |kind, state, blocks, query| asked.ages(kind, state, blocks, query))
    }
}
