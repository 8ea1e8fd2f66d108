//! `salvage`: recovers the longest provable prefix of a damaged filter into a new one, and reports
//! what is lost.

use super::look::damage_json;
use super::place;
use crate::args::Salvage;
use crate::exit_codes::NO;
use crate::failure::{Result, note, unless_closed};
use crate::formatting;
use crate::output::{Output, object};
use ebbtide::inspect::{self, Beyond, Lost, Salvaged};
use ebbtide::{Error, Timestamp};
use serde_json::{Map, Value};
use std::path::Path;
use std::process::ExitCode;

/// Recovers what is provable; returns exit code 1 if nothing is damaged.
pub fn salvage(arguments: &Salvage) -> Result<ExitCode> {
    place::check(&arguments.dest)?;
    place::check_outside(&arguments.dest, &arguments.src)?;
    let salvaged = inspect::salvage(&arguments.src, &arguments.dest)?;
    if arguments.json {
        let object = salvaged.as_ref().map_or_else(unneeded_json, salvaged_json);
        unless_closed(print(object))?;
    } else {
        match &salvaged {
            Some(salvaged) => tell(salvaged, &arguments.dest),
            None => note(&format!(
                "nothing that {} needs is damaged: it opens as it is, and nothing was written",
                arguments.src.display()
            )),
        }
    }
    Ok(salvaged.map_or(ExitCode::from(NO), |_| ExitCode::SUCCESS))
}

fn print(object: Map<String, Value>) -> Result<()> {
    let mut output = Output::new()?;
    output.json(object)?;
    output.flush()
}

fn tell(salvaged: &Salvaged, dest: &Path) {
    let base = match salvaged.snapshot {
        Some(start) => format!("the snapshot of LSN {start} and the log from there"),
        None => "the log from its beginning".to_owned(),
    };
    let (saved, inserts) = (salvaged.lsn - 1, salvaged.inserts);
    note(&format!(
        "saved in {}: every record up to LSN {saved}, {inserts} inserts in all, by {base}",
        dest.display()
    ));
    for error in &salvaged.damaged {
        note(&format!("damaged: {}", place(error)));
    }
    note(&lost(salvaged));
    note(&durable(salvaged));
    note(
        &salvaged
            .beyond
            .as_ref()
            .map_or_else(|| "not saved: no readable operations".to_owned(), beyond),
    );
}

/// Returns the location and kind of a damage, without the remedy: salvage was the remedy.
fn place(error: &Error) -> String {
    match error {
        Error::Damaged { path, offset, expected, found, .. } => {
            format!("{} at byte {offset}: expected {expected}, found {found}", path.display())
        }
        other => other.to_string(),
    }
}

fn lost(salvaged: &Salvaged) -> String {
    let (first, Some(lost)) = (salvaged.lsn, &salvaged.lost) else {
        return format!(
            "lost: nothing; no evidence that the log continued at LSN {}",
            salvaged.lsn
        );
    };
    let cause = place(&lost.cause);
    if lost.end > first {
        let last = lost.end - 1;
        format!("lost: the records from LSN {first} up to LSN {last} at least; {cause}")
    } else {
        format!("lost: any records from LSN {first} on; {cause}")
    }
}

fn durable(salvaged: &Salvaged) -> String {
    let saved = if salvaged.durable_lsn > salvaged.lsn {
        "some of it is lost"
    } else {
        "all of it is saved"
    };
    let upto = salvaged.durable_lsn - 1;
    format!("acknowledged as durable: up to LSN {upto} at least; {saved}")
}

fn beyond(beyond: &Beyond) -> String {
    let Beyond { operations, first, last, .. } = *beyond;
    let times = match (time(beyond.since), time(beyond.until)) {
        (Some(since), Some(until)) => {
            format!(", of times {} to {}", formatting::time(since), formatting::time(until))
        }
        _ => String::new(),
    };
    format!(
        "not saved: {operations} readable operations after the damage, LSN {first} to \
         {last}{times}; without the lost records they do not lead to a state that the filter ever \
         had"
    )
}

/// Returns the time, if it is set.
fn time(time: Timestamp) -> Option<Timestamp> {
    (time != Timestamp::default()).then_some(time)
}

fn unneeded_json() -> Map<String, Value> {
    object([("saved", false.into()), ("damaged", Value::Array(Vec::new()))])
}

fn salvaged_json(salvaged: &Salvaged) -> Map<String, Value> {
    let damaged: Vec<_> = salvaged.damaged.iter().map(damage_json).collect();
    object([
        ("saved", true.into()),
        ("lsn", salvaged.lsn.into()),
        ("inserts", salvaged.inserts.into()),
        ("snapshot", salvaged.snapshot.into()),
        ("durable_lsn", salvaged.durable_lsn.into()),
        ("damaged", damaged.into()),
        ("lost", salvaged.lost.as_ref().map(|lost| lost_json(salvaged.lsn, lost)).into()),
        ("beyond", salvaged.beyond.map(beyond_json).into()),
    ])
}

fn lost_json(first: u64, lost: &Lost) -> Value {
    Value::Object(object([
        ("first_lsn", first.into()),
        ("end_lsn", lost.end.into()),
        ("cause", damage_json(&lost.cause)),
    ]))
}

fn beyond_json(beyond: Beyond) -> Value {
    Value::Object(object([
        ("operations", beyond.operations.into()),
        ("first_lsn", beyond.first.into()),
        ("last_lsn", beyond.last.into()),
        ("first_time", time(beyond.since).map(Timestamp::as_unix_millis).into()),
        ("last_time", time(beyond.until).map(Timestamp::as_unix_millis).into()),
    ]))
}
