//! `history`: the operations in the log of a filter, and those that come.

use crate::failure::{Failure, Result};
use crate::formatting;
use crate::operator_args::{History as Arguments, Lines};
use crate::output::{Output, object};
use crate::stop::Stop;
use ebbtide::history::{Change, Commit, History, Operation};
use ebbtide::{Error, Timestamp};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// The time between two looks at a log that had no more.
const PAUSE: Duration = Duration::from_millis(10);
/// The time to wait for another process that opens or alters the filter.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints the operations in the log, and with `--follow` those that come, until a signal.
pub fn history(arguments: &Arguments) -> Result<()> {
    let stop = if arguments.follow { Stop::on_signals()? } else { Stop::never() };
    let mut output = Output::new()?;
    let printed = print(arguments, &stop, &mut output);
    // What was read before a failure is printed as well.
    output.flush()?;
    printed
}

fn print(arguments: &Arguments, stop: &Stop, output: &mut Output) -> Result<()> {
    let Some(mut history) = next(arguments, stop, output, || open(arguments).map(Some))? else {
        return Ok(());
    };
    let lines = if arguments.json { Lines::Json } else { arguments.format };
    while let Some(commit) = next(arguments, stop, output, || history.read())? {
        for (at, operation) in commit.operations.iter().enumerate() {
            match lines {
                Lines::Text => output.text(&text(&commit, operation, at > 0))?,
                Lines::Json => output.json(members(&commit, operation))?,
            }
        }
    }
    Ok(())
}

fn open(arguments: &Arguments) -> ebbtide::Result<History> {
    let history = History::open(&arguments.dir)?;
    let history = match arguments.after {
        Some(after) => history.after(after)?,
        None => history,
    };
    Ok(if arguments.undurable { history.with_undurable() } else { history })
}

/// Reads what comes next, and waits for an opening or an alteration of the filter to end. A command
/// that follows also waits for what comes next, without a limit.
fn next<T>(
    arguments: &Arguments,
    stop: &Stop,
    output: &mut Output,
    mut read: impl FnMut() -> ebbtide::Result<Option<T>>,
) -> Result<Option<T>> {
    let begun = Instant::now();
    loop {
        if let Some(signal) = stop.signal() {
            return Err(Failure::Stopped(signal));
        }
        match read() {
            Err(Error::Locked { .. }) if !arguments.follow && begun.elapsed() < PATIENCE => {
                stop.sleep(PAUSE)?;
            }
            Ok(None) | Err(Error::Locked { .. }) if arguments.follow => {
                output.flush()?;
                if output.is_closed() {
                    return Err(Failure::ClosedPipe);
                }
                stop.sleep(PAUSE)?;
            }
            read => return read.map_err(Failure::from),
        }
    }
}

/// Returns the name of a change, and its details as names and values.
fn described(change: Change) -> (&'static str, Vec<(&'static str, Value)>) {
    // A hash uses all 64 bits, more than JSON numbers reliably hold.
    let of_key = |hash: u64| ("hash", format!("{hash:016x}").into());
    match change {
        Change::Insert { hash, weight } => {
            ("insert", vec![of_key(hash), ("weight", weight.into())])
        }
        Change::Remove { hash, weight } => {
            ("remove", vec![of_key(hash), ("weight", weight.into())])
        }
        Change::Clear => ("clear", Vec::new()),
        Change::Position { source, position } => {
            ("position", vec![("source", source.into()), ("position", position.into())])
        }
        Change::Claim { hash, token, lease } => {
            let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
            ("claim", vec![of_key(hash), ("token", token.into()), ("lease_ms", lease.into())])
        }
        Change::Release { hash, token } => ("release", vec![of_key(hash), ("token", token.into())]),
        _ => ("unknown", Vec::new()),
    }
}

fn members(commit: &Commit, operation: &Operation) -> Map<String, Value> {
    let (name, details) = described(operation.change);
    let mut members = object([
        ("lsn", operation.lsn.into()),
        ("commit", commit.lsn.into()),
        ("timeline", commit.timeline.into()),
        ("time", operation.time.map(Timestamp::as_unix_millis).into()),
        ("operation", name.into()),
    ]);
    members.extend(details.into_iter().map(|(name, value)| (name.to_owned(), value)));
    members
}

fn text(commit: &Commit, operation: &Operation, continues: bool) -> String {
    let (name, details) = described(operation.change);
    let time = operation.time.map_or_else(|| "-".to_owned(), formatting::time);
    let mut text = format!("{:>10}  {:>4}  {time:<27}  {name:<8}", operation.lsn, commit.timeline);
    for (name, value) in details {
        text += &match (name, &value) {
            ("lease_ms", value) => {
                let lease = Duration::from_millis(value.as_u64().unwrap_or(0));
                format!("  lease {}", formatting::duration(lease))
            }
            (_, Value::String(value)) => format!("  {name} {value}"),
            _ => format!("  {name} {value}"),
        };
    }
    if continues {
        text += "  with the one before";
    }
    text.truncate(text.trim_end().len());
    text
}
