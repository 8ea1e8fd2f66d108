//! The plain Bloom filter, in blocks: it never forgets, and is the measure of all others.
//!
//! A key sets `k` bits of its block. There are no steps and no filter-wide state.

mod theory;

#[cfg(test)]
mod tests;

pub use theory::{fpr, fpr_of_fill, mean_over_blocks, variance_over_blocks};

use super::parameters::{DEFAULT_FPR, within};
use super::{Decision, Event, Kind, Moment, Operation, Parameters, Query, State};
use crate::cells::{Block, Blocks, Layout, load, store};
use crate::error::{Error, Result};
use crate::hash::Positions;
use crate::sync::AtomicU64;
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "bloom";

/// The parameters it knows.
const KNOWN: [&str; 4] = ["capacity", "fpr", "bits", "k"];

/// The most bits: 8 TiB.
const MOST_BITS: u64 = 1 << 46;

/// The most hash functions.
const MOST_FUNCTIONS: u64 = 64;

/// The bits of a block that [`Layout`] aims at by default; plans allow for blocks of this size.
const PLANNED_BLOCK_BITS: f64 = 2048.0 * 64.0;

/// The most words of a block that are used, so that its bits stay in the range of [`Positions`].
const MOST_BLOCK_WORDS: usize = 1 << 20;

/// A Bloom filter's parameters, completed.
#[derive(Debug, Clone, PartialEq)]
struct Bloom {
    capacity: u64,
    fpr: f64,
    bits: u64,
    k: u32,
}

/// Makes the kind from `capacity` and `fpr` (0.001 if absent); `bits` and `k` override what these derive.
///
/// # Errors
/// [`Error::Parameter`] for unknown names, for values out of bounds, and if no filter of at most 8 TiB
/// does it.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let capacity = parameters.required("capacity", "how many distinct keys it will hold")?;
    let capacity = within("capacity", capacity, 1, MOST_BITS)?;
    let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
    let bits = parameters.count("bits", "a number of bits", MOST_BITS)?;
    let k = parameters.count("k", "a number of hash functions", MOST_FUNCTIONS)?;
    let (bits, k) = match (bits, k) {
        (Some(bits), Some(k)) => (bits, k as u32),
        (Some(bits), None) => (bits, best_functions(bits as f64 / capacity as f64)),
        (None, Some(k)) => (bits_for(capacity, fpr, k as u32)?, k as u32),
        (None, None) => {
            // The optimum is fractional: one of its neighbours takes fewer bits.
            let few = (-fpr.log2()).floor().clamp(1.0, (MOST_FUNCTIONS - 1) as f64) as u32;
            let (less, more) = (bits_for(capacity, fpr, few)?, bits_for(capacity, fpr, few + 1)?);
            if less <= more { (less, few) } else { (more, few + 1) }
        }
    };
    Ok(Arc::new(Bloom { capacity, fpr, bits, k }))
}

/// The number of hash functions that makes the best of so many bits a key.
fn best_functions(bits_per_key: f64) -> u32 {
    (bits_per_key * std::f64::consts::LN_2).round().clamp(1.0, MOST_FUNCTIONS as f64) as u32
}

/// The fewest bits with which `k` hash functions keep the rate at capacity.
fn bits_for(capacity: u64, wanted: f64, k: u32) -> Result<u64> {
    let keys = capacity as f64;
    let rate = |bits: f64| fpr(keys, bits, k, (bits / PLANNED_BLOCK_BITS).max(1.0));
    let (mut low, mut high) = (0.0, MOST_BITS as f64);
    if rate(high) > wanted {
        return Err(Error::parameter(
            "capacity",
            format!("one that a filter of {MOST_BITS} bits holds at fpr {wanted}"),
            capacity,
        ));
    }
    while high - low > 1.0 {
        let middle = (low + high) / 2.0;
        if rate(middle) > wanted { low = middle } else { high = middle }
    }
    Ok((high.ceil() as u64).clamp(1, MOST_BITS))
}

impl Bloom {
    /// Visits the key's bits: their words, and where in them.
    #[inline]
    fn each_bit(&self, block: &Block<'_>, hash: u64, mut visit: impl FnMut(&AtomicU64, usize)) {
        let words = &block.cells[..block.cells.len().min(MOST_BLOCK_WORDS)];
        let positions = Positions::new(hash, words.len() as u32 * 64);
        let mut at = |position: usize| {
            if let Some(word) = words.get(position / 64) {
                visit(word, position % 64);
            }
        };
        for pair in 0..self.k / 2 {
            let (even, odd) = positions.pair(pair);
            at(even);
            at(odd);
        }
        if self.k % 2 == 1 {
            at(positions.get(self.k - 1));
        }
    }
}

impl Kind for Bloom {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        Parameters::new()
            .with("capacity", self.capacity)
            .with("fpr", self.fpr)
            .with("bits", self.bits)
            .with("k", self.k)
    }

    fn first_words(&self) -> u64 {
        self.bits.div_ceil(64)
    }

    fn start(&self, state: &State<'_>, layout: Layout) {
        let geometry = layout.geometry(self.first_words());
        state.apply_banks(&Event::OpenBank { id: state.next_bank(), geometry, since: 0, time: 0 });
    }

    fn decide(&self, _: &State<'_>, _: &Moment) -> Decision {
        Decision::Insert { step: 0 }
    }

    /// Bits that are not set yet. Functions that happen to meet in one such bit count it each: one key in
    /// thousands.
    fn novelty(&self, _: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32 {
        let mut new = 0;
        if let Some(block) = blocks.get(0) {
            self.each_bit(block, operation.hash, |word, shift| {
                new += !(load(word) >> shift) as u32 & 1
            });
        }
        new
    }

    fn insert(&self, _: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) {
        if let Some(block) = blocks.get(0) {
            // Stored even if unchanged: whether it is cannot be predicted, so asking costs more.
            self.each_bit(block, operation.hash, |word, shift| {
                store(word, load(word) | 1 << shift)
            });
        }
    }

    fn contains(&self, _: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> bool {
        let Some(block) = blocks.get(0) else {
            return false;
        };
        // All words are loaded, so that their misses overlap; an early exit would wait for each.
        let mut all = 1;
        self.each_bit(block, query.hash, |word, shift| all &= load(word) >> shift);
        all == 1
    }

    fn settle(&self, _: &State<'_>, _: usize, _: &Block<'_>) {}

    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> f64 {
        let Some(bank) = state.bank(0) else {
            return 0.0;
        };
        let bits = layout.words(bank.geometry).saturating_mul(64) as f64;
        let fill = moment.totals.novelty as f64 / bits;
        fpr_of_fill(fill, bits, self.k, layout.blocks(bank.geometry) as f64)
    }

    /// At capacity.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let geometry = layout.geometry(self.first_words());
        let bits = layout.words(geometry).saturating_mul(64) as f64;
        fpr(self.capacity as f64, bits, self.k, layout.blocks(geometry) as f64)
    }
}
