//! How long something takes on this thread's processor: the time in which others had the processor does not count.

use rustix::time::{ClockId, clock_gettime};

/// A running measurement.
pub struct Timer(f64);

impl Timer {
    /// Begins.
    pub fn start() -> Self {
        Self(now())
    }

    /// Nanoseconds since the beginning.
    pub fn nanos(&self) -> f64 {
        now() - self.0
    }
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
