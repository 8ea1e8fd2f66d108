//! Committing a batch of the caller: all of its records, or none; the protocol is in
//! `docs/protocols/batches.md`.

use crate::engine::batch::append_staged::{self, AHEAD, Held, holds_stripe_0, of_stripe};
use crate::engine::batch::before_commit::Prepared;
use crate::engine::batch::overlay::BlockAccess;
use crate::engine::batch::staging::{BatchOperation, EventHandling, Host, Staging, Unstaged};
use crate::engine::shared::Local;
use crate::engine::stripes::Wait;
use crate::engine::time::lease_time::ClaimedKey;
use crate::engine::write::request::{Checked, Precondition, Since, Waits};
use crate::engine::write::writer::{Tried, Writer};
use crate::error::{Error, Result};
use crate::image::positions::MOST_SOURCES;
use crate::locks::handle_stripes::StripeGuard;
use crate::wal::{Op, Record};
use ebbtide_core::claims::HeldClaim;

/// What a batch sets beside its operations, and how long it waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings<'b> {
    /// Sources and their positions.
    pub(crate) positions: &'b [(u64, u64)],
    /// Claims that end.
    pub(crate) confirms: &'b [ClaimedKey],
    pub(crate) waits: Waits,
}

/// Applies a batch, all or nothing. Returns the LSN up to which the log must be durable for it to
/// be durable.
///
/// # Errors
/// [`Error::Conflict`], [`Error::LeaseLost`], [`Error::WouldWait`], [`Error::Io`],
/// [`Error::Poisoned`] and others: nothing has happened.
pub(crate) fn commit(writer: &Writer, batch: &mut Prepared, with: Settings<'_>) -> Result<u64> {
    batch.enter(writer);
    let written = writer.while_space_is_made(with.waits, || {
        // Now rather than while it holds all of its stripes.
        writer.stripes.be_courteous(batch.operations().len(), with.waits);
        let mut held = lock(writer, batch, with)?;
        commit_held(writer, batch, with, &mut held)
    })?;
    let lsn = match written {
        Some(lsn) => lsn,
        None => answers_rest_on(writer, batch, with.waits)?,
    };
    let refused = writer.shared.header().refused();
    (0..batch.refused()).for_each(|_| refused.add());
    Ok(lsn)
}

/// Returns the last LSN on which the answers of a batch without records may rest. (Records of a
/// batch have later LSNs than what it read.)
fn answers_rest_on(writer: &Writer, batch: &Prepared, waits: Waits) -> Result<u64> {
    let lsn_of = |stripe: usize| {
        // Under the stripe: a query may see a record that is not counted there yet.
        let stripe = writer.stripes.acquire(stripe, Wait::Operation(waits))?;
        Ok(stripe.entry().lsn())
    };
    let lsns = batch.asked_stripes().map(lsn_of).collect::<Result<Vec<_>>>()?;
    Ok(lsns.into_iter().max().unwrap_or(0))
}

/// Takes the stripes of the batch's keys, in ascending order, and stripe 0 last.
fn lock<'w>(writer: &'w Writer, batch: &Prepared, with: Settings<'_>) -> Result<Held<'w>> {
    let stripe = |operation: &BatchOperation| writer.shared.stripe_of(operation.hash);
    let mut indexes: Vec<usize> = batch.operations().iter().map(stripe).collect();
    indexes.sort_unstable();
    indexes.dedup();
    let lock = |waits| writer.stripes.acquire_all(&indexes, waits);
    if with.positions.is_empty() && with.confirms.is_empty() {
        return lock(with.waits);
    }
    let (mut held, stripe_0) = writer.stripes.acquire_with_stripe_0(with.waits, lock)?;
    held.push(stripe_0);
    Ok(held)
}

/// Applies a batch whose stripes are held. Returns the LSN of its last record; `None` without any.
fn commit_held<'w>(
    writer: &'w Writer,
    batch: &mut Prepared,
    with: Settings<'_>,
    held: &mut Held<'w>,
) -> Result<Tried<Option<u64>>> {
    let mut puts_off = false;
    loop {
        writer.shared.check_writable()?;
        let ended = writer.leases.check_all_held(with.confirms)?;
        let is_staged = batch.next().is_none() && batch.staging.is_some();
        match stage(writer, batch, held, puts_off) {
            Ok(()) if with.waits.never() => refuse_to_allocate(writer, batch, with.positions)?,
            Ok(()) => {}
            Err(Unstaged::NeedsStripe0 { can_be_put_off }) => {
                match append_staged::lock_stripe_0(writer, can_be_put_off, with.waits)? {
                    Some(events) => held.push(events),
                    None => (batch.staging, puts_off) = (None, true),
                }
                continue;
            }
            Err(Unstaged::Outdated) => {
                batch.staging = None;
                continue;
            }
            Err(Unstaged::Failed(error)) => return Err(error),
        }
        allow_positions(writer, with.positions)?;
        let beside = records_beside(with.positions, &ended);
        match append(writer, batch, beside, is_staged, held)? {
            Tried::Again => {}
            tried => return Ok(tried),
        }
    }
}

/// Returns whether another caller has changed a key's stripe since the batch read it.
fn is_changed(batch: &Prepared, stripe: &StripeGuard<'_, Local>) -> bool {
    stripe.index() > 0 && batch.is_changed(stripe.index(), stripe.entry().lsn())
}

/// Stages what is not staged yet: all operations again, if another caller has written since.
/// `puts_off` stages them without events, if the kind can do that and stripe 0 is not held.
///
/// # Errors
/// [`Error::Conflict`] if another caller has inserted a key that was answered as new.
fn stage(
    writer: &Writer,
    batch: &mut Prepared,
    held: &Held<'_>,
    puts_off: bool,
) -> std::result::Result<(), Unstaged> {
    let events = match holds_stripe_0(held) {
        true => EventHandling::Staged,
        false if puts_off => EventHandling::PutOff,
        false => EventHandling::Missing,
    };
    let host = Host { writer, access: BlockAccess::Held, events };
    let still_holds = |staging: &Staging| staging.still_holds(writer);
    let is_current = batch.staging.as_ref().is_some_and(still_holds)
        && !held.iter().any(|stripe| is_changed(batch, stripe));
    // Only others' writes to the key's stripe can have changed an answer.
    let checks = |batch: &Prepared, operation: &BatchOperation| {
        let stripe = of_stripe(held, writer.shared.stripe_of(operation.hash));
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
        let asks = Precondition::Present(Since::LastSeen);
        let (performed, stamp) = batch.add(host, &operation, asks)?;
        // If only the batch's own earlier insert makes the key present, its answer already allowed
        // for that insert.
        if performed.checked == Checked::Present
            && writer.queries.contains_held(operation.hash, &writer.time.exact_moment(stamp))?
        {
            let path = writer.shared.path().to_path_buf();
            return Err(Error::Conflict { path, operation: batch.staged() - 1 }.into());
        }
    }
    let needs_events = batch.staging.as_ref().is_some_and(|staging| staging.has_events);
    if needs_events && events == EventHandling::Missing {
        // The events were staged before the commit. If stripe 0 is busy, staging anew may omit
        // them.
        return Err(Unstaged::NeedsStripe0 { can_be_put_off: true });
    }
    Ok(())
}

/// Refuses to allocate a bank, a room or the space of positions, for a caller that does not wait.
fn refuse_to_allocate(writer: &Writer, batch: &Prepared, positions: &[(u64, u64)]) -> Result<()> {
    if batch.staging.as_ref().is_some_and(Staging::needs_space) {
        return Err(writer.shared.would_wait("memory to be allocated"));
    }
    if !positions.is_empty() && writer.shared.header().positions().all().is_empty() {
        return Err(writer.shared.would_wait("room for positions"));
    }
    Ok(())
}

/// Makes room for positions in the image.
///
/// # Errors
/// [`Error::Parameter`] for too many sources, [`Error::Io`].
fn allow_positions(writer: &Writer, positions: &[(u64, u64)]) -> Result<()> {
    let header = writer.shared.header();
    if !header.positions().has_room_for(positions.iter().map(|(source, _)| source)) {
        let expected = format!("at most {MOST_SOURCES} sources in a filter");
        return Err(Error::parameter("position", expected, "another one"));
    }
    if !positions.is_empty() {
        writer.shared.image.allocate_positions()?;
    }
    Ok(())
}

/// Returns the records of positions, and of the claims that end.
fn records_beside<'b>(
    positions: &'b [(u64, u64)],
    ended: &'b [HeldClaim],
) -> impl Iterator<Item = Record> + 'b {
    let position = |&(source, position): &(u64, u64)| Record {
        payload: source,
        time: position,
        ..Record::new(Op::Position)
    };
    positions.iter().map(position).chain(ended.iter().map(HeldClaim::release))
}

/// Commits the records of a batch that is staged, with these beside them. Returns the LSN of the
/// last one; `None` if there was nothing to write.
fn append(
    writer: &Writer,
    batch: &mut Prepared,
    beside: impl Iterator<Item = Record>,
    prefetches: bool,
    held: &mut Held<'_>,
) -> Result<Tried<Option<u64>>> {
    let Some(staging) = &mut batch.staging else { return Ok(Tried::Again) };
    let operations = staging.records.len();
    staging.records.extend(beside);
    let committed = match staging.records.is_empty() {
        true => Ok(Tried::Done(None)),
        false => {
            append_staged::commit(writer, staging, prefetches, held).map(|tried| tried.map(Some))
        }
    };
    staging.records.truncate(operations);
    if let (Ok(Tried::Done(_)), Some(raised)) = (&committed, staging.raised()) {
        writer.time.raise_base(raised);
    }
    committed
}
