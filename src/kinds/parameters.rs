//! The named parameters of a filter: what a user asks for, and, completed by the kind, what `meta`
//! keeps.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Names and values, in the spelling of the command line (`window-items`, `fpr`, `k`, …).
///
/// Values are text: integers in decimal, fractions in Rust's shortest form that reads back exactly,
/// durations in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// No parameters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a parameter, replacing an earlier value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a parameter, replacing an earlier value.
    pub fn set(&mut self, name: &str, value: impl fmt::Display) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// The text of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Names and values in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A number, if the parameter is there.
    ///
    /// # Errors
    /// [`Error::Parameter`] if its text is not a `T`; `expected` says what it must be.
    pub fn optional<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<Option<T>> {
        self.get(name)
            .map(|text| text.parse().map_err(|_| Error::parameter(name, expected, text)))
            .transpose()
    }

    /// A number that must be there.
    ///
    /// # Errors
    /// [`Error::Parameter`] if it is missing or its text is not a `T`.
    pub fn required<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<T> {
        self.optional(name, expected)?.ok_or_else(|| Error::parameter(name, expected, "nothing"))
    }

    /// Refuses names that the kind does not know.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the first unknown one.
    pub fn only(&self, kind: &str, known: &[&str]) -> Result<()> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Error::parameter(
                "kind",
                format!("parameters of {kind} ({})", known.join(", ")),
                name,
            )),
        }
    }
}

/// A rate or probability strictly between 0 and 1.
///
/// # Errors
/// [`Error::Parameter`] for anything else, NaN included.
pub fn probability(name: &'static str, value: f64) -> Result<f64> {
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err(Error::parameter(name, "a number between 0 and 1, both excluded", value))
    }
}

/// An integer within bounds, both included.
///
/// # Errors
/// [`Error::Parameter`] for anything else.
pub fn within(name: &'static str, value: u64, least: u64, most: u64) -> Result<u64> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(Error::parameter(name, format!("an integer from {least} to {most}"), value))
    }
}
