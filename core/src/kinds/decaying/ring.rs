//! Decay functions that end: a counter is a ring of `n` counters, one for each of the last `n`
//! epochs.
//!
//! For any values that the function `g` has at each age below `n`, `Σ g(x) · count[x]` is exact,
//! and only the oldest count is ever dropped. Implemented are the sliding window of the paper's
//! section 3.2, `g = 1`, and `linear`, `g(x) = 1 - x/n`.
//!
//! | kind word | holds |
//! |---|---|
//! | 0 | the epoch that the block has caught up to |
//! | 1 | additions that were cut short because the counter was full |
//!
//! The counts of epoch `e` are those with number `e mod n`; those of epochs without inserts are
//! zero once the block has caught up. A full count stays full until its epoch leaves the window, so
//! *at least* is exact, too.

use super::counters::{Addition, At, Cells, Counters, SATURATED};
use crate::block::packed::Packed;
use crate::block::{Layout, load};
use crate::error::Result;
use crate::kind::parameters::within;
use crate::kind::{Estimate, Parameters};

/// The name of the sliding window, in the parameter `decay`.
pub(super) const SLIDING_WINDOW: &str = "sliding-window";

/// The name of linear decay.
pub(super) const LINEAR: &str = "linear";

/// The parameters of this decay function.
pub(super) const KNOWN: [&str; 1] = ["window-epochs"];

const DEFAULT_COUNTER_BITS: u64 = 16;

/// The greatest number of bits of the ring of a counter: the smallest block must hold one.
const MOST_BITS: u64 = Layout::LEAST_BLOCK_WORDS as u64 * 64;

const EPOCH: usize = 0;

/// The weight of an epoch's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// All of it, to the end of the window.
    SlidingWindow,
    /// `1 - x/n` after `x` of `n` epochs.
    Linear,
}

/// Counters with a count for each epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ring {
    shape: Shape,
    epochs: u64,
    bits: u32,
}

impl Ring {
    /// Creates the counters from `window-epochs` and `counter-bits`, which are the bits of one
    /// epoch's count.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) if `window-epochs` is missing, or the product
    /// of the two above 4096; for counts of more than 64 bits.
    pub fn new(parameters: &Parameters, shape: Shape) -> Result<Self> {
        let bits = parameters.count("counter-bits", "a number of bits", 64)?;
        let bits = bits.unwrap_or(DEFAULT_COUNTER_BITS);
        let epochs = parameters.required("window-epochs", "how many epochs it looks back")?;
        let epochs = within("window-epochs", epochs, 1, MOST_BITS / bits)?;
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

    /// Returns a counter, times `n` if linear, and whether a count in it is full. The block caught
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
            let weight = match self.shape {
                Shape::SlidingWindow => 1,
                Shape::Linear => epochs - age,
            };
            total += u128::from(count) * weight as u128;
        }
        (total, full)
    }
}

impl Counters for Ring {
    fn describe(&self, parameters: Parameters) -> Parameters {
        let decay = match self.shape {
            Shape::SlidingWindow => SLIDING_WINDOW,
            Shape::Linear => LINEAR,
        };
        parameters
            .with("decay", decay)
            .with("window-epochs", self.epochs)
            .with("counter-bits", self.bits)
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
            block.set_own(SATURATED, block.own(SATURATED).wrapping_add(cut));
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
        let count = match self.shape {
            Shape::SlidingWindow => total as f64,
            Shape::Linear => total as f64 / self.epochs as f64,
        };
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
        let epochs = self.epochs as f64;
        match self.shape {
            Shape::SlidingWindow => 1.0 / epochs,
            Shape::Linear => 2.0 / (epochs + 1.0),
        }
    }
}
