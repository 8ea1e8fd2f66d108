//! Moments whose age counts also the time for which the machine was suspended.

use std::time::{Duration, Instant, SystemTime};

/// A moment, by the clock that does not count while the machine sleeps, and by that which counts
/// and can be set.
#[derive(Debug, Clone, Copy)]
pub struct Moment(Instant, SystemTime);

impl Moment {
    pub fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// Returns how long ago it is at most.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed().max(self.1.elapsed().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_sleep_counts_and_a_clock_that_is_set_back_takes_nothing_away() {
        let hour = Duration::from_secs(3600);
        let slept = Moment(Instant::now(), SystemTime::now() - hour);
        assert!(slept.elapsed() >= hour);
        let past = Instant::now().checked_sub(Duration::from_millis(1)).expect("a moment");
        let elapsed = Moment(past, SystemTime::now() + hour).elapsed();
        assert!(elapsed >= Duration::from_millis(1), "{elapsed:?}");
    }
}
