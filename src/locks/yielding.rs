//! Yielding: a bulk writer that others wait for gives the processor back between its operations,
//! while it holds no lock.
//!
//! A writer that inserts one key after the other holds a stripe most of the time. On a machine with
//! more work than processors the system takes its processor away after some milliseconds, hence
//! usually while it holds a stripe, and whoever wants the stripe waits until it runs again. A
//! thread that sleeps briefly from time to time, before its time on the processor ends, loses it
//! while it holds nothing.
//!
//! This costs time, so a thread does it only if all of this holds:
//! - another thread has waited for a stripe of this handle within the last second,
//! - the thread is a bulk writer: its last operations took some microseconds each,
//! - the processor was taken from it within the last 100 ms.
//!
//! Nothing here is needed for correctness, and nothing depends on which thread sleeps.

use crate::primitives::{self, Hint, Instant};
use std::cell::Cell;
use std::time::Duration;

/// How many operations a thread does between two looks at the clock.
const EVERY: u32 = 64;
/// An operation of a bulk writer takes less, including what its thread does until the next one.
const BULK: Duration = Duration::from_micros(8);
/// Operations that together took longer than this were interrupted.
const INTERRUPTED: Duration = Duration::from_millis(1);
/// How long after an interruption the machine is taken to be busy.
const BUSY: Duration = Duration::from_millis(100);
/// The time on the processor between two sleeps: a small part of what the system grants a thread.
const RUN: Duration = Duration::from_micros(200);
/// The sleep. Timers add some 50 µs.
const SLEEP: Duration = Duration::from_micros(1);
/// The least microseconds between two notes that others wait.
const NOTED: u64 = 1000;
/// The time for which a thread that waited is remembered.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Whether other threads have recently waited for what the threads of a handle hold.
#[derive(Debug)]
pub struct Yielding {
    origin: Instant,
    /// When another thread last waited, in microseconds since `origin`; 0 if none did recently.
    waited_for: Hint,
}

impl Default for Yielding {
    fn default() -> Self {
        Self { origin: Instant::now(), waited_for: Hint::default() }
    }
}

/// How a thread has worked since others wait for it. Times are those since the handle's `origin`.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// When the handle was opened, which tells handles apart: a thread that works for another one
    /// begins anew. (Not its address: a schedule of a seed must be repeatable.)
    origin: Option<Instant>,
    operations: u32,
    /// The last look at the clock.
    looked: Duration,
    /// Whether the operations before that were those of a bulk writer.
    bulk: bool,
    interrupted: Option<Duration>,
    slept: Duration,
}

impl Pace {
    const fn of(origin: Option<Instant>) -> Self {
        let (looked, slept) = (Duration::ZERO, Duration::ZERO);
        Self { origin, operations: 0, looked, bulk: false, interrupted: None, slept }
    }

    /// Notes the time of the operations since the last look. Returns whether to sleep now.
    fn look(&mut self, now: Duration) -> bool {
        let taken = now.saturating_sub(self.looked);
        let usual = BULK * self.operations;
        if self.bulk && taken > usual.max(INTERRUPTED) {
            self.interrupted = Some(now);
        }
        (self.looked, self.bulk, self.operations) = (now, taken < usual, 0);
        self.bulk
            && self.interrupted.is_some_and(|at| now.saturating_sub(at) < BUSY)
            && now.saturating_sub(self.slept) >= RUN
    }

    /// Notes a sleep that has ended.
    fn wake(&mut self, now: Duration) {
        (self.slept, self.looked) = (now, now);
    }
}

thread_local! {
    static PACE: Cell<Pace> = const { Cell::new(Pace::of(None)) };
}

impl Yielding {
    /// Notes that another thread has waited for a stripe of this handle.
    #[cold]
    pub fn note_waiter(&self) {
        let now = (self.origin.elapsed().as_micros() as u64).max(1);
        // Other threads of the handle read this word: it changes as rarely as will do.
        let noted = self.waited_for.get();
        if noted == 0 || now.saturating_sub(noted) >= NOTED {
            self.waited_for.set(now);
        }
    }

    /// Returns whether another thread has waited recently, so that [`Yielding::pause`] is to be
    /// called after operations.
    #[must_use]
    #[inline]
    pub fn is_asked_for(&self) -> bool {
        self.waited_for.get() != 0
    }

    /// Sleeps briefly after this many operations, if the conditions above hold. The caller holds no
    /// stripe.
    #[cold]
    pub fn pause(&self, operations: u32) {
        let mut pace = PACE.get();
        if pace.origin != Some(self.origin) {
            pace = Pace::of(Some(self.origin));
        }
        pace.operations = pace.operations.saturating_add(operations);
        if pace.operations >= EVERY {
            let now = self.origin.elapsed();
            if now.saturating_sub(Duration::from_micros(self.waited_for.get())) > REMEMBERED {
                self.waited_for.set(0);
            }
            if pace.look(now) {
                primitives::sleep(SLEEP);
                pace.wake(self.origin.elapsed());
            }
        }
        PACE.set(pace);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The time of 64 operations of a bulk writer.
    const QUICK: Duration = Duration::from_micros(100);

    /// Looks at a thread whose operations, 64 each time, take these times. Returns how often it
    /// sleeps.
    fn sleeps(times: impl IntoIterator<Item = Duration>) -> usize {
        let (mut pace, mut now) = (Pace::of(None), Duration::from_secs(1));
        let slept = times.into_iter().filter(|&time| {
            now += time;
            pace.operations = EVERY;
            let sleeps = pace.look(now);
            if sleeps {
                now += SLEEP;
                pace.wake(now);
            }
            sleeps
        });
        slept.count()
    }

    #[test]
    fn a_bulk_writer_sleeps_only_after_it_was_interrupted_and_not_for_long() {
        assert_eq!(sleeps([QUICK; 10_000]), 0);
        let first = [QUICK, QUICK, Duration::from_millis(4)];
        let interrupted = || first.into_iter().chain([QUICK; 10_000]);
        let slept = sleeps(interrupted());
        let most = BUSY.as_micros() / RUN.as_micros();
        assert!((most / 2..=most).contains(&(slept as u128)), "{slept} of {most}");
        assert_eq!(sleeps(interrupted().take(5)), 1, "each {RUN:?}");
    }

    #[test]
    fn a_thread_that_inserts_now_and_then_never_sleeps() {
        let slow = Duration::from_millis(13);
        assert_eq!(sleeps([slow; 1000]), 0);
        let longer = (0..1000).map(|at| if at % 7 == 0 { slow * 5 } else { slow });
        assert_eq!(sleeps(longer), 0);
    }

    #[test]
    fn a_waiter_is_noted_once_a_millisecond() {
        let origin = Instant::now().checked_sub(REMEMBERED).expect("the machine runs");
        let yielding = Yielding { origin, ..Yielding::default() };
        let long_ago = 1;
        yielding.waited_for.set(long_ago);
        yielding.note_waiter();
        let noted = yielding.waited_for.get();
        assert!(noted >= REMEMBERED.as_micros() as u64, "{noted}");
        // As if just now: one that is ahead of the clock cannot be too long ago.
        let now = noted + 1_000_000_000;
        yielding.waited_for.set(now);
        yielding.note_waiter();
        assert_eq!(yielding.waited_for.get(), now);
    }

    #[test]
    fn who_waits_is_remembered_for_a_while_and_then_forgotten() {
        let yielding = Yielding::default();
        assert!(!yielding.is_asked_for());
        yielding.note_waiter();
        assert!(yielding.is_asked_for());
        // As if a long time ago.
        let origin = yielding.origin.checked_sub(2 * REMEMBERED).expect("the machine runs");
        let yielding = Yielding { origin, ..yielding };
        yielding.pause(EVERY - 1);
        assert!(yielding.is_asked_for(), "it looks at the clock rarely");
        yielding.pause(1);
        assert!(!yielding.is_asked_for());
    }
}
