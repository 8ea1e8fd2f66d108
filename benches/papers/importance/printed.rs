//! The formulas of the paper's Fig. 2 and 4 as printed: their share of zeros does not agree with
//! the Markov chains of the same paper. They serve only for comparison with the closed form and the
//! measurements.
//!
//! `p = P/m` and `k = K/m` are used throughout, where the text also writes `P/M`, `K/M` and `K`
//! itself. `M/2` of an odd `M` is rounded down where it is a cell's value.

/// The variables of the formulas: `M`, `k` and `p' = p·(1 - k)`.
#[derive(Clone, Copy)]
pub struct Cell {
    max: i32,
    k: f64,
    lowered: f64,
}

impl Cell {
    /// Creates a cell of a filter of `cells` cells, with values up to `max`.
    pub fn new(cells: u64, max: u32, functions: u32, decrements: u32) -> Self {
        let [k, p] = [functions, decrements].map(|count| f64::from(count) / cells as f64);
        Self { max: max as i32, k, lowered: p * (1.0 - k) }
    }

    /// Returns `V_i` of IBF-2C for all `i` above `M/2`, from `M` downwards; the figure and the
    /// proof agree on them.
    fn upper(self) -> (f64, f64) {
        let half = self.k / 2.0;
        let ratio = self.lowered / (self.lowered + half);
        let highest = half / (self.lowered + half);
        let above = self.max - self.max / 2;
        ((0..above).map(|step| ratio.powi(step) * highest).sum(), ratio.powi(self.max / 2))
    }

    /// Returns `V_0` of IBF-2C by Fig. 2.
    pub fn figure_2(self) -> f64 {
        let (a, power) = self.upper();
        let b = power / (self.lowered + self.k);
        let middle = self.k / 2.0 / (self.lowered + self.k) * (1.0 - a + b);
        let ratio = self.lowered / (self.lowered + self.k);
        let lower: f64 = (0..self.max / 2).map(|step| ratio.powi(step) * middle).sum();
        1.0 - a - lower
    }

    /// Returns `V_0` of IBF-2C by Fig. 2 with two repairs: `B` is not divided by `p' + k`, and its
    /// exponent is the number of values above `M/2`. It is then the closed form `Π p'/(p' + k·Q_i)`
    /// with `Q_i` one half above `M/2`, and 1 below.
    pub fn figure_2_repaired(self) -> f64 {
        let (a, _) = self.upper();
        let b = (self.lowered / (self.lowered + self.k / 2.0)).powi(self.max - self.max / 2);
        let middle = self.k / 2.0 / (self.lowered + self.k) * (1.0 - a + b);
        let ratio = self.lowered / (self.lowered + self.k);
        let lower: f64 = (0..self.max / 2).map(|step| ratio.powi(step) * middle).sum();
        1.0 - a - lower
    }

    /// Returns `V_0` of IBF-2C by the last lines of the proof of theorem III.1.
    pub fn proof_of_theorem_1(self) -> f64 {
        let (a, b) = self.upper();
        let half = self.k / 2.0;
        let middle = half / (self.lowered + half) * (1.0 - a - b);
        let below = self.lowered / (self.lowered + self.k) * middle;
        1.0 - a - middle - f64::from(self.max / 2 - 1) * below
    }

    /// Returns `V_0 = 1/A_M` of IBF-MC by Fig. 4, where `A_i = U_i`; and with `A_i` the sum of all
    /// `U` so far, as in its first lines.
    pub fn figure_4(self) -> (f64, f64) {
        let (k, lowered, max) = (self.k, self.lowered, f64::from(self.max));
        let mut u = k / lowered;
        let (mut b, mut sum) = (0.0, 1.0 + u);
        for i in 2..=self.max {
            b += if i == 2 { k / max } else { k / max * u };
            let c = ((max - f64::from(i) + 1.0) / max * k + lowered) * u;
            u = (c - b) / lowered;
            sum += u;
        }
        (1.0 / u, 1.0 / sum)
    }
}
