//! Block versions: how a query reads a block that others write, without a lock.
//!
//! A writer, who holds the block's stripe, makes the version odd, changes the cells, makes it even again. A
//! reader takes the version before and after; if it was odd or has changed, it asks again. Versions only
//! ever grow. Modelled in `tests/loom/version.rs`.

use crate::sync::{AtomicU64, Ordering, fence};

/// Marks a block as being changed. The caller holds its stripe.
#[inline]
pub fn begin(version: &AtomicU64) {
    let seen = version.load(Ordering::Relaxed);
    version.store(seen | 1, Ordering::Relaxed);
    // Release fence: pairs with the Acquire fence in `unchanged`. A reader that saw any cell written after
    // this also sees the odd version.
    fence(Ordering::Release);
}

/// Marks a block as whole again, with a version it has never had.
#[inline]
pub fn end(version: &AtomicU64) {
    let seen = version.load(Ordering::Relaxed);
    // Release: pairs with the Acquire in `read`. Who sees this version sees the cells that belong to it.
    version.store((seen | 1) + 1, Ordering::Release);
}

/// The version before reading; `None` while somebody changes the block.
#[must_use]
#[inline]
pub fn read(version: &AtomicU64) -> Option<u64> {
    // Acquire: pairs with the Release in `end`.
    let seen = version.load(Ordering::Acquire);
    (seen & 1 == 0).then_some(seen)
}

/// Whether the block is still what it was at `before`, now that its cells have been read.
#[must_use]
#[inline]
pub fn unchanged(version: &AtomicU64, before: u64) -> bool {
    // Acquire fence: pairs with the Release fence in `begin`.
    fence(Ordering::Acquire);
    version.load(Ordering::Relaxed) == before
}
