//! One bucket: fingerprints in slots, youngest first, and the code of their lives above them.
//!
//! A slot is live while its life is above 0. An empty slot has life 0 and fingerprint 0; a
//! fingerprint may be 0 too, because the life alone determines which slots are live. Slots are
//! sorted by life, so a fingerprint is looked for from the youngest slot on.
//!
//! A *closed* bucket has no slots, because it overflowed. For a number of generations, each key
//! that maps to it is reported as present.

use super::codes::{Codes, MOST_SLOTS};
use super::shape::Shape;
use super::word::{Word, cells_of};
use crate::block::Block;

/// The form of the buckets of a filter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Form<W> {
    /// Bytes of a bucket.
    bytes: u32,
    slots: u32,
    /// Bits of a fingerprint.
    bits: u32,
    /// The lowest bit of the code.
    shift: u32,
    /// 65536 divided by `bits`, rounded up: a slot's number is a product instead of a quotient.
    inverse: u32,
    /// The lowest bit of each slot.
    ones: W,
    /// The highest bit of each slot.
    high: W,
    /// All other bits of each slot.
    rest: W,
    /// The smallest value of a closed bucket.
    closed: W,
    /// The last slot.
    last: W,
    /// The fingerprints of the first slots, by their number.
    first: [W; MOST_SLOTS as usize + 1],
    codes: &'static Codes,
}

impl<W: Word> Form<W> {
    /// Creates the form of buckets of a shape, with lives up to one above its generations.
    pub(super) fn new(shape: Shape) -> Self {
        let Shape { slots, bits, generations, bytes } = shape;
        let codes = Codes::shared(slots, generations + 2);
        let lowest = |slot: u32| W::of(1) << (slot * bits);
        let ones = (0..slots).fold(W::ZERO, |all, slot| all | lowest(slot));
        let fingerprint = W::of((1 << bits) - 1);
        let first = |count: usize| {
            let slots = 0..(count as u32).min(slots);
            slots.fold(W::ZERO, |all, slot| all | fingerprint << (slot * bits))
        };
        let first = std::array::from_fn(first);
        let high = ones << (bits - 1);
        let (shift, closed) = (slots * bits, W::of(codes.closed()) << (slots * bits));
        let inverse = 65_536 / bits + 1;
        let rest = first[slots as usize] & !high;
        let last = first[slots as usize] & !first[slots as usize - 1];
        Self { bytes, slots, bits, shift, inverse, ones, high, rest, closed, last, first, codes }
    }

    /// Returns a fingerprint in each slot.
    #[inline(always)]
    pub(super) fn in_each(&self, fingerprint: u64) -> W {
        self.ones.times(fingerprint)
    }

    /// Returns the buckets in this many cells.
    #[inline(always)]
    pub(super) fn buckets(&self, cells: usize) -> usize {
        W::buckets(cells, self.bytes)
    }

    /// Reads a bucket.
    #[inline(always)]
    pub(super) fn load(&self, block: &Block<'_>, bucket: usize) -> W {
        W::load(block, bucket, self.bytes)
    }

    /// Writes a bucket.
    #[inline]
    pub(super) fn store(&self, block: &Block<'_>, bucket: usize, word: W) {
        word.store(block, bucket, self.bytes, |cell, new| block.set_word(cell, new));
    }

    /// Writes a bucket whose cells are noted.
    #[inline]
    pub(super) fn overwrite(&self, block: &Block<'_>, bucket: usize, word: W) {
        word.store(block, bucket, self.bytes, |cell, new| block.overwrite(cell, new));
    }

    /// Returns the end of the most buckets from this one on that lie in this many cells.
    #[inline]
    pub(super) fn end_of_part(&self, from: usize, cells: usize) -> usize {
        (self.cells_of(from).0 + cells) * 8 / self.bytes as usize
    }

    /// Returns the first cell of a bucket, and the one after its last.
    #[inline]
    pub(super) fn cells_of(&self, bucket: usize) -> (usize, usize) {
        cells_of(bucket, self.bytes)
    }

    /// Returns the bits of a fingerprint.
    #[inline(always)]
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the slots of a bucket.
    #[inline(always)]
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the greatest life.
    #[inline]
    pub(super) fn most(&self) -> u32 {
        self.codes.most()
    }

    #[inline(always)]
    fn lives(&self, word: W) -> u32 {
        self.codes.lives((word >> self.shift).low())
    }

    /// Returns the highest bit of each slot with the fingerprint that `each` holds in each slot.
    #[inline(always)]
    fn equal(&self, word: W, each: W) -> W {
        let differs = word ^ each;
        // Exact in each slot: the sum carries into the slot's highest bit and no further.
        !((differs & self.rest).plus(self.rest) | differs) & self.high
    }

    /// Returns whether a slot of two buckets has the fingerprint that `each` holds in each slot.
    #[inline(always)]
    pub(super) fn either_has(&self, one: W, other: W, each: W) -> bool {
        self.equal(one, each) | self.equal(other, each) != W::ZERO
    }

    /// Returns the youngest slot with the fingerprint that `each` holds in each slot, and its life;
    /// the life is 0 if no live slot has it.
    #[inline(always)]
    pub(super) fn find(&self, word: W, each: W) -> (u32, u32) {
        let equal = self.equal(word, each);
        if equal == W::ZERO {
            return (0, 0);
        }
        let slot = (equal.lowest() * self.inverse) >> 16;
        (slot, self.codes.life(self.lives(word), slot))
    }

    /// Returns whether one of two buckets is closed.
    #[inline(always)]
    pub(super) fn is_closed(&self, one: W, other: W) -> bool {
        one.max(other) >= self.closed
    }

    /// Returns for how many generations a bucket is closed; 0 if it is open.
    #[inline]
    pub(super) fn closed_for(&self, word: W) -> u32 {
        if word < self.closed {
            return 0;
        }
        let left = (word >> self.shift).low() - (self.closed >> self.shift).low();
        left.min(self.most().into()) as u32
    }

    /// Returns the empty slots of a bucket; none if it is closed.
    #[inline]
    pub(super) fn room(&self, word: W) -> u32 {
        if word >= self.closed { 0 } else { self.slots - self.live(word) }
    }

    /// Returns whether a bucket has an empty slot; a closed one has none.
    #[inline(always)]
    pub(super) fn has_room(&self, word: W) -> bool {
        // A slot with another fingerprint than 0 is live: few full buckets need their code.
        word & self.last == W::ZERO && self.room(word) > 0
    }

    /// Returns the live slots of a bucket; none if it is closed.
    #[inline]
    pub(super) fn live(&self, word: W) -> u32 {
        self.codes.live((word >> self.shift).low())
    }

    /// Returns the slots with this life, which is above 0; none if the bucket is closed.
    #[inline]
    pub(super) fn of_life(&self, word: W, life: u32) -> u32 {
        let lives = self.lives(word);
        (0..self.slots).map(|slot| u32::from(self.codes.life(lives, slot) == life)).sum()
    }

    /// Returns the fingerprint of a slot.
    #[inline(always)]
    pub(super) fn fingerprint(&self, word: W, slot: u32) -> u64 {
        (word >> (slot * self.bits)).low() & ((1 << self.bits) - 1)
    }

    /// Returns the fingerprint and the life of a slot.
    #[inline]
    pub(super) fn slot(&self, word: W, slot: u32) -> (u64, u32) {
        (self.fingerprint(word, slot), self.codes.life(self.lives(word), slot))
    }

    /// Returns a bucket with a fingerprint more: before those that live as long or shorter.
    #[inline]
    pub(super) fn put(&self, word: W, (fingerprint, life): (u64, u32)) -> W {
        let (lives, bits) = (self.lives(word), self.codes.life_bits());
        let longer = |&slot: &u32| self.codes.life(lives, slot) > life;
        let at = (0..self.slots).find(|slot| !longer(slot)).unwrap_or(self.slots);
        let (kept, all) = (self.first[at as usize], self.first[self.slots as usize]);
        let moved = (word & all & !kept) << self.bits & all;
        let slots = word & kept | W::of(fingerprint) << (at * self.bits) & all | moved;
        let (wide, below) = (u64::from(lives), (1_u64 << (at * bits)) - 1);
        let lives = wide & below | u64::from(life) << (at * bits) | (wide & !below) << bits;
        self.with_lives(slots, (lives & ((1_u64 << (self.slots * bits)) - 1)) as u32)
    }

    /// Returns a bucket without one of its slots.
    #[inline]
    pub(super) fn take(&self, word: W, slot: u32) -> W {
        let (kept, all) = (self.first[slot as usize], self.first[self.slots as usize]);
        let slots = word & kept | (word & all) >> self.bits & !kept;
        let (lives, bits) = (u64::from(self.lives(word)), self.codes.life_bits());
        let below = (1_u64 << (slot * bits)) - 1;
        self.with_lives(slots, (lives & below | lives >> bits & !below) as u32)
    }

    #[inline]
    fn with_lives(&self, slots: W, lives: u32) -> W {
        slots | W::of(self.codes.code(lives).into()) << self.shift
    }

    /// Returns the bucket that is closed for as long as the longest life of this one, and for at
    /// least `life` generations.
    pub(super) fn close(&self, word: W, life: u32) -> W {
        let life = self.longest(word).max(life);
        W::of(self.codes.closed() + u64::from(life.min(self.most()))) << self.shift
    }

    /// Returns the longest life in a bucket, or for how long it is closed.
    pub(super) fn longest(&self, word: W) -> u32 {
        self.closed_for(word).max(self.slot(word, 0).1)
    }

    /// Returns a bucket some generations later: slots that have died are empty. Also returns how
    /// many are live.
    #[inline(always)]
    pub(super) fn later(&self, word: W, generations: u64) -> (W, u32) {
        if generations > u64::from(self.most()) {
            return (W::ZERO, 0);
        }
        let code = (word >> self.shift).low();
        let now = (code, self.codes.live(code));
        let (code, live) = (0..generations).fold(now, |(code, _), _| self.codes.later(code));
        (W::of(code) << self.shift | word & self.first[live as usize], live)
    }
}

#[cfg(test)]
mod tests;
