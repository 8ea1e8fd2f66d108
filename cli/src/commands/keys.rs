//! `insert`, `contains`, `check`, `remove`, `estimate` and `age`: one filter, one file of keys, one
//! answer per key.

use super::at_rest::warn_if_ahead;
use super::line::Skipped;
use super::stream::Stream;
use crate::args::{Check, Estimate, Insert, Query};
use crate::failure::{Result, note};
use crate::output::{Output, keyed};
use crate::units;
use ebbtide::{Age, Call, Checked, Filter, Options, Reader};
use serde_json::Value;

/// Inserts every key.
pub fn insert(arguments: Insert) -> Result<()> {
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

/// Prints whether each key is in the window.
pub fn contains(arguments: Query) -> Result<()> {
    let json = arguments.json;
    ask(
        arguments.keys,
        json,
        |call, key| call.contains(key),
        |key, present, output| answer(output, json, key, "present", present.into(), bit(present)),
    )
}

/// Prints whether each key was in the window, and inserts it.
pub fn check(arguments: Check) -> Result<()> {
    let json = arguments.query.json;
    let since = arguments.since.into();
    let mut late = 0;
    let changed = change(
        arguments.query.keys,
        Skipped::answer(json),
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
    );
    report_late(late);
    changed
}

/// Prints whether each key was present, and removes it.
pub fn remove(arguments: Query) -> Result<()> {
    let json = arguments.json;
    change(
        arguments.keys,
        Skipped::answer(json),
        |call, key| call.remove(key),
        |key, removed, output| answer(output, json, key, "removed", removed.into(), bit(removed)),
    )
}

/// Prints how often each key was inserted.
pub fn estimate(arguments: Estimate) -> Result<()> {
    let (json, normalised) = (arguments.query.json, arguments.normalised);
    let mut bounds = 0_u64;
    let asked = ask(
        arguments.query.keys,
        json,
        |call, key| if normalised { call.frequency(key) } else { call.estimate(key) },
        |key, estimate, output| {
            bounds += u64::from(estimate.at_least);
            if json {
                let mut object = keyed(key);
                object.insert("estimate".to_owned(), estimate.count.into());
                object.insert("at_least".to_owned(), estimate.at_least.into());
                return output.json(object);
            }
            let more = if estimate.at_least { "+" } else { "" };
            output.text(&format!("{}{more}", estimate.count))
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
pub fn age(arguments: Query) -> Result<()> {
    let json = arguments.json;
    ask(
        arguments.keys,
        json,
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

/// Opens the filter, passes it the keys, and closes it. `skipped` selects the output for bad lines,
/// `Skipped::Nothing` where there are no answers.
fn change<A>(
    arguments: Insert,
    skipped: Skipped,
    mut ask: impl FnMut(Call<'_>, &[u8]) -> ebbtide::Result<A>,
    mut tell: impl FnMut(&[u8], A, &mut Output) -> Result<()>,
) -> Result<()> {
    let filter = Filter::open(&arguments.dir, Options::new())?;
    warn_if_ahead(filter.clock_lead());
    let files = arguments.file.into_iter().collect();
    let ended = Stream::changing(&filter, &arguments.reading)?.skipping(skipped).run(
        files,
        skipped != Skipped::Nothing,
        |call, line| ask(call, line.key),
        |line, answer, output| tell(line.key, answer, output),
    )?;
    filter.close()?;
    ended.finish()
}

/// Looks up the keys; changes nothing.
fn ask<A>(
    arguments: Insert,
    json: bool,
    mut ask: impl FnMut(Call<'_, Reader>, &[u8]) -> ebbtide::Result<A>,
    mut tell: impl FnMut(&[u8], A, &mut Output) -> Result<()>,
) -> Result<()> {
    let reader = Reader::open(&arguments.dir, Options::new())?;
    let files = arguments.file.into_iter().collect();
    let stream = Stream::asking(&reader, &arguments.reading).skipping(Skipped::answer(json));
    let ended = stream.run(
        files,
        true,
        |call, line| ask(call, line.key),
        |line, answer, output| tell(line.key, answer, output),
    )?;
    ended.finish()
}

/// Writes one answer, as text or as JSON.
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
