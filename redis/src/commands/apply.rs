//! The commands that apply effects: what another server, or this one before, has decided.
//!
//! A filter refuses a record of another filter or LSN, so a wrong effect of an ordinary client
//! changes nothing; a right one is whatever its author decides, within the limits of this server.
//! From the primary or the append-only file a wrong one is a divergence, and the filter answers no
//! questions any more.

use super::effects::{
    APPLY, CREATE, LOAD_CHUNK, RECORD, RESERVED, Run, SUCCEED, exists, not_altered, replicate,
    succeeded,
};
use super::key::present;
use super::limits;
use crate::arguments::{number, refused, wrong};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome};
use crate::pieces::Import;
use crate::value::Value;
use ebbtide_core::Error;
use ebbtide_core::machine::{Logged, Machine, Position};

/// Checks that a call has no more arguments than its command takes.
fn at_most(call: &Call<'_>, most: usize) -> Outcome {
    if call.count() <= most {
        return Ok(());
    }
    Err(Failure::new("ERR", "wrong number of arguments"))
}

/// Applies the records that a new filter begins with, if there are any. Those of a client are
/// refused together. Returns the failure after which the filter is diverged.
fn begin(
    call: &Call<'_>,
    machine: &mut Machine,
    records: &[u8],
) -> Result<Option<Failure>, Failure> {
    if records.is_empty() {
        return Ok(None);
    }
    limits::given_records(call, records.len() / RECORD)?;
    match apply(machine, 1, records) {
        Ok(_) => Ok(None),
        Err((_, failure)) if call.is_replayed() => Ok(Some(failure)),
        Err((_, failure)) => Err(failure),
    }
}

/// Notes that a filter has begun with records that another server has decided, and replies.
fn begun(call: &Call<'_>, value: &mut Value, failed: Option<Failure>) -> Outcome {
    let next = value.machine()?.position().next_lsn;
    if next > 1 {
        value.applied(1, next);
    }
    if let Some(failure) = failed {
        value.set_diverged(true);
        return Err(failure);
    }
    call.ok();
    Ok(())
}

/// `EB.CREATE key identity [records]`: a new filter, with its first records.
pub struct Create;

impl Command for Create {
    const ABOUT: About = About {
        name: CREATE,
        arity: -3,
        flags: c"write",
        categories: c"write admin dangerous",
        key: 1,
        access: Access::Create,
        summary: c"Creates the filter of an identity. Sent to replicas by EB.RESERVE.",
        complexity: c"O(N) for N records",
    };

    fn run(call: &Call<'_>) -> Outcome {
        at_most(call, 4)?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        if slot.value().is_some() {
            return Err(exists());
        }
        let (identity, records) = (call.argument(2), call.argument(3));
        let mut machine = Machine::from_identity(identity).map_err(|error| refused(&error))?;
        limits::new_filter(call, machine.planned_bytes())?;
        limits::memory(call)?;
        let failed = begin(call, &mut machine, records)?;
        slot.set(Box::new(Value::ready(machine)));
        // This server's own append-only file and replicas come to the same, also if it failed.
        call.replicate(CREATE, identity, records);
        // Other modules that hear of it look at the key.
        call.changed(RESERVED);
        begun(call, present(&mut slot)?, failed)
    }
}

/// `EB.SUCCEED key identity [records]`: a new filter, with its first records, in the place of the
/// present one, which becomes the former one.
pub struct Succeed;

impl Command for Succeed {
    const ABOUT: About = About {
        name: SUCCEED,
        access: Access::Change,
        summary: c"Begins the alteration of a filter. Sent to replicas by EB.ALTER.",
        ..Create::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        at_most(call, 4)?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let before = value.machine()?.planned_bytes();
        // Whoever decided it knew that the former filter was over, which may be a matter of time.
        if !call.is_replayed() {
            not_altered(value)?;
        }
        let (identity, records) = (call.argument(2), call.argument(3));
        let mut machine = Machine::from_identity(identity).map_err(|error| refused(&error))?;
        limits::altered_filter(call, machine.planned_bytes(), before)?;
        limits::memory(call)?;
        let failed = begin(call, &mut machine, records)?;
        let done = succeeded(call, value, machine, records);
        done.map_err(|why| Failure::new("PARAMETER", why))?;
        begun(call, value, failed)
    }
}

/// `EB.APPLY key lsn records [lsn records]`: applies what another server has decided.
pub struct Apply;

impl Command for Apply {
    const ABOUT: About = About {
        name: APPLY,
        arity: -4,
        flags: c"write",
        categories: c"write admin dangerous",
        key: 1,
        access: Access::Change,
        summary: c"Applies records to a filter. Sent to replicas by commands that change it.",
        complexity: c"O(N) for N records",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let run = |at| -> Result<Run<'_>, Failure> {
            Ok((number("LSN", "a number", call.argument(at))?, call.argument(at + 1)))
        };
        let (runs, given) = match call.count() {
            4 => ([run(2)?, (0, &[][..])], 1),
            6 => ([run(2)?, run(4)?], 2),
            _ => return Err(Failure::new("ERR", "wrong number of arguments")),
        };
        limits::given_records(call, (runs[0].1.len() + runs[1].1.len()) / RECORD)?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        limits::memory(call)?;
        // What of each run was applied.
        let (mut done, mut failed) = ([(0, &[][..]); 2], None);
        for (&(lsn, records), done) in runs[..given].iter().zip(&mut done) {
            let applied = apply_run(value, (lsn, records));
            let (count, failure) = applied.unwrap_or_else(|failure| (0, Some(failure)));
            *done = (lsn, &records[..count * RECORD]);
            failed = failure;
            if failed.is_some() {
                break;
            }
        }
        // (One that is not ready, or is diverged already, stays as it is.)
        if failed.is_some() && call.is_replayed() && value.machine().is_ok() {
            value.set_diverged(true);
            // This server's own append-only file and replicas must come to the same.
            match runs {
                [(lsn, records), _] if given == 1 => call.replicate_numbered(APPLY, lsn, records),
                both => call.replicate_twice_numbered(APPLY, both),
            }
        } else {
            replicate(call, done);
        }
        if done.iter().any(|(_, records)| !records.is_empty()) {
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

/// Applies a run of records to that filter of a value which they are of. Returns how many were
/// applied, and why the next one was not.
///
/// # Errors
/// As [`Value::machine`].
#[inline]
fn apply_run(
    value: &mut Value,
    (lsn, records): Run<'_>,
) -> Result<(usize, Option<Failure>), Failure> {
    let (applied, is_current) = apply_to_one(value, lsn, records)?;
    let (count, failed) = match applied {
        Ok(count) => (count, None),
        Err((count, failure)) => (count, Some(failure)),
    };
    if count > 0 {
        value.applied(lsn, lsn + count as u64);
        if is_current {
            value.settle(lsn, &records[..count * RECORD]);
        }
    }
    Ok((count, failed))
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
    if !rest.is_empty() || records.is_empty() {
        let expected = format!("records of {RECORD} bytes");
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
