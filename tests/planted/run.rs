//! Planting mistakes, one after the other.

use crate::build::build;
use crate::command::{Command, Ended, Test};
use crate::harnesses::HARNESSES;
use crate::table::{IN_CI, catcher};
use ebbtide::Mistake;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What a mistake's own test is called beside the harnesses.
const OWN: &str = "its own";

/// How much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Those of CI, each with the test that is known to catch it.
    Some,
    /// The same for all.
    Each,
    /// All, on every harness.
    All,
}

/// What was asked for.
struct Asked {
    how: How,
    mistakes: Vec<Mistake>,
}

fn asked() -> Asked {
    let (mut how, mut some) = (How::Some, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--each" => how = How::Each,
            "--all" => how = How::All,
            "--mistake" => {
                let name = arguments.next().unwrap_or_default();
                let found = Mistake::ALL.iter().find(|mistake| format!("{mistake:?}") == name);
                some.push(*found.unwrap_or_else(|| panic!("no mistake is called {name:?}")));
            }
            other => panic!("--each, --all, --mistake NAME: found {other:?}"),
        }
    }
    let mistakes = match how {
        _ if !some.is_empty() => some,
        How::Some => IN_CI.to_vec(),
        How::Each | How::All => Mistake::ALL.to_vec(),
    };
    Asked { how, mistakes }
}

/// The commands that a mistake is tried on: its own test, and perhaps all harnesses.
fn commands(how: How, mistake: Mistake) -> Vec<(&'static str, Command)> {
    let harnesses = HARNESSES.iter().filter(|_| how == How::All);
    let harnesses = harnesses.map(|harness| (harness.name, harness.command));
    [(OWN, catcher(mistake))].into_iter().chain(harnesses).collect()
}

/// The tests that were built.
struct Built(HashMap<Test, PathBuf>);

impl Built {
    fn run(&self, command: &Command, mistake: Option<Mistake>) -> Ended {
        let program = &self.0[&command.test];
        command.run(program, mistake).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }
}

/// Does what was asked for.
pub fn main() -> ExitCode {
    let Asked { how, mistakes } = asked();
    let mut all: Vec<Command> = Vec::new();
    for (_, command) in mistakes.iter().flat_map(|&mistake| commands(how, mistake)) {
        if !all.contains(&command) {
            all.push(command);
        }
    }
    let mut tests: Vec<Test> = Vec::new();
    for command in &all {
        if !tests.contains(&command.test) {
            tests.push(command.test);
        }
    }
    let built = Built(build(&tests));
    let start = Instant::now();
    // What fails anyway catches nothing, and what is skipped here neither.
    let mut skipped = Vec::new();
    for command in &all {
        let ended = built.run(command, None);
        if !ended.well {
            println!("without a mistake {command:?} fails:\n{}", ended.told);
            return ExitCode::FAILURE;
        }
        if let Some(why) = ended.told.lines().find(|line| line.starts_with("skipped: ")) {
            println!("{command}: {why}");
            skipped.push(*command);
        }
    }
    println!("{} tests pass without a mistake, {:.0} s", all.len(), start.elapsed().as_secs_f64());
    println!("| mistake | its test | after | harnesses that find it, with small counts |");
    println!("|---|---|---|---|");
    let tried = mistakes.into_iter().filter(|&mistake| !skipped.contains(&catcher(mistake)));
    let missed: Vec<Mistake> = tried.filter(|&mistake| !try_one(how, &built, mistake)).collect();
    println!("{:.0} s", start.elapsed().as_secs_f64());
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("not caught: {missed:?}");
    ExitCode::FAILURE
}

/// Whether a mistake is caught by its own test; prints its row of the table.
fn try_one(how: How, built: &Built, mistake: Mistake) -> bool {
    let mut caught = Vec::new();
    for (name, command) in commands(how, mistake) {
        let ended = built.run(&command, Some(mistake));
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
        "| {} (`{mistake:?}`) | {} | {} | {} |",
        mistake.about(),
        catcher(mistake),
        own.map_or("not".to_owned(), text),
        others.join(", "),
    );
    own.is_some()
}

fn text(after: Duration) -> String {
    format!("{:.1} s", after.as_secs_f64())
}
