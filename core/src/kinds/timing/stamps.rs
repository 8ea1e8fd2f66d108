//! Timestamps in timers of a few bits, and the sweep that marks expired ones.
//!
//! A timer holds 0 if it is expired (the paper's `T_ε`; so does one never touched), else 1 + the
//! tick modulo the size of the *ring*. Ages are relative to a tick that the block keeps, so they do
//! not change while the block is idle. [`Sweep`] processes whole words: all timers in one are
//! compared at once.
//!
//! This module is independent of windows and batches. Values outside the ring (torn words) give
//! some age.

use crate::block::Block;
use crate::block::packed::Packed;

/// The number of timestamps before their values repeat: the paper's `T_Ω + 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ring(pub u64);

impl Ring {
    /// Returns the value of a timer touched in this tick.
    #[inline]
    pub fn stamp(self, tick: u64) -> u64 {
        1 + tick % self.0
    }

    /// Returns the timer value `ticks` ticks later.
    #[inline]
    pub fn later(self, stamp: u64, ticks: u64) -> u64 {
        let behind = self.0 - stamp;
        // The few ticks of nearly all cases take no division.
        if ticks <= behind { stamp + ticks } else { 1 + (ticks - behind - 1) % self.0 }
    }

    /// Returns how many ticks before timer value `now` this value was set; unlimited for an expired
    /// one.
    #[inline]
    pub fn age(self, now: u64, stamp: u64) -> u64 {
        let round = if stamp > now { self.0 } else { 0 };
        let age = now.wrapping_add(round).wrapping_sub(stamp);
        if stamp == 0 { u64::MAX } else { age }
    }

    /// Returns a sweep that keeps the timers of at most this age; no timers if no age is given.
    pub fn sweep(self, now: u64, oldest_kept: Option<u64>) -> Sweep {
        let Some(age) = oldest_kept.map(|age| age.min(self.0 - 1)) else {
            return Sweep { oldest: u64::MAX, youngest: 0, round: false };
        };
        match now.checked_sub(age).filter(|&oldest| oldest > 0) {
            Some(oldest) => Sweep { oldest, youngest: now, round: false },
            None => Sweep { oldest: now + self.0 - age, youngest: now, round: true },
        }
    }
}

/// The timer values that are kept: those from `oldest` to `youngest`, `round` the end of the ring
/// or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sweep {
    oldest: u64,
    youngest: u64,
    round: bool,
}

impl Sweep {
    /// Marks the timers from `from` to before `to` as expired, except those that are kept.
    pub fn mark(&self, timers: &Packed, block: &Block<'_>, from: usize, to: usize) {
        let lanes = Lanes::new(timers.bits);
        let none = self.oldest > timers.most();
        let [oldest, youngest] = [self.oldest, self.youngest].map(|stamp| lanes.all(stamp));
        lanes.visit(timers, block, from, to, |word, shift, stamps| {
            let young = lanes.at_least(youngest, stamps);
            let old = lanes.at_least(stamps, oldest);
            let kept = match (none, self.round) {
                (true, _) => 0,
                (_, true) => young | old,
                (_, false) => young & old,
            };
            let expired = stamps & !lanes.whole(kept);
            clear(block, word, expired << shift);
            clear(block, word + 1, (expired >> 1) >> (63 - shift));
        });
    }
}

/// Returns how many timers are not marked expired.
pub(super) fn in_use(timers: &Packed, block: &Block<'_>) -> u64 {
    let lanes = Lanes::new(timers.bits);
    let ones = lanes.all(1);
    let mut count = 0;
    lanes.visit(timers, block, 0, timers.cells, |_, _, stamps| {
        count += u64::from(lanes.at_least(stamps, ones).count_ones());
    });
    count
}

/// Clears these bits, if any are given.
#[inline]
fn clear(block: &Block<'_>, word: usize, bits: u64) {
    if bits != 0 {
        block.set_word(word, block.word(word) & !bits);
    }
}

/// Adjacent timers in a word, as many as fit, from the lowest bit on.
#[derive(Debug, Clone, Copy)]
struct Lanes {
    bits: u32,
    /// The number of lanes.
    count: usize,
    /// The lowest bit of each.
    low: u64,
    /// The highest bit of each.
    high: u64,
}

impl Lanes {
    fn new(bits: u32) -> Self {
        let count = 64 / bits;
        let low = (0..count).fold(0, |low, lane| low | 1 << (lane * bits));
        Self { bits, count: count as usize, low, high: low << (bits - 1) }
    }

    /// Returns one value in all lanes.
    fn all(&self, value: u64) -> u64 {
        (value & (u64::MAX >> (64 - self.bits))).wrapping_mul(self.low)
    }

    /// Returns the highest bit of each lane in which `a >= b`.
    #[inline]
    fn at_least(&self, a: u64, b: u64) -> u64 {
        // The lower bits are compared by a difference that borrows from a set highest bit, so never
        // from the next lane.
        let lower = (a | self.high).wrapping_sub(b & !self.high);
        (a & !b | !(a ^ b) & lower) & self.high
    }

    /// Returns all bits of the lanes whose highest bit is given.
    #[inline]
    fn whole(&self, high: u64) -> u64 {
        (high << 1).wrapping_sub(high >> (self.bits - 1))
    }

    /// Visits the timers from `from` to before `to`: the word and the bit of the first of these
    /// lanes, and the lanes; those beyond `to` read 0.
    #[inline]
    fn visit(
        &self,
        timers: &Packed,
        block: &Block<'_>,
        from: usize,
        to: usize,
        mut visit: impl FnMut(usize, u32, u64),
    ) {
        let mut at = from;
        while at < to {
            let count = self.count.min(to - at);
            let bit = at as u64 * u64::from(self.bits);
            let (word, shift) = (timers.first + (bit / 64) as usize, (bit % 64) as u32);
            let both = block.word(word) >> shift | (block.word(word + 1) << 1) << (63 - shift);
            visit(word, shift, both & (u64::MAX >> (64 - count as u32 * self.bits)));
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::AtomicU64;
    use crate::block::{OWN_WORDS, load};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_sweep_keeps_what_is_young_enough_and_touches_nothing_else(
            bits in 2..=40_u32,
            spare in 0..3_u64,
            cells in 1..150_usize,
            (from, to) in (0..150_usize, 0..150_usize),
            tick in any::<u64>(),
            kept in prop::option::of(prop_oneof![0..9_u64, any::<u64>()]),
            stamps in prop::collection::vec(any::<u64>(), 150),
        ) {
            let ring = Ring(((1 << bits) - 1 - spare).max(2));
            let own: Vec<AtomicU64> = (0..OWN_WORDS).map(|_| AtomicU64::new(0)).collect();
            let words: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
            let block = Block::alone(&own, &words);
            let timers = Packed { first: 0, bits, cells };
            let stamps = stamps[..cells].iter().map(|stamp| stamp % (ring.0 + 1));
            let stamps = Vec::from_iter(stamps);
            stamps.iter().enumerate().for_each(|(at, &stamp)| timers.set(&block, at, stamp));
            let used = stamps.iter().filter(|&&stamp| stamp > 0).count() as u64;
            prop_assert_eq!(in_use(&timers, &block), used);

            let now = ring.stamp(tick);
            ring.sweep(now, kept).mark(&timers, &block, from.min(cells), to.min(cells));
            for (at, &stamp) in stamps.iter().enumerate() {
                let stays = !(from..to).contains(&at)
                    || kept.is_some_and(|kept| ring.age(now, stamp) <= kept);
                let expected = if stays { stamp } else { 0 };
                prop_assert_eq!(timers.get(&block, at), expected, "timer {} of {:?}", at, &stamps);
            }
            let end = (cells * bits as usize).div_ceil(64);
            prop_assert!(words[end..].iter().all(|word| load(word) == 0));
        }
    }

    #[test]
    fn ages_count_back_round_the_ring() {
        let ring = Ring(5);
        for tick in 0..30_u64 {
            for age in 0..5.min(tick + 1) {
                assert_eq!(ring.age(ring.stamp(tick), ring.stamp(tick - age)), age);
            }
            assert_eq!(ring.age(ring.stamp(tick), 0), u64::MAX);
            assert!(
                (0..30)
                    .all(|ticks| ring.later(ring.stamp(tick), ticks) == ring.stamp(tick + ticks))
            );
        }
    }
}
