//! The state of a filter in memory, part by part, for hosts that save it in a form of their own.

use super::chunks::zeros;
use super::parts::Parts;
use crate::block::{Block, OWN_WORDS, load};
use crate::claims::LatestClaim;
use crate::digest::{StateDigest, Sums};
use crate::kind::Totals;

/// The parts of the state of a [`Machine`](super::Machine).
#[derive(Debug)]
pub struct Content<'a>(&'a Parts);

impl<'a> Content<'a> {
    pub(super) fn new(parts: &'a Parts) -> Self {
        Self(parts)
    }

    /// Returns the words of the filter-wide state.
    pub fn state_words(&self) -> impl ExactSizeIterator<Item = u64> {
        self.0.memory.state_words().iter().map(load)
    }

    /// Returns the sums of all stripes, that of events first.
    pub fn sums(&self) -> impl ExactSizeIterator<Item = Sums> {
        self.0.ledger.stripes().iter().copied()
    }

    /// Returns the sums over the filter.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.0.ledger.totals()
    }

    /// Returns the latest claim that the filter has given.
    #[must_use]
    pub fn latest_claim(&self) -> LatestClaim {
        self.0.claims.latest()
    }

    /// Returns [`Machine::digest`](super::Machine::digest) of a filter of the engine that also has
    /// these positions of sources, ascending by source.
    #[must_use]
    pub fn digest_with(&self, positions: &[(u64, u64)]) -> u128 {
        let Parts { memory, ledger, claims, .. } = self.0;
        let mut digest = StateDigest::new(self.0.kind(), ledger.stripes().iter().copied());
        let own = zeros(OWN_WORDS);
        digest.state(&Block::alone(&own, memory.state_words()));
        digest.positions(positions);
        digest.claims(claims.latest(), claims.iter());
        let state = memory.state();
        self.0.each_block(|slot, block| digest.block(&state, slot, block));
        digest.finish()
    }

    /// Visits every block with the number of its bank, by slot, until `visit` fails.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn try_each_block<E>(
        &self,
        mut visit: impl FnMut(u32, Block<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.memory.banks().try_for_each(|(_, bank)| {
            (0..bank.blocks()).try_for_each(|at| visit(bank.id(), bank.block(at as usize)))
        })
    }
}
