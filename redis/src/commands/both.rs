//! Writing to a filter that is being altered: decided on both filters, then written to both.

use super::effects::{Logs, emit_both};
use super::key::now;
use crate::ffi::{Call, Failure};
use crate::former::{Former, View};
use crate::leases::Leases;
use crate::value::Value;
use ebbtide_core::claims::LeaseTime;
use ebbtide_core::kind::{Precondition, Request};
use ebbtide_core::machine::{ClaimAnswer, Machine};
use ebbtide_core::time::OperationTime;
use ebbtide_core::{Checked, Result as Decided, Since};
use std::ffi::CStr;

/// The times of an operation on the current and on the former filter.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    current: OperationTime,
    former: OperationTime,
}

impl Times {
    /// Returns the times of an operation without a given one.
    pub fn now(current: &Machine, former: &Former) -> Self {
        Self { current: now(current), former: now(former.machine()) }
    }

    /// Returns a time that was given.
    pub fn given(time: OperationTime) -> Self {
        Self { current: time, former: time }
    }
}

/// Returns whether the former filter has an item within the current window.
fn former_contains(current: &Machine, former: &Former, hash: u64, times: Times) -> bool {
    let view = View::at((current, times.current.time), (former, times.former.time));
    view.former_contains(hash)
}

/// Inserts an item unless it is present, or in any case.
///
/// # Errors
/// As [`Machine::write`].
fn insert(
    current: &mut Machine,
    former: &mut Former,
    since: Since,
    (hash, times): (u64, Times),
    logs: &mut Logs,
) -> Decided<Checked> {
    let is_there = former_contains(current, former, hash, times);
    if is_there && since == Since::LastAccepted {
        return Ok(Checked::Present);
    }
    let before = current.position().next_lsn;
    let log = &mut |record| logs.current.push(record);
    let checked = current.check_and_insert(hash, since, times.current, log)?;
    let is_recorded = current.position().next_lsn != before && !checked.is_too_late();
    if is_recorded {
        follow(former, hash, times, logs)?;
    }
    Ok(if is_there { Checked::Present } else { checked })
}

/// Inserts an item that was inserted in the current filter, so that the window of the former one
/// moves on.
fn follow(former: &mut Former, hash: u64, times: Times, logs: &mut Logs) -> Decided<()> {
    if former.has_window() {
        let request = Request::insert(hash).under(Precondition::Nothing);
        let log = &mut |record| logs.former.push(record);
        former.machine_mut().write(&request, times.former, log)?;
    }
    Ok(())
}

/// Inserts items, one after the other, if the filter is being altered. `times` returns for each its
/// hash and its time.
///
/// # Errors
/// As [`emit_both`].
pub fn insert_all(
    call: &Call<'_>,
    value: &mut Value,
    event: &CStr,
    since: Since,
    items: impl FnOnce(&Machine, &Former) -> Vec<(u64, Times)>,
) -> Result<Option<Vec<Checked>>, Failure> {
    emit_both(call, value, event, |current, former, logs| {
        let items = items(current, former);
        let each = items.into_iter().map(|item| insert(current, former, since, item, logs));
        each.collect()
    })
}

/// As [`insert_all`], one item at the present time.
///
/// # Errors
/// As there.
#[cold]
pub fn insert_one(
    call: &Call<'_>,
    value: &mut Value,
    event: &CStr,
    since: Since,
) -> Result<Option<Checked>, Failure> {
    emit_both(call, value, event, |current, former, logs| {
        let item = (current.hash(call.argument(2)), Times::now(current, former));
        insert(current, former, since, item, logs)
    })
}

/// Claims the item of a call for a lease, if the filter is being altered.
///
/// # Errors
/// As [`emit_both`].
pub fn claim(
    call: &Call<'_>,
    value: &mut Value,
    (event, leases): (&CStr, &mut Leases),
    lease: LeaseTime,
) -> Result<Option<ClaimAnswer>, Failure> {
    emit_both(call, value, event, |current, former, logs| {
        let (hash, times) = (current.hash(call.argument(2)), Times::now(current, former));
        if former_contains(current, former, hash, times) {
            return Ok(ClaimAnswer::Seen);
        }
        let log = &mut |record| logs.current.push(record);
        leases.claim(current, (hash, lease), times.current, log)
    })
}

/// Inserts the item of a call and ends its claim, if the filter is being altered.
///
/// # Errors
/// As [`emit_both`].
pub fn confirm(
    call: &Call<'_>,
    value: &mut Value,
    (event, leases): (&CStr, Leases),
    token: u64,
) -> Result<Option<()>, Failure> {
    emit_both(call, value, event, |current, former, logs| {
        let (hash, times) = (current.hash(call.argument(2)), Times::now(current, former));
        let log = &mut |record| logs.current.push(record);
        current.confirm((hash, token), leases.now(), times.current, log)?;
        follow(former, hash, times, logs)
    })
}
