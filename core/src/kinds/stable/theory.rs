//! The stable point, and error rates there and before: pure functions of numbers.
//!
//! A cell is the Markov chain of the Importance-aware paper's figures 1 and 3. From value `i` it
//! goes to `i - 1` when it is decremented, and to the value of a key when one is hashed to it and
//! has a higher one. With `p = P/m` and `k = K/m` (the paper writes `/M` for `/m`),
//! `p' = p·(1 - k)` and `Q_i` the share of inserts that raise cells to `i` or more, the flow from
//! above `j` to `j` balances the flow back when
//!
//! ```text
//! P(cell <= j) · k·Q_{j+1} = P(cell = j+1) · p',  so that
//! P(cell <= j) = Π_{i=j+1..Max} p' / (p' + k·Q_i)
//! ```
//!
//! and `V0 = P(cell <= 0)` is the share of zeros when stable. It replaces figures 2 and 4, which do
//! not agree with the chain (theorems III.3 and III.7 speak of the fraction `m·V0`; the fraction is
//! `V0`). For the Stable Bloom Filter, where all `Q_i = 1`, it is
//! `(1 / (1 + 1/(P·(1/K - 1/m))))^Max`, the formula of its paper.
//!
//! It holds for cells that are hit rarely (`K` and `P` far below `m`) and for keys that hit all
//! cells alike. On skewed streams there are more zeros, so [`Chain::fp_bound`] is a bound.

use super::cells::Deletion;
use super::draws::ATTEMPTS;

/// Returns the `Q_i` of the Stable Bloom Filter, `i` from 1 to `max`: every insert sets cells to
/// `Max`.
#[must_use]
pub fn same_shares(max: u32) -> Vec<f64> {
    vec![1.0; max as usize]
}

/// Returns the `Q_i` of IBF-2C: a share `important` of the inserts raises cells to `Max`, all
/// others to `⌊Max/2⌋`.
#[must_use]
pub fn two_class_shares(max: u32, important: f64) -> Vec<f64> {
    (1..=max).map(|value| if value <= max / 2 { 1.0 } else { important }).collect()
}

/// Returns the `Q_i` of IBF-MC and IBF-H from the shares of the levels 1 to `Max` among the
/// inserts.
#[must_use]
pub fn level_shares(levels: &[f64]) -> Vec<f64> {
    (0..levels.len()).map(|from| levels[from..].iter().sum()).collect()
}

/// The Markov chain of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// `k·Q_i`: the probability that an insert raises the cell to `i` or more; `i` from 1.
    raised: Vec<f64>,
    /// The probability that an insert lowers it from `i`; `p'` where all cells are decremented
    /// alike.
    lowered: Vec<f64>,
}

impl Chain {
    /// Creates the chain of a cell among `cells`, of which an insert sets `functions` (`K`) and
    /// decrements `decrements` (`P`). `shares` are the `Q_i`, `Max` of them: see [`same_shares`],
    /// [`two_class_shares`], [`level_shares`].
    ///
    /// For [`Deletion::ByValue`] the paper gives no formula. Cells of value `i` are decremented in
    /// proportion to `1/i`. With `A = Σ P(cell = i)/i`, the probability that one attempt is
    /// accepted, a cell is lowered from `i` with probability `a/i`, where
    /// `a·A = p'·(1 - (1 - A)^64)`. Bisection finds the `a` that is consistent with its own `A`.
    #[must_use]
    pub fn new(
        cells: u64,
        functions: u32,
        decrements: u64,
        shares: &[f64],
        deletion: Deletion,
    ) -> Self {
        let m = cells.max(1) as f64;
        let k = (f64::from(functions) / m).min(1.0);
        let p = decrements as f64 / m * (1.0 - k);
        let raised: Vec<_> = shares.iter().map(|share| k * share.clamp(0.0, 1.0)).collect();
        match deletion {
            Deletion::Uniform => Self { lowered: vec![p; raised.len()], raised },
            Deletion::ByValue => Self::by_value(raised, p),
        }
    }

    fn by_value(raised: Vec<f64>, p: f64) -> Self {
        let with = |a: f64| {
            let lowered = (1..=raised.len()).map(|value| a / value as f64).collect();
            Self { raised: raised.clone(), lowered }
        };
        // The lowered share of a step grows with `a`, the accepted share falls with it: they cross
        // once.
        let (mut low, mut high) = (0.0, 1.0_f64.max(p) * 1e6);
        for _ in 0..200 {
            let a = (low + high) / 2.0;
            let chain = with(a);
            let lowered: f64 =
                chain.raised.iter().enumerate().map(|(j, kq)| kq * chain.at_most(j as u32)).sum();
            let accepted = if a > 0.0 { (lowered / a).min(1.0) } else { 1.0 };
            let wanted = p * (1.0 - (1.0 - accepted).powi(ATTEMPTS as i32));
            if lowered < wanted { low = a } else { high = a }
        }
        with(low)
    }

    /// Returns `P(cell <= value)` when stable.
    #[must_use]
    pub fn at_most(&self, value: u32) -> f64 {
        let factor = |(raised, lowered): (&f64, &f64)| match raised + lowered {
            0.0 => 1.0,
            both => lowered / both,
        };
        self.raised.iter().zip(&self.lowered).skip(value as usize).map(factor).product()
    }

    /// Returns `V0`: the share of cells that are zero when stable (theorems III.3, III.7).
    #[must_use]
    pub fn stable_point(&self) -> f64 {
        self.at_most(0)
    }

    /// Returns the bound of the false-positive rate when stable, `(1 - V0)^K` (corollaries III.4,
    /// III.8).
    #[must_use]
    pub fn fp_bound(&self, functions: u32) -> f64 {
        fp_of_fill(1.0 - self.stable_point(), functions)
    }

    /// Returns the probability that a cell is zero when `inserts` inserts have passed since it had
    /// the value `start`: how fast an empty filter becomes stable (`start` 0), and the paper's
    /// `Pr_0(δ)`.
    ///
    /// With [`Deletion::ByValue`] as if the rest of the filter were stable already.
    #[must_use]
    pub fn zero_after(&self, start: u32, inserts: u64) -> f64 {
        let values = 0..=self.raised.len() as u32;
        self.zero_from(values.map(|value| f64::from(start <= value)).collect(), inserts)
    }

    /// Returns the probability that a key is missed that was inserted `gap` inserts ago with the
    /// value `value`: that one of its `functions` cells has become zero (section III-A;
    /// `Pr(FN) = 1 - (1 - Pr_0(δ))^K`).
    ///
    /// The filter was stable then, and cells with higher values kept them. The paper omits that: it
    /// lets all start from `value`, and so finds up to twice as many misses.
    #[must_use]
    pub fn false_negative(&self, value: u32, gap: u64, functions: u32) -> f64 {
        let values = 0..=self.raised.len() as u32;
        let start = |up_to| if value <= up_to { self.at_most(up_to) } else { 0.0 };
        let kept = 1.0 - self.zero_from(values.map(start).collect(), gap);
        (1.0 - kept.powi(functions as i32)).clamp(0.0, 1.0)
    }

    /// Returns `P(cell <= 0)` after `inserts` inserts, from all `P(cell <= j)` before them.
    ///
    /// `P(cell <= j)` after an insert depends linearly on `P(cell <= j)` and `P(cell <= j+1)`
    /// before it; this is a power of that matrix.
    fn zero_from(&self, mut at_most: Vec<f64>, inserts: u64) -> f64 {
        let size = at_most.len();
        let mut step = vec![vec![0.0; size]; size];
        for j in 0..size - 1 {
            let raised = self.raised[j].clamp(0.0, 1.0);
            let lowered = self.lowered[j].clamp(0.0, 1.0 - raised);
            (step[j][j], step[j][j + 1]) = (1.0 - raised - lowered, lowered);
        }
        step[size - 1][size - 1] = 1.0;
        let mut left = inserts;
        while left > 0 {
            if left & 1 == 1 {
                at_most = step.iter().map(|row| product(row, &at_most)).collect();
            }
            left >>= 1;
            if left > 0 {
                step = squared(&step);
            }
        }
        at_most[0].clamp(0.0, 1.0)
    }
}

/// Returns the false-positive rate when a share `fill` of all cells is not zero.
#[must_use]
pub fn fp_of_fill(fill: f64, functions: u32) -> f64 {
    fill.clamp(0.0, 1.0).powi(functions as i32)
}

/// Returns the fewest decrements an insert (`P`) that keep the bound of the false-positive rate at
/// `fpr`; `None` if `most` do not.
///
/// Where all cells are decremented alike and all `Q_i = 1` it is the formula of the Stable Bloom
/// Filter's paper, rounded up: `P = 1 / ((1/(1 - fpr^(1/K))^(1/Max) - 1)·(1/K - 1/m))`. The general
/// case has no closed form and is searched.
#[must_use]
pub fn decrements_for(
    fpr: f64,
    cells: u64,
    functions: u32,
    shares: &[f64],
    deletion: Deletion,
    most: u64,
) -> Option<u64> {
    let keeps = |decrements| {
        Chain::new(cells, functions, decrements, shares, deletion).fp_bound(functions) <= fpr
    };
    if !keeps(most) {
        return None;
    }
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if keeps(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

fn product(row: &[f64], column: &[f64]) -> f64 {
    row.iter().zip(column).map(|(a, b)| a * b).sum()
}

/// Returns the square of an upper triangular matrix.
fn squared(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let size = matrix.len();
    let mut square = vec![vec![0.0; size]; size];
    for (i, row) in matrix.iter().enumerate() {
        for (&factor, other) in row.iter().zip(matrix).skip(i) {
            for (to, from) in square[i].iter_mut().zip(other) {
                *to += factor * from;
            }
        }
    }
    square
}
