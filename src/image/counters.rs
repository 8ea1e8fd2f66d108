//! The sums over all inserts, counted by many threads that do not meet at one word each time.
//!
//! Each thread counts in a *lane*, and announces it in lots, the first of them in advance. So what was announced bounds the
//! sum from above ([`Tally::at_most`]) and is cheap to read; the sum itself ([`Tally::sum`]) reads all lanes that were ever
//! used. All accesses are Relaxed: an insert is counted after it is published, so the sum is late by
//! what is under way, never early. What a thread counted stays when its process dies.

use crate::sync::{AtomicU64, Ordering};
use ebbtide_core::kind::Totals;

/// The most lanes; more threads than that share them.
const LANES: usize = 32;
/// Words of a lane: two cache lines, for processors fetch them in pairs.
const LANE_WORDS: usize = 16;

/// Words of the lanes of an image with so many ordinary stripes: a lane for each, up to 32, a power
/// of two. More threads than stripes wait for one another in any case.
#[must_use]
pub fn lanes_words(stripes: u32) -> usize {
    (stripes as usize).clamp(1, LANES).next_power_of_two() * LANE_WORDS
}

/// Words of the tally's head: what was announced, what the image began with, and which lanes were used.
pub const HEAD_WORDS: usize = 5;

const ANNOUNCED: usize = 0;
const BEGAN_WITH: usize = 2;
const USED: usize = 4;

/// What a lane counts before it announces: inserts, novelty.
const LOTS: [u64; 2] = [16, 256];

/// The tally of an image.
#[derive(Debug, Clone, Copy)]
pub struct Tally<'a> {
    head: &'a [AtomicU64; HEAD_WORDS],
    lanes: &'a [AtomicU64],
}

impl<'a> Tally<'a> {
    /// The tally in these words, [`HEAD_WORDS`] and [`LANES_WORDS`] of them.
    ///
    /// # Panics
    /// If there are fewer of either.
    #[must_use]
    #[inline]
    pub fn new(head: &'a [AtomicU64], lanes: &'a [AtomicU64]) -> Self {
        debug_assert!(lanes.len().is_power_of_two() && lanes.len() >= LANE_WORDS);
        Self { head: head.first_chunk().expect("all words of the head"), lanes }
    }

    /// The lane of this number, counted round.
    #[inline]
    fn lane(&self, number: usize) -> usize {
        number & (self.lanes.len() / LANE_WORDS - 1)
    }

    /// Begins with these sums, for whoever is alone with the image.
    pub fn begin(&self, totals: Totals) {
        for (at, sum) in [totals.inserts, totals.novelty].into_iter().enumerate() {
            self.head[ANNOUNCED + at].store(sum, Ordering::Relaxed);
            self.head[BEGAN_WITH + at].store(sum, Ordering::Relaxed);
        }
    }

    /// Counts inserts and novelty in a lane.
    #[inline(always)] // called out of line, an insert takes half as long again
    pub fn count(&self, lane: usize, inserts: u64, novelty: u64) {
        let lane = self.lane(lane);
        let words = &self.lanes[lane * LANE_WORDS..][..2];
        if (inserts, novelty) == (0, 0) {
            return;
        }
        // The second word is asked only of a lane that has counted removals alone so far.
        if words.iter().take(2).all(|word| word.load(Ordering::Relaxed) == 0) {
            self.begin_lane(lane);
        }
        for (at, count) in [inserts, novelty].into_iter().enumerate() {
            if count > 0 {
                let before = words[at].fetch_add(count, Ordering::Relaxed);
                // Wrapping, here and below: the words of an image that was damaged may be any.
                let lots = (before.wrapping_add(count) / LOTS[at]).wrapping_sub(before / LOTS[at]);
                if lots > 0 {
                    let counted = lots.wrapping_mul(LOTS[at]);
                    self.head[ANNOUNCED + at].fetch_add(counted, Ordering::Relaxed);
                }
            }
        }
    }

    /// Before a lane counts anything; twice if two threads begin with it at once, which does no harm.
    #[cold]
    fn begin_lane(&self, lane: usize) {
        self.head[USED].fetch_or(1 << lane, Ordering::Relaxed);
        for (at, lot) in LOTS.into_iter().enumerate() {
            self.head[ANNOUNCED + at].fetch_add(lot, Ordering::Relaxed);
        }
    }

    /// Announces what a process counted and did not come to announce when it died.
    pub fn catch_up(&self) {
        let (sum, lanes) = (self.sum(), self.head[USED].load(Ordering::Relaxed).count_ones());
        for (at, sum) in [sum.inserts, sum.novelty].into_iter().enumerate() {
            let least = sum.wrapping_add(u64::from(lanes) * LOTS[at]);
            self.head[ANNOUNCED + at].fetch_max(least, Ordering::Relaxed);
        }
    }

    /// At least the sums, and not much more.
    #[must_use]
    #[inline]
    pub fn at_most(&self) -> Totals {
        let [inserts, novelty] = [0, 1].map(|at| self.head[ANNOUNCED + at].load(Ordering::Relaxed));
        Totals { inserts, novelty }
    }

    /// The sums.
    #[must_use]
    pub fn sum(self) -> Totals {
        let mut sums = [0, 1].map(|at| self.head[BEGAN_WITH + at].load(Ordering::Relaxed));
        let mut used = self.head[USED].load(Ordering::Relaxed);
        while used != 0 {
            let lane = self.lane(used.trailing_zeros() as usize);
            used &= used - 1;
            for (at, sum) in sums.iter_mut().enumerate() {
                let counted = self.lanes[lane * LANE_WORDS + at].load(Ordering::Relaxed);
                *sum = sum.wrapping_add(counted);
            }
        }
        Totals { inserts: sums[0], novelty: sums[1] }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Fewer where Miri follows each.
    const COUNTS: u64 = if cfg!(miri) { 100 } else { 20_000 };

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn the_sum_is_exact_and_the_bound_is_above_it_by_a_lot_a_lane_at_most() {
        let (head, lanes) = (words(HEAD_WORDS), words(lanes_words(64)));
        let tally = Tally::new(&head, &lanes);
        let mut expected = Totals { inserts: 1000, novelty: 7 };
        tally.begin(expected);
        for step in 0..COUNTS {
            let (lane, novelty) = ((step * 7 % 40) as usize, step % 13);
            tally.count(lane, 1, novelty);
            expected.inserts += 1;
            expected.novelty += novelty;
            let (sum, most) = (tally.sum(), tally.at_most());
            assert_eq!((sum.inserts, sum.novelty), (expected.inserts, expected.novelty));
            let lanes = LANES as u64;
            assert!((sum.inserts..=sum.inserts + lanes * LOTS[0]).contains(&most.inserts));
            assert!((sum.novelty..=sum.novelty + lanes * LOTS[1]).contains(&most.novelty));
        }
    }

    #[test]
    fn a_lane_that_counts_no_inserts_begins_once() {
        let (head, lanes) = (words(HEAD_WORDS), words(lanes_words(64)));
        let tally = Tally::new(&head, &lanes);
        (0..1000).for_each(|_| tally.count(3, 0, 1));
        assert_eq!(tally.sum().novelty, 1000);
        assert!(tally.at_most().inserts <= LOTS[0], "{}", tally.at_most().inserts);
    }

    #[test]
    fn what_was_not_announced_is_caught_up_with() {
        let (head, lanes) = (words(HEAD_WORDS), words(lanes_words(64)));
        let tally = Tally::new(&head, &lanes);
        tally.begin(Totals { inserts: 7, novelty: 70 });
        tally.count(0, 100, 3000);
        tally.count(5, 1, 0);
        for (inserts, novelty) in [(50, 0), (0, 500)] {
            head[ANNOUNCED].store(inserts, Ordering::Relaxed);
            head[ANNOUNCED + 1].store(novelty, Ordering::Relaxed);
            tally.catch_up();
            // The first lot of each lane in advance, as if nobody had died.
            let least = Totals { inserts: 108 + 2 * LOTS[0], novelty: 3070 + 2 * LOTS[1] };
            assert_eq!(tally.at_most(), least);
        }
        let more = Totals { inserts: 9000, novelty: 9000 };
        (0..2).for_each(|at| head[ANNOUNCED + at].store(9000, Ordering::Relaxed));
        tally.catch_up();
        assert_eq!(tally.at_most(), more, "what was announced is not taken back");
    }

    #[test]
    fn what_counts_nothing_uses_no_lane() {
        let (head, lanes) = (words(HEAD_WORDS), words(lanes_words(64)));
        Tally::new(&head, &lanes).count(3, 0, 0);
        let all = head.iter().chain(&lanes);
        assert!(all.into_iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn threads_that_share_lanes_lose_nothing() {
        let (head, lanes) = (words(HEAD_WORDS), words(lanes_words(64)));
        let tally = Tally::new(&head, &lanes);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || (0..COUNTS).for_each(|_| tally.count(thread / 2, 1, 3)));
            }
        });
        assert_eq!((tally.sum().inserts, tally.sum().novelty), (4 * COUNTS, 12 * COUNTS));
    }
}
