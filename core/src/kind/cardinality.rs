//! The number of distinct keys of a window, from blocks that a host copies.
//!
//! Owns: how the blocks of a filter are divided into shares of the hash space, and how the counts
//! of shares become one number with its standard error. What a block says is the kind's
//! ([`DistinctKeys`]).

use super::copy::BlockCopy;
use super::sample::sampled;
use super::{Kind, Moment, State, Within};
use crate::block::{Block, Layout};
use crate::error::{Error, Result};
use std::fmt::Debug;
use std::ops::AddAssign;

/// How many distinct keys a window or a part of it has, as estimated from the cells.
///
/// The true number is within two standard errors in some 95 of 100 cases, and within four in nearly
/// all. The error is that of the cells: it does not shrink by asking again.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cardinality {
    /// The estimated number of distinct keys.
    pub keys: f64,
    /// The standard error of `keys`, in keys.
    pub standard_error: f64,
    /// How far back the keys are counted: at least as far as was asked for, and further by what the
    /// kind cannot tell apart (up to one generation).
    pub reach: Within,
}

/// What cells say about a number of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    /// The keys.
    pub keys: f64,
    /// The variance of that number, independent of other blocks.
    pub variance: f64,
    /// An error that other blocks may have in the same direction, so that it adds up.
    pub doubt: f64,
}

impl Counted {
    /// Returns the keys that have occupied `used` of `cells` equally likely cells, each key as many
    /// as `a_key`, independently: linear counting (Whang, Vander-Zanden, Taylor, 1990), less its
    /// bias. If no cell is free, nothing is known but that there are many.
    #[must_use]
    pub fn of_occupied(cells: f64, used: f64, a_key: f64) -> Self {
        if used <= 0.0 || cells <= 0.0 {
            return Self::default();
        }
        let share = (used / cells).min(1.0 - 0.5 / cells.max(1.0));
        let load = -(-share).ln_1p();
        // `e^x - 1 - x`: below the last digits of `e^x` in large fingerprint filters.
        let excess = if load < 1e-4 { load * load / 2.0 } else { load.exp_m1() - load };
        let keys = (cells * load - excess / 2.0) / a_key;
        let doubt = if used >= cells { keys } else { 0.0 };
        Self { keys, variance: cells * excess / (a_key * a_key), doubt }
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.keys += other.keys;
        self.variance += other.variance;
        self.doubt += other.doubt;
    }
}

/// A part of a window that a kind can tell from what is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubWindow {
    /// How deep it reaches, in a unit of the kind's own.
    pub depth: u64,
    /// How far back it reaches, in the unit of the filter's window.
    pub reach: u64,
}

impl SubWindow {
    /// Returns the first of the sub-windows of depth 0 to `last` that reaches back `width`; the
    /// last one if none does. `reach` is that of a depth, and never falls.
    #[must_use]
    pub fn reaching(width: Option<u64>, last: u64, reach: impl Fn(u64) -> u64) -> Self {
        let found = width.and_then(|width| (0..last).find(|&depth| reach(depth) >= width));
        let depth = found.unwrap_or(last);
        Self { depth, reach: reach(depth) }
    }
}

/// The number of distinct keys, for kinds whose cells say it.
pub trait DistinctKeys: Debug {
    /// Returns whether the kind can tell younger keys of the window from older ones.
    fn has_sub_windows(&self) -> bool {
        true
    }

    /// Returns the shortest sub-window that reaches back at least `width` inserts or microseconds;
    /// the whole window without a width, and if it is shorter.
    fn sub_window(&self, state: &State<'_>, moment: &Moment, width: Option<u64>) -> SubWindow;

    /// Counts the distinct keys of the sub-window in a share of the hash space. `blocks` are
    /// private, settled copies, with the slots of their banks: all blocks that a key of the share
    /// has, and no others. They may be changed.
    fn count(
        &self,
        state: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        moment: &Moment,
        depth: u64,
    ) -> Counted;
}

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
        let of_stripe = |bank: &super::BankEntry| u64::from(bank.geometry.blocks_per_stripe);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupied_cells_give_the_keys_that_occupied_them() {
        for (cells, keys, a_key) in [(1000.0, 500.0, 1.0), (1e6, 10.0, 1.0), (1e4, 3000.0, 7.0)] {
            let used = cells * -f64::exp_m1(-a_key * keys / cells);
            let counted = Counted::of_occupied(cells, used, a_key);
            let bias = f64::exp(a_key * keys / cells) / a_key;
            assert!((counted.keys - keys).abs() <= bias, "{counted:?}");
            assert!(counted.variance > 0.0 && counted.doubt == 0.0);
        }
        let full = Counted::of_occupied(64.0, 64.0, 1.0);
        assert!(full.keys > 64.0 && full.doubt >= full.keys, "all that is known: many");
        assert_eq!(Counted::of_occupied(64.0, 0.0, 1.0), Counted::default());
    }

    #[test]
    fn the_shortest_part_that_reaches_far_enough_is_found() {
        let reach = |depth: u64| 10 * depth + 3;
        let of = |width| SubWindow::reaching(width, 3, reach);
        assert_eq!(of(Some(3)), SubWindow { depth: 0, reach: 3 });
        assert_eq!(of(Some(4)), SubWindow { depth: 1, reach: 13 });
        assert_eq!(of(Some(1000)), SubWindow { depth: 3, reach: 33 });
        assert_eq!(of(None), SubWindow { depth: 3, reach: 33 });
    }
}
