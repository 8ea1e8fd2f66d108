//! The behaviour that every kind must show, specified once.
//!
//! [`Harness`] drives a kind as the engine does (events before inserts, banks opened and closed by
//! events, the same order of calls), over plain memory. The claims below it take a kind and, where
//! they compare answers, a [`Model`]: the algorithm written naively from its paper over the same
//! hash positions. Models and kind-specific claims live in the tests of each kind's folder.

use crate::atomic::AtomicU64;
use crate::block::undo_log::{Undo, area_words};
use crate::block::{Block, Blocks, Geometry, Layout, MAX_BANKS, OWN_WORDS, load, store};
use crate::error::Error;
use crate::hash::mix;
use crate::inference::{AgePosterior, Belief, Distinct, Form, Piece, Survival, window_posterior};
use crate::kind::{
    Age, Change, Decision, Estimate, Event, Kind, Micros, Moment, Operation, Parameters, Query,
    Sample, State, Totals, Within,
};
use crate::kinds::registry;
use crate::state::STATE_WORDS;
use std::sync::Arc;

/// The greatest number of events before one insert; more mean that `due` never ends.
const EVENTS_AT_ONCE: usize = 1000;

/// The belief about each key: it is one of a thousand inserts, or comes every millisecond.
fn belief() -> Belief<'static> {
    let survival = Survival::of_inserts(1e-3);
    Belief {
        probability: 1e-3,
        survival,
        distinct: &Distinct::ALL,
        form: Form::Refined,
        width: u64::MAX,
    }
}

/// The words of one bank: for each block its kind words, then its cells.
struct Bank {
    id: u32,
    geometry: Geometry,
    blocks: u64,
    words: Vec<AtomicU64>,
    undo: Vec<AtomicU64>,
}

impl Bank {
    fn stride(&self) -> usize {
        OWN_WORDS + self.geometry.words_per_block as usize
    }

    fn block(&self, index: usize) -> Block<'_> {
        let words = &self.words[index * self.stride()..(index + 1) * self.stride()];
        let (own, cells) = words.split_at(OWN_WORDS);
        let (number, of) = (index as u64, self.blocks);
        Block { own, cells, number, of, undo: Undo::new(&self.undo) }
    }
}

/// A filter in memory that drives a kind as the engine does.
pub struct Harness {
    kind: Arc<dyn Kind>,
    layout: Layout,
    state: Vec<AtomicU64>,
    banks: [Option<Bank>; MAX_BANKS],
    totals: Totals,
    now: Micros,
    events: Vec<Event>,
}

impl Harness {
    /// A new filter of this kind.
    pub fn new(kind: Arc<dyn Kind>, layout: Layout) -> Self {
        let mut harness = Self {
            kind,
            layout,
            state: zeros(STATE_WORDS),
            banks: Default::default(),
            totals: Totals::default(),
            now: 0,
            events: Vec::new(),
        };
        harness.kind.start(&State::new(&harness.state), layout);
        harness.follow_bank_table();
        harness
    }

    /// Inserts a key at a time; the filter's time is the latest seen.
    pub fn insert(&mut self, hash: u64, time: Micros) -> Decision {
        self.insert_weighing(hash, time, 1)
    }

    /// Inserts a key of a weight.
    pub fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) -> Decision {
        self.advance(time);
        self.insert_once(hash, time, weight)
    }

    /// Inserts a key into the current step, as if read just before another insert's event.
    pub fn insert_once(&mut self, hash: u64, time: Micros, weight: u32) -> Decision {
        let moment = Moment { time, now: self.now.max(time), totals: self.totals };
        let blocks = |step| self.blocks(hash, self.kind.touches(&self.state(), step));
        let mut decision = self.kind.decide(&self.state(), &moment);
        if let Decision::Insert { step } = &mut decision {
            if time < moment.now {
                *step = self.kind.step_of_late(&self.state(), &blocks(*step), hash, *step);
            }
            let step = *step;
            let operation = Operation { change: Change::Insert, hash, step, time, weight };
            let blocks = blocks(step);
            let new = self.kind.new_bits(&self.state(), &blocks, &operation);
            self.apply_operation(&blocks, &operation);
            self.totals.inserts += 1;
            self.totals.new_bits += u64::from(new);
        }
        decision
    }

    /// Removes a key `weight` times; returns false, unchanged, if it is not contained that often.
    pub fn remove(&mut self, hash: u64, weight: u32) -> bool {
        assert!(self.kind.removal().is_some(), "only kinds that remove are asked to");
        let blocks = self.blocks(hash, 1);
        let there = self.kind.estimate(&self.state(), &blocks, &self.query(hash, self.now));
        if there.is_none_or(|there| !there.holds(weight)) {
            return false;
        }
        let (change, time) = (Change::Remove, self.now);
        self.apply_operation(&blocks, &Operation { change, hash, step: 0, time, weight });
        self.totals.new_bits += 1;
        true
    }

    /// Applies an operation; some are interrupted just before their end, undone, and applied again.
    fn apply_operation(&self, blocks: &Blocks<'_>, operation: &Operation) {
        let state = self.state();
        let apply = || match operation.change {
            Change::Insert => self.kind.insert(&state, blocks, operation),
            Change::Remove => self.kind.remove(blocks, operation),
        };
        let Some(block) = blocks.get(0) else { return apply() };
        block.undo.begin(block.number, 0);
        if self.kind.idempotent() || !mix(operation.hash ^ self.totals.inserts).is_multiple_of(8) {
            return apply();
        }
        let before = [values(block.own), values(block.cells)];
        apply();
        let after = [values(block.own), values(block.cells)];
        block.undo.take_back(block.own, block.cells);
        assert_eq!([values(block.own), values(block.cells)], before, "{operation:?} was undone");
        apply();
        assert_eq!([values(block.own), values(block.cells)], after, "{operation:?} was done again");
    }

    /// Returns the estimated count of a key.
    pub fn estimate(&self, hash: u64) -> Option<Estimate> {
        self.estimate_at(hash, self.now)
    }

    /// Returns the estimated count of a key at a time.
    pub fn estimate_at(&self, hash: u64, now: Micros) -> Option<Estimate> {
        self.kind.estimate(&self.state(), &self.all_blocks(hash), &self.query(hash, now))
    }

    /// Returns the sum of one of the kind's metrics over all blocks.
    pub fn metric(&self, name: &str) -> u64 {
        let metric = self.kind.metrics().iter().find(|metric| metric.name == name);
        let word = metric.unwrap_or_else(|| panic!("no metric {name}")).word;
        let blocks = self.banks.iter().flatten();
        let blocks = blocks.flat_map(|bank| (0..bank.blocks as usize).map(|at| bank.block(at)));
        blocks.map(|block| block.own(word)).sum()
    }

    /// Passes the key's block in the first bank to `look`.
    pub fn with_block<T>(&self, hash: u64, look: impl FnOnce(&Block<'_>) -> T) -> T {
        look(self.blocks(hash, 1).get(0).expect("a bank"))
    }

    /// What all blocks tell.
    pub fn sample(&self) -> Sample {
        let (kind, state, mut sample) = (&*self.kind, self.state(), Sample::default());
        self.each_settled(|slot, block| sample.look(kind, &state, slot, block, &self.moment()));
        sample
    }

    /// Advances the filter's time and applies every event that is then due.
    pub fn advance(&mut self, time: Micros) {
        self.now = self.now.max(time);
        let moment = Moment { time, now: self.now, totals: self.totals };
        for _ in 0..EVENTS_AT_ONCE {
            let Some(event) = self.kind.due(&self.state(), self.layout, &moment) else {
                return;
            };
            self.apply(event);
        }
        panic!("{EVENTS_AT_ONCE} events at one insert, the last {:?}", self.events.last());
    }

    /// Applies one event, as the engine does live and in replay.
    pub fn apply(&mut self, event: Event) {
        self.state().apply_banks(&event);
        if let Some(events) = self.kind.events() {
            events.apply(&self.state(), self.layout, &event);
        }
        self.events.push(event);
        self.follow_bank_table();
    }

    /// Returns whether the key is in the window at the filter's time.
    pub fn contains(&self, hash: u64) -> bool {
        self.contains_at(hash, self.now)
    }

    /// Returns whether the key is in the window at a time, without advancing the filter's time.
    pub fn contains_at(&self, hash: u64, now: Micros) -> bool {
        self.kind.contains(&self.state(), &self.all_blocks(hash), &self.query(hash, now))
    }

    /// Returns whether the key was seen within a part of the window, at the filter's time.
    pub fn contains_within(&self, hash: u64, within: Within) -> bool {
        self.contains_within_at(hash, self.now, within)
    }

    /// Returns whether the key was seen within a part of the window, at a time.
    pub fn contains_within_at(&self, hash: u64, now: Micros, within: Within) -> bool {
        let Some(ages) = self.kind.ages() else { return self.contains_at(hash, now) };
        ages.contains_within(&self.state(), &self.all_blocks(hash), &self.query(hash, now), within)
    }

    /// Returns the key's age at the filter's time.
    pub fn age(&self, hash: u64) -> Option<Age> {
        self.age_at(hash, self.now)
    }

    /// Returns the key's age at a time.
    pub fn age_at(&self, hash: u64, now: Micros) -> Option<Age> {
        self.kind.ages()?.age(&self.state(), &self.all_blocks(hash), &self.query(hash, now))
    }

    /// Returns the evidence of the key's cells about its age at a time; empty for kinds that do not
    /// infer.
    ///
    /// Whatever the cells hold, it must be pieces of ages in order, each with a finite likelihood
    /// from 0 on.
    pub fn evidence_at(&self, hash: u64, now: Micros) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let (blocks, query) = (self.all_blocks(hash), self.query(hash, now));
        let Some(inference) = self.kind.inference() else { return pieces };
        inference.evidence(&self.state(), &blocks, &query, &belief(), &mut |piece| {
            let Piece { from, to, likelihood } = piece;
            assert!(from < to && pieces.last().is_none_or(|last| last.to <= from), "{piece:?}");
            assert!(likelihood >= 0.0 && likelihood.is_finite(), "{piece:?}");
            pieces.push(piece);
        });
        pieces
    }

    /// Returns the posterior of the kind's own window at a time; `None` if it does not infer.
    pub fn posterior_at(&self, hash: u64, now: Micros) -> Option<f64> {
        let window = self.kind.inference()?.window(&self.totals);
        let (Within::Items(window) | Within::Time(window)) = window;
        let pieces = self.evidence_at(hash, now);
        Some(window_posterior(belief().survival, window, |tell| pieces.into_iter().for_each(tell)))
    }

    /// Returns the distribution of the key's age at a time, and the age that no inserted key
    /// exceeds.
    pub fn ages_at(&self, hash: u64, now: Micros, belief: &Belief<'_>) -> (AgePosterior, u64) {
        let blocks = self.all_blocks(hash);
        let (query, mut pieces) = (self.query(hash, now), Vec::new());
        let inference = self.kind.inference().expect("a kind with posteriors");
        inference.evidence(&self.state(), &blocks, &query, belief, &mut |piece| pieces.push(piece));
        let history = inference.history(&self.state(), &query);
        (AgePosterior::new(belief.survival, u64::MAX, pieces), history)
    }

    /// Returns the logical state: the filter-wide words and every block, settled in a private copy.
    pub fn settled(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.state.iter().map(load).collect();
        self.each_settled(|_, block| all.extend(block.own.iter().chain(block.cells).map(load)));
        all
    }

    /// Visits a settled copy of every block.
    fn each_settled(&self, mut visit: impl FnMut(usize, &Block<'_>)) {
        self.each_block(|slot, block| {
            let (own, cells) = (copy(block.own), copy(block.cells));
            let copied = Block { own: &own, cells: &cells, ..block };
            self.kind.settle(&self.state(), slot, &copied, &self.moment());
            visit(slot, &copied);
        });
    }

    /// Visits every block, whose changes are not noted for undo.
    fn each_block(&self, mut visit: impl FnMut(usize, Block<'_>)) {
        for (slot, bank) in self.banks.iter().enumerate() {
            let Some(bank) = bank else { continue };
            for index in 0..bank.blocks as usize {
                visit(slot, Block { undo: Undo::NONE, ..bank.block(index) });
            }
        }
    }

    fn moment(&self) -> Moment {
        Moment { time: self.now, now: self.now, totals: self.totals }
    }

    /// Settles every block in place, with the same result as touching each of them.
    pub fn settle_in_place(&mut self) {
        self.each_block(|slot, block| {
            self.kind.settle(&self.state(), slot, &block, &self.moment())
        });
    }

    /// Returns the false-positive rate that the kind expects now.
    pub fn estimated_fpr(&self) -> f64 {
        self.kind.estimated_fpr(&self.state(), self.layout, &self.moment(), &self.sample())
    }

    /// Returns the share of `probes` keys, never inserted, that are reported as present.
    pub fn measured_fpr(&self, probes: u64) -> f64 {
        let hits = (0..probes).filter(|&i| self.contains(mix(!i ^ 0x5eed << 48))).count();
        hits as f64 / probes as f64
    }

    /// The filter-wide state.
    pub fn state(&self) -> State<'_> {
        State::new(&self.state)
    }

    /// The sums over the filter.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Every event so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns all words of cells, over all banks.
    pub fn words(&self) -> u64 {
        self.banks.iter().flatten().map(|bank| self.layout.words(bank.geometry)).sum()
    }

    /// Overwrites all blocks and kind words of the state with noise, as a torn read might see them.
    pub fn scramble(&mut self, seed: u64) {
        let words = self.banks.iter().flatten().flat_map(|bank| &bank.words);
        for (i, word) in words.enumerate() {
            store(word, mix(seed ^ i as u64));
        }
        for index in 0..4 {
            self.state().set_own(index, mix(!seed ^ index as u64));
        }
    }

    fn query(&self, hash: u64, now: Micros) -> Query {
        Query { hash, now, totals: self.totals }
    }

    fn all_blocks(&self, hash: u64) -> Blocks<'_> {
        self.blocks(hash, self.state().mask())
    }

    fn blocks(&self, hash: u64, mask: u8) -> Blocks<'_> {
        let mut blocks = [None; MAX_BANKS];
        for (slot, bank) in self.banks.iter().enumerate() {
            if let Some(bank) = bank.as_ref().filter(|_| mask & 1 << slot != 0) {
                blocks[slot] = Some(bank.block(self.layout.block_of(bank.geometry, hash)));
            }
        }
        Blocks::Many(blocks)
    }

    /// Allocates the banks that the table has and the harness lacks, and drops those that closed.
    fn follow_bank_table(&mut self) {
        for slot in 0..MAX_BANKS {
            let listed = self.state().bank(slot);
            if listed.map(|bank| bank.id) == self.banks[slot].as_ref().map(|bank| bank.id) {
                continue;
            }
            self.banks[slot] = listed.map(|entry| {
                let (geometry, blocks) = (entry.geometry, self.layout.blocks(entry.geometry));
                let size = geometry.words_per_block as usize;
                let words = zeros(blocks as usize * (OWN_WORDS + size));
                let undo = if self.kind.idempotent() { 0 } else { area_words(OWN_WORDS + size) };
                Bank { id: entry.id, geometry, blocks, words, undo: zeros(undo) }
            });
        }
    }
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn values(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(load).collect()
}

fn copy(words: &[AtomicU64]) -> Vec<AtomicU64> {
    words.iter().map(|word| AtomicU64::new(load(word))).collect()
}

/// A kind's algorithm, written naively from its paper for one block, over the same hash positions.
pub trait Model {
    /// Inserts a key at a time.
    fn insert(&mut self, hash: u64, time: Micros);
    /// Inserts a key of a weight.
    fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) {
        assert_eq!(weight, 1, "a model of a kind that does not weigh");
        self.insert(hash, time);
    }
    /// Removes a key, if it is contained that often.
    fn remove(&mut self, hash: u64, weight: u32) -> bool {
        panic!("a model of a kind that does not remove was asked to: {hash} {weight}");
    }
    /// Returns how often a key was inserted.
    fn estimate(&self, hash: u64, now: Micros) -> Option<Estimate> {
        let _ = (hash, now);
        None
    }
    /// Returns whether the key is in the window.
    fn contains(&self, hash: u64, now: Micros) -> bool;
    /// Returns the age that the kind guarantees to report.
    fn age(&self, hash: u64, now: Micros) -> Option<Age> {
        let _ = (hash, now);
        None
    }
    /// Returns whether the key was seen within a part of the window.
    fn contains_within(&self, hash: u64, now: Micros, within: Within) -> bool {
        let _ = within;
        self.contains(hash, now)
    }
}

/// One step of a test sequence: keys are small numbers, so that they repeat often.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Insert a key, this number of microseconds after the previous step.
    Insert(u8, u64),
    /// Insert a key of a weight, this number of microseconds after the previous step.
    InsertWeighing(u8, u64, u32),
    /// Remove a key as many times as its weight, if it is contained that often.
    Remove(u8, u32),
    /// Query everything about a key, this number of microseconds after the latest insert.
    Ask(u8, u64, Within),
}

/// Returns the hash of a small test key.
pub fn hash_of(key: u64) -> u64 {
    mix(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7e57)
}

/// Claim: over one block the kind answers every query at every time as its model does.
pub fn answers_as_the_model(harness: &mut Harness, model: &mut impl Model, steps: &[Step]) {
    let mut time = 0;
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Insert(key, later) => {
                time += later;
                harness.insert(hash_of(key.into()), time);
                model.insert(hash_of(key.into()), time);
            }
            Step::InsertWeighing(key, later, weight) => {
                time += later;
                harness.insert_weighing(hash_of(key.into()), time, weight);
                model.insert_weighing(hash_of(key.into()), time, weight);
            }
            Step::Remove(key, weight) => {
                let hash = hash_of(key.into());
                let (told, expected) = (harness.remove(hash, weight), model.remove(hash, weight));
                assert_eq!(told, expected, "step {index}: {step:?}");
            }
            Step::Ask(key, later, within) => {
                let (hash, now) = (hash_of(key.into()), time + later);
                let told = (
                    harness.contains_at(hash, now),
                    harness.age_at(hash, now),
                    harness.contains_within_at(hash, now, within),
                    harness.estimate_at(hash, now),
                );
                let expected = (
                    model.contains(hash, now),
                    model.age(hash, now),
                    model.contains_within(hash, now, within),
                    model.estimate(hash, now),
                );
                assert_eq!(told, expected, "step {index}: {step:?} at {now}");
            }
        }
    }
}

/// Claim: blocks that catch up late and blocks that catch up at once end in the same state, and
/// settling changes no answer.
pub fn lazy_is_eager(kind: &Arc<dyn Kind>, layout: Layout, keys: u64, pause: Micros) {
    let mut lazy = Harness::new(kind.clone(), layout);
    let mut eager = Harness::new(kind.clone(), layout);
    for key in 0..keys {
        lazy.insert(hash_of(key), key * pause);
        eager.insert(hash_of(key), key * pause);
        if mix(key).is_multiple_of(16) {
            eager.settle_in_place();
        }
        let asked = hash_of(key - mix(key) % (key + 1));
        assert_eq!(lazy.contains(asked), eager.contains(asked), "after key {key}");
        assert_eq!(lazy.age(asked), eager.age(asked), "after key {key}");
        assert_eq!(lazy.estimate(asked), eager.estimate(asked), "after key {key}");
        let (now, told) = (key * pause, |harness: &Harness, now| harness.evidence_at(asked, now));
        assert_eq!(told(&lazy, now), told(&eager, now), "after key {key}");
        let certain = lazy.posterior_at(asked, now);
        assert!(lazy.contains(asked) || certain.is_none_or(|p| p == 0.0), "key {key}: {certain:?}");
    }
    assert!(lazy.settled() == eager.settled(), "after {keys} keys");
    assert_eq!(lazy.totals(), eager.totals());
}

/// Claim: applying events again, the latest and earlier ones, changes nothing.
pub fn events_apply_once(kind: &Arc<dyn Kind>, layout: Layout, keys: u64, pause: Micros) {
    let mut once = Harness::new(kind.clone(), layout);
    let mut again = Harness::new(kind.clone(), layout);
    for key in 0..keys {
        once.insert(hash_of(key), key * pause);
        again.insert(hash_of(key), key * pause);
        let latest = once.events().len();
        for index in (latest.saturating_sub(2)..latest).rev() {
            again.apply(once.events()[index]);
        }
    }
    assert!(once.settled() == again.settled());
}

/// Claim: blocks of any content give an answer, and no panic.
pub fn survives_torn_words(kind: &Arc<dyn Kind>, layout: Layout) {
    let mut harness = Harness::new(kind.clone(), layout);
    for seed in 0..200 {
        harness.scramble(seed);
        for key in 0..20 {
            let hash = hash_of(seed * 100 + key);
            let now = mix(key) >> (key % 64);
            let _ = harness.contains_at(hash, now);
            let _ = harness.age_at(hash, now);
            let _ = harness.estimate_at(hash, now);
            let posterior = harness.posterior_at(hash, now).unwrap_or(0.0);
            assert!((0.0..=1.0).contains(&posterior), "{posterior}");
            if harness.kind.removal().is_some() {
                let _ = harness.remove(hash, 1);
            }
            let _ = harness.contains_within_at(hash, now, Within::Items(mix(seed) >> (key % 64)));
            let _ = harness.contains_within_at(hash, now, Within::Time(mix(seed) >> (key % 64)));
            harness.insert_once(hash, now, 1);
        }
        let _ = harness.settled();
        assert!(!harness.estimated_fpr().is_nan());
    }
}

/// Claim: the completed parameters build the same kind again.
pub fn parameters_round_trip(name: &str, asked: &Parameters) {
    let kind = registry::build(name, asked).unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    let completed = kind.parameters();
    let again =
        registry::build(name, &completed).unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    assert_eq!(again.parameters(), completed, "from {asked:?}");
    assert_eq!(format!("{again:?}"), format!("{kind:?}"), "from {asked:?}");
    assert_eq!(again.first_words(), kind.first_words());
}

/// Claim: these parameters are rejected with an error about the parameter of this name.
pub fn refuses(name: &str, asked: &Parameters, about: &str) {
    match registry::build(name, asked) {
        Err(Error::Parameter { name, .. }) => assert_eq!(name, about, "from {asked:?}"),
        other => panic!("{asked:?} gave {other:?}"),
    }
}

/// The calibration of probabilities: the mean distance, over 20 bins, between the predicted
/// probability and the observed frequency.
#[derive(Default)]
pub struct Calibration([(f64, f64, f64); 20]);

impl Calibration {
    /// Adds the predicted probability of an event, and whether it occurred.
    pub fn add(&mut self, told: f64, so: bool) {
        assert!((0.0..=1.0).contains(&told), "{told}");
        let (count, sum, times) = &mut self.0[((told * 20.0) as usize).min(19)];
        (*count, *sum, *times) = (*count + 1.0, *sum + told, *times + f64::from(u8::from(so)));
    }

    /// Returns the mean distance, each bin weighted by its number of predictions.
    pub fn error(&self) -> f64 {
        let count: f64 = self.0.iter().map(|bin| bin.0).sum();
        self.0.iter().map(|(_, sum, times)| (sum - times).abs()).sum::<f64>() / count.max(1.0)
    }
}
