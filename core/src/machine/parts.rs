//! The parts of a filter in memory, which all its operations share.

use super::chunks::Memory;
use super::ledger::Ledger;
#[cfg(any(test, feature = "testing"))]
use crate::atomic::AtomicU64;
use crate::block::{Block, Blocks};
use crate::claims::{ClaimList, HeldClaim};
use crate::error::Result;
use crate::identity::Identity;
#[cfg(any(test, feature = "testing"))]
use crate::kind::Totals;
use crate::kind::{BankMask, Kind, Micros, Query, State};
use std::fmt;

/// The parts of a filter in memory.
pub(crate) struct Parts {
    pub(super) identity: Identity,
    pub(super) memory: Memory,
    pub(super) ledger: Ledger,
    pub(super) claims: ClaimList,
    /// The kind's [grace](crate::kind::Events::grace): asking for it is a call that every write
    /// would make.
    pub(super) grace: Micros,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Parts");
        shown.field("kind", &self.kind().name()).field("position", &self.ledger.position());
        shown.finish_non_exhaustive()
    }
}

impl Parts {
    /// Creates the parts of the empty filter of an identity.
    pub(super) fn new(identity: Identity) -> Result<Self> {
        let kind = &*identity.kind;
        let memory = Memory::new(kind, identity.layout)?;
        let ledger = Ledger::new(identity.uuid, kind.uses_time(), identity.layout.stripes);
        let grace = kind.grace();
        Ok(Self { identity, memory, ledger, claims: ClaimList::default(), grace })
    }

    /// Returns the kind.
    #[inline]
    pub(super) fn kind(&self) -> &dyn Kind {
        &*self.identity.kind
    }

    /// Returns the key's blocks in all banks.
    #[inline]
    pub(crate) fn blocks(&self, hash: u64) -> Blocks<'_> {
        self.memory.locate(BankMask::MAX, hash)
    }

    /// Returns the filter-wide state.
    #[inline]
    pub(crate) fn state(&self) -> State<'_> {
        self.memory.state()
    }

    /// Returns the words of the filter-wide state.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn state_words(&self) -> &[AtomicU64] {
        self.memory.state_words()
    }

    /// Returns the sums over the filter.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn totals(&self) -> Totals {
        self.ledger.totals()
    }

    /// Allocates all blocks, for a test that writes to them.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn allocate_all(&mut self) {
        self.memory.allocate_all();
    }

    /// Returns the question about a key at a time, or at the filter's own if that is later.
    #[inline]
    pub(super) fn query(&self, hash: u64, now: Micros) -> Query {
        let now = now.max(self.ledger.latest().time);
        Query { hash, now, totals: self.ledger.totals() }
    }

    /// Visits every block, with the slot of its bank.
    pub(crate) fn each_block(&self, mut visit: impl FnMut(usize, Block<'_>)) {
        for (slot, bank) in self.memory.banks() {
            (0..bank.blocks()).for_each(|index| visit(slot, bank.block(index as usize)));
        }
    }

    /// Returns the bytes that are allocated beside these parts themselves.
    pub(super) fn allocated_bytes(&self) -> usize {
        let claims = self.claims.iter().len() * size_of::<(u64, HeldClaim)>();
        let tables = self.kind().table_bytes();
        size_of_val(self.ledger.stripes()) + self.memory.allocated_bytes() + claims + tables
    }

    /// Returns the bytes beside these parts themselves when all of the present banks is used.
    pub(super) fn planned_bytes(&self) -> u64 {
        let beside = size_of_val(self.ledger.stripes()) + self.kind().table_bytes();
        beside as u64 + self.memory.planned_bytes()
    }

    /// Returns the sum of a kind word over all blocks.
    pub(crate) fn sum(&self, word: usize) -> u64 {
        let mut sum = 0_u64;
        self.each_block(|_, block| sum = sum.wrapping_add(block.own(word)));
        sum
    }
}
