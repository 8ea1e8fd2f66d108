//! `insert`, `contains`, `check`, `remove`, `estimate` and `age`: one filter, one file of keys, one
//! answer per key.

use super::at_rest::{self, warn_if_ahead};
use super::closing;
use super::line::Skipped;
use super::stream::Stream;
use crate::args::{Check, Estimate, Keys, Query, Question};
use crate::exit_codes::NO;
use crate::failure::{Result, note, unless_closed};
use crate::formatting;
use crate::input;
use crate::output::{Form, Output, object};
use ebbtide::{Age, Call, Filter, Options, Reader};
use serde_json::Value;
use std::process::ExitCode;

/// Inserts every key.
pub fn insert(arguments: Keys) -> Result<()> {
    let mut late = 0;
    let changed = change(
        arguments,
        Skipped::Nothing,
        |call, key| call.insert(key),
        |_, inserted, _| {
            late += u64::from(!inserted);
            Ok(())
        },
    );
    report_late(late);
    changed
}

/// Prints whether each key is in the window; returns exit code 1 if one `--key` was asked for and
/// is not known to be there.
pub fn contains(arguments: Question) -> Result<ExitCode> {
    let is_single = arguments.query.keys.lines.len() == 1;
    let mut found = false;
    unless_closed(ask(
        arguments,
        |call, key| call.contains(key),
        |key, present, output, form| {
            found |= present;
            form.answer(output, key, bit(present), || object([("present", present.into())]))
        },
    ))?;
    Ok(if is_single && !found { ExitCode::from(NO) } else { ExitCode::SUCCESS })
}

/// Prints whether each key was in the window, and inserts it.
pub fn check(arguments: Check) -> Result<()> {
    let form = Form::new(&arguments.query);
    let since = arguments.since.into();
    let mut late = 0;
    let changed = change(
        arguments.query.keys,
        Skipped::Answer(form),
        |call, key| call.since(since).check_and_insert(key),
        |key, checked, output| {
            let present = checked.is_present();
            late += u64::from(checked.is_too_late());
            form.answer(output, key, bit(present), || {
                let mut object = object([("present", present.into())]);
                if checked.is_too_late() {
                    object.insert("too_late".to_owned(), true.into());
                }
                object
            })
        },
    );
    report_late(late);
    changed
}

/// Prints whether each key was present, and removes it.
pub fn remove(arguments: Query) -> Result<()> {
    let form = Form::new(&arguments);
    change(
        arguments.keys,
        Skipped::Answer(form),
        |call, key| call.remove(key),
        |key, removed, output| {
            form.answer(output, key, bit(removed), || object([("removed", removed.into())]))
        },
    )
}

/// Prints how often each key was inserted.
pub fn estimate(arguments: Estimate) -> Result<()> {
    let normalised = arguments.normalised;
    let mut bounds = 0_u64;
    let asked = ask(
        arguments.question,
        |call, key| if normalised { call.frequency(key) } else { call.estimate(key) },
        |key, estimate, output, form| {
            bounds += u64::from(estimate.at_least);
            let count = formatting::estimate(estimate.count);
            let more = if estimate.at_least { "+" } else { "" };
            form.answer(output, key, &format!("{count}{more}"), || {
                object([("estimate", count.into()), ("at_least", estimate.at_least.into())])
            })
        },
    );
    if bounds > 0 {
        note(&format!(
            "estimates that are lower bounds, because a counter is at its maximum: {bounds}"
        ));
    }
    asked
}

/// Prints how long ago each key was seen.
pub fn age(arguments: Question) -> Result<()> {
    ask(
        arguments,
        |call, key| call.age(key),
        |key, age, output, form| {
            let (text, name, value) = age_answer(age);
            form.answer(output, key, &text, || object([(name, value)]))
        },
    )
}

/// Returns an age as text, and as a member of a JSON object.
pub fn age_answer(age: Option<Age>) -> (String, &'static str, Value) {
    match age {
        None => ("-".to_owned(), "age", Value::Null),
        Some(Age::Items(items)) => (items.to_string(), "age_items", items.into()),
        Some(age @ Age::Time(time)) => {
            (formatting::seconds(age.width()), "age_seconds", time.as_secs_f64().into())
        }
    }
}

/// Opens the filter, passes it the keys, and closes it. `skipped` selects the output for bad lines,
/// `Skipped::Nothing` where there are no answers.
fn change<A>(
    arguments: Keys,
    skipped: Skipped,
    mut ask: impl FnMut(Call<'_>, &[u8]) -> ebbtide::Result<A>,
    mut tell: impl FnMut(&[u8], A, &mut Output) -> Result<()>,
) -> Result<()> {
    // Opening may remove log that the filter has kept: not for a run that cannot begin.
    input::check(&arguments.origin(), &arguments.reading, skipped != Skipped::Nothing)?;
    let filter = Filter::open(&arguments.dir, arguments.reading.options())?;
    warn_if_ahead(filter.clock_lead());
    let ended = Stream::changing(&filter, &arguments.reading)?.skipping(skipped).run(
        arguments.origin(),
        skipped != Skipped::Nothing,
        |call, line| ask(call, &line.key),
        |line, answer, output| tell(&line.key, answer, output),
    )?;
    closing::close(&filter)?;
    ended.finish()
}

/// Looks up the keys; changes nothing.
fn ask<A>(
    arguments: Question,
    mut ask: impl FnMut(Call<'_, Reader>, &[u8]) -> ebbtide::Result<A>,
    mut tell: impl FnMut(&[u8], A, &mut Output, Form) -> Result<()>,
) -> Result<()> {
    let Question { query, past } = &arguments;
    let (keys, form) = (&query.keys, Form::new(query));
    let reader = at_rest::look(&keys.dir, past, Options::new())?;
    let stream = Stream::asking(&reader, &keys.reading)?.skipping(Skipped::Answer(form));
    let ended = stream.run(
        keys.origin(),
        true,
        |call, line| ask(call, &line.key),
        |line, answer, output| tell(&line.key, answer, output, form),
    )?;
    ended.finish()
}

fn bit(answer: bool) -> &'static str {
    if answer { "1" } else { "0" }
}

fn report_late(late: u64) {
    if late > 0 {
        note(&format!("keys older than the window, not inserted: {late}"));
    }
}
