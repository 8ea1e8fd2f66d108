//! The banks that a process has mapped.

use crate::image::bank::BankSet;
use std::ops::Deref;
use std::sync::Arc;

/// Banks that stay as long as no further bank is opened.
#[derive(Debug)]
pub(super) struct FixedBanks {
    pub(super) banks: Arc<BankSet>,
    pub(super) next_bank: u32,
}

/// The banks of an image at one moment.
pub enum Banks<'a> {
    /// They never change.
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
