//! Single-flight gates for work that concerns all handles: syncing the log, allocating a segment.
//!
//! The gate only avoids duplicate work. A caller waits for the leader, which may be dead, stopped
//! or slow, at most for its patience. The word is even while the gate is free and odd while a
//! leader holds it. Taking the gate raises the word by one, and so does releasing it. Overtaking
//! raises it by two, to the next odd number, and so takes from the previous leader only the right
//! to release the gate.
//!
//! The guarded operation must therefore be idempotent and safe to run twice at once. If it depends
//! on whether the previous leader finished in order, [`Taken::Overtook`] reports that it did not.
//! Modelled in `tests/loom/single_flight.rs`.

use crate::locks::futex::{self, Woken};
use crate::primitives::{AtomicU64, Instant, Ordering};
use std::time::Duration;

/// The leader of a gate. Dropped without [`Leader::end`] (by a panic), it is left to be overtaken.
#[derive(Debug)]
#[must_use = "others wait for its end"]
pub struct Leader<'a> {
    word: &'a AtomicU64,
    number: u64,
}

/// The outcome of waiting for the gate.
#[derive(Debug)]
#[must_use = "others may wait for the leader to end"]
pub enum Taken<'a> {
    /// The caller is the leader, and the previous leader has finished.
    Ours(Leader<'a>),
    /// The caller is the leader, and the previous one has not finished: it is dead, stopped or
    /// slow.
    Overtook(Leader<'a>),
    /// Another leader began or finished meanwhile: check again whether anything is left to do.
    Again,
}

/// Takes the gate, after waiting for its leader for at most `patience`.
pub fn take(word: &AtomicU64, patience: Duration) -> Taken<'_> {
    // Relaxed: the compare-and-swap decides.
    let seen = word.load(Ordering::Relaxed);
    let number = seen.wrapping_add(if seen & 1 == 0 { 1 } else { 2 });
    if seen & 1 == 1 {
        let (begun, mut left) = (Instant::now(), patience);
        loop {
            let woken = futex::wait(word, seen as u32, left);
            if word.load(Ordering::Relaxed) != seen {
                return Taken::Again;
            }
            // A signal ends a wait, too.
            left = patience.saturating_sub(begun.elapsed());
            if woken == Woken::No && left.is_zero() {
                break;
            }
        }
    }
    // Acquire: pairs with the Release in `end`; the work of the last leader that finished is
    // visible.
    if word.compare_exchange(seen, number, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return Taken::Again;
    }
    let leader = Leader { word, number };
    if seen & 1 == 0 { Taken::Ours(leader) } else { Taken::Overtook(leader) }
}

impl Leader<'_> {
    /// Releases the gate, unless it was overtaken, and wakes all waiters.
    pub fn end(self) {
        let next = self.number.wrapping_add(1);
        // Release: pairs with the Acquire in `take`. Relaxed on failure: the leader that has
        // overtaken continues.
        let _ = self.word.compare_exchange(self.number, next, Ordering::Release, Ordering::Relaxed);
        futex::wake_all(self.word);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Longer than any wakeup takes, even on a busy machine. A waiter that is not woken then
    /// overtakes, and the test fails.
    const LIMIT: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_turn_ends_and_the_next_is_in_good_order() {
        let word = AtomicU64::new(0);
        for _ in 0..3 {
            let Taken::Ours(leader) = take(&word, LIMIT) else { panic!("the gate is free") };
            leader.end();
        }
        assert_eq!(word.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn who_never_ends_is_overtaken_and_takes_nothing_back() {
        let word = AtomicU64::new(0);
        let Taken::Ours(stopped) = take(&word, LIMIT) else { panic!("the gate is free") };
        let Taken::Overtook(ours) = take(&word, SHORT) else { panic!("patience has an end") };
        stopped.end();
        let Taken::Overtook(_) = take(&word, SHORT) else { panic!("ours has not ended") };
        ours.end();
    }

    #[test]
    fn those_who_wait_are_woken_when_the_turn_ends() {
        let word = AtomicU64::new(0);
        let Taken::Ours(leader) = take(&word, LIMIT) else { panic!("the gate is free") };
        std::thread::scope(|scope| {
            let waiters = [0, 1].map(|_| {
                scope.spawn(|| match take(&word, LIMIT) {
                    Taken::Again => {}
                    // It came too late to wait. The other waiter may now wait for this leader.
                    Taken::Ours(leader) => leader.end(),
                    Taken::Overtook(_) => panic!("not woken for {LIMIT:?}, the word is {word:?}"),
                })
            });
            // Time to fall asleep; if the threads have not, the test checks less but passes.
            std::thread::sleep(Duration::from_millis(10));
            leader.end();
            for waiter in waiters {
                waiter.join().expect("woken");
            }
        });
    }

    #[test]
    #[cfg(not(miri))]
    fn a_signal_to_a_waiter_does_not_end_its_patience() {
        use crate::platform::threads::tests::interrupt;
        let word: &'static AtomicU64 = Box::leak(Box::default());
        let Taken::Ours(leader) = take(word, LIMIT) else { panic!("the gate is free") };
        let waiter = std::thread::spawn(|| matches!(take(word, LIMIT), Taken::Overtook(_)));
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            interrupt(&waiter);
        }
        leader.end();
        assert!(!waiter.join().expect("no panic"), "the leader was overtaken");
    }

    #[test]
    fn the_end_of_an_overtaken_turn_ends_no_wait_for_the_one_who_overtook() {
        let word = AtomicU64::new(0);
        let Taken::Ours(stopped) = take(&word, LIMIT) else { panic!("the gate is free") };
        let Taken::Overtook(ours) = take(&word, SHORT) else { panic!("patience has an end") };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| take(&word, LIMIT));
            // Time to fall asleep, as above.
            std::thread::sleep(Duration::from_millis(10));
            stopped.end();
            std::thread::sleep(Duration::from_millis(10));
            assert!(!waiter.is_finished(), "{:?}", waiter.join());
            ours.end();
            match waiter.join().expect("no panic") {
                Taken::Again => {}
                Taken::Ours(leader) => leader.end(),
                Taken::Overtook(_) => panic!("not woken for {LIMIT:?}, the word is {word:?}"),
            }
        });
        assert_eq!(word.load(Ordering::Relaxed) % 2, 0, "a leader is left");
    }
}
