//! Turns at a duty that concerns all handles: syncing the log, allocating a segment.
//!
//! A turn is a hint, no office: it spares others the same work, and nobody waits longer than their patience for whoever
//! has it, dead, stopped or slow. The word is even while nobody is at it and odd while somebody is. Taking a turn raises
//! it by one, ending one too; overtaking raises it by two, to the next odd number, and so takes from the one before
//! nothing but the right to end the turn.
//!
//! So what is done in a turn must bear being done by two at once. What it must know is whether the turn before was
//! ended in good order: [`Taken::Overtook`] says that it was not. Modelled in `tests/loom/leader_gate.rs`.

use crate::locks::futex::{self, Woken};
use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// A turn. Dropped without [`Turn::end`] (by a panic) it is left to be overtaken.
#[derive(Debug)]
#[must_use = "others wait for its end"]
pub struct Turn<'a> {
    word: &'a AtomicU64,
    number: u64,
}

/// What came of waiting for a turn.
#[derive(Debug)]
#[must_use = "others may wait for the end of a turn"]
pub enum Taken<'a> {
    /// It is ours, and the one before has ended.
    Ours(Turn<'a>),
    /// It is ours, and whoever had the one before has not come to its end: dead, stopped or slow.
    Overtook(Turn<'a>),
    /// Another's turn began or ended meanwhile: look again whether anything is left to do.
    Again,
}

/// Takes the turn, waiting for the one who has it for so long at most.
pub fn take(word: &AtomicU64, patience: Duration) -> Taken<'_> {
    // Relaxed: the compare-and-swap decides.
    let seen = word.load(Ordering::Relaxed);
    let number = seen.wrapping_add(if seen & 1 == 0 { 1 } else { 2 });
    if seen & 1 == 1 {
        while futex::wait(word, seen as u32, patience) == Woken::Perhaps {
            if word.load(Ordering::Relaxed) != seen {
                return Taken::Again;
            }
        }
    }
    // Acquire: pairs with the Release in `end`; what was done in the last turn that ended is seen.
    if word.compare_exchange(seen, number, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return Taken::Again;
    }
    let turn = Turn { word, number };
    if seen & 1 == 0 { Taken::Ours(turn) } else { Taken::Overtook(turn) }
}

impl Turn<'_> {
    /// Ends the turn, unless it was overtaken, and wakes all who wait.
    pub fn end(self) {
        let next = self.number.wrapping_add(1);
        // Release: pairs with the Acquire in `take`. Relaxed on failure: whoever has overtaken goes on.
        let _ = self.word.compare_exchange(self.number, next, Ordering::Release, Ordering::Relaxed);
        futex::wake_all(self.word);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Longer than any wake-up takes, on a busy machine too. A waiter that nobody wakes overtakes then, and the test fails.
    const LIMIT: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_turn_ends_and_the_next_is_in_good_order() {
        let word = AtomicU64::new(0);
        for _ in 0..3 {
            let Taken::Ours(turn) = take(&word, LIMIT) else { panic!("nobody is at it") };
            turn.end();
        }
        assert_eq!(word.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn who_never_ends_is_overtaken_and_takes_nothing_back() {
        let word = AtomicU64::new(0);
        let Taken::Ours(stopped) = take(&word, LIMIT) else { panic!("nobody is at it") };
        let Taken::Overtook(ours) = take(&word, SHORT) else { panic!("patience has an end") };
        stopped.end();
        let Taken::Overtook(_) = take(&word, SHORT) else { panic!("ours has not ended") };
        ours.end();
    }

    #[test]
    fn those_who_wait_are_woken_when_the_turn_ends() {
        let word = AtomicU64::new(0);
        let Taken::Ours(turn) = take(&word, LIMIT) else { panic!("nobody is at it") };
        std::thread::scope(|scope| {
            let waiters = [0, 1].map(|_| {
                scope.spawn(|| match take(&word, LIMIT) {
                    Taken::Again => {}
                    // It came too late to wait. The other waiter may wait for this turn now.
                    Taken::Ours(turn) => turn.end(),
                    Taken::Overtook(_) => panic!("not woken for {LIMIT:?}, the word is {word:?}"),
                })
            });
            // Time to fall asleep; if they have not, the test claims less but passes.
            std::thread::sleep(Duration::from_millis(10));
            turn.end();
            for waiter in waiters {
                waiter.join().expect("woken");
            }
        });
    }

    #[test]
    fn the_end_of_an_overtaken_turn_ends_no_wait_for_the_one_who_overtook() {
        let word = AtomicU64::new(0);
        let Taken::Ours(stopped) = take(&word, LIMIT) else { panic!("nobody is at it") };
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
                Taken::Ours(turn) => turn.end(),
                Taken::Overtook(_) => panic!("not woken for {LIMIT:?}, the word is {word:?}"),
            }
        });
        assert_eq!(word.load(Ordering::Relaxed) % 2, 0, "somebody still has a turn");
    }
}
