//! A private copy of the filter's clock, for operations that are decided before they are written.

use crate::engine::time::time_over_reboots::{is_behind, raised_to, time_by};
use ebbtide_core::kind::Micros;
use ebbtide_core::time::{LATEST, OperationTime as Stamp};

/// When an operation happens that is decided later. By then the filter may have been altered, and
/// its kind may need another clock than the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// At a time that came with the key.
    Given(Micros),
    /// At this reading of the clock that moves a filter whose kind uses time.
    Elapsed(Micros),
    /// At this time of the wall clock, which other kinds record.
    Wall(Micros),
}

/// A private copy of the filter's clock: operations move it as `Time::stamp` moves that of the
/// filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockCopy {
    /// The time base.
    base: [u64; 2],
    /// The reading of the clock after the filter's latest time was read.
    elapsed: Micros,
    /// The filter's time at the copy, or the first one of a filter without records. Operations get
    /// it if no clock moves the filter.
    first: Stamp,
    uses_time: bool,
    /// Whether operations move the clock.
    is_moved: bool,
    /// What the operations have raised the base to.
    raised: Option<i64>,
}

impl ClockCopy {
    /// Copies a clock with this time base. `elapsed` is its reading; `uses_time`: of the kind.
    pub(crate) fn new(
        base: [u64; 2],
        elapsed: Micros,
        first: Stamp,
        (uses_time, is_moved): (bool, bool),
    ) -> Self {
        Self { base, elapsed, first, uses_time, is_moved, raised: None }
    }

    /// Returns the time of an operation that follows one at `latest`. If the reading taken for it
    /// (`Time::read_clock`) is of another clock, it happens now.
    pub(crate) fn stamp(&mut self, when: When, latest: Stamp) -> Stamp {
        let first = self.first;
        let elapsed = match when {
            When::Given(time) => return Stamp { time, stream: true },
            When::Wall(time) if !self.uses_time => return Stamp { time, stream: false },
            _ if !self.uses_time => return first,
            _ if !self.is_moved => {
                return Stamp { time: first.time.max(latest.time), ..first };
            }
            When::Elapsed(elapsed) => elapsed,
            When::Wall(_) => self.elapsed,
        };
        let read = time_by(self.base, elapsed);
        match read {
            Some(time) if time > latest.time => return Stamp { time, stream: false },
            Some(time) if !latest.stream && !is_behind(time, latest.time) => return latest,
            _ => {}
        }
        let now = match read {
            None if latest == Stamp::default() => first.time,
            read => read.unwrap_or(0).max(latest.time),
        };
        // Since the clock was read, others may have written at later times of the same clock. Only
        // a time that the clock has not reached by now is ahead of it.
        let raised = raised_to(now, elapsed.max(self.elapsed), self.base[1]);
        if self.base[0] == 0 || (self.base[0] as i64) < raised {
            (self.base[0], self.raised) = (raised as u64, Some(raised));
        }
        Stamp { time: now.max(latest.least_by_clock()).min(LATEST), stream: false }
    }

    /// Takes account of a later reading of the clock.
    pub(crate) fn advance(&mut self, elapsed: Micros) {
        self.elapsed = self.elapsed.max(elapsed);
    }

    /// Returns what the time base must be raised to (`Time::raise_base`) once the operations are
    /// written, if they have moved the clock.
    pub(crate) fn raised(&self) -> Option<i64> {
        self.raised
    }
}
