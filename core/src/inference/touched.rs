//! How likely it is that other keys have touched a key's cells (equations 1, 21 and 25).
//!
//! A distinct key touches `k` cells of one block. Cells of one block are touched together, for the block has more or fewer keys
//! than others: so the share of a block's cells that is touched varies, and its mean and variance are exact here.

use super::posterior::gone;

/// How keys are scattered over cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scatter {
    /// `ln` of the probability that a key misses a cell of its own or another block.
    ln_missed: f64,
    /// What the variance of the share of missed cells grows by with each key, as a logarithm.
    ln_spread: f64,
    /// `k·ln(1 - 1/m)` over all cells, as the paper has it.
    ln_missed_of_all: f64,
}

impl Scatter {
    /// Keys with `k` cells each, in `blocks` blocks of `cells` cells each.
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

    /// The probability that each of `c` cells of a block was touched by at least one of so many distinct keys.
    ///
    /// The share of touched cells is taken for a beta variable with its mean and variance: exact for one and two cells, and for one
    /// block.
    #[must_use]
    #[inline]
    pub fn touched(&self, c: u32, distinct: f64) -> f64 {
        let share = gone(-distinct * self.ln_missed);
        if self.ln_spread == 0.0 || share <= 0.0 {
            return share.powi(c as i32);
        }
        // Variance over mean and its complement, and from that the beta variable's 1/(α+β).
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

    /// The same as the paper has it, all cells apart: `(1 - (1-1/m)^(k·D))^c` (equation 21 with all touched).
    #[must_use]
    #[inline]
    pub fn touched_of_all(&self, c: u32, distinct: f64) -> f64 {
        gone(-distinct * self.ln_missed_of_all).powi(c as i32)
    }
}
