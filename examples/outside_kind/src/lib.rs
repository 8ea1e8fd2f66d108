//! A kind of filter that ebbtide does not have, written against the public interface of its core: a
//! ring of small Bloom filters, an approximate window of the last `N` insert operations.
//!
//! Each block holds `s` arrays of bits, the slots of a ring. Inserts are counted in generations of
//! `N / (s-1)`, and an insert of generation `g` sets `k` bits in slot `g mod s`. A query finds a
//! key if all of its bits are set in any slot that is alive. Generation `g` begins by clearing its
//! slot, which held generation `g-s`: a key stays for `N` further inserts at least, and for a
//! generation more at most. With more slots the window is sharper and a query reads more words.
//! (Two slots are ebbtide's `two-buffer`.)
//!
//! A new generation changes no block: a block catches up when it is next touched. Its first kind
//! word holds the generation that it has caught up to.

use ebbtide_core::block::{Block, Layout, UndoRoom, load, prefetch, store};
use ebbtide_core::hash::Positions;
use ebbtide_core::kind::{
    CountedGenerations, Describe, Events, Moment, Operation, Query, Sample, SingleBlock, State,
};
use ebbtide_core::{Error, Kind, Parameters, Result};
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "ring";

/// The kind word of a block that holds its generation.
const GENERATION: usize = 0;

/// A ring of Bloom filters.
#[derive(Debug, Clone, PartialEq)]
struct Ring {
    window: u64,
    slots: u64,
    /// Bits of all blocks and slots together.
    bits: u64,
    k: u32,
    generations: CountedGenerations,
}

/// Builds the kind from `window-items`, `fpr` (0.001 if absent) and `slots` (4 if absent); `bits`
/// and `k` override what would be derived from these.
///
/// # Errors
/// [`Error::Parameter`] for unknown names and for values out of bounds.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &["window-items", "fpr", "slots", "bits", "k"])?;
    let window = parameters.count("window-items", "a number of inserts", 1 << 32)?;
    let window =
        window.ok_or_else(|| Error::parameter("window-items", "a number of inserts", "nothing"))?;
    let slots = parameters.count("slots", "a number of slots", 64)?.unwrap_or(4);
    if slots < 2 {
        return Err(Error::parameter("slots", "at least 2 slots", slots));
    }
    let length = window.div_ceil(slots - 1);
    // Every slot must keep its share of the rate.
    let share = parameters.fpr()?.unwrap_or(0.001) / slots as f64;
    let k = parameters.count("k", "a number of hash functions", 64)?;
    let k = k.map_or_else(|| (-share.log2()).ceil().clamp(1.0, 64.0) as u32, |k| k as u32);
    let bits = parameters.count("bits", "a number of bits", 1 << 43)?.unwrap_or_else(|| {
        // The classical size for a generation in each slot, and a twentieth for uneven blocks.
        let load = -(1.0 - share.powf(1.0 / f64::from(k))).ln();
        (1.05 * (slots * length) as f64 * f64::from(k) / load).ceil() as u64
    });
    let generations = CountedGenerations { length };
    Ok(Arc::new(Ring { window, slots, bits, k, generations }))
}

impl Ring {
    /// Returns the words of a slot in a block.
    fn slot_words(&self, words: usize) -> usize {
        words / self.slots as usize
    }

    /// Visits the words of the key's bits in the slot of a generation, with their masks.
    #[inline]
    fn each_bit<'a>(
        &self,
        block: &Block<'a>,
        (generation, hash): (u64, u64),
        mut visit: impl FnMut(usize, u64),
    ) {
        let size = self.slot_words(block.cells.len());
        let first = (generation % self.slots) as usize * size;
        let positions = Positions::new(hash, size as u32 * 64);
        positions.each(self.k, |bit| visit(first + bit / 64, 1 << (bit % 64)));
    }

    /// Brings a block to a generation: clears the slots of those that began since.
    fn catch_up(&self, block: &Block<'_>, generation: u64) {
        let before = block.own(GENERATION);
        if generation <= before {
            return;
        }
        let size = self.slot_words(block.cells.len());
        let first = (before + 1).max(generation.saturating_sub(self.slots - 1));
        for slot in (first..=generation).map(|generation| (generation % self.slots) as usize) {
            block.cells[slot * size..][..size].iter().for_each(|word| store(word, 0));
        }
        // Last: an insert that is interrupted before clears again.
        store(&block.own[GENERATION], generation);
    }

    /// Returns the theoretical rate with the open generation as full as `open`, from 0 to 1.
    fn fpr(&self, layout: Layout, open: f64) -> f64 {
        let words = layout.words(self.geometry(layout)) / self.slots;
        let load = self.generations.length as f64 * f64::from(self.k) / (words as f64 * 64.0);
        let of_slot = |load: f64| (1.0 - (-load).exp()).powi(self.k as i32);
        let full = (1.0 - of_slot(load)).powi(self.slots as i32 - 1);
        1.0 - full * (1.0 - of_slot(load * open))
    }
}

impl Describe for Ring {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        Parameters::new()
            .with("window-items", self.window)
            .with("slots", self.slots)
            .with("bits", self.bits)
            .with("k", self.k)
    }

    fn counts_inserts(&self) -> bool {
        true
    }

    fn undo_room(&self) -> UndoRoom {
        UndoRoom::None
    }

    fn first_words(&self) -> u64 {
        self.bits.div_ceil(64)
    }

    fn step(&self, state: &State<'_>, _: &Moment) -> Option<u64> {
        Some(CountedGenerations::current(state))
    }

    fn planned_fpr(&self, layout: Layout) -> f64 {
        self.fpr(layout, 1.0)
    }

    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, moment: &Moment, _: &Sample) -> f64 {
        let open = CountedGenerations::open_inserts(state, &moment.totals) as f64;
        self.fpr(layout, (open / self.generations.length as f64).min(1.0))
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(&self.generations)
    }
}

impl SingleBlock for Ring {
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        self.each_bit(block, (block.own(GENERATION), hash), |word, _| {
            block.cells.get(word).into_iter().for_each(prefetch);
        });
    }

    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        self.catch_up(block, operation.step);
        // A block may be ahead of the operation, if the step came between decision and insert.
        if block.own(GENERATION) - operation.step < self.slots {
            self.each_bit(block, (operation.step, operation.hash), |word, mask| {
                if let Some(word) = block.cells.get(word) {
                    store(word, load(word) | mask);
                }
            });
        }
    }

    fn contains(&self, state: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        let newest = block.own(GENERATION);
        // A block may be a generation ahead of the state that the query has read.
        let current = CountedGenerations::current(state).max(newest);
        let oldest = current.saturating_sub(self.slots - 1);
        (oldest..=newest).any(|generation| {
            let mut all = true;
            self.each_bit(block, (generation, query.hash), |word, mask| {
                all &= block.word(word) & mask != 0;
            });
            all
        })
    }

    fn settle(&self, state: &State<'_>, block: &Block<'_>, _: &Moment) {
        self.catch_up(block, CountedGenerations::current(state));
    }
}
