//! Questions. They change nothing; a key without a filter contains nothing.

use super::key::now;
use crate::arguments::{reach, refused};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome};
use crate::former::View;
use crate::value::Value;
use ebbtide_core::Age as Ago;

/// Answers for each argument from `first` on; `None` stands for no filter. The replies are made
/// when all answers are there.
fn each<T>(
    call: &Call<'_>,
    first: usize,
    ask: impl Fn(&View<'_>, u64) -> Result<T, Failure>,
    reply: impl Fn(Option<T>),
) -> Outcome {
    let mut slot = call.open::<Value>(Access::Read)?;
    let Some(value) = slot.value() else {
        let items = call.arguments_from(first);
        call.array(items.len());
        items.for_each(|_| reply(None));
        return Ok(());
    };
    let view = value.view(|machine| now(machine).time)?;
    let hashes: Vec<u64> = call.arguments_from(first).map(|item| view.hash(item)).collect();
    hashes.iter().for_each(|&hash| view.prefetch(hash));
    let answers = hashes.iter().map(|&hash| ask(&view, hash));
    let answers: Vec<T> = answers.collect::<Result<_, _>>()?;
    call.array(answers.len());
    answers.into_iter().for_each(|answer| reply(Some(answer)));
    Ok(())
}

/// `EB.EXISTS key item`.
pub struct Exists;

/// Returns whether the filter of a call has its item; false without a filter.
///
/// # Errors
/// The error reply.
pub fn exists(call: &Call<'_>) -> Result<bool, Failure> {
    let mut slot = call.open::<Value>(Access::Read)?;
    let Some(value) = slot.value() else { return Ok(false) };
    let view = value.view(|machine| now(machine).time)?;
    Ok(view.contains(view.hash(call.argument(2))))
}

impl Command for Exists {
    const ABOUT: About = About {
        name: c"EB.EXISTS",
        arity: 3,
        flags: c"readonly fast",
        categories: c"read fast",
        key: 1,
        access: Access::Read,
        summary: c"Returns 1 if an item is in the window (or is a false positive), otherwise 0.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        call.integer(exists(call)?.into());
        Ok(())
    }
}

/// `EB.MEXISTS key item ...`.
pub struct ExistMany;

impl Command for ExistMany {
    const ABOUT: About = About {
        name: c"EB.MEXISTS",
        arity: -3,
        summary: c"Returns for each item 1 if it is in the window, otherwise 0.",
        complexity: c"O(N) for N items",
        ..Exists::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        exist_many(call, |found| call.integer(found.into()))
    }
}

/// Replies for each item of a call whether the filter has it.
///
/// # Errors
/// The error reply.
pub fn exist_many(call: &Call<'_>, reply: impl Fn(bool)) -> Outcome {
    let ask = |view: &View<'_>, hash| Ok(view.contains(hash));
    each(call, 2, ask, |found| reply(found.unwrap_or(false)))
}

/// `EB.WITHIN key reach item ...`.
pub struct SeenWithin;

impl Command for SeenWithin {
    const ABOUT: About = About {
        name: c"EB.WITHIN",
        arity: -4,
        summary:
            c"Returns for each item 1 if it was seen within a part of the window, otherwise 0.",
        ..ExistMany::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let within = reach(call.argument(2))?;
        let ask =
            |view: &View<'_>, hash| view.seen_within(hash, within).map_err(|error| refused(&error));
        each(call, 3, ask, |found| call.integer(found.unwrap_or(false).into()))
    }
}

/// `EB.AGE key item ...`.
pub struct Age;

impl Command for Age {
    const ABOUT: About = About {
        name: c"EB.AGE",
        summary:
            c"Returns how long ago each item was seen, at least: inserts or milliseconds; or nil.",
        ..ExistMany::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let ask = |view: &View<'_>, hash| view.age(hash).map_err(|error| refused(&error));
        each(call, 2, ask, |age| match age.flatten() {
            None => call.nil(),
            Some(Ago::Items(items)) => call.integer(items as i64),
            Some(Ago::Time(time)) => call.integer(time.as_millis() as i64),
        })
    }
}

/// `EB.COUNT key item ...`.
pub struct Count;

impl Command for Count {
    const ABOUT: About = About {
        name: c"EB.COUNT",
        summary: c"Returns how often each item was added, or what is left of that count.",
        ..ExistMany::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let ask = |view: &View<'_>, hash| view.count(hash).map_err(|error| refused(&error));
        each(call, 2, ask, |count| call.double(count.unwrap_or(0.0)))
    }
}
