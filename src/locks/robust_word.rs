//! The lock of a stripe: one shared word, held by a slot, taken over if its owner dies.
//!
//! The word is zero if free, else it holds, from the lowest bit: *waiters* (1 bit: somebody may sleep on
//! the word), the owner's slot plus one (15 bits), the owner's term (48 bits). Invariants:
//! - Only an owner makes its word zero, only a waiter sets the waiters bit, only a waiter that found the
//!   owner dead replaces one owner by another. Each is a compare-and-swap, so at any time at most one
//!   living thread believes itself the owner.
//! - Whoever has waited takes the lock with the waiters bit set, as others may still sleep: they were all
//!   announced by that one bit, which the unlock that woke a single one of them took away.
//! - No wake-up is relied upon: each wait is bounded, so one that got lost (its waker or the one woken died)
//!   costs [`PATIENCE`], no more. Thus it is also harmless that the futex compares the low half only.
//!
//! All threads of a handle share its slot and term; among them the word is a plain mutex. What the lock
//! guards, and how it is repaired after a takeover, is not known here.

use crate::locks::futex::{self, Woken};
use crate::sync::{AtomicU64, Ordering, patience, spin_hint};
use std::time::Duration;

/// The bit that says that somebody may be asleep on the word.
pub const WAITERS: u64 = 1;
const SLOT_SHIFT: u32 = 1;
const TERM_SHIFT: u32 = 16;
const SLOT_MASK: u64 = (1 << (TERM_SHIFT - SLOT_SHIFT)) - 1;

/// The longest sleep between two checks whether the owner is alive, and how long a living owner is
/// waited for at least.
const PATIENCE: Duration = patience(Duration::from_millis(10));
/// The sleep before the first check; each further one is as long as all before it. A living owner
/// rarely holds a stripe that long, so most checks find a dead one. Where interleavings are explored
/// there are no further ones.
const FIRST_SLEEP: Duration =
    if cfg!(any(loom, shuttle)) { PATIENCE } else { patience(Duration::from_millis(1)) };

/// Looks at a held word before sleeping: an insert holds its stripe for some hundred nanoseconds, which
/// is less than falling asleep takes. Where interleavings are explored each look doubles them, so there is one.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// Who holds a stripe: a handle's slot, and which of the slot's many holders it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The slot, below [`Owner::SLOTS`].
    pub slot: u16,
    /// How often the slot had been taken, below [`Owner::TERMS`].
    pub term: u64,
}

impl Owner {
    /// Slots that a lock word can name.
    pub const SLOTS: u16 = SLOT_MASK as u16;
    /// Terms that a lock word can name.
    pub const TERMS: u64 = 1 << (64 - TERM_SHIFT);

    /// The word of a lock that this owner holds and nobody waits for.
    #[inline]
    fn word(self) -> u64 {
        debug_assert!(self.slot < Self::SLOTS && self.term < Self::TERMS, "{self:?} fits no word");
        ((u64::from(self.slot) + 1) << SLOT_SHIFT) | (self.term << TERM_SHIFT)
    }

    /// What to do about `self`, seen in a word: by its term if the slot is now ours (its byte, the proof of life, is
    /// then our own and says nothing), else by asking.
    fn judged(self, us: Owner, judge: &dyn Fn(Owner) -> Verdict) -> Verdict {
        match self.slot == us.slot {
            true if self.term < us.term => Verdict::Dead,
            true => Verdict::Wait,
            false => judge(self),
        }
    }
}

/// What a waiter makes of an owner that keeps it waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It lives: wait on.
    Wait,
    /// It is dead: take the lock over.
    Dead,
    /// It lives, but is not worth waiting for any longer.
    GiveUp,
}

/// Who holds the lock whose word this is; `None` if nobody does, or the word is not one.
#[must_use]
pub fn holder(word: u64) -> Option<Owner> {
    let slot = ((word >> SLOT_SHIFT) & SLOT_MASK).checked_sub(1)?;
    Some(Owner { slot: slot as u16, term: word >> TERM_SHIFT })
}

/// How a lock was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "after a takeover the stripe needs repair"]
pub enum Acquired {
    /// It was free: what it guards is whole.
    Free,
    /// This owner died holding it: what it guards may be half done. Ourselves, if the word named nobody: it was damaged.
    TakenOver(Owner),
}

/// The lock was no longer ours when we came to release it: we had been declared dead, and another owner
/// may have worked on the stripe beside us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// Takes the lock if it is free.
#[must_use]
#[inline]
pub fn try_lock(word: &AtomicU64, owner: Owner) -> bool {
    // Acquire: partner is the Release of the unlock that left the zero. Relaxed on failure: nothing is
    // done on the strength of what was seen.
    word.compare_exchange(0, owner.word(), Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Takes the lock, waiting for it if need be, or taking it over from a dead owner. `None` if the judge gave up.
///
/// `judge` is called for owners in other slots than ours after each sleep, first after
/// [`FIRST_SLEEP`]; that it gives up counts after [`PATIENCE`]. It must synchronise with the end of
/// an owner that it calls dead; the release of a byte lock by the kernel does.
#[inline]
pub fn lock(word: &AtomicU64, owner: Owner, judge: &dyn Fn(Owner) -> Verdict) -> Option<Acquired> {
    if try_lock(word, owner) { Some(Acquired::Free) } else { lock_contended(word, owner, judge) }
}

#[cold]
fn lock_contended(
    word: &AtomicU64,
    owner: Owner,
    judge: &dyn Fn(Owner) -> Verdict,
) -> Option<Acquired> {
    for _ in 0..LOOKS {
        spin_hint();
        // Relaxed, here and below: the compare-and-swap that follows decides, and brings the ordering.
        let seen = word.load(Ordering::Relaxed);
        if seen == 0 && try_lock(word, owner) {
            return Some(Acquired::Free);
        }
        if seen & WAITERS != 0 {
            break; // others sleep already, so it takes longer than usual
        }
    }
    let ours = owner.word() | WAITERS;
    // Who holds the lock, and how long it has been waited for.
    let (mut silent, mut slept) = (None, Duration::ZERO);
    loop {
        let seen = word.load(Ordering::Relaxed);
        if seen == 0 {
            // Acquire: partner is the Release of the unlock that left the zero.
            if word.compare_exchange(0, ours, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Acquired::Free);
            }
            continue;
        }
        let waited_for = seen | WAITERS;
        // Relaxed: a mark for whoever unlocks, carrying no data. As a read-modify-write it does not break
        // the chain from an earlier unlock's Release to a takeover's Acquire.
        if seen != waited_for
            && word
                .compare_exchange(seen, waited_for, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            continue;
        }
        // The low half is what the kernel compares.
        if holder(waited_for) != silent {
            (silent, slept) = (holder(waited_for), Duration::ZERO);
        }
        let sleep = next_sleep(slept);
        if futex::wait(word, waited_for as u32, sleep) == Woken::Perhaps {
            continue;
        }
        slept += sleep;
        // A word that names nobody was written by nobody, and nobody will give it back.
        match silent.map_or(Verdict::Dead, |silent| silent.judged(owner, judge)) {
            Verdict::GiveUp if slept >= PATIENCE => return None,
            Verdict::Wait | Verdict::GiveUp => continue,
            Verdict::Dead => {}
        }
        // Acquire: partner is the unlock before the dead owner's lock. With the dead owner's own stores
        // `judge` has synchronised; it left no Release behind.
        if word.compare_exchange(waited_for, ours, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(Acquired::TakenOver(silent.unwrap_or(owner)));
        }
    }
}

/// How long to sleep after sleeps of this length in all: doubles them up to [`PATIENCE`], then as
/// long each time.
fn next_sleep(slept: Duration) -> Duration {
    let rest = PATIENCE.saturating_sub(slept);
    if rest.is_zero() { PATIENCE } else { slept.max(FIRST_SLEEP).min(rest) }
}

/// Releases the lock and wakes one who waits for it.
///
/// # Errors
/// [`Lost`] if the word names another owner, or none. It is then left as it is.
#[inline]
pub fn unlock(word: &AtomicU64, owner: Owner) -> Result<(), Lost> {
    // Release: partner is the Acquire of whoever locks next. Relaxed on failure: the word's value is all
    // that is used.
    match word.compare_exchange(owner.word(), 0, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(found) => unlock_contended(word, owner, found),
    }
}

#[cold]
fn unlock_contended(word: &AtomicU64, owner: Owner, found: u64) -> Result<(), Lost> {
    let ours = owner.word() | WAITERS;
    // The waiters bit stays until we unlock, so this fails only if the lock is lost. Release: as above.
    if found != ours
        || word.compare_exchange(ours, 0, Ordering::Release, Ordering::Relaxed).is_err()
    {
        return Err(Lost);
    }
    futex::wake_one(word);
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    const A: Owner = Owner { slot: 0, term: 3 };
    const B: Owner = Owner { slot: 7, term: Owner::TERMS - 1 };

    fn all_live(_: Owner) -> Verdict {
        Verdict::Wait
    }

    fn all_are_dead(_: Owner) -> Verdict {
        Verdict::Dead
    }

    #[test]
    fn a_word_names_its_owner() {
        let last = Owner { slot: Owner::SLOTS - 1, term: 0 };
        for owner in [A, B, last] {
            assert_eq!(holder(owner.word()), Some(owner));
            assert_eq!(holder(owner.word() | WAITERS), Some(owner));
        }
        assert_eq!(holder(0), None);
        assert_eq!(holder(WAITERS), None);
        assert_eq!(holder(5 << TERM_SHIFT), None);
    }

    #[test]
    fn a_free_lock_is_taken_once_and_released_by_its_owner_only() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        assert!(!try_lock(&word, A));
        assert!(!try_lock(&word, B));
        assert_eq!(unlock(&word, B), Err(Lost));
        assert_eq!(unlock(&word, Owner { term: 4, ..A }), Err(Lost));
        assert_eq!(unlock(&word, A), Ok(()));
        assert_eq!(unlock(&word, A), Err(Lost));
        assert_eq!(lock(&word, B, &all_live), Some(Acquired::Free));
    }

    #[test]
    fn a_dead_owners_lock_is_taken_over_and_lost_to_it() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        assert_eq!(lock(&word, B, &all_are_dead), Some(Acquired::TakenOver(A)));
        assert_eq!(unlock(&word, A), Err(Lost));
        assert_eq!(unlock(&word, B), Ok(()));
        assert!(try_lock(&word, A));
    }

    #[test]
    fn a_living_owner_is_asked_about_and_waited_for() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        let asked = Cell::new(0);
        let third_time = |owner: Owner| {
            assert_eq!(owner, A);
            asked.set(asked.get() + 1);
            if asked.get() == 3 {
                unlock(&word, A).expect("its own");
            }
            Verdict::Wait
        };
        assert_eq!(lock(&word, B, &third_time), Some(Acquired::Free));
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn a_lock_left_by_an_earlier_holder_of_our_slot_is_taken_over_unasked() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        let later = Owner { term: A.term + 1, ..A };
        let asking = |_: Owner| -> Verdict { panic!("our own byte says nothing") };
        assert_eq!(lock(&word, later, &asking), Some(Acquired::TakenOver(A)));
    }

    #[test]
    fn a_word_that_names_nobody_is_taken_over_unasked() {
        let asking = |_: Owner| -> Verdict { panic!("there is nobody to ask about") };
        for nobodys in [WAITERS, 7 << TERM_SHIFT, u64::MAX << TERM_SHIFT | WAITERS] {
            let word = AtomicU64::new(nobodys);
            assert_eq!(lock(&word, B, &asking), Some(Acquired::TakenOver(B)));
            assert_eq!(unlock(&word, B), Ok(()));
        }
    }

    #[test]
    fn who_gives_up_takes_nothing() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        assert_eq!(lock(&word, B, &|_| Verdict::GiveUp), None);
        assert_eq!(unlock(&word, A), Ok(()));
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_dead_repairer_is_an_owner_like_any_other() {
        let word = AtomicU64::new(0);
        let third = Owner { slot: 2, term: 1 };
        assert!(try_lock(&word, A));
        assert_eq!(lock(&word, B, &all_are_dead), Some(Acquired::TakenOver(A)));
        assert_eq!(lock(&word, third, &all_are_dead), Some(Acquired::TakenOver(B)));
        assert_eq!(unlock(&word, third), Ok(()));
    }

    #[test]
    fn threads_of_one_and_of_several_owners_exclude_each_other() {
        // Fewer where Miri follows each.
        const TIMES: u64 = if cfg!(miri) { 50 } else { 20_000 };
        // Loads and stores of a counter that lose increments without a lock.
        let (word, counter) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for owner in [A, A, B, B] {
                let (word, counter) = (&word, &counter);
                scope.spawn(move || {
                    for _ in 0..TIMES {
                        assert_eq!(lock(word, owner, &all_live), Some(Acquired::Free));
                        // Relaxed: ordered by the lock, which is what is tested.
                        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        unlock(word, owner).expect("its own");
                    }
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), 4 * TIMES);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }
}
