//! The banks that a process has mapped.

use crate::image::bank::BankSet;
use crate::image::live_file::Control;
use ebbtide_core::kind::BankEntry;
use std::ops::Deref;
use std::sync::Arc;

/// Banks that stay as long as no further bank is opened.
#[derive(Debug)]
pub(super) struct FixedBanks {
    pub(super) banks: Arc<BankSet>,
    pub(super) next_bank: u32,
}

impl FixedBanks {
    /// Returns these mapped banks, if they are those that the state lists now.
    pub(super) fn of(header: &Control, banks: Arc<BankSet>) -> Option<Self> {
        let state_block = header.state_block();
        let version = state_block.version();
        let state = state_block.state(version);
        let is_mapped =
            |entry: BankEntry| banks.get(entry.slot).is_some_and(|bank| bank.id() == entry.id);
        let (next_bank, are_mapped) = (state.next_bank(), state.banks().all(is_mapped));
        let are_current = are_mapped && state_block.unchanged(version);
        are_current.then_some(Self { banks, next_bank })
    }
}

/// The banks of an image at one moment.
pub enum Banks<'a> {
    /// They do not change until the filter is cleared.
    Fixed(&'a BankSet),
    /// They may have changed since.
    Current(arc_swap::Guard<Arc<BankSet>>),
}

impl Deref for Banks<'_> {
    type Target = BankSet;

    #[inline]
    fn deref(&self) -> &BankSet {
        match self {
            Self::Fixed(banks) => banks,
            Self::Current(banks) => banks,
        }
    }
}
