//! Who floods us now: the ten sources with the most requests lately, every minute, from an access
//! log that two processes write into one filter and a third one reads.
//!
//! ```text
//! cargo run --release --example flood [DIR [FILE]]
//! ```
//!
//! A `decaying` filter in DIR counts the requests of each source; half of each count is left after
//! a minute. Time is that of the log, so an old log is replayed as fast as it can be read, and
//! gives the same answers as on the day. Two writers insert the two halves of each minute. Then the
//! reader estimates the rates of the sources that a writer has found to be frequent, and the ten
//! highest are printed with their error bounds, beside exact counts ([`board`]).
//!
//! Kill any of the processes, or all at once, with `kill -9`. A killed writer or reader is
//! replaced. If all are killed, the same command continues in the minute in which they were
//! ([`crew`]).
//!
//! FILE is an access log in the common or combined format; its lines need not be in order. Without
//! FILE the requests are generated, always the same ones ([`requests`]). Without DIR the filter is
//! in a temporary directory. `docs/flood.md` explains the output.

#![forbid(unsafe_code)]

mod board;
mod crew;
pub mod requests;
mod work;

use requests::Minute;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What is left of a count after a minute.
pub const LAMBDA: f64 = 0.5;

/// The length of an epoch.
pub const EPOCH: Duration = Duration::from_secs(60);

/// The rate, in requests a minute, from which a source is watched. No source above it is missed.
pub const WATCHED: f64 = 20.0;

fn main() -> ExitCode {
    if let Err(error) = run(std::env::args_os().skip(1)) {
        eprintln!("flood: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs the program with these arguments: one of its processes, or all.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let first = arguments.next();
    let second = arguments.next();
    match first.as_deref().and_then(|first| first.to_str()) {
        Some("--writer") => return work::write(&directory(second)?),
        Some("--reader") => return work::read(&directory(second)?),
        _ => {}
    }
    let place = tempfile::tempdir()?;
    let dir = first.map_or_else(|| place.path().join("flood"), PathBuf::from);
    crew::supervise(&dir, &stream(second.as_deref().map(Path::new))?)
}

fn directory(argument: Option<OsString>) -> Result<PathBuf> {
    Ok(argument.ok_or("--writer and --reader need a directory")?.into())
}

/// Returns the requests of a file, or the generated ones.
pub fn stream(file: Option<&Path>) -> Result<Vec<Minute>> {
    Ok(requests::by_minute(match file {
        Some(file) => requests::read(file)?,
        None => requests::generate(),
    }))
}
