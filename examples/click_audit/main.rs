//! A click audit that survives `kill -9`: which clicks on advertisements are paid, and what the
//! wrong answers cost.
//!
//! ```text
//! cargo run --release --example click_audit [DIR [FILE]]
//! ```
//!
//! A click is a duplicate if the same visitor clicked the same advertisement within the last 24
//! hours. Duplicates are not paid. The audit keeps everything it has to know in DIR: a small
//! `time-limited` filter of the last day, a `dynamic-count` filter that counts all clicks, and a
//! ledger of decisions. Kill it at any moment with `kill -9` and start it again with the same
//! arguments: it continues with the click at which it was killed, and decides as if nothing had
//! happened ([`audit`]). Without DIR the audit runs in a temporary directory.
//!
//! FILE has a click in each line, `SECONDS<TAB>VISITOR<TAB>ADVERTISEMENT<TAB>CENTS`, in order of
//! time. Without FILE the clicks are generated, always the same ones ([`clicks`]).
//!
//! At the end [`balance`] compares the decisions with the exact answers, and prints how much money
//! is lost without a filter, by the plain answers of the filter, and by decisions that take the
//! price of each click into account. `docs/click-audit.md` explains the output.

#![forbid(unsafe_code)]

pub mod audit;
pub mod balance;
pub mod clicks;

use clicks::Click;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    if let Err(error) = run(std::env::args_os().skip(1)) {
        eprintln!("click_audit: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs the program with these arguments.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = arguments.next().map_or_else(|| place.path().join("audit"), PathBuf::from);
    let clicks = stream(arguments.next().as_deref().map(Path::new))?;
    let decisions = audit::run(&dir, &clicks)?;
    balance::print(&clicks, &decisions);
    Ok(())
}

/// Returns the clicks of a file, or the generated ones.
pub fn stream(file: Option<&Path>) -> Result<Vec<Click>> {
    file.map_or_else(|| Ok(clicks::generate()), clicks::read)
}
