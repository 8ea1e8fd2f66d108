//! The room of blocks that grow: the part of a block's cells that has space.

use crate::error::Result;
use crate::image::bank::BankSet;
use ebbtide_core::block::{Block, Blocks};
use ebbtide_core::kind::{Kind, Operation};

/// Makes room in a block for an operation; see
/// [`Image::make_room`](crate::image::Image::make_room).
#[inline(never)]
pub(super) fn allocate(
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

/// Frees the room that a block used before an operation and no longer uses.
pub(super) fn free(kind: &dyn Kind, banks: &BankSet, blocks: &Blocks<'_>, before: usize) {
    if let (Some(growth), Some(bank), Some(block)) = (kind.growth(), banks.get(0), blocks.get(0)) {
        let used = growth.room_now(block);
        if used < before {
            bank.free(block.number, used);
        }
    }
}
