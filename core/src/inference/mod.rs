//! From cells to probabilities: *Inferential Time-Decaying Bloom Filters* (Dautrich and
//! Ravishankar, EDBT 2013) as pure functions of numbers. `docs/inference.md` has the derivations,
//! and marks those that are not from the paper.
//!
//! A key's *age* is the number of inserts since it was last inserted (definition 1), or the time
//! since. Before the filter is queried, ages are geometric: if each insert is of the key with
//! probability `p_x`, the key has age `i` with probability `p_x·(1-p_x)^i` (equation 4). This prior
//! is then weighted by how likely the key's cells are at each age, which is constant over long
//! pieces of the ages: [`Piece`]. For any filter, a posterior is therefore a sum over a few pieces
//! of a geometric series (equations 5 to 10).
//!
//! - [`prior`]: the belief about a key before the filter is queried ([`Prior`], [`Stream`])
//! - [`distinct_in_insertions`]: the number of distinct keys in a number of inserts (section 2.5)
//! - [`observed`]: the same, learnt from the stream itself
//! - [`touched`]: how likely other keys touched a key's cells (equations 1, 21 and 25)
//! - [`posterior`]: the probability that an age is below a bound (equations 9 and 10)
//! - [`age`]: the whole distribution of the age (section 2.3.3)
//! - [`least_penalty`]: the answer with the least expected penalty (section 2.6)
//!
//! Each kind with evidence defines the pieces of a key's cells in its file `evidence.rs`.

pub mod age;
pub mod distinct_in_insertions;
pub mod least_penalty;
pub mod observed;
pub mod posterior;
pub mod prior;
pub mod touched;

#[cfg(test)]
mod calibration;
#[cfg(test)]
mod tests;

pub use age::AgePosterior;
pub use distinct_in_insertions::Distinct;
pub use least_penalty::{Penalty, decide};
pub use observed::Observed;
pub use posterior::{Piece, Survival, window_posterior};
pub use prior::{KeyPrior, Prior, Stream, Table};
pub(crate) use touched::KeptScatter;
pub use touched::Scatter;

/// The formulas of a posterior, where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Form {
    /// Better calibrated formulas: repeated keys are counted once where cells must have been
    /// untouched since, and the block structure of this library is taken into account.
    #[default]
    Refined,
    /// The formulas printed in the paper: equation 1 with `n` insertions, equation 25 with
    /// independent events, one array of cells.
    Paper,
}

/// The assumptions about a key before its cells are read.
#[derive(Debug, Clone, Copy)]
pub struct Belief<'a> {
    /// `p_x`: the probability that an insert is of the key.
    pub probability: f64,
    /// The distribution of ages.
    pub survival: Survival,
    /// The number of distinct keys in a number of inserts.
    pub distinct: &'a Distinct,
    /// The formulas to use.
    pub form: Form,
    /// Only ages below this are requested. If none of them is possible, a kind need not pass any
    /// piece.
    pub width: u64,
}
