//! Queries without a lock; the protocol is in `docs/architecture.md`.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::sync::spin_hint;
use ebbtide_core::block::Blocks;
use ebbtide_core::kind::{
    Age, BankMask, Estimate, Kind, Micros, Moment, Query, State, Totals, Within,
};

/// The number of attempts disturbed by concurrent changes after which a query takes the stripe.
const RETRIES: u32 = 100;

impl Engine {
    /// Returns whether a key is in the window.
    #[inline]
    pub(crate) fn contains(&self, hash: u64, given: Option<Micros>) -> Result<bool> {
        self.ask_with(hash, given, Self::totals, |kind, state, blocks, query| {
            kind.contains(state, blocks, query)
        })
    }

    /// Returns how long ago a key was seen, at least.
    pub(crate) fn age(&self, hash: u64, given: Option<Micros>) -> Result<Option<Age>> {
        self.check_ages("age")?;
        self.ask(hash, given, |kind, state, blocks, query| kind.ages()?.age(state, blocks, query))
    }

    /// Returns whether a key was seen within a time shorter than the window.
    pub(crate) fn seen_within(
        &self,
        hash: u64,
        given: Option<Micros>,
        within: Within,
    ) -> Result<bool> {
        self.check_ages("seen_within")?;
        self.ask(hash, given, |kind, state, blocks, query| {
            kind.ages().is_some_and(|ages| ages.contains_within(state, blocks, query, within))
        })
    }

    fn check_ages(&self, operation: &'static str) -> Result<()> {
        self.meta.kind.ages().map(drop).ok_or_else(|| self.unsupported(operation))
    }

    /// Estimates how often a key was inserted.
    pub(crate) fn estimate(&self, hash: u64, given: Option<Micros>) -> Result<Estimate> {
        let estimate = self.ask_with(hash, given, Self::totals, |kind, state, blocks, query| {
            kind.estimate(state, blocks, query)
        });
        estimate?.ok_or_else(|| self.unsupported("estimate"))
    }

    /// Estimates how often a key was inserted, for a caller that holds its stripe: as of the
    /// records so far.
    pub(crate) fn estimate_held(&self, hash: u64, moment: &Moment) -> Result<Option<Estimate>> {
        let query = Query { hash, now: moment.now, totals: moment.totals };
        let ask =
            |state: &State<'_>, blocks: &Blocks<'_>| self.meta.kind.estimate(state, blocks, &query);
        loop {
            // Only the state block can change meanwhile.
            if let Some(estimate) = self.try_ask(hash, ask)? {
                return Ok(estimate);
            }
            spin_hint();
        }
    }

    /// Returns the frequency of a key: its decayed count, normalised.
    pub(crate) fn frequency(&self, hash: u64, given: Option<Micros>) -> Result<Estimate> {
        let normaliser = self.meta.kind.counts().and_then(|counts| counts.normaliser());
        let normaliser = normaliser.ok_or_else(|| self.unsupported("frequency"))?;
        let Estimate { count, at_least } = self.estimate(hash, given)?;
        Ok(Estimate { count: count * normaliser, at_least })
    }

    /// Creates the error for an operation that the kind does not have.
    pub(crate) fn unsupported(&self, operation: &'static str) -> Error {
        Error::Unsupported { kind: self.meta.kind.name(), operation }
    }

    /// Queries the kind for a key. `ask` may read blocks in the middle of a change, and is then
    /// called again.
    pub(crate) fn ask<T>(
        &self,
        hash: u64,
        given: Option<Micros>,
        ask: impl Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Query) -> T,
    ) -> Result<T> {
        self.ask_with(hash, given, |engine| engine.image.header().counters().sum(), ask)
    }

    #[inline]
    pub(crate) fn ask_with<T>(
        &self,
        hash: u64,
        given: Option<Micros>,
        totals: fn(&Self) -> Totals,
        ask: impl Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Query) -> T,
    ) -> Result<T> {
        self.check_usable()?;
        if self.image.header().is_retired() {
            return Err(self.retired());
        }
        let kind = &*self.meta.kind;
        let now = match given {
            // Never refused as too far ahead: a query advances nothing.
            Some(time) => time.max(self.latest().time),
            None if self.uses_time => self.now().time,
            None => 0,
        };
        let query = Query { hash, now, totals: totals(self) };
        match self.try_ask(hash, |state, blocks| ask(kind, state, blocks, &query))? {
            Some(answer) => Ok(answer),
            None => self.ask_again(hash, |state, blocks| ask(kind, state, blocks, &query)),
        }
    }

    /// As [`Engine::try_ask`] until it succeeds.
    #[cold]
    fn ask_again<T>(&self, hash: u64, ask: impl Fn(&State<'_>, &Blocks<'_>) -> T) -> Result<T> {
        for _ in 1..RETRIES {
            spin_hint();
            if let Some(answer) = self.try_ask(hash, &ask)? {
                return Ok(answer);
            }
        }
        self.ask_patiently(hash, ask)
    }

    /// As [`Engine::ask_again`], if there are too many writers, or one of them was stopped or died.
    fn ask_patiently<T>(&self, hash: u64, ask: impl Fn(&State<'_>, &Blocks<'_>) -> T) -> Result<T> {
        let stripe = self.image.layout().stripe_of(hash) + 1;
        // Keeps writers out, waits for a stopped one, or repairs what a dead one left. A reader can
        // only wait for others to do so.
        let _busy = self.enter()?;
        let _stripe = if self.is_reader() { None } else { Some(self.lock(stripe)) };
        let mut idle = 0;
        loop {
            if let Some(answer) = self.try_ask(hash, &ask)? {
                return Ok(answer);
            }
            if self.image.header().is_poisoned() {
                // Most likely a writer panicked and left a block half changed, permanently.
                return Err(self.poisoned());
            }
            if self.is_reader() {
                self.wait_for_writers(stripe, &mut idle)?;
            } else if !self.are_whole(hash) {
                // This handle holds the stripe, and what a dead owner left is repaired. The image
                // is therefore damaged beyond repair.
                self.poison("a block is marked as being changed, by nobody".to_owned());
            }
            spin_hint();
        }
    }

    /// Returns whether none of a key's blocks is marked as being changed.
    fn are_whole(&self, hash: u64) -> bool {
        self.image.banks().locate(BankMask::MAX, hash).headers.versions().is_some()
    }

    /// Reads the state block and the key's blocks once; `None` if any of them changed meanwhile.
    #[inline]
    fn try_ask<T>(
        &self,
        hash: u64,
        ask: impl Fn(&State<'_>, &Blocks<'_>) -> T,
    ) -> Result<Option<T>> {
        let state_block = self.image.header().state_block();
        let version = state_block.version();
        let state = state_block.state(version);
        let Some(banks) = self.image.banks_of(&state, version) else {
            self.image.follow()?;
            return Ok(None);
        };
        let located = banks.locate(BankMask::MAX, hash);
        let Some(versions) = located.headers.versions() else {
            return Ok(None);
        };
        let answer = ask(&state, &located.blocks);
        let whole = located.headers.unchanged(versions) && state_block.unchanged(version);
        Ok(whole.then_some(answer))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
