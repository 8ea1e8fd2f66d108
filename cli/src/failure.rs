//! How a command ends early, and how that is said on standard error.

use crate::descriptor;
use std::io;
use std::path::Path;

/// Bytes of a malformed line that an error quotes.
const SHOWN_BYTES: usize = 60;

/// What every command returns.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// Nobody reads the answers any more: not an error.
    ClosedPipe,
    /// This signal asked the command to stop, and everything that was begun is done.
    Stopped(i32),
    /// A usage or environment error, in one sentence.
    Error(String),
}

impl Failure {
    /// A failure of standard output.
    pub fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Error(format!("cannot write to standard output: {error}"))
        }
    }

    /// A failure of an input file.
    pub fn reading(path: &Path, error: &io::Error) -> Self {
        Self::Error(format!("cannot read {}: {error}", path.display()))
    }
}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Self {
        Self::Error(error.to_string())
    }
}

impl From<ebbtide::kinds::Error> for Failure {
    fn from(error: ebbtide::kinds::Error) -> Self {
        Self::from(ebbtide::Error::from(error))
    }
}

/// What is wrong with a line that is not of the form expected.
pub fn misfit(expected: &str, line: &[u8]) -> String {
    let start = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]);
    format!("expected {expected}, found {start:?}")
}

/// Says one sentence on standard error. A closed standard error is not worth a panic.
pub fn note(sentence: &str) {
    let line = format!("ebbtide: {sentence}\n");
    let _ = descriptor::write_all(&mut io::stderr(), line.as_bytes(), &mut 0);
}
