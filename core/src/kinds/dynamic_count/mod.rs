//! Dynamic count filters (J. Aguilar-Saborit et al.: *Dynamic Count Filters*, SIGMOD Record 2006):
//! count the inserts of a key with counters that are all as wide as the largest of them needs.
//!
//! Counter `j` is a pair (section 3): `C_j`, of `x` bits that never change, and `OF_j`, of `y`
//! bits, which counts how often `C_j` has overflowed. Its value is `V_j = 2^x · OF_j + C_j`. The
//! vector of the `OF_j` (OFV) is *rebuilt* with another `y` when a counter overflows its `x + y`
//! bits (section 3.2), and, with some delay, when all have become small (section 3.3): see
//! [`Vectors`].
//!
//! Here each block has an OFV of its own: a hot key widens the counters of its block only, and a
//! rebuild rewrites one block. The kind metric `rebuilds` therefore counts rebuilds of blocks, and
//! `rewritten_cells`, divided by the number of counters, is comparable to the paper's figure. With
//! one block both are the paper's. The metric `overflow_bits` is the sum of `y` over the counters.
//!
//! A block begins with room for its `C_j` and gets more as its OFV grows, up to 64 bits a counter.
//! No counter saturates below `2^64 - 1`, which would take centuries with an insert every
//! nanosecond; there it stays.

pub mod spec;
mod theory;
mod vectors;

#[cfg(test)]
mod tests;

pub use theory::{fixed_bits, largest_of_poisson, level, threshold};
pub use vectors::Vectors;

use super::bloom::{Plan, fpr, fpr_of_fill};
use super::distinct_by_fill::ByFill;
use crate::block::{Block, Geometry, Layout};
use crate::error::{Error, Result};
use crate::hash::Positions;
use crate::kind::{
    Change, Describe, DistinctKeys, Estimate, Growth, KeyCounts, Kind, KindMetric, Moment,
    Operation, Parameters, Query, Removal, Sample, SingleBlock, State,
};
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "dynamic-count";

/// The parameters of this kind.
const KNOWN: [&str; 6] = ["capacity", "fpr", "cells", "k", "mean-count", "lambda"];

/// The default mean number of inserts of a key.
const DEFAULT_MEAN_COUNT: f64 = 2.0;

/// The default threshold of delayed shrinking: in the middle. The paper finds `1 - inserts/deletes`
/// best.
const DEFAULT_LAMBDA: f64 = 0.5;

/// The greatest number of hash functions, as in [`Plan`].
const MOST_FUNCTIONS: usize = 64;

/// The greatest number of counters of a block: at 64 bits each they fill the largest one, except
/// for a word where the second vector begins.
const MOST_COUNTERS: u64 = Layout::MOST_BLOCK_WORDS as u64 - 64;

/// Default blocks of a stripe: a stripe's undo area is as large as several blocks in normal use.
const BLOCKS_PER_STRIPE: u64 = 4;

/// Blocks begin on a page, because room is allocated by pages.
const PAGE_WORDS: u32 = 512;

/// A dynamic count filter.
#[derive(Debug, Clone, PartialEq)]
struct DynamicCount {
    plan: Plan,
    mean_count: f64,
    lambda: f64,
    /// Bits of a `C_j`.
    x: u32,
}

/// Builds the kind from `capacity` and `fpr` (0.001 if absent); `cells` and `k` override what would
/// be derived from these. `mean-count` (2 if absent) decides `x`; `lambda` (0.5 if absent), from 0
/// to 1, decides when an OFV shrinks.
///
/// # Errors
/// [`Error::Parameter`] for unknown names, for values out of bounds, and if no filter of at most
/// 2^46 counters reaches the rate.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let plan = Plan::in_blocks(parameters, "cells", MOST_COUNTERS as f64)?;
    let number = |name, expected, default, sound: fn(&f64) -> bool| {
        let given = parameters.optional(name, expected)?.unwrap_or(default);
        let refused = || Error::parameter(name, expected, given);
        Some(given).filter(sound).ok_or_else(refused)
    };
    let counts = "how often a key comes, on average: from 1 to 2^32";
    let mean_count = number("mean-count", counts, DEFAULT_MEAN_COUNT, |mean| {
        (1.0..=4_294_967_296.0).contains(mean)
    })?;
    let shares = "a number from 0 to 1";
    let lambda = number("lambda", shares, DEFAULT_LAMBDA, |lambda| (0.0..=1.0).contains(lambda))?;
    Ok(Arc::new(DynamicCount { plan, mean_count, lambda, x: fixed_bits(mean_count) }))
}

impl DynamicCount {
    /// Returns the number of counters of a block that is one of `blocks`.
    #[inline]
    fn counters(&self, blocks: u64) -> usize {
        self.plan.cells.div_ceil(blocks.max(1)).min(MOST_COUNTERS) as usize
    }

    /// Returns the two vectors of a block.
    #[inline]
    fn vectors(&self, block: &Block<'_>) -> Vectors {
        Vectors::of(block, self.counters(block.of), self.x)
    }

    /// Returns the least counter of a key (section 3.1).
    #[inline]
    fn least(&self, block: &Block<'_>, hash: u64) -> u64 {
        let vectors = self.vectors(block);
        let key = Key::new(hash, self.plan.k, &vectors);
        key.counters().iter().fold(u64::MAX, |least, &at| least.min(vectors.get(block, at)))
    }
}

/// The counters of a key, by number.
struct Key {
    all: [usize; MOST_FUNCTIONS],
    k: usize,
}

impl Key {
    #[inline]
    fn new(hash: u64, k: u32, vectors: &Vectors) -> Self {
        let positions = Positions::new(hash, vectors.counters() as u32);
        let mut key = Self { all: [0; MOST_FUNCTIONS], k: (k as usize).min(MOST_FUNCTIONS) };
        for (pair, two) in key.all[..key.k.next_multiple_of(2)].chunks_mut(2).enumerate() {
            (two[0], two[1]) = positions.pair(pair as u32);
        }
        key
    }

    #[inline]
    fn counters(&self) -> &[usize] {
        &self.all[..self.k]
    }

    /// Returns the bits of `OF_j` that an insert of this weight needs; one counter of the key may
    /// be raised several times.
    #[inline]
    fn width_for(&self, block: &Block<'_>, vectors: &Vectors, weight: u32) -> u32 {
        let all = self.counters().iter();
        let largest = all.fold(0, |largest: u64, &at| largest.max(vectors.get(block, at)));
        let bound = largest.saturating_add(u64::from(weight) * self.k as u64);
        if vectors.width_of(bound) <= vectors.width() {
            return vectors.width();
        }
        self.exact_width_for(block, vectors, weight)
    }

    #[cold]
    fn exact_width_for(&self, block: &Block<'_>, vectors: &Vectors, weight: u32) -> u32 {
        let raised = self.counters().iter().map(|&at| {
            let times = self.counters().iter().filter(|&&other| other == at).count() as u64;
            vectors.get(block, at).saturating_add(u64::from(weight) * times)
        });
        vectors.width_of(raised.max().unwrap_or(0)).max(vectors.width())
    }
}

impl Describe for DynamicCount {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        let parameters = self.plan.parameters("cells");
        parameters.with("mean-count", self.mean_count).with("lambda", self.lambda)
    }

    /// Returns blocks of a size that lets each counter become 64 bits wide.
    fn geometry(&self, layout: Layout) -> Geometry {
        let stripes = u64::from(layout.stripes.max(1));
        let each = self.plan.cells.div_ceil(stripes);
        let blocks = each.div_ceil(MOST_COUNTERS).clamp(1, u32::MAX.into());
        let words = Vectors::most_words(self.counters(stripes * blocks)) as u32;
        Geometry {
            blocks_per_stripe: blocks as u32,
            words_per_block: words.next_multiple_of(PAGE_WORDS),
        }
    }

    fn first_words(&self) -> u64 {
        let layout = Layout { stripes: 1, block_words: Layout::MOST_BLOCK_WORDS };
        layout.words(self.geometry(layout))
    }

    fn default_stripes(&self, _: u32) -> u32 {
        (self.plan.cells / MOST_COUNTERS / BLOCKS_PER_STRIPE).clamp(1, 64) as u32
    }

    /// Counts the counters that are not 0.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let vectors = self.vectors(block);
        let used = (0..vectors.counters()).filter(|&at| vectors.get(block, at) > 0).count();
        (used as u64, vectors.counters() as u64)
    }

    fn metrics(&self) -> &'static [KindMetric] {
        &[
            KindMetric { name: "rebuilds", word: vectors::REBUILDS },
            KindMetric { name: "rewritten_cells", word: vectors::REWRITTEN },
            KindMetric { name: "overflow_bits", word: vectors::OVERFLOW_BITS },
        ]
    }

    /// Returns the rate at capacity.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let blocks = layout.blocks(self.geometry(layout)) as f64;
        fpr(self.plan.capacity as f64, self.plan.cells as f64, self.plan.k, blocks)
    }

    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> f64 {
        let blocks = state.bank(0).map_or(1, |bank| layout.blocks(bank.geometry));
        fpr_of_fill(sample.fill(), self.plan.cells as f64, self.plan.k, blocks as f64)
    }

    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        Some(self)
    }

    fn counts(&self) -> Option<&dyn KeyCounts> {
        Some(self)
    }

    fn removal(&self) -> Option<&dyn Removal> {
        Some(self)
    }

    fn growth(&self) -> Option<&dyn Growth> {
        Some(self)
    }
}

impl ByFill for DynamicCount {
    fn cells_of_a_key(&self) -> u32 {
        self.plan.k
    }
}

impl SingleBlock for DynamicCount {
    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let vectors = self.vectors(block);
        let key = Key::new(hash, self.plan.k, &vectors);
        key.counters().iter().for_each(|&at| vectors.prefetch(block, at));
    }

    /// Section 3.2: every counter of the key is raised; the OFV is made wider before one would
    /// overflow it.
    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        let mut vectors = self.vectors(block);
        let key = Key::new(operation.hash, self.plan.k, &vectors);
        let width = key.width_for(block, &vectors, operation.weight);
        let block = &vectors.within(block, width);
        vectors.begin(block);
        if width > vectors.width() {
            vectors.rebuild(block, width, self.lambda);
        }
        let weight = u64::from(operation.weight);
        let threshold = vectors.threshold(self.lambda);
        for &at in key.counters() {
            let value = vectors.get(block, at);
            vectors.set(block, at, value, value.saturating_add(weight), threshold);
        }
    }

    #[inline]
    fn contains(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.least(block, query.hash) > 0
    }
}

impl KeyCounts for DynamicCount {
    fn estimate(&self, _: &State<'_>, block: &Block<'_>, query: &Query) -> Estimate {
        let least = self.least(block, query.hash);
        Estimate { count: least as f64, at_least: least == u64::MAX }
    }
}

impl Removal for DynamicCount {
    /// Sections 3.2 and 3.3: every counter of the key is lowered; the OFV is made narrower once all
    /// counters are below the threshold.
    fn remove(&self, block: &Block<'_>, operation: &Operation) {
        let mut vectors = self.vectors(block);
        let block = &vectors.within(block, vectors.width());
        let (weight, threshold) = (u64::from(operation.weight), vectors.threshold(self.lambda));
        for &at in Key::new(operation.hash, self.plan.k, &vectors).counters() {
            let value = vectors.get(block, at);
            // A saturated counter stays there. Below zero only if a key was removed that had not
            // been inserted.
            let less = if value == u64::MAX { value } else { value.saturating_sub(weight) };
            vectors.set(block, at, value, less, threshold);
        }
        vectors.shrink(block, self.lambda);
    }
}

impl Growth for DynamicCount {
    fn room(&self, block: &Block<'_>, operation: &Operation) -> usize {
        let vectors = self.vectors(block);
        match operation.change {
            Change::Insert => {
                let key = Key::new(operation.hash, self.plan.k, &vectors);
                vectors.words_at(key.width_for(block, &vectors, operation.weight))
            }
            Change::Remove => vectors.words_at(vectors.width()),
        }
    }

    /// Returns 0 before the first insert.
    fn room_now(&self, block: &Block<'_>) -> usize {
        let vectors = self.vectors(block);
        if vectors.is_new(block) { 0 } else { vectors.words_at(vectors.width()) }
    }

    /// Returns the words at capacity, if every key was inserted `mean-count` times. If a few keys
    /// are far more frequent than most, as is common, their blocks need more: each doubling of a
    /// block's largest counter costs a bit for all of its counters.
    fn planned_words(&self, layout: Layout) -> u64 {
        let blocks = layout.blocks(self.geometry(layout));
        let counters = self.counters(blocks);
        let load = f64::from(self.plan.k) * self.plan.capacity as f64 / self.plan.cells as f64;
        let most = self.mean_count * largest_of_poisson(load, counters as f64);
        let vectors = Vectors::empty(counters, self.x);
        let words = vectors.words_at(vectors.width_of(most as u64)) as u64;
        blocks * words.next_multiple_of(PAGE_WORDS.into())
    }
}
