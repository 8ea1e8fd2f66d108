//! Queries for the age of a key.

use super::{Age, Query, State, Within};
use crate::block::Blocks;

/// How long ago keys were seen, for kinds that keep it.
pub trait KeyAges {
    /// Returns a lower bound of the key's age; `None` if it is not in the window.
    fn age(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age>;

    /// Returns whether the key was seen within a part of the window.
    fn contains_within(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool;
}
