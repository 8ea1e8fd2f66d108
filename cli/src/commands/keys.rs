//! `insert`, `contains`, `check`, `remove`, `estimate` and `age`: one filter, one file of keys, an answer per key.

use super::asked::{Asked, Question};
use super::stream::Stream;
use crate::args::{Check, Estimate, Insert, Query};
use crate::failure::{Result, note};
use crate::output::{Output, keyed};
use crate::units;
use ebbtide::{Age, Call, Checked, Filter, Options};
use serde_json::Value;

/// Inserts every key.
pub fn insert(arguments: Insert) -> Result<()> {
    let mut late = 0;
    change(
        arguments,
        false,
        |call, key| call.insert(key),
        |_, inserted, _| {
            late += u64::from(!inserted);
            Ok(())
        },
    )?;
    report_late(late);
    Ok(())
}

/// Answers whether each key is in the window.
pub fn contains(arguments: Query) -> Result<()> {
    let json = arguments.json;
    ask(
        arguments.keys,
        |call, key| call.contains(key),
        |key, present, output| answer(output, json, key, "present", present.into(), bit(present)),
    )
}

/// Answers whether each key was in the window, and inserts it.
pub fn check(arguments: Check) -> Result<()> {
    let json = arguments.query.json;
    let since = arguments.since.into();
    let mut late = 0;
    change(
        arguments.query.keys,
        true,
        |call, key| call.since(since).check_and_insert(key),
        |key, checked, output| {
            let present = checked == Checked::Present;
            if json && checked == Checked::TooLate {
                late += 1;
                let mut object = keyed(key);
                object.insert("present".to_owned(), false.into());
                object.insert("too_late".to_owned(), true.into());
                return output.json(object);
            }
            late += u64::from(checked == Checked::TooLate);
            answer(output, json, key, "present", present.into(), bit(present))
        },
    )?;
    report_late(late);
    Ok(())
}

/// Answers whether each key was there, and removes it.
pub fn remove(arguments: Query) -> Result<()> {
    let json = arguments.json;
    change(
        arguments.keys,
        true,
        |call, key| call.remove(key),
        |key, removed, output| answer(output, json, key, "removed", removed.into(), bit(removed)),
    )
}

/// Answers how often each key was inserted.
pub fn estimate(arguments: Estimate) -> Result<()> {
    let (json, normalised) = (arguments.query.json, arguments.normalised);
    let mut bounds = 0_u64;
    ask(
        arguments.query.keys,
        |call, key| if normalised { call.frequency(key) } else { call.estimate(key) },
        |key, estimate, output| {
            bounds += u64::from(estimate.at_least);
            if json {
                let mut object = keyed(key);
                object.insert("estimate".to_owned(), estimate.count.into());
                object.insert("at_least".to_owned(), estimate.at_least.into());
                return output.json(object);
            }
            output.text(&estimate.count.to_string())
        },
    )?;
    if bounds > 0 {
        note(&format!("estimates that are lower bounds, for a counter is at its end: {bounds}"));
    }
    Ok(())
}

/// Answers how long ago each key was seen.
pub fn age(arguments: Query) -> Result<()> {
    let json = arguments.json;
    ask(
        arguments.keys,
        |call, key| call.age(key),
        |key, age, output| match age {
            None => answer(output, json, key, "age", Value::Null, "-"),
            Some(Age::Items(items)) => {
                answer(output, json, key, "age_items", items.into(), &items.to_string())
            }
            Some(Age::Time(micros)) => {
                let seconds = micros as f64 / 1e6;
                let text = units::seconds(micros);
                answer(output, json, key, "age_seconds", seconds.into(), &text)
            }
        },
    )
}

/// Opens the filter, feeds it the keys, closes it.
fn change<A>(
    arguments: Insert,
    prints_answers: bool,
    mut ask: impl FnMut(Call<'_>, &[u8]) -> ebbtide::Result<A>,
    mut tell: impl FnMut(&[u8], A, &mut Output) -> Result<()>,
) -> Result<()> {
    let filter = Filter::open(&arguments.dir, Options::new())?;
    super::warn_if_ahead(filter.clock_lead());
    let files = arguments.file.into_iter().collect();
    Stream::changing(&filter, &arguments.reading)?.run(
        files,
        prints_answers,
        |call, line| ask(call, line.key),
        |line, answer, output| tell(line.key, answer, output),
    )?;
    filter.close()?;
    Ok(())
}

/// Opens the filter, asks it about the keys, closes it.
fn ask<A>(
    arguments: Insert,
    mut ask: impl FnMut(Question<'_>, &[u8]) -> ebbtide::Result<A>,
    mut tell: impl FnMut(&[u8], A, &mut Output) -> Result<()>,
) -> Result<()> {
    let filter = Asked::open(&arguments.dir, Options::new())?;
    let files = arguments.file.into_iter().collect();
    Stream::asking(&filter, &arguments.reading).run(
        files,
        true,
        |call, line| ask(call, line.key),
        |line, answer, output| tell(line.key, answer, output),
    )?;
    filter.close()
}

/// Writes one answer in the form asked for.
fn answer(
    output: &mut Output,
    json: bool,
    key: &[u8],
    name: &str,
    value: Value,
    text: &str,
) -> Result<()> {
    if json {
        let mut object = keyed(key);
        object.insert(name.to_owned(), value);
        output.json(object)
    } else {
        output.text(text)
    }
}

fn bit(answer: bool) -> &'static str {
    if answer { "1" } else { "0" }
}

fn report_late(late: u64) {
    if late > 0 {
        note(&format!("keys older than the window, not inserted: {late}"));
    }
}
