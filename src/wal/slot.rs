//! The protocol of a slot of the log: reserve, publish or void, check completion.
//!
//! A slot is reserved once, by raising the tail. Its last word changes from zero to its final value
//! once, by one compare-and-swap of the writer, or of a thread that voids it. Everything
//! here is a pure protocol over shared words; `tests/loom/slot.rs` runs it through all
//! interleavings.

use crate::primitives::{AtomicU64, Ordering};

/// The tail of the log: the next LSN to reserve.
#[derive(Debug, Clone, Copy)]
pub struct Tail<'a>(&'a AtomicU64);

impl<'a> Tail<'a> {
    /// Returns the tail in this word.
    #[must_use]
    #[inline]
    pub fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Reserves this many LSNs in a row, if all of them lie below `limit`. Returns the first.
    #[inline]
    pub fn reserve(self, count: u64, limit: u64) -> Option<u64> {
        let mut lsn = self.0.load(Ordering::Relaxed);
        loop {
            let next = lsn.checked_add(count).filter(|&next| next <= limit)?;
            // Release: pairs with the Acquire of `read` by a walker, so that the walker's later
            // actions (such as raising the durable end) come after the reservation.
            match self.0.compare_exchange_weak(lsn, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(lsn),
                Err(seen) => lsn = seen,
            }
        }
    }

    /// Returns the tail; every LSN below is reserved.
    #[must_use]
    #[inline]
    pub fn read(self) -> u64 {
        // Acquire: pairs with the Release of `reserve`. Actions that follow (such as raising the
        // durable end) come after the reservations.
        self.0.load(Ordering::Acquire)
    }

    /// Returns the tail without ordering: as a hint, or when all writers are dead.
    #[must_use]
    #[inline]
    pub fn hint(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the tail, for a caller with exclusive access to the image.
    pub fn begin_at(self, lsn: u64) {
        self.0.store(lsn, Ordering::Relaxed);
    }
}

/// Writes a record into its reserved slot. Returns false if another thread voided it meanwhile:
/// then nothing has happened, and the writer reserves again.
///
/// Also returns false, and changes nothing, if the slot is complete: if a lost page shows an older
/// tail, a slot can be reserved twice.
#[inline]
pub fn publish(slot: &[AtomicU64], words: [u64; 4]) -> bool {
    // Relaxed: nothing is read of what is there.
    if slot[3].load(Ordering::Relaxed) != 0 {
        return false;
    }
    for at in 0..3 {
        slot[at].store(words[at], Ordering::Relaxed);
    }
    // Release: pairs with the Acquire of `last_word`. Relaxed on failure: the value found is not
    // used.
    slot[3].compare_exchange(0, words[3], Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Turns a slot that is still empty into a VOID with this word. A record published meanwhile stays.
pub fn void(slot: &[AtomicU64], word: u64) {
    // Release: as in `publish`. Relaxed on failure: a reader of the record loads it again.
    let _ = slot[3].compare_exchange(0, word, Ordering::Release, Ordering::Relaxed);
}

/// Returns the last word of a slot: zero until something is published. The words before it may be
/// read after this.
#[must_use]
#[inline]
pub fn last_word(slot: &[AtomicU64]) -> u64 {
    // Acquire: pairs with the Release of `publish` and `void`.
    slot[3].load(Ordering::Acquire)
}

/// Returns the words of a slot, those of its record if one is published.
#[must_use]
pub fn words(slot: &[AtomicU64]) -> [u64; 4] {
    let last = last_word(slot);
    let [a, b, c] = [0, 1, 2].map(|at: usize| slot[at].load(Ordering::Relaxed));
    [a, b, c, last]
}

/// Stores the value that a word has, so that the system counts its page as changed.
pub fn touch(word: &AtomicU64) {
    // A swap with the present value: compilers remove the store of an operation that changes
    // nothing, like `fetch_or(0)`.
    let seen = word.load(Ordering::Relaxed);
    let _ = word.compare_exchange(seen, seen, Ordering::Relaxed, Ordering::Relaxed);
}
