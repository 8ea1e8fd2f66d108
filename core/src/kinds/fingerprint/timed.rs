//! Windows of time, at any rate of inserts: generations by the clock, in banks that follow the
//! number of keys.
//!
//! A generation is a `G`-th of the window, counted from the Unix epoch. A key belongs to the
//! generation of its own time, which its record contains, so no event opens or closes a generation.
//! Late keys need no rule of their own: their lives are shorter.
//!
//! The steps of this kind are the *intervals* between two measurements (`bank_sizes`). They tell
//! which bank takes an insert: the newest, from the interval after it opened on. A question asks
//! all banks, because a key that comes again gets a slot in the newest one, and its older slot
//! expires. A bank closes when all keys that it can hold have expired.

use super::bank_sizes::{Due, FIRST_WORDS, Pressure};
use super::plan::{Design, Designs, GROWTH, Growth, MARGIN, NAME, keys_of_rate, stripes_for};
use super::table::{Found, METRICS, Table};
use super::theory;
use super::word::Word;
use crate::block::{Block, Blocks, Geometry, Layout, UndoRoom};
use crate::kind::{
    Age, BankMask, Decision, Describe, DistinctKeys, Event, Events, GenerationFill, Inference,
    KeyAges, Kind, KindMetric, Micros, Moment, Operation, Parameters, Query, Sample, State,
    TOO_FULL, Within,
};
use crate::kinds::memory_limit::{MAX_MEMORY, Memory};
use crate::state::{LARGE_STATE_WORDS, SMALL_STATE_WORDS};

/// The least number of stripes by default.
const LEAST_STRIPES: u32 = 8;

/// A fingerprint filter for a time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timed<W> {
    pub(super) window: Micros,
    fpr: f64,
    /// The expected inserts a second, which size the first bank.
    rate: Option<f64>,
    growth: Growth,
    designs: Designs,
    /// The duration of a generation.
    pub(super) pace: Micros,
    pub(super) table: Table<W, true>,
}

impl<W: Word> Timed<W> {
    pub(super) fn new(
        window: Micros,
        fpr: f64,
        rate: Option<f64>,
        (design, growth): (Design, Growth),
        most_memory: Option<u64>,
    ) -> Self {
        let shape = design.shape;
        let burst = (growth == Growth::Keys).then(|| design.in_burst()).flatten();
        let mut table = Table::new(shape, design.moves);
        if let Some(Design { shape, .. }) = burst {
            table = table.with_bursts(shape);
        }
        let pace = window.div_ceil(shape.generations.into());
        let memory = Memory { most: most_memory, undo: Table::<W, true>::undo_room() };
        let designs = Designs { calm: design, burst, memory };
        Self { window, fpr, rate, growth, designs, pace, table }
    }

    /// Returns the live keys of a rate, just before a generation ends.
    pub(super) fn keys_of_rate(&self, a_second: f64) -> f64 {
        keys_of_rate(self.designs.calm.shape, self.window, a_second)
    }

    pub(super) fn pressure<'a>(&'a self, state: &State<'a>) -> Pressure<'a> {
        Pressure::new(state, &self.designs, (self.window, self.pace))
    }

    #[inline(always)]
    pub(super) fn generation_of(&self, time: Micros) -> u64 {
        time / self.pace
    }

    /// Returns the generation of the key's youngest slot, or that of the youngest key which a
    /// closed bucket may stand for, and whether it is a slot.
    #[inline]
    fn youngest(&self, blocks: &Blocks<'_>, query: &Query) -> Option<(u64, bool)> {
        let now = self.generation_of(query.now);
        let of_block = |block: &Block<'_>| {
            let found = self.table.find(block, now, query.hash);
            (found.left() > 0).then(|| (self.generation_in(&found), found.slot >= found.closed))
        };
        match blocks {
            Blocks::One(_, block) => of_block(block),
            _ => blocks.iter().filter_map(|(_, block)| of_block(block)).max(),
        }
    }

    /// Returns the generation of the key that was found.
    fn generation_in(&self, found: &Found) -> u64 {
        let age = self.table.life().saturating_sub(found.left());
        found.generation.saturating_sub(age.into())
    }

    /// Returns the oldest generation of which a key may be present.
    pub(super) fn oldest(&self, now: Micros) -> u64 {
        (self.generation_of(now) + 1).saturating_sub(self.table.life().into())
    }

    /// Returns the generations of the key's youngest slot and of the youngest keys for which one of
    /// its buckets is closed, in all banks.
    pub(super) fn found_in(
        &self,
        blocks: &Blocks<'_>,
        query: &Query,
    ) -> (Option<u64>, Option<u64>) {
        let (now, life) = (self.generation_of(query.now), self.table.life());
        let (mut youngest, mut closed) = (None, None);
        for (_, block) in blocks.iter() {
            let found = self.table.find(block, now, query.hash);
            let generation = |left: u32| {
                let age = life.saturating_sub(left);
                (left > 0).then(|| found.generation.saturating_sub(age.into()))
            };
            youngest = youngest.max(generation(found.slot));
            closed = closed.max(generation(found.closed));
        }
        (youngest, closed)
    }

    /// Returns the ages of the keys of a generation: the least, and the first beyond them.
    pub(super) fn ages_of(&self, generation: u64, now: Micros) -> (u64, u64) {
        let end = generation.saturating_add(1).saturating_mul(self.pace);
        let to = now.saturating_sub(generation.saturating_mul(self.pace));
        (now.saturating_add(1).saturating_sub(end), to.saturating_add(1))
    }

    /// Returns about how many slots of a generation the filter has, by those in the key's blocks.
    pub(super) fn slots_of(&self, blocks: &Blocks<'_>, generation: u64) -> f64 {
        let of_bank = |(_, block): (usize, &Block<'_>)| {
            self.table.hit_in_generation(block, generation) / self.table.hit(block)
        };
        blocks.iter().map(of_bank).sum()
    }

    /// Returns the block that an insert writes; none if its bank has closed since.
    fn written<'b, 'a>(
        &self,
        state: &State<'_>,
        blocks: &'b Blocks<'a>,
        operation: &Operation,
    ) -> Option<&'b Block<'a>> {
        blocks.get(state.bank_of_step(operation.step)?.slot)
    }
}

impl<W: Word> Describe for Timed<W> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        let mut all = self.designs.calm.parameters(self.fpr).with("window", self.window);
        if let Some(rate) = self.rate {
            all.set("rate", rate);
        }
        // Filters of older versions do not have it: their parameters stay as they are.
        if self.growth == Growth::Keys {
            all.set(GROWTH, self.growth.name());
        }
        if let Some(most) = self.designs.memory.most {
            all.set(MAX_MEMORY, most);
        }
        all
    }

    fn uses_time(&self) -> bool {
        true
    }

    fn max_memory(&self) -> Option<u64> {
        self.designs.memory.most
    }

    fn least_max_memory(&self, layout: Layout) -> u64 {
        let smallest = self.designs.calm.geometry_of(layout, FIRST_WORDS);
        self.designs.memory.least(layout, self, smallest)
    }

    fn undo_room(&self) -> UndoRoom {
        Table::<W, true>::undo_room()
    }

    fn first_words(&self) -> u64 {
        let keys = |rate| self.designs.calm.words(MARGIN * self.keys_of_rate(rate));
        self.rate.map_or(FIRST_WORDS, keys)
    }

    fn geometry(&self, layout: Layout) -> Geometry {
        match self.rate {
            Some(rate) => self.designs.calm.geometry(layout, MARGIN * self.keys_of_rate(rate)),
            None => self.designs.calm.geometry_of(layout, FIRST_WORDS),
        }
    }

    /// Returns more stripes than the first bank needs: later ones may be larger.
    fn default_stripes(&self, _: u32) -> u32 {
        stripes_for(self.first_words(), self.undo_room()).max(LEAST_STRIPES)
    }

    /// Returns the open interval.
    fn step(&self, state: &State<'_>, _: &Moment) -> Option<u64> {
        Some(self.pressure(state).current())
    }

    /// Live slots; a closed bucket counts as full.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        self.table.fill(block)
    }

    fn generation_fills(
        &self,
        _: &State<'_>,
        _: usize,
        block: &Block<'_>,
        moment: &Moment,
    ) -> Vec<GenerationFill> {
        let (cells, open) = (self.table.slots(block), moment.now % self.pace);
        let began = |age: u64| Age::micros(age.saturating_mul(self.pace).saturating_add(open));
        let fill = |(used, age)| GenerationFill { began: began(age), used, cells };
        self.table.used_by_age(block).into_iter().zip(0..).map(fill).collect()
    }

    fn metrics(&self) -> &'static [KindMetric] {
        METRICS
    }

    /// Returns the rate when the first bank holds as many keys as it is planned for.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let (shape, geometry) = (self.designs.calm.shape, self.geometry(layout));
        let slots = self.designs.calm.slots(layout, geometry);
        let keys = self.designs.calm.capacity(layout, geometry);
        let load = (keys / slots as f64).min(1.0);
        theory::fpr(shape.slots, shape.bits, load, 0.0) + theory::same_hash(keys)
    }

    fn estimated_fpr(&self, _: &State<'_>, _: Layout, _: &Moment, sample: &Sample) -> f64 {
        sample.fpr()
    }

    /// Also where the limit of memory allows no further bank: the rate then rises.
    fn is_saturated(&self, state: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> bool {
        self.pressure(state).is_lacking() || sample.fpr() > TOO_FULL * self.planned_fpr(layout)
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

impl<W: Word> Kind for Timed<W> {
    fn state_words(&self) -> usize {
        if self.designs.burst.is_some() { LARGE_STATE_WORDS } else { SMALL_STATE_WORDS }
    }

    fn start(&self, state: &State<'_>, layout: Layout) {
        let geometry = self.geometry(layout);
        state.apply_banks(&Event::OpenBank { id: state.next_bank(), geometry, since: 0, time: 0 });
        self.pressure(state).start();
    }

    fn changes_banks(&self) -> bool {
        true
    }

    fn prefetch(&self, blocks: &Blocks<'_>, hash: u64) {
        for (_, block) in blocks.iter() {
            self.table.prefetch(block, hash);
        }
    }

    fn decide(&self, state: &State<'_>, moment: &Moment) -> Decision {
        if moment.time.saturating_add(self.window) <= moment.now {
            return Decision::TooLate;
        }
        Decision::Insert { step: self.pressure(state).current() }
    }

    fn touches(&self, state: &State<'_>, step: u64) -> BankMask {
        state.bank_of_step(step).map_or(0, |bank| 1 << bank.slot)
    }

    /// Returns how full the key's block is; see `bank_sizes`.
    fn new_bits(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) -> u32 {
        let Some(block) = self.written(state, blocks, operation) else { return 0 };
        let live = self.table.live_at(block, self.generation_of(operation.time));
        Pressure::of_block(live, self.table.slots(block))
    }

    fn insert(&self, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) {
        if let Some(block) = self.written(state, blocks, operation) {
            self.table.insert(block, self.generation_of(operation.time), operation.hash);
        }
    }

    #[inline]
    fn contains(&self, _: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> bool {
        let now = self.generation_of(query.now);
        let has_key = |block: &Block<'_>| self.table.contains(block, now, query.hash);
        match blocks {
            Blocks::One(_, block) => has_key(block),
            _ => blocks.iter().any(|(_, block)| has_key(block)),
        }
    }

    fn settle(&self, _: &State<'_>, _: usize, block: &Block<'_>, moment: &Moment) {
        self.table.catch_up(block, self.generation_of(moment.now));
    }

    fn block_fpr(&self, _: &State<'_>, _: usize, block: &Block<'_>, _: &Moment) -> f64 {
        self.table.fpr(block)
    }
}

impl<W: Word> Events for Timed<W> {
    #[inline]
    fn due(&self, state: &State<'_>, layout: Layout, moment: &Moment) -> Option<Event> {
        let pressure = self.pressure(state);
        let due = pressure.due(moment.now, &moment.totals)?;
        let step = pressure.current().saturating_add(1);
        let open = |geometry| {
            let (id, since, time) = (state.next_bank(), step, moment.now);
            Event::OpenBank { id, geometry, since, time }
        };
        Some(match due {
            Due::Interval => {
                Event::Step { step, time: moment.now, word: Pressure::sums(&moment.totals) }
            }
            Due::Dead(id) => Event::CloseBank { id, time: moment.now },
            Due::Wanted { keys, in_burst } => open(self.designs.geometry(layout, keys, in_burst)),
        })
    }

    fn apply(&self, state: &State<'_>, layout: Layout, event: &Event) {
        self.pressure(state).apply(layout, event);
    }

    fn grace(&self) -> Micros {
        self.pace
    }
}

impl<W: Word> KeyAges for Timed<W> {
    /// Exact to the generation: the time since it ended.
    fn age(&self, _: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age> {
        let (generation, _) = self.youngest(blocks, query)?;
        let end = generation.saturating_add(1).saturating_mul(self.pace);
        Some(Age::micros(query.now.saturating_sub(end)))
    }

    /// No key of that time is missed, and keys of generations before it are absent.
    fn contains_within(
        &self,
        _: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool {
        let age = match within {
            Within::Items(_) => self.window,
            Within::Time(_) => within.width().min(self.window),
        };
        let oldest = self.generation_of(query.now.saturating_add(1).saturating_sub(age));
        let is_in = |(generation, _)| generation >= oldest;
        within.width() > 0 && self.youngest(blocks, query).is_some_and(is_in)
    }
}
