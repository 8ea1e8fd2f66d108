//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{Counts, CountsDistinct, Removes, fpr, spec};

spec! {
    /// A dynamic count filter: counts of any size, in two vectors, the second of which is as wide
    /// as needed.
    DynamicCount, super::NAME
}

impl DynamicCount {
    /// Plans for `keys` distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    fpr!();

    /// Sets the mean count of a key; it determines the width of the first vector.
    #[must_use]
    pub fn mean_count(self, count: f64) -> Self {
        Self(self.0.with("mean-count", count))
    }
}

impl CountsDistinct for DynamicCount {}
impl Counts for DynamicCount {}
impl Removes for DynamicCount {}
