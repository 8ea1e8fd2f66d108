//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{Counts, CountsDistinct, Infers, Removes, fpr, spec};

spec! {
    /// A counting Bloom filter: keys can be removed, and counts are small.
    Counting, super::NAME
}

impl Counting {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// Sets the bits of a counter, from 1 to 32. Default 4: a counter that has reached 15 stays
    /// there.
    #[must_use]
    pub fn counter_bits(self, bits: u32) -> Self {
        Self(self.0.with("counter-bits", bits))
    }
}

impl CountsDistinct for Counting {}
impl Counts for Counting {}
impl Infers for Counting {}
impl Removes for Counting {}
