//! Commands that insert and remove.

use super::both::{self, Times};
use super::effects::{Log, emit};
use super::key::{now, present};
use super::limits;
use super::reserve::{Missing, present_or_new};
use crate::arguments::{Reader, clock, is, number, refused, syntax, time, wrong};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome};
use crate::value::Value;
use ebbtide_core::kind::{Precondition, Request};
use ebbtide_core::machine::Machine;
use ebbtide_core::time::OperationTime;
use ebbtide_core::{Checked, Result as Decided, Since};
use std::ffi::CStr;

/// Keys whose memory is prefetched while one is inserted.
const AHEAD: usize = 8;

/// What subscribers get.
const ADDED: &CStr = c"eb.add";
/// The flags of commands that add.
const ADDS: &CStr = c"write deny-oom fast";
const ADDS_TO: Access = Access::Change;

const FORM: &str = "EB.INSERT key [NX] [AT ms] [TIMES n | IMPORTANCE x] ITEMS item ..., or \
                    TIMED ms item [ms item ...]";

/// The reply for one item.
#[inline]
fn reply(checked: Checked) -> i64 {
    match checked {
        Checked::New => 1,
        Checked::Present => 0,
        Checked::TooLate => -1,
    }
}

/// Adds the item of a call.
///
/// # Errors
/// The error reply.
#[inline]
pub fn add_one(call: &Call<'_>, since: Since) -> Result<Checked, Failure> {
    let mut slot = call.open::<Value>(ADDS_TO)?;
    let value = match slot.value().is_some() {
        true => present(&mut slot)?,
        false => present_or_new(call, &mut slot, Missing::Default, |_| Ok(()))?,
    };
    if value.former().is_some()
        && let Some(checked) = both::insert_one(call, value, ADDED, since)?
    {
        return Ok(checked);
    }
    emit(call, value, ADDED, |machine, log| {
        let (hash, time) = (machine.hash(call.argument(2)), now(machine));
        machine.check_and_insert(hash, since, time, &mut |record| log.push(record))
    })
}

/// Adds one item, and replies.
#[inline]
fn add(call: &Call<'_>, since: Since) -> Outcome {
    call.integer(reply(add_one(call, since)?));
    Ok(())
}

/// One item of a command with many.
struct Item {
    hash: u64,
    time: OperationTime,
}

/// Inserts items under the settings of a request.
fn insert_all(
    machine: &mut Machine,
    items: &[Item],
    request: &Request,
    log: &mut Log,
) -> Decided<Vec<Checked>> {
    let mut all = Vec::with_capacity(items.len());
    items.iter().take(AHEAD).for_each(|item| machine.prefetch(item.hash));
    for (at, item) in items.iter().enumerate() {
        if let Some(later) = items.get(at + AHEAD) {
            machine.prefetch(later.hash);
        }
        let request = Request { hash: item.hash, ..*request };
        let written = machine.write(&request, item.time, &mut |record| log.push(record))?;
        all.push(written.checked);
    }
    Ok(all)
}

fn reply_all(call: &Call<'_>, all: &[Checked]) {
    call.array(all.len());
    all.iter().for_each(|&checked| call.integer(reply(checked)));
}

/// Returns how many records a number of items need: those of both filters of one that is altered.
fn records_of(value: &Value, items: usize) -> usize {
    items.saturating_mul(1 + usize::from(value.former().is_some()))
}

/// Adds all items from an argument on.
///
/// # Errors
/// The error reply.
pub fn add_all(
    call: &Call<'_>,
    since: Since,
    first: usize,
    missing: Missing,
) -> Result<Vec<Checked>, Failure> {
    let mut slot = call.open::<Value>(ADDS_TO)?;
    let count = call.arguments_from(first).len();
    let fits = |machine: &Machine| limits::records(machine.kind(), count, 1);
    let value = present_or_new(call, &mut slot, missing, fits)?;
    let count = records_of(value, count);
    limits::records(value.machine()?.kind(), count, 1)?;
    let checked = both::insert_all(call, value, ADDED, since, |current, former| {
        let times = Times::now(current, former);
        call.arguments_from(first).map(|item| (current.hash(item), times)).collect()
    })?;
    if let Some(checked) = checked {
        return Ok(checked);
    }
    emit(call, value, ADDED, |machine, log| {
        let time = now(machine);
        let items = call.arguments_from(first);
        let items = items.map(|item| Item { hash: machine.hash(item), time });
        let items: Vec<Item> = items.collect();
        let request = Request::insert(0).under(Precondition::Present(since));
        insert_all(machine, &items, &request, log)
    })
}

/// Adds all items from argument 2 on, and replies.
fn add_many(call: &Call<'_>, since: Since) -> Outcome {
    reply_all(call, &add_all(call, since, 2, Missing::Default)?);
    Ok(())
}

/// `EB.ADD key item`.
pub struct Add;

impl Command for Add {
    const ABOUT: About = About {
        name: c"EB.ADD",
        arity: 3,
        flags: ADDS,
        categories: c"write fast",
        key: 1,
        access: ADDS_TO,
        summary: c"Adds an item: 1 if it was new, 0 if it was present; its time is renewed.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        add(call, Since::LastSeen)
    }
}

/// `EB.ADDNX key item`.
pub struct AddNew;

impl Command for AddNew {
    const ABOUT: About = About {
        name: c"EB.ADDNX",
        summary: c"Adds an item that is not present: 1 if it was new; otherwise 0, and no change.",
        ..Add::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        add(call, Since::LastAccepted)
    }
}

/// `EB.MADD key item ...`.
pub struct AddMany;

impl Command for AddMany {
    const ABOUT: About = About {
        name: c"EB.MADD",
        arity: -3,
        summary: c"Adds items: for each 1 if it was new, 0 if it was present.",
        complexity: c"O(N) for N items",
        ..Add::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        add_many(call, Since::LastSeen)
    }
}

/// `EB.MADDNX key item ...`.
pub struct AddManyNew;

impl Command for AddManyNew {
    const ABOUT: About = About {
        name: c"EB.MADDNX",
        summary: c"Adds those items that are not present: for each 1 if it was new, otherwise 0.",
        ..AddMany::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        add_many(call, Since::LastAccepted)
    }
}

/// `EB.INSERT key ...`.
pub struct Insert;

/// What the words before the items ask for.
struct Settings {
    since: Since,
    time: Option<u64>,
    weight: Option<Weight>,
    /// Whether each item comes with its time.
    is_timed: bool,
    /// The position of the first item, or time.
    items: usize,
    /// The number of items.
    count: usize,
}

/// How an item weighs.
enum Weight {
    Times(f64),
    Importance(f64),
}

impl Command for Insert {
    const ABOUT: About = About {
        name: c"EB.INSERT",
        arity: -4,
        summary:
            c"Adds items with times, counts or importance: for each 1 new, 0 present, -1 late.",
        complexity: c"O(N) for N items",
        ..Add::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let settings = settings(call)?;
        let mut slot = call.open::<Value>(ADDS_TO)?;
        let value = present_or_new(call, &mut slot, Missing::Default, |machine| {
            let weight = weight(machine, settings.weight.as_ref())?;
            limits::records(machine.kind(), settings.count, weight)?;
            items(call, machine, &settings).map(|_| ())
        })?;
        let count = records_of(value, settings.count);
        let machine = value.machine()?;
        let weight = weight(machine, settings.weight.as_ref())?;
        limits::records(machine.kind(), count, weight)?;
        // All times are checked before anything is inserted.
        let items = items(call, machine, &settings)?;
        let is_given = settings.is_timed || settings.time.is_some();
        let checked = both::insert_all(call, value, ADDED, settings.since, |current, former| {
            let now = Times::now(current, former);
            let times = |item: &Item| if is_given { Times::given(item.time) } else { now };
            items.iter().map(|item| (item.hash, times(item))).collect()
        })?;
        if let Some(checked) = checked {
            reply_all(call, &checked);
            return Ok(());
        }
        let request = Request::insert(0).weighing(weight);
        let request = request.under(Precondition::Present(settings.since));
        let checked =
            emit(call, value, ADDED, |machine, log| insert_all(machine, &items, &request, log))?;
        reply_all(call, &checked);
        Ok(())
    }
}

/// Reads the words before the items.
fn settings(call: &Call<'_>) -> Result<Settings, Failure> {
    let mut reader = Reader::new(call, 2);
    let (since, is_timed) = (Since::LastSeen, false);
    let mut settings = Settings { since, time: None, weight: None, is_timed, items: 0, count: 0 };
    let real = |name: &str, value: &[u8]| number::<f64>(name, "a number", value);
    loop {
        match reader.next().ok_or_else(|| syntax(FORM))? {
            word if is(word, "NX") && settings.since == Since::LastSeen => {
                settings.since = Since::LastAccepted;
            }
            word if is(word, "AT") && settings.time.is_none() => {
                settings.time = Some(time(reader.value("AT")?)?);
            }
            word if is(word, "TIMES") && settings.weight.is_none() => {
                let times = real("TIMES", reader.value("TIMES")?)?;
                settings.weight = Some(Weight::Times(times));
            }
            word if is(word, "IMPORTANCE") && settings.weight.is_none() => {
                let importance = real("IMPORTANCE", reader.value("IMPORTANCE")?)?;
                settings.weight = Some(Weight::Importance(importance));
            }
            word if is(word, "ITEMS") => break,
            word if is(word, "TIMED") && settings.time.is_none() => {
                settings.is_timed = true;
                break;
            }
            _ => return Err(syntax(FORM)),
        }
    }
    settings.items = reader.position();
    let count = call.count().saturating_sub(settings.items);
    if count == 0 || settings.is_timed && !count.is_multiple_of(2) {
        return Err(syntax(FORM));
    }
    settings.count = if settings.is_timed { count / 2 } else { count };
    Ok(settings)
}

/// Returns the weight of each item, in the unit of the kind.
fn weight(machine: &Machine, given: Option<&Weight>) -> Result<u64, Failure> {
    let kind = machine.kind();
    let counts = kind.counts().is_some();
    let (word, given, is_known) = match given {
        None => return Ok(1),
        Some(Weight::Times(times)) => ("TIMES", *times, counts),
        Some(Weight::Importance(importance)) => ("IMPORTANCE", *importance, !counts),
    };
    match kind.weights().filter(|_| is_known) {
        Some(weights) => weights.weight(given).map_err(|error| refused(&error)),
        None => {
            let message = format!("a filter of kind {} has no {word}", kind.name());
            Err(Failure::new("UNSUPPORTED", message))
        }
    }
}

/// Returns all items with their times.
fn items(call: &Call<'_>, machine: &Machine, settings: &Settings) -> Result<Vec<Item>, Failure> {
    let mut wall = None;
    let mut at = |given: u64| {
        let wall = *wall.get_or_insert_with(clock);
        machine.time(Some(wall), Some(given)).map_err(|error| refused(&error))
    };
    let arguments = call.arguments_from(settings.items);
    if !settings.is_timed {
        let time = settings.time.map_or_else(|| Ok(now(machine)), at)?;
        return Ok(arguments.map(|item| Item { hash: machine.hash(item), time }).collect());
    }
    let pairs = (settings.items..call.count()).step_by(2);
    let item = |first: usize| {
        let time = at(time(call.argument(first))?)?;
        Ok(Item { hash: machine.hash(call.argument(first + 1)), time })
    };
    pairs.map(item).collect()
}

/// `EB.DEL key item [TIMES n]`.
pub struct Delete;

impl Command for Delete {
    const ABOUT: About = About {
        name: c"EB.DEL",
        arity: -3,
        flags: c"write fast",
        categories: c"write fast",
        key: 1,
        access: Access::Remove,
        summary: c"Removes an item: 1 if it was there so often, otherwise 0, and no change.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        const FORM: &str = "EB.DEL key item [TIMES n]";
        let weight = match call.count() {
            3 => 1,
            5 if is(call.argument(3), "TIMES") => {
                let weight = number("TIMES", "a whole number", call.argument(4))?;
                let valid = (weight > 0).then_some(weight);
                valid.ok_or_else(|| wrong("TIMES", "at least 1", call.argument(4)))?
            }
            _ => return Err(syntax(FORM)),
        };
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        limits::records(value.machine()?.kind(), 1, weight)?;
        let removed = emit(call, value, c"eb.del", |machine, log| {
            let (hash, time) = (machine.hash(call.argument(2)), now(machine));
            machine.remove((hash, weight), time, &mut |record| log.push(record))
        })?;
        call.integer(removed.into());
        Ok(())
    }
}
