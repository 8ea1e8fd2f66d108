//! The answers of a kind, and how far back a question reaches.

use crate::event::Micros;

/// How far back a query reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Within {
    /// This number of latest insert operations.
    Items(u64),
    /// This number of latest microseconds.
    Time(Micros),
}

/// How long ago a key was seen: a lower bound, in the unit of the kind's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Age {
    /// At least this number of insert operations ago.
    Items(u64),
    /// At least this number of microseconds ago.
    Time(Micros),
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
