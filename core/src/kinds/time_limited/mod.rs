//! The time-limited Bloom filter: a key is present for all of `T` after its insertion, and absent
//! after `T + T/l`.
//!
//! An age-partitioned filter (the Time-limited paper, section 6) whose generations are closed by
//! time as well as by allowance, and whose slices live in banks that follow the rate of inserts:
//! - An insert in generation `g` writes the slices `g-k+1..=g` of the bank that serves `g`. The key
//!   is present while its generation is alive: until `T` after that ended, by time, never by count,
//!   half-open.
//! - A generation closes when its allowance is used (the paper's equations 4 and 5) or `T/l` after
//!   it opened (slightly earlier, see `plan`), even if nothing is inserted. The paper's
//!   generations close by use alone, so a quiet stream never expires keys.
//! - A bank serves whole generations, with slices of its own from its first one on, sized for 1.25
//!   times the measured need. A burst uses up its columns before a larger one follows (see
//!   `bank_sizes`). (In the paper, section 6.3, each new slice has a size of its own, by
//!   equations 6 to 8: `benches/papers/time_limited/printed.rs`. Slices of several sizes cannot be
//!   columns of the same words.)
//! - A late key goes to the generation of its own time, or to the open one if that is full (see
//!   `late`).
//!
//! | the paper, section 6 | here |
//! |---|---|
//! | 6.1, equation 3: a slice expires `T` after its latest insert | `generations`: by their ends |
//! | 6.2, equations 4 and 5: inserts until a shift | `full`: the allowance, by new bits |
//! | 6.3, equations 6 to 8: the size of the new slice | `bank_sizes`: the size of a new bank |
//! | 6.4, algorithm 1: `k` consecutive slices alive | `youngest`: runs of `k` ones, bank by bank |
//!
//! A key's slices therefore lie in one block, and a query reads the banks one by one. All of a
//! key's slices expire together except for ghosts: a key that expired `e < k` generations ago still
//! has `k-e` of its slices.

mod bank_sizes;
mod distinct;
mod evidence;
mod fills;
mod generations;
mod late;
mod plan;
pub mod spec;

#[cfg(test)]
mod evidence_tests;
#[cfg(test)]
mod late_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod tests;

use super::age_partitioned::{MOST_WORDS, theory};
use super::bloom::same_hash;
use super::slice_columns::{Columns, caught_up};
use crate::block::{Block, Blocks, Layout, UndoRoom};
use crate::error::{Error, Result};
use crate::kind::{
    Age, BankMask, Decision, Describe, DistinctKeys, Event, Events, GenerationFill, Inference,
    KeyAges, Kind, Micros, Moment, Operation, Parameters, PlannedPart, Query, Sample, State,
    TOO_FULL, Within,
};
use crate::kinds::memory_limit::MAX_MEMORY;
use crate::state::STATE_WORDS;
use fills::Measure;
use generations::{Opening, last_generation};
use plan::{Aim, Plan};
use std::sync::Arc;

/// The kind's name.
pub const NAME: &str = "time-limited";

/// The parameters of this kind.
const KNOWN: [&str; 9] = ["window", "fpr", "rate", MAX_MEMORY, "k", "l", "columns", "aim", "load"];

/// A time-limited filter.
#[derive(Debug, Clone, PartialEq)]
struct TimeLimited {
    plan: Plan,
    slices: Columns,
}

/// Builds the kind from `window` (microseconds) and `fpr` (0.001 if absent), and `rate`, the
/// expected inserts a second, which sizes the first bank, and `max-memory`, the bytes that its
/// memory may have. `aim` is the moment at which the rate
/// holds, `worst` (the default) or `steady`. `k`, `l`, `columns` and `load` override what would be
/// derived from these.
///
/// # Errors
/// [`Error::Parameter`] for unknown names, and for values out of bounds or that do not fit each
/// other.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    let plan = Plan::of(parameters)?;
    if bank_sizes::first_words(&plan) > MOST_WORDS {
        let most = format!("a rate that {MOST_WORDS} words (8 TiB) can hold");
        return Err(Error::parameter("rate", most, plan.rate.unwrap_or(0.0)));
    }
    Ok(Arc::new(TimeLimited::new(plan)))
}

impl TimeLimited {
    fn new(plan: Plan) -> Self {
        let slices = Columns::new(plan.k, plan.columns, plan.columns);
        Self { plan, slices }
    }

    /// Returns the block that an insert writes, and the first generation of its bank; none if that
    /// has closed since.
    fn written<'b, 'a>(
        &self,
        state: &State<'_>,
        blocks: &'b Blocks<'a>,
        operation: &Operation,
    ) -> Option<(&'b Block<'a>, u64)> {
        let bank = state.bank_of_step(operation.step)?;
        Some((blocks.get(bank.slot)?, bank.since))
    }

    /// Returns the youngest generation that contains the key and ended less than `age` before
    /// `now`, or has not ended.
    fn youngest(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        age: Micros,
    ) -> Option<u64> {
        let oldest = self.plan.generations(state).first_since(query.now, age);
        let found = state.banks().filter_map(|bank| {
            let block = blocks.get(bank.slot)?;
            let oldest = oldest.max(bank.since);
            // Nothing alive has been written: this saves the misses.
            if caught_up(block) < oldest {
                return None;
            }
            let (runs, newest) = self.slices.runs(block, oldest, query.hash);
            let age = u64::from(runs.leading_zeros());
            (runs != 0 && age <= newest - oldest).then(|| newest - age)
        });
        found.max()
    }

    /// Returns the rate at a moment, in a first bank of this layout.
    fn rate(&self, layout: Layout, aim: Aim) -> f64 {
        let Plan { k, l, columns, .. } = self.plan;
        let geometry = layout.geometry(self.first_words());
        let keys = bank_sizes::capacity(&self.plan, layout, geometry);
        let load = f64::from(k) * keys / self.plan.rows(layout.words(geometry)) as f64;
        let block_keys = keys / layout.blocks(geometry) as f64;
        let alive = match aim {
            Aim::Worst => columns - k,
            Aim::Steady => l,
        };
        let of_rows = aim.rate((k, l, columns), load, block_keys);
        (of_rows + same_hash(keys * f64::from(alive + 1))).min(1.0)
    }

    /// Returns the sum of new bits at which the allowance of the open generation is used.
    fn full(&self, state: &State<'_>, layout: Layout) -> u64 {
        let generations = self.plan.generations(state);
        let Some(bank) = state.bank_of_step(generations.current()) else {
            return u64::MAX;
        };
        let words = layout.words(bank.geometry);
        let part = if generations.hurried(bank.since) { bank_sizes::HURRIED } else { 1.0 };
        let allowance = Measure::new(&generations, self.plan.k, bank.since, self.plan.rows(words))
            .new_bits(part * bank_sizes::capacity(&self.plan, layout, bank.geometry));
        generations.new_bits().saturating_add(allowance.max(1))
    }
}

impl Describe for TimeLimited {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        let mut all = Parameters::new()
            .with("window", self.plan.window)
            .with("fpr", self.plan.fpr)
            .with("k", self.plan.k)
            .with("l", self.plan.l)
            .with("columns", self.plan.columns)
            .with("aim", self.plan.aim.name())
            .with("load", self.plan.load);
        if let Some(rate) = self.plan.rate {
            all.set("rate", rate);
        }
        if let Some(most) = self.plan.memory.most {
            all.set(MAX_MEMORY, most);
        }
        all
    }

    fn uses_time(&self) -> bool {
        true
    }

    fn max_memory(&self) -> Option<u64> {
        self.plan.memory.most
    }

    fn least_max_memory(&self, layout: Layout) -> u64 {
        self.plan.memory.least(layout, self, layout.geometry(bank_sizes::least_words(&self.plan)))
    }

    fn undo_room(&self) -> UndoRoom {
        UndoRoom::None
    }

    fn first_words(&self) -> u64 {
        bank_sizes::first_words(&self.plan)
    }

    fn default_stripes(&self, block_words: u32) -> u32 {
        (self.first_words() / u64::from(block_words.max(1))).clamp(16, 64) as u32
    }

    fn step(&self, state: &State<'_>, _: &Moment) -> Option<u64> {
        Some(self.plan.generations(state).current())
    }

    /// Returns the rate at the moment for which the filter is planned: when all generations of the
    /// first bank have used their allowance and all columns are alive, or the mean of a steady
    /// stream.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        self.rate(layout, self.plan.aim)
    }

    /// A burst may exceed the rate of a steady stream.
    fn is_saturated(&self, _: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> bool {
        sample.fpr() > TOO_FULL * self.rate(layout, Aim::Worst).max(self.plan.fpr)
    }

    /// Returns the rate of a steady stream, and that of the worst moment in the same memory.
    fn planned_parts(&self, layout: Layout) -> Vec<PlannedPart> {
        let bits = layout.words(layout.geometry(self.first_words())) as f64 * 64.0;
        let part =
            |name, aim| PlannedPart { name, bits, keeps: "fpr", rate: self.rate(layout, aim) };
        vec![part("steady stream", Aim::Steady), part("worst moment", Aim::Worst)]
    }

    /// Measured, not derived from the keys of generations, because late keys go to closed ones.
    fn estimated_fpr(&self, _: &State<'_>, _: Layout, _: &Moment, sample: &Sample) -> f64 {
        sample.fpr()
    }

    /// The slices of all generations that are alive; those of other banks have no cells here.
    fn generation_fills(
        &self,
        state: &State<'_>,
        slot: usize,
        block: &Block<'_>,
        moment: &Moment,
    ) -> Vec<GenerationFill> {
        let Some(bank) = state.bank(slot) else { return Vec::new() };
        let generations = self.plan.generations(state);
        let current = generations.current();
        let last = last_generation(state, &bank).min(current);
        let slices: Vec<_> = self.slices.set_by_age(block, last).collect();
        let alive = generations.first_since(moment.now, self.plan.window)..=current;
        let fill = |generation: u64| {
            let age = last.checked_sub(generation).filter(|_| generation >= bank.since);
            let slice = age.and_then(|age| slices.get(usize::try_from(age).ok()?));
            let (used, cells) = slice.copied().unwrap_or_default();
            let began = Age::micros(moment.now.saturating_sub(generations.opened(generation)));
            GenerationFill { began, used, cells }
        };
        alive.rev().map(fill).collect()
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(self)
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

impl Kind for TimeLimited {
    fn state_words(&self) -> usize {
        STATE_WORDS
    }

    fn start(&self, state: &State<'_>, layout: Layout) {
        let geometry = layout.geometry(self.first_words());
        state.apply_banks(&Event::OpenBank { id: state.next_bank(), geometry, since: 0, time: 0 });
        let generations = self.plan.generations(state);
        generations.start();
        generations.set_full(self.full(state, layout));
    }

    fn changes_banks(&self) -> bool {
        true
    }

    fn prefetch(&self, blocks: &Blocks<'_>, hash: u64) {
        for (_, block) in blocks.iter() {
            self.slices.prefetch(block, hash);
        }
    }

    /// A late key goes to the generation of its own time, while that is alive (the key may then be
    /// older than the window by a span) and has room ([`Kind::step_of_late`]). If none was open at
    /// that time, in a silence or before the first insert, the next one takes the key if it is
    /// inside the window, and keeps it slightly longer.
    fn decide(&self, state: &State<'_>, moment: &Moment) -> Decision {
        let generations = self.plan.generations(state);
        if moment.time >= moment.now {
            return Decision::Insert { step: generations.current() };
        }
        let (found, current) = (generations.first_since(moment.time, 0), generations.current());
        let step = found.min(current);
        // The open generation may have ended before that time: the filter's time also continues
        // without inserts. The event that is due then opens the one that takes the key.
        let is_its_own = found <= current && generations.opened(step) <= moment.time;
        let end = if is_its_own { generations.end(step) } else { moment.time };
        if end.saturating_add(self.plan.window) > moment.now {
            Decision::Insert { step }
        } else {
            Decision::TooLate
        }
    }

    fn touches(&self, state: &State<'_>, step: u64) -> BankMask {
        state.bank_of_step(step).map_or(0, |bank| 1 << bank.slot)
    }

    fn step_of_late(&self, state: &State<'_>, blocks: &Blocks<'_>, hash: u64, step: u64) -> u64 {
        late::step(&self.plan, &self.slices, state, blocks, hash, step)
    }

    /// Returns the newly set bits.
    fn new_bits(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32 {
        self.written(state, blocks, operation)
            .map_or(0, |(block, _)| self.slices.new_bits(block, operation.step, operation.hash))
    }

    fn insert(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) {
        if let Some((block, since)) = self.written(state, blocks, operation) {
            self.slices.insert(block, since, operation.step, operation.hash);
        }
    }

    fn contains(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> bool {
        self.youngest(state, blocks, query, self.plan.window).is_some()
    }

    fn settle(&self, state: &State<'_>, slot: usize, block: &Block<'_>, _: &Moment) {
        let Some(bank) = state.bank(slot) else { return };
        let last = last_generation(state, &bank).min(self.plan.generations(state).current());
        self.slices.catch_up(block, bank.since, last);
    }

    /// Returns the rate of runs of ones in slices of generations that are alive.
    fn block_fpr(&self, state: &State<'_>, slot: usize, block: &Block<'_>, moment: &Moment) -> f64 {
        let Some(bank) = state.bank(slot) else { return 0.0 };
        let generations = self.plan.generations(state);
        let last = last_generation(state, &bank).min(generations.current());
        let oldest = generations.first_since(moment.now, self.plan.window).max(bank.since);
        if oldest > last {
            return 0.0;
        }
        // A run of an alive generation has no slices older than those of `oldest`.
        let alive =
            (last - oldest).saturating_add(self.plan.k.into()).min(self.plan.columns.into());
        theory::fpr_run(self.slices.fills(block, last).take(alive as usize), self.plan.k)
    }
}

impl Events for TimeLimited {
    fn due(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> Option<Event> {
        bank_sizes::due(&self.plan, state, layout, moment)
    }

    fn apply(&self, state: &State<'_>, layout: Layout, event: &Event) {
        let generations = self.plan.generations(state);
        match *event {
            Event::Step { step, time, word } if step > generations.current() => {
                let bank = state.bank_of_step(generations.current());
                let keys_before = bank.map_or(0, |bank| {
                    let rows = self.plan.rows(layout.words(bank.geometry));
                    Measure::new(&generations, self.plan.k, bank.since, rows)
                        .keys(word.saturating_sub(generations.new_bits()))
                });
                let opening = Opening { generation: step, time, new_bits: word, keys_before };
                generations.open(&opening, self.plan.window);
                generations.set_full(self.full(state, layout));
            }
            Event::OpenBank { since, time, .. } => generations.begin_bank(since, time),
            Event::Step { .. } | Event::CloseBank { .. } => {}
        }
    }

    fn grace(&self) -> Micros {
        self.plan.grace
    }
}

impl KeyAges for TimeLimited {
    fn age(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age> {
        let generation = self.youngest(state, blocks, query, self.plan.window)?;
        let generations = self.plan.generations(state);
        // A block may be a generation ahead of the state that a query has read, which is then open.
        let end = if generation > generations.current() {
            query.now
        } else {
            generations.end(generation)
        };
        Some(Age::micros(query.now.saturating_sub(end)))
    }

    fn contains_within(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool {
        let age = match within {
            Within::Items(_) => self.plan.window,
            Within::Time(_) => within.width().min(self.plan.window),
        };
        within.width() > 0 && self.youngest(state, blocks, query, age).is_some()
    }
}
