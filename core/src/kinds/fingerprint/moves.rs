//! Moves: how a bucket with an empty slot is found when both buckets of a key are full.
//!
//! A slot may move to the other bucket of its fingerprint. A chain of at most a given number of
//! moves, the shortest that there is, ends in a bucket with an empty slot. The order of the search
//! is fixed, so replay moves the same slots. No bucket occurs twice in a chain, and none that is
//! closed, so each bucket of the chain loses one slot and gains one.

use super::bucket::Form;
use super::word::Word;
use crate::block::Block;

/// The most slots that one insert moves, in any filter.
pub(super) const MOST_MOVES: usize = 8;

/// How far the search for an empty slot goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// The most slots that one insert moves.
    pub(super) moves: usize,
    /// The most buckets that are examined for an empty slot.
    pub(super) examined: u32,
}

impl Limits {
    /// The limits in blocks that are nearly full, where a longer search is hardly ever successful.
    pub(super) const SHORT: Self = Self { moves: 4, examined: 401 };

    /// Returns the limits of chains of up to this many moves.
    pub(super) fn of(moves: u32) -> Self {
        let moves = (moves as usize).clamp(1, MOST_MOVES);
        Self { moves, examined: if moves <= 4 { 401 } else { 4001 } }
    }
}

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
    /// The buckets that may still be examined.
    left: u32,
}

impl Path {
    /// Creates an empty chain.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { moves: [(0, 0); MOST_MOVES], count: 0, end: 0, left: 0 }
    }

    /// Finds the shortest chain that makes room in one of two full buckets; returns false if there
    /// is none within the limits.
    pub(super) fn find<W: Word>(
        &mut self,
        form: &Form<W>,
        block: &Block<'_>,
        from: [usize; 2],
        limits: Limits,
    ) -> bool {
        self.left = limits.examined;
        if self.of_one_move(form, block, from) || self.of_two_moves(form, block, from) {
            return true;
        }
        (3..=limits.moves).any(|moves| {
            from.into_iter().any(|bucket| {
                self.count = 0;
                self.extend(form, block, bucket, moves)
            })
        })
    }

    #[inline(always)]
    fn of_one_move<W: Word>(
        &mut self,
        form: &Form<W>,
        block: &Block<'_>,
        from: [usize; 2],
    ) -> bool {
        let (mut examined, buckets) = (0, form.buckets(block.cells.len()));
        for from in from {
            let word = form.load(block, from);
            // A closed bucket has no slot to move.
            for slot in (0..form.live(word)).rev() {
                let to = other_bucket(form.fingerprint(word, slot), from, buckets);
                if to != from && form.has_room(form.load(block, to)) {
                    self.moves[0] = (from, slot);
                    (self.count, self.end) = (1, to);
                    return true;
                }
                examined += u32::from(to != from);
            }
        }
        self.left = self.left.saturating_sub(examined);
        false
    }

    #[inline(never)]
    fn of_two_moves<W: Word>(
        &mut self,
        form: &Form<W>,
        block: &Block<'_>,
        from: [usize; 2],
    ) -> bool {
        let buckets = form.buckets(block.cells.len());
        for from in from {
            let word = form.load(block, from);
            for first in (0..form.live(word)).rev() {
                let over = other_bucket(form.fingerprint(word, first), from, buckets);
                let word = form.load(block, over);
                for slot in (0..form.live(word)).rev() {
                    let to = other_bucket(form.fingerprint(word, slot), over, buckets);
                    if over == from || [from, over].contains(&to) {
                        continue;
                    }
                    if form.has_room(form.load(block, to)) {
                        [self.moves[0], self.moves[1]] = [(from, first), (over, slot)];
                        (self.count, self.end) = (2, to);
                        return true;
                    }
                    self.left = self.left.saturating_sub(1);
                }
            }
        }
        false
    }

    /// Searches for `left` moves from this bucket on, the slots that die first coming first.
    fn extend<W: Word>(
        &mut self,
        form: &Form<W>,
        block: &Block<'_>,
        bucket: usize,
        left: usize,
    ) -> bool {
        let word = form.load(block, bucket);
        let (at, buckets) = (self.count, form.buckets(block.cells.len()));
        // A closed bucket has no slot to move.
        for slot in (0..form.live(word)).rev() {
            let to = other_bucket(form.fingerprint(word, slot), bucket, buckets);
            self.moves[at] = (bucket, slot);
            if self.moves[..=at].iter().any(|&(met, _)| met == to) {
                continue;
            }
            self.count = at + 1;
            if left > 1 {
                if self.extend(form, block, to, left - 1) {
                    return true;
                }
            } else if form.has_room(form.load(block, to)) {
                self.end = to;
                return true;
            } else {
                self.left = self.left.saturating_sub(1);
            }
            if self.left == 0 {
                return false;
            }
        }
        false
    }

    /// Moves the slots, from the end of the chain on, and puts `new` into its first bucket.
    pub(super) fn follow<W: Word>(&self, form: &Form<W>, block: &Block<'_>, new: (u64, u32)) {
        let (mut to, mut word) = (self.end, form.load(block, self.end));
        for &(bucket, slot) in self.moves[..self.count].iter().rev() {
            let from = form.load(block, bucket);
            form.store(block, to, form.put(word, form.slot(from, slot)));
            (to, word) = (bucket, form.take(from, slot));
        }
        form.store(block, to, form.put(word, new));
    }
}
