//! A block's header: its version, the LSN last applied, and the kind's words.

use crate::primitives::AtomicU64;
use ebbtide_core::block::places::BLOCK_HEADER_WORDS;
use ebbtide_core::block::{load, store_release};

/// A cache line.
const _: () = assert!(BLOCK_HEADER_WORDS == 8);

/// A block's header.
#[derive(Debug, Clone, Copy)]
pub struct BlockHeader<'a>(pub(crate) &'a [AtomicU64; BLOCK_HEADER_WORDS]);

impl<'a> BlockHeader<'a> {
    /// Returns the version word; see [`crate::image::seqlock`].
    #[must_use]
    #[inline]
    pub fn version(&self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// Returns the LSN last applied.
    #[must_use]
    #[inline]
    pub fn lsn(&self) -> u64 {
        load(&self.0[1])
    }

    /// Sets the LSN last applied.
    #[inline]
    pub fn set_lsn(&self, lsn: u64) {
        // A reader of this LSN after the writer's death sees all changes up to it.
        store_release(&self.0[1], lsn);
    }

    /// Returns the kind words.
    #[must_use]
    #[inline]
    pub fn own(&self) -> &'a [AtomicU64] {
        &self.0[2..]
    }
}
