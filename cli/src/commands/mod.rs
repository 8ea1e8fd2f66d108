//! Dispatches each command to its module; one module per group of commands.

mod alter;
mod at_least_once;
mod at_rest;
mod claims;
mod closing;
mod counts;
mod create;
mod dedup;
mod demo;
mod distinct;
mod event_times;
mod exactly_once;
mod explain;
mod history;
mod in_memory;
mod keys;
mod line;
mod look;
mod observer;
mod place;
mod plan;
mod plan_plot;
mod posteriors;
mod prometheus;
mod reasons;
mod remake;
mod report;
mod restore;
mod run;
mod salvage;
mod shells;
#[cfg(feature = "ship")]
mod ship;
#[cfg_attr(not(feature = "ship"), path = "not_shipped.rs")]
mod shipped;
mod stat;
mod stream;
mod temporary;
mod top;

use crate::args::Command;
use crate::failure::Result;
use std::process::ExitCode;

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Dedup(arguments) => dedup::dedup(&arguments)?,
        Command::Create(arguments) => create::create(&arguments)?,
        Command::Insert(arguments) => keys::insert(arguments)?,
        Command::Contains(arguments) => return keys::contains(arguments),
        Command::Check(arguments) => keys::check(arguments)?,
        Command::Remove(arguments) => keys::remove(arguments)?,
        Command::Estimate(arguments) => keys::estimate(arguments)?,
        Command::Age(arguments) => keys::age(arguments)?,
        Command::Posterior(arguments) => posteriors::posterior(&arguments)?,
        Command::Decide(arguments) => posteriors::decide(&arguments)?,
        Command::Distinct(arguments) => distinct::distinct(&arguments)?,
        Command::Stat(arguments) => stat::stat(&arguments)?,
        Command::Top(arguments) => top::top(&arguments)?,
        Command::Report(arguments) => report::report(&arguments)?,
        Command::Digest(arguments) => look::digest(&arguments)?,
        Command::Verify(arguments) => return look::verify(&arguments),
        Command::Wal(arguments) => look::wal(&arguments)?,
        Command::History(arguments) => history::history(&arguments)?,
        Command::Clear(arguments) => look::clear(&arguments)?,
        Command::Snapshot(arguments) => look::snapshot(&arguments)?,
        Command::Backup(arguments) => {
            place::check(&arguments.dest)?;
            place::check_outside(&arguments.dest, &arguments.dir)?;
            let filter = at_rest::open(&arguments.dir)?;
            filter.backup(&arguments.dest)?;
            closing::close(&filter)?;
        }
        Command::Restore(arguments) => restore::restore(&arguments)?,
        #[cfg(feature = "ship")]
        Command::Ship(arguments) => return ship::ship(&arguments),
        #[cfg(feature = "ship")]
        Command::Fetch(arguments) => ship::fetch(&arguments)?,
        #[cfg(feature = "ship")]
        Command::Follow(arguments) => ship::follow(&arguments)?,
        #[cfg(feature = "ship")]
        Command::Promote(arguments) => ship::promote(&arguments)?,
        Command::Alter(arguments) => remake::alter(&arguments)?,
        Command::Merge(arguments) => remake::merge(&arguments)?,
        Command::Split(arguments) => remake::split(&arguments)?,
        Command::Run(arguments) => return claims::run(&arguments),
        Command::Claims(arguments) => return claims::claims(&arguments),
        Command::Salvage(arguments) => return salvage::salvage(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments)?,
        Command::Explain(arguments) => explain::explain(&arguments)?,
        Command::Demo(arguments) => return demo::demo(&arguments),
        Command::Completions(arguments) => shells::completions(&arguments)?,
        Command::Man(arguments) => shells::man(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
