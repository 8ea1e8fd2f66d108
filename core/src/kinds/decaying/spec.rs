//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{Counts, Decays, fpr, spec};
use core::time::Duration;

spec! {
    /// A time-decaying Bloom filter (B-TBF): after each epoch, `lambda` of every count is left.
    Decaying, super::NAME
}

impl Decaying {
    /// Plans for `keys` distinct keys; at the end of each epoch `lambda` (between 0 and 1) of every
    /// count is left.
    #[must_use]
    pub fn capacity(keys: u64, lambda: f64, epoch: Duration) -> Self {
        Self(decayed(keys, lambda, epoch))
    }

    fpr!();
}

impl Counts for Decaying {}
impl Decays for Decaying {}

/// Returns the parameters that both decaying kinds share.
pub(in crate::kinds) fn decayed(keys: u64, lambda: f64, epoch: Duration) -> Parameters {
    let parameters = Parameters::new().with("capacity", keys).with("lambda", lambda);
    parameters.with("epoch", epoch.as_micros())
}
