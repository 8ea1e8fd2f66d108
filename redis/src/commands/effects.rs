//! Effects: the commands that replicas and the append-only file get in place of users' commands,
//! and the writing of a filter that emits them.
//!
//! Each command of a user has one effect on a key: of several the server makes a transaction, and a
//! file that ends inside one (after a power cut) is continued by some servers with the transaction
//! still open, so that the next start applies the lost half, too. Hence a new filter comes with its
//! first records, and while a filter is altered, the records of both filters are in one effect. The
//! uuid that seeds the checksums of the records, and the LSN, say which filter is meant.

use super::key::now;
use crate::arguments::refused;
use crate::ffi::{Call, Failure, Outcome, Slot};
use crate::former::Former;
use crate::value::Value;
use ebbtide_core::Result as Decided;
use ebbtide_core::machine::{Logged, Machine};
use std::ffi::CStr;

/// The command that creates a filter.
pub const CREATE: &CStr = c"EB.CREATE";
/// The command that alters a filter.
pub const SUCCEED: &CStr = c"EB.SUCCEED";
/// The command that applies records.
pub const APPLY: &CStr = c"EB.APPLY";
/// The command that adds a piece.
pub const LOAD_CHUNK: &CStr = c"EB.LOADCHUNK";

/// The event of a new filter.
pub const RESERVED: &CStr = c"eb.reserve";

/// Bytes of a record.
pub const RECORD: usize = 32;

/// Returns the effect after which any filter is diverged: command, LSN, record.
pub fn diverging() -> (&'static CStr, u64, [u8; RECORD]) {
    (APPLY, 0, [0; RECORD])
}

/// Records that a filter has emitted in one command. The first two, which most commands do not
/// exceed, need no allocation.
pub struct Log {
    few: [u8; 2 * RECORD],
    length: usize,
    /// All records, if there are more.
    many: Vec<u8>,
}

impl Log {
    /// Creates an empty log.
    #[inline]
    pub fn new() -> Self {
        Self { few: [0; 2 * RECORD], length: 0, many: Vec::new() }
    }

    /// Adds the next record.
    #[inline]
    pub fn push(&mut self, logged: Logged) {
        if let Some(place) = self.few.get_mut(self.length..self.length + RECORD) {
            place.copy_from_slice(&logged.record);
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.extend_from_slice(&logged.record);
        }
        self.length += RECORD;
    }

    #[inline]
    fn records(&self) -> &[u8] {
        if self.many.is_empty() { &self.few[..self.length] } else { &self.many }
    }
}

/// The records of both filters of a key.
pub struct Logs {
    /// Those of the current filter.
    pub current: Log,
    /// Those of the former one.
    pub former: Log,
}

/// Lets `change` change a filter, and propagates the records that it emits; `event` is published if
/// there are any. Records of a change that fails are propagated too: they have been applied.
///
/// # Errors
/// Those of `change`, as a reply.
#[inline]
pub fn emit<T>(
    call: &Call<'_>,
    value: &mut Value,
    event: &CStr,
    change: impl FnOnce(&mut Machine, &mut Log) -> Decided<T>,
) -> Result<T, Failure> {
    let machine = value.machine()?;
    let first = machine.position().next_lsn;
    let mut log = Log::new();
    let changed = change(machine, &mut log);
    if propagate(call, value, [(0, &[]), (first, log.records())]) {
        call.changed(event);
    }
    changed.map_err(|error| refused(&error))
}

/// Records of a filter that follow each other, with the LSN of the first one.
pub type Run<'a> = (u64, &'a [u8]);

/// Propagates what was decided here, of the former filter and of the current one: without records
/// of the former one as a part of the creation, if this call has created the filter. Returns false
/// if there are no records.
#[inline]
fn propagate(call: &Call<'_>, value: &mut Value, runs: [Run<'_>; 2]) -> bool {
    let [former, current] = runs;
    if former.1.is_empty() && current.1.is_empty() {
        return false;
    }
    if !former.1.is_empty() || !call.end_effect(current.1) {
        replicate(call, runs);
    }
    for (first, records) in runs {
        if !records.is_empty() {
            value.emitted(first, first + (records.len() / RECORD) as u64);
        }
    }
    true
}

/// Propagates the runs that have records.
#[inline]
pub fn replicate(call: &Call<'_>, runs: [Run<'_>; 2]) {
    match runs {
        [(_, []), (_, [])] => {}
        [(lsn, records), (_, [])] | [(_, []), (lsn, records)] => {
            call.replicate_numbered(APPLY, lsn, records);
        }
        both => call.replicate_twice_numbered(APPLY, both),
    }
}

/// As [`emit`], of a filter that is being altered and its former one; `None` if it is not being
/// altered. Drops the former filter if the current one has its whole window then.
///
/// # Errors
/// As there.
pub fn emit_both<T>(
    call: &Call<'_>,
    value: &mut Value,
    event: &CStr,
    change: impl FnOnce(&mut Machine, &mut Former, &mut Logs) -> Decided<T>,
) -> Result<Option<T>, Failure> {
    let Some((current, former)) = value.both()? else { return Ok(None) };
    let first = current.position().next_lsn;
    let before = former.machine().position().next_lsn;
    let mut logs = Logs { current: Log::new(), former: Log::new() };
    let changed = change(current, former, &mut logs);
    // The current filter's come last: whoever applies them may drop the former one then.
    let runs = [(before, logs.former.records()), (first, logs.current.records())];
    let is_changed = propagate(call, value, runs);
    value.settle(first, logs.current.records());
    if is_changed {
        call.changed(event);
    }
    changed.map(Some).map_err(|error| refused(&error))
}

/// Gives a new filter to the key, and propagates it, with the records that the call emits next.
pub fn created(call: &Call<'_>, slot: &mut Slot<'_, Value>, machine: Machine) {
    let identity = machine.identity();
    slot.set(Box::new(Value::ready(machine)));
    call.begin_effect(CREATE, identity, RESERVED);
}

/// Puts a new filter in the place of the one of a value, which becomes the former one, and
/// propagates it with the records of its beginning, which it has.
///
/// # Errors
/// Why it cannot follow: then nothing has changed.
pub fn succeed(
    call: &Call<'_>,
    value: &mut Value,
    current: Machine,
    beginning: &Log,
) -> Result<(), &'static str> {
    let records = beginning.records();
    succeeded(call, value, current, records)?;
    value.emitted(1, 1 + (records.len() / RECORD) as u64);
    Ok(())
}

/// As [`succeed`], of records that whoever decided them has counted.
///
/// # Errors
/// As there.
pub fn succeeded(
    call: &Call<'_>,
    value: &mut Value,
    current: Machine,
    records: &[u8],
) -> Result<(), &'static str> {
    let identity = current.identity();
    value.alter(current)?;
    call.replicate(SUCCEED, &identity, records);
    value.settle(1, records);
    call.changed(c"eb.alter");
    Ok(())
}

/// Creates the error for a key that has a value already.
pub fn exists() -> Failure {
    Failure::new(
        "EXISTS",
        "the key has a value already; EB.RESERVE with SAME accepts an equal filter",
    )
}

/// Checks that a filter is not being altered, or that its window is whole by now: then the former
/// filter, which the next change would drop, may be replaced.
///
/// # Errors
/// `ALTERING`; as [`Value::machine`].
pub fn not_altered(value: &mut Value) -> Outcome {
    let is_over = match value.both()? {
        Some((current, former)) => former.is_over(current, now(current).time),
        None => true,
    };
    if is_over {
        return Ok(());
    }
    let message = "the filter is being altered: alter it again when EB.INFO shows whole-in 0";
    Err(Failure::new("ALTERING", message))
}
