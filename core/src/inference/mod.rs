//! From cells to probabilities: *Inferential Time-Decaying Bloom Filters* (Dautrich and Ravishankar, EDBT 2013) as pure functions
//! of numbers. Derivations, and what is ours in them, are in `docs/inference.md`.
//!
//! A key's *age* is the number of inserts since it was last inserted (definition 1), or the time since. Before the filter is
//! asked, ages are geometric: a key of which each insert is with probability `p_x` has age `i` with probability
//! `p_x·(1-p_x)^i` (equation 4). What a filter has kept of the key is then weighed by how likely it is at each age, and that
//! is constant over long pieces of the ages: [`Piece`]. So a posterior is a sum over a few pieces of a geometric series
//! (equations 5 to 10), whatever the filter.
//!
//! - [`prior`]: what is believed of a key before the filter is asked ([`Prior`], [`Stream`])
//! - [`distinct`]: how many distinct keys so many inserts are (section 2.5)
//! - [`observed`]: the same, learnt from the stream itself
//! - [`touched`]: how likely other keys touched a key's cells (equations 1, 21 and 25)
//! - [`posterior`]: the probability that an age is below a bound (equations 9 and 10)
//! - [`age`]: the whole distribution of the age (section 2.3.3)
//! - [`mod@decide`]: the answer with the least expected penalty (section 2.6)
//!
//! Which pieces a key's cells make is said by its kind, in the file `evidence.rs` of each that does.

pub mod age;
pub mod decide;
pub mod distinct;
pub mod observed;
pub mod posterior;
pub mod prior;
pub mod touched;

#[cfg(test)]
mod tests;

pub use age::AgePosterior;
pub use decide::{Penalty, decide};
pub use distinct::Distinct;
pub use observed::Observed;
pub use posterior::{Survival, window_posterior};
pub use prior::{KeyPrior, Prior, Stream, Table};
pub use touched::Scatter;

/// Ages at which a key's cells are equally likely to be as they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// The least of the ages.
    pub from: u64,
    /// The first age beyond; [`Piece::ENDLESS`] for all from `from` on.
    pub to: u64,
    /// The probability of the cells at these ages, up to a factor that all pieces of a key have in common. At least 0, finite.
    pub likelihood: f64,
}

impl Piece {
    /// The end of a piece that has none.
    pub const ENDLESS: u64 = u64::MAX;
}

/// Which formulas a posterior is made by, where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Form {
    /// Better calibrated ones: keys that come again are counted once where cells must have been untouched since, and the blocks of
    /// this library are taken into account.
    #[default]
    Refined,
    /// Those that the paper prints: equation 1 with `n` insertions, equation 25 with independent events, one array of cells.
    Paper,
}

/// What is believed before a key's cells are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Belief<'a> {
    /// `p_x`: the probability that an insert is one of the key.
    pub probability: f64,
    /// How ages are distributed.
    pub survival: Survival,
    /// How many distinct keys inserts are.
    pub distinct: &'a Distinct,
    /// The formulas to use.
    pub form: Form,
    /// Only ages below this are asked for. If none of them is possible, a kind need not tell anything.
    pub width: u64,
}
