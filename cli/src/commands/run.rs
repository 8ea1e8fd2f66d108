//! One run over lines: its output, the signals that may stop it, the lines that it skips, and what
//! it reports at its end.

use super::stream::{Line, Skipped};
use crate::args::Reading;
use crate::failure::{Failure, Result, note};
use crate::output::{Output, object};
use crate::stop::{self, Stop};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A run over lines.
pub struct Run {
    /// Where answers go.
    pub output: Output,
    /// Whether a signal asks the run to stop.
    pub stop: Rc<Stop>,
    /// Whether what is remembered outlives the run.
    outlives: bool,
    /// The file and the number of the last line begun with.
    last: (PathBuf, u64),
    /// How many lines were skipped, and what is wrong with the first.
    skipped: (u64, String),
    /// What stands for the answers to those.
    form: Skipped,
    /// Whether a time of the wrong unit was warned about.
    warned: bool,
}

/// How a run has ended, short of an error.
#[must_use = "a signal may have ended it"]
pub enum Ended {
    /// At the end of the input.
    AtEnd,
    /// By this signal, after this line.
    Stopped(i32, String),
}

impl Ended {
    /// To be called when the filter is closed: by a signal, the command ends now.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::AtEnd => Ok(()),
            Self::Stopped(signal, after) => {
                note(&format!("stopped by {} {after}", stop::name(signal)));
                Err(Failure::Stopped(signal))
            }
        }
    }
}

impl Run {
    /// A run whose filter changes or not, and outlives it or not.
    pub fn new(outlives: bool, changes: bool, form: Skipped) -> Result<Self> {
        let output = Output::new()?;
        Ok(Self {
            output: if changes { output.hold() } else { output },
            stop: Rc::new(if outlives { Stop::on_signals()? } else { Stop::never() }),
            outlives,
            last: (PathBuf::new(), 0),
            skipped: (0, String::new()),
            form,
            warned: false,
        })
    }

    /// Begins with a line; false if a signal asks the run to stop before it.
    pub fn take(&mut self, path: &Path, number: u64) -> bool {
        if self.stop.signal().is_some() {
            return false;
        }
        if self.last.0 != path {
            self.last.0 = path.to_path_buf();
        }
        self.last.1 = number;
        true
    }

    /// Warns once if a line's time is likely in another unit than it is taken to be.
    pub fn look_at_time(&mut self, path: &Path, line: &Line<'_>, reading: &Reading) {
        if self.warned {
            return;
        }
        if let Some(doubt) = line.time.and_then(|time| reading.time_unit.doubt(time)) {
            note(&format!("{}, line {}: {doubt}", path.display(), line.number));
            self.warned = true;
        }
    }

    /// Counts a line that is skipped.
    pub fn skip(&mut self, what: impl FnOnce() -> String) {
        if self.skipped.0 == 0 {
            self.skipped.1 = what();
        }
        self.skipped.0 += 1;
    }

    /// Prints what stands for the answer to a line that is skipped.
    pub fn print_skipped(&mut self, number: u64, what: &str) -> Result<()> {
        match self.form {
            Skipped::Nothing => Ok(()),
            Skipped::Mark => self.output.text("?"),
            Skipped::Json => {
                self.output.json(object([("line", number.into()), ("error", what.into())]))
            }
        }
    }

    /// At the end of the input, or after a signal; everything is handed over.
    pub fn end(self) -> Ended {
        if self.skipped.0 > 0 {
            let (count, first) = &self.skipped;
            note(&format!("bad lines skipped: {count}, the first is {first}"));
        }
        let (path, number) = &self.last;
        match self.stop.signal() {
            None => Ended::AtEnd,
            Some(signal) if *number == 0 => {
                Ended::Stopped(signal, "before the first line".to_owned())
            }
            Some(signal) => {
                Ended::Stopped(signal, format!("after line {number} of {}", path.display()))
            }
        }
    }

    /// After a failure: what is remembered and not printed is reported.
    pub fn fail(self, failure: Failure) -> Result<Ended> {
        let unprinted = self.output.unprinted().filter(|_| self.outlives);
        let lost = unprinted.map(|(count, first)| {
            let what = if self.form == Skipped::Nothing { "printed" } else { "answered" };
            let path = self.last.0.display();
            format!("lines remembered but not {what}: {count}, the first is line {first} of {path}")
        });
        match (failure, lost) {
            (Failure::ClosedPipe, lost) => {
                if let Some(lost) = lost {
                    note(&format!("nobody reads the output any more; {lost}"));
                }
                match self.stop.signal() {
                    Some(_) => Ok(self.end()),
                    None => Err(Failure::ClosedPipe),
                }
            }
            (Failure::Error(message), Some(lost)) => {
                Err(Failure::Error(format!("{message}; {lost}")))
            }
            (failure, _) => Err(failure),
        }
    }
}
