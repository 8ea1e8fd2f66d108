//! Asking, without a lock; the protocol is in `docs/architecture.md`.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::sync::spin_hint;
use ebbtide_core::block::Blocks;
use ebbtide_core::kind::{
    Age, BankMask, Estimate, Kind, Micros, Moment, Query, State, Totals, Within,
};

/// After so many changes under its eyes a query takes the stripe.
const RETRIES: u32 = 100;

impl Engine {
    /// Whether a key is in the window.
    #[inline]
    pub(crate) fn contains(&self, hash: u64, given: Option<Micros>) -> Result<bool> {
        self.ask_with(hash, given, Self::totals, |kind, state, blocks, query| {
            kind.contains(state, blocks, query)
        })
    }

    /// How long ago a key was seen, at least.
    pub(crate) fn age(&self, hash: u64, given: Option<Micros>) -> Result<Option<Age>> {
        self.check_ages("age")?;
        self.ask(hash, given, |kind, state, blocks, query| kind.age(state, blocks, query))
    }

    /// Whether a key was seen within less than the window.
    pub(crate) fn seen_within(
        &self,
        hash: u64,
        given: Option<Micros>,
        within: Within,
    ) -> Result<bool> {
        self.check_ages("seen_within")?;
        self.ask(hash, given, |kind, state, blocks, query| {
            kind.contains_within(state, blocks, query, within)
        })
    }

    fn check_ages(&self, operation: &'static str) -> Result<()> {
        let kind = &self.meta.kind;
        if kind.knows_age() { Ok(()) } else { Err(self.unsupported(operation)) }
    }

    /// How often a key was inserted.
    pub(crate) fn estimate(&self, hash: u64, given: Option<Micros>) -> Result<Estimate> {
        let estimate = self.ask_with(hash, given, Self::totals, |kind, state, blocks, query| {
            kind.estimate(state, blocks, query)
        });
        estimate?.ok_or_else(|| self.unsupported("estimate"))
    }

    /// How often a key was inserted, by a caller who holds its stripe: as of the records so far.
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

    /// How frequent a key is: its decayed count, normalised.
    pub(crate) fn frequency(&self, hash: u64, given: Option<Micros>) -> Result<Estimate> {
        let normaliser =
            self.meta.kind.normaliser().ok_or_else(|| self.unsupported("frequency"))?;
        let Estimate { count, at_least } = self.estimate(hash, given)?;
        Ok(Estimate { count: count * normaliser, at_least })
    }

    /// The error for an operation that the kind does not have.
    pub(crate) fn unsupported(&self, operation: &'static str) -> Error {
        Error::Unsupported { kind: self.meta.kind.name(), operation }
    }

    /// Asks the kind about a key: `ask` may see blocks in the middle of a change, and is called again if it did.
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
            // Never refused as too far ahead: a question moves nothing.
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

    /// The same when writers come too thick, or one of them was stopped or died.
    fn ask_patiently<T>(&self, hash: u64, ask: impl Fn(&State<'_>, &Blocks<'_>) -> T) -> Result<T> {
        let stripe = self.image.layout().stripe_of(hash) + 1;
        // Keeps writers out, or waits for the one who is stopped, or repairs what one left who died. A reader can but
        // wait for others to do so.
        let _busy = self.enter()?;
        let _stripe = if self.is_reader() { None } else { Some(self.lock(stripe)) };
        let mut idle = 0;
        loop {
            if let Some(answer) = self.try_ask(hash, &ask)? {
                return Ok(answer);
            }
            if self.image.header().is_poisoned() {
                // Most likely a writer panicked and left a block half changed, for good.
                return Err(self.poisoned());
            }
            if self.is_reader() {
                self.wait_for_writers(stripe, &mut idle)?;
            } else if !self.are_whole(hash) {
                // The stripe is ours, and what a dead owner left is repaired: a damaged image, which nobody will mend.
                self.poison("a block is marked as being changed, by nobody".to_owned());
            }
            spin_hint();
        }
    }

    /// Whether none of a key's blocks is marked as being changed.
    fn are_whole(&self, hash: u64) -> bool {
        self.image.banks().locate(BankMask::MAX, hash).headers.versions().is_some()
    }

    /// One look at the state block and the key's blocks; `None` if any of them changed meanwhile.
    #[inline]
    fn try_ask<T>(
        &self,
        hash: u64,
        ask: impl Fn(&State<'_>, &Blocks<'_>) -> T,
    ) -> Result<Option<T>> {
        let state_block = self.image.header().state_block();
        let version = state_block.version();
        let banks = self.image.banks();
        if !self.image.are_listed(&banks, version) {
            self.image.follow()?;
            return Ok(None);
        }
        let located = banks.locate(BankMask::MAX, hash);
        let Some(versions) = located.headers.versions() else {
            return Ok(None);
        };
        let answer = ask(&state_block.state(version), &located.blocks);
        let whole = located.headers.unchanged(versions) && state_block.unchanged(version);
        Ok(whole.then_some(answer))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
