//! Asking, without a lock: design section 6.

use super::engine::Engine;
use crate::cells::{Blocks, MAX_BANKS};
use crate::error::Result;
use crate::kinds::{Kind, Micros, Query, State};
use crate::live::{BankSet, version};
use crate::sync::spin_hint;

/// After so many changes under its eyes a query takes the stripe.
const RETRIES: u32 = 100;

/// Whether the key is in the window, as these banks have it.
#[inline]
pub(super) fn present(kind: &dyn Kind, state: &State<'_>, banks: &BankSet, query: &Query) -> bool {
    kind.contains(state, &banks.blocks(u8::MAX, query.hash), query)
}

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
        let query = Query {
            hash,
            now,
            totals: self.totals(),
        };
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
        let mut versions = [0; MAX_BANKS];
        for (slot, block) in banks.headers(u8::MAX, hash) {
            versions[slot] = version::read(block.version())?;
        }
        let answer = ask(&header.state(), &banks.blocks(u8::MAX, hash));
        for (slot, block) in banks.headers(u8::MAX, hash) {
            if !version::unchanged(block.version(), versions[slot]) {
                return None;
            }
        }
        version::unchanged(block0.version(), before).then_some(answer)
    }
}
