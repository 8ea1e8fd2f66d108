//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{Ages, Infers, fpr, spec};

spec! {
    /// A filter of fingerprints: keeps the last N insertions, in the least memory and time of all
    /// kinds with a window.
    Fingerprint, super::NAME
}

impl Fingerprint {
    /// Keeps a key for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}

impl Ages for Fingerprint {}
impl Infers for Fingerprint {}
