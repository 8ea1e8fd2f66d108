//! The number of distinct keys of a filter in memory.

use super::Machine;
use crate::error::Result;
use crate::kind::copy::BlockCopy;
use crate::kind::distinct::CardinalityQuery;
use crate::kind::{Cardinality, Micros, Moment, Within};

impl Machine {
    /// Returns how many distinct keys are in the window at a time, or in the part of it that is
    /// given. At most about this number of blocks of each bank is looked at; the standard error
    /// includes that of the sample.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for kinds whose cells do not say it, and
    /// for a part of the window if the kind cannot tell younger keys from older ones;
    /// [`Error::Parameter`](crate::Error::Parameter) for a part in another unit than the window's.
    pub fn distinct(
        &self,
        now: Micros,
        within: Option<Within>,
        blocks: u64,
    ) -> Result<Cardinality> {
        let (kind, parts) = (self.kind(), &self.parts);
        let operation = if within.is_some() { "distinct_within" } else { "distinct" };
        let query = CardinalityQuery::new(kind, operation, within)?.sampling(blocks);
        let now = now.max(parts.ledger.latest().time);
        let moment = Moment { time: now, now, totals: parts.ledger.totals() };
        Ok(query.answer(&parts.state(), parts.identity.layout, &moment, |slot, number| {
            let (_, bank) = parts.memory.banks().find(|(of, _)| *of == slot)?;
            Some(BlockCopy::new(kind, bank.block(usize::try_from(number).ok()?)))
        }))
    }
}
