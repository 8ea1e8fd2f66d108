//! The filter's time, as a handle reads and advances it.
//!
//! Records carry time into the state, and the filter's latest time never decreases. Between records
//! the [time base](crate::engine::time::time_over_reboots) converts readings of the clock into it.

use crate::clock::Clock;
use crate::engine::shared::Shared;
use crate::engine::time::clock_copy::{ClockCopy, When};
use crate::engine::time::time_over_reboots::{TimeBase, is_behind, latest_of, time_now};
use crate::error::Result;
use crate::image::{Control, clock_offset};
use ebbtide_core::kind::{Micros, Moment, Totals};
use ebbtide_core::time::LATEST;
use std::sync::Arc;
use std::time::Duration;

pub use ebbtide_core::time::OperationTime as Stamp;

/// The clock offset is stored again when it has changed by this many milliseconds; only a step of
/// the wall clock changes it.
const OFFSET_STEP: u64 = 100;

/// A lead over the clock below this is not reported: clocks of several machines differ by as much.
const LEAD_REPORTED: Duration = Duration::from_secs(1);

/// Returns the latest time in the sums of an image's stripes, of a kind that uses time or not.
pub(crate) fn latest_of_stripes(header: &Control) -> Stamp {
    let stripes = 0..header.stripe_count();
    Stamp::from_word(stripes.map(|at| header.stripe(at).sums().time).max().unwrap_or(0))
}

/// The filter's time, as a handle reads and advances it.
#[derive(Debug)]
pub struct Time {
    shared: Arc<Shared>,
    base: TimeBase,
}

impl Time {
    /// Creates the time of a handle.
    pub(crate) fn new(shared: Arc<Shared>, base: TimeBase) -> Self {
        Self { shared, base }
    }

    /// Returns the filter's latest time, and whether it came with a key.
    pub(crate) fn latest(&self) -> Stamp {
        let header = self.shared.header();
        if self.shared.uses_time {
            return latest_of(header);
        }
        latest_of_stripes(header)
    }

    /// Returns the time of a heartbeat, for kinds that use time: by the clock. `None` while there
    /// is no lifetime to record, because nothing has happened yet, or time comes with the keys.
    pub(crate) fn alive(&self) -> Option<Stamp> {
        let (now, latest) = (self.now(), self.latest());
        (self.shared.uses_time && latest.time > 0 && !now.stream).then_some(now)
    }

    /// Returns the time of a clear: that of a key without a time, but it does not start the clock
    /// of a filter that nothing has moved yet, or only times of keys.
    pub(crate) fn of_clear(&self) -> Result<Stamp> {
        if self.shared.uses_time && self.latest() == Stamp::default() {
            return Ok(Stamp::default());
        }
        let now = self.now();
        if now.stream { Ok(now) } else { self.stamp(None) }
    }

    /// Returns the time of an alteration: by the clock, if that moves the filter, or if the kind
    /// only records times and the latest one is by a clock; otherwise the filter's latest time.
    pub(crate) fn of_alteration(&self) -> Stamp {
        let (now, latest) = (self.now(), self.latest());
        match self.alive() {
            Some(alive) => alive,
            None if !self.shared.uses_time && !latest.stream && now.time > latest.time => now,
            None => latest,
        }
    }

    /// Returns the time of a query without one, or of a heartbeat: by the clock once a clock has
    /// moved the filter, otherwise the filter's latest time.
    #[inline]
    pub(crate) fn now(&self) -> Stamp {
        if !self.shared.uses_time {
            let wall = self.shared.options.clock.coarse_wall();
            return Stamp { time: wall.unwrap_or(0), stream: false };
        }
        self.now_of_base()
    }

    fn now_of_base(&self) -> Stamp {
        let (header, clock) = (self.shared.header(), &self.shared.options.clock);
        let (latest, mut read) = (self.latest(), self.base.read(header, clock));
        if self.base.is_own() && read.is_none_or(|time| is_behind(time, latest.time)) {
            self.follow_image(read, latest);
            read = self.base.read(header, clock);
        }
        match read {
            Some(time) => Stamp { time: time.max(latest.time), stream: false },
            // Nothing has happened yet.
            None if latest == Stamp::default() && clock.ticks() => {
                Stamp { time: clock.wall().map_or(0, |wall| wall.min(LATEST)), stream: false }
            }
            None => Stamp { time: latest.time, stream: latest.stream || !clock.ticks() },
        }
    }

    /// For a handle with another clock than the image's: sets its own time base, or raises it,
    /// because a clock has begun to move the filter, or keys came with later times.
    #[cold]
    fn follow_image(&self, read: Option<Micros>, latest: Stamp) {
        let (header, clock) = (self.shared.header(), &self.shared.options.clock);
        // The offset is stored after the base is filled. Without it the time would be the wall
        // clock's, and stay so: until it is there, the filter is as of its latest time.
        let is_moved =
            || header.time_base().base().read()[0] != 0 && clock_offset::noted(header).is_some();
        let to = match read {
            Some(_) => Some(latest.time),
            None if latest.time > 0 && is_moved() => {
                time_now(header, self.shared.meta.downtime, clock)
            }
            None => None,
        };
        to.into_iter().for_each(|to| self.base.raise(header, clock, to));
    }

    /// Returns the time of a write: the given one, checked against the wall clock, or the time of
    /// the filter's clock.
    #[inline(always)] // out of line, an insert executes 20 more instructions
    pub(crate) fn stamp(&self, given: Option<Micros>) -> Result<Stamp> {
        match given {
            Some(time) => self.check_lead(time),
            None if self.is_moved() => Ok(self.clock_stamp()),
            None => Ok(self.now()),
        }
    }

    /// Returns the clock's time. The clock moves the filter from now on, beginning at its latest
    /// time.
    #[inline]
    fn clock_stamp(&self) -> Stamp {
        let read = self.base.read(self.shared.header(), &self.shared.options.clock);
        let latest = self.latest();
        match read {
            Some(time) if time > latest.time => Stamp { time, stream: false },
            Some(time) if !latest.stream && !is_behind(time, latest.time) => latest,
            _ => self.begin_clock(),
        }
    }

    /// Handles a time of keys ahead of the clock, or a filter that no clock has moved yet: the
    /// clock continues from the latest time.
    #[cold]
    fn begin_clock(&self) -> Stamp {
        let (now, latest) = (self.now().time, self.latest());
        self.continue_from(now.max(latest.time));
        Stamp { time: now.max(latest.least_by_clock()).min(LATEST), stream: false }
    }

    /// Reads the clock for an operation that is decided later. Reads no mapped word.
    #[inline]
    pub(crate) fn read_clock(&self) -> When {
        let clock = &self.shared.options.clock;
        match self.shared.uses_time {
            true => When::Elapsed(clock.elapsed()),
            false => When::Wall(clock.coarse_wall().unwrap_or(0)),
        }
    }

    /// Returns the reading of the clock.
    pub(crate) fn elapsed(&self) -> Micros {
        self.shared.options.clock.elapsed()
    }

    /// Returns whether the clock moves the filter.
    #[inline]
    fn is_moved(&self) -> bool {
        self.shared.uses_time && self.shared.options.clock.ticks()
    }

    /// Copies the clock, for operations that are decided before they are written. The caller has
    /// read the filter's latest time before.
    pub(crate) fn copy(&self) -> ClockCopy {
        // Before the base, which this may fill.
        let first = self.now();
        let base = self.base.words(self.shared.header()).read();
        let (uses_time, is_moved) = (self.shared.uses_time, self.is_moved());
        let elapsed = self.elapsed();
        ClockCopy::new(base, elapsed, first, (uses_time, is_moved))
    }

    /// Raises the time base as operations have raised the copy of it.
    pub(crate) fn raise_base(&self, to: i64) {
        self.base.words(self.shared.header()).raise(to);
        self.note_offset();
    }

    /// Lets the clock continue from this time, if it is later than the clock's.
    pub(crate) fn continue_from(&self, time: Micros) {
        self.base.raise(self.shared.header(), &self.shared.options.clock, time);
        self.note_offset();
    }

    /// Checks a given time against the wall clock.
    ///
    /// # Errors
    /// [`Error::TimeAhead`].
    pub(crate) fn check_lead(&self, time: Micros) -> Result<Stamp> {
        Ok(Stamp::given(time, self.shared.options.clock.wall(), self.shared.meta.max_lead)?)
    }

    /// Raises the time base to times that came with keys, and updates the clock offset: at the
    /// opening, once a second, at the close. Readers of an image that is shared do not call it.
    pub(crate) fn tend(&self) {
        let (header, clock) = (self.shared.header(), &self.shared.options.clock);
        if !self.shared.uses_time {
            return;
        }
        let latest = self.latest().time;
        if self.base.read(header, clock).is_some_and(|time| is_behind(time, latest)) {
            self.base.raise(header, clock, latest);
        }
        self.note_offset();
    }

    /// Takes account of records that another process has written, and that were applied here.
    /// `is_by_clock`: one of the records got its time from a clock. The clock then moves the filter
    /// here too, and takes account of keys whose times are ahead of it.
    pub(crate) fn note_applied(&self, is_by_clock: bool) {
        let (header, clock) = (self.shared.header(), &self.shared.options.clock);
        if is_by_clock && self.is_moved() && self.base.read(header, clock).is_none() {
            let now = time_now(header, self.shared.meta.downtime, clock);
            now.into_iter().for_each(|now| self.base.raise(header, clock, now));
        }
        self.tend();
    }

    /// Stores how far the filter's time is ahead of the wall clock, for the first opening after a
    /// reboot.
    fn note_offset(&self) {
        let (header, clock) = (self.shared.header(), &self.shared.options.clock);
        let time = self.base.read(header, clock).filter(|_| !self.base.is_own());
        let (Some(time), Some(wall)) = (time, clock.wall()) else {
            return;
        };
        let offset = (time.min(LATEST) as i64 - wall.min(LATEST) as i64) / 1000;
        if clock_offset::noted(header).is_none_or(|noted| noted.abs_diff(offset) >= OFFSET_STEP) {
            clock_offset::note(header, offset);
        }
    }

    /// Returns how far the filter's time is ahead of the clock, the system's for a handle without
    /// one, if that is worth reporting.
    pub(crate) fn clock_lead(&self) -> Option<Duration> {
        let wall = self.shared.options.clock.wall().or_else(|| Clock::system().wall());
        let wall = wall.filter(|_| self.shared.uses_time)?;
        let lead = Duration::from_micros(self.now().time.checked_sub(wall)?);
        (lead >= LEAD_REPORTED).then_some(lead)
    }

    /// Returns whether a time is ahead of the last one recorded in stripe 0 by more than the kind's
    /// [grace](ebbtide_core::kind::Events::grace): then it must be recorded first.
    #[inline]
    pub(crate) fn is_ahead(&self, time: Micros) -> bool {
        self.is_ahead_of(time, || self.recorded_time())
    }

    /// Returns the last time that was recorded in stripe 0.
    #[inline]
    pub(crate) fn recorded_time(&self) -> Micros {
        self.shared.header().stripe(0).time() >> 1
    }

    /// As [`Time::is_ahead`], of this time.
    #[inline(always)]
    pub(crate) fn is_ahead_of(&self, time: Micros, recorded: impl FnOnce() -> Micros) -> bool {
        let grace = self.shared.grace;
        grace < Micros::MAX && time > recorded().saturating_add(grace)
    }

    /// Returns the data on which an operation at this time is decided.
    #[inline]
    pub(crate) fn moment(&self, stamp: Stamp) -> Moment {
        self.moment_with(stamp, self.shared.totals())
    }

    /// As [`Time::moment`], with the exact sums.
    pub(crate) fn exact_moment(&self, stamp: Stamp) -> Moment {
        self.moment_with(stamp, self.shared.header().counters().sum())
    }

    #[inline]
    fn moment_with(&self, stamp: Stamp, totals: Totals) -> Moment {
        let latest = self.shared.header().time().read() >> 1;
        Moment { time: stamp.time, now: stamp.time.max(latest), totals }
    }

    /// Raises the filter's time, for kinds that use it.
    #[inline]
    pub(crate) fn raise(&self, time: u64) {
        if self.shared.uses_time {
            self.shared.header().time().raise(time);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
