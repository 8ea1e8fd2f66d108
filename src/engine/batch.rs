//! Committing a batch: all of its records, or none; the protocol is in `docs/architecture.md`.

use crate::engine::log_writer::Appended;
use crate::engine::outcome::{Checked, Given, Request, Waits, WriteOutcome};
use crate::engine::shared::{Local, Shared};
use crate::engine::staging::{Answered, BatchOperation, Staged, Staging, Unstaged};
use crate::engine::time::Stamp;
use crate::engine::write::Writer;
use crate::error::{Error, Result};
use crate::image::BankSet;
use crate::image::positions::MOST_SOURCES;
use crate::locks::stripes::StripeGuard;
use crate::wal::{Op, Record};
use ebbtide_core::event;
use ebbtide_core::kind::{self, Decision, Kind, MOST_WEIGHT, Operation, records};

/// The operations whose cells are prefetched ahead of the one that is staged or applied.
const AHEAD: usize = 16;

/// What a batch does, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contents<'b> {
    pub(crate) operations: &'b [BatchOperation],
    /// Sources and their positions.
    pub(crate) positions: &'b [(u64, u64)],
    pub(crate) waits: Waits,
}

/// The stripes that a commit holds, ascending; stripe 0, if held, comes last.
type Held<'a> = Vec<StripeGuard<'a, Local>>;

/// The outcome of one attempt.
enum Attempt {
    /// Applied; the LSN of the last record.
    Done(u64),
    /// Nothing has happened: stripe 0 is needed.
    NeedsEvents,
    /// Nothing has happened; this many slots are needed.
    NoRoom(u64),
    /// Nothing has happened, or the batch was voided.
    Again,
}

/// Applies a batch, all or nothing. Returns the LSN up to which the log must be durable for it to
/// be durable.
///
/// # Errors
/// [`Error::Conflict`], [`Error::WouldWait`], [`Error::Io`], [`Error::Poisoned`] and others:
/// nothing has happened.
pub(crate) fn commit(writer: &Writer, batch: Contents<'_>) -> Result<u64> {
    while_space_is_made(writer, batch.waits, || {
        // Now rather than while it holds all of its stripes.
        writer.stripes.be_courteous(batch.operations.len(), batch.waits);
        let mut held = lock(writer, batch)?;
        check_answers(writer, batch.operations, &held)?;
        commit_held(writer, batch, &mut held)
    })
}

/// As [`Writer::write`], for any weight.
#[inline(always)]
pub(crate) fn write(writer: &Writer, request: &Request<'_>) -> Result<WriteOutcome> {
    if request.asked.weight > MOST_WEIGHT.into() {
        return write_in_parts(writer, request);
    }
    writer.write(request)
}

/// Inserts or removes a key with a weight that no record holds: a batch of as many records as it
/// takes. The precondition is checked for the whole weight.
#[cold]
fn write_in_parts(writer: &Writer, request: &Request<'_>) -> Result<WriteOutcome> {
    let Request { asked, time, waits, .. } = *request;
    let kind::Request { hash, weight, precondition, .. } = asked;
    let (change, answered) = (precondition.change(), Answered::Settled);
    let operation = [BatchOperation { change, hash, weight, time, answered }];
    let batch = Contents { operations: &operation, positions: &[], waits };
    while_space_is_made(writer, waits, || {
        let mut held = lock(writer, batch)?;
        writer.shared.check_writable()?;
        let (present, unchanged) = writer.check(request)?;
        if let Some(checked) = unchanged {
            let lsn = held.iter().map(|stripe| stripe.entry().lsn()).max().unwrap_or(0);
            return Ok(WriteOutcome { checked, lsn });
        }
        let lsn = commit_held(writer, batch, &mut held)?;
        let checked = Checked::of(present);
        if let (Some(count), Checked::New) = (request.count, checked) {
            let moment = writer.time.exact_moment(writer.time.stamp(time)?);
            count.set(writer.queries.estimate_held(hash, &moment)?);
        }
        Ok(WriteOutcome { checked, lsn })
    })
}

/// Repeats an attempt to write after each checkpoint that may have made space for it.
fn while_space_is_made<T>(
    writer: &Writer,
    waits: Waits,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    writer.shared.check_usable()?;
    let mut waited_after = None;
    loop {
        writer.wait_for_checkpoint(waits)?;
        match attempt() {
            Err(error) => writer.make_space(error, &mut waited_after)?,
            done => return done,
        }
    }
}

/// Answers for a batch whether a key is new, and returns the LSN of its stripe before that.
///
/// # Errors
/// As a query, and [`Error::TimeAhead`].
pub(crate) fn query(writer: &Writer, hash: u64, given: Given) -> Result<(Checked, u64)> {
    let (shared, image) = (&writer.shared, &writer.shared.image);
    shared.check_usable()?;
    // Before the query: an insert that it does not see counts later in this stripe.
    let lsn = image.header().stripe(image.layout().stripe_of(hash) + 1).lsn();
    // Only an operation with a time of its own can be too late.
    let moment = match given.time {
        Some(_) => Some(writer.time.moment(writer.time.stamp(given.time)?)),
        None => None,
    };
    let checked =
        writer.queries.ask_with(hash, given, Shared::totals, |kind, state, blocks, query| {
            let is_late = |moment| kind.decide(state, moment) == Decision::TooLate;
            if kind.contains(state, blocks, query) {
                Checked::Present
            } else if moment.as_ref().is_some_and(is_late) {
                Checked::TooLate
            } else {
                Checked::New
            }
        })?;
    Ok((checked, lsn))
}

/// Takes all stripes, in ascending order and stripe 0 last.
fn lock<'w>(writer: &'w Writer, batch: Contents<'_>) -> Result<Held<'w>> {
    let layout = writer.shared.image.layout();
    let mut indexes: Vec<usize> =
        batch.operations.iter().map(|operation| layout.stripe_of(operation.hash) + 1).collect();
    indexes.sort_unstable();
    indexes.dedup();
    if !batch.positions.is_empty() {
        indexes.push(0);
    }
    let lock = |index| writer.stripes.lock_unless_closed(index, batch.waits);
    indexes.into_iter().map(lock).collect()
}

/// Applies a batch whose stripes are held.
fn commit_held<'w>(writer: &'w Writer, batch: Contents<'_>, held: &mut Held<'w>) -> Result<u64> {
    let shared = &writer.shared;
    loop {
        shared.check_writable()?;
        match attempt(writer, batch, held)? {
            Attempt::Done(lsn) => return Ok(lsn),
            Attempt::Again => {}
            Attempt::NeedsEvents | Attempt::NoRoom(_) if batch.waits.never() => {
                return Err(shared.would_wait("a step of the filter, or more log"));
            }
            Attempt::NeedsEvents => {
                held.push(writer.stripes.lock_unless_closed(0, batch.waits)?);
            }
            Attempt::NoRoom(slots) => {
                // At least once: another writer may take what there is.
                let tail = shared.image.header().tail().hint();
                let wanted = tail.saturating_add(slots).max(shared.log.mapped_end() + 1);
                while shared.log.mapped_end() < wanted {
                    writer.log_writer.make_room(shared.log.mapped_end())?;
                }
            }
        }
    }
}

/// Finds a held stripe.
fn of_stripe<'h, 'a>(
    held: &'h [StripeGuard<'a, Local>],
    index: usize,
) -> Option<&'h StripeGuard<'a, Local>> {
    let ordinary = held.len() - usize::from(holds_events(held));
    if index == 0 {
        return held.get(ordinary);
    }
    let at = held[..ordinary].binary_search_by_key(&index, StripeGuard::index).ok()?;
    held.get(at)
}

fn holds_events(held: &[StripeGuard<'_, Local>]) -> bool {
    held.last().is_some_and(|last| last.index() == 0)
}

/// Checks that no key that was answered as new was inserted by another caller since.
fn check_answers(
    writer: &Writer,
    operations: &[BatchOperation],
    held: &[StripeGuard<'_, Local>],
) -> Result<()> {
    let layout = writer.shared.image.layout();
    let mut moment = None;
    for (number, operation) in operations.iter().enumerate() {
        let Answered::NewAt(lsn) = operation.answered else { continue };
        let stripe = of_stripe(held, layout.stripe_of(operation.hash) + 1);
        if stripe.is_none_or(|stripe| stripe.entry().lsn() == lsn) {
            continue;
        }
        let stamp = writer.time.stamp(operation.time)?;
        let moment = match operation.time {
            Some(_) => &writer.time.exact_moment(stamp),
            None => moment.get_or_insert_with(|| writer.time.exact_moment(stamp)),
        };
        if writer.queries.contains_held(operation.hash, moment)? {
            let path = writer.shared.media.path().to_path_buf();
            return Err(Error::Conflict { path, operation: number });
        }
    }
    Ok(())
}

fn attempt(writer: &Writer, batch: Contents<'_>, held: &Held<'_>) -> Result<Attempt> {
    let header = writer.shared.image.header();
    let events = holds_events(held);
    if !header.positions().has_room_for(batch.positions.iter().map(|(source, _)| source)) {
        let expected = format!("at most {MOST_SOURCES} sources in a filter");
        return Err(Error::parameter("position", expected, "another one"));
    }
    if !batch.positions.is_empty() {
        header.allocate_positions(&*writer.shared.media)?;
    }
    // Under the stripes, so that the clock's times within a stripe never decrease.
    let mut staging = Staging::new(writer, writer.time.reading(), events)?;
    staging.reserve(batch.operations.len(), batch.positions.len());
    for (at, operation) in batch.operations.iter().enumerate() {
        if let Some(ahead) = batch.operations.get(at + AHEAD)
            && staging.depends
        {
            writer.prefetch_to_write(ahead.hash);
        }
        match staging.add(operation) {
            Ok(()) => {}
            Err(Unstaged::NeedsEvents) => return Ok(Attempt::NeedsEvents),
            Err(Unstaged::Outdated) => return Ok(Attempt::Again),
            Err(Unstaged::Failed(error)) => return Err(error),
        }
    }
    let mut staged = staging.finish();
    staged.records.extend(batch.positions.iter().map(|&(source, position)| Record {
        payload: source,
        time: position,
        ..Record::new(Op::Position)
    }));
    if staged.records.is_empty() {
        refuse(writer, &staged);
        let stripes = held.iter().map(|stripe| stripe.entry().lsn());
        return Ok(Attempt::Done(stripes.max().unwrap_or(0)));
    }
    let announce = |tail| {
        if events {
            header.events_from().announce_batch(tail);
        }
    };
    match writer.log_writer.append_batch(&staged.records, announce) {
        Appended::NoRoom => Ok(Attempt::NoRoom(staged.records.len() as u64 + 1)),
        Appended::Voided => Ok(Attempt::Again),
        Appended::At(head) => {
            apply(writer, &staged, head + 1, held);
            if events {
                header.events_from().end_batch();
            }
            if let Some(time) = staged.clock_from {
                writer.time.continue_from(time);
            }
            refuse(writer, &staged);
            Ok(Attempt::Done(head + staged.records.len() as u64))
        }
    }
}

fn refuse(writer: &Writer, staged: &Staged) {
    (0..staged.refused).for_each(|_| writer.shared.image.header().refused().add());
}

/// Applies the records of a batch that counts, the first of which has this LSN.
fn apply(writer: &Writer, staged: &Staged, first: u64, held: &[StripeGuard<'_, Local>]) {
    let (shared, header) = (&writer.shared, writer.shared.image.header());
    let (kind, layout) = (&*shared.meta.kind, shared.image.layout());
    let mut banks = staged.banks.iter().peekable();
    let mut current = &staged.banks[0].1;
    for (at, record) in staged.records.iter().enumerate() {
        if let Some(ahead) = staged.records.get(at + AHEAD)
            && !staged.read_blocks
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
        let index = operation.map_or(0, |operation| layout.stripe_of(operation.hash) + 1);
        let Some(stripe) = of_stripe(held, index) else { continue };
        if let Some(operation) = operation {
            change(writer, current, &operation, lsn);
            let counts = records::counts(shared.weighs, record);
            stripe.entry().count(lsn, word, counts);
            // One by one: after a death the sums are late by one operation at most.
            header.counters().count(shared.shard(), counts.inserts, counts.new_bits);
            writer.time.raise(word);
        } else if let Some(event) = event::from_record(record) {
            shared.image.apply_event(kind, lsn, &event);
            stripe.entry().note(lsn, word);
            writer.time.raise(word);
        } else {
            header.positions().set(lsn, record.payload, record.time);
            stripe.entry().note(lsn, 0);
        }
    }
    give_back_rooms(kind, &staged.banks[0].1, &staged.rooms);
}

/// Applies an operation to the key's blocks.
fn change(writer: &Writer, banks: &BankSet, operation: &Operation, lsn: u64) {
    let kind = &*writer.shared.meta.kind;
    let state = writer.shared.image.header().state();
    let located = banks.locate(kind.touches(&state, operation.step), operation.hash);
    located.begin();
    records::change(kind, &state, &located.blocks, operation);
    located.end(Some(lsn));
}

/// Frees the room that blocks were given for a batch and do not use after it.
fn give_back_rooms(kind: &dyn Kind, banks: &BankSet, rooms: &[(u64, usize)]) {
    let (Some(growth), Some(bank)) = (kind.growth(), banks.get(0)) else { return };
    for &(number, room) in rooms {
        let used = growth.room_now(&bank.block(number as usize).1);
        if used < room {
            bank.free(number, used);
        }
    }
}
