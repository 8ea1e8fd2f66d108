//! The Importance-aware Bloom Filter (Kulkarni, Boraskar, Gabale, Kulkarni): the Stable Bloom
//! Filter in which keys of more importance stay longer.
//!
//! A key's importance `imp` becomes a level from 1 to `Max`, the paper's `f(imp)`:
//! `⌈imp · Max / Z⌉`, where `Z` is the highest importance (`importance-max`); 1 for importance 0,
//! as "for items with lowest importance, the value will be set to 1", and `Max` for all above `Z`.
//! The kinds differ in the value to which a key of a level raises its cells, and in which cells are
//! decremented:
//!
//! | kind | raises to | decrements |
//! |---|---|---|
//! | `importance-2c` ([`TWO_CLASSES`], Algorithm 1) | `Max` or `⌊Max/2⌋` | any |
//! | `importance-mc` ([`MANY_CLASSES`], Algorithm 2) | its level | any |
//! | `importance-h` ([`HYBRID`], section IV-C, Table III) | its level | by value |
//!
//! A key of `importance-2c` is important, and raises to `Max`, if `2 · level > Max`. Decrements
//! pick any cell with equal probability or, by value, a cell of value `v` with probability inverse
//! to `v`, zeros never. Cells that are higher already stay as they are. Algorithm 1 as printed sets
//! all cells to `Max` after its `if`. This implements the evident meaning: unimportant keys raise a
//! cell to `⌊Max/2⌋` if it is lower, and important ones set it to `Max`.
//!
//! IBF-H draws a cell and accepts it with probability `1/v`; after 64 attempts without one the
//! decrement is skipped (the paper leaves open how it chooses). Everything else, the cells, the
//! draws, the order in an insert and the theory, belongs to `stable`.

pub mod spec;

#[cfg(test)]
mod tests;

use super::stable::{Class, Decremented, Deletion, KNOWN, Plan, uniform_shares};
use crate::error::{Error, Result};
use crate::kind::{KeyWeights, Kind, Parameters};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// The name of IBF-2C.
pub const TWO_CLASSES: &str = "importance-2c";

/// The name of IBF-MC.
pub const MANY_CLASSES: &str = "importance-mc";

/// The name of IBF-H.
pub const HYBRID: &str = "importance-h";

/// Builds IBF-2C from the parameters of [`stable`](super::stable::build) and `importance-max`
/// (`max` if absent). Without `P` it is derived for levels that are equally frequent.
///
/// # Errors
/// [`Error::Parameter`] for unknown names, for values out of bounds, and if no `P` keeps the rate.
pub fn build_two_classes(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    build::<TwoClasses>(parameters)
}

/// Builds IBF-MC, as [`build_two_classes`].
///
/// # Errors
/// As [`build_two_classes`].
pub fn build_many_classes(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    build::<ManyClasses>(parameters)
}

/// Builds IBF-H, as [`build_two_classes`].
///
/// # Errors
/// As [`build_two_classes`].
pub fn build_hybrid(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    build::<Hybrid>(parameters)
}

fn build<R: Rule>(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    let [a, b, c, d, e] = KNOWN;
    parameters.only(R::NAME, &[a, b, c, d, e, "importance-max"])?;
    let plan = Plan::new(parameters, R::DELETION, uniform_shares::<Scale<R>>)?;
    let expected = "a highest importance above 0";
    let highest = parameters.optional("importance-max", expected)?;
    let highest = highest.unwrap_or(f64::from(plan.max));
    if !(highest.is_finite() && highest > 0.0) {
        return Err(Error::parameter("importance-max", expected, highest));
    }
    let class = Scale::<R> { highest, levels: plan.max, rule: PhantomData };
    Ok(Arc::new(Decremented { plan, class }))
}

/// The differences between the three kinds.
trait Rule: Debug + Send + Sync + 'static {
    /// The kind's name.
    const NAME: &'static str;

    /// Which cells are decremented.
    const DELETION: Deletion;

    /// Returns the value to which a key of this level raises its cells.
    fn value(max: u32, level: u32) -> u32;
}

/// IBF-2C: keys are important or not (Algorithm 1).
#[derive(Debug)]
struct TwoClasses;

impl Rule for TwoClasses {
    const NAME: &'static str = TWO_CLASSES;
    const DELETION: Deletion = Deletion::Uniform;

    fn value(max: u32, level: u32) -> u32 {
        let important = 2 * level > max;
        if important { max } else { max / 2 }
    }
}

/// IBF-MC: a class for each level (Algorithm 2).
#[derive(Debug)]
struct ManyClasses;

impl Rule for ManyClasses {
    const NAME: &'static str = MANY_CLASSES;
    const DELETION: Deletion = Deletion::Uniform;

    fn value(_: u32, level: u32) -> u32 {
        level
    }
}

/// IBF-H: inserts as IBF-MC; high values are decremented more rarely.
#[derive(Debug)]
struct Hybrid;

impl Rule for Hybrid {
    const NAME: &'static str = HYBRID;
    const DELETION: Deletion = Deletion::ByValue;

    fn value(_: u32, level: u32) -> u32 {
        level
    }
}

/// The scale of importance, and the rule for a level.
#[derive(Debug)]
struct Scale<R> {
    /// The importance that gives the highest level, `Z`.
    highest: f64,
    /// The highest level, `Max`.
    levels: u32,
    rule: PhantomData<R>,
}

impl<R: Rule> Class for Scale<R> {
    const NAME: &'static str = R::NAME;

    fn value(max: u32, level: u32) -> u32 {
        R::value(max, level)
    }

    fn weights(&self) -> Option<&dyn KeyWeights> {
        Some(self)
    }

    fn parameters(&self, shared: Parameters) -> Parameters {
        shared.with("importance-max", self.highest)
    }
}

impl<R: Rule> KeyWeights for Scale<R> {
    /// Returns the level of an importance.
    fn weight(&self, importance: f64) -> Result<u64> {
        if !(importance.is_finite() && importance >= 0.0) {
            let expected = "an importance of 0 or more";
            return Err(Error::parameter("weight", expected, importance));
        }
        let level = (importance * f64::from(self.levels) / self.highest).ceil();
        // Above the scale the cast saturates at the largest `u32`, and the clamp gives the highest
        // level.
        Ok((level as u32).clamp(1, self.levels).into())
    }
}
