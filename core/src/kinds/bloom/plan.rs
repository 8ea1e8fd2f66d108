//! The cells and hash functions that a number of keys and a rate need: for plain bits, and for all
//! kinds whose cells are found like those of a Bloom filter.

use super::theory::{fpr, same_hash};
use crate::block::Layout;
use crate::error::{Error, Result};
use crate::kind::Parameters;
use crate::kind::parameters::{DEFAULT_FPR, within};

/// The greatest number of cells: 8 TiB of bits.
pub(in crate::kinds) const MOST_CELLS: u64 = 1 << 46;

/// The greatest number of hash functions.
const MOST_FUNCTIONS: u64 = 64;

/// Bits of a block of the size that plans assume.
const PLANNED_BLOCK_BITS: f64 = (Layout::PLANNED_BLOCK_WORDS * 64) as f64;

/// Cells and hash functions for a number of keys at a rate.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::kinds) struct Plan {
    /// Distinct keys.
    pub capacity: u64,
    /// The planned false-positive rate at capacity.
    pub fpr: f64,
    /// Cells in all.
    pub cells: u64,
    /// Cells of a key.
    pub k: u32,
}

impl Plan {
    /// Derives the plan from `capacity` and `fpr` (0.001 if absent); `k` and the parameter named
    /// `cells` override what would be derived.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds, and if no filter of at most 2^46 cells
    /// reaches the rate.
    pub fn from_parameters(parameters: &Parameters, cells: &'static str) -> Result<Self> {
        Self::of_bits(parameters, cells, 1.0)
    }

    /// As [`Plan::from_parameters`], for cells of `bits` bits, of which fewer lie in a block.
    ///
    /// # Errors
    /// As [`Plan::from_parameters`].
    pub fn of_bits(parameters: &Parameters, cells: &'static str, bits: f64) -> Result<Self> {
        Self::in_blocks(parameters, cells, PLANNED_BLOCK_BITS / bits)
    }

    /// As [`Plan::from_parameters`], for blocks of `block_cells` cells.
    ///
    /// # Errors
    /// As [`Plan::from_parameters`].
    pub fn in_blocks(
        parameters: &Parameters,
        cells: &'static str,
        block_cells: f64,
    ) -> Result<Self> {
        let cells_for = |capacity, fpr, k| cells_for(capacity, fpr, k, block_cells);
        let capacity = parameters.required("capacity", "how many distinct keys it will hold")?;
        let capacity = within("capacity", capacity, 1, MOST_CELLS)?;
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let cells = parameters.count(cells, "a number of cells", MOST_CELLS)?;
        let k = parameters.count("k", "a number of hash functions", MOST_FUNCTIONS)?;
        let (cells, k) = match (cells, k) {
            (Some(cells), Some(k)) => (cells, k as u32),
            (Some(cells), None) => (cells, best_functions(cells as f64 / capacity as f64)),
            (None, Some(k)) => (cells_for(capacity, fpr, k as u32)?, k as u32),
            (None, None) => {
                // The optimum is fractional: one of its neighbours takes fewer cells.
                let of_cells = without_same_hash(capacity as f64, fpr)?;
                let few = (-of_cells.log2()).floor().clamp(1.0, (MOST_FUNCTIONS - 1) as f64) as u32;
                let (less, more) =
                    (cells_for(capacity, fpr, few)?, cells_for(capacity, fpr, few + 1)?);
                let mut best = if less <= more { (less, few) } else { (more, few + 1) };
                // In blocks of few cells it has fewer functions.
                while best.1 > 1 && best.1 <= few {
                    let fewer = (cells_for(capacity, fpr, best.1 - 1)?, best.1 - 1);
                    if fewer >= best {
                        break;
                    }
                    best = fewer;
                }
                best
            }
        };
        Ok(Self { capacity, fpr, cells, k })
    }

    /// Returns the plan as completed parameters.
    pub fn parameters(&self, cells: &'static str) -> Parameters {
        Parameters::new()
            .with("capacity", self.capacity)
            .with("fpr", self.fpr)
            .with(cells, self.cells)
            .with("k", self.k)
    }
}

/// Returns the part of a rate that equal hashes of this many keys leave to the cells.
///
/// # Errors
/// [`Error::Parameter`] if they leave nothing.
pub(in crate::kinds) fn without_same_hash(keys: f64, fpr: f64) -> Result<f64> {
    let least = same_hash(keys);
    if least < fpr {
        return Ok(fpr - least);
    }
    let expected = format!("more than {least:.1e}, the rate of {keys} keys with hashes of 64 bits");
    Err(Error::parameter("fpr", expected, fpr))
}

/// Returns the best number of hash functions for this number of cells a key.
fn best_functions(cells_per_key: f64) -> u32 {
    (cells_per_key * std::f64::consts::LN_2).round().clamp(1.0, MOST_FUNCTIONS as f64) as u32
}

/// Returns the fewest cells with which `k` hash functions keep the rate at capacity.
fn cells_for(capacity: u64, wanted: f64, k: u32, block_cells: f64) -> Result<u64> {
    let keys = capacity as f64;
    without_same_hash(keys, wanted)?;
    let rate = |cells: f64| fpr(keys, cells, k, (cells / block_cells).max(1.0));
    let (mut low, mut high) = (0.0, MOST_CELLS as f64);
    if rate(high) > wanted {
        return Err(Error::parameter(
            "capacity",
            format!("one that a filter of {MOST_CELLS} cells holds at fpr {wanted}"),
            capacity,
        ));
    }
    while high - low > 1.0 {
        let middle = (low + high) / 2.0;
        if rate(middle) > wanted { low = middle } else { high = middle }
    }
    Ok((high.ceil() as u64).clamp(1, MOST_CELLS))
}
