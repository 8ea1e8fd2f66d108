//! Committing a batch: all of its records, or none; the protocol is in `docs/architecture.md`.

use crate::engine::log_writer::Appended;
use crate::engine::outcome::{Checked, Precondition, Request, Since, Waits, WriteOutcome};
use crate::engine::overlay::Access;
use crate::engine::prepared::Prepared;
use crate::engine::shared::Local;
use crate::engine::staging::{Allocated, BatchOperation, Host, Room, Staging, Unstaged};
use crate::engine::time::Stamp;
use crate::engine::write::Writer;
use crate::error::{Error, Result};
use crate::image::BankSet;
use crate::image::positions::MOST_SOURCES;
use crate::locks::stripes::StripeGuard;
use crate::wal::{Op, Record};
use ebbtide_core::event;
use ebbtide_core::kind::{self, Kind, MOST_WEIGHT, Operation, records};

/// The operations whose cells are prefetched ahead of the one that is staged or applied.
const AHEAD: usize = 16;

/// What a batch sets beside its operations, and how long it waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings<'b> {
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
pub(crate) fn commit(writer: &Writer, batch: &mut Prepared, with: Settings<'_>) -> Result<u64> {
    while_space_is_made(writer, with.waits, || {
        // Now rather than while it holds all of its stripes.
        writer.stripes.be_courteous(batch.operations().len(), with.waits);
        let mut held = lock(writer, batch, with)?;
        commit_held(writer, batch, with, &mut held)
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
    let (change, read) = (precondition.change(), writer.time.read_clock());
    let operation = BatchOperation { change, hash, weight, time, read, is_new: false };
    let batch = &mut Prepared::of(operation);
    let with = Settings { positions: &[], waits };
    while_space_is_made(writer, waits, || {
        let mut held = lock(writer, batch, with)?;
        writer.shared.check_writable()?;
        let (present, unchanged) = writer.check(request)?;
        if let Some(checked) = unchanged {
            let lsn = held.iter().map(|stripe| stripe.entry().lsn()).max().unwrap_or(0);
            return Ok(WriteOutcome { checked, lsn });
        }
        let lsn = commit_held(writer, batch, with, &mut held)?;
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

/// Takes all stripes, in ascending order and stripe 0 last.
fn lock<'w>(writer: &'w Writer, batch: &Prepared, with: Settings<'_>) -> Result<Held<'w>> {
    let layout = writer.shared.image.layout();
    let stripe = |operation: &BatchOperation| layout.stripe_of(operation.hash) + 1;
    let mut indexes: Vec<usize> = batch.operations().iter().map(stripe).collect();
    indexes.sort_unstable();
    indexes.dedup();
    if !with.positions.is_empty() {
        indexes.push(0);
    }
    let lock = |index| writer.stripes.lock_unless_closed(index, with.waits);
    indexes.into_iter().map(lock).collect()
}

/// Applies a batch whose stripes are held.
fn commit_held<'w>(
    writer: &'w Writer,
    batch: &mut Prepared,
    with: Settings<'_>,
    held: &mut Held<'w>,
) -> Result<u64> {
    let shared = &writer.shared;
    loop {
        shared.check_writable()?;
        match attempt(writer, batch, with, held)? {
            Attempt::Done(lsn) => return Ok(lsn),
            Attempt::Again => {}
            Attempt::NeedsEvents | Attempt::NoRoom(_) if with.waits.never() => {
                return Err(shared.would_wait("a step of the filter, or more log"));
            }
            Attempt::NeedsEvents => {
                held.push(writer.stripes.lock_unless_closed(0, with.waits)?);
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

/// Returns whether another caller has changed a key's stripe since the batch read it.
fn is_changed(batch: &Prepared, stripe: &StripeGuard<'_, Local>) -> bool {
    stripe.index() > 0 && batch.is_changed(stripe.index() - 1, stripe.entry().lsn())
}

/// Stages what is not staged yet: all operations again, if another caller has written since.
///
/// # Errors
/// [`Error::Conflict`] if another caller has inserted a key that was answered as new.
fn stage(
    writer: &Writer,
    batch: &mut Prepared,
    held: &Held<'_>,
) -> std::result::Result<(), Unstaged> {
    let host = Host { writer, access: Access::Held, holds_events: holds_events(held) };
    let still_holds = |staging: &Staging| staging.still_holds(writer);
    let is_current = batch.staging.as_ref().is_some_and(still_holds)
        && !held.iter().any(|stripe| is_changed(batch, stripe));
    let layout = writer.shared.image.layout();
    // Only others' writes to the key's stripe can have changed an answer.
    let checks = |batch: &Prepared, operation: &BatchOperation| {
        let stripe = of_stripe(held, layout.stripe_of(operation.hash) + 1);
        operation.is_new && stripe.is_some_and(|stripe| is_changed(batch, stripe))
    };
    if !is_current {
        let asks = batch.operations().iter().any(|operation| checks(batch, operation));
        batch.begin(writer, asks)?;
    }
    while let Some(operation) = batch.next() {
        if let Some(ahead) = batch.ahead(AHEAD)
            && batch.staging.as_ref().is_some_and(Staging::reads_blocks)
        {
            writer.prefetch_to_write(ahead.hash);
        }
        if !checks(batch, &operation) {
            batch.add(host, &operation, Precondition::Nothing)?;
            continue;
        }
        let added = batch.add(host, &operation, Precondition::Present(Since::LastSeen))?;
        // Of a key that is present at its place in the batch, but not before the batch, the answer
        // was that this batch has inserted it long enough before.
        if added.checked == Checked::Present
            && writer
                .queries
                .contains_held(operation.hash, &writer.time.exact_moment(added.stamp))?
        {
            let path = writer.shared.media.path().to_path_buf();
            return Err(Error::Conflict { path, operation: batch.staged() - 1 }.into());
        }
    }
    let needs_events = batch.staging.as_ref().is_some_and(|staging| staging.has_events);
    if needs_events && !host.holds_events {
        return Err(Unstaged::NeedsEvents);
    }
    Ok(())
}

fn attempt(
    writer: &Writer,
    batch: &mut Prepared,
    with: Settings<'_>,
    held: &Held<'_>,
) -> Result<Attempt> {
    let header = writer.shared.image.header();
    if !header.positions().has_room_for(with.positions.iter().map(|(source, _)| source)) {
        let expected = format!("at most {MOST_SOURCES} sources in a filter");
        return Err(Error::parameter("position", expected, "another one"));
    }
    if !with.positions.is_empty() {
        header.allocate_positions(&*writer.shared.media)?;
    }
    let is_staged = batch.next().is_none() && batch.staging.is_some();
    match stage(writer, batch, held) {
        Ok(()) => {}
        Err(Unstaged::NeedsEvents) => return Ok(Attempt::NeedsEvents),
        Err(Unstaged::Outdated) => {
            batch.staging = None;
            return Ok(Attempt::Again);
        }
        Err(Unstaged::Failed(error)) => return Err(error),
    }
    let late = batch.late();
    let Some(staging) = &mut batch.staging else { return Ok(Attempt::Again) };
    let allocated = staging.allocate(writer)?;
    let operations = staging.records.len();
    staging.records.extend(with.positions.iter().map(|&(source, position)| Record {
        payload: source,
        time: position,
        ..Record::new(Op::Position)
    }));
    let attempt = append(writer, staging, &allocated, is_staged, held);
    staging.records.truncate(operations);
    if let Attempt::Done(_) = attempt {
        if let Some(raised) = staging.raised() {
            writer.time.raise_base(raised);
        }
        (0..staging.refused + late).for_each(|_| header.refused().add());
    }
    Ok(attempt)
}

/// Appends the records, and applies them. `prefetches` makes it prefetch the keys' blocks.
fn append(
    writer: &Writer,
    staging: &Staging,
    allocated: &Allocated,
    prefetches: bool,
    held: &Held<'_>,
) -> Attempt {
    let header = writer.shared.image.header();
    let records = &staging.records;
    if records.is_empty() {
        let stripes = held.iter().map(|stripe| stripe.entry().lsn());
        return Attempt::Done(stripes.max().unwrap_or(0));
    }
    let events = holds_events(held);
    let announce = |tail| {
        if events {
            header.events_from().announce_batch(tail);
        }
    };
    match writer.log_writer.append_batch(records, announce) {
        Appended::NoRoom => Attempt::NoRoom(records.len() as u64 + 1),
        Appended::Voided => Attempt::Again,
        Appended::At(head) => {
            let prefetches = prefetches || !staging.reads_blocks();
            apply(writer, (records, allocated), prefetches, head + 1, held);
            if events {
                header.events_from().end_batch();
            }
            Attempt::Done(head + records.len() as u64)
        }
    }
}

/// Applies the records of a batch that counts, the first of which has this LSN.
fn apply(
    writer: &Writer,
    (records, allocated): (&[Record], &Allocated),
    prefetches: bool,
    first: u64,
    held: &[StripeGuard<'_, Local>],
) {
    let (shared, header) = (&writer.shared, writer.shared.image.header());
    let (kind, layout) = (&*shared.meta.kind, shared.image.layout());
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
    give_back_rooms(kind, &allocated.banks[0].1, &allocated.rooms);
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
fn give_back_rooms(kind: &dyn Kind, banks: &BankSet, rooms: &[Room]) {
    let (Some(growth), Some(bank)) = (kind.growth(), banks.get(0)) else { return };
    for room in rooms {
        let used = growth.room_now(&bank.block(room.block as usize).1);
        if used < room.words {
            bank.free(room.block, used);
        }
    }
}
