//! Planting mistakes, one after the other.

use crate::build::{Built, build};
use crate::command::{Command, Ended, Test};
use crate::harnesses::HARNESSES;
use crate::patch::{Patch, all};
use crate::{claims, git, source};
use ebbtide_testkit::skipped::skipped;
use std::path::Path;
use std::time::{Duration, Instant};

/// One mistake for each of the twelve likeliest bugs, among those that are caught soon.
pub const FEW: [&str; 12] = [
    "base-not-secured",
    "holes-not-voided",
    "removed-by-newest",
    "snapshot-name-not-synced",
    "snapshot-ahead-of-log",
    "sync-error-swallowed",
    "stripe-zero-unrepaired",
    "stopped-taken-for-dead",
    "event-before-record",
    "not-undone",
    "opening-byte-ignored",
    "segment-length-trusted",
];

/// What a mistake's own test is called beside the harnesses.
const OWN: &str = "its own";

/// How much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Some mistakes, each with its own test.
    Few,
    /// All mistakes in the engine, each with its own test.
    Each,
    /// All mistakes in the engine, each with its own test and all harnesses.
    All,
    /// All mistakes in the module for Redis and Valkey, each with its own test.
    Module,
}

impl Extent {
    /// The commands that a mistake is tried on: all, or those of the harness of this name.
    fn commands(self, patch: &Patch, by: Option<&str>) -> Vec<(&'static str, Command)> {
        if let Some(by) = by {
            let chosen = HARNESSES.iter().filter(|harness| harness.name == by);
            return chosen.map(|harness| (OWN, harness.command)).collect();
        }
        let harnesses = HARNESSES.iter().filter(|_| self == Self::All);
        let harnesses = harnesses.map(|harness| (harness.name, harness.command));
        [(OWN, patch.catcher)].into_iter().chain(harnesses).collect()
    }
}

/// The patches with these names, or those of the extent.
fn chosen(extent: Extent, names: &[String]) -> Result<Vec<Patch>, String> {
    let all = all()?;
    let few: Vec<String> = FEW.map(str::to_owned).to_vec();
    let names = match extent {
        _ if !names.is_empty() => names,
        Extent::Few => &few,
        Extent::Each | Extent::All | Extent::Module => {
            let is_asked =
                |patch: &Patch| (patch.catcher.test == Test::Module) == (extent == Extent::Module);
            return Ok(all.into_iter().filter(is_asked).collect());
        }
    };
    let find = |name: &String| {
        let found = all.iter().find(|patch| patch.name == *name).cloned();
        found.ok_or(format!("no patch in tests/planted is called {name:?}"))
    };
    names.iter().map(find).collect()
}

/// Plants these mistakes, or those of the extent, and runs the tests that must catch them.
///
/// # Errors
/// Names those that were not caught.
pub fn plant(extent: Extent, names: &[String], by: Option<&str>) -> Result<(), String> {
    if let Some(by) = by.filter(|by| HARNESSES.iter().all(|harness| harness.name != *by)) {
        let names: Vec<&str> = HARNESSES.iter().map(|harness| harness.name).collect();
        return Err(format!("no harness is called {by:?}; there are {}", names.join(", ")));
    }
    if !git::is_there() {
        skipped("there is no git, so no patch can be applied");
        return Ok(());
    }
    let wrong = claims::inapplicable()?;
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    let (start, patches, copy) = (Instant::now(), chosen(extent, names)?, source::copy()?);
    let skipped = run_unchanged(extent, &patches, by)?;
    println!("| mistake | its test | after | harnesses that find it, with small counts |");
    println!("|---|---|---|---|");
    let (mut caught, mut missed) = (0, Vec::new());
    for patch in patches.iter().filter(|patch| !skipped.contains(&patch.catcher)) {
        git::apply(&copy, patch, &[])?;
        let is_caught = try_one(extent, patch, by);
        git::apply(&copy, patch, &["--reverse"])?;
        let is_caught = is_caught.unwrap_or_else(|why| {
            println!("{why}");
            false
        });
        match is_caught {
            true => caught += 1,
            false => missed.push(patch.name.as_str()),
        }
    }
    let seconds = start.elapsed().as_secs();
    println!("{caught} of {} caught, {seconds} s", patches.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("missed: {}", missed.join(", "))) }
}

/// Makes sure that without a mistake all tests pass. Returns those that are skipped here, which can
/// catch nothing.
fn run_unchanged(
    extent: Extent,
    patches: &[Patch],
    by: Option<&str>,
) -> Result<Vec<Command>, String> {
    let start = Instant::now();
    let mut commands: Vec<Command> = Vec::new();
    for (_, command) in patches.iter().flat_map(|patch| extent.commands(patch, by)) {
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    let built = build(&tests(&commands))?;
    println!("built without a mistake in {:.0} s", start.elapsed().as_secs_f64());
    let mut skipped = Vec::new();
    for command in &commands {
        let ended = run(&built, command)?;
        if !ended.well {
            return Err(format!("without a mistake {command} fails:\n{}", ended.told));
        }
        if let Some(why) = ended.told.lines().find(|line| line.starts_with("skipped: ")) {
            println!("{command}: {why}");
            skipped.push(*command);
        }
    }
    println!("{} tests pass, {:.0} s", commands.len(), start.elapsed().as_secs_f64());
    Ok(skipped)
}

fn tests(commands: &[Command]) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for command in commands {
        if !tests.contains(&command.test) {
            tests.push(command.test);
        }
    }
    tests
}

fn run(built: &Built, command: &Command) -> Result<Ended, String> {
    let program: &Path = &built[&command.test];
    command.run(program).map_err(|error| format!("{command}: {error}"))
}

/// Whether a mistake that has been applied is caught by its own test; prints its row of the table.
fn try_one(extent: Extent, patch: &Patch, by: Option<&str>) -> Result<bool, String> {
    let commands = extent.commands(patch, by);
    let all: Vec<Command> = commands.iter().map(|&(_, command)| command).collect();
    let built =
        build(&tests(&all)).map_err(|told| format!("{}: does not compile:\n{told}", patch.name))?;
    let mut caught = Vec::new();
    for (name, command) in commands {
        let ended = run(&built, &command)?;
        if !ended.well {
            caught.push((ended.after, name));
        }
    }
    caught.sort_unstable();
    let own = caught.iter().find(|(_, name)| *name == OWN).map(|&(after, _)| after);
    let others = caught.iter().filter(|(_, name)| *name != OWN);
    let others: Vec<String> =
        others.map(|(after, name)| format!("{name} {}", text(*after))).collect();
    println!(
        "| {} ({}) (`{}`) | {} | {} | {} |",
        patch.breaks,
        patch.bug,
        patch.name,
        all[0],
        own.map_or("missed".to_owned(), text),
        others.join(", "),
    );
    Ok(own.is_some())
}

fn text(after: Duration) -> String {
    format!("{:.1} s", after.as_secs_f64())
}
