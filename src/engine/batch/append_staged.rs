//! Allocates log for staged records, appends them as one batch, all or none, and applies them: for
//! a caller's batch (`commit`), and for one operation of several records. The protocol is in
//! `docs/protocols/batches.md`.

use crate::engine::batch::staging::{Allocated, Room, Staging};
use crate::engine::log::append::Appended;
use crate::engine::shared::Local;
use crate::engine::stripes::Wait;
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::request::Waits;
use crate::engine::write::writer::{Tried, Writer};
use crate::error::Result;
use crate::image::{BankSet, apply_record};
use crate::locks::handle_stripes::StripeGuard;
use crate::wal::{Op, Record};
use ebbtide_core::event;
use ebbtide_core::kind::{Kind, Operation, records};

/// How many operations ahead of the one that is staged or applied the cells are prefetched.
pub(crate) const AHEAD: usize = 16;

/// The stripes that a commit holds, ascending; stripe 0, if held, comes last.
pub(crate) type Held<'a> = Vec<StripeGuard<'a, Local>>;

/// Finds a held stripe.
pub(crate) fn of_stripe<'h, 'a>(
    held: &'h [StripeGuard<'a, Local>],
    index: usize,
) -> Option<&'h StripeGuard<'a, Local>> {
    let ordinary = held.len() - usize::from(holds_stripe_0(held));
    if index == 0 {
        return held.get(ordinary);
    }
    let at = held[..ordinary].binary_search_by_key(&index, StripeGuard::index).ok()?;
    held.get(at)
}

/// Returns whether stripe 0 is among the held stripes.
pub(crate) fn holds_stripe_0(held: &[StripeGuard<'_, Local>]) -> bool {
    held.last().is_some_and(|last| last.index() == 0)
}

/// Acquires stripe 0 for events; the caller holds the stripes of the keys. Returns `None` if the
/// events `can_be_put_off` and a process that makes no progress holds stripe 0.
///
/// # Errors
/// [`Error::WouldWait`](crate::Error::WouldWait), [`Error::Closed`](crate::Error::Closed).
pub(crate) fn lock_stripe_0(
    writer: &Writer,
    can_be_put_off: bool,
    waits: Waits,
) -> Result<Option<StripeGuard<'_, Local>>> {
    if waits.never() {
        return Err(writer.shared.would_wait("the filter's next step"));
    }
    if can_be_put_off {
        return Ok(writer.stripes.lock_stripe_0());
    }
    writer.stripes.acquire(0, Wait::Operation(waits)).map(Some)
}

/// Appends the records of a batch, and applies them. `prefetches` makes it prefetch the keys'
/// blocks. Returns the LSN of the last record.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io), including a full disk,
/// [`Error::Poisoned`](crate::Error::Poisoned): nothing has happened.
pub(crate) fn commit(
    writer: &Writer,
    staging: &Staging,
    prefetches: bool,
    held: &mut [StripeGuard<'_, Local>],
) -> Result<Tried<u64>> {
    let (header, records) = (writer.shared.header(), &staging.records);
    let allocated = staging.allocate(writer)?;
    let events = holds_stripe_0(held);
    let announce = |tail| {
        if events {
            header.events_from().announce(tail);
        }
    };
    let appended = writer.log_writer.append_batch(&mut held[0].segment, records, announce);
    if let Appended::At(first) = appended {
        let prefetches = prefetches || !staging.reads_blocks();
        apply(writer, (records, &allocated), prefetches, first, held);
    }
    if events {
        header.events_from().end();
    }
    Ok(match appended {
        Appended::At(first) => Tried::Done(first + records.len() as u64 - 1),
        Appended::NoRoom(lack) => Tried::NoRoom(lack),
        Appended::Voided => Tried::Again,
    })
}

/// Applies the records of a committed batch, the first of which has this LSN.
fn apply(
    writer: &Writer,
    (records, allocated): (&[Record], &Allocated),
    prefetches: bool,
    first: u64,
    held: &[StripeGuard<'_, Local>],
) {
    let (shared, header) = (&writer.shared, writer.shared.header());
    let kind = shared.kind();
    let mut banks = allocated.banks.iter().peekable();
    let mut current = &allocated.banks[0].1;
    for (at, record) in records.iter().enumerate() {
        if let Some(ahead) = records.get(at + AHEAD)
            && prefetches
            && let Some(operation) = records::operation(kind, ahead)
        {
            writer.prefetch_to_write(operation.hash);
        }
        while let Some((_, next)) = banks.next_if(|(from, _)| *from <= at) {
            current = next;
        }
        let lsn = first + at as u64;
        let word = Stamp { time: record.time, stream: record.stream }.word();
        let operation = records::operation(kind, record);
        let index = operation.map_or(0, |operation| shared.stripe_of(operation.hash));
        let Some(stripe) = of_stripe(held, index) else { continue };
        if let Some(operation) = operation {
            change(writer, current, &operation, lsn);
            let counts = records::counts(shared.weighs, record);
            stripe.entry().count(lsn, word, counts);
            // One by one: after a death the sums lack one operation at most.
            header.counters().count(shared.shard(), counts.inserts, counts.new_bits);
            writer.time.raise(word);
        } else if let Some(event) = event::from_record(record) {
            apply_record::apply_event(&shared.image, kind, lsn, &event);
            stripe.entry().note(lsn, word);
            writer.time.raise(word);
        } else {
            match record.op {
                Op::Position => header.positions().set(lsn, record.payload, record.time),
                Op::Claim | Op::Release => header.claims().apply(lsn, record),
                // An operation or an event, above; or a record that no batch has.
                Op::Insert
                | Op::Remove
                | Op::Step
                | Op::OpenBank
                | Op::CloseBank
                | Op::Heartbeat
                | Op::Clear
                | Op::Durable
                | Op::Void
                | Op::Batch => {}
            }
            stripe.entry().note(lsn, 0);
        }
    }
    give_back_rooms(kind, &allocated.banks[0].1, &allocated.rooms);
}

/// Applies an operation to the key's blocks.
fn change(writer: &Writer, banks: &BankSet, operation: &Operation, lsn: u64) {
    let kind = writer.shared.kind();
    let state = writer.shared.header().state();
    let located = banks.locate(kind.touches(&state, operation.step), operation.hash);
    located.begin();
    records::change(kind, &state, &located.blocks, operation);
    located.end(Some(lsn));
}

/// Frees the room that blocks were given for a batch and do not use after it.
fn give_back_rooms(kind: &dyn Kind, banks: &BankSet, rooms: &[Room]) {
    let (Some(growth), Some(bank)) = (kind.growth(), banks.get(0)) else { return };
    for room in rooms {
        let used = growth.room_now(&bank.block(room.block as usize).1);
        if used < room.words {
            bank.free(room.block, used);
        }
    }
}
