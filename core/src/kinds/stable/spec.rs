//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::spec;

spec! {
    /// A stable Bloom filter: its false-positive rate never exceeds a bound, and older keys are
    /// more likely to be forgotten.
    Stable, super::NAME
}

impl Stable {
    /// Sets `count` cells of values up to `max`; a key has `k` of them, and an insert decrements
    /// `p`.
    #[must_use]
    pub fn cells(count: u64, max: u32, k: u32, p: u32) -> Self {
        Self(cells(count, max, k, p))
    }
}

/// Creates the parameters: number of cells, their highest value, cells per key, and cells that an
/// insert decrements.
pub(in crate::kinds) fn cells(cells: u64, max: u32, k: u32, p: u32) -> Parameters {
    Parameters::new().with("cells", cells).with("max", max).with("K", k).with("P", p)
}
