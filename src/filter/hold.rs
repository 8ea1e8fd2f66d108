//! Holding stripes: waiting for living owners, taking over from dead ones, repairing what they left.
//!
//! Nobody enters a stripe through anything else, so nobody works on one that needs repair.

use super::engine::{Engine, Local};
use crate::error::{Error, Result};
use crate::processes::stripe_lock::{self, Acquired, Owner, Verdict};
use crate::processes::stripes::StripeGuard;
use crate::recovery::repair;
use crate::sync::{self, Ordering, patience};
use std::time::Duration;

/// How long a reader waits for writers to repair what one of them left; they look once a second.
const READERS_PATIENCE: Duration = patience(Duration::from_millis(5));
/// How often a reader waits so for the repair of what a dead writer left: some seconds. A handle without background threads
/// repairs only what it needs itself.
const REPAIR_WAITS: u32 = if cfg!(fuzzing) { 5 } else { 1000 };

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
            // The place that it left empty is not voided: recovery must know of it when the stripe is free.
            header.noting().fetch_add(1, Ordering::Relaxed);
            return stripe;
        }
        let after = stripe.entry().sums();
        // Who had not counted in the stripe had not counted here either.
        let inserts = after.inserts.wrapping_sub(before.inserts);
        let novelty = after.novelty.wrapping_sub(before.novelty);
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
                // Somebody else may have taken it over by now, and been stopped.
                drop(self.lock_soon(index));
            }
        }
    }

    /// Lets a reader sleep a little before it looks again at what a writer is changing. `idle` counts the times that nobody
    /// alive was at it.
    ///
    /// # Errors
    /// [`Error::Retired`] if no writer is left who could go on, [`Error::Locked`] if there are, and none of them does.
    pub(super) fn wait_for_writers(&self, stripe: usize, idle: &mut u32) -> Result<()> {
        sync::sleep(READERS_PATIENCE);
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
}
