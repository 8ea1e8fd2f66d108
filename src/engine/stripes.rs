//! Acquiring stripes: waits for live owners, and takes over from dead ones, of which `dead_owners`
//! repairs what they left.
//!
//! All that works on what a stripe protects goes through this file, so no operation works on a
//! stripe that needs repair.

use crate::engine::dead_owners;
use crate::engine::shared::{Local, Shared};
use crate::engine::time::filter_time::Time;
use crate::engine::write::request::Waits;
use crate::error::{Error, Result};
use crate::locks::handle_stripes::StripeGuard;
use crate::locks::holder_names::locked;
use crate::locks::stripe_lock::{self, Acquired, Owner, Verdict};
use crate::primitives::{self, Hint, Instant, patience};
use crate::telemetry::{Timed, Work};
use std::sync::Arc;
use std::time::Duration;

/// The time that a reader waits for writers to repair a dead writer's stripe; writers check once a
/// second.
const READERS_PATIENCE: Duration = patience(Duration::from_millis(5));
/// The most such waits of a reader: some seconds in total. A handle without background threads
/// repairs only the stripes that it needs itself.
const REPAIR_WAITS: u32 = if cfg!(fuzzing) { 5 } else { 1000 };

/// The pause, during which writers proceed, before all stripes are tried again.
const PAUSE: Duration = patience(Duration::from_millis(20));

/// What a call that must not wait would have to wait for, in its error.
pub(crate) const HELD: &str = "another caller that holds a lock";

/// How long a caller waits for the live owner of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as it takes, also if the owner is stopped. The caller is part of closing, or closing
    /// waits for it.
    Always,
    /// As long as this operation may. It fails once the handle is closed.
    Operation(Waits),
    /// Some milliseconds. Like [`Wait::Always`], it also acquires for a closed handle.
    Briefly,
    /// [`PATIENCE`], for work that is tried again later. Like [`Wait::Always`], it also acquires
    /// for a closed handle.
    Patiently,
}

/// Longer than an owner usually keeps a stripe, even on a busy disk.
const PATIENCE: Duration = patience(Duration::from_secs(5));

impl Wait {
    /// Returns whether the caller acquires nothing once the handle is closed.
    #[inline]
    fn ends_with_handle(self) -> bool {
        matches!(self, Self::Operation(_))
    }

    /// Returns how long a sleeping caller waits, beyond the first milliseconds; `None` without a
    /// bound.
    fn limit(self) -> Option<Duration> {
        match self {
            Self::Briefly | Self::Operation(Waits::Never) => Some(Duration::ZERO),
            Self::Operation(Waits::AtMost(limit)) => Some(limit),
            Self::Patiently => Some(PATIENCE),
            Self::Always | Self::Operation(Waits::Always) => None,
        }
    }
}

/// The stripes of a handle, with repair.
#[derive(Debug)]
pub struct StripeLocks {
    shared: Arc<Shared>,
    time: Arc<Time>,
    /// The lock word of stripe 0 when a wait for it last ended without success: while the holder is
    /// the same, no caller waits again.
    abandoned: Hint,
}

impl StripeLocks {
    /// Creates the stripes of a handle.
    pub(crate) fn new(shared: Arc<Shared>, time: Arc<Time>) -> Self {
        Self { shared, time, abandoned: Hint::default() }
    }

    /// Acquires a stripe: 0 for the state block, otherwise one of [`Shared::stripe_of`]. A dead
    /// owner's stripe is repaired first.
    ///
    /// # Errors
    /// [`Error::WouldWait`] if a live owner keeps it for longer than `wait` allows,
    /// [`Error::Closed`], [`Error::Io`] if this process cannot open or map what repair needs; then
    /// nothing is acquired.
    // Inlined, because the caller knows which `wait` it is. `Ok(...?)` below moves the guard: if
    // the called function wrote it where the result is, an insert would read it from memory.
    #[inline(always)]
    pub(crate) fn acquire(&self, stripe: usize, wait: Wait) -> Result<StripeGuard<'_, Local>> {
        match self.shared.stripes.try_lock(self.shared.header(), stripe) {
            Some(guard) if wait.ends_with_handle() && self.shared.is_closed() => {
                Err(self.come_too_late(guard, Acquired::Free))
            }
            Some(guard) => Ok(guard),
            None => Ok(self.acquire_held(stripe, wait)?),
        }
    }

    /// As [`StripeLocks::acquire`], for a stripe that was not free.
    #[cold]
    fn acquire_held(&self, stripe: usize, wait: Wait) -> Result<StripeGuard<'_, Local>> {
        let (header, stripes) = (self.shared.header(), &self.shared.stripes);
        let acquired = if let Wait::Operation(Waits::Never) = wait {
            // The stripe of a dead owner is left to a caller that may take the time to repair it.
            stripes.try_lock_briefly(header, stripe).map(|guard| (guard, Acquired::Free))
        } else {
            let path = self.shared.path();
            let _waited = (wait != Wait::Briefly).then(|| Timed::begin(Work::StripeWait, path));
            stripes.lock(header, stripe, &self.judge_within(wait))
        };
        let is_closed = wait.ends_with_handle() && self.shared.is_closed();
        match acquired {
            Some((guard, acquired)) if is_closed => Err(self.come_too_late(guard, acquired)),
            Some((guard, Acquired::Free)) => Ok(guard),
            Some((guard, Acquired::TakenOver(dead))) => {
                let stripe_0 = || self.acquire(0, wait);
                dead_owners::repaired((&self.shared, &self.time), guard, dead, stripe_0)
            }
            None if is_closed => Err(self.shared.closed()),
            None => Err(self.shared.would_wait(HELD)),
        }
    }

    /// Returns a judge that abandons a live owner once it was waited for long enough.
    fn judge_within(&self, wait: Wait) -> impl Fn(Owner) -> Verdict {
        let (start, limit) = (Instant::now(), wait.limit());
        move |owner| {
            if wait.ends_with_handle() && self.shared.is_closed() {
                return Verdict::Abandon;
            }
            let is_over = || limit.is_some_and(|limit| start.elapsed() >= limit);
            match dead_owners::judge(&self.shared, owner) {
                Verdict::Wait if is_over() => Verdict::Abandon,
                verdict => verdict,
            }
        }
    }

    /// Disposes of a stripe that was acquired after the handle was closed. By then other processes
    /// treat this handle as dead.
    #[cold]
    pub(crate) fn come_too_late(&self, guard: StripeGuard<'_, Local>, acquired: Acquired) -> Error {
        match acquired {
            Acquired::Free => guard.release_unchanged(),
            // It needs repair, which is up to a live handle.
            Acquired::TakenOver(dead) => guard.give_back(dead),
        }
        self.shared.closed()
    }

    /// Acquires stripe 0 unless a process that makes no progress keeps it.
    pub(crate) fn lock_stripe_0(&self) -> Option<StripeGuard<'_, Local>> {
        // At worst there is one wait more or less.
        let word = self.shared.header().stripe(0).lock_word();
        let holder = || stripe_lock::held_now(word);
        let abandoned = self.abandoned.get();
        if abandoned != 0 && abandoned == holder() {
            return None;
        }
        let guard = self.acquire(0, Wait::Briefly).ok();
        // Other threads of this handle make progress, although the word stays the same.
        let ours = |word| stripe_lock::holder(word) == Some(self.shared.stripes.owner());
        let now_abandoned = Some(holder()).filter(|&word| guard.is_none() && !ours(word));
        let now_abandoned = now_abandoned.unwrap_or(0);
        if now_abandoned != abandoned {
            self.abandoned.set(now_abandoned);
        }
        guard
    }

    /// Acquires ordinary stripes, given in ascending order. While another owner keeps one, the
    /// others are released: their callers must not wait for that owner, too.
    ///
    /// # Errors
    /// As [`StripeLocks::acquire`].
    pub(crate) fn acquire_all(
        &self,
        stripes: &[usize],
        waits: Waits,
    ) -> Result<Vec<StripeGuard<'_, Local>>> {
        let start = Instant::now();
        let briefly = if waits.never() { waits } else { Waits::AtMost(Duration::ZERO) };
        loop {
            let mut held = Vec::with_capacity(stripes.len());
            let kept = stripes.iter().find_map(|&stripe| {
                let guard = self.acquire(stripe, Wait::Operation(briefly));
                guard.map(|guard| held.push(guard)).err().map(|error| (stripe, error))
            });
            let stripe = match kept {
                None => return Ok(held),
                Some((stripe, Error::WouldWait { .. })) if !waits.never() => stripe,
                Some((_, error)) => return Err(error),
            };
            drop(held);
            let left = waits.after(start.elapsed());
            if left == Waits::AtMost(Duration::ZERO) {
                return Err(self.shared.would_wait(HELD));
            }
            drop(self.acquire(stripe, Wait::Operation(left))?);
        }
    }

    /// Acquires stripe 0 after the stripes that `keys` acquires. While another owner keeps it,
    /// those are released: other callers must not wait for that owner, too.
    ///
    /// # Errors
    /// As [`StripeLocks::acquire`], and those of `keys`.
    pub(crate) fn acquire_with_stripe_0<T>(
        &self,
        waits: Waits,
        keys: impl Fn(Waits) -> Result<T>,
    ) -> Result<(T, StripeGuard<'_, Local>)> {
        let (start, mut left) = (Instant::now(), waits);
        loop {
            let keys = keys(left)?;
            let briefly = if waits.never() { waits } else { Waits::AtMost(Duration::ZERO) };
            match self.acquire(0, Wait::Operation(briefly)) {
                Err(Error::WouldWait { .. }) if !waits.never() => {}
                stripe_0 => return Ok((keys, stripe_0?)),
            }
            drop(keys);
            left = waits.after(start.elapsed());
            if left == Waits::AtMost(Duration::ZERO) {
                return Err(self.shared.would_wait(HELD));
            }
            drop(self.acquire(0, Wait::Operation(left))?);
        }
    }

    /// Acquires all stripes: ordinary ones first, stripe 0 last, the order in which inserts take
    /// them. If one is unavailable, releases all for a while: other callers must not wait for its
    /// owner.
    ///
    /// # Errors
    /// [`Error::Io`] as [`StripeLocks::acquire`]; [`Error::Closed`] if one is unavailable and the
    /// handle was closed.
    pub(crate) fn lock_all(&self) -> Result<Vec<StripeGuard<'_, Local>>> {
        let indexes = || (1..self.shared.header().stripe_count()).chain([0]);
        loop {
            let held = indexes().map(|index| self.acquire(index, Wait::Briefly));
            match held.collect() {
                Err(Error::WouldWait { .. }) if self.shared.is_closed() => {
                    return Err(self.shared.closed());
                }
                Err(Error::WouldWait { .. }) => primitives::sleep(PAUSE),
                held => return held,
            }
        }
    }

    /// Lets others have the processor after this many operations, if they wait for stripes of this
    /// handle. The caller holds no stripe.
    #[inline]
    pub(crate) fn be_courteous(&self, operations: usize, waits: Waits) {
        let yielding = self.shared.stripes.yielding();
        if yielding.is_asked_for() && matches!(waits, Waits::Always) {
            yielding.pause(operations.try_into().unwrap_or(u32::MAX));
        }
    }

    /// Repairs every stripe that a dead process holds, but for those that a live one repairs.
    ///
    /// # Errors
    /// [`Error::Io`] as [`StripeLocks::acquire`]; the other stripes are repaired.
    pub(crate) fn repair_all(&self) -> Result<()> {
        let header = self.shared.header();
        let mut repaired = Ok(());
        for index in 0..header.stripe_count() {
            let holder = stripe_lock::holder_now(header.stripe(index).lock_word());
            let ours = self.shared.stripes.owner();
            if holder.is_some_and(|holder| {
                holder != ours && dead_owners::judge(&self.shared, holder) == Verdict::Dead
            }) {
                match self.acquire(index, Wait::Briefly) {
                    // Another process has taken it over by now, and may have been stopped.
                    Err(Error::WouldWait { .. }) => {}
                    acquired => repaired = repaired.and(acquired.map(drop)),
                }
            }
        }
        repaired
    }

    /// Lets a reader sleep briefly before it looks again at a block that is being changed. `idle`
    /// counts the waits without a live owner of the stripe.
    ///
    /// # Errors
    /// [`Error::Retired`] if no writer is left that could continue, [`Error::Locked`] if there are
    /// writers, but none repairs the stripe.
    pub(crate) fn wait_for_writers(&self, stripe: usize, idle: &mut u32) -> Result<()> {
        primitives::sleep(READERS_PATIENCE);
        // The sessions of a retired image are reused by those of its successor.
        if self.shared.header().is_retired() || !self.shared.has_other_handles()? {
            return Err(self.shared.ended());
        }
        let word = self.shared.header().stripe(stripe).lock_word();
        let at_work = stripe_lock::holder_now(word)
            .is_some_and(|holder| dead_owners::judge(&self.shared, holder) != Verdict::Dead);
        *idle = if at_work { 0 } else { *idle + 1 };
        if *idle < REPAIR_WAITS {
            return Ok(());
        }
        Err(locked(self.shared.path()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
