//! Settings of a new filter in memory.

use crate::block::Layout;
use crate::error::Result;
use crate::hash::{KeyHash, KeyHasher};
use crate::identity::{Identity, check_max_memory, layout};
use crate::kind::parameters::within;
use crate::kind::{Kind, Micros};
use std::sync::Arc;

/// Settings of a new filter in memory, apart from its kind.
#[derive(Debug, Clone)]
pub struct MachineOptions {
    key_hash: KeyHash,
    stripes: Option<u32>,
    block_bytes: Option<u64>,
    max_lead: Micros,
}

impl Default for MachineOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl MachineOptions {
    /// Returns the defaults.
    #[must_use]
    pub const fn new() -> Self {
        let (key_hash, max_lead) = (KeyHash::Fast, 3_600_000_000);
        Self { key_hash, stripes: None, block_bytes: None, max_lead }
    }

    /// Sets the function that hashes keys. Default: [`KeyHash::Fast`]. Choose [`KeyHash::Keyed`]
    /// for untrusted keys, whose authors may gain from wrong answers.
    #[must_use]
    pub const fn key_hash(mut self, function: KeyHash) -> Self {
        self.key_hash = function;
        self
    }

    /// Sets the number of stripes, 1 to 4096: shares of the keys. They change digests and the
    /// sizes of banks, nothing else. Default: as many as the engine's.
    #[must_use]
    pub const fn stripes(mut self, stripes: u32) -> Self {
        self.stripes = Some(stripes);
        self
    }

    /// Sets the target size of a block, 512 bytes to 64 KiB. Default: as the kind proposes, 64 KiB
    /// for windows of inserts of `fingerprint` and wide counters of `decaying`, 16 KiB for the
    /// others.
    #[must_use]
    pub const fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Sets how far ahead of the wall clock a key's time may lie, in microseconds. Default: one
    /// hour.
    #[must_use]
    pub const fn max_lead(mut self, micros: Micros) -> Self {
        self.max_lead = micros;
        self
    }

    /// Returns the layout of a new filter of a kind.
    #[must_use]
    pub fn layout(&self, kind: &dyn Kind) -> Layout {
        layout(kind, self.stripes, self.block_bytes)
    }

    /// Returns the identity of a new filter with these settings.
    pub(super) fn identity(
        &self,
        kind: Arc<dyn Kind>,
        secret: u128,
        uuid: u128,
    ) -> Result<Identity> {
        let Self { key_hash, stripes, block_bytes, max_lead } = *self;
        if let Some(stripes) = stripes {
            within("stripes", stripes.into(), 1, Layout::MOST_STRIPES.into())?;
        }
        if let Some(bytes) = block_bytes {
            within("block-bytes", bytes, 512, 64 << 10)?;
        }
        let (layout, hasher) = (self.layout(&*kind), KeyHasher::new(key_hash, secret));
        check_max_memory(&*kind, layout)?;
        Ok(Identity { uuid, hasher, layout, max_lead, kind })
    }
}
