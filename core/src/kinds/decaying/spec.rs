//! The spec of this kind.

use super::{polynomial, ring};
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

    /// Plans for `keys` distinct keys; an insert counts fully for this many epochs, and then no
    /// more.
    #[must_use]
    pub fn sliding_window(keys: u64, epochs: u64, epoch: Duration) -> Self {
        Self(windowed(keys, ring::SLIDING_WINDOW, epoch).with("window-epochs", epochs))
    }

    /// Plans for `keys` distinct keys; an insert counts `1 - x/n` after `x` of `n` epochs.
    #[must_use]
    pub fn linear(keys: u64, epochs: u64, epoch: Duration) -> Self {
        Self(windowed(keys, ring::LINEAR, epoch).with("window-epochs", epochs))
    }

    /// Plans for `keys` distinct keys; an insert counts `weights[x]` after `x` epochs, and nothing
    /// after the last of them: numbers from 1 down to above 0. Polygonal and chordal functions have
    /// this form.
    #[must_use]
    pub fn weights(keys: u64, weights: &[f64], epoch: Duration) -> Self {
        let table = weights.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        Self(windowed(keys, ring::WEIGHTS, epoch).with(ring::WEIGHTS, table))
    }

    /// Plans for `keys` distinct keys; an insert counts `(1+x)^-exponent` after `x` epochs, for as
    /// many as the horizon. Estimates are never below the exact count, and above it by 3 % at most
    /// ([`Decaying::excess`]), collisions apart.
    #[must_use]
    pub fn polynomial(keys: u64, exponent: f64, horizon: u64, epoch: Duration) -> Self {
        let all = windowed(keys, polynomial::NAME, epoch);
        Self(all.with("exponent", exponent).with("horizon", horizon))
    }

    /// Sets the share by which polynomial decay may count too much. Default 0.03. A smaller share
    /// takes more memory.
    #[must_use]
    pub fn excess(self, share: f64) -> Self {
        Self(self.0.with("excess", share))
    }

    fpr!();
}

/// Returns the parameters of a decay function other than the exponential one.
fn windowed(keys: u64, decay: &str, epoch: Duration) -> Parameters {
    let parameters = Parameters::new().with("capacity", keys).with("decay", decay);
    parameters.with("epoch", epoch.as_micros())
}

impl Counts for Decaying {}
impl Decays for Decaying {}

/// Returns the parameters that both decaying kinds share.
pub(in crate::kinds) fn decayed(keys: u64, lambda: f64, epoch: Duration) -> Parameters {
    let parameters = Parameters::new().with("capacity", keys).with("lambda", lambda);
    parameters.with("epoch", epoch.as_micros())
}
