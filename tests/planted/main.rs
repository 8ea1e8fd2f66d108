//! Each patch in this folder is a mistake that somebody could make in the engine or in the module
//! for Redis and Valkey, and makes some test fail.
//!
//! Without arguments: every patch is complete and applies to this checkout. With one of these, the
//! sources are copied to `planted/source` in the target folder, the tests that are needed are built
//! there and must pass; then one patch after the other is applied to the copy, its test is built
//! again and must fail:
//!
//! - `--few`: twelve patches, one for each of the likeliest bugs, each with the test that its head
//!   names;
//! - `--each`: all patches of the engine and of the command in the same way;
//! - `--module`: all patches of the module for Redis and Valkey in the same way, on real servers;
//! - `--mistake NAME`: one of them, may be repeated;
//! - `--by NAME`: with this harness of `harnesses.rs` instead, for example `--each --by world`;
//! - `--all`: each patch of the engine with all harnesses too, with small counts; prints the table
//!   of `docs/runs/planted-mistakes.md`.
//!
//! `--repair` rewrites the patches where lines around the change have moved or changed, as far as
//! one line of context on each side is still there, and names those that have to be made by hand:
//! make the mistake in the sources, `git diff` it into the patch below its head, and take it back.

mod build;
mod claims;
mod command;
mod git;
mod harnesses;
mod patch;
mod repair;
mod run;
mod source;

use std::process::ExitCode;

/// What to do with the patches.
enum Task {
    /// Check them, with the arguments of every test.
    Check(Vec<String>),
    Repair,
    /// Plant those with these names, or all of the extent.
    Plant(run::Extent, Vec<String>, Option<String>),
}

fn task() -> Task {
    let (mut extent, mut repair, mut names, mut rest) = (None, false, Vec::new(), Vec::new());
    let mut by = None;
    let mut arguments = std::env::args();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--few" => extent = Some(run::Extent::Few),
            "--each" => extent = Some(run::Extent::Each),
            "--all" => extent = Some(run::Extent::All),
            "--module" => extent = Some(run::Extent::Module),
            "--by" => by = arguments.next(),
            "--repair" => repair = true,
            "--mistake" => names.push(arguments.next().unwrap_or_default()),
            _ => rest.push(argument),
        }
    }
    match extent {
        _ if repair => Task::Repair,
        None if names.is_empty() => Task::Check(rest),
        extent => Task::Plant(extent.unwrap_or(run::Extent::Each), names, by),
    }
}

fn main() -> ExitCode {
    let done = match task() {
        Task::Check(rest) => return claims::check(rest),
        Task::Repair => repair::repair(),
        Task::Plant(extent, names, by) => run::plant(extent, &names, by.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}
