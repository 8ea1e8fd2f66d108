//! The number of distinct keys of a filter, from blocks that a host copies.
//!
//! Owns: which blocks are looked at, with which others they are compared, and how the counts of
//! banks become one number with its standard error. What a block says is the kind's
//! ([`DistinctKeys`]).
//!
//! *Several banks*. A key may be in more than one of them. Where the kind compares them, each key
//! counts in the coarsest bank that has it: a block of a finer bank, one with more blocks, is
//! compared with the blocks of coarser ones that have the same part of the hash space. These are
//! few, whatever the sizes of the banks.

use super::copy::BlockCopy;
use super::distinct_in_block::{ComparedBanks, Counted, DistinctKeys};
use super::{BankEntry, Cardinality, Kind, Moment, State, Within};
use crate::block::{Block, Layout};
use crate::error::{Error, Result};
use std::ops::Range;

/// A block of several banks that are compared takes the time of this many blocks of one.
const COMPARED: u64 = 8;

/// The most blocks of a bank that are compared at a time.
const AT_A_TIME: u64 = 64;

/// A bank, and the blocks of it that are looked at.
#[derive(Debug, Clone, Copy)]
struct Looked {
    slot: usize,
    blocks: u64,
    /// How many of them, evenly spread.
    count: u64,
}

/// Returns `a · b / c`, for `a` up to `c`.
fn share(a: u64, b: u64, c: u64) -> u64 {
    (u128::from(a) * u128::from(b) / u128::from(c.max(1))) as u64
}

impl Looked {
    /// Returns the number of a block that is looked at.
    fn number(&self, at: u64) -> u64 {
        share(at, self.blocks, self.count)
    }

    /// Returns the blocks of this bank that have a part of the hash space of block `number` of
    /// another one.
    fn overlapping(&self, other: &Self, number: u64) -> Range<u64> {
        let end = u128::from(number + 1) * u128::from(self.blocks);
        share(number, self.blocks, other.blocks)..end.div_ceil(other.blocks.max(1).into()) as u64
    }
}

/// Settled copies of blocks, with the slots of their banks.
type Copies = Vec<(usize, BlockCopy)>;

fn as_blocks(copies: &Copies) -> Vec<(usize, Block<'_>)> {
    copies.iter().map(|(slot, copy)| (*slot, copy.block())).collect()
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
            return self.answered(Counted::default(), 0);
        }
        let banks = self.looked_at(state, layout);
        let compared = self.compared(&banks);
        let copied = |bank: &Looked, number| {
            let copy = copy(bank.slot, number)?;
            self.kind.settle(state, bank.slot, &copy.block(), moment);
            Some((bank.slot, copy))
        };
        let mut counts = Vec::new();
        for (at, bank) in banks.iter().enumerate() {
            let mut sum = Counted::default();
            let step = if compared.is_some() { AT_A_TIME } else { 1 };
            for from in (0..bank.count).step_by(step as usize) {
                let numbers = from..bank.count.min(from + step);
                let its = numbers.clone().map(|at| bank.number(at));
                let its: Copies = its.filter_map(|number| copied(bank, number)).collect();
                sum += match compared {
                    None => self.distinct.count(state, &as_blocks(&its), moment, part.depth),
                    Some(compared) => {
                        let overlapped = banks[..at].iter().flat_map(|other| {
                            let numbers = overlapped(other, bank, numbers.clone());
                            numbers.filter_map(move |number| copied(other, number))
                        });
                        let (its, others) = (as_blocks(&its), overlapped.collect());
                        let others = as_blocks(&others);
                        compared.count_only_in(state, &its, &others, moment, part.depth)
                    }
                };
            }
            counts.push(of_all(sum, bank.count as f64 / bank.blocks.max(1) as f64));
        }
        self.answered(self.distinct.of_banks(&counts), part.reach)
    }

    /// Returns the comparison of these banks, if there are several.
    fn compared<T>(&self, banks: &[T]) -> Option<&dyn ComparedBanks> {
        self.distinct.compared().filter(|_| banks.len() > 1)
    }

    /// Returns the banks, the coarsest first, and how many blocks of each are looked at.
    fn looked_at(&self, state: &State<'_>, layout: Layout) -> Vec<Looked> {
        let mut banks: Vec<_> = state.banks().collect();
        banks.sort_by_key(|bank| (layout.blocks(bank.geometry), bank.id));
        // A block of each coarser bank, sometimes two, is copied for one of a finer bank.
        let copied = COMPARED.max(2 * banks.len() as u64);
        let most = if self.compared(&banks).is_some() { self.most / copied } else { self.most };
        let looked = |bank: &BankEntry| {
            let (slot, blocks) = (bank.slot, layout.blocks(bank.geometry));
            Looked { slot, blocks, count: blocks.min(most.max(1)) }
        };
        banks.iter().map(looked).collect()
    }

    /// Returns the answer for what all blocks contain.
    fn answered(&self, counted: Counted, reach: u64) -> Cardinality {
        let reach = match self.kind.uses_time() {
            true => Within::micros(reach),
            false => Within::Items(reach),
        };
        let Counted { keys, variance, doubt } = counted;
        Cardinality { keys, standard_error: (variance + doubt * doubt).sqrt(), reach }
    }
}

/// Returns the numbers of the blocks of `bank` with which blocks `numbers` of those of another one
/// that are looked at are compared: each once, because they ascend.
fn overlapped(bank: &Looked, other: &Looked, numbers: Range<u64>) -> impl Iterator<Item = u64> {
    let (bank, other, mut next) = (*bank, *other, 0);
    numbers.flat_map(move |at| {
        let range = bank.overlapping(&other, other.number(at));
        let fresh = range.start.max(next)..range.end.max(next);
        next = fresh.end;
        fresh
    })
}

/// Returns what all blocks of a bank contain, by what this part of them does.
fn of_all(sum: Counted, part: f64) -> Counted {
    if part <= 0.0 {
        return Counted::default();
    }
    let (keys, doubt) = (sum.keys / part, sum.doubt / part);
    // Each key is in the part with this probability.
    let variance = sum.variance / (part * part) + keys * (1.0 - part) / part;
    Counted { keys, variance, doubt }
}
