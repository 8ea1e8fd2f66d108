//! Moves: how a bucket with an empty slot is found when both buckets of a key are full.
//!
//! A slot may move to the other bucket of its fingerprint. A chain of at most [`MOST_MOVES`] such
//! moves, the shortest that there is, ends in a bucket with an empty slot. The order of the search
//! is fixed, so replay moves the same slots. No bucket occurs twice in a chain, and none that is
//! closed, so each bucket of the chain loses one slot and gains one.

use super::bucket::Form;
use super::word::Word;
use crate::block::Block;

/// The most slots that one insert moves. Eight would raise the load at the first overflow by less
/// than a half percent, except with three slots a bucket.
pub(super) const MOST_MOVES: usize = 4;

/// The most buckets that are examined for an empty slot.
const MOST_EXAMINED: u32 = 400;

/// The multiplier from a fingerprint to the sum of its buckets.
const SCATTER: u32 = 0x9e37_79b1;

/// Returns the other bucket, of `buckets`, of a fingerprint in this one. The bucket itself is the
/// other one of that, for any number of buckets; both may be the same.
#[inline(always)]
pub(super) fn other_bucket(fingerprint: u64, bucket: usize, buckets: usize) -> usize {
    let scattered = (fingerprint as u32).wrapping_mul(SCATTER);
    let sum = ((u64::from(scattered) * buckets as u64) >> 32) as usize;
    if sum >= bucket { sum - bucket } else { sum + buckets - bucket }
}

/// A chain of moves.
#[derive(Debug)]
pub(super) struct Path {
    /// The buckets that lose a slot, and the slots.
    moves: [(usize, u32); MOST_MOVES],
    count: usize,
    /// The bucket with an empty slot.
    end: usize,
    examined: u32,
}

impl Path {
    /// Returns the shortest chain that makes room in one of two full buckets; `None` if there is
    /// none within the limits.
    pub(super) fn find<W: Word>(
        form: &Form<W>,
        block: &Block<'_>,
        from: [usize; 2],
    ) -> Option<Self> {
        let mut path = Self { moves: [(0, 0); MOST_MOVES], count: 0, end: 0, examined: 0 };
        for moves in 1..=MOST_MOVES {
            for bucket in from {
                path.count = 0;
                if path.extend(form, block, bucket, moves) {
                    return Some(path);
                }
            }
        }
        None
    }

    /// Searches for `left` moves from this bucket on, the slots that die first coming first.
    fn extend<W: Word>(
        &mut self,
        form: &Form<W>,
        block: &Block<'_>,
        bucket: usize,
        left: usize,
    ) -> bool {
        let word = W::load(block, bucket);
        let (at, buckets) = (self.count, block.cells.len() / W::WORDS);
        // A closed bucket has no slot to move.
        for slot in (0..form.live(word)).rev() {
            let to = other_bucket(form.slot(word, slot).0, bucket, buckets);
            self.moves[at] = (bucket, slot);
            if self.moves[..=at].iter().any(|&(met, _)| met == to) {
                continue;
            }
            self.count = at + 1;
            if left > 1 {
                if self.extend(form, block, to, left - 1) {
                    return true;
                }
            } else if form.room(W::load(block, to)) > 0 {
                self.end = to;
                return true;
            } else {
                self.examined += 1;
            }
            if self.examined > MOST_EXAMINED {
                return false;
            }
        }
        false
    }

    /// Moves the slots, from the end of the chain on, and puts `new` into its first bucket.
    pub(super) fn follow<W: Word>(&self, form: &Form<W>, block: &Block<'_>, new: (u64, u32)) {
        let (mut to, mut word) = (self.end, W::load(block, self.end));
        for &(bucket, slot) in self.moves[..self.count].iter().rev() {
            let from = W::load(block, bucket);
            form.put(word, form.slot(from, slot)).store(block, to);
            (to, word) = (bucket, form.take(from, slot));
        }
        form.put(word, new).store(block, to);
    }
}
