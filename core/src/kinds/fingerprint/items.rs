//! Windows of the last `N` inserts: generations of a number of inserts, in one bank.

use super::plan::{BLOCK_WORDS, Design, NAME, OLD_MOVES, live_keys, stripes_for};
use super::table::{Found, METRICS, Table};
use super::theory;
use super::word::Word;
use crate::block::{Block, Blocks, Geometry, Layout, UndoRoom};
use crate::kind::{
    Age, CountedGenerations, Describe, DistinctKeys, Events, GenerationFill, Inference, KeyAges,
    KindMetric, Moment, Operation, Parameters, Query, Sample, SingleBlock, State, TOO_FULL, Totals,
    Within,
};

/// A fingerprint filter for a number of inserts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Items<W> {
    pub(super) window: u64,
    fpr: f64,
    design: Design,
    /// The live keys just before a shift, if all were distinct.
    keys: f64,
    /// Words of cells, if they do not follow from the keys.
    words: Option<u64>,
    pub(super) generations: CountedGenerations,
    pub(super) table: Table<W, false>,
}

impl<W: Word> Items<W> {
    pub(super) fn new(window: u64, fpr: f64, design: Design, words: Option<u64>) -> Self {
        let shape = design.shape;
        let generations = CountedGenerations { length: window.div_ceil(shape.generations.into()) };
        // Cells that are given may be too few for a window, and shorter chains do not reach the
        // planned load.
        let has_room = words.is_none() && design.moves >= OLD_MOVES;
        let table = Table::new(shape, design.moves).closing_blocks(has_room);
        let keys = live_keys(shape, window) as f64;
        Self { window, fpr, design, keys, words, generations, table }
    }

    /// Returns the share of slots that are live just before a shift, if all keys were distinct.
    fn planned_load(&self, layout: Layout) -> f64 {
        let slots = self.design.slots(layout, self.geometry(layout));
        (self.keys / slots as f64).min(1.0)
    }

    /// Returns the known inserts into the open generation; 0 if the state is behind `generation`.
    pub(super) fn inserts_in(&self, state: &State<'_>, generation: u64, totals: &Totals) -> u64 {
        if CountedGenerations::current(state) < generation {
            return 0;
        }
        CountedGenerations::open_inserts(state, totals)
    }

    #[inline]
    fn find(&self, state: &State<'_>, blocks: &Blocks<'_>, hash: u64) -> Option<Found> {
        let found = self.table.find(blocks.get(0)?, CountedGenerations::current(state), hash);
        (found.left() > 0).then_some(found)
    }
}

impl<W: Word> Describe for Items<W> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> Parameters {
        let mut all = self.design.parameters(self.fpr).with("window-items", self.window);
        if let Some(words) = self.words {
            all.set("words", words);
        }
        all
    }

    fn undo_room(&self) -> UndoRoom {
        Table::<W, false>::undo_room()
    }

    fn first_words(&self) -> u64 {
        self.words.unwrap_or_else(|| self.design.words(self.keys))
    }

    /// Returns the smallest geometry whose blocks hardly ever overflow.
    fn geometry(&self, layout: Layout) -> Geometry {
        match self.words {
            Some(words) => self.design.geometry_of(layout, words),
            None => self.design.geometry(layout, self.keys),
        }
    }

    fn default_block_words(&self) -> u32 {
        BLOCK_WORDS
    }

    fn default_stripes(&self, _: u32) -> u32 {
        stripes_for(self.first_words(), self.undo_room())
    }

    fn step(&self, state: &State<'_>, _: &Moment) -> Option<u64> {
        Some(CountedGenerations::current(state))
    }

    /// Live slots; a closed bucket counts as full.
    fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        self.table.fill(block)
    }

    fn generation_fills(
        &self,
        state: &State<'_>,
        _: usize,
        block: &Block<'_>,
        moment: &Moment,
    ) -> Vec<GenerationFill> {
        let cells = self.table.slots(block);
        let began = |age| self.generations.began(state, &moment.totals, age);
        let fill = |(used, age)| GenerationFill { began: began(age), used, cells };
        self.table.used_by_age(block).into_iter().zip(0..).map(fill).collect()
    }

    fn metrics(&self) -> &'static [KindMetric] {
        METRICS
    }

    /// Returns the rate just before a shift, when it is highest: 1 in so few words that blocks
    /// overflow.
    fn planned_fpr(&self, layout: Layout) -> f64 {
        let (shape, geometry) = (self.design.shape, self.geometry(layout));
        if self.words.is_some() && self.keys > self.design.capacity(layout, geometry) {
            return 1.0;
        }
        theory::fpr(shape.slots, shape.bits, self.planned_load(layout), 0.0)
            + theory::same_hash(self.keys)
    }

    fn estimated_fpr(&self, _: &State<'_>, _: Layout, _: &Moment, sample: &Sample) -> f64 {
        sample.fpr()
    }

    /// Also where blocks overflow although the rate is still low: from there it rises fast.
    fn is_saturated(&self, _: &State<'_>, layout: Layout, _: &Moment, sample: &Sample) -> bool {
        let shape = self.design.shape;
        let full = theory::highest_load(shape.slots, shape.bits, f64::INFINITY);
        sample.fill() > full || sample.fpr() > TOO_FULL * self.planned_fpr(layout)
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

impl<W: Word> SingleBlock for Items<W> {
    #[inline]
    fn prefetch(&self, block: &Block<'_>, hash: u64) {
        self.table.prefetch(block, hash);
    }

    fn prefetch_further(&self, block: &Block<'_>, hash: u64) {
        self.table.prefetch_moves(block, hash);
    }

    #[inline]
    fn insert(&self, block: &Block<'_>, operation: &Operation) {
        self.table.insert(block, operation.step, operation.hash);
    }

    fn checks_on_insert(&self) -> bool {
        true
    }

    #[inline]
    fn insert_and_check(&self, block: &Block<'_>, operation: &Operation, _: u32) -> bool {
        self.table.insert(block, operation.step, operation.hash)
    }

    #[inline]
    fn contains(&self, state: &State<'_>, block: &Block<'_>, query: &Query) -> bool {
        self.table.contains(block, CountedGenerations::current(state), query.hash)
    }

    fn settle(&self, state: &State<'_>, block: &Block<'_>, _: &Moment) {
        self.table.catch_up(block, CountedGenerations::current(state));
    }

    fn block_fpr(&self, block: &Block<'_>) -> f64 {
        self.table.fpr(block)
    }
}

impl<W: Word> KeyAges for Items<W> {
    /// Exact to the generation; of a key in a closed bucket, or whose slot another key renewed, a
    /// lower bound.
    fn age(&self, state: &State<'_>, blocks: &Blocks<'_>, query: &Query) -> Option<Age> {
        let found = self.find(state, blocks, query.hash)?;
        let Some(closed) = self.table.life().saturating_sub(found.left()).checked_sub(1) else {
            return Some(Age::Items(0));
        };
        let open = self.inserts_in(state, found.generation, &query.totals);
        let closed = u64::from(closed).saturating_mul(self.generations.length);
        Some(Age::Items(open.saturating_add(closed)))
    }

    /// No key of the last `items` inserts is missed, and keys of older generations are absent. The
    /// filter has no times: [`Within::Time`] covers the whole window.
    fn contains_within(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        within: Within,
    ) -> bool {
        let Some(found) = self.find(state, blocks, query.hash) else {
            return false;
        };
        let items = match within {
            _ if within.width() == 0 => return false,
            Within::Time(_) => return true,
            Within::Items(items) => items,
        };
        // A key of generation age i >= 1 lies behind the open generation's inserts and i-1 full
        // ones.
        let open = self.inserts_in(state, found.generation, &query.totals);
        let oldest = match (items - 1).checked_sub(open) {
            None => 0,
            Some(beyond) => 1 + beyond / self.generations.length,
        };
        u64::from(self.table.life().saturating_sub(found.left())) <= oldest
    }
}
