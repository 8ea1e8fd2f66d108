//! The specs of these kinds.

use crate::kinds::spec::{Weighs, spec};
use crate::kinds::stable::spec::cells;

spec! {
    /// An importance-aware Bloom filter with two classes (IBF-2C): important keys are kept longer.
    Importance2c, super::TWO_CLASSES
}

spec! {
    /// An importance-aware Bloom filter with as many classes as a cell has values (IBF-MC).
    ImportanceMc, super::MANY_CLASSES
}

spec! {
    /// An importance-aware Bloom filter (IBF-H) that spares cells of high values when it
    /// decrements.
    ImportanceH, super::HYBRID
}

/// Defines what the specs of importance-aware kinds have in common.
macro_rules! importance {
    ($spec:ident) => {
        impl $spec {
            /// Sets `count` cells of values up to `max`; a key has `k` of them, and an insert
            /// decrements `p`.
            #[must_use]
            pub fn cells(count: u64, max: u32, k: u32, p: u32) -> Self {
                Self(cells(count, max, k, p))
            }

            /// Sets the highest importance; `max` by default.
            #[must_use]
            pub fn importance_max(self, importance: f64) -> Self {
                Self(self.0.with("importance-max", importance))
            }
        }

        impl Weighs for $spec {}
    };
}

importance!(Importance2c);
importance!(ImportanceMc);
importance!(ImportanceH);
