//! A stripe's entry in the live image: its lock word, and what is counted under it.
//!
//! The sums exist twice, each copy under its own LSN. An update writes the copy that does not count, its LSN last: so
//! whatever moment the holder dies at, one copy is whole, and the greater LSN tells which. Who takes the stripe over
//! learns from it which record was the last to be counted.

use crate::cells::{load, store};
use crate::sync::{AtomicU64, Ordering, fence};

/// Words of a stripe's entry: two cache lines, one for each copy of the sums.
pub const STRIPE_WORDS: usize = 16;

/// Where the copies begin; the lock word lies before the first.
const COPIES: [usize; 2] = [1, 8];
const SUM_WORDS: usize = 5;

const _: () = assert!(COPIES[0] + SUM_WORDS <= 8 && COPIES[1] + SUM_WORDS <= STRIPE_WORDS);

/// A stripe's entry.
#[derive(Debug, Clone, Copy)]
pub struct Stripe<'a>(&'a [AtomicU64]);

/// The sums of a stripe, as snapshots keep them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StripeSums {
    /// The LSN last counted.
    pub lsn: u64,
    /// Insert operations applied.
    pub inserts: u64,
    /// All operations applied.
    pub operations: u64,
    /// The latest time, doubled, plus one if it came with its key.
    pub time: u64,
    /// The sum of what was new.
    pub novelty: u64,
}

impl<'a> Stripe<'a> {
    /// The entry in these words.
    ///
    /// # Panics
    /// If there are not [`STRIPE_WORDS`] of them.
    #[must_use]
    #[inline]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert!(words.len() == STRIPE_WORDS, "an entry has {STRIPE_WORDS} words");
        Self(words)
    }

    /// The lock word.
    #[must_use]
    #[inline]
    pub fn lock_word(&self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// The copy that counts, and the other one.
    #[inline]
    fn copies(&self) -> (&'a [AtomicU64], &'a [AtomicU64]) {
        let [first, second] = COPIES.map(|at| &self.0[at..at + SUM_WORDS]);
        // Acquire: pairs with the Release in `update`, for those who read without the lock.
        let [one, two] = [first, second].map(|copy| copy[0].load(Ordering::Acquire));
        if two > one { (second, first) } else { (first, second) }
    }

    /// What has been counted. Consistent for the stripe's holder only.
    #[must_use]
    #[inline]
    pub fn sums(&self) -> StripeSums {
        Self::read(self.copies().0)
    }

    #[inline]
    fn read(copy: &[AtomicU64]) -> StripeSums {
        let [lsn, inserts, operations, time, novelty] =
            [0, 1, 2, 3, 4].map(|at: usize| load(&copy[at]));
        StripeSums { lsn, inserts, operations, time, novelty }
    }

    /// Sets what has been counted, for whoever is alone with the image.
    pub fn set_sums(&self, sums: &StripeSums) {
        store(&self.0[COPIES[1]], 0);
        let words = [sums.lsn, sums.inserts, sums.operations, sums.time, sums.novelty];
        for (word, value) in self.0[COPIES[0]..].iter().zip(words) {
            store(word, value);
        }
    }

    /// Changes the sums, up to this LSN, which is greater than the last; for the stripe's holder.
    #[inline]
    fn update(&self, lsn: u64, change: impl FnOnce(&mut StripeSums)) {
        let (newest, other) = self.copies();
        let mut sums = Self::read(newest);
        change(&mut sums);
        store(&other[0], 0);
        // Release fence: nothing below may come before the store above. Then whoever takes the stripe over from a
        // dead holder (its death is the Acquire) finds no half copy under an old LSN.
        fence(Ordering::Release);
        store(&other[1], sums.inserts);
        store(&other[2], sums.operations);
        store(&other[3], sums.time);
        store(&other[4], sums.novelty);
        // Release: the copy is whole before it counts.
        other[0].store(lsn, Ordering::Release);
    }

    /// Counts an insert, for the stripe's holder.
    #[inline]
    pub fn count_insert(&self, lsn: u64, time: u64, novelty: u64) {
        self.update(lsn, |sums| {
            sums.inserts = sums.inserts.wrapping_add(1);
            sums.operations = sums.operations.wrapping_add(1);
            sums.time = sums.time.max(time);
            sums.novelty = sums.novelty.wrapping_add(novelty);
        });
    }

    /// Notes an event or a heartbeat, for the stripe's holder.
    pub fn note(&self, lsn: u64, time: u64) {
        self.update(lsn, |sums| sums.time = sums.time.max(time));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sums_add_up_and_the_copy_that_is_cut_off_does_not_count() {
        let words: Vec<AtomicU64> = (0..STRIPE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let stripe = Stripe::new(&words);
        for lsn in 1..100 {
            stripe.count_insert(lsn, 1000 - lsn, 3);
            let sums =
                StripeSums { lsn, inserts: lsn, operations: lsn, time: 999, novelty: 3 * lsn };
            assert_eq!(stripe.sums(), sums);
            // What a holder leaves that dies in the middle of the next update.
            let other = if lsn % 2 == 1 { COPIES[0] } else { COPIES[1] };
            store(&words[other], 0);
            store(&words[other + 1], 77);
            assert_eq!(stripe.sums(), sums);
        }
        let loaded = StripeSums { lsn: 7, inserts: 5, operations: 6, time: 4, novelty: 3 };
        stripe.set_sums(&loaded);
        assert_eq!(stripe.sums(), loaded);
    }
}
