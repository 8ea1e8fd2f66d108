//! The effect of an insert, a removal and a query on a key's counters: the three methods of Cohen
//! and Matias.
//!
//! All read the key's counters first and then write, so a counter shared by two of the key's
//! functions counts once, and the misses of all counters overlap. A weight stands for that number
//! of consecutive inserts, or removals, of the key.

use super::store::{Located, Store, Writer, room_now};
use crate::block::Block;
use crate::error::{Error, Result};
use crate::hash::Positions;
use std::fmt;
use std::str::FromStr;

/// The greatest number of hash functions: the limit of [`Plan`](crate::kinds::bloom::Plan).
const MOST_FUNCTIONS: usize = 64;

/// The counting policy of a spectral filter: the rule by which counters are raised and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// The least counter of a key is its count. Keys can be removed.
    MinimumSelection,
    /// Raises only the least counters of a key: fewer errors, but nothing can be removed.
    MinimalIncrease,
    /// Counts keys whose least counter is not shared a second time, in a smaller part. A few keys
    /// may be undercounted.
    RecurringMinimum,
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "ms" => Ok(Self::MinimumSelection),
            "mi" => Ok(Self::MinimalIncrease),
            "rm" => Ok(Self::RecurringMinimum),
            other => Err(Error::parameter("policy", "ms, mi or rm", other)),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MinimumSelection => "ms",
            Self::MinimalIncrease => "mi",
            Self::RecurringMinimum => "rm",
        })
    }
}

/// The division and placement of a block's counters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    pub policy: Policy,
    pub store: Store,
    /// Counters of a key, in either part.
    pub k: u32,
    /// Counters of the primary part: the first ones.
    pub primary: u32,
    /// Counters of the secondary part behind it; 0 except for recurring minimum.
    pub secondary: u32,
}

impl Parts {
    /// Visits the key's places in the primary part, by functions 0 to `k - 1`, with the numbers of
    /// the functions.
    #[inline]
    fn each_place(&self, hash: u64, mut visit: impl FnMut(usize, usize)) {
        let positions = Positions::new(hash, self.primary);
        // Two positions for one mix.
        for pair in 0..self.k as usize / 2 {
            let (even, odd) = positions.pair(pair as u32);
            visit(2 * pair, even);
            visit(2 * pair + 1, odd);
        }
        if self.k % 2 == 1 {
            visit(self.k as usize - 1, positions.get(self.k - 1));
        }
    }

    /// Prefetches the key's counters of the primary part.
    #[inline]
    pub fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let guess = self.store.guess(block);
        self.each_place(hash, |_, at| guess.prefetch(block, at));
    }

    /// Returns the key's counters of the primary part, already [prefetched](Parts::prefetch), as
    /// before all changes.
    #[inline]
    fn fetched(&self, block: &Block<'_>, hash: u64) -> Counters {
        let mut counters = Counters::new(self.k);
        self.each_place(hash, |slot, at| counters.find(slot, at));
        counters.load(self.store, block);
        counters
    }

    /// Returns the key's counters of the primary part.
    #[inline]
    fn primary_of(&self, block: &Block<'_>, hash: u64) -> Counters {
        let guess = self.store.guess(block);
        let mut counters = Counters::new(self.k);
        self.each_place(hash, |slot, at| {
            guess.prefetch(block, at);
            counters.find(slot, at);
        });
        counters.load(self.store, block);
        counters
    }

    /// Returns the key's counters of the secondary part, by functions `k` to `2·k - 1`.
    fn secondary_of(&self, block: &Block<'_>, hash: u64) -> Counters {
        let positions = Positions::new(hash, self.secondary);
        let guess = self.store.guess(block);
        let mut counters = Counters::new(self.k);
        for function in 0..self.k {
            let at = self.primary as usize + positions.get(self.k + function);
            guess.prefetch(block, at);
            counters.find(function as usize, at);
        }
        counters.load(self.store, block);
        counters
    }

    /// Inserts a key `weight` times.
    pub fn insert(&self, block: &Block<'_>, hash: u64, weight: u64) {
        let mut writer = Writer::to_raise(self.store, block);
        let mut primary = self.fetched(writer.block(), hash);
        match self.policy {
            Policy::MinimumSelection => primary.raise(&mut writer, weight),
            Policy::MinimalIncrease => {
                let least = primary.least().saturating_add(weight);
                primary.change(&mut writer, |value| value.max(least));
            }
            Policy::RecurringMinimum => {
                primary.raise(&mut writer, weight);
                if !primary.least_recurs() {
                    let mut secondary = self.secondary_of(writer.block(), hash);
                    // A key not found there starts with its count in the primary part.
                    let found = secondary.least() > 0;
                    let more = if found { weight } else { primary.least() };
                    secondary.raise(&mut writer, more);
                }
            }
        }
        writer.finish();
    }

    /// Removes a key `weight` times: an insert reversed.
    pub fn remove(&self, block: &Block<'_>, hash: u64, weight: u64) {
        if self.policy == Policy::MinimalIncrease {
            return;
        }
        let mut writer = Writer::to_lower(self.store, block);
        let mut primary = self.fetched(writer.block(), hash);
        primary.lower(&mut writer, weight);
        if self.policy == Policy::RecurringMinimum && !primary.least_recurs() {
            let mut secondary = self.secondary_of(writer.block(), hash);
            // Lowered until one of them is 0.
            let less = secondary.least().min(weight);
            secondary.lower(&mut writer, less);
        }
        writer.finish();
    }

    /// Returns how often a key was inserted, by the policy.
    pub fn estimate(&self, block: &Block<'_>, hash: u64) -> u64 {
        if room_now(block) == 0 {
            return 0;
        }
        let primary = self.primary_of(block, hash);
        let least = primary.least();
        if self.policy != Policy::RecurringMinimum || least == 0 || primary.least_recurs() {
            return least;
        }
        match self.secondary_of(block, hash).least() {
            0 => least,
            second => second.min(least),
        }
    }

    /// Returns whether a key's estimate is above 0.
    pub fn contains(&self, block: &Block<'_>, hash: u64) -> bool {
        // The secondary part never makes an estimate 0.
        room_now(block) != 0 && self.primary_of(block, hash).least() > 0
    }
}

/// The counters of a key in one part, as read.
pub(super) struct Counters {
    k: usize,
    at: [u16; MOST_FUNCTIONS],
    located: [Located; MOST_FUNCTIONS],
    values: [u64; MOST_FUNCTIONS],
}

impl Counters {
    fn new(k: u32) -> Self {
        let k = (k as usize).min(MOST_FUNCTIONS);
        let located = [Located::default(); MOST_FUNCTIONS];
        Self { k, at: [0; MOST_FUNCTIONS], located, values: [0; MOST_FUNCTIONS] }
    }

    #[inline]
    fn find(&mut self, slot: usize, at: usize) {
        self.at[slot % MOST_FUNCTIONS] = at as u16;
    }

    /// Reads all counters: first all headers, then all data, so that the misses of each overlap.
    #[inline]
    fn load(&mut self, store: Store, block: &Block<'_>) {
        let counters = self.at[..self.k].iter();
        for (located, &at) in self.located.iter_mut().zip(counters) {
            *located = store.locate(block, at.into());
            located.prefetch(block);
        }
        for (value, located) in self.values[..self.k].iter_mut().zip(self.located) {
            *value = located.read(block);
        }
    }

    /// Returns the least counter.
    #[inline]
    fn least(&self) -> u64 {
        self.values[..self.k].iter().copied().min().unwrap_or(0)
    }

    /// Returns whether two different counters have the least value.
    fn least_recurs(&self) -> bool {
        let least = self.least();
        let mut minimal = (0..self.k).filter(|&slot| self.values[slot] == least);
        let first = minimal.next().map(|slot| self.at[slot]);
        minimal.any(|slot| Some(self.at[slot]) != first)
    }

    /// Adds to all counters; a saturated one keeps its value.
    fn raise(&mut self, writer: &mut Writer<'_>, by: u64) {
        self.change(writer, |value| value.saturating_add(by));
    }

    /// Subtracts from all counters; a saturated one, which may have counted more, keeps its value.
    fn lower(&mut self, writer: &mut Writer<'_>, by: u64) {
        let lower = |value: u64| value.saturating_sub(by);
        self.change(writer, |value| if value == u64::MAX { value } else { lower(value) });
    }

    #[inline]
    fn change(&mut self, writer: &mut Writer<'_>, new: impl Fn(u64) -> u64) {
        for slot in 0..self.k {
            let (old, new) = (self.values[slot], new(self.values[slot]));
            if old != new {
                self.values[slot] = new;
                writer.set(self.at[slot].into(), self.located[slot], new);
            }
        }
    }
}

const _: () = assert!(Store::MOST_COUNTERS < 1 << 16);
