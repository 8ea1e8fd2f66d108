//! `dedup`: prints each line whose key was not seen within the window.

use super::stream::Stream;
use crate::args::Dedup;
use crate::failure::{Failure, Result, note};
use crate::output::Output;
use ebbtide::{Any, Checked, Durability, Error, Filter, Options, Parameters};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::num::NonZeroUsize;
use std::path::Path;
use tempfile::TempDir;

/// The error rate without `--fpr`.
const FPR: f64 = 0.001;

/// Runs the command.
pub fn dedup(mut arguments: Dedup) -> Result<()> {
    let spec = spec(&arguments)?;
    let mut options = Options::new();
    if let Some(hash) = arguments.hash {
        options = options.key_hash(hash.into());
    }
    if let Some(seed) = arguments.hash_seed {
        options = options.hash_seed(seed);
    }
    if let Some(stripes) = arguments.stripes {
        options = options.stripes(stripes);
    }
    match &arguments.state {
        Some(dir) => {
            if let Some(durability) = arguments.reading.durability {
                options = options.durability(durability);
            }
            let dir = dir.clone();
            let filter = remembered(&dir, spec, options)?;
            super::warn_if_ahead(filter.clock_lead());
            feed(&filter, &mut arguments)?;
            filter.close()?;
        }
        None => {
            // Declared first, so that it is removed after the filter in it is closed.
            let dir = TempDir::with_prefix("ebbtide-dedup-").map_err(|error| {
                Failure::Error(format!("cannot create a temporary directory: {error}"))
            })?;
            let spec = spec.ok_or_else(no_window)?;
            remove_on_signal(dir.path())?;
            // Nobody opens it again.
            options = options.durability(Durability::Never);
            let filter = Filter::create(dir.path().join("memory"), spec, options)?;
            feed(&filter, &mut arguments)?;
        }
    }
    Ok(())
}

/// Removes the temporary memory when the run is interrupted, which is how `tail -f | ebbtide dedup` ends.
fn remove_on_signal(dir: &Path) -> Result<()> {
    let dir = dir.to_path_buf();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::Error(format!("cannot listen for signals: {error}")))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Moved first: at its old place the filter's own threads might still be making files. What cannot be removed
            // stays; the signal ends the run all the same.
            let away = dir.with_extension("gone");
            let moved = std::fs::rename(&dir, &away).is_ok();
            let _ = std::fs::remove_dir_all(if moved { &away } else { &dir });
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// The filter that is asked for; `None` if that is left to one that exists.
fn spec(arguments: &Dedup) -> Result<Option<Any>> {
    let fpr = arguments.fpr.unwrap_or(FPR);
    let parameters = Parameters::new().with("fpr", fpr);
    match (arguments.window, arguments.last) {
        (Some(window), _) => {
            Ok(Some(Any::new("time-limited", parameters.with("window", window.as_micros()))))
        }
        (None, Some(last)) => {
            Ok(Some(Any::new("age-partitioned", parameters.with("window-items", last))))
        }
        (None, None) if arguments.fpr.is_some() => Err(Failure::Error(
            "--fpr needs a window; give --window DURATION or --last N as well".to_owned(),
        )),
        (None, None) => Ok(None),
    }
}

/// The memory of earlier runs, or a new one.
fn remembered(dir: &Path, spec: Option<Any>, options: Options) -> Result<Filter<Any>> {
    let Some(spec) = spec else {
        return Filter::open(dir, options).map_err(|error| match error {
            Error::NotAFilter { .. } => no_window(),
            other => other.into(),
        });
    };
    Filter::open_or_create(dir, spec, options).map_err(Failure::from)
}

fn no_window() -> Failure {
    Failure::Error(
        "how long to remember a line is not clear; give --window DURATION or --last N".to_owned(),
    )
}

/// Reads the files and prints the new lines.
fn feed(filter: &Filter<Any>, arguments: &mut Dedup) -> Result<()> {
    let files = std::mem::take(&mut arguments.files);
    let since = arguments.since.into();
    let end = arguments.reading.delimiter();
    let mut late: u64 = 0;
    let field = arguments.field.map(NonZeroUsize::get);
    Stream::changing(filter, &arguments.reading)?.by_field(field).run(
        files,
        true,
        |call, line| call.since(since).check_and_insert(line.key),
        |line, checked, output: &mut Output| match checked {
            Checked::Present => Ok(()),
            Checked::New => output.line(line.whole, end),
            Checked::TooLate => {
                // Whether it was seen is not known any more. A line twice is better than none.
                late += 1;
                output.line(line.whole, end)
            }
        },
    )?;
    if late > 0 {
        note(&format!("lines older than the window, printed unchecked: {late}"));
    }
    Ok(())
}
