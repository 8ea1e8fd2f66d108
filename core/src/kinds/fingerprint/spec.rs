//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{Ages, CountsDistinct, Infers, fpr, spec};
use core::time::Duration;

spec! {
    /// A filter of fingerprints: keeps the last N insertions, or keys for a fixed time at any rate,
    /// in the least memory and time of all kinds with a window.
    Fingerprint, super::NAME
}

impl Fingerprint {
    /// Keeps a key for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    /// Keeps a key for at least this long.
    ///
    /// A late key, with a time before the filter's (`Call::time`), is present for the rest of its
    /// window, and refused if that is over.
    #[must_use]
    pub fn window(window: Duration) -> Self {
        Self(Parameters::new().with("window", window.as_micros()))
    }

    fpr!();

    /// Sets the expected number of new keys per second at the start, for a window of time. Default:
    /// few; the filter grows with the rate.
    #[must_use]
    pub fn rate(self, keys_per_second: f64) -> Self {
        Self(self.0.with("rate", keys_per_second))
    }

    /// Sets the highest share of slots that may be in use, from 0.25 to 1. Default: as high as
    /// hardly any insert fails to find a slot, 0.95 and more.
    ///
    /// With 0.8, a fifth more memory, few inserts have to move other keys, and an insert takes two
    /// thirds of the time. Banks that open in a burst of keys are filled as full as without it.
    #[must_use]
    pub fn max_load(self, share: f64) -> Self {
        Self(self.0.with("max-load", share))
    }

    /// Limits the memory of a window of time, in bytes: that of the blocks with all that an image
    /// has besides, as `Stat::memory_bytes` has it. Default: no limit; the filter grows by the
    /// keys that are inserted.
    ///
    /// At the limit no key is lost. The false-positive rate rises, and `Stat::saturated` says so,
    /// until the keys of a burst have expired; longer if there is room for one bank only, and it
    /// then gets more than some 0.7 of its capacity in each window.
    #[must_use]
    pub fn max_memory(self, bytes: u64) -> Self {
        Self(self.0.with("max-memory", bytes))
    }
}

impl CountsDistinct for Fingerprint {}
impl Ages for Fingerprint {}
impl Infers for Fingerprint {}
