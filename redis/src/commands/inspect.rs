//! What a filter is, how full it is, and its content as pieces.

use super::key::{now, present};
use crate::arguments::{is, number, syntax, wrong};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome, Stored};
use crate::former::Former;
use crate::value::Value;
use ebbtide_core::Kind;
use ebbtide_core::kind::{Cardinality, Micros};
use ebbtide_core::kinds::spec::Any;
use ebbtide_core::machine::{Machine, MachineStat};
use std::cell::OnceCell;

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
        complexity: c"O(N) for N claims: at most 64 blocks of each bank are looked at",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let leases = value.leases().now();
        let Some(machine) = value.any_machine() else {
            return reply(call, &LOADING, value);
        };
        let (stat, distinct) = (OnceCell::new(), OnceCell::new());
        reply(call, &fields(), &Look { value, machine, leases, stat, distinct })
    }
}

/// A figure, and how it is read; `None` if there is none.
type Named<T> = (&'static str, fn(&T) -> Option<Field>);

/// Replies with all figures, or with the one that is asked for, and reads no other one then.
fn reply<T>(call: &Call<'_>, all: &[Named<T>], of: &T) -> Outcome {
    let read = || all.iter().filter_map(|(name, read)| Some((*name, read(of)?)));
    match call.count() {
        2 => {
            let fields: Vec<_> = read().collect();
            call.map(fields.len());
            for (name, field) in &fields {
                call.bytes(name.as_bytes());
                field.reply(call);
            }
            Ok(())
        }
        3 => {
            let asked = call.argument(2);
            let found = all.iter().find(|(name, _)| is(asked, name));
            let field = found.and_then(|(_, read)| read(of)).ok_or_else(|| {
                let names: Vec<_> = read().map(|(name, _)| name).collect();
                wrong("field", format!("one of {}", names.join(", ")), asked)
            })?;
            field.reply(call);
            Ok(())
        }
        _ => Err(syntax("EB.INFO key [field]")),
    }
}

/// Returns a kind with its parameters.
fn text_of(kind: &dyn Kind) -> String {
    Any::new(kind.name(), kind.parameters()).to_string()
}

/// A filter that is looked at.
struct Look<'a> {
    value: &'a Value,
    machine: &'a Machine,
    /// The time of leases.
    leases: Micros,
    stat: OnceCell<MachineStat>,
    distinct: OnceCell<Option<Cardinality>>,
}

impl Look<'_> {
    fn stat(&self) -> &MachineStat {
        self.stat.get_or_init(|| self.machine.stat(now(self.machine).time, SAMPLED))
    }

    /// Returns how many distinct keys are in the window; `None` if the kind does not know it.
    fn distinct(&self) -> Option<Cardinality> {
        let count = || self.machine.distinct(now(self.machine).time, None, SAMPLED).ok();
        *self.distinct.get_or_init(count)
    }

    /// Returns the number of claims, and since when the oldest one is held.
    fn claims(&self) -> (u64, Micros) {
        let held = self.machine.claims().filter(|claim| claim.deadline > self.leases);
        held.fold((0, self.leases), |(count, oldest), claim| (count + 1, claim.since.min(oldest)))
    }

    /// Returns the parameters of the filter.
    fn parameters(&self) -> String {
        let text = text_of(self.machine.kind());
        text.split_once(' ').map_or_else(String::new, |(_, parameters)| parameters.to_owned())
    }

    /// Returns the bytes of both filters when all of their present banks is used.
    fn planned(&self) -> u64 {
        let former = self.value.former().map_or(0, |of| of.machine().planned_bytes());
        (self.machine.planned_bytes() + former).max(self.value.memory_bytes() as u64)
    }

    /// Returns the inserts or milliseconds that are left until the window is whole.
    fn whole_in(&self) -> u64 {
        let unit = if self.machine.kind().uses_time() { 1000 } else { 1 };
        let left = |of: &Former| of.left(self.machine, now(self.machine).time).div_ceil(unit);
        self.value.former().map_or(0, left)
    }
}

/// The figures of a value whose pieces are coming.
const LOADING: [Named<Value>; 3] = [
    ("state", |of| text(of.state())),
    ("memory", |of| whole(of.memory_bytes() as u64)),
    ("next-piece", |of| whole(of.pieces_so_far().map_or(0, |pieces| pieces.number()).into())),
];

/// Returns the figures of a filter.
fn fields<'a>() -> [Named<Look<'a>>; 21] {
    [
        ("kind", |of| text(of.machine.kind().name())),
        ("parameters", |of| text(of.parameters())),
        ("inserts", |of| whole(of.machine.content().totals().inserts)),
        ("time", |of| whole(of.machine.latest().time / 1000)),
        ("step", |of| whole(of.stat().step.unwrap_or(0))),
        ("fill", |of| real(of.stat().fill)),
        ("estimated-fpr", |of| real(of.stat().estimated_fpr)),
        ("planned-fpr", |of| real(of.stat().planned_fpr)),
        ("saturated", |of| whole(of.stat().saturated.into())),
        ("claims", |of| whole(of.claims().0)),
        ("oldest-claim", |of| whole((of.leases - of.claims().1) / 1000)),
        ("memory", |of| whole(of.value.memory_bytes() as u64)),
        ("planned-memory", |of| whole(of.planned())),
        ("former", |of| {
            text(of.value.former().map_or_else(String::new, |of| text_of(of.machine().kind())))
        }),
        ("former-memory", |of| {
            whole(of.value.former().map_or(0, |of| of.machine().memory_bytes() as u64))
        }),
        ("whole-in", |of| whole(of.whole_in())),
        ("lsn", |of| whole(of.machine.position().next_lsn - 1)),
        ("chain", |of| text(format!("{:016x}", of.machine.position().chain))),
        ("state", |of| text(of.value.state())),
        ("distinct-keys", |of| real(of.distinct()?.keys)),
        ("distinct-keys-error", |of| real(of.distinct()?.standard_error)),
    ]
}

fn text(text: impl Into<String>) -> Option<Field> {
    Some(Field::Text(text.into()))
}

fn whole(number: u64) -> Option<Field> {
    Some(Field::Whole(number))
}

fn real(number: f64) -> Option<Field> {
    Some(Field::Real(number))
}

/// `EB.SCANDUMP key cursor`.
pub struct ScanDump;

impl Command for ScanDump {
    const ABOUT: About = About {
        name: c"EB.SCANDUMP",
        arity: 3,
        flags: c"readonly",
        // The first piece has the secret of the hash.
        categories: c"read admin dangerous",
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
