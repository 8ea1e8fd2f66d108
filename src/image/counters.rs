//! The sums over all inserts, in sharded counters, so that threads do not contend for one word at
//! each insert.
//!
//! Each thread counts in one shard. Before it counts, it announces a lot in the shared count, and
//! the next lot whenever one is used up. The announced count is thus an upper bound of the sum
//! ([`Counters::at_most`]) and cheap to read; only an operation that counts several at once may
//! exceed it until it has announced the next lot. The sum itself ([`Counters::sum`]) reads all
//! shards that were ever used. All accesses are Relaxed: an insert is counted after it is
//! published, so the sum lags behind by the operations in progress, and is never ahead. Counts stay
//! when the process of their thread dies.

use crate::primitives::{AtomicU64, Ordering};
use ebbtide_core::kind::Totals;

/// The maximum number of shards; more threads than that share them.
const SHARDS: usize = 32;
/// Words of a shard: two cache lines, because processors fetch them in pairs.
const SHARD_WORDS: usize = 16;

/// Returns the words of the shards of an image with this many ordinary stripes. There is one shard
/// per stripe, up to 32, rounded up to a power of two. More threads than stripes wait for one
/// another in any case.
#[must_use]
pub fn shards_words(stripes: u32) -> usize {
    (stripes as usize).clamp(1, SHARDS).next_power_of_two() * SHARD_WORDS
}

/// Words of the head: the announced counts, the initial counts of the image, and the shards in use.
pub const HEAD_WORDS: usize = 5;

const ANNOUNCED: usize = 0;
const BEGAN_WITH: usize = 2;
const USED: usize = 4;

/// The size of the lots that a shard announces: inserts, new bits.
const LOTS: [u64; 2] = [16, 256];

/// The counters of an image.
#[derive(Debug, Clone, Copy)]
pub struct Counters<'a> {
    head: &'a [AtomicU64; HEAD_WORDS],
    words: &'a [AtomicU64],
    /// The range of the shards in `words`.
    shards: (usize, usize),
}

impl<'a> Counters<'a> {
    /// Creates the counters with this head of [`HEAD_WORDS`] and with the shards in this range of
    /// `words`, the [`shards_words`] of an image.
    ///
    /// # Panics
    /// If the head is shorter.
    #[must_use]
    #[inline]
    pub fn new(head: &'a [AtomicU64], words: &'a [AtomicU64], shards: (usize, usize)) -> Self {
        debug_assert!((shards.1 - shards.0).is_power_of_two());
        Self { head: head.first_chunk().expect("all words of the head"), words, shards }
    }

    /// Returns the shard of this number, modulo the number of shards.
    #[inline]
    fn shard(&self, number: usize) -> usize {
        number & ((self.shards.1 - self.shards.0) / SHARD_WORDS - 1)
    }

    /// Returns the two counts of a shard.
    #[inline(always)] // as `count`
    fn counts(&self, shard: usize) -> &'a [AtomicU64] {
        &self.words[self.shards.0 + shard * SHARD_WORDS..][..2]
    }

    /// Initialises the sums, for a caller with exclusive access to the image.
    pub fn begin(&self, totals: Totals) {
        for (at, sum) in [totals.inserts, totals.new_bits].into_iter().enumerate() {
            self.head[ANNOUNCED + at].store(sum, Ordering::Relaxed);
            self.head[BEGAN_WITH + at].store(sum, Ordering::Relaxed);
        }
    }

    /// Clears the sums, for a caller that prevents anybody from counting meanwhile.
    pub fn clear(&self) {
        self.begin(Totals::default());
        for shard in 0..(self.shards.1 - self.shards.0) / SHARD_WORDS {
            self.counts(shard).iter().for_each(|count| count.store(0, Ordering::Relaxed));
        }
        self.head[USED].store(0, Ordering::Relaxed);
    }

    /// Counts inserts and new bits in a shard.
    #[inline(always)] // out of line, an insert takes half as long again
    pub fn count(&self, shard: usize, inserts: u64, new_bits: u64) {
        let shard = self.shard(shard);
        let words = self.counts(shard);
        if (inserts, new_bits) == (0, 0) {
            return;
        }
        // The second word is read only for a shard that has counted nothing but removals so far.
        if words.iter().take(2).all(|word| word.load(Ordering::Relaxed) == 0) {
            self.begin_shard(shard);
        }
        for (at, count) in [inserts, new_bits].into_iter().enumerate() {
            if count > 0 {
                let before = words[at].fetch_add(count, Ordering::Relaxed);
                // Wrapping, here and below: the words of a damaged image may be any numbers.
                let lots = (before.wrapping_add(count) / LOTS[at]).wrapping_sub(before / LOTS[at]);
                if lots > 0 {
                    let counted = lots.wrapping_mul(LOTS[at]);
                    self.head[ANNOUNCED + at].fetch_add(counted, Ordering::Relaxed);
                }
            }
        }
    }

    /// Marks a shard as used before it counts anything; twice if two threads begin with it at once,
    /// which is harmless.
    #[cold]
    fn begin_shard(&self, shard: usize) {
        self.head[USED].fetch_or(1 << shard, Ordering::Relaxed);
        for (at, lot) in LOTS.into_iter().enumerate() {
            self.head[ANNOUNCED + at].fetch_add(lot, Ordering::Relaxed);
        }
    }

    /// Announces counts that a process did not announce before it died.
    pub fn catch_up(&self) {
        let (sum, shards) = (self.sum(), self.head[USED].load(Ordering::Relaxed).count_ones());
        for (at, sum) in [sum.inserts, sum.new_bits].into_iter().enumerate() {
            let least = sum.wrapping_add(u64::from(shards) * LOTS[at]);
            self.head[ANNOUNCED + at].fetch_max(least, Ordering::Relaxed);
        }
    }

    /// Returns an upper bound of the sums that is close to them.
    #[must_use]
    #[inline]
    pub fn at_most(&self) -> Totals {
        let [inserts, new_bits] =
            [0, 1].map(|at| self.head[ANNOUNCED + at].load(Ordering::Relaxed));
        Totals { inserts, new_bits }
    }

    /// Returns the sums. While the filter is cleared, they may be anything from zero to what they
    /// were.
    #[must_use]
    pub fn sum(self) -> Totals {
        let mut sums = [0, 1].map(|at| self.head[BEGAN_WITH + at].load(Ordering::Relaxed));
        let mut used = self.head[USED].load(Ordering::Relaxed);
        while used != 0 {
            let shard = self.shard(used.trailing_zeros() as usize);
            used &= used - 1;
            for (at, sum) in sums.iter_mut().enumerate() {
                let counted = self.counts(shard)[at].load(Ordering::Relaxed);
                *sum = sum.wrapping_add(counted);
            }
        }
        let [inserts, new_bits] = sums;
        Totals { inserts, new_bits }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Fewer under Miri, which is slow.
    const COUNTS: u64 = if cfg!(miri) { 100 } else { 20_000 };

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn the_sum_is_exact_and_the_bound_is_above_it_by_a_lot_a_shard_at_most() {
        let (head, shards) = (words(HEAD_WORDS), words(shards_words(64)));
        let counters = Counters::new(&head, &shards, (0, shards.len()));
        let mut expected = Totals { inserts: 1000, new_bits: 7 };
        counters.begin(expected);
        for step in 0..COUNTS {
            let (shard, new_bits) = ((step * 7 % 40) as usize, step % 13);
            counters.count(shard, 1, new_bits);
            expected.inserts += 1;
            expected.new_bits += new_bits;
            let (sum, most) = (counters.sum(), counters.at_most());
            assert_eq!((sum.inserts, sum.new_bits), (expected.inserts, expected.new_bits));
            let shards = SHARDS as u64;
            assert!((sum.inserts..=sum.inserts + shards * LOTS[0]).contains(&most.inserts));
            assert!((sum.new_bits..=sum.new_bits + shards * LOTS[1]).contains(&most.new_bits));
        }
    }

    #[test]
    fn a_shard_that_counts_no_inserts_begins_once() {
        let (head, shards) = (words(HEAD_WORDS), words(shards_words(64)));
        let counters = Counters::new(&head, &shards, (0, shards.len()));
        (0..1000).for_each(|_| counters.count(3, 0, 1));
        assert_eq!(counters.sum().new_bits, 1000);
        assert!(counters.at_most().inserts <= LOTS[0], "{}", counters.at_most().inserts);
    }

    #[test]
    fn what_was_not_announced_is_caught_up_with() {
        let (head, shards) = (words(HEAD_WORDS), words(shards_words(64)));
        let counters = Counters::new(&head, &shards, (0, shards.len()));
        counters.begin(Totals { inserts: 7, new_bits: 70 });
        counters.count(0, 100, 3000);
        counters.count(5, 1, 0);
        for (inserts, new_bits) in [(50, 0), (0, 500)] {
            head[ANNOUNCED].store(inserts, Ordering::Relaxed);
            head[ANNOUNCED + 1].store(new_bits, Ordering::Relaxed);
            counters.catch_up();
            // The first batch of each shard in advance, as if no process had died.
            let least = Totals { inserts: 108 + 2 * LOTS[0], new_bits: 3070 + 2 * LOTS[1] };
            assert_eq!(counters.at_most(), least);
        }
        let more = Totals { inserts: 9000, new_bits: 9000 };
        (0..2).for_each(|at| head[ANNOUNCED + at].store(9000, Ordering::Relaxed));
        counters.catch_up();
        assert_eq!(counters.at_most(), more, "announced counts are not undone");
    }

    #[test]
    fn cleared_counters_are_those_of_a_new_image() {
        let (head, shards) = (words(HEAD_WORDS), words(shards_words(64)));
        let counters = Counters::new(&head, &shards, (0, shards.len()));
        counters.begin(Totals { inserts: 7, new_bits: 70 });
        (0..40).for_each(|shard| counters.count(shard, 100, 3000));
        counters.clear();
        let all = head.iter().chain(&shards);
        assert!(all.into_iter().all(|word| word.load(Ordering::Relaxed) == 0));
        counters.count(1, 3, 30);
        assert_eq!(counters.sum(), Totals { inserts: 3, new_bits: 30 });
        assert!(counters.at_most().inserts >= 3 && counters.at_most().new_bits >= 30);
    }

    #[test]
    fn what_counts_nothing_uses_no_shard() {
        let (head, shards) = (words(HEAD_WORDS), words(shards_words(64)));
        Counters::new(&head, &shards, (0, shards.len())).count(3, 0, 0);
        let all = head.iter().chain(&shards);
        assert!(all.into_iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn threads_that_share_shards_lose_nothing() {
        let (head, shards) = (words(HEAD_WORDS), words(shards_words(64)));
        let counters = Counters::new(&head, &shards, (0, shards.len()));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || (0..COUNTS).for_each(|_| counters.count(thread / 2, 1, 3)));
            }
        });
        assert_eq!((counters.sum().inserts, counters.sum().new_bits), (4 * COUNTS, 12 * COUNTS));
    }
}
