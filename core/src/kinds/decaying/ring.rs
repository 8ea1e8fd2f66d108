//! Decay functions that end: a counter is a ring of `n` counters, one for each of the last `n`
//! epochs.
//!
//! For any values that the function `g` has at each age below `n`, `Σ g(x) · count[x]` is exact,
//! and only the oldest count is ever dropped. Implemented are the sliding window of the paper's
//! section 3.2, `g = 1`; `linear`, `g(x) = 1 - x/n`; and `weights`, a table, which represents the
//! polygonal and chordal functions of that section. Weights that are no multiples of `2^-32` are
//! rounded up to one.
//!
//! | kind word | holds |
//! |---|---|
//! | 0 | the epoch that the block has caught up to |
//! | 1 | additions that were cut short because the counter was full |
//!
//! The counts of epoch `e` are those with number `e mod n`; those of epochs without inserts are
//! zero once the block has caught up. A full count stays full until its epoch leaves the window, so
//! *at least* is exact, too.

use super::counters::{Addition, At, Cells, Counters, note_full};
use crate::block::packed::Packed;
use crate::block::{Layout, load};
use crate::error::{Error, Result};
use crate::kind::parameters::within;
use crate::kind::{Estimate, Parameters};

/// The name of the sliding window, in the parameter `decay`.
pub(super) const SLIDING_WINDOW: &str = "sliding-window";

/// The name of linear decay.
pub(super) const LINEAR: &str = "linear";

/// The name of decay by a table, in the parameter `decay`, and the parameter with the table.
pub(super) const WEIGHTS: &str = "weights";

/// The parameters of a window.
pub(super) const KNOWN: [&str; 1] = ["window-epochs"];

/// The parameters of a table.
pub(super) const KNOWN_OF_WEIGHTS: [&str; 1] = [WEIGHTS];

/// Binary places of the weights of a table.
const WEIGHT_PLACES: u32 = 32;

const DEFAULT_COUNTER_BITS: u64 = 16;

/// The greatest number of bits of the ring of a counter: the smallest block must hold one.
const MOST_BITS: u64 = Layout::LEAST_BLOCK_WORDS as u64 * 64;

const EPOCH: usize = 0;

/// The weight of an epoch's count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// All of it, to the end of the window.
    SlidingWindow,
    /// `1 - x/n` after `x` of `n` epochs.
    Linear,
    /// The number at `x`, with [`WEIGHT_PLACES`] binary places.
    Table(Vec<u64>),
}

impl Shape {
    /// Returns the shape of this name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a table is missing, or contains anything but numbers above 0 of
    /// which none is above 1 or above the one before.
    pub fn of(name: &str, parameters: &Parameters) -> Result<Self> {
        match name {
            SLIDING_WINDOW => return Ok(Self::SlidingWindow),
            LINEAR => return Ok(Self::Linear),
            _ => {}
        }
        let expected = "numbers from 1 down to above 0, none above the one before, separated by \
                        commas: what ages 0, 1, … leave of a count";
        let text = parameters.required::<String>(WEIGHTS, expected)?;
        let refused = || Error::parameter(WEIGHTS, expected, &text);
        let numbers: std::result::Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
        let numbers = numbers.map_err(|_| refused())?;
        let is_sound = numbers.iter().all(|&number| number > 0.0 && number <= 1.0)
            && numbers.is_sorted_by(|a, b| a >= b);
        let scaled = |number: &f64| (number * (1_u64 << WEIGHT_PLACES) as f64).ceil() as u64;
        is_sound.then(|| Self::Table(numbers.iter().map(scaled).collect())).ok_or_else(refused)
    }

    /// Returns the weight of an age below `epochs`, times [`Shape::one`].
    #[inline]
    fn weight(&self, age: usize, epochs: usize) -> u64 {
        match self {
            Self::SlidingWindow => 1,
            Self::Linear => (epochs - age) as u64,
            Self::Table(weights) => weights.get(age).copied().unwrap_or(0),
        }
    }

    /// Returns the number that stands for a weight of 1.
    fn one(&self, epochs: u64) -> f64 {
        match self {
            Self::SlidingWindow => 1.0,
            Self::Linear => epochs as f64,
            Self::Table(_) => (1_u64 << WEIGHT_PLACES) as f64,
        }
    }
}

/// Counters with a count for each epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ring {
    shape: Shape,
    epochs: u64,
    bits: u32,
}

impl Ring {
    /// Creates the counters from `window-epochs`, or the length of a table, and `counter-bits`,
    /// which are the bits of one epoch's count.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `window-epochs` is missing, or the product of the two above 4096;
    /// for counts of more than 64 bits.
    pub fn new(parameters: &Parameters, shape: Shape) -> Result<Self> {
        let bits = parameters.count("counter-bits", "a number of bits", 64)?;
        let bits = bits.unwrap_or(DEFAULT_COUNTER_BITS);
        let most = MOST_BITS / bits;
        let epochs = match &shape {
            Shape::Table(weights) if weights.len() as u64 <= most => weights.len() as u64,
            Shape::Table(weights) => {
                let expected = format!("at most {most} numbers, with counts of {bits} bits");
                return Err(Error::parameter(WEIGHTS, expected, weights.len()));
            }
            _ => {
                let epochs =
                    parameters.required("window-epochs", "how many epochs it looks back")?;
                within("window-epochs", epochs, 1, most)?
            }
        };
        Ok(Self { shape, epochs, bits: bits as u32 })
    }

    /// Returns the counts; those of one counter are adjacent.
    fn packed(&self, cells: &Cells<'_>) -> Packed {
        let cells = cells.count as usize * self.epochs as usize;
        Packed { first: 0, bits: self.bits, cells }
    }

    /// Returns the number of an epoch's count in each counter.
    #[inline]
    fn slot(&self, epoch: u64) -> usize {
        (epoch % self.epochs) as usize
    }

    /// Returns the first epoch in the window that ends with epoch `now`.
    #[inline]
    fn first(&self, now: u64) -> u64 {
        now.saturating_sub(self.epochs - 1)
    }

    /// Returns a counter, times [`Shape::one`], and whether a count in it is full. The block caught
    /// up `behind` epochs ago, and the counts of the epoch that it caught up to are number
    /// `newest`.
    #[inline]
    fn total(&self, cells: &Cells<'_>, cell: u32, newest: usize, behind: usize) -> (u128, bool) {
        let (packed, epochs) = (self.packed(cells), self.epochs as usize);
        let begin = cell as usize * epochs;
        let (mut total, mut full) = (0, false);
        // Backwards from the newest; all before the first epoch ever are zero.
        let (before, after) = (0..newest + 1, newest + 1..epochs);
        for (slot, age) in before.rev().chain(after.rev()).zip(behind..epochs) {
            let count = packed.get(cells.block, begin + slot);
            full |= count == packed.most();
            total += u128::from(count) * u128::from(self.shape.weight(age, epochs));
        }
        (total, full)
    }
}

impl Counters for Ring {
    fn describe(&self, parameters: Parameters) -> Parameters {
        let parameters = parameters.with("counter-bits", self.bits);
        let windowed =
            |name| parameters.clone().with("decay", name).with("window-epochs", self.epochs);
        match &self.shape {
            Shape::SlidingWindow => windowed(SLIDING_WINDOW),
            Shape::Linear => windowed(LINEAR),
            Shape::Table(weights) => {
                let one = self.shape.one(self.epochs);
                let all = weights.iter().map(|&weight| (weight as f64 / one).to_string());
                let all = all.collect::<Vec<_>>().join(",");
                parameters.with("decay", WEIGHTS).with(WEIGHTS, all)
            }
        }
    }

    fn bits(&self) -> u32 {
        self.bits * self.epochs as u32
    }

    fn forgotten(&self, epoch: u64, now: u64) -> bool {
        epoch < self.first(now)
    }

    fn add<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, addition: Addition) {
        let Addition { weight, epoch, now } = addition;
        let (block, packed) = (cells.block, self.packed(cells));
        self.catch_up(cells, now);
        if self.forgotten(epoch, block.own(EPOCH)) {
            // Another thread advanced the block since this was decided.
            return;
        }
        let slot = self.slot(epoch);
        let place = |at: u32| at as usize * self.epochs as usize + slot;
        // All are loaded before one is written, as in `exponential`.
        let mut old = [0; N];
        for (old, at) in old.iter_mut().zip(at.iter()) {
            *old = packed.get(block, place(at));
        }
        let (most, added, mut cut) = (packed.most(), u64::from(weight), 0);
        for (&old, at) in old.iter().zip(at.iter()) {
            cut += u64::from(added > most - old);
            packed.set(block, place(at), old.saturating_add(added).min(most));
        }
        if cut > 0 {
            note_full(block, cut);
        }
    }

    fn least<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, now: u64) -> Estimate {
        // A ring takes so long to sum that the processor would meet the misses one by one.
        at.iter().for_each(|at| self.prefetch(cells, at));
        let caught_up = cells.block.own(EPOCH);
        let behind = now.saturating_sub(caught_up).min(self.epochs) as usize;
        let newest = self.slot(caught_up);
        let totals = at.iter().map(|at| self.total(cells, at, newest, behind));
        let (total, at_least) = totals.min().unwrap_or_default();
        let count = total as f64 / self.shape.one(self.epochs);
        Estimate { count, at_least }
    }

    fn catch_up(&self, cells: &Cells<'_>, now: u64) {
        let (block, packed) = (cells.block, self.packed(cells));
        let from = block.own(EPOCH);
        if now <= from {
            return;
        }
        block.set_own(EPOCH, now);
        if now - from >= self.epochs {
            for (index, word) in block.cells.iter().enumerate() {
                if load(word) != 0 {
                    block.set_word(index, 0);
                }
            }
            return;
        }
        for epoch in from + 1..=now {
            let slots = (self.slot(epoch)..packed.cells).step_by(self.epochs as usize);
            slots.for_each(|place| packed.set(block, place, 0));
        }
    }

    fn in_use(&self, cells: &Cells<'_>) -> u64 {
        let (packed, epochs) = (self.packed(cells), self.epochs as usize);
        let used = |&cell: &usize| {
            (0..epochs).any(|count| packed.get(cells.block, cell * epochs + count) != 0)
        };
        (0..cells.count as usize).filter(used).count() as u64
    }

    fn prefetch(&self, cells: &Cells<'_>, at: u32) {
        self.packed(cells).prefetch(cells.block, at as usize * self.epochs as usize);
    }

    fn normaliser(&self) -> f64 {
        let epochs = self.epochs as usize;
        let sum: u64 = (0..epochs).map(|age| self.shape.weight(age, epochs)).sum();
        self.shape.one(self.epochs) / sum as f64
    }

    fn fills(&self) -> Option<u64> {
        Some(u64::MAX >> (64 - self.bits))
    }
}
