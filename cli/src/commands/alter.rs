//! `alter` of a filter where it is, and `plan --alter`.

use super::look::{bytes, parameters_json};
use super::{at_rest, closing};
use crate::failure::{Failure, Result};
use crate::formatting::{self, counted};
use crate::kept_parameters::{Named, shown};
use crate::output::{Output, object, table};
use crate::remake_args::Alter;
use ebbtide::history::{AlterationPlan, Altered, Unlogged};
use ebbtide::{Any, Error, Filter, Keep, Options, Reader, Spec, Timestamp, history};
use serde_json::{Map, Value};
use std::path::Path;
use std::time::Duration;

/// Seconds that an operation in the log takes.
const SECONDS_A_RECORD: f64 = 0.25e-6;
/// Bytes of a snapshot that are written or read in a second.
const BYTES_A_SECOND: f64 = (1_u64 << 30) as f64;

/// `alter` without a directory for a new filter.
pub fn in_place(arguments: &Alter) -> Result<()> {
    let Alter { dir, remade, json, .. } = arguments;
    // The alteration has a time, as an insert.
    let filter = Filter::<Any>::open(dir, Options::new())?;
    let spec = remade.named().over(filter.kind(), &filter.parameters())?;
    spec.kind()?;
    let unlogged = if remade.settings.forget { Unlogged::Forget } else { Unlogged::Refuse };
    let keep = remade.settings.keep_log;
    // What keeps more holds the log that the alteration leaves. What may keep less must not remove
    // log if the alteration is refused.
    let (before, after) = match keep {
        Some(keep) if keeps_more(keep, filter.stat()?.keep_log) => (Some(keep), None),
        keep => (None, keep),
    };
    set_keep(dir, before)?;
    let altered = match filter.alter(spec, unlogged) {
        Err(Error::NotKept { from, .. }) if unlogged == Unlogged::Refuse => {
            return Err(too_short(dir, from + 1));
        }
        altered => altered?,
    };
    set_keep(dir, after)
        .map_err(|failure| failure.and("the filter is altered, only --keep-log may not be set"))?;
    closing::close_after(&filter, print(&filter, dir, altered, *json))
}

/// Prints what a filter is now.
fn print(filter: &Filter<Any>, dir: &Path, altered: Altered, json: bool) -> Result<()> {
    let mut output = Output::new()?;
    let now = shown(filter.kind(), &filter.parameters());
    if json {
        let mut members = object([
            ("kind", filter.kind().into()),
            ("parameters", parameters_json(&filter.parameters())),
        ]);
        members.extend(altered_json(altered));
        output.json(members)?;
    } else {
        output.sentence(&format!("{} is {now} {}", dir.display(), altered_text(altered)))?;
    }
    output.flush()
}

/// Returns the error for a log that does not have the whole new window.
fn too_short(dir: &Path, first: u64) -> Failure {
    Failure::Error(format!(
        "the log of {} begins at LSN {first}, within the new window, so that what was inserted \
         before would be forgotten; alter the filter nevertheless with --forget",
        dir.display()
    ))
}

/// Returns whether a setting certainly keeps all that another one keeps.
fn keeps_more(keep: Keep, before: Keep) -> bool {
    match (keep, before) {
        (_, Keep::Nothing) => true,
        (Keep::For(time), Keep::For(before)) => time >= before,
        (Keep::Bytes(bytes), Keep::Bytes(before)) => bytes >= before,
        _ => false,
    }
}

/// Sets how much log a filter keeps, for all its handles, if that is given.
fn set_keep(dir: &Path, keep: Option<Keep>) -> Result<()> {
    let Some(keep) = keep else { return Ok(()) };
    // Opening it sets that.
    Ok(Filter::<Any>::open(dir, at_rest::options().keep_log(keep))?.close()?)
}

fn altered_json(altered: Altered) -> Map<String, Value> {
    object([
        ("lsn", altered.lsn.into()),
        ("operations", altered.operations.into()),
        ("whole", altered.is_whole.into()),
        ("since", altered.since.map(Timestamp::as_unix_millis).into()),
        ("stopped_seconds", altered.stopped.as_secs_f64().into()),
    ])
}

fn altered_text(altered: Altered) -> String {
    let operations = counted(altered.operations, "operation");
    let log = match (altered.is_whole, altered.since) {
        (true, _) => operations,
        (false, Some(since)) => {
            format!("{operations} since {}, earlier ones are forgotten", formatting::time(since))
        }
        (false, None) => format!("{operations}, earlier ones are forgotten"),
    };
    let stopped = rounded(altered.stopped.as_secs_f64());
    format!("from LSN {} on, with {log}; writers were stopped for {stopped}", altered.lsn)
}

/// Formats a number of seconds as whole milliseconds, at least one.
fn rounded(seconds: f64) -> String {
    formatting::duration(Duration::from_millis(((seconds * 1e3).ceil() as u64).max(1)))
}

/// What an alteration is estimated to take.
struct Estimate {
    plan: AlterationPlan,
    seconds: f64,
    stopped: f64,
    memory: u64,
}

impl Estimate {
    fn new(dir: &Path, spec: Any, present: u64) -> Result<Self> {
        let plan = history::plan(dir, spec)?;
        let stopped = 2.0 * plan.memory_after as f64 / BYTES_A_SECOND;
        let seconds = plan.records as f64 * SECONDS_A_RECORD + stopped;
        let memory = present.saturating_add(plan.memory_after.saturating_mul(2));
        Ok(Self { plan, seconds, stopped, memory })
    }

    fn is_whole(&self) -> bool {
        self.plan.first_lsn == 1
    }

    fn json(&self) -> Map<String, Value> {
        object([
            ("records", self.plan.records.into()),
            ("from_lsn", self.plan.first_lsn.into()),
            ("since", self.plan.since.map(Timestamp::as_unix_millis).into()),
            ("whole", self.is_whole().into()),
            ("must_forget", self.plan.must_forget().into()),
            ("seconds", self.seconds.into()),
            ("stopped_seconds", self.stopped.into()),
            ("memory_before_bytes", self.plan.memory_before.into()),
            ("memory_after_bytes", self.plan.memory_after.into()),
            ("memory_bytes", self.memory.into()),
            ("disk_bytes", self.plan.memory_after.into()),
        ])
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let (from, since) = (self.plan.first_lsn, self.plan.since);
        let mut forgotten = match since {
            _ if self.is_whole() => "nothing".to_owned(),
            Some(since) => format!("what came before LSN {from}, at {}", formatting::time(since)),
            None => format!("what came before LSN {from}"),
        };
        if !self.plan.has_window {
            forgotten += "; needs --forget, because that may be in the new window";
        }
        if self.plan.keeps_removed {
            forgotten += "; needs --forget, because removed keys would be in the filter again";
        }
        let (before, after) = (bytes(self.plan.memory_before), bytes(self.plan.memory_after));
        vec![
            ("records to read", self.plan.records.to_string()),
            ("forgotten", forgotten),
            ("time", format!("about {}", rounded(self.seconds))),
            ("writers stopped", format!("about {}", rounded(self.stopped))),
            ("size before", before),
            ("size after", after.clone()),
            ("memory meanwhile", bytes(self.memory)),
            ("disk meanwhile", after),
        ]
    }
}

/// `plan --alter`: prints what an alteration would take. Changes nothing.
pub fn plan(dir: &Path, named: Named<'_>, json: bool) -> Result<()> {
    let reader = Reader::<Any>::open(dir, at_rest::options())?;
    let (kind, parameters) = (reader.kind().to_owned(), reader.parameters());
    let spec = named.over(&kind, &parameters)?;
    let after = spec.kind()?;
    let memory = reader.stat()?.memory_bytes;
    drop(reader);
    let estimate = Estimate::new(dir, spec, memory)?;
    let mut output = Output::new()?;
    if json {
        let mut members = object([
            ("kind", after.name().into()),
            ("parameters", parameters_json(&after.parameters())),
        ]);
        members.extend(estimate.json());
        output.json(members)?;
    } else {
        let mut rows = vec![
            ("before", shown(&kind, &parameters).to_string()),
            ("after", shown(after.name(), &after.parameters()).to_string()),
        ];
        rows.extend(estimate.rows());
        output.text(&table(&rows))?;
    }
    output.flush()
}
