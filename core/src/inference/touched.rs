//! The probability that other keys touched a key's cells (equations 1, 21 and 25).
//!
//! A distinct key touches `k` cells of one block. Cells of one block are correlated, because blocks
//! differ in their number of keys. The share of touched cells therefore varies between blocks; its
//! mean and variance are exact here.

use super::posterior::gone;
use std::sync::OnceLock;

/// The scattering of keys over cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scatter {
    /// `ln` of the probability that a key misses a given cell, in its own block or another.
    ln_missed: f64,
    /// The logarithm of the factor by which the variance of the share of missed cells grows with
    /// each key.
    ln_spread: f64,
    /// `k·ln(1 - 1/m)` over all cells, as in the paper.
    ln_missed_of_all: f64,
}

/// The scattering of keys over the blocks of a filter, which all have the same shape: computed for
/// the first filter that asks. One of another layout, of the same kind in memory, computes its own.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct KeptScatter(OnceLock<((f64, f64), Scatter)>);

impl KeptScatter {
    /// Returns the scattering of keys with `k` cells each over `blocks` blocks of `cells` cells
    /// each. `k` is always the same.
    #[inline]
    pub(crate) fn of(&self, cells: f64, k: u32, blocks: f64) -> Scatter {
        let shape = (cells, blocks);
        let (of, kept) = self.0.get_or_init(|| (shape, Scatter::new(cells, k, blocks)));
        if *of == shape { *kept } else { Scatter::new(cells, k, blocks) }
    }
}

impl Scatter {
    /// Creates the scattering of keys with `k` cells each over `blocks` blocks of `cells` cells
    /// each.
    #[must_use]
    #[inline]
    pub fn new(cells: f64, k: u32, blocks: f64) -> Self {
        let (cells, blocks) = (cells.max(1.0), blocks.max(1.0));
        let hit = 1.0 - (1.0 - 1.0 / cells).powi(k as i32);
        let here = hit / blocks;
        let spread = hit * here * (1.0 - 1.0 / blocks) / ((1.0 - here) * (1.0 - here));
        Self {
            ln_missed: (-here).ln_1p(),
            ln_spread: spread.ln_1p(),
            ln_missed_of_all: f64::from(k) * (-1.0 / (cells * blocks)).ln_1p(),
        }
    }

    /// Returns the probability that each of `c` cells of a block was touched by at least one of
    /// `distinct` distinct keys.
    ///
    /// The share of touched cells is approximated by a beta variable with its mean and variance:
    /// exact for one and two cells, and for one block.
    #[must_use]
    #[inline]
    pub fn touched(&self, c: u32, distinct: f64) -> f64 {
        let share = gone(-distinct * self.ln_missed);
        if self.ln_spread == 0.0 || share <= 0.0 {
            return share.powi(c as i32);
        }
        // The variance over the mean and its complement, and from that the beta variable's 1/(α+β).
        let spread = gone(distinct * self.ln_spread);
        let most = (share * (1.0 - spread)).max(f64::MIN_POSITIVE);
        let relative = ((1.0 - share) * spread / most).min(1.0 - 1e-9);
        let step = relative / (1.0 - relative);
        let (mut above, mut below) = (1.0, 1.0);
        for i in 0..c {
            above *= share + f64::from(i) * step;
            below *= 1.0 + f64::from(i) * step;
        }
        above / below
    }

    /// Returns the same by the paper's formula, without blocks: `(1 - (1-1/m)^(k·D))^c` (equation
    /// 21 with all touched).
    #[must_use]
    #[inline]
    pub fn touched_of_all(&self, c: u32, distinct: f64) -> f64 {
        gone(-distinct * self.ln_missed_of_all).powi(c as i32)
    }
}
