//! The number of distinct keys of a filter, from blocks that a host copies.
//!
//! Owns: how the blocks of a filter are divided into shares of the hash space, and how the counts
//! of shares become one number with its standard error. What a block says is the kind's
//! ([`DistinctKeys`]).

use super::cardinality::{Counted, DistinctKeys};
use super::copy::BlockCopy;
use super::sample::sampled;
use super::{BankEntry, Cardinality, Kind, Moment, State, Within};
use crate::block::Layout;
use crate::error::{Error, Result};

/// A block of several banks that are compared takes the time of this many blocks of one.
const COMPARED: u64 = 8;

/// The division of a filter's hash space into equal shares.
#[derive(Debug)]
struct Shares {
    /// Slots of the banks, and the blocks that each has of one share.
    banks: Vec<(usize, u64)>,
    count: u64,
}

impl Shares {
    /// One block each if there is one bank. Otherwise stripes: a key's blocks are in its stripe in
    /// every bank.
    fn of(state: &State<'_>, layout: Layout) -> Self {
        let banks: Vec<_> = state.banks().collect();
        if let [bank] = banks.as_slice() {
            return Self { banks: vec![(bank.slot, 1)], count: layout.blocks(bank.geometry) };
        }
        let of_stripe = |bank: &BankEntry| u64::from(bank.geometry.blocks_per_stripe);
        let banks = banks.iter().map(|bank| (bank.slot, of_stripe(bank))).collect();
        Self { banks, count: layout.stripes.into() }
    }

    /// Returns how many shares have at most this number of blocks of a bank, an eighth of it if
    /// banks must be compared; one at least.
    fn within(&self, blocks: u64) -> u64 {
        let blocks = if self.banks.len() > 1 { blocks / COMPARED } else { blocks };
        let largest = self.banks.iter().map(|&(_, blocks)| blocks).max().unwrap_or(1);
        (blocks / largest.max(1)).max(1)
    }
}

/// A question for the number of distinct keys, checked.
#[derive(Debug)]
pub struct CardinalityQuery<'a> {
    kind: &'a dyn Kind,
    distinct: &'a dyn DistinctKeys,
    within: Option<Within>,
    /// The most blocks of a bank that are looked at.
    most: u64,
}

impl<'a> CardinalityQuery<'a> {
    /// Creates the question for the keys of the window, or of a part of it. `operation` names it in
    /// errors.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kind does not know it; [`Error::Parameter`] for a part in
    /// another unit than the window's.
    pub fn new(
        kind: &'a dyn Kind,
        operation: &'static str,
        within: Option<Within>,
    ) -> Result<Self> {
        let unsupported = || Error::Unsupported { kind: kind.name(), operation };
        let distinct = kind.distinct_keys().ok_or_else(unsupported)?;
        if within.is_some() && !distinct.has_sub_windows() {
            return Err(unsupported());
        }
        within.map_or(Ok(()), |within| within.check("within", kind.uses_time()))?;
        Ok(Self { kind, distinct, within, most: u64::MAX })
    }

    /// Looks at no more than about this number of blocks of each bank, evenly spread. The standard
    /// error then includes that of the sample.
    #[must_use]
    pub fn sampling(self, blocks: u64) -> Self {
        Self { most: blocks, ..self }
    }

    /// Answers at a moment. `copy` returns a private copy of a block: of the bank in this slot, by
    /// its number; `None` if the bank is not there any more.
    pub fn answer(
        &self,
        state: &State<'_>,
        layout: Layout,
        moment: &Moment,
        copy: impl Fn(usize, u64) -> Option<BlockCopy>,
    ) -> Cardinality {
        let width = self.within.map(Within::width);
        let part = self.distinct.sub_window(state, moment, width);
        if width == Some(0) {
            return self.answered(Counted::default(), 1.0, 0);
        }
        let shares = Shares::of(state, layout);
        let (mut sum, mut looked_at) = (Counted::default(), 0_u64);
        for share in sampled(shares.count, shares.within(self.most)) {
            let mut copies = Vec::new();
            for &(slot, blocks) in &shares.banks {
                let numbers = (share * blocks)..(share + 1) * blocks;
                copies.extend(numbers.filter_map(|number| Some((slot, copy(slot, number)?))));
            }
            let blocks: Vec<_> = copies.iter().map(|(slot, copy)| (*slot, copy.block())).collect();
            for (slot, block) in &blocks {
                self.kind.settle(state, *slot, block, moment);
            }
            sum += self.distinct.count(state, &blocks, moment, part.depth);
            looked_at += 1;
        }
        self.answered(sum, looked_at as f64 / shares.count.max(1) as f64, part.reach)
    }

    /// Returns the answer for what this part of the hash space contains.
    fn answered(&self, sum: Counted, part: f64, reach: u64) -> Cardinality {
        let reach = match self.kind.uses_time() {
            true => Within::micros(reach),
            false => Within::Items(reach),
        };
        if part <= 0.0 {
            return Cardinality { keys: 0.0, standard_error: 0.0, reach };
        }
        let (keys, doubt) = (sum.keys / part, sum.doubt / part);
        // Each key is in the part with this probability.
        let variance = sum.variance / (part * part) + keys * (1.0 - part) / part;
        Cardinality { keys, standard_error: (variance + doubt * doubt).sqrt(), reach }
    }
}
