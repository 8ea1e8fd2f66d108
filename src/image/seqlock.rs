//! Block versions: how a query reads a block that others write, without a lock.
//!
//! A writer, which holds the block's stripe, makes the version odd, changes the cells, and makes it
//! even again. A reader reads the version before and after; if it was odd or has changed, it
//! retries. Versions only ever grow.
//!
//! Data that readers must never wait for exists in two copies (the state block). The version's
//! lowest bit indicates the valid one; a writer changes the other and then raises the version by
//! one. Modelled in `tests/loom/seqlock.rs` and `tests/loom/copies.rs`.

use crate::primitives::{AtomicU64, Ordering, fence};

/// Marks a block as being changed. The caller holds its stripe.
#[inline]
pub fn begin(version: &AtomicU64) {
    let seen = version.load(Ordering::Relaxed);
    version.store(seen | 1, Ordering::Relaxed);
    // Release fence: pairs with the Acquire fence in `again`. A reader that saw any cell written
    // after this also sees the odd version.
    fence(Ordering::Release);
}

/// Marks a block as whole again, with a version that it has never had.
#[inline]
pub fn end(version: &AtomicU64) {
    let seen = version.load(Ordering::Relaxed);
    // Release: pairs with the Acquire in `read`. A reader that sees this version sees the cells
    // that belong to it. Wrapping, because the version of a damaged image may be any number.
    version.store((seen | 1).wrapping_add(1), Ordering::Release);
}

/// Returns the version before reading; `None` while the block is being changed.
#[must_use]
#[inline]
pub fn read(version: &AtomicU64) -> Option<u64> {
    // Acquire: pairs with the Release in `end`.
    let seen = version.load(Ordering::Acquire);
    (seen & 1 == 0).then_some(seen)
}

/// Returns whether the block is still unchanged since `before`, after its cells have been read.
#[must_use]
#[inline]
pub fn unchanged(version: &AtomicU64, before: u64) -> bool {
    again(version) == before
}

/// Reads the version again, after the cells have been read.
#[must_use]
#[inline]
pub fn again(version: &AtomicU64) -> u64 {
    // Acquire fence: pairs with the Release fence in `begin`.
    fence(Ordering::Acquire);
    version.load(Ordering::Relaxed)
}

/// Returns the version of data in two copies; its lowest bit indicates the valid one.
#[must_use]
#[inline]
pub fn current(version: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release in `flip`. A reader that sees this version sees the copy that
    // belongs to it.
    version.load(Ordering::Acquire)
}

/// As [`current`], for a caller that has read other words. If one of them was stored after the
/// version changed, this returns the changed version or a later one.
#[must_use]
pub fn current_after_reads(version: &AtomicU64) -> u64 {
    // Acquire fence: pairs with the Release of the store that was read.
    fence(Ordering::Acquire);
    current(version)
}

/// Returns the version whose copy the caller may write from now on; there is no other writer.
#[must_use]
#[inline]
pub fn begin_other(version: &AtomicU64) -> u64 {
    let seen = version.load(Ordering::Relaxed);
    // Release fence: pairs with the Acquire fence in `again`. A reader that still reads this copy,
    // of the version before `seen`, and saw any word written after this, also sees `seen`.
    fence(Ordering::Release);
    seen.wrapping_add(1)
}

/// Makes the copy written since [`begin_other`] the valid one.
#[inline]
pub fn flip(version: &AtomicU64, next: u64) {
    // Release: pairs with the Acquire in `current`.
    version.store(next, Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_being_changed_has_no_version_and_then_one_it_never_had() {
        for seen in [0, 6, u64::MAX - 1] {
            let version = AtomicU64::new(seen);
            assert_eq!(read(&version), Some(seen));
            assert!(unchanged(&version, seen));
            begin(&version);
            assert!(!unchanged(&version, seen));
            // A process that takes the stripe over from a dead writer marks it again.
            begin(&version);
            assert_eq!((read(&version), current(&version)), (None, seen + 1));
            end(&version);
            let next = seen.wrapping_add(2);
            assert_eq!(read(&version), Some(next));
            assert!(unchanged(&version, next) && !unchanged(&version, seen));
            end(&version);
            assert_eq!(read(&version), Some(next + 2), "never a version of before");
        }
    }

    #[test]
    fn the_next_version_counts_when_it_is_flipped_to_and_not_before() {
        for seen in [0, 1, 6, u64::MAX] {
            let (version, next) = (AtomicU64::new(seen), seen.wrapping_add(1));
            assert_eq!((begin_other(&version), current(&version)), (next, seen));
            flip(&version, next);
            assert_eq!(current(&version), next);
        }
    }
}
