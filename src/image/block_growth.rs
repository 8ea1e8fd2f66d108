//! The room of blocks that grow: the part of a block's cells that has space.

use crate::error::Result;
use crate::image::bank::BankSet;
use crate::image::mapped_image::Image;
use ebbtide_core::block::{Block, Blocks};
use ebbtide_core::kind::{Kind, Operation};

/// Allocates the room that a block needs for an operation, if blocks grow. Returns the room that
/// the block used so far; `None` if `may_allocate` is false and room must be allocated.
///
/// # Errors
/// [`crate::Error::Io`], including a full disk: then nothing has changed.
#[inline(always)] // as `free`
pub fn allocate(
    image: &Image,
    kind: &dyn Kind,
    banks: &BankSet,
    block: &Block<'_>,
    operation: &Operation,
    may_allocate: bool,
) -> Result<Option<usize>> {
    // Most kinds do not grow.
    if !image.grows() {
        return Ok(Some(0));
    }
    allocate_growing(kind, banks, block, operation, may_allocate)
}

#[inline(never)]
fn allocate_growing(
    kind: &dyn Kind,
    banks: &BankSet,
    block: &Block<'_>,
    operation: &Operation,
    may_allocate: bool,
) -> Result<Option<usize>> {
    let Some(growth) = kind.growth() else { return Ok(Some(0)) };
    let (used, wanted) = (growth.room_now(block), growth.room(block, operation));
    if let Some(bank) = banks.get(0).filter(|_| wanted > used) {
        if !may_allocate {
            return Ok(None);
        }
        bank.allocate(block.number, wanted)?;
    }
    Ok(Some(used))
}

/// Frees the room that a block used before an operation and no longer uses. The caller holds its
/// stripe.
#[inline(always)]
pub fn free(kind: &dyn Kind, banks: &BankSet, blocks: &Blocks<'_>, before: usize) {
    // Most kinds do not grow.
    if before > 0 {
        free_unused(kind, banks, blocks, before);
    }
}

fn free_unused(kind: &dyn Kind, banks: &BankSet, blocks: &Blocks<'_>, before: usize) {
    if let (Some(growth), Some(bank), Some(block)) = (kind.growth(), banks.get(0), blocks.get(0)) {
        let used = growth.room_now(block);
        if used < before {
            bank.free(block.number, used);
        }
    }
}
