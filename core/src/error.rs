//! The error type of the algorithms.

use crate::text::{date_text, shown};
use std::fmt;

/// What every fallible function of the crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What a kind or a filter in memory refuses. The message says what was expected and what was
/// found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of bounds or does not fit the others.
    Parameter {
        /// The parameter's name, as on the command line.
        name: &'static str,
        /// What it must be.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The filter's kind has no such operation.
    Unsupported {
        /// The kind.
        kind: &'static str,
        /// The operation.
        operation: &'static str,
    },
    /// A key's time lies too far ahead of the clock.
    TimeAhead {
        /// The key's time, in microseconds since the Unix epoch.
        time: u64,
        /// The latest time that is accepted now.
        limit: u64,
    },
    /// Bytes of a filter are not what was written.
    Damaged {
        /// The part that was read.
        what: String,
        /// What it must be.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Bytes of a filter are of a version that this build does not read.
    Version {
        /// The version that this build writes.
        expected: u32,
        /// The version that was found.
        found: u64,
    },
    /// There is no memory for a part of a filter that is restored.
    Memory {
        /// The size of the part.
        bytes: u64,
    },
    /// The caller's claim of a key has ended: its lease is over, or it was released. Nothing has
    /// changed.
    LeaseLost {
        /// The token of the claim.
        token: u64,
    },
    /// The filter holds as many claims as it can.
    ClaimsFull {
        /// That number.
        most: usize,
    },
    /// A record is not the next one of this filter; nothing has changed.
    Diverged {
        /// What the next record must be.
        expected: String,
        /// What was given.
        found: String,
    },
}

impl Error {
    /// Returns a parameter error; `expected` describes the valid values.
    pub fn parameter(
        name: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        Self::Parameter { name, expected: expected.into(), found: shown(name, &found.to_string()) }
    }
}

/// Returns the kinds that have an operation, if it is one that users ask for by its name.
fn kinds_with(operation: &str) -> Option<&'static str> {
    Some(match operation {
        "remove" => "counting, spectral (unless its policy is mi) and dynamic-count",
        "estimate" => "counting, spectral, dynamic-count, decaying and decaying-optimized",
        "frequency" => "decaying and decaying-optimized",
        "age" => "timing, block-timing, age-partitioned, fingerprint and time-limited",
        "a weight" => {
            "counting, spectral, dynamic-count, decaying, decaying-optimized, importance-2c, \
             importance-mc and importance-h"
        }
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { name, expected, found } => {
                write!(f, "parameter {name}: expected {expected}, found {found}")
            }
            Self::Unsupported { kind, operation: operation @ "a weight" } => {
                write!(f, "a filter of kind {kind} takes no weights")?;
                kinds_with(operation).map_or(Ok(()), |kinds| write!(f, "; {kinds} take them"))
            }
            Self::Unsupported { kind, operation } => {
                write!(f, "a filter of kind {kind} has no operation `{operation}`")?;
                kinds_with(operation).map_or(Ok(()), |kinds| write!(f, "; {kinds} have it"))
            }
            Self::TimeAhead { time, limit } => write!(
                f,
                "time {} is too far ahead of the clock: expected at most {}",
                date_text(*time),
                date_text(*limit)
            ),
            Self::Damaged { what, expected, found } => {
                write!(f, "{what} is damaged: expected {expected}, found {found}")
            }
            Self::Version { expected, found } => {
                write!(f, "expected format version {expected}, found {found}")
            }
            Self::Memory { bytes } => write!(f, "there is no memory for {bytes} bytes"),
            Self::LeaseLost { token } => write!(
                f,
                "the claim with token {token} has ended: the work was done too late, and somebody \
                 else may be doing it; nothing was changed"
            ),
            Self::ClaimsFull { most } => write!(
                f,
                "the filter holds {most} claims, as many as it can: confirm or release some, or \
                 wait until a lease is over"
            ),
            Self::Diverged { expected, found } => {
                write!(
                    f,
                    "the record does not continue this filter: expected {expected}, found {found}"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
