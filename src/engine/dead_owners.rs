//! Owners of stripes that died: who is dead, and the repair of what they left in a stripe.

use crate::engine::shared::{Local, Shared};
use crate::engine::time::filter_time::Time;
use crate::error::{Error, Result};
use crate::image::stripe_table::StripeSums;
use crate::locks::handle_stripes::StripeGuard;
use crate::locks::stripe_lock::{Owner, Verdict};
use crate::recovery::repair_stripe::{self, Repaired};
use crate::telemetry::{Timed, Work};
use crate::wal::Segment;
use std::sync::Arc;

/// Returns whether an owner is dead: its session slot was taken again since, or is free now. For
/// the handle's own slot, `Owner::judged` in `locks::stripe_lock` decides.
pub(crate) fn judge(shared: &Shared, owner: Owner) -> Verdict {
    let incarnation = shared.header().incarnation(owner.slot.into()).read();
    let dead = owner.incarnation < incarnation || !shared.slots.is_alive(owner.slot);
    if dead { Verdict::Dead } else { Verdict::Wait }
}

/// Repairs a stripe that was taken over from a dead owner. `stripe_0` acquires stripe 0. If the
/// system refuses a file or memory to this process, that says nothing about the stripe: another
/// process may repair it, or this one later.
///
/// # Errors
/// [`Error::Io`]; [`Error::WouldWait`] and [`Error::Closed`] of a wait for stripe 0. The stripe is
/// then the dead owner's again.
#[cold]
pub(crate) fn repaired<'a>(
    (shared, time): (&Shared, &Time),
    stripe: StripeGuard<'a, Local>,
    dead: Owner,
    stripe_0: impl FnOnce() -> Result<StripeGuard<'a, Local>>,
) -> Result<StripeGuard<'a, Local>> {
    let (header, index) = (shared.header(), stripe.index());
    let work = Timed::begin(Work::Repair, shared.path());
    work.note("stripe", index as u64);
    let before = stripe.entry().sums();
    let repaired = match repair(shared, index) {
        // Whoever takes stripe 0 over from the dead owner repairs it.
        Ok(Repaired::NeedsStripe0) => stripe_0().and_then(|_stripe_0| repair(shared, index)),
        repaired => repaired,
    };
    match repaired {
        Ok(Repaired::Whole) => {}
        Err(
            error @ (Error::Io { .. }
            | Error::WouldWait { .. }
            | Error::Closed { .. }
            // Of a filter that was replaced nothing is left to be poisoned.
            | Error::Retired { .. }),
        ) if !error.is_damage() => {
            stripe.give_back(dead);
            return Err(error);
        }
        failed => {
            if let Err(error) = failed {
                shared.poison(format!("what a dead process left could not be repaired ({error})"));
            }
            // Otherwise stripe 0 could not be repaired, and the filter is poisoned. The dead
            // process's empty slot is not voided: once the stripe is free, only this count tells
            // recovery of it.
            header.unheld_slots().add();
            return Ok(stripe);
        }
    }
    let after = stripe.entry().sums();
    work.note("inserts", count(shared, before, after));
    time.raise(after.time);
    if index == 0 {
        header.events_from().end();
    }
    Ok(stripe)
}

/// Repairs what the dead owner of a stripe left half done in its blocks. The caller has the stripe.
///
/// # Errors
/// As [`repair_stripe::stripe`], and those of mapping the log.
fn repair(shared: &Shared, index: usize) -> Result<Repaired> {
    // Another filter's bank in this directory may have the name of one that is opened or removed.
    shared.check_directory()?;
    let header = shared.header();
    loop {
        let newest = header.snapshot().read();
        let from = repair_stripe::from(&shared.image, index, newest);
        let end = header.allocated().read();
        let segments = from.map_or(Ok(Vec::new()), |from| shared.map_log(from, end));
        match segments {
            // Log from the newest snapshot on is never removed, but there may be a newer one by
            // now.
            Err(error) if error.is_not_found() && header.snapshot().read() > newest => {}
            segments => {
                let (kind, segments) = (shared.kind(), segments?);
                let done = repair_stripe::stripe(&shared.image, kind, index, &segments, from);
                // The system says that only once: another process would take lost records for the
                // dead owner's empty slots.
                let is_lost = |segment: &Arc<Segment>| segment.check_written().is_err();
                if done.is_err() && segments.iter().any(is_lost) {
                    header.status().lose_log();
                    shared.poison("the system could not write back the log".to_owned());
                }
                return done;
            }
        }
    }
}

/// Adds what the dead owner of a stripe had not counted for the filter; returns its inserts. If it
/// had not updated the stripe's sums, it had not updated those of the filter either. A clear resets
/// both, those of the filter under stripe 0.
fn count(shared: &Shared, before: StripeSums, after: StripeSums) -> u64 {
    let inserts = after.inserts.saturating_sub(before.inserts);
    let new_bits = after.new_bits.saturating_sub(before.new_bits);
    shared.header().counters().count(shared.shard(), inserts, new_bits);
    inserts
}
