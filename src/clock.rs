//! Time as the engine sees it: timestamps, and the clock that a caller passes.
//!
//! Only the handle reads a clock, and a reading enters the filter's state only through records.
//! Kinds, replay and repair never see a clock. This module does not keep time from running
//! backwards inside a filter, or continue it after a reboot: `engine/time/filter_time.rs` and
//! `engine/time/time_over_reboots.rs` do.

use crate::platform::system;
use crate::primitives::mutex::Mutex;
use ebbtide_core::hash::short_checksum;
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: microseconds since the Unix epoch, leap seconds not counted.
///
/// Arithmetic with a [`Duration`] takes whole microseconds and saturates at the epoch and at the
/// latest timestamp, as the constructors do.
///
/// ```
/// use ebbtide::Timestamp;
/// use std::time::{Duration, SystemTime};
///
/// let sent = Timestamp::from_unix_millis(1_700_000_000_000);
/// assert_eq!(sent + Duration::from_secs(2), Timestamp::from_unix_millis(1_700_000_002_000));
/// assert_eq!((sent + Duration::from_secs(2)).since(sent), Duration::from_secs(2));
/// assert_eq!(Timestamp::from(SystemTime::from(sent)), sent);
/// assert!(sent < Timestamp::now());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the time of the system's clock, in whole microseconds; the epoch if that clock is
    /// set before it.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(shuttle)]
        return crate::primitives::scheduled::wall().into();
        #[cfg(not(shuttle))]
        SystemTime::now().into()
    }

    /// Returns the time elapsed since `earlier`; zero if this is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time `millis` milliseconds after the Unix epoch, saturating at the latest
    /// timestamp.
    #[must_use]
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Returns the time `micros` microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_unix_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the whole milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_unix_millis(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_unix_micros(self) -> u64 {
        self.0
    }
}

impl From<SystemTime> for Timestamp {
    /// Maps times before the Unix epoch to the epoch, and times out of range to the latest
    /// timestamp.
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, micros))
    }
}

impl From<Timestamp> for SystemTime {
    /// Never fails where the system's time has 64 bits of seconds, which holds on every supported
    /// platform.
    fn from(time: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(time.0)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

impl SubAssign<Duration> for Timestamp {
    fn sub_assign(&mut self, by: Duration) {
        *self = *self - by;
    }
}

/// Seconds since the Unix epoch with six decimals, for example `1700000000.000250`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// The source of a handle's time.
///
/// ```
/// use ebbtide::{Clock, ManualClock, Timestamp};
/// use std::time::Duration;
///
/// let hand = ManualClock::new(Timestamp::from_unix_millis(1_000));
/// let clock = Clock::from(hand.clone());
/// hand.advance(Duration::from_secs(60)); // `clock` now reads 61 s after the epoch
/// # drop(clock);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Stream,
    Manual(ManualClock),
}

impl Clock {
    /// Returns the system's clock, the default. As long as the machine runs, a filter's time
    /// advances evenly with the monotonic clock, open or closed, through suspends and changes of
    /// the wall clock. Across a reboot it advances by the wall clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// Returns no clock: time comes only with the keys, and stands still in between. There is
    /// nothing to which a key's time is compared: through such a handle
    /// [`Options::max_lead`](crate::Options::max_lead) holds no time back, so that old streams and
    /// those from the future can be replayed.
    #[must_use]
    pub const fn stream() -> Self {
        Self(Source::Stream)
    }

    /// Returns the microseconds since the Unix epoch, or `None` for stream time.
    pub(crate) fn wall(&self) -> Option<u64> {
        match &self.0 {
            Source::System => Some(read(ClockId::Realtime)),
            Source::Stream => None,
            Source::Manual(clock) => Some(clock.hands.lock().wall),
        }
    }

    /// As [`Clock::wall`], but cheaper and some milliseconds late: for kinds that only record the
    /// time.
    #[inline]
    pub(crate) fn coarse_wall(&self) -> Option<u64> {
        match &self.0 {
            Source::System => Some(read(system::COARSE_WALL)),
            _ => self.wall(),
        }
    }

    /// Returns whether there is a clock: false for stream time.
    #[inline]
    pub(crate) const fn ticks(&self) -> bool {
        !matches!(self.0, Source::Stream)
    }

    /// Returns a number, not 0, that two clocks share if and only if their [`Clock::elapsed`] is
    /// the same. It is the time namespace for the system's clock, or 1 on systems without one, and
    /// unique for a manual clock. `None` for stream time.
    pub(crate) fn identity(&self) -> Option<u64> {
        use std::os::unix::fs::MetadataExt;
        /// The inodes of the namespaces that a machine starts with lie between these.
        const FIXED: std::ops::RangeInclusive<u64> = 0xEFFF_FFF0..=0xEFFF_FFFF;
        match &self.0 {
            Source::System => {
                let space = std::fs::metadata("/proc/self/ns/time").map_or(1, |found| found.ino());
                let is_first = space == 1 || FIXED.contains(&space);
                Some(if is_first { space } else { with_offsets(space) })
            }
            Source::Stream => None,
            Source::Manual(clock) => Some(clock.identity),
        }
    }

    /// Returns the microseconds since a fixed moment, suspends included; never decreases while the
    /// machine runs. Always 0 for stream time.
    pub(crate) fn elapsed(&self) -> u64 {
        match &self.0 {
            Source::System => read(system::SINCE_BOOT),
            Source::Stream => 0,
            Source::Manual(clock) => clock.hands.lock().elapsed,
        }
    }
}

/// Returns a number for a time namespace: the system gives its inode to a later one with other
/// offsets.
fn with_offsets(inode: u64) -> u64 {
    let offsets = std::fs::read("/proc/self/timens_offsets").unwrap_or_default();
    short_checksum(&offsets, inode).max(1)
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(Source::Manual(clock))
    }
}

/// A clock that only the program moves: for tests and replays. Clones share their hands.
///
/// It has two hands, as the system has two clocks: the wall clock, which [`ManualClock::set_wall`]
/// may step in either direction, and the elapsed time, which only grows. A second `ManualClock` is
/// an independent clock: to a filter that is opened with it, the time in between is as unknown as
/// after a reboot of the machine. (`libfaketime` has no effect on a filter: it does not intercept
/// the system calls that read the system's clocks.)
#[derive(Debug, Clone)]
pub struct ManualClock {
    hands: Arc<Mutex<Hands>>,
    /// Random, so that no clock of another process shares it; the highest bit distinguishes it
    /// from an inode.
    identity: u64,
}

/// In microseconds. `wall` can be set freely and `elapsed` only grows, as the system's two clocks
/// do when an administrator corrects one of them.
#[derive(Debug)]
struct Hands {
    wall: u64,
    elapsed: u64,
}

impl ManualClock {
    /// Returns a clock that shows `time`.
    #[must_use]
    pub fn new(time: Timestamp) -> Self {
        let identity = RandomState::new().hash_one(time) | 1 << 63;
        Self { hands: Arc::new(Mutex::new(Hands { wall: time.0, elapsed: 0 })), identity }
    }

    /// Steps the wall clock alone, in either direction, as an administrator or a time service does.
    /// No time passes: the time of a filter, open or closed, does not change.
    pub fn set_wall(&self, time: Timestamp) {
        self.hands.lock().wall = time.0;
    }

    /// Sets the clock to a time. If it lies ahead, that much time passes. If it lies behind, only
    /// the wall clock is set, as by [`ManualClock::set_wall`], and no time passes.
    pub fn set(&self, time: Timestamp) {
        let mut hands = self.hands.lock();
        hands.elapsed = hands.elapsed.saturating_add(time.0.saturating_sub(hands.wall));
        hands.wall = time.0;
    }

    /// Moves the clock ahead by whole microseconds, saturating at the latest time.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands.lock();
        hands.elapsed = hands.elapsed.saturating_add(micros(by));
        hands.wall = hands.wall.saturating_add(micros(by));
    }
}

/// Returns whole microseconds, saturating.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Reads one of the system's clocks; a wall clock set before the epoch reads 0.
#[inline]
fn read(clock: ClockId) -> u64 {
    const MOST_SECONDS: i64 = 1 << 40;
    let time = clock_gettime(clock);
    let seconds = time.tv_sec.clamp(0, MOST_SECONDS) as u64;
    seconds * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_convert_and_saturate() {
        assert_eq!(Timestamp::from_unix_millis(7).as_unix_micros(), 7000);
        assert_eq!(Timestamp::from_unix_micros(7999).as_unix_millis(), 7);
        assert_eq!(Timestamp::from_unix_millis(u64::MAX).as_unix_micros(), u64::MAX);
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)), Timestamp::default());
        let later = UNIX_EPOCH + Duration::from_micros(1_500_000);
        assert_eq!(Timestamp::from(later), Timestamp::from_unix_millis(1500));
        assert_eq!(
            Timestamp::from_unix_micros(1_700_000_000_000_250).to_string(),
            "1700000000.000250"
        );
    }

    #[test]
    fn every_stamp_is_a_system_time_and_reads_back() {
        for micros in [0, 1, 999_999, 1_700_000_000_000_250, u64::MAX - 1, u64::MAX] {
            let stamp = Timestamp::from_unix_micros(micros);
            assert_eq!(Timestamp::from(SystemTime::from(stamp)), stamp, "{micros}");
        }
    }

    #[test]
    fn arithmetic_saturates_at_the_epoch_and_at_the_last_stamp() {
        let [epoch, last] = [0, u64::MAX].map(Timestamp::from_unix_micros);
        let second = Duration::from_secs(1);
        let mut moved = Timestamp::from_unix_millis(1500);
        moved += second;
        assert_eq!(moved, Timestamp::from_unix_millis(2500));
        moved -= second;
        assert_eq!(moved - second, Timestamp::from_unix_millis(500));
        assert_eq!((epoch - second, last + second), (epoch, last));
        assert_eq!((epoch + Duration::MAX, last - Duration::MAX), (last, epoch));
        assert_eq!(moved.since(moved + second), Duration::ZERO);
        assert_eq!((moved + Duration::from_nanos(1999)).since(moved), Duration::from_micros(1));
    }

    #[test]
    fn now_is_the_time_of_the_systems_clock() {
        let before = Timestamp::from(SystemTime::now());
        // Ten minutes either way: a tolerance for any adjustment of the clock meanwhile.
        assert!(Timestamp::now().0.abs_diff(before.0) < 600_000_000);
    }

    #[test]
    fn the_system_clock_tells_the_time_of_day_and_never_steps_back() {
        let before = Timestamp::from(SystemTime::now()).as_unix_micros();
        let clock = Clock::default();
        let wall = clock.wall().expect("the system knows the time");
        let coarse = clock.coarse_wall().expect("the system knows the time");
        // Ten minutes either way: enough to distinguish units and clocks, whatever adjusts them
        // meanwhile.
        assert!(wall.abs_diff(before) < 600_000_000 && coarse.abs_diff(before) < 600_000_000);
        let first = clock.elapsed();
        assert!(first > 0 && clock.elapsed() >= first);
    }

    #[test]
    fn stream_time_has_no_clock() {
        let clock = Clock::stream();
        assert_eq!((clock.wall(), clock.coarse_wall(), clock.elapsed()), (None, None, 0));
    }

    #[test]
    fn clones_of_a_manual_clock_move_together() {
        let hand = ManualClock::new(Timestamp::from_unix_micros(100));
        let clock = Clock::from(hand.clone());
        let start = clock.elapsed();
        hand.advance(Duration::from_micros(20));
        hand.clone().set(Timestamp::from_unix_micros(150));
        assert_eq!((clock.wall(), clock.coarse_wall()), (Some(150), Some(150)));
        assert_eq!(clock.elapsed() - start, 50);
    }

    #[test]
    fn a_manual_clock_set_back_continues_to_count_forward() {
        let hand = ManualClock::new(Timestamp::from_unix_micros(100));
        let clock = Clock::from(hand.clone());
        hand.set(Timestamp::from_unix_micros(40));
        assert_eq!((clock.wall(), clock.elapsed()), (Some(40), 0));
        hand.set(Timestamp::from_unix_micros(50));
        assert_eq!((clock.wall(), clock.elapsed()), (Some(50), 10));
        hand.set_wall(Timestamp::from_unix_micros(90));
        assert_eq!((clock.wall(), clock.elapsed()), (Some(90), 10));
        hand.advance(Duration::MAX);
        assert_eq!((clock.wall(), clock.elapsed()), (Some(u64::MAX), u64::MAX));
    }

    #[test]
    fn clocks_that_measure_the_same_have_one_identity_and_others_have_not() {
        let hand = ManualClock::new(Timestamp::from_unix_micros(100));
        let other = ManualClock::new(Timestamp::from_unix_micros(100));
        let [one, clone, other] =
            [hand.clone(), hand, other].map(|hand| Clock::from(hand).identity());
        assert_eq!(one, clone);
        assert_ne!(one, other);
        let system = Clock::system().identity();
        assert!(system.is_some_and(|it| it != 0) && system == Clock::system().identity());
        assert!(system != one && Clock::stream().identity().is_none());
        assert_eq!((Clock::system().ticks(), Clock::stream().ticks()), (true, false));
    }
}
