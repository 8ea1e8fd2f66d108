//! The ways in which a command ends early, and their messages on standard error.

use crate::descriptor;
use clap::builder::styling::AnsiColor;
use ebbtide::units::visible;
use std::io::{self, IsTerminal};
use std::path::Path;

/// The largest number of bytes of a malformed line that an error quotes.
const SHOWN_BYTES: usize = 60;

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// The reason why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// The reader has closed the output: not an error.
    ClosedPipe,
    /// This signal asked the command to stop, and everything begun is complete.
    Stopped(i32),
    /// A parameter that is refused: the report names the option that sets it.
    Parameter { name: &'static str, expected: String, found: String },
    /// A usage or environment error, in one sentence.
    Error(String),
}

impl Failure {
    /// Converts a failure of standard output.
    pub fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Error(format!("cannot write to standard output: {error}"))
        }
    }

    /// Adds a clause to the sentence, if there is one.
    pub fn and(self, clause: &str) -> Self {
        match self {
            Self::Error(sentence) => Self::Error(format!("{sentence}; {clause}")),
            Self::Parameter { name, expected, found } => {
                Self::Parameter { name, expected, found: format!("{found}; {clause}") }
            }
            other => other,
        }
    }

    /// Converts a failure of an input file.
    pub fn reading(path: &Path, error: &io::Error) -> Self {
        Self::Error(format!("cannot read {}: {error}", path.display()))
    }
}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Self {
        match error {
            ebbtide::Error::Parameter { name, expected, found } => {
                Self::Parameter { name, expected, found }
            }
            other => Self::Error(other.to_string()),
        }
    }
}

impl From<ebbtide::kinds::Error> for Failure {
    fn from(error: ebbtide::kinds::Error) -> Self {
        Self::from(ebbtide::Error::from(error))
    }
}

/// Takes an output that its reader has closed for a complete one: an answer that is an exit code
/// does not depend on who reads the rest.
pub fn unless_closed(printed: Result<()>) -> Result<()> {
    match printed {
        Err(Failure::ClosedPipe) => Ok(()),
        other => other,
    }
}

/// Describes a line that is not of the expected form.
pub fn misfit(expected: &str, line: &[u8]) -> String {
    let start = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]);
    format!("expected {expected}, found {start:?}")
}

/// Writes one sentence to standard error.
pub fn note(sentence: &str) {
    say(sentence, AnsiColor::Yellow);
}

/// Writes the error that ends the command to standard error.
pub fn report(sentence: &str) {
    say(sentence, AnsiColor::Red);
}

/// Returns text in a colour for a terminal that shows colours, otherwise the text alone.
pub fn painted(text: &str, colour: AnsiColor, terminal: &impl IsTerminal) -> String {
    if !terminal.is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty()) {
        return text.to_owned();
    }
    let style = colour.on_default().bold();
    format!("{style}{text}{style:#}")
}

/// A closed standard error does not justify a panic.
/// Hidden characters, as in the name of a file, are escaped: they could change what a terminal
/// shows, or break the line.
fn say(sentence: &str, colour: AnsiColor) {
    let name = painted("ebbtide", colour, &io::stderr());
    let line = format!("{name}: {}\n", visible(sentence));
    let _ = descriptor::write_all(&mut io::stderr(), line.as_bytes(), &mut 0);
}
