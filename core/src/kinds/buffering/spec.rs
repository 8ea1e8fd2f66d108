//! The specs of these kinds.

use crate::kind::Parameters;
use crate::kinds::spec::{CountsDistinct, Infers, fpr, spec};

spec! {
    /// Double buffering: two Bloom filters, one of which answers while the other warms up. A
    /// baseline.
    DoubleBuffering, super::DOUBLE
}

impl DoubleBuffering {
    /// Keeps a key for at least this many insertions.
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}

spec! {
    /// Two buffers (A2): an active and an aged Bloom filter, both of which answer. A baseline.
    TwoBuffer, super::TWO
}

impl TwoBuffer {
    /// Keeps a key for at least this many insertions.
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}

impl CountsDistinct for DoubleBuffering {}
impl Infers for DoubleBuffering {}
impl CountsDistinct for TwoBuffer {}
impl Infers for TwoBuffer {}
