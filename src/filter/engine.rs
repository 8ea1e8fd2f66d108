//! The parts of an open filter, and its time.

use super::checkpoint::Snapshots;
use super::commit::Committer;
use super::duties::Bell;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::kinds::{Micros, Moment, Totals};
use crate::live::Image;
use crate::media::Media;
use crate::meta::Meta;
use crate::options::{Downtime, Options};
use crate::processes::slots::Slot;
use crate::processes::stripes::{StripeGuard, Stripes};
use crate::sync::Ordering;
use crate::wal::{Log, Segment};
use std::sync::Arc;

/// What a stripe keeps for this handle.
#[derive(Debug, Default)]
pub struct Local {
    /// The segment this stripe wrote to last.
    pub segment: Option<Arc<Segment>>,
}

/// An open filter.
#[derive(Debug)]
pub struct Engine {
    pub(super) media: Arc<dyn Media>,
    pub(super) meta: Meta,
    pub(super) options: Options,
    pub(super) image: Image,
    pub(super) log: Log,
    pub(super) stripes: Stripes<Local>,
    pub(super) committer: Committer,
    pub(super) snapshots: Snapshots,
    pub(super) bell: Bell,
    pub(super) time_base: TimeBase,
    /// The proof that this handle lives. Last, so that everything else is gone before it is.
    pub(super) _slot: Slot,
}

/// Where the filter's time stood when the handle was opened.
#[derive(Debug, Clone, Copy)]
pub struct TimeBase {
    filter: Micros,
    elapsed: Micros,
}

impl TimeBase {
    /// The base for a filter whose latest time is `last`: from there on time goes by what the clock measures,
    /// not by what it reads, so that setting the wall clock changes nothing.
    #[must_use]
    pub fn new(clock: &Clock, downtime: Downtime, last: Micros) -> Self {
        let wall = clock.wall().unwrap_or(last);
        let filter = match downtime {
            Downtime::Freeze if last > 0 => last,
            Downtime::Age | Downtime::Freeze => last.max(wall),
        };
        Self { filter, elapsed: clock.elapsed() }
    }
}

/// A time, and whether it came with the key.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Microseconds since the Unix epoch.
    pub time: Micros,
    /// Given by the caller, not read from a clock.
    pub stream: bool,
}

impl Engine {
    /// Takes a stripe: 0 for block 0, else one more than the share of the key-hash space.
    #[inline]
    pub(super) fn lock(&self, stripe: usize) -> StripeGuard<'_, Local> {
        self.stripes.lock(self.image.header(), stripe)
    }

    /// The sums as read.
    #[inline]
    pub(super) fn totals(&self) -> Totals {
        let header = self.image.header();
        // Relaxed: hints for steps, which are decided from them and recorded.
        Totals {
            inserts: header.inserts().load(Ordering::Relaxed),
            novelty: header.novelty().load(Ordering::Relaxed),
        }
    }

    /// The filter's latest time, and whether it came with a key.
    pub(super) fn latest(&self) -> Stamp {
        let header = self.image.header();
        let stamped = if self.meta.kind.uses_time() {
            header.time().load(Ordering::Relaxed)
        } else {
            let stripes = 0..header.stripe_count();
            stripes.map(|at| header.stripe(at).sums().time).max().unwrap_or(0)
        };
        Stamp { time: stamped >> 1, stream: stamped & 1 != 0 }
    }

    /// The time of an operation: the one given, checked against the wall clock, or what the filter's clock says.
    pub(super) fn stamp(&self, given: Option<Micros>) -> Result<Stamp> {
        if let Some(time) = given {
            return self.check_lead(time);
        }
        if !self.meta.kind.uses_time() {
            let time = self.options.clock.coarse_wall().unwrap_or(0);
            return Ok(Stamp { time, stream: false });
        }
        let latest = self.latest();
        let measured = self.options.clock.wall().is_some() && !latest.stream;
        if !measured {
            // Fed with stream times: no other clock may move it.
            return Ok(Stamp { time: latest.time, stream: true });
        }
        let passed = self.options.clock.elapsed().saturating_sub(self.time_base.elapsed);
        let time = self.time_base.filter.saturating_add(passed).max(latest.time);
        Ok(Stamp { time, stream: false })
    }

    fn check_lead(&self, time: Micros) -> Result<Stamp> {
        // The highest bit makes room for the mark beside it; it lies in the year 294,000.
        let mut limit = u64::MAX >> 1;
        if let Some(wall) = self.options.clock.wall() {
            let lead = u64::try_from(self.meta.max_lead.as_micros()).unwrap_or(u64::MAX);
            limit = limit.min(wall.saturating_add(lead));
        }
        if time > limit {
            return Err(Error::TimeAhead { time, limit });
        }
        Ok(Stamp { time, stream: true })
    }

    /// What is known when an operation at this time is decided.
    #[inline]
    pub(super) fn moment(&self, stamp: Stamp) -> Moment {
        let latest = self.image.header().time().load(Ordering::Relaxed) >> 1;
        Moment { time: stamp.time, now: stamp.time.max(latest), totals: self.totals() }
    }

    /// The error of a poisoned filter.
    pub(super) fn poisoned(&self) -> Error {
        let cause = self.committer.cause().unwrap_or_else(|| "an operation panicked".to_owned());
        Error::Poisoned { path: self.media.path().to_path_buf(), cause }
    }
}
