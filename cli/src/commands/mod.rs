//! Dispatches each command to its module; one module per group of commands.

mod at_least_once;
mod create;
mod dedup;
mod keys;
mod look;
mod place;
mod plan;
mod posteriors;
mod run;
mod salvage;
mod stream;

use crate::args::Command;
use crate::failure::{Failure, Result, note};
use crate::units;
use ebbtide::{Any, Clock, Filter, Options, inspect};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The exit code of the answer "no".
const NO: u8 = 1;

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Dedup(arguments) => dedup::dedup(arguments)?,
        Command::Create(arguments) => create::create(&arguments)?,
        Command::Insert(arguments) => keys::insert(arguments)?,
        Command::Contains(arguments) => keys::contains(arguments)?,
        Command::Check(arguments) => keys::check(arguments)?,
        Command::Remove(arguments) => keys::remove(arguments)?,
        Command::Estimate(arguments) => keys::estimate(arguments)?,
        Command::Age(arguments) => keys::age(arguments)?,
        Command::Posterior(arguments) => posteriors::posterior(&arguments)?,
        Command::Decide(arguments) => posteriors::decide(&arguments)?,
        Command::Stat(arguments) => look::stat(&arguments)?,
        Command::Digest(arguments) => look::digest(&arguments)?,
        Command::Verify(arguments) => return look::verify(&arguments),
        Command::Wal(arguments) => look::wal(&arguments)?,
        Command::Clear(arguments) => look::clear(&arguments)?,
        Command::Snapshot(arguments) => look::snapshot(&arguments)?,
        Command::Backup(arguments) => {
            place::check(&arguments.dest)?;
            let filter = open_at_rest(&arguments.dir)?;
            filter.backup(&arguments.dest)?;
            filter.close()?;
        }
        Command::Restore(arguments) => {
            place::check(&arguments.dir)?;
            inspect::restore(&arguments.src, &arguments.dir)?;
        }
        Command::Salvage(arguments) => return salvage::salvage(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a filter [at rest](at_rest).
fn open_at_rest(dir: &Path) -> Result<Filter<Any>> {
    Filter::open(dir, at_rest()).map_err(Failure::from)
}

/// Warns if a filter's time is ahead of the clock by a minute or more.
fn warn_if_ahead(lead: Option<Duration>) {
    let minutes = lead.map_or(0, |lead| lead.as_secs() / 60);
    if minutes > 0 {
        let ahead = units::duration(Duration::from_secs(60 * minutes));
        note(&format!(
            "the filter's time is {ahead} ahead of the clock; keys without a time expire as usual, \
             keys with their own times appear older than they are and may be refused as too late"
        ));
    }
}

/// Returns options without a clock: answers refer to the filter's own latest time.
fn at_rest() -> Options {
    Options::new().clock(Clock::stream())
}
