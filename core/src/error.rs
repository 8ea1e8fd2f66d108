//! The error type of the algorithms.

use std::fmt;

/// What every fallible function of the crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// A request that a kind refuses. The message says what was expected and what was found.
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
}

impl Error {
    /// Returns a parameter error; `expected` describes the valid values.
    pub fn parameter(
        name: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        Self::Parameter { name, expected: expected.into(), found: found.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { name, expected, found } => {
                write!(f, "parameter {name}: expected {expected}, found {found}")
            }
            Self::Unsupported { kind, operation } => {
                write!(f, "a filter of kind {kind} has no operation `{operation}`")
            }
        }
    }
}

impl std::error::Error for Error {}
