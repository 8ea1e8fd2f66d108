//! The most memory that a window of time may take: its banks, and what an image has besides.
//!
//! A kind asks before it opens a bank. Without room it opens a smaller one, or none: then the
//! newest bank takes the keys, the rate of false positives rises, and no key is lost.

use crate::block::places::head_bytes;
use crate::block::{BankPlaces, Geometry, Layout, UndoRoom};
use crate::error::Result;
use crate::kind::{Kind, Parameters, State};

/// The parameter: bytes.
pub(super) const MAX_MEMORY: &str = "max-memory";

/// A limit of memory, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// The limit, in bytes.
    pub(super) most: Option<u64>,
    /// The room of the banks' undo areas.
    pub(super) undo: UndoRoom,
}

impl Memory {
    /// Reads the limit of the parameters.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::error::Error::Parameter) if it is no number of bytes.
    pub(super) fn of(parameters: &Parameters, undo: UndoRoom) -> Result<Self> {
        Ok(Self { most: Self::limit(parameters)?, undo })
    }

    /// Reads the limit alone.
    ///
    /// # Errors
    /// As those of [`Memory::of`].
    pub(super) fn limit(parameters: &Parameters) -> Result<Option<u64>> {
        parameters.optional(MAX_MEMORY, "a number of bytes")
    }

    /// Returns the bytes of a bank.
    pub(super) fn of_bank(&self, layout: Layout, geometry: Geometry) -> u64 {
        BankPlaces::new(layout, geometry, self.undo, false).bytes()
    }

    /// Returns the bytes that an image takes.
    pub(super) fn taken(&self, layout: Layout, state: &State<'_>) -> u64 {
        let banks = state.banks().map(|bank| self.of_bank(layout, bank.geometry));
        head_bytes(layout.stripes, state.words()) + banks.sum::<u64>()
    }

    /// Returns the least limit with which a filter of this kind works: the first bank, and beside
    /// it one of this geometry, the smallest.
    pub(super) fn least(&self, layout: Layout, kind: &dyn Kind, small: Geometry) -> u64 {
        head_bytes(layout.stripes, kind.state_words())
            + self.of_bank(layout, kind.geometry(layout))
            + self.of_bank(layout, small)
    }

    /// Returns the bytes that further banks may take; all there are without a limit.
    pub(super) fn left(&self, layout: Layout, state: &State<'_>) -> u64 {
        let Some(most) = self.most else { return u64::MAX };
        most.saturating_sub(self.taken(layout, state))
    }
}

#[cfg(test)]
mod tests;
