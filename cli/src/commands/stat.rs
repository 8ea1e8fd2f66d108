//! `stat`: the figures of a filter, once or at intervals, as text, JSON or metrics.

use super::at_rest::{self, warn_if_ahead};
use super::look::{bytes, parameter_rows, parameters_json};
use super::prometheus;
use super::shipped;
use crate::dirty_limit;
use crate::failure::{Failure, Result};
use crate::formatting;
use crate::operator_args::{Format, Stat as Arguments};
use crate::output::{Output, object, table};
use crate::stop::Stop;
use ebbtide::history::At;
use ebbtide::{Keep, Options, Reader, Stat};
use serde_json::{Map, Value};

/// The warning of `stat` about a filter that is fuller than planned.
const SATURATED: &str = "SATURATED: the filter is fuller than planned, or --max-memory does not \
                         let it grow: its false-positive rate is more than twice the planned rate, \
                         or will be; create a larger filter (see `ebbtide \
                         plan`) and move to it; if this many keys are unexpected, find their \
                         source, because flooding a filter is an attack";

/// The figures that are those of now, also as of a moment of the past.
const OF_NOW: [&str; 8] = [
    "disk_bytes",
    "snapshots",
    "wal_segments",
    "keep_log",
    "kept_log_from",
    "kept_log_seconds",
    "kept_log_bytes",
    "kept_log_short",
];

/// Prints the figures of a filter, until a signal if they are watched.
pub fn stat(arguments: &Arguments) -> Result<()> {
    let format = if arguments.json { Format::Json } else { arguments.format };
    let reader = at_rest::look(&arguments.dir, &arguments.past, Options::new())?;
    let mut output = Output::new()?;
    let at = arguments.past.at;
    let Some(every) = arguments.watch else {
        warn_if_ahead(reader.stat()?.clock_lead);
        print(&reader, at, format, &mut output)?;
        return output.flush();
    };
    let stop = Stop::on_signals()?;
    loop {
        print(&reader, at, format, &mut output)?;
        if format == Format::Text {
            // Separates the tables.
            output.text("")?;
        }
        output.flush()?;
        stop.sleep(every)?;
        if let Some(signal) = stop.signal() {
            return Err(Failure::Stopped(signal));
        }
    }
}

/// Prints the figures once; `at` is the moment of the past as of which they are.
fn print(reader: &Reader, at: Option<At>, format: Format, output: &mut Output) -> Result<()> {
    let (stat, is_past) = (reader.stat()?, at.is_some());
    match format {
        Format::Json => {
            let mut object = stat_json(&stat);
            if let Some(at) = at {
                object.insert("at".to_owned(), at.to_string().into());
                object.insert("of_now".to_owned(), OF_NOW.into());
            }
            if let Some(shipped) = shipped::json(reader.path(), &stat, is_past)? {
                object.insert("ship".to_owned(), shipped);
            }
            output.json(object)
        }
        Format::Prometheus => {
            if let Some(at) = at {
                output
                    .text(&format!("# As of {at}, but disk, snapshots and log as they are now"))?;
            }
            let text = prometheus::text(reader.path(), &stat, &reader.details()?);
            output.text(text.trim_end())
        }
        Format::Text => {
            output.text(&stat_text(&stat, is_past))?;
            if stat.saturated {
                output.text(SATURATED)?;
            }
            if let Some(text) = shipped::text(reader.path(), &stat, is_past)? {
                output.text(&text)?;
            }
            dirty_limit::remark(&stat).map_or(Ok(()), |remark| output.text(&remark))
        }
    }
}

fn stat_json(stat: &Stat) -> Map<String, Value> {
    let figures: Map<_, _> =
        stat.figures.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
    object([
        ("kind", stat.kind.into()),
        ("parameters", parameters_json(&stat.parameters)),
        ("inserts", stat.inserts.into()),
        ("operations", stat.operations.into()),
        ("lsn", stat.lsn.into()),
        ("durable_lsn", stat.durable_lsn.into()),
        ("step", stat.step.into()),
        ("time", stat.time.map(|time| time.as_unix_millis()).into()),
        ("clock_lead_ms", stat.clock_lead.map(|lead| lead.as_millis() as u64).into()),
        ("fill", stat.fill.into()),
        ("distinct_keys", stat.distinct_keys.into()),
        ("distinct_keys_error", stat.distinct_keys_error.into()),
        ("estimated_fpr", stat.estimated_fpr.into()),
        ("planned_fpr", stat.planned_fpr.into()),
        ("saturated", stat.saturated.into()),
        ("figures", figures.into()),
        ("memory_bytes", stat.memory_bytes.into()),
        ("image", stat.image.to_string().into()),
        ("disk_bytes", stat.disk_bytes.into()),
        ("stripes", stat.stripes.into()),
        ("blocks", stat.blocks.into()),
        ("banks", stat.banks.into()),
        ("handles", stat.handles.into()),
        ("snapshots", stat.snapshots.into()),
        ("wal_segments", stat.wal_segments.into()),
        ("claims", stat.claims.into()),
        ("oldest_claim_ms", stat.oldest_claim.map(|age| age.as_millis() as u64).into()),
        ("keep_log", stat.keep_log.to_string().into()),
        ("kept_log_from", stat.kept_log_from.into()),
        ("kept_log_seconds", stat.kept_log_for.map(|age| age.as_secs()).into()),
        ("kept_log_bytes", stat.kept_log_bytes.into()),
        ("kept_log_short", stat.kept_log_is_short.into()),
        ("durability", formatting::durability(stat.durability).into()),
        ("hash", stat.key_hash.to_string().into()),
        ("max_lead_seconds", stat.max_lead.as_secs_f64().into()),
    ])
}

/// Returns the table. As of a moment of the past, what the files take is that of now.
fn stat_text(stat: &Stat, is_past: bool) -> String {
    let of_now = |value: String| if is_past { format!("{value} (now)") } else { value };
    let none = || "none yet".to_owned();
    let mut rows = vec![("kind", stat.kind.to_owned())];
    rows.extend(parameter_rows(&stat.parameters));
    rows.extend([
        ("durability", formatting::durability(stat.durability)),
        ("hash", stat.key_hash.to_string()),
        ("max lead", formatting::duration(stat.max_lead)),
        ("inserts", stat.inserts.to_string()),
        ("operations", stat.operations.to_string()),
        ("step", stat.step.map_or_else(|| "none".to_owned(), |step| step.to_string())),
        ("latest time", stat.time.map_or_else(none, formatting::time)),
        ("fill", format!("{:.2} %", stat.fill * 100.0)),
        ("distinct keys", distinct_keys(stat)),
        ("estimated FPR", format!("{:.3e}", stat.estimated_fpr)),
        ("planned FPR", format!("{:.3e}", stat.planned_fpr)),
    ]);
    rows.extend(stat.figures.iter().map(|(name, value)| (*name, value.to_string())));
    rows.extend([
        ("memory", bytes(stat.memory_bytes)),
        ("image", stat.image.to_string()),
        ("disk", of_now(bytes(stat.disk_bytes))),
        ("stripes", stat.stripes.to_string()),
        ("blocks", stat.blocks.to_string()),
        ("banks", stat.banks.to_string()),
        ("LSN", stat.lsn.to_string()),
        ("durable LSN", stat.durable_lsn.to_string()),
    ]);
    if !is_past {
        rows.push(("handles", stat.handles.to_string()));
    }
    rows.extend([
        ("snapshots", of_now(stat.snapshots.to_string())),
        ("WAL segments", of_now(stat.wal_segments.to_string())),
    ]);
    if let Some(age) = stat.oldest_claim {
        let oldest = formatting::duration(age);
        rows.push(("claims", format!("{}, the oldest since {oldest}", stat.claims)));
    }
    if let Some(kept) = kept_log(stat) {
        rows.push(("kept log", of_now(kept)));
    }
    table(&rows)
}

/// Returns the number of distinct keys with its standard error, in words.
fn distinct_keys(stat: &Stat) -> String {
    match (stat.distinct_keys, stat.distinct_keys_error) {
        (Some(keys), Some(error)) => format!("{keys:.0}, give or take {:.0}", error.ceil()),
        _ => "not known by this kind".to_owned(),
    }
}

/// Returns what is kept of the log, in words; `None` if nothing is, and nothing is wished.
fn kept_log(stat: &Stat) -> Option<String> {
    let wished = match stat.keep_log {
        Keep::For(time) => formatting::duration(time),
        Keep::Bytes(most) => format!("up to {}", bytes(most)),
        _ if stat.kept_log_bytes > 0 => "nothing".to_owned(),
        _ => return None,
    };
    let from = stat.kept_log_from.map_or_else(|| "none".to_owned(), |lsn| lsn.to_string());
    let age = stat.kept_log_for.map_or_else(|| "0 s".to_owned(), formatting::duration);
    let size = bytes(stat.kept_log_bytes);
    let less = if stat.kept_log_is_short { ", less than" } else { ";" };
    Some(format!("from LSN {from}, {age} back, {size}{less} wished: {wished}"))
}
