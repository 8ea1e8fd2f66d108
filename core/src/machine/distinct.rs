//! The number of distinct keys of a filter in memory.

use super::Machine;
use super::parts::Parts;
use crate::error::Result;
use crate::kind::copy::BlockCopy;
use crate::kind::distinct_query::CardinalityQuery;
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
        let copy = |slot, number| copy(parts, slot, number);
        Ok(query.answer(&parts.state(), parts.identity.layout, &moment, copy))
    }
}

/// Returns a copy of a block of the bank in a slot.
fn copy(parts: &Parts, slot: usize, number: u64) -> Option<BlockCopy> {
    let (_, bank) = parts.memory.banks().find(|(of, _)| *of == slot)?;
    Some(BlockCopy::new(parts.kind(), bank.block(usize::try_from(number).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::hash_of;
    use crate::kind::Parameters;
    use crate::kinds::registry;
    use crate::machine::MachineOptions;
    use crate::time::OperationTime;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    const SECOND: u64 = 1_000_000;

    /// Returns a filter of several banks in one stripe, the latest of which is `growth` times as
    /// large as the first, its keys, and the time.
    fn grown(growth: u64) -> (Machine, u64, Micros) {
        let parameters = Parameters::new().with("window", 100 * SECOND).with("fpr", 0.001);
        let parameters = parameters.with("rate", 2000).with("growth", "rate");
        let kind = registry::build("fingerprint", &parameters).expect("a filter");
        let options = MachineOptions::new().stripes(1).block_bytes(2048);
        let mut machine = Machine::create(kind, &options, 4711, 1).expect("memory");
        let (mut keys, mut now) = (0, 1 << 40);
        for (seconds, a_second) in [(10, 2000), (10, 2000 * growth)] {
            for _ in 0..seconds * a_second {
                now += SECOND / a_second;
                let time = OperationTime { time: now, stream: true };
                assert!(machine.insert(hash_of(keys), time, &mut |_| {}).expect("a key"));
                keys += 1;
            }
        }
        (machine, keys, now)
    }

    #[test]
    fn a_sample_of_several_banks_copies_few_blocks_of_each_and_knows_the_keys() {
        for growth in [8, 30] {
            let (machine, keys, now) = grown(growth);
            let parts = &machine.parts;
            let blocks: Vec<_> = parts.memory.banks().map(|(_, bank)| bank.blocks()).collect();
            assert!(blocks.len() > 1 && blocks.iter().min() > Some(&256), "{blocks:?}");
            for most in [8, 64, 256] {
                let copied = RefCell::new(BTreeMap::<usize, u64>::new());
                let query = CardinalityQuery::new(machine.kind(), "distinct", None);
                let query = query.expect("a kind that knows it").sampling(most);
                let moment = Moment { time: now, now, totals: parts.ledger.totals() };
                let layout = parts.identity.layout;
                let found = query.answer(&parts.state(), layout, &moment, |slot, number| {
                    *copied.borrow_mut().entry(slot).or_default() += 1;
                    copy(parts, slot, number)
                });
                let copied = copied.into_inner();
                let banks = blocks.len() as u64;
                assert!(copied.values().all(|&copied| copied <= most + banks), "{copied:?}");
                let off = (found.keys - keys as f64).abs();
                assert!(off <= 4.0 * found.standard_error, "{growth}, {most}: {found:?}, {keys}");
                println!("{growth}, {most}: {blocks:?} {copied:?} {found:?}, {keys}");
            }
        }
    }
}
