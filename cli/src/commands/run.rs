//! One run over lines: its output, the signals that may stop it, the lines that it skips, and its
//! report at the end.

use super::line::Skipped;
use crate::failure::{Failure, Result, note};
use crate::output::{Form, Output, object};
use crate::stop::{self, Stop};
use serde_json::Map;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A run over lines.
pub struct Run {
    /// Receives the answers.
    pub output: Output,
    /// Indicates whether a signal asks the run to stop.
    pub stop: Rc<Stop>,
    /// Whether the filter outlives the run.
    outlives: bool,
    /// The file and the number of the last line begun.
    last: (PathBuf, u64),
    /// The number of lines begun.
    lines: u64,
    /// The number of skipped lines, and what is wrong with the first.
    skipped: (u64, String),
    /// The output for skipped lines.
    form: Skipped,
}

/// What a run has read.
#[derive(Clone)]
pub struct Place {
    last: (PathBuf, u64),
    lines: u64,
    skipped: (u64, String),
}

/// How a run has ended, other than by an error.
#[must_use = "a signal may have ended it"]
pub struct Ended {
    /// The signal that ended it, and the line after which it did.
    stopped: Option<(i32, String)>,
    /// The number of lines read, skipped ones included.
    pub lines: u64,
    /// The number of lines skipped.
    pub bad: u64,
}

impl Ended {
    /// Ends the command by its signal, if there was one. The caller has closed the filter.
    pub fn finish(self) -> Result<()> {
        match self.stopped {
            None => Ok(()),
            Some((signal, after)) => {
                note(&format!("stopped by {} {after}", stop::name(signal)));
                Err(Failure::Stopped(signal))
            }
        }
    }
}

impl Run {
    /// Creates a run whose filter outlives it or not, and changes or not.
    pub fn new(outlives: bool, changes: bool, form: Skipped) -> Result<Self> {
        let output = Output::new()?;
        Ok(Self {
            output: if changes { output.hold() } else { output },
            stop: Rc::new(if outlives { Stop::on_signals()? } else { Stop::never() }),
            outlives,
            last: (PathBuf::new(), 0),
            lines: 0,
            skipped: (0, String::new()),
            form,
        })
    }

    /// Begins a line; returns false if a signal asks the run to stop before it.
    pub fn take(&mut self, path: &Path, number: u64) -> bool {
        if self.stop.signal().is_some() {
            return false;
        }
        // As bytes: comparing paths splits them into components.
        if self.last.0.as_os_str() != path.as_os_str() {
            self.last.0 = path.to_path_buf();
        }
        self.last.1 = number;
        self.lines += 1;
        true
    }

    /// Returns what has been read.
    pub fn place(&self) -> Place {
        Place { last: self.last.clone(), lines: self.lines, skipped: self.skipped.clone() }
    }

    /// Forgets what was read since, because nothing of it is recorded.
    pub fn set_back(&mut self, place: Place) {
        (self.last, self.lines, self.skipped) = (place.last, place.lines, place.skipped);
    }

    /// Counts a skipped line.
    pub fn skip(&mut self, what: impl FnOnce() -> String) {
        if self.skipped.0 == 0 {
            self.skipped.1 = what();
        }
        self.skipped.0 += 1;
    }

    /// Prints the output for a skipped line.
    pub fn print_skipped(&mut self, number: u64, line: &[u8], what: &str) -> Result<()> {
        match self.form {
            Skipped::Nothing => Ok(()),
            Skipped::Answer(Form::Json) => {
                self.output.json(object([("line", number.into()), ("error", what.into())]))
            }
            Skipped::Answer(form) => form.answer(&mut self.output, line, "?", Map::new),
        }
    }

    /// Reports the end of the input, or the stop by a signal. The caller has flushed the output.
    pub fn end(self) -> Ended {
        if self.skipped.0 > 0 {
            let (count, first) = &self.skipped;
            note(&format!("bad lines skipped: {count}, the first is {first}"));
        }
        let (path, number) = &self.last;
        let after = || match number {
            0 => "before the first line".to_owned(),
            number => format!("after line {number} of {}", path.display()),
        };
        Ended {
            stopped: self.stop.signal().map(|signal| (signal, after())),
            lines: self.lines,
            bad: self.skipped.0,
        }
    }

    /// Reports a failure, with the lines that are recorded but not printed.
    pub fn fail(self, failure: Failure) -> Result<Ended> {
        let unprinted = self.output.unprinted().filter(|_| self.outlives);
        let lost = unprinted.map(|(count, first)| {
            let what = if self.form == Skipped::Nothing { "printed" } else { "answered" };
            let path = self.last.0.display();
            format!("lines recorded but not {what}: {count}, the first is line {first} of {path}")
        });
        match (failure, lost) {
            (Failure::ClosedPipe, lost) => {
                if let Some(lost) = lost {
                    note(&format!("the output is closed; {lost}"));
                }
                match self.stop.signal() {
                    Some(_) => Ok(self.end()),
                    None => Err(Failure::ClosedPipe),
                }
            }
            (failure, Some(lost)) => Err(failure.and(&lost)),
            (failure, None) => Err(failure),
        }
    }
}
