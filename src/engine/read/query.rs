//! Queries without a lock; the protocol is in `docs/protocols/query.md`.

use crate::engine::read::distinct;
use crate::engine::shared::Shared;
use crate::engine::stripes::{StripeLocks, Wait};
use crate::engine::time::filter_time::Time;
use crate::engine::write::request::{Given, Waits};
use crate::error::Result;
use crate::image::BankSet;
use crate::image::mapped_banks::Banks;
use crate::image::state_block::StateBlock;
use crate::primitives::{Instant, spin_hint};
use ebbtide_core::block::Blocks;
use ebbtide_core::kind::distinct_query::CardinalityQuery;
use ebbtide_core::kind::{
    Age, Cardinality, Estimate, KeyAges, Kind, Moment, Query, State, Totals, Within,
};
use std::sync::Arc;

/// The number of attempts disturbed by concurrent changes after which a query takes the stripe.
const RETRIES: u32 = 100;

/// What a query that must not wait would have to wait for, in its error.
const BLOCK: &str = "another caller that changes the key's block";

/// The queries of a handle.
#[derive(Debug, Clone)]
pub struct Queries {
    pub(crate) shared: Arc<Shared>,
    time: Arc<Time>,
    stripes: Arc<StripeLocks>,
}

impl Queries {
    /// Creates the queries of a handle.
    pub(crate) fn new(shared: Arc<Shared>, time: Arc<Time>, stripes: Arc<StripeLocks>) -> Self {
        Self { shared, time, stripes }
    }

    /// Prefetches the memory that a query for a key will read.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        // Some kinds read words for it, and a forked child has no mapping.
        if self.shared.check_process().is_err() {
            return;
        }
        let banks = self.shared.image.recent_banks();
        let located = banks.locate_to_read(hash);
        located.prefetch_headers();
        self.shared.kind().prefetch(&located.blocks, hash);
    }

    /// Returns whether a key is in the window.
    #[inline]
    pub(crate) fn contains(&self, hash: u64, given: Given) -> Result<bool> {
        self.ask_with(hash, given, Shared::totals, |kind, state, blocks, query| {
            kind.contains(state, blocks, query)
        })
    }

    /// Returns how long ago a key was seen, at least.
    pub(crate) fn age(&self, hash: u64, given: Given) -> Result<Option<Age>> {
        let ages = self.ages("age")?;
        self.ask(hash, given, |_, state, blocks, query| ages.age(state, blocks, query))
    }

    /// Returns whether a key was seen within a time shorter than the window.
    pub(crate) fn seen_within(&self, hash: u64, given: Given, within: Within) -> Result<bool> {
        let ages = self.ages("seen_within")?;
        within.check("within", self.shared.kind().uses_time())?;
        self.ask(hash, given, |_, state, blocks, query| {
            ages.contains_within(state, blocks, query, within)
        })
    }

    /// Returns how many distinct keys are in the window or in a part of it.
    pub(crate) fn distinct(&self, given: Given, within: Option<Within>) -> Result<Cardinality> {
        self.check()?;
        let operation = if within.is_some() { "distinct_within" } else { "distinct" };
        let query = CardinalityQuery::new(self.shared.kind(), operation, within)?;
        let answer = distinct::count(&self.shared, &self.time, given, &query)?;
        self.shared.check_unaltered()?;
        Ok(answer)
    }

    fn ages(&self, operation: &'static str) -> Result<&dyn KeyAges> {
        self.shared.kind().ages().ok_or_else(|| self.shared.unsupported(operation))
    }

    /// Estimates how often a key was inserted.
    pub(crate) fn estimate(&self, hash: u64, given: Given) -> Result<Estimate> {
        let estimate = self.ask_with(hash, given, Shared::totals, |kind, state, blocks, query| {
            kind.estimate(state, blocks, query)
        });
        estimate?.ok_or_else(|| self.shared.unsupported("estimate"))
    }

    /// Estimates how often a key was inserted, for a caller that holds its stripe: as of the
    /// records so far.
    pub(crate) fn estimate_held(&self, hash: u64, moment: &Moment) -> Result<Option<Estimate>> {
        let query = Query { hash, now: moment.now, totals: moment.totals };
        let ask = |state: &State<'_>, blocks: &Blocks<'_>| {
            self.shared.kind().estimate(state, blocks, &query)
        };
        self.ask_held(hash, ask)
    }

    /// Reads a key's blocks for a caller that holds its stripe.
    fn ask_held<T>(&self, hash: u64, ask: impl Fn(&State<'_>, &Blocks<'_>) -> T) -> Result<T> {
        loop {
            // Only the state block can change meanwhile.
            if let Some(answer) = self.try_ask(hash, &ask)? {
                return Ok(answer);
            }
            self.check_whole(hash)?;
            spin_hint();
        }
    }

    /// Returns whether a key is in the window, for a caller that holds its stripe.
    pub(crate) fn contains_held(&self, hash: u64, moment: &Moment) -> Result<bool> {
        let query = Query { hash, now: moment.now, totals: moment.totals };
        let ask = |state: &State<'_>, blocks: &Blocks<'_>| {
            self.shared.kind().contains(state, blocks, &query)
        };
        self.ask_held(hash, ask)
    }

    /// Returns the frequency of a key: its decayed count, normalised.
    pub(crate) fn frequency(&self, hash: u64, given: Given) -> Result<Estimate> {
        let normaliser = self.shared.kind().counts().and_then(|counts| counts.normaliser());
        let normaliser = normaliser.ok_or_else(|| self.shared.unsupported("frequency"))?;
        let Estimate { count, at_least } = self.estimate(hash, given)?;
        Ok(Estimate { count: count * normaliser, at_least })
    }

    /// Queries the kind for a key. `ask` may read blocks in the middle of a change, and is then
    /// called again.
    pub(crate) fn ask<T>(
        &self,
        hash: u64,
        given: Given,
        ask: impl Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Query) -> T,
    ) -> Result<T> {
        self.ask_with(hash, given, |shared| shared.header().counters().sum(), ask)
    }

    #[inline]
    pub(crate) fn ask_with<T>(
        &self,
        hash: u64,
        given: Given,
        totals: fn(&Shared) -> Totals,
        ask: impl Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Query) -> T,
    ) -> Result<T> {
        self.check()?;
        let kind = self.shared.kind();
        let now = match given.time {
            // Never refused as too far ahead: a query advances nothing.
            Some(time) => time.max(self.time.latest().time),
            None if self.shared.uses_time => self.time.now().time,
            None => 0,
        };
        let query = Query { hash, now, totals: totals(&self.shared) };
        let answer = match self.try_ask(hash, |state, blocks| ask(kind, state, blocks, &query))? {
            Some(answer) => answer,
            None => self.ask_again(hash, given.waits, |_| {
                self.try_ask(hash, |state, blocks| ask(kind, state, blocks, &query))
            })?,
        };
        self.shared.check_unaltered()?;
        Ok(answer)
    }

    /// Checks that a query may be answered: from an image that is in use, by the process that
    /// opened it.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.check_usable()?;
        if self.shared.header().is_retired() { Err(self.shared.ended()) } else { Ok(()) }
    }

    /// Reads a key's blocks in these banks. `read` may read them in the middle of a change, and is
    /// then called again.
    pub(crate) fn read_blocks<T>(
        &self,
        banks: &BankSet,
        hash: u64,
        waits: Waits,
        read: impl Fn(&Blocks<'_>) -> T,
    ) -> Result<T> {
        let attempt = |is_held: bool| {
            let located = banks.locate_to_read(hash);
            if is_held {
                // A block that is still marked as being changed is of a bank that was closed before
                // its dead writer's stripe was repaired: its keys have left the window.
                return Some(read(&located.blocks));
            }
            let versions = located.headers.versions()?;
            let answer = read(&located.blocks);
            located.headers.unchanged(versions).then_some(answer)
        };
        let answer = match attempt(false) {
            Some(answer) => answer,
            None => self.ask_again(hash, waits, |is_held| Ok(attempt(is_held)))?,
        };
        self.shared.check_unaltered()?;
        Ok(answer)
    }

    /// Repeats an attempt to read a key's blocks until none of them has changed meanwhile.
    /// `attempt` receives whether the key's stripe is held, so that nobody changes its blocks, and
    /// those of the banks in use are whole.
    #[cold]
    fn ask_again<T>(
        &self,
        hash: u64,
        waits: Waits,
        attempt: impl Fn(bool) -> Result<Option<T>>,
    ) -> Result<T> {
        for _ in 1..RETRIES {
            spin_hint();
            if let Some(answer) = attempt(false)? {
                return Ok(answer);
            }
        }
        if waits.never() {
            return Err(self.shared.would_wait(BLOCK));
        }
        self.ask_patiently(hash, waits, attempt)
    }

    /// As [`Queries::ask_again`], if there are too many writers, or one of them was stopped or
    /// died.
    fn ask_patiently<T>(
        &self,
        hash: u64,
        waits: Waits,
        attempt: impl Fn(bool) -> Result<Option<T>>,
    ) -> Result<T> {
        let stripe = self.shared.stripe_of(hash);
        // Keeps writers out, waits for a stopped one, or repairs what a dead one left. A reader can
        // only wait for others to do so.
        let _busy = self.shared.enter()?;
        let is_reader = self.shared.is_reader();
        let acquire = || self.stripes.acquire(stripe, Wait::Operation(waits));
        let _stripe = (!is_reader).then(acquire).transpose()?;
        let (mut idle, mut is_held, start) = (0, false, Instant::now());
        loop {
            if let Some(answer) = attempt(is_held)? {
                return Ok(answer);
            }
            self.check_poison()?;
            if is_reader {
                if matches!(waits, Waits::AtMost(limit) if start.elapsed() >= limit) {
                    return Err(self.shared.would_wait(BLOCK));
                }
                self.stripes.wait_for_writers(stripe, &mut idle)?;
            } else {
                self.check_whole(hash)?;
                is_held = true;
            }
            spin_hint();
        }
    }

    /// Fails if a writer has poisoned the filter: most likely it panicked and left a block half
    /// changed, permanently.
    fn check_poison(&self) -> Result<()> {
        if self.shared.header().is_poisoned() { Err(self.shared.poisoned()) } else { Ok(()) }
    }

    /// For a caller that holds the stripe of a key: checks that none of its blocks, in the banks
    /// that are in use now, is marked as being changed. What a dead owner left is repaired, so the
    /// image would be damaged beyond repair: the filter is poisoned.
    fn check_whole(&self, hash: u64) -> Result<()> {
        self.check_poison()?;
        self.shared.image.follow()?;
        if self.shared.image.banks().locate_to_read(hash).headers.versions().is_none() {
            self.shared.poison("a block is left marked as being changed".to_owned());
        }
        self.check_poison()
    }

    /// Reads the state block and the key's blocks once; `None` if any of them changed meanwhile.
    #[inline]
    fn try_ask<T>(
        &self,
        hash: u64,
        ask: impl Fn(&State<'_>, &Blocks<'_>) -> T,
    ) -> Result<Option<T>> {
        let state_block = self.shared.header().state_block();
        let version = state_block.version();
        let state = state_block.state(version);
        // Each in its own arm: what both had in common would go through memory.
        match self.shared.image.banks_of(&state, version) {
            Some(Banks::Fixed(banks)) => Ok(Self::read(&state_block, version, banks, hash, ask)),
            Some(Banks::Current(banks)) => Ok(Self::read(&state_block, version, &banks, hash, ask)),
            None => {
                self.shared.image.follow()?;
                Ok(None)
            }
        }
    }

    /// Reads the key's blocks in these banks once; `None` if they, or the state block, changed
    /// meanwhile.
    #[inline(always)]
    fn read<T>(
        state_block: &StateBlock<'_>,
        version: u64,
        banks: &BankSet,
        hash: u64,
        ask: impl Fn(&State<'_>, &Blocks<'_>) -> T,
    ) -> Option<T> {
        let located = banks.locate_to_read(hash);
        let versions = located.headers.versions()?;
        let answer = ask(&state_block.state(version), &located.blocks);
        let whole = located.headers.unchanged(versions) && state_block.unchanged(version);
        whole.then_some(answer)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
