//! The parameters of the stable and importance-aware filters, completed.

use super::cells::{Cells, Deletion, MOST_FUNCTIONS};
use super::theory::{Chain, decrements_for};
use crate::block::packed::words_for;
use crate::error::{Error, Result};
use crate::kind::Parameters;
use crate::kind::parameters::{DEFAULT_FPR, within};

/// The parameters that all of these kinds have.
pub(in crate::kinds) const KNOWN: [&str; 5] = ["cells", "max", "K", "P", "fpr"];

/// The greatest number of cells: 8 TiB at 8 bits.
const MOST_CELLS: u64 = 1 << 43;

/// The highest possible value of a cell, which takes 8 bits.
const MOST_VALUE: u64 = 255;

/// The greatest number of decrements an insert.
const MOST_DECREMENTS: u64 = 1 << 20;

/// The least number of cells for each derived decrement: with fewer, a cell is often decremented
/// twice by one insert, and the formula of the rate is no bound.
const MOST_PART: u64 = 10;

/// The default `max`: the papers' (Table II).
const DEFAULT_MAX: u64 = 7;

/// The default `K`: the papers' (Table II).
const DEFAULT_FUNCTIONS: u64 = 5;

/// The user's parameters, completed.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::kinds) struct Plan {
    /// The highest value of a cell, `Max`.
    pub(in crate::kinds) max: u32,
    /// The planned false-positive rate, unless only `P` was given.
    fpr: Option<f64>,
    /// The cells.
    pub(super) cells: Cells,
}

impl Plan {
    /// Creates the plan from `cells`, `max` (7 if absent), `K` (5) and `P`. Without `P` it takes
    /// the fewest decrements that keep the bound of the false-positive rate at `fpr` (0.001) in a
    /// stable filter whose inserts raise cells by the shares that `shares` gives for `max`.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds, and if no `P` keeps the rate.
    pub(in crate::kinds) fn new(
        parameters: &Parameters,
        deletion: Deletion,
        shares: impl Fn(u32) -> Vec<f64>,
    ) -> Result<Self> {
        let all = parameters.required("cells", "how many cells it has")?;
        let all = within("cells", all, 1, MOST_CELLS)?;
        let max = parameters.count("max", "the highest value of a cell", MOST_VALUE)?;
        let max = max.unwrap_or(DEFAULT_MAX) as u32;
        let most = MOST_FUNCTIONS as u64;
        let functions = parameters.count("K", "a number of hash functions", most)?;
        let functions = functions.unwrap_or(DEFAULT_FUNCTIONS) as u32;
        let given = parameters.count("P", "a number of decrements an insert", MOST_DECREMENTS)?;
        let fpr = parameters.fpr()?;
        let (decrements, fpr) = match given {
            Some(decrements) => (decrements, fpr),
            None => {
                let fpr = fpr.unwrap_or(DEFAULT_FPR);
                let shares = shares(max);
                let most = MOST_DECREMENTS.min(all / MOST_PART);
                let found = decrements_for(fpr, all, functions, &shares, deletion, most);
                let found = found.ok_or_else(|| {
                    let expected = format!(
                        "a rate that {most} decrements an insert can keep, the most for {all} cells"
                    );
                    Error::parameter("fpr", expected, fpr)
                })?;
                (found, Some(fpr))
            }
        };
        let bits = u32::BITS - max.leading_zeros();
        Ok(Self { max, fpr, cells: Cells { all, bits, functions, decrements, deletion } })
    }

    /// Returns the plan as completed parameters.
    pub(in crate::kinds) fn parameters(&self) -> Parameters {
        let mut all = Parameters::new()
            .with("cells", self.cells.all)
            .with("max", self.max)
            .with("K", self.cells.functions)
            .with("P", self.cells.decrements);
        if let Some(fpr) = self.fpr {
            all.set("fpr", fpr);
        }
        all
    }

    /// Returns the words that the cells take.
    pub(super) fn words(&self) -> u64 {
        words_for(self.cells.all, self.cells.bits)
    }

    /// Returns the chain of one of `cells` cells.
    pub(super) fn chain(&self, cells: u64, shares: &[f64]) -> Chain {
        let Cells { functions, decrements, deletion, .. } = self.cells;
        Chain::new(cells, functions, decrements, shares, deletion)
    }
}
