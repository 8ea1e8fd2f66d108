//! How a record is applied to an image, each exactly once.
//!
//! Repair applies each record by [`apply`], except a clear, which it applies to one stripe
//! ([`apply_clear`]). Replay uses `apply` too, but applies operations by the two halves of it,
//! [`change_blocks`] and [`count`], on several threads. Both apply a record to a block if and only
//! if it is newer than the block. A writer applies what it has just written by
//! `engine::write::decide_and_apply` and `engine::batch::append_staged`, and uses [`apply_event`],
//! [`change_state`] and [`clear_stripe`].

use crate::error::Result;
use crate::image::bank::BankSet;
use crate::image::block_growth;
use crate::image::mapped_image::Image;
use crate::wal::{Op, Record};
use ebbtide_core::event;
use ebbtide_core::kind::{Event, Kind, State, Totals, records};
use ebbtide_core::time::OperationTime;

/// Applies one record, unless it has been applied: in replay, where the caller has
/// exclusive access, or in repair, where it holds the record's stripe. `banks` are the
/// currently mapped ones; an event changes them.
///
/// The order is block, its LSN, the stripe's sums. Wherever it is interrupted, repeating it
/// completes it.
///
/// # Errors
/// [`crate::Error::Io`] if a bank cannot be allocated or mapped.
pub fn apply(
    image: &Image,
    kind: &dyn Kind,
    banks: &BankSet,
    lsn: u64,
    record: &Record,
) -> Result<()> {
    let stripe_0 = image.header().stripe(0);
    match record.op {
        // Whoever reads a batch decides whether its records count.
        Op::Void | Op::Durable | Op::Batch => {}
        Op::Position => {
            let positions = image.header().positions();
            if positions.lsn() == 0 {
                image.allocate_positions()?;
            }
            if lsn > positions.lsn() {
                positions.set(lsn, record.payload, record.time);
            }
            stripe_0.note(lsn, 0);
        }
        Op::Claim | Op::Release => {
            image.allocate_claims()?;
            if lsn > image.header().claims().lsn() {
                image.header().claims().apply(lsn, record);
            }
            stripe_0.note(lsn, 0);
        }
        Op::Heartbeat => stripe_0.note(lsn, time_word(record)),
        Op::Insert | Op::Remove => {
            change_blocks(image, kind, banks, lsn, record)?;
            let stripe = image.layout().stripe_of(record.payload);
            count(image, kind, stripe, std::iter::once(&(lsn, *record)));
        }
        Op::Clear => {
            for index in 0..image.header().stripe_count() {
                apply_clear(image, kind, index, lsn, record)?;
            }
        }
        Op::Step | Op::OpenBank | Op::CloseBank => {
            if let Some(event) = event::from_record(record) {
                if lsn > image.header().state_block().current().lsn() {
                    image.prepare(&event)?;
                    apply_event(image, kind, lsn, &event);
                    image.follow()?;
                }
                stripe_0.note(lsn, time_word(record));
            }
        }
    }
    Ok(())
}

/// Applies an operation to the key's blocks: the first half of [`apply`]. In replay,
/// operations on different blocks may be applied in any order.
///
/// # Errors
/// As [`apply`].
pub fn change_blocks(
    image: &Image,
    kind: &dyn Kind,
    banks: &BankSet,
    lsn: u64,
    record: &Record,
) -> Result<()> {
    let Some(operation) = records::operation(kind, record) else { return Ok(()) };
    let state = image.header().state();
    let located = banks.locate(kind.touches(&state, operation.step), operation.hash);
    let older = located.older_than(lsn);
    let mut room = 0;
    if let Some(block) = older.get(0) {
        room = block_growth::allocate(image, kind, banks, block, &operation, true)?.unwrap_or(0);
    }
    located.begin_undo();
    records::change(kind, &state, &older, &operation);
    located.note(lsn);
    block_growth::free(kind, banks, &located.blocks, room);
    Ok(())
}

/// Counts operations of an ordinary stripe (from 0) in its sums: the second half of
/// [`apply`]. The operations may come in any order. All older ones of the stripe must be
/// among them or counted already, because they would not be counted later.
#[inline]
pub fn count<'a>(
    image: &Image,
    kind: &dyn Kind,
    stripe: usize,
    operations: impl Iterator<Item = &'a (u64, Record)>,
) {
    let (stripe, weighs) = (image.header().stripe(stripe + 1), kind.weights().is_some());
    let counted = stripe.sums().lsn;
    let (mut last, mut time, mut sum) = (counted, 0, Totals::default());
    for (lsn, record) in operations {
        if *lsn > counted && records::operation(kind, record).is_some() {
            let Totals { inserts, new_bits } = records::counts(weighs, record);
            sum.inserts = sum.inserts.wrapping_add(inserts);
            sum.new_bits = sum.new_bits.wrapping_add(new_bits);
            (last, time) = (last.max(*lsn), time.max(time_word(record)));
        }
    }
    if last > counted {
        stripe.count(last, time, sum);
    }
}

/// Applies an event to the state block. The caller holds stripe 0, or has exclusive access, and
/// has [prepared](Image::prepare) the event.
pub fn apply_event(image: &Image, kind: &dyn Kind, lsn: u64, event: &Event) {
    image.header().state_block().change(lsn, |state| change_state(image, kind, state, event));
    image.remove_closed(event);
}

/// Changes a filter-wide state as an event does.
pub fn change_state(image: &Image, kind: &dyn Kind, state: &State<'_>, event: &Event) {
    state.apply_banks(event);
    if let Some(events) = kind.events() {
        events.apply(state, image.layout(), event);
    }
}

/// Applies the record of a clear to one stripe, which the caller holds, unless it has been
/// applied.
///
/// # Errors
/// [`crate::Error::Io`] if the first bank cannot be allocated or mapped.
pub fn apply_clear(
    image: &Image,
    kind: &dyn Kind,
    index: usize,
    lsn: u64,
    record: &Record,
) -> Result<()> {
    if index == 0 && lsn > image.header().state_block().current().lsn() {
        let cleared = image.prepare_clear(kind)?;
        image.clear_state(lsn, &cleared);
        image.follow()?;
    }
    clear_stripe(image, index, lsn, time_word(record));
    Ok(())
}

/// Clears a stripe's sums, and with stripe 0 those of the filter, unless that was done. The
/// caller holds the stripe. Stripe 0 must be cleared first: until then no other stripe is in
/// use, so there is nothing else to be counted.
pub fn clear_stripe(image: &Image, index: usize, lsn: u64, time: u64) {
    let stripe = image.header().stripe(index);
    if stripe.has_counted(lsn) {
        return;
    }
    if index == 0 {
        image.header().counters().clear();
    }
    stripe.clear(lsn, time);
}

/// Returns the time of a record as stripes store it.
fn time_word(record: &Record) -> u64 {
    OperationTime { time: record.time, stream: record.stream }.word()
}

#[cfg(all(test, not(loom)))]
mod tests;
