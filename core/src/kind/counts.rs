//! Counts, removals and weights of keys.

use super::parameters::whole_count;
use super::{Estimate, Operation, Query, State};
use crate::block::Block;
use crate::error::Result;

/// How often keys were inserted, for kinds that count: permanently, or with counts that decay. They
/// have one bank.
pub trait KeyCounts {
    /// Returns how often the key was inserted.
    fn estimate(&self, state: &State<'_>, block: &Block<'_>, query: &Query) -> Estimate;

    /// Returns the factor that turns an estimate of a decaying kind into a frequency: the mean over
    /// the inserts of an epoch if they continue at the same rate.
    fn normaliser(&self) -> Option<f64> {
        None
    }

    /// Returns the weight that fills every counter of a key, whatever they held, for kinds whose
    /// full counters remember nothing of what was added beyond: a greater weight leaves the same
    /// counters. `None` if a greater weight may make a difference.
    fn fills(&self) -> Option<u64> {
        None
    }
}

/// The removal of keys, for kinds that count and support it.
pub trait Removal: KeyCounts {
    /// Applies a removal to the key's block. The caller has checked with [`KeyCounts::estimate`]
    /// that the key may be contained that often.
    fn remove(&self, block: &Block<'_>, operation: &Operation);
}

/// The weights of keys: a count or an importance.
pub trait KeyWeights {
    /// Returns the weight of a key from the count or importance that the caller passes.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) for a number that is not a weight.
    fn weight(&self, given: f64) -> Result<u64>;
}

/// Weights that are counts: whole numbers from 1 to [`MOST_COUNT`](super::MOST_COUNT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeCounts;

impl KeyWeights for WholeCounts {
    fn weight(&self, given: f64) -> Result<u64> {
        whole_count(given)
    }
}
