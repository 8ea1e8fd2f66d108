//! Kinds with one bank, which never changes: all that a key has is in one block.

use super::{Decision, Describe, Kind, Moment, Operation, Query, State};
use crate::block::{Block, Blocks};

/// A kind whose keys have a single block, in the bank that was opened at the start. It is a
/// [`Kind`], whose rules for the content of blocks hold here too.
pub trait SingleBlock: Describe {
    /// Decides the step of an insert, or rejects it as too late. By default the current
    /// [step](Describe::step); 0 for kinds without steps.
    fn decide(&self, state: &State<'_>, moment: &Moment) -> Decision {
        Decision::Insert { step: self.step(state, moment).unwrap_or(0) }
    }

    /// Prefetches the words that an insert of this key will touch, before its stripe is acquired.
    fn prefetch(&self, block: &Block<'_>, hash: u64);

    /// Prefetches the words that an insert of this key will probably touch beside those of
    /// [`SingleBlock::prefetch`]; see [`Kind::prefetch_further`].
    fn prefetch_further(&self, block: &Block<'_>, hash: u64) {
        let _ = (block, hash);
    }

    /// Returns whether the kind has [`SingleBlock::new_bits`] of its own; see [`Kind::measures`].
    fn measures(&self) -> bool {
        false
    }

    /// Returns how many bits an insert is about to set, for kinds that steer by it; see
    /// [`Kind::new_bits`].
    fn new_bits(&self, block: &Block<'_>, operation: &Operation) -> u32 {
        let _ = (block, operation);
        0
    }

    /// Applies an insert: catches the block up to the operation's step, then sets the key's cells.
    fn insert(&self, block: &Block<'_>, operation: &Operation);

    /// Returns whether the key is in the window.
    fn contains(&self, state: &State<'_>, block: &Block<'_>, query: &Query) -> bool;

    /// Returns whether [`SingleBlock::insert_and_check`] answers; see
    /// [`Kind::checks_on_insert`].
    fn checks_on_insert(&self) -> bool {
        false
    }

    /// As [`SingleBlock::insert`]; also returns whether the key was in the window before. See
    /// [`Kind::insert_and_check`].
    fn insert_and_check(&self, block: &Block<'_>, operation: &Operation, new_bits: u32) -> bool {
        let _ = new_bits;
        self.insert(block, operation);
        false
    }

    /// Brings a private copy of a block into its canonical form; see [`Kind::settle`]. Nothing is
    /// done for kinds without steps.
    fn settle(&self, state: &State<'_>, block: &Block<'_>, moment: &Moment) {
        let _ = (state, block, moment);
    }

    /// Returns the false-positive rate of the keys of a settled block; see [`Kind::block_fpr`].
    fn block_fpr(&self, block: &Block<'_>) -> f64 {
        let _ = block;
        0.0
    }
}

impl<K: SingleBlock> Kind for K {
    fn prefetch(&self, blocks: &Blocks<'_>, hash: u64) {
        if let Some(block) = blocks.get(0) {
            SingleBlock::prefetch(self, block, hash);
        }
    }

    fn prefetch_further(&self, blocks: &Blocks<'_>, hash: u64) {
        if let Some(block) = blocks.get(0) {
            SingleBlock::prefetch_further(self, block, hash);
        }
    }

    fn decide(&self, state: &State<'_>, moment: &Moment) -> Decision {
        SingleBlock::decide(self, state, moment)
    }

    fn measures(&self) -> bool {
        SingleBlock::measures(self)
    }

    fn new_bits(&self, _: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32 {
        blocks.get(0).map_or(0, |block| SingleBlock::new_bits(self, block, operation))
    }

    fn insert(&self, _: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) {
        if let Some(block) = blocks.get(0) {
            SingleBlock::insert(self, block, operation);
        }
    }

    fn contains(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> bool {
        blocks.get(0).is_some_and(|block| SingleBlock::contains(self, state, block, query))
    }

    fn checks_on_insert(&self) -> bool {
        SingleBlock::checks_on_insert(self)
    }

    fn insert_and_check(
        &self,
        _: &State<'_>,
        blocks: &Blocks<'_>,
        operation: &Operation,
        new_bits: u32,
    ) -> bool {
        let block = blocks.get(0);
        block.is_some_and(|block| SingleBlock::insert_and_check(self, block, operation, new_bits))
    }

    fn settle(&self, state: &State<'_>, _: usize, block: &Block<'_>, moment: &Moment) {
        SingleBlock::settle(self, state, block, moment);
    }

    fn block_fpr(&self, _: &State<'_>, _: usize, block: &Block<'_>, _: &Moment) -> f64 {
        SingleBlock::block_fpr(self, block)
    }
}
