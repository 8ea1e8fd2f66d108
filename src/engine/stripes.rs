//! Acquiring stripes: waits for live owners, takes over from dead ones, and repairs what they left.
//!
//! All access to stripes goes through this file, so no operation works on a stripe that needs
//! repair.

use crate::engine::{Engine, Local};
use crate::error::{Error, Result};
use crate::locks::robust_word::{self, Acquired, Owner, Verdict};
use crate::locks::stripes::StripeGuard;
use crate::recovery::repair;
use crate::sync::{self, patience};
use std::time::Duration;

/// The time that a reader waits for writers to repair a dead writer's stripe; writers check once a
/// second.
const READERS_PATIENCE: Duration = patience(Duration::from_millis(5));
/// The number of such waits of a reader: some seconds in total. A handle without background threads
/// repairs only the stripes that it needs itself.
const REPAIR_WAITS: u32 = if cfg!(fuzzing) { 5 } else { 1000 };

impl Engine {
    /// Acquires a stripe: 0 for the state block, otherwise the share of the key-hash space plus 1.
    /// Waits for live owners, including stopped ones. A dead owner's stripe is repaired first.
    #[inline]
    pub(crate) fn lock(&self, stripe: usize) -> StripeGuard<'_, Local> {
        match self.stripes.try_lock(self.image.header(), stripe) {
            Some(guard) => guard,
            None => self.wait_for(stripe),
        }
    }

    /// As [`Engine::lock`], for an operation that may begin after the handle was closed; then it
    /// fails and acquires nothing.
    #[inline]
    pub(crate) fn lock_unless_closed(&self, stripe: usize) -> Result<StripeGuard<'_, Local>> {
        match self.stripes.try_lock(self.image.header(), stripe) {
            Some(guard) if self.is_closed() => Err(self.come_too_late(guard, Acquired::Free)),
            Some(guard) => Ok(guard),
            None => self.wait_unless_closed(stripe),
        }
    }

    #[cold]
    fn wait_unless_closed(&self, stripe: usize) -> Result<StripeGuard<'_, Local>> {
        let judge = |owner| if self.is_closed() { Verdict::GiveUp } else { self.judge(owner) };
        let header = self.image.header();
        match self.stripes.lock(header, stripe, &judge) {
            Some((guard, acquired)) if self.is_closed() => Err(self.come_too_late(guard, acquired)),
            Some((guard, acquired)) => Ok(self.entered(guard, acquired)),
            None => Err(self.closed()),
        }
    }

    /// Disposes of a stripe that was acquired after the handle was closed. By then other processes
    /// treat this handle as dead.
    #[cold]
    pub(crate) fn come_too_late(&self, guard: StripeGuard<'_, Local>, acquired: Acquired) -> Error {
        match acquired {
            Acquired::Free => guard.forgo(),
            // It needs repair, which is up to a live handle: the next caller takes it over from
            // this one.
            Acquired::TakenOver(_) => std::mem::forget(guard),
        }
        self.closed()
    }

    #[cold]
    fn wait_for(&self, stripe: usize) -> StripeGuard<'_, Local> {
        loop {
            // This judge never returns `GiveUp`.
            if let Some(guard) = self.lock_judged(stripe, &|owner| self.judge(owner)) {
                return guard;
            }
        }
    }

    /// Acquires stripe 0 unless a process that makes no progress keeps it.
    pub(crate) fn lock_events(&self) -> Option<StripeGuard<'_, Local>> {
        // At worst there is one wait more or less.
        let word = self.image.header().stripe(0).lock_word();
        let holder = || robust_word::held_now(word);
        let given_up = self.given_up.get();
        if given_up != 0 && given_up == holder() {
            return None;
        }
        let guard = self.lock_soon(0);
        let now_given_up = if guard.is_none() { holder() } else { 0 };
        if now_given_up != given_up {
            self.given_up.set(now_given_up);
        }
        guard
    }

    /// Acquires a stripe unless another live handle keeps it for more than some milliseconds.
    pub(crate) fn lock_soon(&self, stripe: usize) -> Option<StripeGuard<'_, Local>> {
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
        let (guard, acquired) = self.stripes.lock(self.image.header(), stripe, judge)?;
        Some(self.entered(guard, acquired))
    }

    /// Returns a newly acquired stripe, after repair if needed.
    fn entered<'a>(
        &'a self,
        guard: StripeGuard<'a, Local>,
        acquired: Acquired,
    ) -> StripeGuard<'a, Local> {
        match acquired {
            Acquired::Free => guard,
            Acquired::TakenOver(_) => self.repaired(guard),
        }
    }

    /// Returns whether an owner is dead: its session slot was taken again since, or is free now.
    pub(crate) fn judge(&self, owner: Owner) -> Verdict {
        let term = self.image.header().incarnation(owner.slot.into()).read();
        let dead = owner.term < term || !self.slots.is_alive(owner.slot);
        if dead { Verdict::Dead } else { Verdict::Wait }
    }

    /// Repairs a stripe that was taken over.
    #[cold]
    fn repaired<'a>(&'a self, mut stripe: StripeGuard<'a, Local>) -> StripeGuard<'a, Local> {
        let (header, index) = (self.image.header(), stripe.index());
        let before = stripe.entry().sums();
        let cleared = match self.repair(index) {
            Ok(cleared) => cleared,
            Err(error) => {
                self.poison(format!("what a dead process left could not be repaired ({error})"));
                // The slot that the dead process left empty is not voided: recovery must account
                // for it when the stripe is free.
                header.unheld_slots().add();
                return stripe;
            }
        };
        if cleared && index > 0 {
            // The dead owner held all stripes. The state block is unchanged until stripe 0 is
            // repaired too, and no insert may use it any more.
            drop(self.lock(0));
        }
        let after = stripe.entry().sums();
        // An owner that had not counted in the stripe had not counted here either.
        let inserts = after.inserts.wrapping_sub(before.inserts);
        let new_bits = after.new_bits.wrapping_sub(before.new_bits);
        header.counters().count(self.shard(), inserts, new_bits);
        self.raise_time(after.time);
        if index == 0 {
            self.confirm_events(&mut stripe);
        } else if let Some(mut events) = self.lock_events() {
            self.confirm_events(&mut events);
        }
        stripe
    }

    fn repair(&self, index: usize) -> Result<bool> {
        let header = self.image.header();
        loop {
            let ground = header.snapshot().read();
            let from = repair::from(&self.image, index, ground);
            let end = header.allocated().read();
            let segments = from.map_or(Ok(Vec::new()), |from| self.log.map(from, end));
            match segments {
                // Log from the newest snapshot on is never removed, but there may be a newer one by
                // now.
                Err(error) if error.is_not_found() && header.snapshot().read() > ground => {}
                segments => {
                    let kind = &*self.meta.kind;
                    return repair::stripe(&self.image, kind, index, &segments?, from);
                }
            }
        }
    }

    /// Repairs every stripe that a dead process holds.
    pub(crate) fn repair_all(&self) {
        let header = self.image.header();
        for index in 0..header.stripe_count() {
            let holder = robust_word::holder_now(header.stripe(index).lock_word());
            let ours = self.stripes.owner();
            if holder.is_some_and(|holder| holder != ours && self.judge(holder) == Verdict::Dead) {
                // Another process may have taken it over by now, and been stopped.
                drop(self.lock_soon(index));
            }
        }
    }

    /// Lets a reader sleep briefly before it looks again at a block that is being changed. `idle`
    /// counts the waits without a live owner of the stripe.
    ///
    /// # Errors
    /// [`Error::Retired`] if no writer is left that could continue, [`Error::Locked`] if there are
    /// writers, but none repairs the stripe.
    pub(crate) fn wait_for_writers(&self, stripe: usize, idle: &mut u32) -> Result<()> {
        sync::sleep(READERS_PATIENCE);
        // The sessions of a retired image are reused by those of its successor.
        if self.image.header().is_retired() || !self.slots.anyone_else()? {
            return Err(self.retired());
        }
        let word = self.image.header().stripe(stripe).lock_word();
        let at_work =
            robust_word::holder_now(word).is_some_and(|holder| self.judge(holder) != Verdict::Dead);
        *idle = if at_work { 0 } else { *idle + 1 };
        if *idle < REPAIR_WAITS {
            return Ok(());
        }
        Err(Error::Locked { path: self.media.path().to_path_buf() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::locks::session::Sessions;
    use crate::media::{Access, Memory};
    use crate::wal::{Op, Record};
    use crate::{Bloom, Durability, Filter, Options};
    use ebbtide_core::block::load;
    use std::sync::Arc;

    fn made() -> (Filter<Bloom>, Arc<Memory>) {
        let memory = Arc::new(Memory::new());
        let options =
            Options::new().hash_seed(7).stripes(2).durability(Durability::Never).background(false);
        let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
        (filter.expect("a filter"), memory)
    }

    /// Another handle in session slot 1, in its fifth incarnation.
    fn neighbour(engine: &Engine, memory: &Memory) -> Sessions {
        let slots = Sessions::open(memory, Access::Write).expect("the lock file");
        assert_eq!(slots.take().expect("no error"), Some(1));
        assert_eq!((0..5).map(|_| engine.image.header().incarnation(1).raise()).max(), Some(5));
        slots
    }

    const DEAD: Owner = Owner { slot: 9, term: 1 };
    const LIVING: Owner = Owner { slot: 1, term: 5 };

    #[test]
    fn repair_applies_and_counts_what_the_dead_left_of_this_stripe_and_of_no_other() {
        let (filter, _memory) = made();
        let engine = &filter.engine;
        let header = engine.image.header();
        (0..20_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        let unapplied = |stripe| {
            let mut hashes = (100_u64..).map(|key| engine.meta.hasher.hash(&key.to_le_bytes()));
            let hash = hashes.find(|&hash| engine.image.layout().stripe_of(hash) == stripe);
            let record = Record {
                payload: hash.expect("a key of the stripe"),
                argument: 3,
                ..Record::new(Op::Insert)
            };
            engine.append(&mut None, &record).expect("room")
        };
        let (_others, lsn) = (unapplied(1), unapplied(0));
        let hole = header.tail().reserve(engine.log.mapped_end()).expect("room");
        assert!(robust_word::try_lock(header.stripe(1).lock_word(), DEAD));
        let sums = || [1, 2].map(|stripe| header.stripe(stripe).sums());
        let (before, total) = (sums(), header.counters().sum());
        engine.repair_all();
        assert_eq!(load(header.stripe(1).lock_word()), 0);
        let after = sums();
        let counted = |at: usize| {
            (after[at].inserts - before[at].inserts, after[at].new_bits - before[at].new_bits)
        };
        assert_eq!((after[0].lsn, counted(0)), (lsn, (1, 3)));
        assert_eq!((after[1].lsn, counted(1)), (before[1].lsn, (0, 0)), "that of a living writer");
        let sum = header.counters().sum();
        assert_eq!((sum.inserts - total.inserts, sum.new_bits - total.new_bits), (1, 3));
        assert!(engine.log.segment(hole).is_some_and(|segment| segment.is_complete(hole)));
    }

    #[test]
    fn nobody_waits_on_an_image_that_is_given_up_for_a_slot_of_its_successor() {
        let (filter, memory) = made();
        let engine = &filter.engine;
        let _alive = neighbour(engine, &memory);
        assert!(robust_word::try_lock(engine.image.header().stripe(1).lock_word(), LIVING));
        let mut idle = 0;
        assert!(engine.wait_for_writers(1, &mut idle).is_ok(), "it may come on");
        engine.image.header().retire();
        let told = engine.wait_for_writers(1, &mut idle);
        assert!(matches!(told, Err(Error::Retired { .. })), "{told:?}");
    }

    #[test]
    fn the_living_keep_their_stripes_and_lose_them_when_they_die() {
        let (filter, memory) = made();
        let engine = &filter.engine;
        let alive = neighbour(engine, &memory);
        let word = engine.image.header().stripe(1).lock_word();
        assert_eq!(engine.judge(LIVING), Verdict::Wait);
        assert_eq!(engine.judge(Owner { term: 4, ..LIVING }), Verdict::Dead, "taken again since");
        assert_eq!(engine.judge(DEAD), Verdict::Dead);
        assert!(robust_word::try_lock(word, LIVING));
        let ours = engine.lock(2);
        engine.repair_all();
        let holder = || robust_word::holder_now(word);
        assert_eq!(holder(), Some(LIVING));
        drop(alive);
        engine.repair_all();
        assert_eq!(holder(), None);
        assert_eq!(ours.index(), 2);
    }

    #[test]
    fn a_holder_of_stripe_0_is_given_up_once_and_not_waited_for_again() {
        let (filter, memory) = made();
        let engine = &filter.engine;
        let _alive = neighbour(engine, &memory);
        let word = engine.image.header().stripe(0).lock_word();
        let given_up = || engine.given_up.get();
        assert!(engine.lock_events().is_some() && given_up() == 0);
        assert!(robust_word::try_lock(word, LIVING));
        for _ in 0..2 {
            assert!(engine.lock_events().is_none());
            assert_eq!(robust_word::holder(given_up()), Some(LIVING));
        }
        assert!(robust_word::unlock(word, LIVING).is_ok());
        assert!(engine.lock_events().is_some() && given_up() == 0);
    }
}
