//! `digest`, `verify`, `wal`, `clear` and `snapshot`: the state of a filter and the contents of its
//! files.

use super::{at_rest, closing};
use crate::args::{Digest, Look};
use crate::exit_codes::NO;
use crate::failure::{Result, unless_closed};
use crate::formatting;
use crate::output::{Output, object, parameter_value};
use ebbtide::{Any, Error, Filter, Options, Parameters, Timestamp, inspect};
use indicatif::BinaryBytes;
use serde_json::{Map, Value};
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the digest and its LSN.
pub fn digest(arguments: &Digest) -> Result<()> {
    let Digest { look, past } = arguments;
    let reader = at_rest::look(&look.dir, past, at_rest::options())?;
    let digest = reader.digest()?;
    let value = format!("{:032x}", digest.value);
    let mut output = Output::new()?;
    if look.json {
        output.json(object([
            ("digest", value.into()),
            ("lsn", digest.lsn.into()),
            ("inserts", digest.inserts.into()),
        ]))?;
    } else {
        output.text(&format!("{value}  LSN {}, {} inserts", digest.lsn, digest.inserts))?;
    }
    output.flush()
}

/// Lists each file with its damage; returns exit code 1 if there is any.
pub fn verify(arguments: &Look) -> Result<ExitCode> {
    let report = inspect::verify(&arguments.dir)?;
    unless_closed(print_files(&report.files, arguments.json))?;
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn print_files(files: &[inspect::FileReport], json: bool) -> Result<()> {
    let mut output = Output::new()?;
    for file in files {
        if json {
            let damage: Vec<_> = file.damage.iter().map(damage_json).collect();
            output.json(object([
                ("file", file.name.as_str().into()),
                ("bytes", file.bytes.into()),
                ("detail", file.detail.as_str().into()),
                ("sound", file.damage.is_empty().into()),
                ("damage", damage.into()),
            ]))?;
        } else {
            let state = if file.damage.is_empty() { "sound" } else { "DAMAGED" };
            // An entry for all files together has no size.
            let size =
                if file.bytes == 0 { String::new() } else { format!(", {}", bytes(file.bytes)) };
            let detail =
                if file.detail.is_empty() { String::new() } else { format!(", {}", file.detail) };
            output.text(&format!("{}: {state}{size}{detail}", file.name))?;
            for damage in &file.damage {
                output.text(&format!("  {damage}"))?;
            }
        }
    }
    output.flush()
}

/// Returns the description of a damage as JSON.
pub fn damage_json(error: &Error) -> Value {
    let mut members = object([("message", error.to_string().into())]);
    if let Error::Damaged { path, offset, expected, found, .. } = error {
        members.insert("path".to_owned(), path.to_string_lossy().into());
        members.insert("offset".to_owned(), (*offset).into());
        members.insert("expected".to_owned(), expected.as_str().into());
        members.insert("found".to_owned(), found.as_str().into());
    }
    Value::Object(members)
}

/// Prints the log, one record per line: LSN, time, operation, details.
///
/// A tag replaces each key hash, which could reveal the filter's seed. The tag is the hash of the
/// key hash under a random key of this run, so it shows only which keys are equal within one
/// output.
pub fn wal(arguments: &Look) -> Result<()> {
    let mut output = Output::new()?;
    let tags = RandomState::new();
    let mut unwritten = None;
    let read = inspect::wal(&arguments.dir, |entry| {
        let written = if arguments.json {
            output.json(entry_json(entry, &tags))
        } else {
            output.text(&entry_text(entry, &tags))
        };
        written.map_err(|failure| {
            unwritten = Some(failure);
            stop()
        })
    });
    if let Some(failure) = unwritten {
        return Err(failure);
    }
    output.flush()?;
    Ok(read?)
}

/// Returns an error that stops the library's reading; the caller discards it.
fn stop() -> Error {
    Error::Io {
        action: "write to",
        path: PathBuf::from("standard output"),
        source: ErrorKind::BrokenPipe.into(),
    }
}

/// Returns the time of a record, if it has one.
fn entry_time(entry: &inspect::Entry) -> Option<Timestamp> {
    (entry.time != Timestamp::default()).then_some(entry.time)
}

fn entry_json(entry: &inspect::Entry, tags: &RandomState) -> Map<String, Value> {
    let mut members = object([
        ("lsn", entry.lsn.into()),
        ("timeline", entry.timeline.into()),
        ("time", entry_time(entry).map(Timestamp::as_unix_millis).into()),
        ("operation", entry.operation.into()),
        ("stream_time", entry.is_stream_time().into()),
    ]);
    for (name, value) in entry.details() {
        // A tag uses all 64 bits, more than JSON numbers reliably hold.
        let (name, value) = match name {
            "hash" => ("key", tag(value, tags).into()),
            _ => (name, value.into()),
        };
        members.insert(name.to_owned(), value);
    }
    if entry.continues() {
        members.insert("continues".to_owned(), true.into());
    }
    if !entry.counts {
        members.insert("ignored".to_owned(), true.into());
    }
    members
}

fn entry_text(entry: &inspect::Entry, tags: &RandomState) -> String {
    let time = entry_time(entry).map_or_else(|| "-".to_owned(), formatting::time);
    let mut text = format!("{:>10}  {time:<27}  {:<10}", entry.lsn, entry.operation);
    for (name, value) in entry.details() {
        text += &match name {
            "hash" => format!("  key {}", tag(value, tags)),
            _ => format!("  {name} {value}"),
        };
    }
    if entry.continues() {
        text += "  with the next";
    }
    if !entry.counts {
        text += "  ignored: its batch was not completed";
    }
    text
}

/// Returns the tag of a key hash within one output.
fn tag(hash: u64, tags: &RandomState) -> String {
    format!("{:016x}", tags.hash_one(hash))
}

/// Removes all keys and prints how many inserts they were.
pub fn clear(arguments: &Look) -> Result<()> {
    // Its record has the time of the clock, as that of an insert, if a clock moves the filter.
    let filter = Filter::<Any>::open(&arguments.dir, Options::new())?;
    let inserts = filter.stat()?.inserts;
    filter.clear_without_a_clock()?;
    let text = format!("cleared; {inserts} inserts removed");
    closing::close_after(&filter, print(arguments, &text, ("inserts", inserts)))
}

/// Writes a snapshot and prints the LSN from which it needs the log.
pub fn snapshot(arguments: &Look) -> Result<()> {
    let filter = at_rest::open(&arguments.dir)?;
    let start = filter.checkpoint()?;
    let text = format!("snapshot written; it needs the log from LSN {start}");
    closing::close_after(&filter, print(arguments, &text, ("start_lsn", start)))
}

/// Prints a sentence, or its number as JSON.
fn print(arguments: &Look, text: &str, (name, number): (&str, u64)) -> Result<()> {
    let mut output = Output::new()?;
    match arguments.json {
        true => output.json(object([(name, number.into())]))?,
        false => output.text(text)?,
    }
    output.flush()
}

/// Returns parameters as a JSON object.
pub fn parameters_json(parameters: &Parameters) -> Value {
    let members: Map<_, _> =
        parameters.iter().map(|(name, value)| (name.to_owned(), parameter_value(value))).collect();
    Value::Object(members)
}

/// Returns parameters as rows of a table.
pub fn parameter_rows(parameters: &Parameters) -> Vec<(&str, String)> {
    parameters
        .iter()
        .map(|(name, value)| match (name, value.parse()) {
            ("window" | "epoch", Ok(micros)) => {
                (name, formatting::duration(std::time::Duration::from_micros(micros)))
            }
            _ => (name, ebbtide::units::shown(name, value)),
        })
        .collect()
}

/// Formats a number of bytes: rounded, with the exact number if that differs.
pub fn bytes(count: u64) -> String {
    if count < 1024 { format!("{count} B") } else { format!("{} ({count} B)", BinaryBytes(count)) }
}
