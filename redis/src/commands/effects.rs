//! Effects: the commands that replicas and the append-only file get in place of users' commands,
//! and the writing of a filter that emits them.
//!
//! While a filter is altered, a command writes to it and to the former filter: two effects, which
//! the server propagates as one transaction. The uuid that seeds the checksums of the records, and
//! the LSN, say which filter is meant.
//!
//! A filter refuses a record of another filter or LSN, so a wrong effect of an ordinary client
//! changes nothing; a right one is whatever its author decides, within the limits of this server.
//! From the primary or the append-only file a wrong one is a divergence, and the filter answers no
//! questions any more.

use super::key::{now, present};
use super::limits;
use crate::arguments::{number, refused, wrong};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome, Slot};
use crate::former::Former;
use crate::pieces::Import;
use crate::value::Value;
use ebbtide_core::machine::{Logged, Machine, Position};
use ebbtide_core::{Error, Result as Decided};
use std::ffi::CStr;

const CREATE: &CStr = c"EB.CREATE";
const SUCCEED: &CStr = c"EB.SUCCEED";
const APPLY: &CStr = c"EB.APPLY";
/// The command that adds a piece.
pub const LOAD_CHUNK: &CStr = c"EB.LOADCHUNK";

/// Bytes of a record.
const RECORD: usize = 32;
/// The most records of one effect: 1 MiB.
const MOST_RECORDS: usize = 1 << 15;

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
    if propagate(call, value, first, log.records()) {
        call.changed(event);
    }
    changed.map_err(|error| refused(&error))
}

/// Propagates records of a filter, the first of which has this LSN; false if there are none.
#[inline]
fn propagate(call: &Call<'_>, value: &mut Value, first: u64, all: &[u8]) -> bool {
    if all.is_empty() {
        return false;
    }
    let mut lsn = first;
    for records in all.chunks(MOST_RECORDS * RECORD) {
        call.replicate_numbered(APPLY, lsn, records);
        lsn += (records.len() / RECORD) as u64;
    }
    value.emitted(first, lsn);
    true
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
    let is_former_changed = propagate(call, value, before, logs.former.records());
    let is_changed = propagate(call, value, first, logs.current.records());
    value.settle(first, logs.current.records());
    if is_changed || is_former_changed {
        call.changed(event);
    }
    changed.map(Some).map_err(|error| refused(&error))
}

/// Propagates a new filter, and gives it to the key.
pub fn created(call: &Call<'_>, slot: &mut Slot<'_, Value>, machine: Machine) {
    call.replicate(CREATE, &machine.identity());
    slot.set(Box::new(Value::ready(machine)));
    // Other modules that hear of it look at the key.
    call.changed(c"eb.reserve");
}

/// Puts a new filter in the place of the one of a value, which becomes the former one, and
/// propagates it with the records of its beginning.
///
/// # Errors
/// Why it cannot follow: then nothing has changed.
pub fn succeed(
    call: &Call<'_>,
    value: &mut Value,
    current: Machine,
    beginning: &Log,
) -> Result<(), &'static str> {
    let identity = current.identity();
    value.alter(current)?;
    call.replicate(SUCCEED, &identity);
    propagate(call, value, 1, beginning.records());
    value.settle(1, beginning.records());
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

/// `EB.CREATE key identity`: a new, empty filter.
pub struct Create;

impl Command for Create {
    const ABOUT: About = About {
        name: CREATE,
        arity: 3,
        flags: c"write",
        categories: c"write admin dangerous",
        key: 1,
        access: Access::Create,
        summary: c"Creates the empty filter of an identity. Sent to replicas by EB.RESERVE.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        if slot.value().is_some() {
            return Err(exists());
        }
        let machine = Machine::from_identity(call.argument(2)).map_err(|error| refused(&error))?;
        limits::new_filter(call, machine.planned_bytes())?;
        limits::memory(call)?;
        created(call, &mut slot, machine);
        call.ok();
        Ok(())
    }
}

/// `EB.SUCCEED key identity`: a new, empty filter in the place of the present one, which becomes
/// the former one.
pub struct Succeed;

impl Command for Succeed {
    const ABOUT: About = About {
        name: SUCCEED,
        access: Access::Change,
        summary: c"Begins the alteration of a filter. Sent to replicas by EB.ALTER.",
        ..Create::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let before = value.machine()?.planned_bytes();
        // Whoever decided it knew that the former filter was over, which may be a matter of time.
        if !call.is_replayed() {
            not_altered(value)?;
        }
        let machine = Machine::from_identity(call.argument(2)).map_err(|error| refused(&error))?;
        limits::altered_filter(call, machine.planned_bytes(), before)?;
        limits::memory(call)?;
        let begun = succeed(call, value, machine, &Log::new());
        begun.map_err(|why| Failure::new("PARAMETER", why))?;
        call.ok();
        Ok(())
    }
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

/// `EB.APPLY key lsn records`: applies what another server has decided.
pub struct Apply;

impl Command for Apply {
    const ABOUT: About = About {
        name: APPLY,
        arity: 4,
        flags: c"write",
        categories: c"write admin dangerous",
        key: 1,
        access: Access::Change,
        summary: c"Applies records to a filter. Sent to replicas by commands that change it.",
        complexity: c"O(N) for N records",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let lsn: u64 = number("LSN", "a number", call.argument(2))?;
        let records = call.argument(3);
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        limits::memory(call)?;
        let (applied, is_current) = apply_to_one(value, lsn, records)?;
        let count = *applied.as_ref().unwrap_or_else(|(count, _)| count);
        let failed = applied.err().map(|(_, failure)| failure);
        let is_diverged = failed.is_some() && call.is_replayed();
        if is_diverged {
            value.set_diverged(true);
            // This server's own append-only file and replicas must come to the same.
            call.replicate_numbered(APPLY, lsn, records);
        } else if count > 0 {
            call.replicate_numbered(APPLY, lsn, &records[..count * RECORD]);
        }
        if count > 0 {
            value.applied(lsn, lsn + count as u64);
            if is_current {
                value.settle(lsn, &records[..count * RECORD]);
            }
            call.changed(c"eb.apply");
        }
        match failed {
            Some(failure) => Err(failure),
            None => {
                call.ok();
                Ok(())
            }
        }
    }
}

/// What became of records: how many were applied, and the reply if one was not.
type Applied = Result<usize, (usize, Failure)>;

/// Applies records to that filter of a value which they are of. Returns whether it is the current
/// one, which it also is if they continue none.
///
/// # Errors
/// As [`Value::machine`].
fn apply_to_one(value: &mut Value, lsn: u64, bytes: &[u8]) -> Result<(Applied, bool), Failure> {
    if let Some((current, former)) = value.both()? {
        let first = bytes.first_chunk().map(|&record| Logged { lsn, record });
        // One checksum in 2^32 is right for the other filter, too, which must not get the record:
        // all replicas would come to be diverged.
        let continues = |machine: &Machine| {
            let Position { uuid, next_lsn, .. } = machine.position();
            first.is_some_and(|first| lsn == next_lsn && first.decode(uuid).is_some())
        };
        if continues(former.machine()) && !continues(current) {
            return Ok((apply(former.machine_mut(), lsn, bytes), false));
        }
    }
    Ok((apply(value.machine()?, lsn, bytes), true))
}

/// Applies records, the first of which has this LSN; returns their number. If one is wrong that
/// could be known before, none is applied.
///
/// # Errors
/// How many were applied, and the reply.
fn apply(machine: &mut Machine, lsn: u64, bytes: &[u8]) -> Applied {
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() || records.is_empty() || records.len() > MOST_RECORDS {
        let expected = format!("1 to {MOST_RECORDS} records of {RECORD} bytes");
        return Err((0, wrong("records", expected, format!("{} bytes", bytes.len()).as_bytes())));
    }
    let logged = |at: usize| Logged { lsn: lsn.wrapping_add(at as u64), record: records[at] };
    let uuid = machine.position().uuid;
    // The first one is checked before it is applied.
    if let Some(at) = (1..records.len()).find(|&at| logged(at).decode(uuid).is_none()) {
        let failure = format!("record {at} of the command is not of this filter, or damaged");
        return Err((0, Failure::new("DIVERGED", failure)));
    }
    for at in 0..records.len() {
        machine.apply(&logged(at)).map_err(|error| (at, refused(&error)))?;
    }
    Ok(records.len())
}

/// `EB.LOADCHUNK key n piece`: one piece of a saved filter.
pub struct LoadChunk;

impl Command for LoadChunk {
    const ABOUT: About = About {
        name: LOAD_CHUNK,
        arity: 4,
        flags: c"write",
        categories: c"write admin dangerous",
        key: 1,
        access: Access::Create,
        summary: c"Adds one piece of a filter, as EB.SCANDUMP returns them. The last one seals it.",
        complexity: c"O(N) for N bytes",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let given: u32 = number("n", "the number of a piece", call.argument(2))?;
        let piece = call.argument(3);
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        match slot.value() {
            None if given == 0 => {
                let import = Import::begin(piece).map_err(|error| refused(&error))?;
                limits::new_filter(call, import.planned_bytes())?;
                limits::memory(call)?;
                slot.set(Box::new(Value::loading(import)));
            }
            None => {
                return Err(Failure::new("NOTREADY", "there is no such key: begin with piece 0"));
            }
            Some(value) => {
                limits::memory(call)?;
                add(call, value, given, piece)?;
            }
        }
        call.replicate_numbered(LOAD_CHUNK, given.into(), piece);
        call.changed(c"eb.load");
        call.ok();
        Ok(())
    }
}

/// Why a piece was not added.
enum Refused {
    Wrong(Error),
    Failed(Failure),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

/// Adds a piece to those that have come.
fn add(call: &Call<'_>, value: &mut Value, given: u32, piece: &[u8]) -> Outcome {
    let import = value.pieces_so_far_mut().ok_or_else(exists)?;
    let next = import.number();
    if given != next {
        return Err(Failure::new("NOTREADY", format!("expected piece {next}, found {given}")));
    }
    let admit = |planned| limits::new_filter(call, planned).map_err(Refused::Failed);
    import.add(piece, admit).map_err(|why| match why {
        Refused::Wrong(error) => refused(&error),
        Refused::Failed(failure) => failure,
    })?;
    value.complete().map_err(|error| refused(&error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::hash::mix;
    use ebbtide_core::kinds::spec::{Any, Spec};
    use ebbtide_core::machine::MachineOptions;

    /// Two filters whose records have the same seed, so that each decodes as one of the other,
    /// which otherwise happens to one in 2^32.
    fn uuids() -> [u128; 2] {
        [0, u128::from(mix(1)) << 64 | 1]
    }

    fn machine(uuid: u128) -> Machine {
        let spec: Any = "fingerprint window-items=100".parse().expect("a kind");
        let kind = spec.kind().expect("a kind");
        Machine::create(kind, &MachineOptions::new(), 7, uuid).expect("a machine")
    }

    /// Returns the records of items, from the next LSN of a filter on.
    fn records(machine: &mut Machine, items: u64) -> Vec<Logged> {
        let mut records = Vec::new();
        for item in 0..items {
            let (hash, now) = (machine.hash(&item.to_le_bytes()), machine.latest());
            machine.insert(hash, now, &mut |record| records.push(record)).expect("an insert");
        }
        records
    }

    /// Applies a record; returns whether it is of the current filter.
    fn applied(value: &mut Value, record: &Logged) -> Result<bool, Failure> {
        let (applied, is_current) = apply_to_one(value, record.lsn, &record.record)?;
        applied.map_err(|(_, failure)| failure).map(|_| is_current)
    }

    #[test]
    fn a_record_that_decodes_for_both_filters_is_of_the_one_whose_next_lsn_it_has() {
        let [former, current] = uuids().map(|uuid| records(&mut machine(uuid), 7));
        let [first, second] = uuids();
        for record in former.iter().chain(&current) {
            assert!(record.decode(first).is_some() && record.decode(second).is_some());
        }
        let mut value = Value::ready(machine(first));
        for record in &former[..3] {
            assert_eq!(applied(&mut value, record), Ok(true), "before the alteration");
        }
        value.alter(machine(second)).expect("an alteration");
        for (record, is_current) in [
            (&current[0], true),
            (&former[3], false),
            (&current[1], true),
            (&former[4], false),
            (&former[5], false),
            (&current[2], true),
            (&former[6], false),
        ] {
            assert_eq!(applied(&mut value, record), Ok(is_current), "LSN {}", record.lsn);
        }
        // The next one of neither is refused by the current filter, and changes nothing.
        assert!(applied(&mut value, &former[0]).is_err());
        let former = value.former().expect("it is being altered").machine().position();
        let current = value.machine().expect("it is ready").position();
        assert_eq!([former, current].map(|of| of.next_lsn), [8, 4]);
    }

    #[test]
    fn a_record_that_would_be_the_next_one_of_both_filters_is_of_the_current_one() {
        let [first, second] = uuids();
        let mut value = Value::ready(machine(first));
        value.alter(machine(second)).expect("an alteration");
        for record in records(&mut machine(second), 3) {
            assert_eq!(applied(&mut value, &record), Ok(true), "LSN {}", record.lsn);
        }
    }
}
