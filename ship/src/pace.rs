//! How long to wait for what comes next.
//!
//! Work that has found something waits out its interval, measured from its own begin, but for a
//! little. Then it looks often, until the next thing comes. So it gets in step with whoever produces
//! that at the same interval: each time it is a little earlier, until it has to look twice. What
//! does not come for an interval is looked for once in an interval.

use std::time::{Duration, Instant};

/// Looks in one interval, while something is expected.
const LOOKS: u32 = 16;
/// The shortest interval, without which whoever finds nothing would never pause; and the longest,
/// of which a multiple is a time as well.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(1 << 32);
/// How much earlier than an interval the next work begins, at most.
const EARLIER: Duration = Duration::from_millis(60);

/// The pauses of a shipper, or of a follower.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    every: Duration,
    /// When the work began that found something last.
    found: Option<Instant>,
}

impl Pace {
    /// Creates the pace of work that finds something at most once in this interval, which is at
    /// least 10 ms.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        Self { every: every.clamp(LEAST, MOST), found: None }
    }

    /// Returns the interval.
    #[must_use]
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Returns the pause at `now`, after work that began at `begun` and has found something or not.
    /// Work that failed has found nothing.
    pub fn pause(&mut self, begun: Instant, now: Instant, has_found: bool) -> Duration {
        if has_found {
            self.found = Some(begun);
        }
        let rest = self.every.saturating_sub(now.saturating_duration_since(begun));
        let since = self.found.map(|found| now.saturating_duration_since(found));
        let is_expected = since.is_some_and(|since| since < self.every * 2);
        match (has_found, is_expected) {
            (true, _) => rest.saturating_sub(EARLIER.min(self.every / LOOKS)),
            (false, true) => rest.min(self.every / LOOKS),
            (false, false) => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(16);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn work_that_finds_something_begins_once_in_its_interval_or_a_little_earlier() {
        let (mut pace, begun) = (Pace::new(EVERY), Instant::now());
        let pause = pace.pause(begun, begun + 3 * SECOND, true);
        assert_eq!(pause, 13 * SECOND - Duration::from_millis(60));
        assert_eq!(pace.pause(begun, begun + 20 * SECOND, true), Duration::ZERO);
    }

    #[test]
    fn an_interval_of_zero_has_pauses_and_an_endless_one_is_waited_for() {
        let begun = Instant::now();
        assert!(!Pace::new(Duration::ZERO).pause(begun, begun, false).is_zero());
        let mut pace = Pace::new(Duration::MAX);
        pace.pause(begun, begun, true);
        assert!(pace.pause(begun, begun, false) > Duration::from_secs(1 << 20));
    }

    #[test]
    fn two_of_one_interval_get_in_step() {
        let (every, start) = (Duration::from_millis(1000), Instant::now());
        let (mut pace, mut now) = (Pace::new(every), Duration::from_millis(700));
        let mut seen = Duration::ZERO;
        let mut behind = Duration::ZERO;
        for _ in 0..200 {
            // Something comes at each whole second.
            let newest = Duration::from_secs(now.as_secs());
            let has_found = newest > seen;
            if has_found {
                (seen, behind) = (newest, now - newest);
            }
            now += pace.pause(start + now, start + now, has_found);
        }
        assert!(behind <= every / LOOKS, "{behind:?}");
    }

    #[test]
    fn what_is_due_is_looked_for_often_and_what_does_not_come_once_in_an_interval() {
        let (mut pace, begun) = (Pace::new(EVERY), Instant::now());
        assert_eq!(pace.pause(begun, begun, false), EVERY);
        pace.pause(begun, begun, true);
        let due = begun + EVERY;
        assert_eq!(pace.pause(due, due, false), SECOND);
        let late = begun + 2 * EVERY;
        assert_eq!(pace.pause(late, late, false), EVERY);
    }
}
