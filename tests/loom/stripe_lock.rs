//! The stripe lock: exclusion, and takeover from a dead owner.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::stripe_lock::{
    Acquired, Lost, OFFERED, Owner, Released, Verdict, WAITERS, give_back, holder, lock, try_lock,
    try_lock_briefly, unlock,
};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const A: Owner = Owner { slot: 0, incarnation: 1 };
const B: Owner = Owner { slot: 1, incarnation: 1 };
const C: Owner = Owner { slot: 2, incarnation: 5 };

/// A lock word and the data that it guards: loom fails a model in which two threads access the
/// number without a happens-before order.
struct Stripe {
    word: AtomicU64,
    number: UnsafeCell<u64>,
    a_is_dead: AtomicU64,
}

#[expect(unsafe_code, reason = "the number is shared under the lock that is being modelled")]
// SAFETY: threads access `number` only while they hold `word`; loom checks exactly that.
unsafe impl Sync for Stripe {}

impl Stripe {
    fn new() -> Arc<Self> {
        let (word, a_is_dead) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { word, number: UnsafeCell::new(0), a_is_dead })
    }

    #[expect(unsafe_code, reason = "as above")]
    fn increment(&self) -> u64 {
        self.number.with_mut(|number| {
            // SAFETY: the pointer is valid, and loom has checked that no other thread uses it now.
            unsafe {
                *number += 1;
                *number
            }
        })
    }

    /// Only A ever dies.
    fn judge(&self, owner: Owner, order: Ordering) -> Verdict {
        let dead = owner == A && self.a_is_dead.load(order) == 1;
        if dead { Verdict::Dead } else { Verdict::Wait }
    }

    fn die(&self) {
        self.a_is_dead.store(1, Ordering::Release);
    }
}

const PATIENT: &str = "this judge never abandons the wait";

type Lock = fn(&Stripe, Owner) -> Acquired;
type Unlock = fn(&AtomicU64, Owner) -> Result<Released, Lost>;

fn proper_lock(stripe: &Stripe, owner: Owner) -> Acquired {
    // Acquire: partner is the Release of `die`; it stands for the kernel's lock on the lock table.
    lock(&stripe.word, owner, &|other| stripe.judge(other, Ordering::Acquire)).expect(PATIENT)
}

/// Each thread acquires the lock twice: with one acquisition a thread would never meet its own
/// unlock.
fn exclusion(owners: [Owner; 2], lock: Lock, unlock: Unlock) {
    loom::model(move || {
        let stripe = Stripe::new();
        let threads = owners.map(|owner| {
            let stripe = Arc::clone(&stripe);
            thread::spawn(move || {
                for _ in 0..2 {
                    assert_eq!(lock(&stripe, owner), Acquired::Free);
                    stripe.increment();
                    unlock(&stripe.word, owner).expect("held by this thread");
                }
            })
        });
        for thread in threads {
            thread.join().expect("no panic");
        }
        // Relaxed: the threads were joined.
        assert_eq!(stripe.word.load(Ordering::Relaxed), 0);
        assert_eq!(stripe.increment(), 5);
    });
}

#[test]
fn two_owners_exclude_each_other() {
    exclusion([A, B], proper_lock, unlock);
}

#[test]
fn two_threads_of_one_owner_exclude_each_other() {
    exclusion([A, A], proper_lock, unlock);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_unlock_without_release_is_found() {
    fn relaxed_unlock(word: &AtomicU64, _: Owner) -> Result<Released, Lost> {
        word.store(0, Ordering::Relaxed); // the bug
        Ok(Released::Free)
    }
    exclusion([A, B], proper_lock, relaxed_unlock);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_lock_without_acquire_is_found() {
    fn relaxed_lock(stripe: &Stripe, owner: Owner) -> Acquired {
        let bits = (u64::from(owner.slot) + 1) << 1 | owner.incarnation << 16;
        // The bug is the first Relaxed.
        while stripe.word.compare_exchange(0, bits, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            thread::yield_now();
        }
        Acquired::Free
    }
    exclusion([A, B], relaxed_lock, unlock);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_check_before_the_lock_is_found() {
    fn late_lock(stripe: &Stripe, owner: Owner) -> Acquired {
        // The bug: reading zero and storing are two steps.
        while stripe.word.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        stripe
            .word
            .store((u64::from(owner.slot) + 1) << 1 | owner.incarnation << 16, Ordering::Release);
        Acquired::Free
    }
    fn quiet_unlock(word: &AtomicU64, owner: Owner) -> Result<Released, Lost> {
        let _ = unlock(word, owner);
        Ok(Released::Free)
    }
    exclusion([A, B], late_lock, quiet_unlock);
}

/// B holds the lock with a mark, and offers it while A, which has waited, and C, which comes anew
/// and does not wait, want it.
fn an_offer(unlock: Unlock) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let stripe = Stripe::new();
        let held = word_of(B) | WAITERS;
        // Relaxed: no thread was started yet.
        stripe.word.store(held, Ordering::Relaxed);
        let newcomer = {
            let stripe = Arc::clone(&stripe);
            thread::spawn(move || {
                let taken = try_lock_briefly(&stripe.word, C);
                if taken {
                    stripe.increment();
                    ebbtide::models::stripe_lock::unlock(&stripe.word, C).expect("held");
                }
                taken
            })
        };
        let waiter = {
            let stripe = Arc::clone(&stripe);
            thread::spawn(move || {
                assert_eq!(proper_lock(&stripe, A), Acquired::Free);
                stripe.increment();
                ebbtide::models::stripe_lock::unlock(&stripe.word, A).expect("held");
            })
        };
        stripe.increment();
        assert_eq!(unlock(&stripe.word, B), Ok(Released::Offered));
        let taken = newcomer.join().expect("no panic");
        waiter.join().expect("no panic");
        // Relaxed: the threads were joined.
        assert_eq!(stripe.word.load(Ordering::Relaxed), 0);
        assert_eq!(stripe.increment(), 3 + u64::from(taken));
    });
}

/// Returns the word of a lock that is held without a mark.
fn word_of(owner: Owner) -> u64 {
    (u64::from(owner.slot) + 1) << 1 | owner.incarnation << 16
}

#[test]
fn an_offered_lock_is_taken_by_one_at_a_time_and_no_mark_is_left() {
    an_offer(unlock);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_offer_without_release_is_found() {
    fn relaxed_offer(word: &AtomicU64, _: Owner) -> Result<Released, Lost> {
        word.store(OFFERED, Ordering::Relaxed); // the bug
        Ok(Released::Offered)
    }
    an_offer(relaxed_offer);
}

#[test]
#[should_panic]
fn a_planted_withdrawal_by_a_store_is_found() {
    fn storing_unlock(word: &AtomicU64, _: Owner) -> Result<Released, Lost> {
        word.store(OFFERED, Ordering::Release);
        thread::yield_now();
        // The bug: another thread may have accepted the offer.
        word.store(0, Ordering::Release);
        Ok(Released::Offered)
    }
    an_offer(storing_unlock);
}

/// Runs a dying owner's thread; returns true if it died holding the lock.
fn die_holding(stripe: &Stripe) -> bool {
    let held = try_lock(&stripe.word, A);
    if held {
        stripe.increment();
    }
    stripe.die();
    held
}

/// Starts a thread that takes the lock, from the dead owner if necessary.
fn successor(stripe: &Arc<Stripe>, owner: Owner, lock: Lock) -> thread::JoinHandle<Acquired> {
    let stripe = Arc::clone(stripe);
    thread::spawn(move || {
        let acquired = lock(&stripe, owner);
        stripe.increment();
        unlock(&stripe.word, owner).expect("held by this thread");
        acquired
    })
}

/// A has died holding the lock; B and C both want it. (With A dying concurrently the model would
/// not end: loom lets two waiters alternate without limit while a third thread could run.)
fn two_successors(lock: Lock) {
    loom::model(move || {
        let stripe = Stripe::new();
        let dying = Arc::clone(&stripe);
        let held = thread::spawn(move || die_holding(&dying)).join().expect("no panic");
        assert!(held);
        let successors = [B, C].map(|owner| successor(&stripe, owner, lock));
        let mut acquired = successors.map(|thread| thread.join().expect("no panic"));
        acquired.sort_by_key(|&how| how == Acquired::Free);
        assert_eq!(acquired, [Acquired::TakenOver(A), Acquired::Free]);
        // Relaxed: the threads were joined.
        assert_eq!(stripe.word.load(Ordering::Relaxed), 0);
        assert_eq!(stripe.increment(), 4);
    });
}

/// A dies, holding the lock or not, while B waits for it.
fn successor_of_the_dying(lock: Lock) {
    loom::model(move || {
        let stripe = Stripe::new();
        let dying = Arc::clone(&stripe);
        let dying = thread::spawn(move || die_holding(&dying));
        let successor = successor(&stripe, B, lock);
        let held = dying.join().expect("no panic");
        let taken_over = successor.join().expect("no panic") == Acquired::TakenOver(A);
        // Relaxed: the threads were joined. If A came last, no successor took over from it.
        let left = holder(stripe.word.load(Ordering::Relaxed));
        assert_eq!(left, (held && !taken_over).then_some(A));
        assert_eq!(stripe.increment(), 2 + u64::from(held));
    });
}

/// A has died holding the lock. B takes it over and gives it back, while C wants it.
fn a_successor_gives_it_back(give_back: fn(&AtomicU64, Owner, Owner) -> Result<(), Lost>) {
    loom::model(move || {
        let stripe = Stripe::new();
        let dying = Arc::clone(&stripe);
        let held = thread::spawn(move || die_holding(&dying)).join().expect("no panic");
        assert!(held);
        let gives_back = {
            let stripe = Arc::clone(&stripe);
            thread::spawn(move || {
                let acquired = proper_lock(&stripe, B);
                stripe.increment();
                match acquired {
                    Acquired::TakenOver(dead) => give_back(&stripe.word, B, dead).expect("held"),
                    Acquired::Free => drop(unlock(&stripe.word, B).expect("held")),
                }
            })
        };
        let last = successor(&stripe, C, proper_lock);
        gives_back.join().expect("no panic");
        assert_eq!(last.join().expect("no panic"), Acquired::TakenOver(A));
        // Relaxed: the threads were joined.
        assert_eq!(stripe.word.load(Ordering::Relaxed), 0);
        assert_eq!(stripe.increment(), 4);
    });
}

#[test]
fn a_lock_that_is_given_back_to_a_dead_owner_is_taken_over_by_the_next() {
    a_successor_gives_it_back(give_back);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_gift_without_release_is_found() {
    a_successor_gives_it_back(|word, _, dead| {
        word.store(word_of(dead) | WAITERS, Ordering::Relaxed); // the bug
        Ok(())
    });
}

#[test]
fn a_dead_owners_lock_is_taken_over_by_exactly_one() {
    two_successors(proper_lock);
}

#[test]
fn a_lock_is_taken_over_only_after_its_owners_last_store() {
    successor_of_the_dying(proper_lock);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_probe_that_does_not_synchronise_is_found() {
    fn careless_lock(stripe: &Stripe, owner: Owner) -> Acquired {
        // The bug: Relaxed.
        lock(&stripe.word, owner, &|other| stripe.judge(other, Ordering::Relaxed)).expect(PATIENT)
    }
    successor_of_the_dying(careless_lock);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_takeover_from_the_living_is_found() {
    fn hasty_lock(stripe: &Stripe, owner: Owner) -> Acquired {
        // The bug: no check.
        lock(&stripe.word, owner, &|_| Verdict::Dead).expect(PATIENT)
    }
    successor_of_the_dying(hasty_lock);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_takeover_by_a_store_is_found() {
    fn storing_lock(stripe: &Stripe, owner: Owner) -> Acquired {
        loop {
            if try_lock(&stripe.word, owner) {
                return Acquired::Free;
            }
            let dead = holder(stripe.word.load(Ordering::Acquire))
                .filter(|&other| stripe.judge(other, Ordering::Acquire) == Verdict::Dead);
            if let Some(dead) = dead {
                // The bug: the dead owner may have been replaced since.
                stripe.word.store(
                    (u64::from(owner.slot) + 1) << 1 | owner.incarnation << 16,
                    Ordering::Release,
                );
                return Acquired::TakenOver(dead);
            }
            thread::yield_now();
        }
    }
    two_successors(storing_lock);
}
