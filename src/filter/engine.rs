//! The parts of an open filter, its stripes, and its time.

use super::checkpoint::Snapshots;
use super::commit::Committer;
use super::duties::Bell;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::fork::Guard;
use crate::kinds::{Micros, Moment, Totals};
use crate::live::Image;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::options::{Downtime, Options};
use crate::processes::slots::Slots;
use crate::processes::stripe_lock::{self, Acquired, Owner, Verdict};
use crate::processes::stripes::{StripeGuard, Stripes};
use crate::recovery::repair;
use crate::sync::{AtomicU64, Ordering};
use crate::wal::{Log, Segment};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// How long a reader waits for writers to repair what one of them left; they look once a second.
const READERS_PATIENCE: Duration = Duration::from_millis(5);
/// How often a reader waits so for the repair of what a dead writer left: some seconds. A handle without background threads
/// repairs only what it needs itself.
const REPAIR_WAITS: u32 = 1000;

/// How far the lanes of the first threads of two slots lie apart.
const LANES_APART: usize = 3;

/// The lane of the next thread that asks for one.
static NEXT_LANE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's lane, in every filter.
    static LANE: usize = NEXT_LANE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// What a stripe keeps for this handle.
#[derive(Debug, Default)]
pub struct Local {
    /// The segment this stripe wrote to last.
    pub segment: Option<Arc<Segment>>,
}

/// An open filter.
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
    /// The word of stripe 0 when it was last given up on: whoever held it then is not waited for again.
    pub(super) given_up: AtomicU64,
    pub(super) access: Access,
    /// Tells a child made by fork from the process that opened the filter.
    pub(super) guard: Guard,
    /// The proof that this handle lives. Last, so that everything else is gone before it is.
    pub(super) slots: Arc<Slots>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Engine");
        shown.field("path", &self.media.path()).field("kind", &self.meta.kind.name());
        shown.finish_non_exhaustive()
    }
}

/// Where the filter's time stood when its image was made.
#[derive(Debug, Clone, Copy)]
pub struct TimeBase {
    pub(super) filter: Micros,
    pub(super) elapsed: Micros,
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
    /// Takes a stripe: 0 for block 0, else one more than the share of the key-hash space. Waits for living owners,
    /// stopped ones too; what a dead one left is repaired first.
    #[inline]
    pub(super) fn lock(&self, stripe: usize) -> StripeGuard<'_, Local> {
        match self.stripes.try_lock(self.image.header(), stripe) {
            Some(guard) => guard,
            None => self.wait_for(stripe),
        }
    }

    #[cold]
    fn wait_for(&self, stripe: usize) -> StripeGuard<'_, Local> {
        loop {
            // This judge never gives up.
            if let Some(guard) = self.lock_judged(stripe, &|owner| self.judge(owner)) {
                return guard;
            }
        }
    }

    /// Takes stripe 0 unless a process that does not come on keeps it.
    pub(super) fn lock_events(&self) -> Option<StripeGuard<'_, Local>> {
        // Without the mark of those who wait. Relaxed, as all of these: at worst we wait once more, or once less.
        let word = self.image.header().stripe(0).lock_word();
        let holder = || word.load(Ordering::Relaxed) & !stripe_lock::WAITERS;
        let given_up = self.given_up.load(Ordering::Relaxed);
        if given_up != 0 && given_up == holder() {
            return None;
        }
        let guard = self.lock_soon(0);
        let now_given_up = if guard.is_none() { holder() } else { 0 };
        if now_given_up != given_up {
            self.given_up.store(now_given_up, Ordering::Relaxed);
        }
        guard
    }

    /// Takes a stripe unless another living handle keeps it for more than some milliseconds.
    pub(super) fn lock_soon(&self, stripe: usize) -> Option<StripeGuard<'_, Local>> {
        let impatient = |owner| match self.judge(owner) {
            Verdict::Wait => Verdict::GiveUp,
            other => other,
        };
        self.lock_judged(stripe, &impatient)
    }

    fn lock_judged(
        &self,
        stripe: usize,
        judge: &dyn Fn(Owner) -> Verdict,
    ) -> Option<StripeGuard<'_, Local>> {
        match self.stripes.lock(self.image.header(), stripe, judge)? {
            (guard, Acquired::Free) => Some(guard),
            (guard, Acquired::TakenOver(_)) => Some(self.repaired(guard)),
        }
    }

    /// Dead if its slot was taken again since, or is nobody's now.
    pub(super) fn judge(&self, owner: Owner) -> Verdict {
        // Acquire: pairs with the Release of whoever took the slot since.
        let term = self.image.header().slot_term(owner.slot.into()).load(Ordering::Acquire);
        let dead = owner.term < term || !self.slots.is_alive(owner.slot);
        if dead { Verdict::Dead } else { Verdict::Wait }
    }

    /// Repairs a stripe that was taken over.
    #[cold]
    fn repaired<'a>(&'a self, mut stripe: StripeGuard<'a, Local>) -> StripeGuard<'a, Local> {
        let (header, index) = (self.image.header(), stripe.index());
        let before = stripe.entry().sums();
        if let Err(error) = self.repair(index) {
            self.poison(format!("what a dead process left could not be repaired ({error})"));
            return stripe;
        }
        let after = stripe.entry().sums();
        // Who had not counted in the stripe had not counted here either.
        let (inserts, novelty) = (after.inserts - before.inserts, after.novelty - before.novelty);
        header.tally().count(self.lane(), inserts, novelty);
        self.raise_time(after.time);
        if index == 0 {
            self.confirm_events(&mut stripe);
        } else if let Some(mut events) = self.lock_events() {
            self.confirm_events(&mut events);
        }
        stripe
    }

    fn repair(&self, index: usize) -> Result<()> {
        let header = self.image.header();
        loop {
            // Acquire: pairs with the Release of the checkpoint that raised it.
            let ground = header.snapshot().load(Ordering::Acquire);
            let from = repair::from(&self.image, index, ground);
            // Acquire: pairs with the Release in `make_room`.
            let end = header.allocated().load(Ordering::Acquire);
            let segments = from.map_or(Ok(Vec::new()), |from| self.log.map(from, end));
            match segments {
                // Nobody removes log from the newest snapshot on, but that may be newer by now.
                Err(error)
                    if error.is_not_found()
                        && header.snapshot().load(Ordering::Acquire) > ground => {}
                segments => {
                    let kind = &*self.meta.kind;
                    return repair::stripe(&self.image, kind, index, &segments?, from);
                }
            }
        }
    }

    /// Repairs every stripe that a dead process holds.
    pub(super) fn repair_all(&self) {
        let header = self.image.header();
        for index in 0..header.stripe_count() {
            let word = header.stripe(index).lock_word().load(Ordering::Relaxed);
            let holder = stripe_lock::holder(word);
            let ours = self.stripes.owner();
            if holder.is_some_and(|holder| holder != ours && self.judge(holder) == Verdict::Dead) {
                drop(self.lock(index));
            }
        }
    }

    /// Whether this handle may read only.
    #[inline]
    pub(super) fn is_reader(&self) -> bool {
        self.access == Access::Read
    }

    /// Lets a reader sleep a little before it looks again at what a writer is changing. `idle` counts the times that nobody
    /// alive was at it.
    ///
    /// # Errors
    /// [`Error::Retired`] if no writer is left who could go on, [`Error::Locked`] if there are, and none of them does.
    pub(super) fn wait_for_writers(&self, stripe: usize, idle: &mut u32) -> Result<()> {
        std::thread::sleep(READERS_PATIENCE);
        if !self.slots.anyone_else()? {
            return Err(self.retired());
        }
        let word = self.image.header().stripe(stripe).lock_word().load(Ordering::Relaxed);
        let at_work =
            stripe_lock::holder(word).is_some_and(|holder| self.judge(holder) != Verdict::Dead);
        *idle = if at_work { 0 } else { *idle + 1 };
        if *idle < REPAIR_WAITS {
            return Ok(());
        }
        Err(Error::Locked { path: self.media.path().to_path_buf() })
    }

    /// Makes sure that this process opened the filter, and is not a child made by fork since.
    #[inline]
    pub(super) fn check_process(&self) -> Result<()> {
        if self.guard.is_foreign() { Err(self.forked()) } else { Ok(()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { path: self.media.path().to_path_buf() }
    }

    /// Makes sure that writes are not refused; under a stripe, or as a hint.
    #[inline]
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.image.header().refuses() { Err(self.refused()) } else { Ok(()) }
    }

    #[cold]
    fn refused(&self) -> Error {
        if self.image.header().is_poisoned() { self.poisoned() } else { self.retired() }
    }

    /// The error of a handle whose image has been given up.
    pub(super) fn retired(&self) -> Error {
        Error::Retired { path: self.media.path().to_path_buf() }
    }

    /// Refuses all further writes, of all handles.
    pub(super) fn poison(&self, cause: String) {
        self.committer.blame(cause);
        self.image.header().poison();
    }

    /// The error of a poisoned filter.
    pub(super) fn poisoned(&self) -> Error {
        let cause = self.committer.cause();
        let cause = cause.unwrap_or_else(|| {
            "an operation panicked, or a sync failed in another process".to_owned()
        });
        Error::Poisoned { path: self.media.path().to_path_buf(), cause }
    }

    /// The lane of this thread in the tally of inserts.
    #[inline]
    pub(super) fn lane(&self) -> usize {
        // A thread that is ending takes any. Slots lie apart, so that the first threads of several processes do not meet.
        let thread = LANE.try_with(|lane| *lane).unwrap_or(0);
        thread + LANES_APART * usize::from(self.stripes.owner().slot)
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

    /// What is known when an operation at this time is decided; the sums may be a little too high, which is enough to find
    /// out cheaply that no step is due.
    #[inline]
    pub(super) fn moment(&self, stamp: Stamp) -> Moment {
        self.moment_with(stamp, self.image.header().tally().at_most())
    }

    /// The same with the sums as they are.
    pub(super) fn exact_moment(&self, stamp: Stamp) -> Moment {
        self.moment_with(stamp, self.image.header().tally().sum())
    }

    #[inline]
    fn moment_with(&self, stamp: Stamp, totals: Totals) -> Moment {
        let latest = self.image.header().time().load(Ordering::Relaxed) >> 1;
        Moment { time: stamp.time, now: stamp.time.max(latest), totals }
    }
}
