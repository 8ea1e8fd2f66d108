//! The protocol of a record's place: reserve, publish or void, see that it is done.
//!
//! A place is reserved once, by raising the tail. Its last word goes from zero to its final value once, by one
//! compare-and-swap of the writer or of anyone who lost patience. Everything here is a pure protocol over shared
//! words; `tests/loom/slot.rs` runs it through all interleavings.

use crate::sync::{AtomicU64, Ordering};

/// Reserves the next LSN if it lies below `limit`.
#[inline]
pub fn reserve(tail: &AtomicU64, limit: u64) -> Option<u64> {
    let mut lsn = tail.load(Ordering::Relaxed);
    loop {
        if lsn >= limit {
            return None;
        }
        // Release: pairs with the Acquire of a walker that reads the tail, so that what the walker then does (say, raising
        // the durable end) comes after the reservation.
        match tail.compare_exchange_weak(lsn, lsn + 1, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Some(lsn),
            Err(seen) => lsn = seen,
        }
    }
}

/// Writes a record into its reserved place. False if someone made a VOID of it meanwhile: nothing has
/// happened then, and the writer reserves again.
#[inline]
pub fn publish(slot: &[AtomicU64], words: [u64; 4]) -> bool {
    for at in 0..3 {
        slot[at].store(words[at], Ordering::Relaxed);
    }
    // Release: pairs with the Acquire of `last_word`. Relaxed on failure: the loser uses nothing of what it found.
    slot[3].compare_exchange(0, words[3], Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Turns a place that is still empty into a VOID by this word. If something was published meanwhile, that stays.
pub fn void(slot: &[AtomicU64], word: u64) {
    // Release: as in `publish`. Relaxed on failure: whoever wants the record reads it again.
    let _ = slot[3].compare_exchange(0, word, Ordering::Release, Ordering::Relaxed);
}

/// The last word of a place: zero until something is published. The words before it may be read after this.
#[must_use]
#[inline]
pub fn last_word(slot: &[AtomicU64]) -> u64 {
    // Acquire: pairs with the Release of `publish` and `void`.
    slot[3].load(Ordering::Acquire)
}
