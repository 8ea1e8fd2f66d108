//! The `ebbtide` command: parses the arguments, runs one command, and turns its outcome into an
//! exit code.
//!
//! Exit codes (`exit_codes`): 0 success, 1 the answer is "no" (`verify` found damage, `salvage`
//! found nothing damaged, `contains` did not find its only key, `claims --end` found no such
//! claim), 2 a usage or environment error, reported in one sentence on standard error. `ship` ends
//! with 3 if another shipper has taken its place, `run` with 75 if somebody else works on the key,
//! else with the code of its command. A closed pipe ends the command quietly, with 0 unless the
//! answer is "no". After a signal that asks it to stop, a command finishes what it has begun and
//! then ends by that signal.

mod args;
mod claim_args;
mod commands;
mod compressed;
mod descriptor;
mod dirty_limit;
mod exit_codes;
mod explain_args;
mod failure;
mod formatting;
mod help;
mod input;
mod kept_parameters;
mod key_args;
mod key_part;
mod key_syntax;
mod kind_options;
mod model_args;
mod moment;
mod operator_args;
mod option_names;
mod origin;
mod output;
mod own_output;
mod plot;
mod priors;
mod progress;
mod read_ahead;
mod remake_args;
#[cfg(feature = "ship")]
mod ship_args;
mod source;
mod splitter;
mod stop;
mod time_args;
mod time_forms;
mod times;
mod trail;
mod waits;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use exit_codes::ERROR;
use failure::Failure;
use output::Output;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    stop::outlive_file_size_limit();
    let cli = match help::parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    ended(commands::run(cli.command))
}

/// Reports a failure, and returns the exit code.
fn ended(outcome: failure::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Stopped(signal)) => stop::end_by(signal),
        Err(Failure::Parameter { name, expected, found }) => {
            failure::report(&option_names::refused(name, &expected, &found));
            ExitCode::from(ERROR)
        }
        Err(Failure::Error(message)) => {
            failure::report(&message);
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
    if help && error.use_stderr() {
        let _ = error.print();
    } else if help {
        let colours = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let text = error.render();
        let text = if colours { text.ansi().to_string() } else { text.to_string() };
        let printed = Output::new().and_then(|mut output| {
            output.text(text.trim_end_matches('\n'))?;
            output.flush()
        });
        return ended(printed.map(|()| ExitCode::SUCCESS));
    } else {
        failure::report(&sentence(error));
    }
    if error.use_stderr() { ExitCode::from(ERROR) } else { ExitCode::SUCCESS }
}

/// Returns a usage error as one sentence, with clap's suggestion if there is one.
fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<_> = paragraph.split_whitespace().collect();
    let sentence = words.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let meant = match suggested(error) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => ";".to_owned(),
    };
    format!("{sentence}{meant} see --help")
}

/// Returns clap's suggestion for a misspelt argument.
fn suggested(error: &clap::Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(one) => Some(format!("'{one}'")),
        ContextValue::Strings(all) if !all.is_empty() => {
            Some(all.iter().map(|one| format!("'{one}'")).collect::<Vec<_>>().join(" or "))
        }
        _ => None,
    })
}
