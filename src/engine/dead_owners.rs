//! Owners of stripes that died: who is dead, and the repair of what they left in a stripe.

use crate::engine::shared::Shared;
use crate::error::Result;
use crate::image::stripe_table::StripeSums;
use crate::locks::stripe_lock::{Owner, Verdict};
use crate::recovery::repair::{self, Repaired};

/// Returns whether an owner is dead: its session slot was taken again since, or is free now. For
/// the handle's own slot, `Owner::judged` in `locks::stripe_lock` decides.
pub(crate) fn judge(shared: &Shared, owner: Owner) -> Verdict {
    let incarnation = shared.header().incarnation(owner.slot.into()).read();
    let dead = owner.incarnation < incarnation || !shared.slots.is_alive(owner.slot);
    if dead { Verdict::Dead } else { Verdict::Wait }
}

/// Repairs what the dead owner of a stripe left half done in its blocks. The caller has the stripe.
///
/// # Errors
/// As [`repair::stripe`], and those of mapping the log.
pub(crate) fn repair(shared: &Shared, index: usize) -> Result<Repaired> {
    let header = shared.header();
    loop {
        let newest = header.snapshot().read();
        let from = repair::from(&shared.image, index, newest);
        let end = header.allocated().read();
        let segments = from.map_or(Ok(Vec::new()), |from| shared.map_log(from, end));
        match segments {
            // Log from the newest snapshot on is never removed, but there may be a newer one by
            // now.
            Err(error) if error.is_not_found() && header.snapshot().read() > newest => {}
            segments => {
                let kind = shared.kind();
                return repair::stripe(&shared.image, kind, index, &segments?, from);
            }
        }
    }
}

/// Adds what the dead owner of a stripe had not counted for the filter; returns its inserts. If it
/// had not updated the stripe's sums, it had not updated those of the filter either. A clear resets
/// both, those of the filter under stripe 0.
pub(crate) fn count(shared: &Shared, before: StripeSums, after: StripeSums) -> u64 {
    let inserts = after.inserts.saturating_sub(before.inserts);
    let new_bits = after.new_bits.saturating_sub(before.new_bits);
    shared.header().counters().count(shared.shard(), inserts, new_bits);
    inserts
}
