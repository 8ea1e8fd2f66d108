//! A write as its caller requests it, what is decided about it, and the answers that it may get.

use super::{BankMask, Change, Decision, Estimate};
use crate::error::{Error, Result};

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
    /// Returns the answer for a key that was in the window, or was not.
    #[must_use]
    #[inline]
    pub const fn of(present: bool) -> Self {
        if present { Self::Present } else { Self::New }
    }

    /// Returns whether the key was not in the window, and was inserted.
    ///
    /// ```
    /// # use ebbtide_core::kinds::registry;
    /// # use ebbtide_core::machine::{Machine, MachineOptions};
    /// # use ebbtide_core::{Parameters, Since};
    /// # let kind = registry::build("bloom", &Parameters::new().with("capacity", 1000))?;
    /// # let mut seen = Machine::create(kind, &MachineOptions::new(), 1, 2)?;
    /// # let now = seen.time(None, None)?;
    /// let events = ["a", "b", "a"];
    /// let mut first = Vec::new();
    /// for event in events {
    ///     let hash = seen.hash(event.as_bytes());
    ///     if seen.check_and_insert(hash, Since::LastSeen, now, &mut |_| {})?.is_new() {
    ///         first.push(event);
    ///     }
    /// }
    /// assert_eq!(first, ["a", "b"]);
    /// # Ok::<(), ebbtide_core::Error>(())
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

/// The outcome of an insert up to a limit of the key's count.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Admission {
    /// Whether the key was inserted.
    pub admitted: bool,
    /// The key's count: including this insert if it was admitted, otherwise the one that left no
    /// room for it, or, of a key that was too late, the present one, also below the limit.
    pub estimate: Estimate,
}

impl Admission {
    /// Creates the outcome from the answer of a write with [`Precondition::UpTo`], and the count.
    #[must_use]
    pub const fn new(checked: Checked, estimate: Estimate) -> Self {
        Self { admitted: checked.is_new(), estimate }
    }
}

/// The precondition of an operation, checked before it changes anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Precondition {
    /// None: the key is inserted.
    Nothing,
    /// Checks whether the key is in the window.
    Present(Since),
    /// Checks whether the key's count is at least this; then the operation goes ahead.
    AtLeast(u64),
    /// Reads the key's count; the key is inserted.
    Estimate,
    /// Checks whether an insert would raise the key's count above this.
    UpTo(f64),
}

impl Precondition {
    /// Checks a limit of [`Precondition::UpTo`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for NaN.
    pub fn up_to(limit: f64) -> Result<Self> {
        if limit.is_nan() {
            return Err(Error::parameter("limit", "a number", limit));
        }
        Ok(Self::UpTo(limit))
    }
}

/// A write as requested by the caller, without its time.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// What the operation does.
    pub change: Change,
    /// The key's hash.
    pub hash: u64,
    /// The key's weight; 1 for kinds that do not weigh. Above
    /// [`MOST_WEIGHT`](super::MOST_WEIGHT) the operation is written as several records, by
    /// [`split_weight`](super::split_weight).
    pub weight: u64,
    /// What is checked first.
    pub precondition: Precondition,
    /// Whether the time was given with the key: only then it may be late. The time of a clock is
    /// before the filter's only for the moment in which two threads overtake each other.
    pub is_timed: bool,
}

impl Request {
    /// Returns the insert of a key without a precondition, of weight 1, at a time that may be late.
    #[must_use]
    #[inline]
    pub const fn insert(hash: u64) -> Self {
        let (change, precondition) = (Change::Insert, Precondition::Nothing);
        Self { change, hash, weight: 1, precondition, is_timed: true }
    }

    /// Returns the removal of a key that is there with at least this weight.
    #[must_use]
    #[inline]
    pub const fn remove(hash: u64, weight: u64) -> Self {
        let precondition = Precondition::AtLeast(weight);
        Self { change: Change::Remove, hash, weight, precondition, is_timed: true }
    }

    /// Returns this request with a weight.
    #[must_use]
    #[inline]
    pub const fn weighing(self, weight: u64) -> Self {
        Self { weight, ..self }
    }

    /// Returns this request under a precondition.
    #[must_use]
    #[inline]
    pub const fn under(self, precondition: Precondition) -> Self {
        Self { precondition, ..self }
    }
}

/// The decision about a write.
#[derive(Debug, Clone, Copy)]
pub struct WritePlan {
    /// The step that the record will carry, or that the key is too late.
    pub decision: Decision,
    /// The banks that the operation will change; none if the key is too late.
    pub mask: BankMask,
    /// Whether the precondition found the key: in the window, with the count to be removed, or with
    /// a count that leaves no room below the limit. `None` if the insert tells
    /// ([`Kind::insert_and_check`](super::Kind::insert_and_check)).
    pub present: Option<bool>,
    /// Whether an event must come first.
    pub due: bool,
}

impl WritePlan {
    /// Returns the step of the insert; 0 if the key is too late.
    #[must_use]
    #[inline]
    pub fn step(&self) -> u64 {
        match self.decision {
            Decision::Insert { step } => step,
            Decision::TooLate => 0,
        }
    }

    /// Returns the answer of a write that changes nothing and leaves no record; `None` if it goes
    /// ahead.
    #[must_use]
    #[inline]
    pub fn unchanged(&self, precondition: Precondition) -> Option<Checked> {
        if self.decision == Decision::TooLate {
            // The operation's own time is before the window, but the key may have been seen since.
            // (Nothing was removed.)
            let is_removal = matches!(precondition, Precondition::AtLeast(_));
            let seen = self.present == Some(true) && !is_removal;
            return Some(if seen { Checked::Present } else { Checked::TooLate });
        }
        let is_unchanged = match precondition {
            Precondition::Nothing
            | Precondition::Estimate
            | Precondition::Present(Since::LastSeen) => false,
            Precondition::Present(Since::LastAccepted) | Precondition::UpTo(_) => {
                self.present == Some(true)
            }
            Precondition::AtLeast(_) => self.present == Some(false),
        };
        let present = self.present.filter(|_| is_unchanged)?;
        Some(Checked::of(present))
    }
}
