//! Exponential decay `λ^x` (the paper's section 3.2, eq. 3): a counter is one number, on the grid
//! of [`half_life`](super::half_life).
//!
//! | kind word | holds |
//! |---|---|
//! | 0 | the half-life that the block has caught up to |
//! | 1 | additions that were cut short because the counter was full |
//! | 2 | one more than the half-life in which a key was first cut; 0 if the next word is |
//! | 3 | the sum of what was cut off keys, decayed as a counter |
//! | 4, 5 | the keys that were cut ([`cut_keys`](super::cut_keys)) |
//!
//! Counters change at inserts, and at grid points, where all of a block are rewritten at the next
//! insert into it. Between grid points time changes nothing, because reads multiply by the decay
//! since the beginning of the half-life.
//!
//! **Once a counter was full** it decays as any other. If even the least counter of an insert is
//! too full for it, something is cut off its key, and the exact count may be higher than the
//! estimate, by at most the remainder of that: word 3, which is of all keys that were cut.
//! Estimates report it. A counter that lacks something was full `j` grid points ago, so it holds
//! at least what `j` grid points leave of a full one. If the least counter of a key that was cut
//! holds that much for the first cut, while word 3 is not zero, the estimate is marked *at least*,
//! even an estimate of 0. Unmarked estimates are too small by less than `ε` as always; by less
//! than `2ε` if word 3 was ever nonzero, because it is rounded down to zero at the end, too.

use super::counters::{Addition, At, Cells, Counters, note_full};
use super::cut_keys::CutKeys;
use super::half_life::{HalfLife, MOST_FRACTION_BITS, MOST_STEPS, steps_between};
use crate::block::Block;
use crate::block::packed::Packed;
use crate::error::Result;
use crate::kind::parameters::within;
use crate::kind::{Estimate, Parameters};

/// The name of this decay function, in the parameter `decay`.
pub(super) const NAME: &str = "exponential";

/// The parameters of this decay function.
pub(super) const KNOWN: [&str; 2] = ["lambda", "fraction-bits"];

const DEFAULT_FRACTION_BITS: u32 = 8;
const DEFAULT_COUNTER_BITS: u64 = 32;

/// Bits that a counter needs above its fraction: one insert adds up to `2 · 2^F`.
const LEAST_WHOLE_BITS: u32 = 2;

const HALF_LIFE: usize = 0;
const FIRST_CUT: usize = 2;
const LOST: usize = 3;

/// In half-lives: nothing is left of word 3 after [`MOST_STEPS`].
const CUT_KEYS: CutKeys = CutKeys { words: [4, 5], period: MOST_STEPS as u64 };

/// Counters that decay exponentially.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exponential {
    half_life: HalfLife,
    bits: u32,
}

impl Exponential {
    /// Creates the counters from `lambda`, `fraction-bits` and `counter-bits`.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) if `lambda` is missing or not between 0 and 1,
    /// both excluded; for more than [`MOST_FRACTION_BITS`]; and for counters with less than two
    /// bits more, or with more than 64.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let lambda = parameters.required("lambda", "what an epoch leaves of a count")?;
        let fraction = parameters.optional("fraction-bits", "a number of bits")?;
        let fraction = fraction.unwrap_or(u64::from(DEFAULT_FRACTION_BITS));
        let fraction = within("fraction-bits", fraction, 0, MOST_FRACTION_BITS.into())? as u32;
        let half_life = HalfLife::new(lambda, fraction)?;
        let bits = parameters.optional("counter-bits", "a number of bits")?;
        let least = u64::from(fraction + LEAST_WHOLE_BITS);
        let bits = bits.unwrap_or(DEFAULT_COUNTER_BITS.max(least));
        let bits = within("counter-bits", bits, least, 64)? as u32;
        Ok(Self { half_life, bits })
    }

    fn packed(&self, cells: &Cells<'_>) -> Packed {
        Packed { first: 0, bits: self.bits, cells: cells.count as usize }
    }

    /// Returns what `times` grid points leave of a full counter.
    fn full_after(&self, times: u32) -> u64 {
        self.half_life.halve(u64::MAX >> (64 - self.bits), times)
    }

    /// Decays all counters, of which a whole number fits a word; words beyond the last counter are
    /// zero.
    fn decay_words(&self, block: &Block<'_>, times: u32) {
        match (self.bits, times) {
            // The case of nearly all filters at nearly all grid points, stated so that the compiler
            // can use it.
            (32, 1) => {
                block.rewrite(|word| in_lanes(word, 32, |value| self.half_life.halved(value)))
            }
            (bits, 1) => {
                block.rewrite(|word| in_lanes(word, bits, |value| self.half_life.halved(value)));
            }
            (bits, _) => {
                let halve = |value| self.half_life.halve(value, times);
                block.rewrite(|word| in_lanes(word, bits, halve));
            }
        }
    }

    /// Records that this much was cut off a key.
    #[cold]
    fn note_cut(&self, block: &Block<'_>, hash: u64, lost: u64) {
        let (half_life, before) = (block.own(HALF_LIFE), block.own(LOST));
        if block.own(FIRST_CUT) == 0 {
            block.set_own(FIRST_CUT, half_life.saturating_add(1));
        }
        CUT_KEYS.add(block, hash, half_life, before != 0);
        block.set_own(LOST, before.saturating_add(lost));
    }

    /// Returns whether a key whose least counter has this value in this half-life may lack
    /// something that was cut off.
    #[inline]
    fn may_lack(&self, block: &Block<'_>, hash: u64, value: u64, half_life: u64) -> bool {
        let lost = block.own(LOST);
        lost != 0 && {
            let caught_up = block.own(HALF_LIFE);
            self.half_life.halve(lost, steps_between(caught_up, half_life)) > 0
                && value >= self.full_since_first_cut(block, half_life)
                && CUT_KEYS.may_have(block, hash, caught_up, half_life)
        }
    }

    /// Returns what is left in this half-life of a counter that was full at the first cut.
    fn full_since_first_cut(&self, block: &Block<'_>, half_life: u64) -> u64 {
        let first = block.own(FIRST_CUT).saturating_sub(1);
        self.full_after(steps_between(first, half_life))
    }
}

/// Returns a word of counters of `bits` bits, each changed.
#[inline(always)]
fn in_lanes(word: u64, bits: u32, change: impl Fn(u64) -> u64) -> u64 {
    let counter = |shift: usize| change(word >> shift & u64::MAX >> (64 - bits)) << shift;
    (0..64).step_by(bits as usize).fold(0, |new, shift| new | counter(shift))
}

impl Counters for Exponential {
    fn describe(&self, parameters: Parameters) -> Parameters {
        parameters
            .with("decay", NAME)
            .with("lambda", self.half_life.lambda())
            .with("fraction-bits", self.half_life.fraction_bits())
            .with("counter-bits", self.bits)
    }

    fn bits(&self) -> u32 {
        self.bits
    }

    fn table_bytes(&self) -> usize {
        self.half_life.table_bytes()
    }

    fn add<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, addition: Addition) {
        let Addition { weight, epoch, now } = addition;
        let (block, packed) = (cells.block, self.packed(cells));
        self.catch_up(cells, now);
        let half_life = block.own(HALF_LIFE);
        // In the current half-life, however late, `added` is exact.
        let late = steps_between(self.half_life.number(epoch), half_life);
        let added = self.half_life.late(self.half_life.added(weight, epoch), late);
        // All are loaded before one is written, so that misses overlap, and so that a counter
        // shared by two functions gets the weight once.
        let mut old = [0; N];
        for (old, at) in old.iter_mut().zip(at.iter()) {
            *old = packed.get(block, at as usize);
        }
        let most = packed.most();
        let (mut cut, mut least) = (0, most);
        for (&old, at) in old.iter().zip(at.iter()) {
            cut += u64::from(added > most - old);
            least = least.min(old);
            packed.set(block, at as usize, old.saturating_add(added).min(most));
        }
        if cut > 0 {
            note_full(block, cut);
            let lost = added.saturating_sub(most - least);
            if lost > 0 {
                self.note_cut(block, at.hash, lost);
            }
        }
    }

    fn least<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, now: u64) -> Estimate {
        let packed = self.packed(cells);
        let values = at.iter().map(|at| packed.get(cells.block, at as usize));
        let least = values.min().unwrap_or(0);
        let caught_up = cells.block.own(HALF_LIFE);
        let half_life = self.half_life.number(now).max(caught_up);
        // Decay keeps the order, so the least stays the least.
        let least = self.half_life.halve(least, steps_between(caught_up, half_life));
        let count = self.half_life.read(least, now.max(self.half_life.start(half_life)));
        Estimate { count, at_least: self.may_lack(cells.block, at.hash, least, half_life) }
    }

    fn catch_up(&self, cells: &Cells<'_>, now: u64) {
        let (block, packed) = (cells.block, self.packed(cells));
        let (from, to) = (block.own(HALF_LIFE), self.half_life.number(now));
        if to <= from {
            return;
        }
        let times = steps_between(from, to);
        block.set_own(HALF_LIFE, to);
        let lost = block.own(LOST);
        if lost != 0 {
            let lost = self.half_life.halve(lost, times);
            block.set_own(LOST, lost);
            if lost == 0 {
                block.set_own(FIRST_CUT, 0);
                CUT_KEYS.clear(block);
            } else {
                CUT_KEYS.catch_up(block, from, to);
            }
        }
        if 64 % self.bits == 0 {
            return self.decay_words(block, times);
        }
        for cell in 0..packed.cells {
            let value = packed.get(block, cell);
            if value != 0 {
                packed.set(block, cell, self.half_life.halve(value, times));
            }
        }
    }

    fn in_use(&self, cells: &Cells<'_>) -> u64 {
        let packed = self.packed(cells);
        (0..packed.cells).filter(|&cell| packed.get(cells.block, cell) != 0).count() as u64
    }

    fn marked(&self, block: &Block<'_>) -> f64 {
        let of_any_value = self.full_since_first_cut(block, block.own(HALF_LIFE)) == 0;
        if block.own(LOST) != 0 && of_any_value { CUT_KEYS.rate(block) } else { 0.0 }
    }

    fn prefetch(&self, cells: &Cells<'_>, at: u32) {
        self.packed(cells).prefetch(cells.block, at as usize);
    }

    fn normaliser(&self) -> f64 {
        1.0 - self.half_life.lambda()
    }
}
