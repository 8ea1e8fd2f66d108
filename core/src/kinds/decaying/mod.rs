//! The basic time-decaying Bloom filter, B-TBF (Cheng, Iwaihara, Xiang, Ushijima, section 3):
//! counts the inserts of a key, with decreasing weight for old ones.
//!
//! The filter is an array of counters. A key adds its weight to each of its `k` counters, all
//! counters decay with each epoch of `T`, and the estimate of a key is the least of its counters.
//! Epochs count from the Unix epoch. `estimate` is the unnormalised count `y'_t` of the paper's eq.
//! (3); multiplied by [`normaliser`](KeyCounts::normaliser) it is the frequency `y_t` of eq. (4).
//!
//! | listing of section 3.1 | here |
//! |---|---|
//! | `for j: C[h_j(q)]++` | `Counters::add`; functions that meet in one counter add to it once |
//! | on a new epoch `C_i = λ·C_i` | `Counters::catch_up` at the next insert; reads apply it |
//! | `(1-λ) · Min{C[h_1(q)], …}` | `Counters::least` |
//!
//! The decay function `g(x)`, `x` in epochs, is one of those of the paper's section 3.2:
//! * `exponential`, `λ^x` (`exponential.rs`), the paper's subject. Estimates are below the exact
//!   count by less than `ε = 2^-F`; in return, idle counters do reach zero ([`half_life`]).
//! * `polynomial`, `(1+x)^-a` (`polynomial.rs`): a counter is a few numbers, each of which decays
//!   exponentially. Within a horizon, estimates are never below the exact count, and above it by a
//!   planned share at most.
//! * `sliding-window`, 1 below `n` epochs and then 0, `linear`, `1 - x/n` and then 0, and
//!   `weights`, any table that never rises (`ring.rs`): a counter is `n` counters, one for each
//!   epoch. All are exact. A table represents *polygonal* and *chordal* decay, which end.
//!
//! *Polyexponential* decay `x^d · λ^x` is refused, although `d + 1` decayed moments a counter could
//! represent it: `M_d` after `n` epochs is `λ^n · Σ C(d,i) · n^(d-i) · M_i`, in which all signs are
//! positive, so rounding up never undercounts and idle blocks catch up at once. But for `d > 0` it
//! rises before it falls, and section 2 requires a function that never rises. A key that was just
//! inserted would count nothing, so `contains` would miss it, and its estimate would rise without
//! inserts.
//!
//! **Late keys**, whose own time lies before the filter's, count as if they had arrived in time. In
//! the current half-life (in the window of a ring) this is exact; for earlier ones the remaining
//! weight is rounded up to at least a unit of `2^-F` ([`HalfLife::late`]). Keys older than a ring's
//! window, or than the horizon of a polynomial, are rejected as too late.
//!
//! **Full counters** stay at their maximum, and the estimate is then marked *at least*. Each
//! addition that is cut short increments the kind metric `saturated`. See `exponential.rs` for the
//! guarantee after a full counter decays, and `cut_keys.rs` for whose estimates are marked then.

mod counters;
mod cut_keys;
mod exponential;
pub mod half_life;
mod polynomial;
mod ring;
pub mod spec;
mod sum_of_exponentials;
pub mod theory;

#[cfg(test)]
mod tests;

pub use half_life::HalfLife;

use super::bloom::{FEW_CELLS, MOST_CELLS, Plan, fpr, fpr_of_fill};
use crate::block::packed::words_for;
use crate::block::{Block, Layout};
use crate::error::{Error, Result};
use crate::kind::parameters::within;
use crate::kind::{
    Decision, Describe, Estimate, KeyCounts, Kind, KindMetric, Micros, Moment, Operation,
    Parameters, Query, Sample, SingleBlock, State,
};
use counters::{Addition, At, Cells, Counters, SATURATED};
use exponential::Exponential;
use polynomial::SumOfExponentials;
use ring::{Ring, Shape};
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "decaying";

/// The parameters of every decay function.
const KNOWN: [&str; 7] = ["capacity", "fpr", "cells", "k", "epoch", "decay", "counter-bits"];

/// The decay functions: names and parameters.
const DECAYS: [(&str, &[&str]); 5] = [
    (exponential::NAME, &exponential::KNOWN),
    (polynomial::NAME, &polynomial::KNOWN),
    (ring::SLIDING_WINDOW, &ring::KNOWN),
    (ring::LINEAR, &ring::KNOWN),
    (ring::WEIGHTS, &ring::KNOWN_OF_WEIGHTS),
];

/// The greatest number of hash functions, as in [`Plan`].
const MOST_FUNCTIONS: usize = 64;

/// The number of hash functions up to which short arrays are used: more than nearly all filters
/// have.
const FEW_FUNCTIONS: usize = 16;

/// A decaying filter's parameters, completed.
#[derive(Debug, Clone, PartialEq)]
struct Decaying<C> {
    plan: Plan,
    epoch: Micros,
    counters: C,
}

/// Builds the kind from `capacity` (the greatest number of distinct keys of which something is left
/// at one time), `fpr` (0.001 if absent) and `epoch`.
///
/// `decay` is one of
/// * `exponential` (the default), with `lambda`, `fraction-bits` (8 if absent) and `counter-bits`
///   (32);
/// * `polynomial`, with `exponent`, `horizon` in epochs and `excess` (0.03), from which `terms`,
///   `fraction-bits` and `counter-bits` are derived;
/// * `sliding-window` or `linear`, with `window-epochs` and `counter-bits` for each epoch (16);
/// * `weights`, with the `weights` of ages 0, 1, … and `counter-bits` for each epoch (16).
///
/// `cells` and `k` override what would be derived from the others.
///
/// # Errors
/// [`Error::Parameter`] for unknown names, including those of another decay function, for values
/// out of bounds, and if no filter of at most 2^46 counters reaches the rate.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    let decay = parameters.get("decay").unwrap_or(exponential::NAME);
    let Some(&(_, own)) = DECAYS.iter().find(|(name, _)| *name == decay) else {
        let names = DECAYS.map(|(name, _)| name).join(", ");
        return Err(Error::parameter("decay", format!("one of {names}"), decay));
    };
    parameters.only(NAME, &[&KNOWN, own].concat())?;
    let epoch = parameters.required("epoch", "how long an epoch lasts, such as 60s")?;
    let epoch = within("epoch", epoch, 1, u64::MAX)?;
    Ok(match decay {
        exponential::NAME => decaying(parameters, epoch, Exponential::new(parameters)?)?,
        polynomial::NAME => decaying(parameters, epoch, SumOfExponentials::new(parameters)?)?,
        _ => decaying(parameters, epoch, Ring::new(parameters, Shape::of(decay, parameters)?)?)?,
    })
}

/// Returns the target size of a block for counters of this many bits. In blocks of few counters
/// many keys share all of theirs with others, so wide counters have the largest blocks.
fn block_words(counter_bits: u32) -> u32 {
    const MANY: u32 = 256;
    let usual = Layout::PLANNED_BLOCK_WORDS;
    if counter_bits > usual * 64 / MANY { Layout::MOST_BLOCK_WORDS } else { usual }
}

fn decaying<C: Counters + 'static>(
    parameters: &Parameters,
    epoch: u64,
    counters: C,
) -> Result<Arc<dyn Kind>> {
    let block_words = block_words(counters.bits());
    let block_cells = f64::from(block_words) * 64.0 / f64::from(counters.bits());
    let plan = Plan::in_blocks(parameters, "cells", block_cells)?;
    let mut kind = Decaying { plan, epoch, counters };
    if parameters.get("cells").is_none() && block_cells < FEW_CELLS {
        // Each stripe has a whole number of blocks, which are smaller than planned for.
        let is_above = |kind: &Decaying<C>| {
            let layout = Layout { stripes: kind.default_stripes(block_words), block_words };
            kind.planned_fpr(layout) > kind.plan.fpr
        };
        while is_above(&kind) && kind.plan.cells < MOST_CELLS {
            kind.plan.cells += kind.plan.cells / 256 + 1;
        }
    }
    Ok(Arc::new(kind))
}

impl<C: Counters> Decaying<C> {
    /// Returns the number of the epoch that contains a time.
    #[inline]
    fn epoch_of(&self, time: Micros) -> u64 {
        time / self.epoch
    }

    /// Returns the counters of a block: its share of them, as far as they fit.
    #[inline]
    fn cells<'a>(&self, block: &'a Block<'a>) -> Cells<'a> {
        let fit = block.cells.len() as u64 * 64 / u64::from(self.counters.bits());
        let share = self.plan.cells.div_ceil(block.of.max(1));
        Cells { block, count: fit.min(share) as u32 }
    }

    #[inline]
    fn add<const N: usize>(&self, block: &Block<'_>, hash: u64, addition: Addition) {
        let cells = self.cells(block);
        self.counters.add(&cells, &At::<N>::new(hash, cells.count, self.plan.k), addition);
    }

    #[inline]
    fn least_of<const N: usize>(&self, block: &Block<'_>, hash: u64, now: u64) -> Estimate {
        let cells = self.cells(block);
        self.counters.least(&cells, &At::<N>::new(hash, cells.count, self.plan.k), now)
    }

    /// Queries a key's block.
    #[inline]
    fn least(&self, block: &Block<'_>, query: &Query) -> Estimate {
        let now = self.epoch_of(query.now);
        if self.has_few() {
            self.least_of::<FEW_FUNCTIONS>(block, query.hash, now)
        } else {
            self.least_of::<MOST_FUNCTIONS>(block, query.hash, now)
        }
    }

    #[inline]
    fn has_few(&self) -> bool {
        self.plan.k as usize <= FEW_FUNCTIONS
    }

    /// Returns the numbers of counters and of blocks in this layout.
    fn size(&self, layout: Layout) -> (f64, f64) {
        let geometry = layout.geometry(self.first_words());
        let blocks = layout.blocks(geometry);
        let fit = u64::from(geometry.words_per_block) * 64 / u64::from(self.counters.bits());
        let a_block = fit.min(self.plan.cells.div_ceil(blocks.max(1)));
        (a_block as f64 * blocks as f64, blocks as f64)
    }
}

impl<C: Counters> Describe for Decaying<C> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        self.counters.describe(self.plan.parameters("cells").with("epoch", self.epoch))
    }

    fn uses_time(&self) -> bool {
        true
    }

    fn first_words(&self) -> u64 {
        words_for(self.plan.cells, self.counters.bits())
    }

    fn table_bytes(&self) -> usize {
        self.counters.table_bytes()
    }

    fn default_block_words(&self) -> u32 {
        block_words(self.counters.bits())
    }

    fn step(&self, _: &State<'_>, moment: &Moment) -> Option<u64> {
        Some(self.epoch_of(moment.now))
    }

    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let cells = self.cells(block);
        (self.counters.in_use(&cells), cells.count.into())
    }

    fn metrics(&self) -> &'static [KindMetric] {
        &[KindMetric { name: "saturated", word: SATURATED }]
    }

    /// Returns the rate at capacity: the number of distinct keys of which something is left.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let (cells, blocks) = self.size(layout);
        fpr(self.plan.capacity as f64, cells, self.plan.k, blocks)
    }

    /// Returns the probability that nothing is left of a key and yet all its counters are above
    /// zero, or what was cut off may be its.
    fn estimated_fpr(&self, _: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> f64 {
        let (cells, blocks) = self.size(layout);
        let full = fpr_of_fill(sample.fill(), cells, self.plan.k, blocks);
        full + (1.0 - full) * sample.fpr()
    }

    fn counts(&self) -> Option<&dyn KeyCounts> {
        Some(self)
    }
}

impl<C: Counters> SingleBlock for Decaying<C> {
    /// The step is the filter's epoch; the key's own epoch follows from its time.
    fn decide(&self, _: &State<'_>, moment: &Moment) -> Decision {
        let step = self.epoch_of(moment.now.max(moment.time));
        if self.counters.forgotten(self.epoch_of(moment.time), step) {
            return Decision::TooLate;
        }
        Decision::Insert { step }
    }

    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let cells = self.cells(block);
        let at = At::<MOST_FUNCTIONS>::new(hash, cells.count, self.plan.k);
        at.iter().for_each(|at| self.counters.prefetch(&cells, at));
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        let epoch = self.epoch_of(operation.time);
        let now = operation.step.max(epoch);
        let addition = Addition { weight: operation.weight, epoch, now };
        if self.has_few() {
            self.add::<FEW_FUNCTIONS>(block, operation.hash, addition);
        } else {
            self.add::<MOST_FUNCTIONS>(block, operation.hash, addition);
        }
    }

    /// Returns whether anything is left of the key: whether its estimate is above 0.
    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        // The remaining weight of a key may be exactly what a full counter lost.
        let least = self.least(block, query);
        least.count > 0.0 || least.at_least
    }

    fn settle(&self, _: &State<'_>, block: &Block<'_>, moment: &Moment) {
        self.counters.catch_up(&self.cells(block), self.epoch_of(moment.now));
    }

    /// Returns the part that marks contribute, see [`Counters::marked`]; the fill tells the other.
    fn block_fpr(&self, block: &Block<'_>) -> f64 {
        self.counters.marked(block)
    }
}

impl<C: Counters> KeyCounts for Decaying<C> {
    fn estimate(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> Estimate {
        self.least(block, query)
    }

    /// Returns `1 - λ`; for a sliding window, one over its epochs.
    fn normaliser(&self) -> Option<f64> {
        Some(self.counters.normaliser())
    }

    fn fills(&self) -> Option<u64> {
        self.counters.fills()
    }
}
