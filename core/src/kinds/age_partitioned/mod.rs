//! The age-partitioned Bloom filter (Shtul, Baquero, Almeida; the Time-limited paper's section 5):
//! a window of the last `N` insert operations.
//!
//! Inserts are counted, including duplicates, in generations of `g = ceil(N/l)`. A key is present
//! for exactly `l` shifts after its generation, so for at least `N` further inserts. It is absent
//! after `(l+1)·g` inserts except for ghosts: a key that expired `e < k` generations ago still has
//! `k-e` slices, and about `2^-e` of such keys are still reported as present.
//!
//! A shift is due before the insert that follows a full generation ([`CountedGenerations`]); blocks
//! catch up when they are next touched (`slice_columns`).

mod distinct;
mod evidence;
mod plan;
pub mod spec;
pub mod theory;

#[cfg(test)]
mod tests;

pub use plan::{COLUMNS, Design, MOST_WORDS, Plan, design, plan, words_for};

use super::bloom::same_hash;
use super::slice_columns::{Columns, caught_up};
use crate::block::{Block, Blocks, Geometry, Layout, UndoRoom};
use crate::error::{Error, Result};
use crate::kind::parameters::{DEFAULT_FPR, within};
use crate::kind::{
    Age, CountedGenerations, Describe, DistinctKeys, Events, GenerationFill, Inference, KeyAges,
    Kind, Moment, Operation, Parameters, Query, Sample, SingleBlock, State, Totals, Within,
};
use std::sync::Arc;
use theory::Phase;

/// The kind's name.
pub const NAME: &str = "age-partitioned";

/// The parameters of this kind.
const KNOWN: [&str; 7] = ["window-items", "fpr", "k", "l", "generation", "columns", "words"];

/// The factor by which a pair of `k` and `l` may exceed the planned rate: of the papers' pairs for
/// 0.001, (13, 23) gives 0.00103, (14, 40) 0.00101.
const CEILING_SLACK: f64 = 1.05;

/// The longest window, in inserts; memory bounds it earlier.
const MOST_ITEMS: u64 = 1 << 48;

/// An age-partitioned filter's parameters, completed.
#[derive(Debug, Clone, PartialEq)]
struct AgePartitioned {
    window: u64,
    fpr: f64,
    k: u32,
    l: u32,
    generations: CountedGenerations,
    columns: u32,
    words: u64,
    slices: Columns,
}

/// Builds the kind from `window-items` and `fpr` (0.001 if absent).
///
/// With `k` and `l` the memory is the classical `k·g/ln 2` bits a slice, and `fpr`, if given, a
/// ceiling. `columns`, `generation` and `words` override what would be derived from the others: a
/// larger generation takes more words. With `words` there is no guarantee of the rate.
///
/// # Errors
/// [`Error::Parameter`] for unknown names, for values out of bounds or that do not fit each other,
/// and for filters above 8 TiB.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let window = parameters.required("window-items", "how many inserts it looks back")?;
    let window = within("window-items", window, 1, MOST_ITEMS)?;
    let fpr = parameters.fpr()?;
    let columns = columns(parameters)?;
    let slices = parameters.slices(COLUMNS[2] - 1)?;
    let words = parameters.count("words", "a number of 64-bit words", MOST_WORDS)?;
    let generation = parameters.count("generation", "a number of inserts", window)?;
    let (plan, fpr) = match slices {
        None => {
            let fpr = fpr.unwrap_or(DEFAULT_FPR);
            (plan::plan(window, fpr, columns)?, fpr)
        }
        Some(slices) => given(window, slices, (generation, columns, words), fpr)?,
    };
    let Plan { k, l, columns, .. } = plan;
    let generation = generation.unwrap_or(plan.generation);
    if u128::from(generation) * u128::from(l) < u128::from(window) {
        let least = window.div_ceil(l.into());
        return Err(Error::parameter("generation", format!("at least {least}"), generation));
    }
    let words = match words {
        Some(words) => words,
        // Larger generations at the planned load.
        None if generation > plan.generation => plan::words_of(&plan, generation)?,
        None => plan.words,
    };
    let slices = Columns::new(k, k + l, columns);
    let generations = CountedGenerations { length: generation };
    Ok(Arc::new(AgePartitioned { window, fpr, k, l, generations, columns, words, slices }))
}

fn columns(parameters: &Parameters) -> Result<Option<u32>> {
    let columns = parameters.optional("columns", "16, 32 or 64")?;
    match columns {
        Some(other) if !COLUMNS.contains(&other) => {
            Err(Error::parameter("columns", "16, 32 or 64", other))
        }
        _ => Ok(columns),
    }
}

/// Returns the plan for given numbers of slices, and the rate it keeps.
fn given(
    window: u64,
    (k, l): (u32, u32),
    (generation, columns, words): (Option<u64>, Option<u32>, Option<u64>),
    ceiling: Option<f64>,
) -> Result<(Plan, f64)> {
    let columns = columns.or_else(|| COLUMNS.into_iter().find(|&width| k + l <= width));
    let Some(columns) = columns.filter(|&width| k + l <= width) else {
        let most = columns.unwrap_or(COLUMNS[2]);
        return Err(Error::parameter("k", format!("k + l of at most {most}"), k + l));
    };
    if u64::from(l) > window {
        return Err(Error::parameter("l", format!("at most the window, {window}"), l));
    }
    let generation = generation.unwrap_or(window.div_ceil(l.into()));
    let load = std::f64::consts::LN_2;
    // A rate that rounds to 1 (one hash function, many slices) must be readable as a rate.
    let reached = theory::fpr(k, l, load, Phase::WORST).min(1.0 - f64::EPSILON);
    let words = match (words, ceiling) {
        (Some(words), _) => words,
        (None, Some(ceiling)) if reached > ceiling * CEILING_SLACK => {
            let expected = format!("at least {reached:.3e}, what k = {k} and l = {l} give");
            return Err(Error::parameter("fpr", expected, ceiling));
        }
        (None, _) => words_for(k, generation, load, columns)?,
    };
    Ok((Plan { k, l, columns, generation, words }, ceiling.unwrap_or(reached)))
}

impl AgePartitioned {
    /// Returns the known inserts into the open generation; 0 if the state is behind `generation`.
    fn inserts_in(&self, state: &State<'_>, generation: u64, totals: &Totals) -> u64 {
        if CountedGenerations::current(state) < generation {
            return 0;
        }
        CountedGenerations::open_inserts(state, totals)
    }

    /// Returns the theoretical rate in blocks of this geometry.
    fn fpr_at(&self, layout: Layout, geometry: Geometry, phase: Phase) -> f64 {
        let cells = layout.words(geometry) as f64 * self.slices.lanes() as f64;
        let load = f64::from(self.k) * self.generations.length as f64 / cells;
        // A single block holds all keys: nothing varies.
        let block_keys = match layout.blocks(geometry) {
            0 | 1 => 0.0,
            blocks => self.generations.length as f64 / blocks as f64,
        };
        theory::fpr_in_blocks(self.k, self.l, load, phase, block_keys)
    }

    /// Returns the key's runs by age (age 0 as the top bit), and the generation from which ages
    /// count.
    #[inline(always)]
    fn runs(&self, state: &State<'_>, blocks: &Blocks<'_>, hash: u64) -> (u64, u64) {
        match blocks.get(0) {
            Some(block) => self.slices.runs(block, CountedGenerations::current(state), hash),
            None => (0, 0),
        }
    }
}

impl Describe for AgePartitioned {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        Parameters::new()
            .with("window-items", self.window)
            .with("fpr", self.fpr)
            .with("k", self.k)
            .with("l", self.l)
            .with("generation", self.generations.length)
            .with("columns", self.columns)
            .with("words", self.words)
    }

    fn undo_room(&self) -> UndoRoom {
        UndoRoom::None
    }

    fn first_words(&self) -> u64 {
        self.words
    }

    fn step(&self, state: &State<'_>, _: &Moment) -> Option<u64> {
        Some(CountedGenerations::current(state))
    }

    /// The slices by age: those that the open generation began first.
    fn generation_fills(
        &self,
        state: &State<'_>,
        _: usize,
        block: &Block<'_>,
        moment: &Moment,
    ) -> Vec<GenerationFill> {
        let generation = CountedGenerations::current(state).max(caught_up(block));
        let slices = self.slices.set_by_age(block, generation);
        let began = |age| self.generations.began(state, &moment.totals, age);
        let fills = slices.zip(0..).map(|((used, cells), age)| (began(age), used, cells));
        fills.map(|(began, used, cells)| GenerationFill { began, used, cells }).collect()
    }

    /// Assumes that all keys were distinct: duplicates fill less.
    fn estimated_fpr(&self, state: &State<'_>, layout: Layout, moment: &Moment, _: &Sample) -> f64 {
        let Some(bank) = state.bank(0) else {
            return 0.0;
        };
        let open = CountedGenerations::open_inserts(state, &moment.totals);
        let fraction = open as f64 / self.generations.length as f64;
        let closed = CountedGenerations::current(state);
        let of_rows = self.fpr_at(layout, bank.geometry, Phase { closed, fraction });
        let generations = closed.min(self.l.into()) as f64 + fraction;
        (of_rows + same_hash(generations * self.generations.length as f64)).min(1.0)
    }

    /// Returns the rate just before a shift, when it is highest.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let generations = f64::from(self.l) + 1.0;
        let keys = generations * self.generations.length as f64;
        let of_rows = self.fpr_at(layout, layout.geometry(self.words), Phase::WORST);
        (of_rows + same_hash(keys)).min(1.0)
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(&self.generations)
    }

    fn ages(&self) -> Option<&dyn KeyAges> {
        Some(self)
    }

    fn distinct_keys(&self) -> Option<&dyn DistinctKeys> {
        Some(self)
    }

    fn inference(&self) -> Option<&dyn Inference> {
        Some(self)
    }
}

impl SingleBlock for AgePartitioned {
    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        self.slices.prefetch(block, hash);
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        // Another thread may have shifted since the step was read, and written here first.
        let generation = operation.step.max(caught_up(block));
        self.slices.insert(block, 0, generation, operation.hash);
    }

    fn checks_on_insert(&self) -> bool {
        true
    }

    #[inline]
    fn insert_and_check(&self, block: &Block<'_>, operation: &Operation, _: u32) -> bool {
        let generation = operation.step.max(caught_up(block));
        self.slices.insert_and_read(block, 0, generation, operation.hash) != 0
    }

    #[inline]
    fn contains(&self, state: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.slices.runs(block, CountedGenerations::current(state), query.hash).0 != 0
    }

    fn settle(&self, state: &State<'_>, block: &Block<'_>, _: &Moment) {
        self.slices.catch_up(block, 0, CountedGenerations::current(state));
    }
}

impl KeyAges for AgePartitioned {
    /// A lower bound, by the youngest run of slices, which is never older than the key's own: the
    /// inserts of the open generation, and of those that were closed after the run's.
    fn age(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age> {
        let (runs, generation) = self.runs(state, blocks, query.hash);
        let closed = match runs.leading_zeros() {
            64 => return None,
            0 => return Some(Age::Items(0)),
            age => u64::from(age - 1).saturating_mul(self.generations.length),
        };
        let open = self.inserts_in(state, generation, &query.totals);
        Some(Age::Items(open.saturating_add(closed)))
    }

    /// No key of the last `items` inserts is missed; keys `d` generations older are accepted with
    /// probability `2^-d`. The filter has no times: [`Within::Time`] covers the whole window.
    fn contains_within(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool {
        let (runs, generation) = self.runs(state, blocks, query.hash);
        let items = match within {
            _ if within.width() == 0 => return false,
            Within::Time(_) => return runs != 0,
            Within::Items(items) => items,
        };
        // A key of generation age i >= 1 lies behind the open generation's inserts and i-1 full
        // ones.
        let open = self.inserts_in(state, generation, &query.totals);
        let oldest = match (items - 1).checked_sub(open) {
            None => 0,
            Some(beyond) => 1 + beyond / self.generations.length,
        };
        runs >> 63_u64.saturating_sub(oldest) != 0
    }
}
