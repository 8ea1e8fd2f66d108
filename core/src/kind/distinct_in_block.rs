//! What blocks say about the number of distinct keys.

use super::{Moment, State};
use crate::block::Block;
use std::fmt::Debug;
use std::ops::AddAssign;

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

    /// Counts the distinct keys of the sub-window in blocks of one bank: private, settled copies,
    /// with the slot of the bank. They may be changed.
    fn count(
        &self,
        state: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        moment: &Moment,
        depth: u64,
    ) -> Counted;

    /// Returns the comparison of banks, if the kind can tell whether a key of one is in another.
    fn compared(&self) -> Option<&dyn ComparedBanks> {
        None
    }

    /// Returns the distinct keys of all banks, by those of each: their sum, if no key is in two.
    fn of_banks(&self, banks: &[Counted]) -> Counted {
        let mut sum = Counted::default();
        banks.iter().for_each(|&bank| sum += bank);
        sum
    }
}

/// The number of distinct keys, for kinds that compare their banks.
pub trait ComparedBanks {
    /// As [`DistinctKeys::count`], without the keys that other banks have, too. `others` are the
    /// blocks of these that have a part of the hash space of `blocks`.
    fn count_only_in(
        &self,
        state: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        others: &[(usize, Block<'_>)],
        moment: &Moment,
        depth: u64,
    ) -> Counted;
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
