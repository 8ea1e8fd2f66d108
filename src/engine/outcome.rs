//! An operation as requested by the caller, and its outcome.

use ebbtide_core::kind::{Change, Estimate, Micros};
use std::cell::Cell;

/// The outcome of a check-and-insert of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Checked {
    /// The key was not in the window; it is now.
    New,
    /// The key was in the window (or is a false positive).
    Present,
    /// The key's time lies before the window: its presence is unknown and nothing was changed.
    TooLate,
}

impl Checked {
    /// Returns whether the key was not in the window, and was inserted.
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

    /// Returns whether the key was in the window already.
    #[must_use]
    pub const fn is_present(self) -> bool {
        matches!(self, Self::Present)
    }

    /// Returns whether the key's time lies before the window, so that its presence is unknown.
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
    /// Every check inserts, so a key stays in the window since it was last seen.
    #[default]
    LastSeen,
    /// Only new keys are inserted, so a key stays in the window since it was last accepted (like
    /// `SET NX EX`).
    LastAccepted,
}

/// The outcome of an insert up to a limit; see
/// [`Filter::insert_up_to`](crate::Filter::insert_up_to).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Admission {
    /// Whether the key was inserted.
    pub admitted: bool,
    /// The key's count: including this insert if it was admitted, otherwise the one that left no
    /// room for it.
    pub estimate: Estimate,
}

/// The precondition of an operation, checked before it changes anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Precondition {
    /// None: the key is inserted.
    Nothing,
    /// Checks whether the key is in the window.
    Present(Since),
    /// Checks whether the key's count is at least the count to be removed.
    Removable,
    /// Reads the key's count; the key is inserted.
    Estimate,
    /// Checks whether an insert would raise the key's count above this.
    UpTo(f64),
}

/// An operation as requested by the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) hash: u64,
    /// The operation's time, if it is not the clock's.
    pub(crate) time: Option<Micros>,
    pub(crate) weight: u32,
    pub(crate) ask: Precondition,
    /// Receives the key's count, for callers that need it.
    pub(crate) count: Option<&'a Cell<Option<Estimate>>>,
}

impl Request<'_> {
    /// Returns whether the limit, if there is one, leaves no room for the operation above the
    /// present count. A saturated count may stand for any higher one.
    pub(crate) fn is_over(&self, there: Estimate) -> bool {
        if let Some(count) = self.count {
            count.set(Some(there));
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

/// An operation's answer, and the LSN up to which the log must be durable for the answer to be
/// durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteOutcome {
    pub(crate) checked: Checked,
    pub(crate) lsn: u64,
}
