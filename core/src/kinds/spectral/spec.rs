//! The spec of this kind.

use super::Policy;
use crate::kind::Parameters;
use crate::kinds::spec::{Counts, CountsDistinct, Removes, fpr, spec};

spec! {
    /// A spectral Bloom filter: counts of any size, in counters with as many bits as needed.
    Spectral, super::NAME
}

impl Spectral {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// Sets the counting policy. Default [`Policy::MinimumSelection`].
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self(self.0.with("policy", policy))
    }
}

impl CountsDistinct for Spectral {}
impl Counts for Spectral {}
/// Except [`Policy::MinimalIncrease`], with which removals return
/// [`Error::Unsupported`](crate::Error::Unsupported).
impl Removes for Spectral {}
