//! What every kind must do, told once.
//!
//! [`Harness`] drives a kind as the engine does (events before inserts, banks opened and closed by
//! events, the same order of calls), over plain memory. The claims below it take a kind and, where
//! they compare answers, a [`Model`]: the algorithm written naively from its paper over the same hash
//! positions. Models and kind-specific claims live in the tests of each kind's folder.

use super::{
    Age, Decision, Event, Kind, Micros, Moment, Operation, Parameters, Query, State, Totals,
    Within, registry,
};
use crate::cells::{Block, Blocks, Geometry, Layout, MAX_BANKS, OWN_WORDS, load, store};
use crate::error::Error;
use crate::hash::mix;
use crate::kinds::state::STATE_WORDS;
use crate::sync::AtomicU64;
use std::sync::Arc;

/// The most events that may come before one insert; more means that `due` never ends.
const EVENTS_AT_ONCE: usize = 1000;

/// The words of one bank: each block's own words, then its cells.
struct Bank {
    id: u32,
    geometry: Geometry,
    words: Vec<AtomicU64>,
}

impl Bank {
    fn stride(&self) -> usize {
        OWN_WORDS + self.geometry.words_per_block as usize
    }

    fn block(&self, index: usize) -> Block<'_> {
        let words = &self.words[index * self.stride()..(index + 1) * self.stride()];
        let (own, cells) = words.split_at(OWN_WORDS);
        Block { own, cells }
    }
}

/// A filter in memory that drives a kind as the engine does.
pub(crate) struct Harness {
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
    pub(crate) fn new(kind: Arc<dyn Kind>, layout: Layout) -> Self {
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
    pub(crate) fn insert(&mut self, hash: u64, time: Micros) -> Decision {
        self.advance(time);
        self.insert_once(hash, time)
    }

    /// Inserts a key into the current step: what an insert does that read its step just before another one's event.
    pub(crate) fn insert_once(&mut self, hash: u64, time: Micros) -> Decision {
        let moment = Moment { time, now: self.now.max(time), totals: self.totals };
        let decision = self.kind.decide(&self.state(), &moment);
        if let Decision::Insert { step } = decision {
            let operation = Operation { hash, step, time };
            let blocks = self.blocks(hash, self.kind.touches(&self.state(), step));
            let new = self.kind.novelty(&self.state(), &blocks, &operation);
            self.kind.insert(&self.state(), &blocks, &operation);
            self.totals.inserts += 1;
            self.totals.novelty += u64::from(new);
        }
        decision
    }

    /// Moves the filter's time on and applies every event that is due there.
    pub(crate) fn advance(&mut self, time: Micros) {
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
    pub(crate) fn apply(&mut self, event: Event) {
        self.state().apply_banks(&event);
        self.kind.apply(&self.state(), self.layout, &event);
        self.events.push(event);
        self.follow_bank_table();
    }

    /// Whether the key is in the window, at the filter's time.
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.contains_at(hash, self.now)
    }

    /// Whether the key is in the window, asked at a time (which moves nothing).
    pub(crate) fn contains_at(&self, hash: u64, now: Micros) -> bool {
        let blocks = self.blocks(hash, self.state().mask());
        self.kind.contains(&self.state(), &blocks, &self.query(hash, now))
    }

    /// Whether the key was seen within less than the window, at the filter's time.
    pub(crate) fn contains_within(&self, hash: u64, within: Within) -> bool {
        self.contains_within_at(hash, self.now, within)
    }

    /// Whether the key was seen within less than the window, asked at a time.
    pub(crate) fn contains_within_at(&self, hash: u64, now: Micros, within: Within) -> bool {
        let blocks = self.blocks(hash, self.state().mask());
        self.kind.contains_within(&self.state(), &blocks, &self.query(hash, now), within)
    }

    /// How long ago the key was seen, at the filter's time.
    pub(crate) fn age(&self, hash: u64) -> Option<Age> {
        self.age_at(hash, self.now)
    }

    /// How long ago the key was seen, asked at a time.
    pub(crate) fn age_at(&self, hash: u64, now: Micros) -> Option<Age> {
        let blocks = self.blocks(hash, self.state().mask());
        self.kind.age(&self.state(), &blocks, &self.query(hash, now))
    }

    /// The logical state: the filter-wide words and every block, settled in a private copy.
    pub(crate) fn settled(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.state.iter().map(load).collect();
        for (slot, bank) in self.banks.iter().enumerate() {
            let Some(bank) = bank else { continue };
            for index in 0..self.layout.blocks(bank.geometry) as usize {
                let block = bank.block(index);
                let (own, cells) = (copy(block.own), copy(block.cells));
                self.kind.settle(&self.state(), slot, &Block { own: &own, cells: &cells });
                all.extend(own.iter().chain(&cells).map(load));
            }
        }
        all
    }

    /// Settles every block in place: what touching each of them would have done.
    pub(crate) fn settle_in_place(&mut self) {
        for (slot, bank) in self.banks.iter().enumerate() {
            let Some(bank) = bank else { continue };
            for index in 0..self.layout.blocks(bank.geometry) as usize {
                self.kind.settle(&self.state(), slot, &bank.block(index));
            }
        }
    }

    /// The false-positive rate that the kind expects now.
    pub(crate) fn estimated_fpr(&self) -> f64 {
        let moment = Moment { time: self.now, now: self.now, totals: self.totals };
        self.kind.estimated_fpr(&self.state(), self.layout, &moment)
    }

    /// The share of `probes` keys, never inserted, that are taken for present.
    pub(crate) fn measured_fpr(&self, probes: u64) -> f64 {
        let hits = (0..probes).filter(|&i| self.contains(mix(!i ^ 0x5eed << 48))).count();
        hits as f64 / probes as f64
    }

    /// The filter-wide state.
    pub(crate) fn state(&self) -> State<'_> {
        State::new(&self.state)
    }

    /// The sums over the filter.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Every event so far.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// All words of cells, over all banks.
    pub(crate) fn words(&self) -> u64 {
        self.banks.iter().flatten().map(|bank| self.layout.words(bank.geometry)).sum()
    }

    /// Overwrites all blocks and the kind's filter-wide words with noise, as a torn read might see them.
    pub(crate) fn scramble(&mut self, seed: u64) {
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

    fn blocks(&self, hash: u64, mask: u8) -> Blocks<'_> {
        let mut blocks = [None; MAX_BANKS];
        for (slot, bank) in self.banks.iter().enumerate() {
            if let Some(bank) = bank.as_ref().filter(|_| mask & 1 << slot != 0) {
                blocks[slot] = Some(bank.block(self.layout.block_of(bank.geometry, hash)));
            }
        }
        Blocks::Many(blocks)
    }

    /// Allocates the banks that the table has and we have not, and drops those that ended.
    fn follow_bank_table(&mut self) {
        for slot in 0..MAX_BANKS {
            let listed = self.state().bank(slot);
            if listed.map(|bank| bank.id) == self.banks[slot].as_ref().map(|bank| bank.id) {
                continue;
            }
            self.banks[slot] = listed.map(|entry| {
                let stride = OWN_WORDS + entry.geometry.words_per_block as usize;
                let words = zeros(self.layout.blocks(entry.geometry) as usize * stride);
                Bank { id: entry.id, geometry: entry.geometry, words }
            });
        }
    }
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn copy(words: &[AtomicU64]) -> Vec<AtomicU64> {
    words.iter().map(|word| AtomicU64::new(load(word))).collect()
}

/// A kind's algorithm, written naively from its paper for one block, over the same hash positions.
pub(crate) trait Model {
    /// Inserts a key at a time.
    fn insert(&mut self, hash: u64, time: Micros);
    /// Whether the key is in the window.
    fn contains(&self, hash: u64, now: Micros) -> bool;
    /// The age that the kind promises to give.
    fn age(&self, hash: u64, now: Micros) -> Option<Age> {
        let _ = (hash, now);
        None
    }
    /// Whether the key was seen within less than the window.
    fn contains_within(&self, hash: u64, now: Micros, within: Within) -> bool {
        let _ = within;
        self.contains(hash, now)
    }
}

/// One step of a test sequence: keys are small numbers, so that they meet often.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Insert a key, so many microseconds after the step before.
    Insert(u8, u64),
    /// Ask everything about a key, so many microseconds after the latest insert.
    Ask(u8, u64, Within),
}

/// The hash of a small test key.
pub(crate) fn hash_of(key: u64) -> u64 {
    mix(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7e57)
}

/// Claim: over one block the kind answers as its model does, whatever is asked and when.
pub(crate) fn answers_as_the_model(harness: &mut Harness, model: &mut impl Model, steps: &[Step]) {
    let mut time = 0;
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Insert(key, later) => {
                time += later;
                harness.insert(hash_of(key.into()), time);
                model.insert(hash_of(key.into()), time);
            }
            Step::Ask(key, later, within) => {
                let (hash, now) = (hash_of(key.into()), time + later);
                let told = (
                    harness.contains_at(hash, now),
                    harness.age_at(hash, now),
                    harness.contains_within_at(hash, now, within),
                );
                let expected = (
                    model.contains(hash, now),
                    model.age(hash, now),
                    model.contains_within(hash, now, within),
                );
                assert_eq!(told, expected, "step {index}: {step:?} at {now}");
            }
        }
    }
}

/// Claim: blocks that catch up late and blocks that catch up at once end in the same state, and settling
/// changes no answer.
pub(crate) fn lazy_is_eager(kind: &Arc<dyn Kind>, layout: Layout, keys: u64, pause: Micros) {
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
    }
    assert!(lazy.settled() == eager.settled(), "after {keys} keys");
    assert_eq!(lazy.totals(), eager.totals());
}

/// Claim: events applied again, the latest and ones before it, change nothing.
pub(crate) fn events_apply_once(kind: &Arc<dyn Kind>, layout: Layout, keys: u64, pause: Micros) {
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
pub(crate) fn survives_torn_words(kind: &Arc<dyn Kind>, layout: Layout) {
    let mut harness = Harness::new(kind.clone(), layout);
    for seed in 0..200 {
        harness.scramble(seed);
        for key in 0..20 {
            let hash = hash_of(seed * 100 + key);
            let now = mix(key) >> (key % 64);
            let _ = harness.contains_at(hash, now);
            let _ = harness.age_at(hash, now);
            let _ = harness.contains_within_at(hash, now, Within::Items(mix(seed) >> (key % 64)));
            let _ = harness.contains_within_at(hash, now, Within::Time(mix(seed) >> (key % 64)));
            harness.insert_once(hash, now);
        }
        let _ = harness.settled();
        assert!(!harness.estimated_fpr().is_nan());
    }
}

/// Claim: the completed parameters give the same kind back.
pub(crate) fn parameters_round_trip(name: &str, asked: &Parameters) {
    let kind = registry::build(name, asked).unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    let completed = kind.parameters();
    let again =
        registry::build(name, &completed).unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    assert_eq!(again.parameters(), completed, "from {asked:?}");
    assert_eq!(format!("{again:?}"), format!("{kind:?}"), "from {asked:?}");
    assert_eq!(again.first_words(), kind.first_words());
}

/// Claim: these parameters are refused with an error about the parameter of this name.
pub(crate) fn refuses(name: &str, asked: &Parameters, about: &str) {
    match registry::build(name, asked) {
        Err(Error::Parameter { name, .. }) => assert_eq!(name, about, "from {asked:?}"),
        other => panic!("{asked:?} gave {other:?}"),
    }
}
