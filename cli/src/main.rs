//! The `ebbtide` command: parses the arguments, runs one command, turns its outcome into an exit code.
//!
//! Exit codes: 0 done, 1 the answer is "no" (`verify` found damage, `salvage` found none), 2 a usage or environment error,
//! said in one sentence on standard error. A closed pipe ends the command quietly with 0.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod input;
mod kind_options;
mod output;
mod priors;
mod progress;
mod units;

use clap::Parser;
use clap::error::ErrorKind;
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

/// A usage or environment error.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Error(message)) => {
            failure::note(&message);
            ExitCode::from(ERROR)
        }
    }
}

/// Prints help and versions as clap does, and a usage error as one sentence.
fn usage(error: &clap::Error) -> ExitCode {
    let help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if help {
        // Nothing can be done if nobody reads the help.
        let _ = error.print();
        let _ = std::io::stdout().flush();
    } else {
        let text = error.to_string();
        let paragraph = text.split("\n\n").next().unwrap_or(&text);
        let words: Vec<_> = paragraph.split_whitespace().collect();
        let sentence = words.join(" ");
        let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
        failure::note(&format!("{sentence}; --help shows what can be given"));
    }
    if error.use_stderr() { ExitCode::from(ERROR) } else { ExitCode::SUCCESS }
}
