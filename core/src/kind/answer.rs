//! The answers of a kind, and how far back a question reaches.

use crate::error::{Error, Result};
use crate::event::Micros;
use core::time::Duration;

/// How far back a query reaches, in the unit of the filter's window.
///
/// With the feature `serde` a time is a number of microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Within {
    /// This number of latest insert operations.
    Items(u64),
    /// The latest time of this length, in whole microseconds.
    Time(#[cfg_attr(feature = "serde", serde(with = "as_micros"))] Duration),
}

impl Within {
    /// Returns the reach of this number of latest microseconds.
    #[must_use]
    pub const fn micros(micros: Micros) -> Self {
        Self::Time(Duration::from_micros(micros))
    }

    /// Returns the number of insert operations, or of microseconds.
    #[must_use]
    #[inline]
    pub fn width(self) -> u64 {
        match self {
            Self::Items(items) => items,
            Self::Time(time) => micros(time),
        }
    }

    /// Makes sure that a window has this unit: a time if `uses_time`. `name` is that of the
    /// parameter in the error.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the unit that the window has.
    pub fn check(self, name: &'static str, uses_time: bool) -> Result<()> {
        let (expected, found) = match self {
            Self::Items(items) if uses_time => ("a time", format!("{items} inserts")),
            Self::Time(time) if !uses_time => ("a number of inserts", format!("{time:?}")),
            _ => return Ok(()),
        };
        Err(Error::parameter(name, format!("{expected}, as this filter's window is"), found))
    }
}

/// How many distinct keys a window or a part of it has, as estimated from the cells.
///
/// The true number is within two standard errors in some 95 of 100 cases, and within four in nearly
/// all. The error is that of the cells: it does not shrink by asking again.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cardinality {
    /// The estimated number of distinct keys.
    pub keys: f64,
    /// The standard error of `keys`, in keys.
    pub standard_error: f64,
    /// How far back the keys are counted: at least as far as was asked for, and further by what the
    /// kind cannot tell apart (up to one generation).
    pub reach: Within,
}

/// How long ago a key was seen: a lower bound, in the unit of the kind's window.
///
/// With the feature `serde` a time is a number of microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Age {
    /// At least this number of insert operations ago.
    Items(u64),
    /// At least this time ago, in whole microseconds.
    Time(#[cfg_attr(feature = "serde", serde(with = "as_micros"))] Duration),
}

impl Age {
    /// Returns the age of this number of microseconds.
    #[must_use]
    #[inline]
    pub const fn micros(micros: Micros) -> Self {
        Self::Time(Duration::from_micros(micros))
    }

    /// Returns the number of insert operations, or of microseconds.
    #[must_use]
    pub fn width(self) -> u64 {
        match self {
            Self::Items(items) => items,
            Self::Time(time) => micros(time),
        }
    }
}

/// Returns the whole microseconds of a time, at most as many as a number holds.
fn micros(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Times as numbers of microseconds.
#[cfg(feature = "serde")]
mod as_micros {
    use core::time::Duration;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(crate::kind::answer::micros(*time))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

/// How often a key was inserted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Estimate {
    /// The count; for decaying kinds the part of it that remains.
    pub count: f64,
    /// Whether a cell is saturated, so that the key may have been inserted more often.
    pub at_least: bool,
}

impl Estimate {
    /// Returns whether the key may have been inserted at least `times` times.
    #[must_use]
    #[inline]
    pub fn holds(&self, times: u64) -> bool {
        self.at_least || self.count >= times as f64
    }
}
