//! The named parameters of a filter: those that a user gives and, completed by the kind, those that
//! `meta` stores.

use super::MOST_COUNT;
use crate::error::{Error, Result};
use crate::text::{DURATIONS, micros_text, shown};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The default false-positive rate.
pub const DEFAULT_FPR: f64 = 0.001;

/// Microseconds of a day, the unit of the upper bounds of durations.
const MICROS_OF_A_DAY: u64 = 86_400_000_000;

/// Names and values, in the spelling of the command line (`window-items`, `fpr`, `k`, …).
///
/// Values are text: integers in decimal, fractions in Rust's shortest form that reads back exactly,
/// durations in microseconds.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Parameters(BTreeMap<String, String>);

impl fmt::Debug for Parameters {
    /// Writes names and values, durations with a unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&str, &str)| (name.to_owned(), shown(name, value));
        f.debug_map().entries(self.iter().map(shown)).finish()
    }
}

impl Parameters {
    /// Returns no parameters.
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

    /// Returns the text of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns names and values in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns a number, if the parameter is given.
    ///
    /// # Errors
    /// [`Error::Parameter`] if its text is not a `T`; `expected` describes the valid values.
    pub fn optional<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<Option<T>> {
        self.get(name)
            .map(|text| text.parse().map_err(|_| Error::parameter(name, expected, text)))
            .transpose()
    }

    /// Returns a number that must be given.
    ///
    /// # Errors
    /// [`Error::Parameter`] if it is missing or its text is not a `T`.
    pub fn required<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<T> {
        self.optional(name, expected)?.ok_or_else(|| Error::parameter(name, expected, "nothing"))
    }

    /// Returns an integer from 1 to `most`, if the parameter is given.
    ///
    /// # Errors
    /// [`Error::Parameter`] for anything else; `expected` describes the valid values.
    pub fn count(&self, name: &'static str, expected: &str, most: u64) -> Result<Option<u64>> {
        self.optional(name, expected)?.map(|count| within(name, count, 1, most)).transpose()
    }

    /// Returns `fpr`, the planned false-positive rate, if the user gives one; see [`DEFAULT_FPR`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if it is not a [`probability`].
    pub fn fpr(&self) -> Result<Option<f64>> {
        let fpr = self.optional("fpr", "a false-positive rate")?;
        fpr.map(|fpr| probability("fpr", fpr)).transpose()
    }

    /// Returns `k` and `l`, the numbers of slices that take inserts and that only age: both from 1
    /// to `most`, or neither.
    ///
    /// # Errors
    /// [`Error::Parameter`] for numbers out of bounds and for one without the other.
    pub fn slices(&self, most: u32) -> Result<Option<(u32, u32)>> {
        let count = |name| self.count(name, "a number of slices", most.into());
        match (count("k")?, count("l")?) {
            (None, None) => Ok(None),
            (Some(k), Some(l)) => Ok(Some((k as u32, l as u32))),
            (Some(_), None) => Err(Error::parameter("l", "k and l together", "only k")),
            (None, Some(_)) => Err(Error::parameter("k", "k and l together", "only l")),
        }
    }

    /// Rejects names that the kind does not have.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the first unknown name.
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

/// Returns the weight of a key that counts: a whole number from 1 to [`MOST_COUNT`].
///
/// # Errors
/// [`Error::Parameter`] for anything else, NaN included.
pub fn whole_count(given: f64) -> Result<u64> {
    if given.fract() == 0.0 && (1.0..=MOST_COUNT as f64).contains(&given) {
        Ok(given as u64)
    } else {
        let expected = format!("a whole number from 1 to {MOST_COUNT}");
        Err(Error::parameter("weight", expected, given))
    }
}

/// Returns a rate or probability strictly between 0 and 1.
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

/// Returns an integer within bounds, both included.
///
/// # Errors
/// [`Error::Parameter`] for anything else.
pub fn within(name: &'static str, value: u64, least: u64, most: u64) -> Result<u64> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let expected = match DURATIONS.contains(&name) {
        true if value < least => format!("a duration of at least {}", micros_text(least)),
        true => format!("a duration of at most {} days", most / MICROS_OF_A_DAY),
        false => format!("an integer from {least} to {most}"),
    };
    Err(Error::parameter(name, expected, value))
}
