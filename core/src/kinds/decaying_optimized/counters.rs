//! Counters of any size out of small base counters (the paper's `TBF1`) and digits of the pool: the
//! listing of section 4.2.
//!
//! | listing | here |
//! |---|---|
//! | `if C_hj(q) overflows: require C_new …` | [`Counters::carry`], by [`Pool::extend`] |
//! | `C_hj(q)++` | [`Counters::add`] |
//! | `assemble all linked counters into C_i` | [`Counters::value`] |
//! | `C_i = λ·C_i; free 0-valued sub-counters …` | [`Counters::decay`], once a half-life |
//! | `Min{C_h1(q), …, C_hk(q)}` | [`Counters::least`] |
//!
//! A base counter holds the lowest bits of its value, four integer bits and the fraction (4-bit
//! integers cannot both decay and never undercount). It has two marks: whether the value continues
//! in the pool, and whether it has *lost* something. It has as many digits as its value needs.
//!
//! When the pool is exhausted, a counter that needs a digit stays at the maximum of the digits it
//! has, and is marked as lossy. It decays as any other, and may get digits again later; the mark
//! stays for as long as the lost weight might be alive. The same applies to a counter at the
//! maximum of its bits.

use super::pool::{Digits, Pool, digits_of, most_of};
use super::shape::{FLAGGED, IN_USE, LINE, MOST_FUNCTIONS, Parts};
use crate::block::Block;
use crate::kinds::decaying::HalfLife;

/// The counters of one block.
#[derive(Debug, Clone, Copy)]
pub struct Counters<'a> {
    /// Their block.
    pub block: &'a Block<'a>,
    /// Its parts.
    pub parts: &'a Parts,
    /// Its pool.
    pub pool: Pool<'a>,
    /// Bits of a base counter's value.
    pub base_bits: u32,
    /// The greatest value of a counter, whatever digits the pool has.
    pub most: u64,
}

/// The additions that were not made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Additions for which the pool had no digit.
    pub exhausted: u64,
    /// Additions that did not fit into the bits of a counter.
    pub saturated: u64,
}

/// The least of a key's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Least {
    /// Its value.
    pub value: u64,
    /// Whether it has lost something that the next counter has not, so that the least might be
    /// higher.
    pub at_least: bool,
}

impl Counters<'_> {
    /// Returns the mark of a base counter whose value continues in the pool.
    fn carried(&self) -> u64 {
        1 << self.base_bits
    }

    /// Returns the mark of a counter that has lost something.
    fn lossy(&self) -> u64 {
        2 << self.base_bits
    }

    /// Returns the largest value of a base counter.
    fn low(&self) -> u64 {
        self.carried() - 1
    }

    /// Assembles a value from its base counter and its digits.
    #[inline]
    fn value(&self, at: usize, cell: u64) -> u64 {
        let low = cell & self.low();
        if cell & self.carried() == 0 {
            return low;
        }
        self.pool.chain(at / LINE, at % LINE).number << self.base_bits | low
    }

    /// Adds to each of these counters; hash functions that meet in one add to it once.
    #[inline]
    pub fn add(&self, at: &[u32], amount: u64) -> Lost {
        // All are loaded before one is written, so that misses overlap, and a counter that occurs
        // twice is written twice but not added to twice.
        let mut cells = [0; MOST_FUNCTIONS];
        for (cell, &at) in cells.iter_mut().zip(at) {
            *cell = self.parts.base.get(self.block, at as usize);
        }
        let mut lost = Lost::default();
        for (index, (&cell, &counter)) in cells.iter().zip(at).enumerate() {
            let sum = (cell & self.low()).saturating_add(amount);
            if sum <= self.low() {
                let marks = cell & !self.low();
                self.parts.base.set(self.block, counter as usize, marks | sum);
            } else if !at[..index].contains(&counter) {
                self.carry(counter as usize, cell, amount, &mut lost);
            }
        }
        lost
    }

    /// Adds to a counter that overflows its base: carries into its digits, with as many more as it
    /// needs.
    fn carry(&self, at: usize, cell: u64, amount: u64, lost: &mut Lost) {
        let (line, owner) = (at / LINE, at % LINE);
        let mut chain = self.pool.chain(line, owner);
        if cell & self.carried() == 0 {
            (chain.digits, chain.number) = (0, 0);
        }
        let whole = (chain.number << self.base_bits | cell & self.low()).checked_add(amount);
        let sum = whole.unwrap_or(u64::MAX).min(self.most);
        let saturated = whole != Some(sum);
        let needed = digits_of(sum >> self.base_bits);
        let had = chain.digits;
        let mut in_use = self.block.own(IN_USE);
        while chain.digits < needed && in_use < self.parts.pool {
            let Some(longer) = self.pool.extend(line, owner, &chain) else { break };
            chain = longer;
            in_use += 1;
        }
        if chain.digits > had {
            self.block.set_own(IN_USE, in_use);
        }
        let exhausted = chain.digits < needed;
        let sum = match exhausted {
            true => most_of(chain.digits) << self.base_bits | self.low(),
            false => sum,
        };
        self.pool.set(owner, &chain, sum >> self.base_bits);
        lost.exhausted += u64::from(exhausted);
        lost.saturated += u64::from(saturated && !exhausted);
        let mut new = sum & self.low() | cell & self.lossy();
        if chain.digits > 0 {
            new |= self.carried();
        }
        if (exhausted || saturated) && cell & self.lossy() == 0 {
            new |= self.lossy();
            self.block.set_own(FLAGGED, self.block.own(FLAGGED).wrapping_add(1));
        }
        if new != cell {
            self.parts.base.set(self.block, at, new);
        }
    }

    /// Returns the least of these counters after `times` grid points; marks of losses count only if
    /// `marks` is set.
    #[inline]
    pub fn least(&self, at: &[u32], half_life: &HalfLife, times: u32, marks: bool) -> Least {
        let lossy = if marks { self.lossy() } else { 0 };
        // The least of the sound counters and of those that have lost something; `None` where there
        // are none.
        let (mut sound, mut short) = (None, None);
        let mut take = |cell: u64, value: u64| {
            let least = if cell & lossy == 0 { &mut sound } else { &mut short };
            *least = Some(least.map_or(value, |other: u64| other.min(value)));
        };
        let (mut small, mut large) = (false, false);
        for &at in at {
            let cell = self.parts.base.get(self.block, at as usize);
            if cell & self.carried() == 0 {
                take(cell, cell & self.low());
                small |= cell & lossy == 0;
            } else {
                large = true;
            }
        }
        // If one counter is small and sound, the large ones, which would need the pool, do not
        // matter.
        if large && !small {
            for &at in at {
                let cell = self.parts.base.get(self.block, at as usize);
                if cell & self.carried() != 0 {
                    take(cell, self.value(at as usize, cell));
                }
            }
        }
        // Decay keeps the order, so the least stays the least.
        let [sound, short] =
            [sound, short].map(|least| least.map(|value| half_life.halve(value, times)));
        match (sound, short) {
            (sound, None) => Least { value: sound.unwrap_or(0), at_least: false },
            (None, Some(value)) => Least { value, at_least: true },
            (Some(sound), Some(short)) => {
                Least { value: sound.min(short), at_least: short < sound }
            }
        }
    }

    /// Decays all counters by `times` grid points, and returns digits to the pool that they no
    /// longer need. Marks of losses are removed unless `marks` says that they still count.
    pub fn decay(&self, half_life: &HalfLife, times: u32, marks: bool) {
        let mut digits = Digits::default();
        let mut flagged = 0;
        for at in 0..self.parts.base.cells {
            if at % LINE == 0 {
                digits.line();
            }
            let cell = self.parts.base.get(self.block, at);
            if cell == 0 {
                continue;
            }
            let value = half_life.halve(self.value(at, cell), times);
            let mut new = value & self.low();
            if value > self.low() {
                new |= self.carried();
                digits.push(at % LINE, value >> self.base_bits);
            }
            if marks && cell & self.lossy() != 0 {
                new |= self.lossy();
                flagged += 1;
            }
            self.parts.base.set(self.block, at, new);
        }
        for (own, now) in [(IN_USE, digits.len() as u64), (FLAGGED, flagged)] {
            if self.block.own(own) != now {
                self.block.set_own(own, now);
            }
        }
        self.pool.rebuild(&digits);
    }

    /// Returns the number of counters that are not zero.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        let base = &self.parts.base;
        (0..base.cells).filter(|&at| base.get(self.block, at) != 0).count() as u64
    }
}
