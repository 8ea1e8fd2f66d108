//! Measures the processor time of this thread: time in which other threads use the processor does
//! not count.

use rustix::time::{ClockId, clock_gettime};

/// A running measurement.
pub struct Timer(f64);

impl Timer {
    /// Starts a measurement.
    pub fn start() -> Self {
        Self(now())
    }

    /// Returns the nanoseconds since the start.
    pub fn nanos(&self) -> f64 {
        now() - self.0
    }
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
