//! What a filter is, how full it is, and its content as pieces.

use super::key::{now, present};
use crate::arguments::{is, number, syntax, wrong};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome, Stored};
use crate::former::Former;
use crate::value::Value;
use ebbtide_core::Kind;
use ebbtide_core::kinds::spec::Any;
use ebbtide_core::machine::Machine;

/// The most blocks of each bank that `EB.INFO` looks at.
const SAMPLED: u64 = 64;

/// One figure of `EB.INFO`.
enum Field {
    Text(String),
    Whole(u64),
    Real(f64),
}

impl Field {
    fn reply(&self, call: &Call<'_>) {
        match self {
            Self::Text(text) => call.bytes(text.as_bytes()),
            Self::Whole(number) => call.integer(i64::try_from(*number).unwrap_or(i64::MAX)),
            Self::Real(number) => call.double(*number),
        }
    }
}

/// `EB.INFO key [field]`.
pub struct Info;

impl Command for Info {
    const ABOUT: About = About {
        name: c"EB.INFO",
        arity: -2,
        flags: c"readonly",
        categories: c"read",
        key: 1,
        access: Access::Read,
        summary: c"Returns kind, parameters, size, fill and rates of a filter, or one of them.",
        complexity: c"O(N) for N claims: at most 64 blocks are looked at",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let fields = fields(present(&mut slot)?);
        match call.count() {
            2 => {
                call.map(fields.len());
                for (name, field) in &fields {
                    call.bytes(name.as_bytes());
                    field.reply(call);
                }
                Ok(())
            }
            3 => {
                let asked = call.argument(2);
                let found = fields.iter().find(|(name, _)| is(asked, name));
                let names = || fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                let (_, field) =
                    found.ok_or_else(|| wrong("field", format!("one of {}", names()), asked))?;
                field.reply(call);
                Ok(())
            }
            _ => Err(syntax("EB.INFO key [field]")),
        }
    }
}

/// Returns a kind with its parameters.
fn text_of(kind: &dyn Kind) -> String {
    Any::new(kind.name(), kind.parameters()).to_string()
}

fn fields(value: &mut Value) -> Vec<(&'static str, Field)> {
    let time = value.leases().now();
    let Some(machine) = value.any_machine() else {
        let next = value.pieces_so_far().map_or(0, |pieces| pieces.number());
        return vec![
            ("state", Field::Text(value.state().to_owned())),
            ("memory", Field::Whole(value.memory_bytes() as u64)),
            ("next-piece", Field::Whole(next.into())),
        ];
    };
    let kind = machine.kind();
    let stat = machine.stat(now(machine).time, SAMPLED);
    let position = machine.position();
    let text = text_of(kind);
    let parameters = text.split_once(' ').map_or("", |(_, parameters)| parameters);
    let held = machine.claims().filter(|claim| claim.deadline > time);
    let (claims, oldest) =
        held.fold((0, time), |(count, oldest), claim| (count + 1, claim.since.min(oldest)));
    let before = value.former();
    let both = machine.planned_bytes() + before.map_or(0, |of| of.machine().planned_bytes());
    let planned = both.max(value.memory_bytes() as u64);
    let shown = |of: &Former| text_of(of.machine().kind());
    let former = before.map_or_else(String::new, shown);
    let former_bytes = before.map_or(0, |of| of.machine().memory_bytes() as u64);
    let unit = if kind.uses_time() { 1000 } else { 1 };
    let left = before.map_or(0, |of| of.left(machine, now(machine).time).div_ceil(unit));
    let mut fields = vec![
        ("kind", Field::Text(kind.name().to_owned())),
        ("parameters", Field::Text(parameters.to_owned())),
        ("inserts", Field::Whole(stat.inserts)),
        ("time", Field::Whole(stat.time.unwrap_or(0) / 1000)),
        ("step", Field::Whole(stat.step.unwrap_or(0))),
        ("fill", Field::Real(stat.fill)),
        ("estimated-fpr", Field::Real(stat.estimated_fpr)),
        ("planned-fpr", Field::Real(stat.planned_fpr)),
        ("saturated", Field::Whole(stat.saturated.into())),
        ("claims", Field::Whole(claims)),
        ("oldest-claim", Field::Whole((time - oldest) / 1000)),
        ("memory", Field::Whole(value.memory_bytes() as u64)),
        ("planned-memory", Field::Whole(planned)),
        ("former", Field::Text(former)),
        ("former-memory", Field::Whole(former_bytes)),
        ("whole-in", Field::Whole(left)),
        ("lsn", Field::Whole(position.next_lsn - 1)),
        ("chain", Field::Text(format!("{:016x}", position.chain))),
        ("state", Field::Text(value.state().to_owned())),
    ];
    fields.extend(distinct(machine));
    fields
}

/// Returns how many distinct keys are in the window, and the standard error of that number; nothing
/// if the kind does not know it.
fn distinct(machine: &Machine) -> Vec<(&'static str, Field)> {
    let Ok(found) = machine.distinct(now(machine).time, None, SAMPLED) else {
        return Vec::new();
    };
    vec![
        ("distinct-keys", Field::Real(found.keys)),
        ("distinct-keys-error", Field::Real(found.standard_error)),
    ]
}

/// `EB.SCANDUMP key cursor`.
pub struct ScanDump;

impl Command for ScanDump {
    const ABOUT: About = About {
        name: c"EB.SCANDUMP",
        arity: 3,
        flags: c"readonly",
        categories: c"read",
        key: 1,
        access: Access::Read,
        summary: c"Returns one piece of a filter and the cursor of the next; cursor 0 begins.",
        complexity:
            c"O(N) for N bytes of the piece, and of those before it that nobody has asked for \
                      since the last change",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let chain = format!("{:x}", value.chain()?);
        let number = piece_of(call.argument(2), &chain)?;
        let (piece, is_last) = value.piece(number)?.ok_or_else(|| cursor(call.argument(2)))?;
        let next = if is_last { "0".into() } else { format!("{}-{chain}", number + 1) };
        call.array(2);
        call.bytes(next.as_bytes());
        call.bytes(&piece);
        Ok(())
    }
}

fn cursor(found: &[u8]) -> Failure {
    wrong("cursor", "0, or one that EB.SCANDUMP has returned", found)
}

/// Returns the number of the piece at a cursor: `0`, or the number and the chain of the filter.
fn piece_of(argument: &[u8], chain: &str) -> Result<u32, Failure> {
    if argument == b"0" {
        return Ok(0);
    }
    let both = std::str::from_utf8(argument).ok().and_then(|text| text.split_once('-'));
    let (at, of) = both.ok_or_else(|| cursor(argument))?;
    if of != chain {
        let message = "the filter has changed since the first piece: begin again with cursor 0";
        return Err(Failure::new("CHANGED", message));
    }
    number("cursor", "0, or one that EB.SCANDUMP has returned", at.as_bytes())
}

/// `EB.DEBUG DIGEST|POSITION key`.
pub struct Debug;

impl Command for Debug {
    const ABOUT: About = About {
        name: c"EB.DEBUG",
        arity: 3,
        flags: c"readonly admin",
        categories: c"read admin dangerous",
        key: 2,
        access: Access::Read,
        summary: c"Returns the digest of a filter's state, or which records it has applied.",
        complexity: c"DIGEST: O(N) for N bytes of the filter; POSITION: O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let Some(machine) = value.any_machine() else {
            return value.machine().map(|_| ());
        };
        match call.argument(1) {
            word if is(word, "DIGEST") => {
                let digest = value.state_digest().unwrap_or(0);
                call.bytes(format!("{digest:032x}").as_bytes());
            }
            word if is(word, "POSITION") => {
                let before = value.former().map(|former| former.machine().position());
                call.array(if before.is_some() { 6 } else { 3 });
                for position in [Some(machine.position()), before].into_iter().flatten() {
                    call.bytes(format!("{:032x}", position.uuid).as_bytes());
                    call.integer(position.next_lsn as i64 - 1);
                    call.bytes(format!("{:016x}", position.chain).as_bytes());
                }
            }
            _ => return Err(syntax("EB.DEBUG DIGEST key, or EB.DEBUG POSITION key")),
        }
        Ok(())
    }
}
