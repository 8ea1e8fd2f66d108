//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{Ages, CountsDistinct, Infers, fpr, spec};

spec! {
    /// An age-partitioned Bloom filter: keeps the last N insertions.
    AgePartitioned, super::NAME
}

impl AgePartitioned {
    /// Keeps a key for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();

    /// Sets `k` hash functions and `l` further slices, with memory as in the paper, instead of the
    /// planner's choice.
    #[must_use]
    pub fn slices(self, k: u32, l: u32) -> Self {
        Self(self.0.with("k", k).with("l", l))
    }
}

impl CountsDistinct for AgePartitioned {}
impl Ages for AgePartitioned {}
impl Infers for AgePartitioned {}
