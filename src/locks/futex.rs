//! Sleeping on a lock word until another thread or process wakes the sleeper.
//!
//! The kernel compares and sleeps on 32 bits: the low half of the word, which on a little-endian
//! machine lies at the word's own address. The futexes are shared ones: a waiter in another process
//! that maps the same file is woken too. A wakeup may be missed or spurious; callers bound each
//! wait and check again.

pub use crate::platform::Woken;
#[cfg(not(any(loom, miri, shuttle)))]
use crate::platform::system;
use crate::primitives::AtomicU64;
use std::time::Duration;

/// Sleeps while the low half of `word` is `expected_low`, at most for `timeout`.
#[cfg(not(any(loom, miri, shuttle)))]
pub fn wait(word: &AtomicU64, expected_low: u32, timeout: Duration) -> Woken {
    system::wait(word, expected_low, timeout)
}

/// Wakes one thread that sleeps on `word`. Returns whether there was one.
#[cfg(not(any(loom, miri, shuttle)))]
pub fn wake_one(word: &AtomicU64) -> bool {
    system::wake(word, 1)
}

/// Wakes all threads that sleep on `word`.
#[cfg(not(any(loom, miri, shuttle)))]
pub fn wake_all(word: &AtomicU64) {
    system::wake(word, i32::MAX as u32);
}

/// Under loom time does not pass: each wait lets other threads run and then times out.
#[cfg(loom)]
pub fn wait(_word: &AtomicU64, _expected_low: u32, _timeout: Duration) -> Woken {
    crate::primitives::spin_hint();
    Woken::No
}

/// In a schedule, the harness chooses whether a wakeup comes.
#[cfg(shuttle)]
pub fn wait(_word: &AtomicU64, _expected_low: u32, timeout: Duration) -> Woken {
    if crate::primitives::scheduled::wait(timeout) { Woken::Perhaps } else { Woken::No }
}

/// Miri treats the kernel's read of half a word as one of the program's, which mixes sizes: there
/// the word is polled.
#[cfg(miri)]
pub fn wait(word: &AtomicU64, expected_low: u32, timeout: Duration) -> Woken {
    let begun = std::time::Instant::now();
    // Relaxed: as in the kernel, only the number counts; callers load again.
    while word.load(crate::primitives::Ordering::Relaxed) as u32 == expected_low {
        if begun.elapsed() >= timeout {
            return Woken::No;
        }
        std::thread::yield_now();
    }
    Woken::Perhaps
}

/// Under loom, Miri and in a schedule wakeups are not needed, and nobody is woken.
#[cfg(any(loom, miri, shuttle))]
pub fn wake_one(_word: &AtomicU64) -> bool {
    false
}

/// Under loom, Miri and in a schedule wakeups are not needed.
#[cfg(any(loom, miri, shuttle))]
pub fn wake_all(_word: &AtomicU64) {}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::media::{Access, Disk, Media};
    use crate::primitives::Ordering;

    /// Longer than any wakeup takes, even on a busy machine: a wait of this length was not ended by
    /// a wakeup.
    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_wait_on_another_value_returns_at_once() {
        let word = AtomicU64::new(0x5_0000_0001);
        assert_eq!(wait(&word, 2, LIMIT), Woken::Perhaps);
    }

    #[test]
    fn a_wait_that_nobody_ends_ends_nevertheless() {
        let word = AtomicU64::new(0x5_0000_0001);
        assert_eq!(wait(&word, 1, Duration::from_millis(1)), Woken::No);
        wake_one(&word);
    }

    #[test]
    fn sleepers_are_woken_through_any_mapping_of_the_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = Disk::new(directory.path()).create("words", 4096).expect("space");
        let map = || file.map(Access::Write).expect("whole words");
        let (ours, theirs) = (map(), map());
        std::thread::scope(|scope| {
            for sleeper in 0..2 {
                let theirs = &theirs;
                scope.spawn(move || {
                    let word = &theirs.words()[7];
                    // Acquire: partner is the Release below; nothing else is shared.
                    let begun = std::time::Instant::now();
                    while word.load(Ordering::Acquire) == 0 {
                        wait(word, 0, LIMIT);
                    }
                    // Signals end waits too, so the result of a wait proves nothing.
                    assert!(begun.elapsed() < LIMIT, "nobody woke sleeper {sleeper}");
                    wake_one(word); // passed on
                });
            }
            // Time to fall asleep; if the threads have not, the test checks less but passes.
            std::thread::sleep(Duration::from_millis(10));
            // Release: partner is the Acquire above.
            ours.words()[7].store(1, Ordering::Release);
            wake_one(&ours.words()[7]);
        });
    }
}
