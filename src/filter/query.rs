//! Asking, without a lock; the protocol is in `docs/architecture.md`.

use super::engine::Engine;
use crate::cells::Blocks;
use crate::error::Result;
use crate::kinds::{BankMask, Kind, Micros, Query, State};
use crate::live::version;
use crate::sync::spin_hint;

/// After so many changes under its eyes a query takes the stripe.
const RETRIES: u32 = 100;

impl Engine {
    /// Asks the kind about a key: `ask` may see blocks in the middle of a change, and is called again if it did.
    #[inline]
    pub(super) fn ask<T>(
        &self,
        hash: u64,
        given: Option<Micros>,
        ask: impl Fn(&dyn Kind, &State<'_>, &Blocks<'_>, &Query) -> T,
    ) -> Result<T> {
        let kind = &*self.meta.kind;
        let now = match given {
            // Never refused as too far ahead: a question moves nothing.
            Some(time) => time.max(self.latest().time),
            None if kind.uses_time() => self.moment(self.stamp(None)?).now,
            None => 0,
        };
        let query = Query { hash, now, totals: self.totals() };
        for _ in 0..RETRIES {
            if let Some(answer) =
                self.try_ask(hash, |state, blocks| ask(kind, state, blocks, &query))
            {
                return Ok(answer);
            }
            spin_hint();
        }
        // Writers come too thick: keep them out of the stripe, then only events can change anything.
        let _stripe = self.lock(self.image.layout().stripe_of(hash) + 1);
        loop {
            if let Some(answer) =
                self.try_ask(hash, |state, blocks| ask(kind, state, blocks, &query))
            {
                return Ok(answer);
            }
            if self.image.header().is_poisoned() {
                // Most likely a writer panicked and left a block half changed, for good.
                return Err(self.poisoned());
            }
            spin_hint();
        }
    }

    /// One look at block 0 and the key's blocks; `None` if any of them changed meanwhile.
    #[inline]
    fn try_ask<T>(&self, hash: u64, ask: impl Fn(&State<'_>, &Blocks<'_>) -> T) -> Option<T> {
        let header = self.image.header();
        let block0 = header.block0();
        let before = version::read(block0.version())?;
        // After block 0: a bank is mapped before block 0 lists it.
        let banks = self.image.banks();
        let located = banks.locate(BankMask::MAX, hash);
        let versions = located.versions()?;
        let answer = ask(&header.state(), located.blocks());
        if !located.unchanged(&versions) {
            return None;
        }
        version::unchanged(block0.version(), before).then_some(answer)
    }
}
