//! The time base: how the filter's time continues over restarts, reboots and steps of the wall
//! clock.
//!
//! The base converts readings of a monotonic clock (`CLOCK_BOOTTIME`) into the filter's time. It
//! consists of one time of the filter, and the clock reading that belongs to it.
//!
//! It lives in the image. All handles with the same clock use it, and each image takes it over from
//! the previous one as long as the machine runs. The base is therefore set by the wall clock once
//! per boot, at the first opening; later steps of the wall clock have no effect. From then on only
//! the *clock offset* relates the filter's time to the wall clock: how far it is ahead. The offset
//! also survives a reboot. Nothing here changes the state.

use crate::clock::Clock;
use crate::engine::time::lease_time;
use crate::error::Result;
use crate::image::previous_image;
use crate::image::words::TimeWords;
use crate::image::{Control, clock_offset};
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::options::Downtime;
use crate::primitives::AtomicU64;
use ebbtide_core::kind::Micros;
use ebbtide_core::time::{LATEST, MARK, OperationTime as Stamp};

/// Returns whether the clock must be moved to reach the filter's latest time. A lag of up to the
/// [`MARK`] is ignored: times that came with keys carry it, and the time base does not.
#[inline]
pub(crate) fn is_behind(time: Micros, latest: Micros) -> bool {
    time.saturating_add(MARK) < latest
}

/// Returns the latest time in an image, for a kind that uses time.
pub(crate) fn latest_of(header: &Control) -> Stamp {
    Stamp::from_word(header.time().read())
}

/// Locates the time base of a handle.
#[derive(Debug)]
pub struct TimeBase {
    /// The handle's own base, if its clock is not that of the image.
    own: Option<[AtomicU64; 2]>,
}

/// Initialises a new image's time bases and clock offset from those of the previous image. The base
/// continues as long as the machine runs, unless time stands still while the filter is closed, or
/// the opener has another clock. `lease_clock`: the one that leases use.
///
/// # Errors
/// [`crate::Error::Io`] if the previous image cannot be read.
pub fn continue_time(
    media: &dyn Media,
    meta: &Meta,
    (clock, lease_clock): (&Clock, &Clock),
    header: &Control,
) -> Result<()> {
    if let Some(offset) = clock_offset::previous(media, meta.uuid)? {
        clock_offset::note(header, offset);
    }
    let Some(before) = previous_image::open(media, meta.uuid, Access::Read)? else {
        return Ok(());
    };
    let ours = clock.identity();
    lease_time::take_over(header, &before, lease_clock);
    let (base, which) = (before.time_base().base().read(), before.time_base().clock());
    if base[0] != 0 && meta.downtime == Downtime::Age && ours.is_none_or(|ours| ours == which) {
        header.time_base().begin_with(base, which);
    }
    Ok(())
}

/// Returns the filter's time at the first opening with a clock, or with a different clock; `None`
/// if only times that came with keys have moved it so far.
fn first_time(header: &Control, downtime: Downtime, clock: &Clock) -> Option<Micros> {
    let (latest, offset) = (latest_of(header), clock_offset::noted(header));
    if latest.time == 0 || (latest.stream && offset.is_none()) {
        return None;
    }
    time_now(header, downtime, clock)
}

/// Returns the time of a filter that a clock has moved, without a time base.
pub(crate) fn time_now(header: &Control, downtime: Downtime, clock: &Clock) -> Option<Micros> {
    let (latest, offset) = (latest_of(header), clock_offset::noted(header));
    match downtime {
        Downtime::Freeze => Some(latest.time),
        Downtime::Age => {
            let ahead = offset.unwrap_or(0).saturating_mul(1000);
            let time = clock.wall()?.saturating_add_signed(ahead).min(LATEST);
            Some(if is_behind(time, latest.time) { latest.time } else { time })
        }
    }
}

impl TimeBase {
    /// Creates the base of a handle on this image. The first handle with a clock initialises the
    /// image's base if it may write: it holds the opening byte, or has exclusive access.
    #[must_use]
    pub fn new(header: &Control, meta: &Meta, clock: &Clock, access: Access) -> Self {
        let shared = Self { own: None };
        let Some(ours) = clock.identity() else {
            return shared;
        };
        let found = header.time_base().clock();
        if found == ours || !meta.kind.uses_time() {
            return shared;
        }
        let first = first_time(header, meta.downtime, clock).unwrap_or(0);
        let read = clock.elapsed();
        if found != 0 || access == Access::Read {
            return Self { own: Some([AtomicU64::new(first), AtomicU64::new(read)]) };
        }
        header.time_base().begin_with([first, read], ours);
        shared
    }

    /// Returns whether the handle has its own, because its clock is not that of the image.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the words of the base that the handle uses.
    #[inline]
    pub(crate) fn words<'a>(&'a self, header: &'a Control) -> TimeWords<'a> {
        self.own.as_ref().map_or_else(|| header.time_base().base(), TimeWords::new)
    }

    /// Returns the filter's time by the clock; `None` without a clock, and while only times that
    /// came with keys have moved the filter.
    #[inline]
    pub(crate) fn read(&self, header: &Control, clock: &Clock) -> Option<Micros> {
        if !clock.ticks() {
            return None;
        }
        time_by(self.words(header).read(), clock.elapsed())
    }

    /// Sets the filter's time by the clock to `to`, unless it is later already.
    pub(crate) fn raise(&self, header: &Control, clock: &Clock, to: Micros) {
        let words = self.words(header);
        words.raise(raised_to(to, clock.elapsed(), words.read()[1]));
    }
}

/// Returns the filter's time by a time base, at this reading of its clock; `None` for an empty one.
#[inline]
pub(crate) fn time_by([filter, read]: [u64; 2], elapsed: Micros) -> Option<Micros> {
    let time = (filter as i64).saturating_add_unsigned(elapsed.saturating_sub(read));
    (filter != 0).then_some(time.max(0) as u64)
}

/// Returns the time of a base whose clock was read at `read` that is `to` at `elapsed`: a signed
/// number, which may lie before 1970, and never 0.
pub(crate) fn raised_to(to: Micros, elapsed: Micros, read: Micros) -> i64 {
    let passed = elapsed.saturating_sub(read);
    match (to.min(LATEST) as i64).saturating_sub_unsigned(passed) {
        0 => 1,
        raised => raised,
    }
}
