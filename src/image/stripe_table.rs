//! A stripe's entry in the image: its lock word, and the sums counted under it.
//!
//! The sums exist in two copies, each with its own LSN. An update writes the older copy, its LSN
//! last. Whenever the holder dies, one copy is therefore whole, and the greater LSN identifies it.
//! The process that takes the stripe over reads from it which record was counted last.

use crate::primitives::{AtomicU64, Ordering, fence};
use ebbtide_core::block::{load, store};
use ebbtide_core::kind::Totals;

/// Words of a stripe's entry: one cache line.
pub const STRIPE_WORDS: usize = 8;

const TIME: usize = 1;
/// The offsets of the copies of LSN, inserts and new bits.
const COPIES: [usize; 2] = [2, 5];

const _: () = assert!(COPIES[1] + 3 == STRIPE_WORDS);

/// A stripe's entry.
#[derive(Debug, Clone, Copy)]
pub struct Stripe<'a>(&'a [AtomicU64; STRIPE_WORDS]);

/// The sums of a stripe, as stored in snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StripeSums {
    /// The LSN last counted.
    pub lsn: u64,
    /// Insert operations applied.
    pub inserts: u64,
    /// The latest time, doubled, plus one if it came with its key.
    pub time: u64,
    /// The sum of new bits.
    pub new_bits: u64,
}

impl<'a> Stripe<'a> {
    /// Creates the entry in these words.
    ///
    /// # Panics
    /// If there are fewer than [`STRIPE_WORDS`] of them.
    #[must_use]
    #[inline]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self(words.first_chunk().expect("all words of an entry"))
    }

    /// Returns the lock word.
    #[must_use]
    #[inline]
    pub fn lock_word(&self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// Returns whether the lock word has an owner, or is damaged: neither free nor offered to a
    /// thread that waits. For a caller that knows that nobody changes it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        const OFFERED: u64 = 1;
        load(self.lock_word()) > OFFERED
    }

    /// Returns the LSNs of both copies.
    #[inline]
    fn lsns(&self) -> [u64; 2] {
        // Acquire: pairs with the Release of the writer that flips the copies, for readers without
        // the lock.
        let [first, second] = COPIES;
        [self.0[first].load(Ordering::Acquire), self.0[second].load(Ordering::Acquire)]
    }

    /// Returns the offsets of the active copy and of the other one.
    #[inline]
    fn copies(&self) -> (usize, usize) {
        let ([first, second], [one, two]) = (COPIES, self.lsns());
        if two > one { (second, first) } else { (first, second) }
    }

    /// Returns the sums. Consistent for the stripe's holder only.
    #[must_use]
    #[inline]
    pub fn sums(&self) -> StripeSums {
        let (at, _) = self.copies();
        let [lsn, inserts, new_bits] = [at, at + 1, at + 2].map(|at| load(&self.0[at]));
        StripeSums { lsn, inserts, time: load(&self.0[TIME]), new_bits }
    }

    /// Returns the LSN last counted.
    #[must_use]
    #[inline]
    pub fn lsn(&self) -> u64 {
        let [one, two] = self.lsns();
        one.max(two)
    }

    /// Returns the latest time that was counted or noted, doubled, plus one if it came with its
    /// key.
    #[must_use]
    #[inline]
    pub fn time(&self) -> u64 {
        // Acquire: pairs with the Release in `count`. A thread that sees an event's time sees the
        // event.
        self.0[TIME].load(Ordering::Acquire)
    }

    /// Sets the sums, for a caller with exclusive access to the image.
    pub fn set_sums(&self, sums: &StripeSums) {
        let [first, second] = COPIES;
        store(&self.0[second], 0);
        let words = [(first, sums.lsn), (first + 1, sums.inserts), (first + 2, sums.new_bits)];
        for (at, value) in words.into_iter().chain([(TIME, sums.time)]) {
            store(&self.0[at], value);
        }
    }

    /// Counts inserts and new bits up to this LSN, which is greater than the last; for the stripe's
    /// holder.
    #[inline(always)] // out of line, an insert executes 20 more instructions
    pub fn count(&self, lsn: u64, time: u64, counts: Totals) {
        let Totals { inserts, new_bits } = counts;
        let (newest, other) = self.copies();
        store(&self.0[other], 0);
        // Release fence: nothing below may be reordered before the store above. A process that
        // takes the stripe over from a dead holder (its death is the Acquire) then finds no half
        // copy under an old LSN.
        fence(Ordering::Release);
        store(&self.0[other + 1], load(&self.0[newest + 1]).wrapping_add(inserts));
        store(&self.0[other + 2], load(&self.0[newest + 2]).wrapping_add(new_bits));
        // In one copy, because a maximum is idempotent. Release: pairs with the Acquire in `time`.
        self.0[TIME].store(load(&self.0[TIME]).max(time), Ordering::Release);
        // Release: the copy is whole before it is valid.
        self.0[other].store(lsn, Ordering::Release);
    }

    /// Returns whether the record of this LSN, or a later one, was counted. A caller without the
    /// lock may miss one that is counted meanwhile.
    #[must_use]
    pub fn has_counted(&self, lsn: u64) -> bool {
        // If so, what the holder did before it counted the record is visible.
        self.lsn() >= lsn
    }

    /// Subtracts all counts, up to the LSN of the record that cleared the filter; for the stripe's
    /// holder.
    pub fn clear(&self, lsn: u64, time: u64) {
        let StripeSums { inserts, new_bits, .. } = self.sums();
        let (less, fewer) = (inserts.wrapping_neg(), new_bits.wrapping_neg());
        self.count(lsn, time, Totals { inserts: less, new_bits: fewer });
    }

    /// Notes an event or another record of stripe 0, unless it was noted; for the stripe's holder.
    pub fn note(&self, lsn: u64, time: u64) {
        if !self.has_counted(lsn) {
            self.count(lsn, time, Totals::default());
        }
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
            stripe.count(lsn, 1000 - lsn, Totals { inserts: 1, new_bits: 3 });
            let sums = StripeSums { lsn, inserts: lsn, time: 999, new_bits: 3 * lsn };
            assert_eq!(stripe.sums(), sums);
            // The state left by a holder that dies in the middle of the next update.
            let other = if lsn % 2 == 1 { COPIES[0] } else { COPIES[1] };
            store(&words[other], 0);
            store(&words[other + 1], 77);
            assert_eq!(stripe.sums(), sums);
        }
        let loaded = StripeSums { lsn: 7, inserts: 5, time: 4, new_bits: 3 };
        stripe.set_sums(&loaded);
        assert_eq!(stripe.sums(), loaded);
    }

    #[test]
    fn a_note_moves_the_lsn_and_never_the_time_back_and_counts_nothing() {
        let words: Vec<AtomicU64> = (0..STRIPE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let stripe = Stripe::new(&words);
        stripe.count(5, 50, Totals { inserts: 2, new_bits: 3 });
        for (lsn, time, latest) in [(6, 70, 70), (7, 60, 70), (8, 90, 90)] {
            stripe.note(lsn, time);
            let sums = StripeSums { lsn, inserts: 2, time: latest, new_bits: 3 };
            assert_eq!((stripe.sums(), stripe.lsn(), stripe.time()), (sums, lsn, latest));
        }
        assert_eq!(load(stripe.lock_word()), 0);
        assert!(std::ptr::eq(stripe.lock_word(), &words[0]), "the lock has a word of its own");
    }
}
