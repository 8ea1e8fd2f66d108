//! The digest of a filter's logical state: equal for equal states, wherever they are kept.
//!
//! It covers the sums of the stripes, the filter-wide state, and every block in settled form. It
//! does not cover what only a host has: LSNs, versions, undo areas, the room that blocks could use.

use crate::block::{Block, OWN_WORDS, load};
use crate::claims::{HeldClaim, LatestClaim};
use crate::hash::DigestHasher;
use crate::kind::copy::BlockCopy;
use crate::kind::{Kind, Moment, State, Totals};
use crate::state::STATE_WORDS;

/// The sums of a stripe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Insert operations applied.
    pub inserts: u64,
    /// The latest time, as [`OperationTime::word`](crate::time::OperationTime::word).
    pub time: u64,
    /// The sum of new bits.
    pub new_bits: u64,
}

/// Hashes a logical state: every stripe's sums in their order, then the state block, then every
/// block of every bank in the order of slots.
pub struct StateDigest<'a> {
    kind: &'a dyn Kind,
    moment: Moment,
    hasher: DigestHasher,
}

impl<'a> StateDigest<'a> {
    /// Hashes the sums of all stripes, stripe 0 (that of events) first.
    #[must_use]
    pub fn new(kind: &'a dyn Kind, stripes: impl IntoIterator<Item = Sums>) -> Self {
        let (mut hasher, mut totals, mut latest) = (DigestHasher::default(), Totals::default(), 0);
        for Sums { inserts, time, new_bits } in stripes {
            let shown = if kind.uses_time() { time } else { 0 };
            hasher.words(&[inserts, shown, new_bits]);
            totals.inserts = totals.inserts.wrapping_add(inserts);
            totals.new_bits = totals.new_bits.wrapping_add(new_bits);
            latest = latest.max(time);
        }
        let moment = Moment { time: latest >> 1, now: latest >> 1, totals };
        Self { kind, moment, hasher }
    }

    /// Hashes the state block: its kind words, then the filter-wide state.
    pub fn state(&mut self, block: &Block<'_>) {
        let mut words: Vec<u64> = block.own.iter().chain(block.cells).map(load).collect();
        // However many of them the kind uses.
        words.resize(OWN_WORDS + STATE_WORDS, 0);
        self.hasher.words(&words);
    }

    /// Hashes the positions of sources, if there are any: pairs of source and position, by source.
    pub fn positions(&mut self, positions: &[(u64, u64)]) {
        for &(source, position) in positions {
            self.hasher.words(&[source, position]);
        }
    }

    /// Hashes the claims, by hash, held or not, if there ever was one.
    pub fn claims<'c>(&mut self, latest: LatestClaim, claims: impl Iterator<Item = &'c HeldClaim>) {
        if latest.token > 0 {
            self.hasher.words(&[latest.time, latest.token]);
        }
        for HeldClaim { hash, token, since, deadline } in claims {
            self.hasher.words(&[*hash, *token, *since, *deadline]);
        }
    }

    /// Hashes a block of the bank in a slot, settled in a private copy.
    pub fn block(&mut self, state: &State<'_>, slot: usize, block: Block<'_>) {
        let copied = BlockCopy::new(self.kind, block);
        self.kind.settle(state, slot, &copied.block(), &self.moment);
        for word in copied.words() {
            self.hasher.words(&[load(word)]);
        }
    }

    /// Returns the digest.
    #[must_use]
    pub fn finish(&self) -> u128 {
        self.hasher.finish()
    }
}
