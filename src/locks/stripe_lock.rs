//! The lock of a stripe: one shared word, held by a session slot, taken over if its owner dies,
//! and handed on to a thread that waits.
//!
//! The word is zero if free. Otherwise it contains, from the lowest bit: *waiters* (1 bit: a thread
//! may wait for the word), the owner's slot plus one (15 bits), the owner's incarnation (48 bits).
//! The waiters bit alone means *offered*: the lock is free, but only a thread that has waited may
//! take it. Invariants:
//! - The owner frees or offers the word, and may withdraw its offer. A waiter sets the waiters bit.
//!   A waiter replaces an owner that it found dead; that new owner may give the word back to the
//!   dead one. Each change is a compare-and-swap, so at most one live thread is the owner.
//! - An owner that finds the waiters bit offers the lock and wakes one sleeper. A new caller that
//!   finds an offered lock waits once: [`LOOKS`] reads, then a sleep of [`TURN`]. After that it
//!   competes like any waiter. So an owner that returns at once cannot starve others, and a waiter
//!   that was woken and then died or was stopped delays each caller once.
//! - A thread that takes an offered lock keeps the waiters bit, because others may still sleep. The
//!   bit goes when an owner offers the lock and finds no sleeper.
//! - No wakeup is required: each sleep is bounded, so a lost wakeup costs at most [`PATIENCE`]. The
//!   futex compares only the low half of the word, which is harmless for the same reason.
//!
//! All threads of a handle share its slot and incarnation; among them the word is a plain mutex.
//! What the lock guards, and the repair after a takeover, are handled elsewhere.

use crate::locks::futex::{self, Woken};
use crate::primitives::{self, AtomicU64, Ordering, patience, spin_hint};
use std::time::Duration;

/// Set if a thread may wait for the word.
pub const WAITERS: u64 = 1;
/// The word of a lock that is free for a thread that has waited for it.
pub const OFFERED: u64 = WAITERS;
const SLOT_SHIFT: u32 = 1;
const INCARNATION_SHIFT: u32 = 16;
const SLOT_MASK: u64 = (1 << (INCARNATION_SHIFT - SLOT_SHIFT)) - 1;
/// A word that is not free, and has no owner.
const NOBODY: u64 = 1 << INCARNATION_SHIFT;

/// The longest sleep between two liveness checks. A live owner is waited for at least as long.
const PATIENCE: Duration = patience(Duration::from_millis(10));
/// The sleep of a caller that gives way to a thread to which the lock was offered. Timers add some
/// 50 µs; that thread needs less to run, unless it is stopped or dead.
const TURN: Duration = patience(Duration::from_micros(1));
/// The first and shortest sleep. Live owners rarely hold a stripe that long, so most checks find a
/// dead one. Models (loom, shuttle) use the full length.
const FIRST_SLEEP: Duration =
    if cfg!(any(loom, shuttle)) { PATIENCE } else { patience(Duration::from_millis(1)) };

/// Reads of a held word before sleeping: an insert holds its stripe for some hundred nanoseconds,
/// which is less than falling asleep takes. Models use one read: each further read doubles the
/// number of interleavings.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// The owner of a stripe: a handle's session slot, and its incarnation among the slot's holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The slot, below [`Owner::SLOTS`].
    pub slot: u16,
    /// The number of times the slot had been taken, below [`Owner::INCARNATIONS`].
    pub incarnation: u64,
}

impl Owner {
    /// The number of slots that a lock word can represent.
    pub const SLOTS: u16 = SLOT_MASK as u16;
    /// The number of incarnations that a lock word can represent.
    pub const INCARNATIONS: u64 = 1 << (64 - INCARNATION_SHIFT);

    /// Returns the word of a lock that this owner holds without waiters.
    #[inline]
    fn word(self) -> u64 {
        debug_assert!(
            self.slot < Self::SLOTS && self.incarnation < Self::INCARNATIONS,
            "{self:?} fits no word"
        );
        ((u64::from(self.slot) + 1) << SLOT_SHIFT) | (self.incarnation << INCARNATION_SHIFT)
    }

    /// Judges the owner `self`, found in a word. If its session slot is now this handle's own, the
    /// byte lock is this handle's too and says nothing about the owner before: the incarnations
    /// are compared. Otherwise calls `judge`.
    fn judged(self, us: Owner, judge: &dyn Fn(Owner) -> Verdict) -> Verdict {
        match self.slot == us.slot {
            true if self.incarnation < us.incarnation => Verdict::Dead,
            // Another thread of this handle, which lives.
            true => match judge(self) {
                Verdict::Dead => Verdict::Wait,
                verdict => verdict,
            },
            false => judge(self),
        }
    }
}

/// The verdict on an owner that a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is alive: continue to wait.
    Wait,
    /// It is dead: take the lock over.
    Dead,
    /// It is alive, but not worth a longer wait.
    Abandon,
}

/// Returns the holder of a lock with this word; `None` if it is free, or the word is invalid.
#[must_use]
pub fn holder(word: u64) -> Option<Owner> {
    let slot = ((word >> SLOT_SHIFT) & SLOT_MASK).checked_sub(1)?;
    Some(Owner { slot: slot as u16, incarnation: word >> INCARNATION_SHIFT })
}

/// Returns the holder of a lock now. A hint: Relaxed, for a caller that draws no conclusion about
/// the guarded data from it.
#[must_use]
pub fn holder_now(word: &AtomicU64) -> Option<Owner> {
    holder(word.load(Ordering::Relaxed))
}

/// Returns the word of a lock now, without the waiters bit. A hint, as [`holder_now`].
#[must_use]
pub fn held_now(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed) & !WAITERS
}

/// Returns the holder of a lock, by a read-modify-write of the word: later lockers see the caller's
/// earlier stores, and the caller sees every lock that its own handle still holds.
#[must_use]
pub fn holder_in_order(word: &AtomicU64) -> Option<Owner> {
    // An empty change, because locks and unlocks are read-modify-writes too. AcqRel: pairs with the
    // Acquire of a later lock.
    holder(word.fetch_or(0, Ordering::AcqRel))
}

/// How a lock was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "after a takeover the stripe needs repair"]
pub enum Acquired {
    /// It was free: the guarded data is whole.
    Free,
    /// This owner died while holding it: the guarded data may be half changed. If the word was
    /// damaged and named no owner, this is the caller.
    TakenOver(Owner),
}

/// How a lock was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Nobody waited.
    Free,
    /// A thread has waited for it, and it was offered.
    Offered,
}

/// The lock was no longer held when it was to be released: its owner had been declared dead, and
/// another owner may have worked on the stripe at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// Takes the lock if it is free.
#[must_use]
#[inline]
pub fn try_lock(word: &AtomicU64, owner: Owner) -> bool {
    // Acquire: partner is the Release of the unlock that left the zero. Relaxed on failure: the
    // value seen is not used.
    word.compare_exchange(0, owner.word(), Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Takes the lock, after waiting for it if necessary, or takes it over from a dead owner. `None` if
/// the judge returned `Abandon`.
///
/// `judge` is called for owners in other slots after each sleep, first after [`FIRST_SLEEP`];
/// `Abandon` is effective after [`PATIENCE`]. It must synchronise with the end of an owner that it
/// declares dead; the release of a byte lock by the kernel does.
#[inline]
pub fn lock(word: &AtomicU64, owner: Owner, judge: &dyn Fn(Owner) -> Verdict) -> Option<Acquired> {
    if try_lock(word, owner) { Some(Acquired::Free) } else { lock_contended(word, owner, judge) }
}

/// Takes the lock if it becomes free within the time that an insert usually holds it; never sleeps.
/// Returns whether it was taken. Takes an offered lock too, after the same number of reads.
#[must_use]
#[cold]
pub fn try_lock_briefly(word: &AtomicU64, owner: Owner) -> bool {
    look_until(word, |seen| seen == 0) == 0 && try_lock(word, owner) || accept(word, owner)
}

/// Takes the lock if it is offered.
fn accept(word: &AtomicU64, owner: Owner) -> bool {
    let ours = owner.word() | WAITERS;
    // Acquire: partner is the Release of the unlock that offered it.
    word.compare_exchange(OFFERED, ours, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Reads the word until it is as wanted, for the time that an insert usually holds the lock.
/// Returns what was read last.
fn look_until(word: &AtomicU64, wanted: impl Fn(u64) -> bool) -> u64 {
    let mut seen = 0;
    for _ in 0..LOOKS {
        spin_hint();
        // Relaxed: a compare-and-swap that follows decides, and provides the ordering.
        seen = word.load(Ordering::Relaxed);
        if wanted(seen) {
            break;
        }
    }
    seen
}

/// Lets a waiting thread take the offered lock first, for one [`TURN`] at most.
#[cold]
fn give_way(word: &AtomicU64) {
    if look_until(word, |seen| seen != OFFERED) == OFFERED {
        // Plain sleep: nobody needs to wake this thread.
        primitives::sleep(TURN);
    }
}

#[cold]
fn lock_contended(
    word: &AtomicU64,
    owner: Owner,
    judge: &dyn Fn(Owner) -> Verdict,
) -> Option<Acquired> {
    // Relaxed: as in `look_until`.
    if word.load(Ordering::Relaxed) == OFFERED {
        give_way(word);
    }
    // The waiters bit is not set yet: it would make the unlock slower.
    if look_until(word, |seen| matches!(seen, 0 | OFFERED)) == 0 && try_lock(word, owner) {
        return Some(Acquired::Free);
    }
    let ours = owner.word() | WAITERS;
    // The holder of the lock, and how long it has been waited for.
    let (mut silent, mut slept) = (None, Duration::ZERO);
    loop {
        // Relaxed: as in `look_until`.
        let seen = word.load(Ordering::Relaxed);
        if seen == 0 && try_lock(word, owner) || seen == OFFERED && accept(word, owner) {
            return Some(Acquired::Free);
        }
        if matches!(seen, 0 | OFFERED) {
            // Another thread was faster, or what was read is not the newest value.
            spin_hint();
            continue;
        }
        let waited_for = seen | WAITERS;
        // Relaxed: a mark for the thread that unlocks, without data. A read-modify-write keeps the
        // release sequence of the last unlock intact.
        if seen != waited_for
            && word
                .compare_exchange(seen, waited_for, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            spin_hint();
            continue;
        }
        if holder(waited_for) != silent {
            (silent, slept) = (holder(waited_for), Duration::ZERO);
        }
        // Awake, this thread accepts an offer sooner than if it had to be woken.
        if look_until(word, |seen| seen != waited_for) != waited_for {
            continue;
        }
        let sleep = next_sleep(slept);
        // The kernel compares the low half.
        if futex::wait(word, waited_for as u32, sleep) == Woken::Perhaps {
            continue;
        }
        slept += sleep;
        // A word without an owner was not written by a lock operation, and is never released.
        match silent.map_or(Verdict::Dead, |silent| silent.judged(owner, judge)) {
            Verdict::Abandon if slept >= PATIENCE => return None,
            Verdict::Wait | Verdict::Abandon => continue,
            Verdict::Dead => {}
        }
        // Acquire: pairs with the last unlock. The dead owner's stores are visible through `judge`.
        if word.compare_exchange(waited_for, ours, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(Acquired::TakenOver(silent.unwrap_or(owner)));
        }
    }
}

/// Returns the next sleep: a quarter of the total sleep so far, at least [`FIRST_SLEEP`] and at
/// most [`PATIENCE`]. So the delay of noticing a death is at most a quarter of the time waited, or
/// the first sleep.
fn next_sleep(slept: Duration) -> Duration {
    (slept / 4).clamp(FIRST_SLEEP, PATIENCE)
}

/// Releases the lock: frees it, or offers it to the threads that wait and wakes one of them.
///
/// # Errors
/// [`Lost`] if the word contains another owner, or none. It is then left unchanged.
#[inline]
pub fn unlock(word: &AtomicU64, owner: Owner) -> Result<Released, Lost> {
    // Release: partner is the Acquire of the next lock. Relaxed on failure: only the word's value
    // is used.
    match word.compare_exchange(owner.word(), 0, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => Ok(Released::Free),
        Err(found) => unlock_contended(word, owner, found),
    }
}

/// Returns a lock that was taken over to its dead owner, because nothing was repaired. The next
/// caller takes it over again and repairs. If `dead` is the owner itself (the word was damaged),
/// the word names nobody again.
///
/// # Errors
/// [`Lost`], as [`unlock`].
pub fn give_back(word: &AtomicU64, owner: Owner, dead: Owner) -> Result<(), Lost> {
    let before = if dead == owner { NOBODY } else { dead.word() };
    // Release: partner is the Acquire of the next takeover, which sees what this owner did, if
    // anything. Whoever waits checks again within [`PATIENCE`].
    let give = |found, waiters| {
        word.compare_exchange(found, before | waiters, Ordering::Release, Ordering::Relaxed)
    };
    let ours = owner.word();
    give(ours, 0).or_else(|_| give(ours | WAITERS, WAITERS)).map(drop).map_err(|_| Lost)
}

#[cold]
fn unlock_contended(word: &AtomicU64, owner: Owner, found: u64) -> Result<Released, Lost> {
    let ours = owner.word() | WAITERS;
    // The waiters bit stays until the unlock, so this fails only if the lock is lost. Release: as
    // above.
    if found != ours
        || word.compare_exchange(ours, OFFERED, Ordering::Release, Ordering::Relaxed).is_err()
    {
        return Err(Lost);
    }
    if !futex::wake_one(word) {
        // No thread sleeps, so the offer is withdrawn. If this fails, an awake thread took the
        // lock. Relaxed: a read-modify-write keeps the release sequence of the offer intact.
        let _ = word.compare_exchange(OFFERED, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    Ok(Released::Offered)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    const A: Owner = Owner { slot: 0, incarnation: 3 };
    const B: Owner = Owner { slot: 7, incarnation: Owner::INCARNATIONS - 1 };

    fn all_live(_: Owner) -> Verdict {
        Verdict::Wait
    }

    #[test]
    fn a_death_is_noticed_late_by_a_quarter_of_its_time_and_by_patience_at_most() {
        let (mut slept, mut checks) = (Duration::ZERO, 0);
        while slept < Duration::from_secs(1) {
            let late = next_sleep(slept);
            assert!((FIRST_SLEEP..=PATIENCE).contains(&late), "after {slept:?}: {late:?}");
            assert!(late <= FIRST_SLEEP.max(slept / 4), "after {slept:?}: {late:?}");
            (slept, checks) = (slept + late, checks + 1);
        }
        assert!(checks <= 120, "{checks} checks in a second");
    }

    fn all_are_dead(_: Owner) -> Verdict {
        Verdict::Dead
    }

    #[test]
    fn a_word_names_its_owner() {
        let last = Owner { slot: Owner::SLOTS - 1, incarnation: 0 };
        for owner in [A, B, last] {
            assert_eq!(holder(owner.word()), Some(owner));
            assert_eq!(holder(owner.word() | WAITERS), Some(owner));
        }
        assert_eq!(holder(0), None);
        assert_eq!(holder(WAITERS), None);
        assert_eq!(holder(5 << INCARNATION_SHIFT), None);
    }

    #[test]
    fn a_free_lock_is_taken_once_and_released_by_its_owner_only() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        assert!(!try_lock(&word, A));
        assert!(!try_lock(&word, B));
        assert_eq!(unlock(&word, B), Err(Lost));
        assert_eq!(unlock(&word, Owner { incarnation: 4, ..A }), Err(Lost));
        assert_eq!(unlock(&word, A), Ok(Released::Free));
        assert_eq!(unlock(&word, A), Err(Lost));
        assert_eq!(lock(&word, B, &all_live), Some(Acquired::Free));
    }

    #[test]
    fn a_dead_owners_lock_is_taken_over_and_lost_to_it() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        assert_eq!(lock(&word, B, &all_are_dead), Some(Acquired::TakenOver(A)));
        assert_eq!(unlock(&word, A), Err(Lost));
        assert_eq!(unlock(&word, B), Ok(Released::Offered));
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
        let later = Owner { incarnation: A.incarnation + 1, ..A };
        let asking = |_: Owner| -> Verdict { panic!("our own byte says nothing") };
        assert_eq!(lock(&word, later, &asking), Some(Acquired::TakenOver(A)));
    }

    #[test]
    fn a_word_that_names_nobody_is_taken_over_unasked() {
        let asking = |_: Owner| -> Verdict { panic!("there is nobody to ask about") };
        for nobodys in [7 << INCARNATION_SHIFT, u64::MAX << INCARNATION_SHIFT | WAITERS] {
            let word = AtomicU64::new(nobodys);
            assert_eq!(lock(&word, B, &asking), Some(Acquired::TakenOver(B)));
            assert_eq!(unlock(&word, B), Ok(Released::Offered));
        }
    }

    /// Leaves the lock as A offered it to a thread that was asleep, and that does not accept.
    #[cfg(not(miri))]
    fn offered() -> AtomicU64 {
        let word = AtomicU64::new(0);
        let held = A.word() | WAITERS;
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let _ = futex::wait(&word, held as u32, Duration::from_millis(1));
                }
            });
            loop {
                word.store(held, Ordering::Relaxed);
                std::thread::yield_now();
                assert_eq!(unlock(&word, A), Ok(Released::Offered));
                // Zero if the thread was not asleep at that moment.
                match word.load(Ordering::Relaxed) {
                    0 => {}
                    left => {
                        assert_eq!(left, OFFERED);
                        break is_done.store(true, Ordering::Relaxed);
                    }
                }
            }
        });
        word
    }

    #[test]
    #[cfg(not(miri))]
    #[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "waiters poll")]
    fn a_lock_is_offered_to_a_sleeper_and_its_last_owner_does_not_just_take_it_again() {
        let word = offered();
        assert!(!try_lock(&word, A), "the way of an owner that comes back at once");
        assert_eq!(holder(word.load(Ordering::Relaxed)), None);
        // A waiter takes it, and keeps the mark, because others may sleep.
        assert!(accept(&word, B));
        assert_eq!(word.load(Ordering::Relaxed), B.word() | WAITERS);
        assert_eq!(unlock(&word, B), Ok(Released::Offered));
        assert_eq!(word.load(Ordering::Relaxed), 0, "nobody sleeps any more");
        assert!(try_lock(&word, A));
    }

    #[test]
    #[cfg(not(miri))]
    #[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "waiters poll")]
    fn an_offer_that_nobody_accepts_delays_the_next_caller_once() {
        // The woken thread died, or was stopped.
        let asking = |_: Owner| -> Verdict { panic!("there is nobody to ask about") };
        let word = offered();
        assert_eq!(lock(&word, B, &asking), Some(Acquired::Free));
        assert_eq!(unlock(&word, B), Ok(Released::Offered));
        assert_eq!(word.load(Ordering::Relaxed), 0);
        let word = offered();
        assert!(try_lock_briefly(&word, B), "a caller that cannot wait");
        assert_eq!(word.load(Ordering::Relaxed), B.word() | WAITERS);
    }

    #[test]
    fn a_caller_that_cannot_wait_takes_what_is_free_and_nothing_else() {
        let word = AtomicU64::new(0);
        assert!(try_lock_briefly(&word, B));
        assert_eq!(word.load(Ordering::Relaxed), B.word());
        assert!(!try_lock_briefly(&word, A));
        assert_eq!(word.load(Ordering::Relaxed), B.word());
    }

    #[test]
    fn who_abandons_takes_nothing_and_was_patient() {
        let word = AtomicU64::new(0);
        assert!(try_lock(&word, A));
        let began = std::time::Instant::now();
        assert_eq!(lock(&word, B, &|_| Verdict::Abandon), None);
        assert!(began.elapsed() >= PATIENCE);
        assert_eq!(unlock(&word, A), Ok(Released::Offered));
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_dead_repairer_is_an_owner_like_any_other() {
        let word = AtomicU64::new(0);
        let third = Owner { slot: 2, incarnation: 1 };
        assert!(try_lock(&word, A));
        assert_eq!(lock(&word, B, &all_are_dead), Some(Acquired::TakenOver(A)));
        assert_eq!(lock(&word, third, &all_are_dead), Some(Acquired::TakenOver(B)));
        assert_eq!(unlock(&word, third), Ok(Released::Offered));
    }

    #[test]
    fn threads_of_one_and_of_several_owners_exclude_each_other() {
        // Fewer under Miri, which is slow.
        const TIMES: u64 = if cfg!(miri) { 50 } else { 20_000 };
        // Loads and stores of a counter that lose increments without a lock.
        let (word, counter) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for owner in [A, A, B, B] {
                let (word, counter) = (&word, &counter);
                scope.spawn(move || {
                    for _ in 0..TIMES {
                        assert_eq!(lock(word, owner, &all_live), Some(Acquired::Free));
                        // Relaxed: ordered by the lock, which is under test.
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
