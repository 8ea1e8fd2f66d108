//! The spec of this kind.

use crate::kind::Parameters;
use crate::kinds::spec::{Ages, CountsDistinct, Infers, fpr, spec};
use core::time::Duration;

spec! {
    /// A time-limited Bloom filter: keeps keys for a fixed time, whatever the rate.
    ///
    /// A late key, with a time before the filter's (`Call::time`), is present for the rest of its
    /// window, and refused if that has been over for about `window / 50`. It expires about `window
    /// / 50` after its window, like other keys. If more keys of its time arrive than the filter has
    /// room for there, the key counts as of now: it may be present for a full window from its
    /// arrival. The false-positive rate therefore stays within the planned one. It was at most
    /// 0.0026, with 0.003 planned, in streams in which all keys are late by up to a window: at an
    /// even rate, at a rate that rises fourfold, and in bursts
    /// (`docs/runs/papers/time-limited.md`). `Stat::estimated_fpr` is of the set bits, late keys
    /// included.
    TimeLimited, super::NAME
}

impl TimeLimited {
    /// Keeps a key for at least this long.
    #[must_use]
    pub fn window(window: Duration) -> Self {
        Self(Parameters::new().with("window", window.as_micros()))
    }

    fpr!();

    /// Plans so that the mean rate of a steady stream is the configured one, in less memory. Bursts
    /// and growth then exceed it. Default: it holds at the worst moment too.
    #[must_use]
    pub fn steady(self) -> Self {
        Self(self.0.with("aim", "steady"))
    }

    /// Sets the bits of a row: 16, 32 or 64. Default: those with the least memory.
    #[must_use]
    pub fn columns(self, columns: u32) -> Self {
        Self(self.0.with("columns", columns))
    }

    /// Sets the expected number of new keys per second at the start. Default: few; the filter grows
    /// with the rate.
    #[must_use]
    pub fn rate(self, keys_per_second: f64) -> Self {
        Self(self.0.with("rate", keys_per_second))
    }

    /// Limits the memory, in bytes: that of the blocks with all that an image has besides. Default:
    /// no limit; the filter grows with the rate.
    ///
    /// At the limit no key is lost. The false-positive rate rises, and `Stat::saturated` says so
    /// when it is more than twice the planned one.
    #[must_use]
    pub fn max_memory(self, bytes: u64) -> Self {
        Self(self.0.with("max-memory", bytes))
    }
}

impl CountsDistinct for TimeLimited {}
impl Ages for TimeLimited {}
impl Infers for TimeLimited {}
