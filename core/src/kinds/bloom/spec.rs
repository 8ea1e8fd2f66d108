//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{CountsDistinct, Infers, fpr, spec};

spec! {
    /// A Bloom filter: keeps every key permanently.
    Bloom, super::NAME
}

impl Bloom {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();
}

impl CountsDistinct for Bloom {}
impl Infers for Bloom {}
