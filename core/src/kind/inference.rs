//! Evidence: what the cells of a key say about its age, for posteriors.

use super::{Query, State, Totals, Within};
use crate::block::Blocks;
use crate::inference::{Belief, Piece};
use std::fmt::Debug;

/// The evidence of a key's cells, for kinds with posteriors.
pub trait Inference: Debug {
    /// Returns the window of [`Kind::contains`](super::Kind::contains), to which posteriors refer
    /// by default.
    fn window(&self, totals: &Totals) -> Within;

    /// Returns the age of the filter's first insert, or an upper bound of it, in the unit of
    /// [`Inference::window`]. No key is older, except those that were never inserted.
    fn history(&self, state: &State<'_>, query: &Query) -> u64 {
        let _ = state;
        query.totals.inserts
    }

    /// Passes to `tell` how likely the key's cells are to be as they are at each age, piece by
    /// piece from the youngest age on. The last piece covers all ages about which the cells contain
    /// no information. Ages are in the unit of [`Inference::window`].
    fn evidence(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    );
}
