//! The time of operations: what a host may give, and what it takes without a given time.
//!
//! Time enters a filter through records only. A host reads its clock and passes the reading; the
//! rules here are functions of the reading and the filter's latest time.

use crate::error::{Error, Result};
use crate::event::Micros;

/// The latest possible time: the highest bit is needed to mark stream times. It lies in the year
/// 294,000.
pub const LATEST: Micros = u64::MAX >> 1;

/// After a time that came with a key, the first one from a clock is later by this, so the state
/// shows which of the two moved it.
pub const MARK: Micros = 1;

/// A time, and whether it came with the key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationTime {
    /// Microseconds since the Unix epoch.
    pub time: Micros,
    /// Whether the caller gave it, instead of a clock.
    pub stream: bool,
}

impl OperationTime {
    /// Returns the time as stored in sums: doubled, plus one if it came with its key. Of two equal
    /// times, the one from a stream is therefore the maximum.
    #[must_use]
    #[inline]
    pub const fn word(self) -> u64 {
        self.time << 1 | self.stream as u64
    }

    /// Returns the time of a word from [`OperationTime::word`].
    #[must_use]
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { time: word >> 1, stream: word & 1 != 0 }
    }

    /// Returns the time of an operation whose caller gives one.
    ///
    /// # Errors
    /// [`Error::TimeAhead`] if it is beyond [`LATEST`], or ahead of the wall clock, if there is
    /// one, by more than `max_lead`.
    #[inline]
    pub fn given(time: Micros, wall: Option<Micros>, max_lead: Micros) -> Result<Self> {
        let limit = wall.map_or(LATEST, |wall| wall.saturating_add(max_lead).min(LATEST));
        if time > limit {
            return Err(Error::TimeAhead { time, limit });
        }
        Ok(Self { time, stream: true })
    }

    /// Returns the least time that a clock may give an operation after this time: if this one came
    /// with its key, it is [`MARK`] later, so that the state shows that a clock has moved it since.
    #[must_use]
    #[inline]
    pub const fn least_by_clock(self) -> Micros {
        self.time.saturating_add(if self.stream { MARK } else { 0 })
    }

    /// Returns the time that an operation from the log of another filter has in a filter whose
    /// latest time is this one.
    ///
    /// One that came with its key stays as it is, and may be late. One of a clock is never before
    /// the filter's time: where logs are united, or kinds without time had a clock that was set
    /// back, it would be late although it was the latest.
    #[must_use]
    pub fn taking_over(self, recorded: Self) -> Self {
        let least = if recorded.stream { 0 } else { self.least_by_clock() };
        Self { time: recorded.time.max(least).min(LATEST), ..recorded }
    }

    /// Returns the time of an operation whose caller gives none, for a host whose only clock is the
    /// wall clock, in a filter whose latest time is this one.
    ///
    /// Time never decreases. A filter whose latest time came with a key takes none from the clock,
    /// which may be years away from its stream: time then stands still until the next given one.
    #[must_use]
    pub fn by_clock(self, wall: Option<Micros>) -> Self {
        match wall {
            Some(wall) if !self.stream => {
                Self { time: wall.min(LATEST).max(self.time), stream: false }
            }
            _ => Self { time: self.time, stream: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_time_and_source_and_of_equal_times_the_streams_is_the_greater() {
        for time in [0, 1, 1 << 40, LATEST] {
            for stream in [false, true] {
                let taken = OperationTime { time, stream };
                assert_eq!(OperationTime::from_word(taken.word()), taken);
            }
            let [clock, stream] = [false, true].map(|stream| OperationTime { time, stream });
            assert_eq!(clock.word().max(stream.word()), stream.word());
        }
    }

    #[test]
    fn a_given_time_is_refused_beyond_the_lead_and_beyond_the_latest() {
        let given = |time, wall, lead| OperationTime::given(time, wall, lead);
        let stream = |time| Ok(OperationTime { time, stream: true });
        assert_eq!(given(110, Some(100), 10), stream(110));
        assert_eq!(given(111, Some(100), 10), Err(Error::TimeAhead { time: 111, limit: 110 }));
        assert_eq!(given(LATEST, None, 0), stream(LATEST));
        let (time, limit) = (LATEST + 1, LATEST);
        assert_eq!(given(time, None, 0), Err(Error::TimeAhead { time, limit }));
        assert_eq!(given(time, Some(u64::MAX), 1), Err(Error::TimeAhead { time, limit }));
    }

    #[test]
    fn a_recorded_time_of_a_clock_is_never_late_and_one_of_a_key_stays() {
        let at = |time, stream| OperationTime { time, stream };
        for latest in [at(5, false), at(5, true)] {
            assert_eq!(latest.taking_over(at(9, false)), at(9, false));
            assert_eq!(latest.taking_over(at(3, true)), at(3, true));
            assert_eq!(latest.taking_over(at(u64::MAX, true)), at(LATEST, true));
        }
        assert_eq!(at(5, false).taking_over(at(3, false)), at(5, false));
        // The state shows that a clock has moved it since.
        assert_eq!(at(5, true).taking_over(at(5, false)), at(6, false));
        assert_eq!(at(LATEST, true).taking_over(at(0, false)), at(LATEST, false));
    }

    #[test]
    fn a_clock_never_moves_a_filter_back_and_never_moves_one_of_a_stream() {
        let at = |time, stream| OperationTime { time, stream };
        assert_eq!(at(0, false).by_clock(Some(7)), at(7, false));
        assert_eq!(at(9, false).by_clock(Some(7)), at(9, false));
        assert_eq!(at(0, false).by_clock(Some(u64::MAX)), at(LATEST, false));
        assert_eq!(at(5, true).by_clock(Some(7)), at(5, true));
        assert_eq!(at(5, false).by_clock(None), at(5, true));
    }
}
