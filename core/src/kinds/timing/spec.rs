//! The specs of these kinds.

use crate::kind::Parameters;
use crate::kinds::spec::{Ages, CountsDistinct, Infers, fpr, spec};

spec! {
    /// A timing Bloom filter: keeps the last N insertions, and for each key the number of
    /// insertions since.
    Timing, super::NAME
}

impl Timing {
    /// Keeps a key for exactly this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();
}

impl CountsDistinct for Timing {}
impl Ages for Timing {}
impl Infers for Timing {}

spec! {
    /// A block timing Bloom filter: as [`Timing`], with insertions in batches that share a tick,
    /// and a fifth of the memory.
    BlockTiming, super::BLOCK_NAME
}

impl BlockTiming {
    /// Keeps a key for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    fpr!();

    /// Sets the insertions per batch, instead of the value with the least memory.
    #[must_use]
    pub fn batch(self, insertions: u64) -> Self {
        Self(self.0.with("block-size", insertions))
    }
}

impl CountsDistinct for BlockTiming {}
impl Ages for BlockTiming {}
impl Infers for BlockTiming {}
