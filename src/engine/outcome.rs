//! An operation as the caller wants it, and what came of it.

use ebbtide_core::kind::{Change, Estimate, Micros};
use std::cell::Cell;

/// What became of a key that was checked and inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Checked {
    /// It was not in the window; it is now.
    New,
    /// It was in the window (or is one of the few that only seem so).
    Present,
    /// Its time lies before the window: nothing is known of it and nothing was changed.
    TooLate,
}

impl Checked {
    /// Whether the key was not in the window, and was inserted.
    ///
    /// ```
    /// # use ebbtide::{AgePartitioned, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, AgePartitioned::last(1000), Options::new())?;
    /// let events = ["a", "b", "a"];
    /// let mut first = Vec::new();
    /// for event in events {
    ///     if seen.check_and_insert(event)?.is_new() {
    ///         first.push(event);
    ///     }
    /// }
    /// assert_eq!(first, ["a", "b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn is_new(self) -> bool {
        matches!(self, Self::New)
    }

    /// Whether the key was in the window already.
    #[must_use]
    pub const fn is_present(self) -> bool {
        matches!(self, Self::Present)
    }

    /// Whether the key's time lies before the window, so that nothing is known of it.
    #[must_use]
    pub const fn is_too_late(self) -> bool {
        matches!(self, Self::TooLate)
    }
}

/// When a key counts as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Since {
    /// Every check inserts, so a key is remembered since it was last seen.
    #[default]
    LastSeen,
    /// Only keys that are new are inserted, so a key is remembered since it was last accepted (what
    /// `SET NX EX` does).
    LastAccepted,
}

/// What became of a key that was inserted up to a limit; see
/// [`Filter::insert_up_to`](crate::Filter::insert_up_to).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Admission {
    /// Whether the key was inserted.
    pub admitted: bool,
    /// The key's count: with this insert if it was admitted, else the one that left no room for it.
    pub estimate: Estimate,
}

/// What an operation asks before it changes anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Precondition {
    /// Nothing: the key is inserted.
    Nothing,
    /// Whether the key is in the window.
    Present(Since),
    /// Whether the key is there as often as it shall be removed.
    Removable,
    /// How often the key is there; it is inserted.
    Estimate,
    /// Whether the key would be there more often than this if it were inserted.
    UpTo(f64),
}

/// An operation as the caller wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) hash: u64,
    /// Its time, if it is not the clock's.
    pub(crate) time: Option<Micros>,
    pub(crate) weight: u32,
    pub(crate) ask: Precondition,
    /// Where the key's count goes, for those who ask for it.
    pub(crate) told: Option<&'a Cell<Option<Estimate>>>,
}

impl Request<'_> {
    /// Whether the limit, if there is one, leaves no room for the operation beside what is there. A
    /// count that has reached its end may be any higher one.
    pub(crate) fn is_over(&self, there: Estimate) -> bool {
        if let Some(told) = self.told {
            told.set(Some(there));
        }
        match self.ask {
            Precondition::UpTo(limit) => {
                there.at_least || there.count + f64::from(self.weight) > limit
            }
            _ => false,
        }
    }

    pub(crate) fn change(&self) -> Change {
        if self.ask == Precondition::Removable { Change::Remove } else { Change::Insert }
    }
}

/// An operation's answer, and the LSN that must be durable before it counts as durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteOutcome {
    pub(crate) checked: Checked,
    pub(crate) lsn: u64,
}
