//! `BF.*`: the commands of RedisBloom, so that its clients work. They are registered only if
//! `ebbtide.bf-commands` is `yes`, and act on the same filters as `EB.*`, of any kind; what they
//! write is propagated in the same way.
//!
//! `BF.RESERVE`, and `BF.INSERT` with a capacity or an error rate, create a filter of kind `bloom`,
//! which never scales. Where RedisBloom creates a filter of a size of its own, `BF.ADD`, `BF.MADD`
//! and `BF.INSERT` create what `ebbtide.default-spec` says, and without that nothing.

use super::card::cardinality;
use super::effects::created;
use super::insert::{add_all, add_one};
use super::query::{self, exist_many};
use super::reserve::{Missing, new_filter};
use crate::arguments::{Reader, is, number, syntax, wrong};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome, Stored};
use crate::value::Value;
use ebbtide_core::kinds::spec::Any;
use ebbtide_core::{Parameters, Since};

/// What RedisBloom takes if a command has only one of the two.
const DEFAULT_ERROR: f64 = 0.01;
const DEFAULT_CAPACITY: u64 = 100;

const RESERVE: &str = "BF.RESERVE key error_rate capacity [EXPANSION n] [NONSCALING]";
const INSERT: &str = "BF.INSERT key [CAPACITY n] [ERROR rate] [EXPANSION n] [NOCREATE] \
                      [NONSCALING] ITEMS item [item ...]";

fn bloom(error: f64, capacity: u64) -> Any {
    Any::new("bloom", Parameters::new().with("capacity", capacity).with("fpr", error))
}

fn error_rate(argument: &[u8]) -> Result<f64, Failure> {
    const EXPECTED: &str = "a number above 0 and below 1";
    let rate: f64 = number("error rate", EXPECTED, argument)?;
    let is_rate = rate > 0.0 && rate < 1.0;
    is_rate.then_some(rate).ok_or_else(|| wrong("error rate", EXPECTED, argument))
}

fn capacity(argument: &[u8]) -> Result<u64, Failure> {
    const EXPECTED: &str = "a whole number, at least 1";
    let capacity = number("capacity", EXPECTED, argument)?;
    (capacity > 0).then_some(capacity).ok_or_else(|| wrong("capacity", EXPECTED, argument))
}

/// How RedisBloom's filters grow. Without effect: these filters do not.
#[derive(Default)]
struct Growth {
    expansion: Option<u32>,
    is_fixed: bool,
}

impl Growth {
    /// Reads `EXPANSION n`, once, or `NONSCALING`; false if the word is neither.
    fn read(&mut self, word: &[u8], reader: &mut Reader<'_, '_>) -> Result<bool, Failure> {
        const EXPECTED: &str = "a whole number";
        match word {
            word if is(word, "EXPANSION") && self.expansion.is_none() => {
                let given = number("EXPANSION", EXPECTED, reader.value("EXPANSION")?)?;
                self.expansion = Some(given);
            }
            word if is(word, "NONSCALING") => self.is_fixed = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks that a filter is to do only one of the two, as `BF.RESERVE` of RedisBloom does.
    fn check(&self) -> Outcome {
        if self.is_fixed && self.expansion.is_some_and(|expansion| expansion > 0) {
            return Err(wrong("EXPANSION", "no NONSCALING with it", b"both"));
        }
        Ok(())
    }
}

/// Creates RedisBloom's error for a key that does not exist. Clients know it by its text.
fn not_found() -> Failure {
    Failure::new("ERR", "not found")
}

/// `BF.RESERVE key error_rate capacity`.
pub struct Reserve;

impl Command for Reserve {
    const ABOUT: About = About {
        name: c"BF.RESERVE",
        arity: -4,
        flags: c"write deny-oom",
        categories: c"write",
        key: 1,
        access: Access::Create,
        summary: c"Creates a filter of kind bloom, which never scales and forgets nothing.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let spec = bloom(error_rate(call.argument(2))?, capacity(call.argument(3))?);
        let mut reader = Reader::new(call, 4);
        let mut growth = Growth::default();
        while let Some(word) = reader.next() {
            if !growth.read(word, &mut reader)? {
                return Err(syntax(RESERVE));
            }
        }
        growth.check()?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        if slot.value().is_some() {
            // As RedisBloom says it.
            return Err(Failure::new("ERR", "item exists"));
        }
        let machine = new_filter(call, &spec)?;
        created(call, &mut slot, machine);
        call.ok();
        Ok(())
    }
}

/// `BF.ADD key item`.
pub struct Add;

impl Command for Add {
    const ABOUT: About = About {
        name: c"BF.ADD",
        arity: 3,
        flags: c"write deny-oom fast",
        categories: c"write fast",
        key: 1,
        access: Access::Change,
        summary: c"Adds an item, as EB.ADD: true if it was new, false if it was present.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        call.boolean(add_one(call, Since::LastSeen)?.is_new());
        Ok(())
    }
}

/// Adds items from an argument on, and replies for each whether it was new.
fn add(call: &Call<'_>, first: usize, missing: Missing) -> Outcome {
    let all = add_all(call, Since::LastSeen, first, missing)?;
    call.array(all.len());
    all.iter().for_each(|checked| call.boolean(checked.is_new()));
    Ok(())
}

/// `BF.MADD key item ...`.
pub struct AddMany;

impl Command for AddMany {
    const ABOUT: About = About {
        name: c"BF.MADD",
        arity: -3,
        summary: c"Adds items, as EB.MADD: for each true if it was new, otherwise false.",
        complexity: c"O(N) for N items",
        ..Add::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        add(call, 2, Missing::Default)
    }
}

/// `BF.INSERT key ... ITEMS item ...`.
pub struct Insert;

impl Command for Insert {
    const ABOUT: About = About {
        name: c"BF.INSERT",
        arity: -4,
        summary: c"Adds items to a filter, which is created if it is not there.",
        ..AddMany::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let (mut error, mut size, mut is_there) = (None, None, false);
        let (mut reader, mut growth) = (Reader::new(call, 2), Growth::default());
        loop {
            match reader.next().ok_or_else(|| syntax(INSERT))? {
                word if is(word, "CAPACITY") && size.is_none() => {
                    size = Some(capacity(reader.value("CAPACITY")?)?);
                }
                word if is(word, "ERROR") && error.is_none() => {
                    error = Some(error_rate(reader.value("ERROR")?)?);
                }
                word if is(word, "NOCREATE") => is_there = true,
                word if is(word, "ITEMS") => break,
                word if growth.read(word, &mut reader)? => {}
                _ => return Err(syntax(INSERT)),
            }
        }
        let first = reader.position();
        if first >= call.count() {
            return Err(syntax(INSERT));
        }
        let is_described = error.is_some() || size.is_some();
        let (error, size) = (error.unwrap_or(DEFAULT_ERROR), size.unwrap_or(DEFAULT_CAPACITY));
        let missing = match (is_there, is_described) {
            (true, _) => Missing::Fail(not_found()),
            (false, true) => Missing::Create(bloom(error, size)),
            (false, false) => Missing::Default,
        };
        add(call, first, missing)
    }
}

/// `BF.EXISTS key item`.
pub struct Exists;

impl Command for Exists {
    const ABOUT: About = About {
        name: c"BF.EXISTS",
        arity: 3,
        flags: c"readonly fast",
        categories: c"read fast",
        key: 1,
        access: Access::Read,
        summary: c"Returns whether an item is in the window (or is a false positive).",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        call.boolean(query::exists(call)?);
        Ok(())
    }
}

/// `BF.MEXISTS key item ...`.
pub struct ExistMany;

impl Command for ExistMany {
    const ABOUT: About = About {
        name: c"BF.MEXISTS",
        arity: -3,
        summary: c"Returns for each item whether it is in the window.",
        complexity: c"O(N) for N items",
        ..Exists::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        exist_many(call, |found| call.boolean(found))
    }
}

/// Returns the items of a filter: how many different ones, or how many were added.
fn items(value: &mut Value) -> Result<u64, Failure> {
    let machine = value.machine()?;
    let added = |_| machine.content().totals().inserts;
    Ok(cardinality(machine, None).unwrap_or_else(added))
}

/// `BF.CARD key`.
pub struct Card;

impl Command for Card {
    const ABOUT: About = About {
        name: c"BF.CARD",
        arity: 2,
        flags: c"readonly",
        summary: c"Returns how many different items there are, as an estimate; else the inserts.",
        complexity: c"O(1)",
        ..Exists::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let items = slot.value().map_or(Ok(0), items)?;
        call.integer(items as i64);
        Ok(())
    }
}

/// `BF.INFO key [CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION]`.
pub struct Info;

impl Command for Info {
    const ABOUT: About = About {
        name: c"BF.INFO",
        arity: -2,
        summary: c"Returns capacity, size and number of items of a filter, or one of them.",
        ..Card::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        const FORM: &str = "BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]";
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = slot.value().ok_or_else(not_found)?;
        // Also if the figure that is asked for does not depend on it.
        value.machine()?;
        match call.count() {
            2 => {
                let numbers: Vec<_> =
                    FIGURES.iter().map(|(.., of)| of(value)).collect::<Result<_, _>>()?;
                call.map(FIGURES.len());
                for ((_, name, _), number) in FIGURES.into_iter().zip(numbers) {
                    figure(call, Some(name), number);
                }
            }
            3 => {
                let found = FIGURES.into_iter().find(|(word, ..)| is(call.argument(2), word));
                let (_, name, of) = found.ok_or_else(|| syntax(FORM))?;
                let (number, is_map) = (of(value)?, call.is_resp3());
                if is_map {
                    call.map(1)
                } else {
                    call.array(1)
                }
                figure(call, is_map.then_some(name), number);
            }
            _ => return Err(syntax(FORM)),
        }
        Ok(())
    }
}

/// Returns a figure of a filter; `None` if it has none.
type Figure = fn(&mut Value) -> Result<Option<u64>, Failure>;

/// The figures of `BF.INFO`: how they are asked for, their names, and what they are.
const FIGURES: [(&str, &str, Figure); 5] = [
    ("CAPACITY", "Capacity", |value| {
        let parameters = value.machine()?.kind().parameters();
        let sizes = ["capacity", "window-items"].map(|name| parameters.get(name));
        // A window in time has no capacity: it grows by the items that come.
        let capacity = sizes.into_iter().flatten().find_map(|size| size.parse().ok());
        Ok(Some(capacity.unwrap_or(0)))
    }),
    ("SIZE", "Size", |value| Ok(Some(value.memory_bytes() as u64))),
    ("FILTERS", "Number of filters", |value| Ok(Some(1 + u64::from(value.former().is_some())))),
    ("ITEMS", "Number of items inserted", |value| items(value).map(Some)),
    // As of RedisBloom's filters that do not scale.
    ("EXPANSION", "Expansion rate", |_| Ok(None)),
];

/// Replies with the number of a figure, and with its name before it.
fn figure(call: &Call<'_>, name: Option<&str>, number: Option<u64>) {
    if let Some(name) = name {
        call.bytes(name.as_bytes());
    }
    match number {
        Some(number) => call.integer(number as i64),
        None => call.nil(),
    }
}

/// `BF.SCANDUMP`, which has another format.
pub struct ScanDump;

impl Command for ScanDump {
    const ABOUT: About = About {
        name: c"BF.SCANDUMP",
        arity: 3,
        summary: c"Is refused: EB.SCANDUMP exports filters.",
        ..Card::ABOUT
    };

    fn run(_: &Call<'_>) -> Outcome {
        let message = "the pieces of these filters are others than those of RedisBloom: export \
                       them with EB.SCANDUMP, whose cursors are text, or with DUMP";
        Err(Failure::new("UNSUPPORTED", message))
    }
}

/// `BF.LOADCHUNK`, which has another format.
pub struct LoadChunk;

impl Command for LoadChunk {
    const ABOUT: About = About {
        name: c"BF.LOADCHUNK",
        arity: 4,
        summary: c"Is refused: EB.LOADCHUNK imports what EB.SCANDUMP has exported.",
        ..Card::ABOUT
    };

    fn run(_: &Call<'_>) -> Outcome {
        let message = "a filter of RedisBloom cannot be imported, because it does not contain its \
                       items: add them to a new filter, or ask both while its window passes; \
                       EB.LOADCHUNK imports what EB.SCANDUMP has exported";
        Err(Failure::new("UNSUPPORTED", message))
    }
}
