//! A view into a filter in memory: what a host does not see, and disturbances that it does not
//! know.

use crate::atomic::AtomicU64;
use crate::block::undo_log::{Undo, UndoRoom};
use crate::block::{Block, Blocks, Layout, OWN_WORDS, load, store};
use crate::error::Result;
use crate::event;
use crate::hash::{KeyHash, KeyHasher, mix};
use crate::identity::Identity;
use crate::inference::{AgePosterior, Belief, Distinct, Form, Piece, Survival, window_posterior};
use crate::kind::copy::BlockCopy;
use crate::kind::{
    Age, Cardinality, Change, Checked, Decision, Estimate, Event, Kind, Micros, Moment, Operation,
    Query, Request, Sample, State, Totals, Within, records,
};
use crate::machine::{Logged, Machine, write};
use crate::state::STATE_WORDS;
use crate::time::OperationTime;
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

/// A filter in memory, seen from inside.
#[derive(Debug)]
pub struct Harness {
    machine: Machine,
    /// The filter's time: also advanced without records.
    now: Micros,
    events: Vec<Event>,
    /// Where operations note what they change; empty for kinds that need no undo.
    undo: Vec<AtomicU64>,
    /// See [`Asks::is_torn`].
    is_torn: bool,
}

impl Harness {
    /// Creates a new filter of this kind.
    ///
    /// # Panics
    /// If its first bank has an absurd size.
    #[must_use]
    pub fn new(kind: Arc<dyn Kind>, layout: Layout) -> Self {
        let block = OWN_WORDS + Layout::MOST_BLOCK_WORDS as usize;
        let area = kind.undo_room().area_words(block);
        let undo = (0..area).map(|_| AtomicU64::new(0)).collect();
        let machine = Self::machine_of(kind, layout);
        Self { machine, now: 0, events: Vec::new(), undo, is_torn: false }
    }

    /// Creates a new filter of this kind without a view into it.
    pub(super) fn machine_of(kind: Arc<dyn Kind>, layout: Layout) -> Machine {
        let hasher = KeyHasher::new(KeyHash::Fast, 0);
        let identity = Identity { uuid: 4711, hasher, layout, max_lead: Micros::MAX, kind };
        Machine::new(identity).expect("a first bank of a sound size")
    }

    /// Returns the room of the kind's undo areas.
    #[must_use]
    pub fn undo_room(&self) -> UndoRoom {
        self.kind().undo_room()
    }

    fn kind(&self) -> &dyn Kind {
        self.machine.kind()
    }

    /// Inserts a key at a time; the filter's time is the latest seen.
    pub fn insert(&mut self, hash: u64, time: Micros) -> Decision {
        self.insert_weighing(hash, time, 1)
    }

    /// Inserts a key of a weight.
    pub fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) -> Decision {
        self.advance(time);
        let request = Request::insert(hash).weighing(weight.into());
        self.write(&request, time).1.map_or(Decision::TooLate, |step| Decision::Insert { step })
    }

    /// Performs a write; some operations are interrupted, undone as far as the kind asks for it,
    /// and applied again. Returns the answer and the step, if there is a record.
    fn write(&mut self, request: &Request, time: Micros) -> (Checked, Option<u64>) {
        let (time, asks) = (OperationTime { time, stream: true }, self.asks());
        let undo = Undo::new(&self.undo);
        let apply = |kind: &dyn Kind, state: &State<'_>, blocks: &Blocks<'_>, operation: &_| {
            apply(kind, state, blocks, operation, (undo, asks));
        };
        let mut log = Log::default();
        let now = (time, self.now);
        let written = write::write(
            &mut self.machine.parts,
            request,
            now,
            true,
            &mut |record| log.add(record),
            apply,
        );
        let written = written.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        (written.checked, self.read(&log))
    }

    /// Notes the events of a log, and returns the step of the operation in it.
    fn read(&mut self, log: &Log) -> Option<u64> {
        let mut step = None;
        for logged in &log.0 {
            let record = logged.decode(self.machine.position().uuid).expect("a record of its own");
            match event::from_record(&record) {
                // It tells the time only.
                Some(Event::Step { step: 0, .. }) => {}
                Some(event) => self.events.push(event),
                None => step = Some(record.step),
            }
        }
        step
    }

    /// Inserts a key into the current step, as if read just before another insert's event.
    pub fn insert_once(&mut self, hash: u64, time: Micros, weight: u32) -> Decision {
        let request = Request::insert(hash).weighing(weight.into());
        let (stamp, asks) = (OperationTime { time, stream: true }, self.asks());
        let decided = write::decide(&self.machine.parts, &request, (stamp, self.now), true);
        let (plan, _) = decided.expect("no question");
        if let Decision::Insert { step } = plan.decision {
            let change = Change::Insert;
            let operation = Operation { change, hash, step, time, weight };
            let undo = Undo::new(&self.undo);
            let apply = |kind: &dyn Kind, state: &State<'_>, blocks: &Blocks<'_>, operation: &_| {
                apply(kind, state, blocks, operation, (undo, asks));
            };
            write::emit_operation(
                &mut self.machine.parts,
                &operation,
                stamp,
                false,
                &mut |_| {},
                apply,
            );
        }
        plan.decision
    }

    /// Removes a key `weight` times; returns false, unchanged, if it is not contained that often.
    ///
    /// # Panics
    /// If the kind does not remove.
    pub fn remove(&mut self, hash: u64, weight: u32) -> bool {
        assert!(self.kind().removal().is_some(), "only kinds that remove are asked to");
        let request = Request::remove(hash, weight.into());
        self.write(&request, self.now).0 == Checked::Present
    }

    /// Returns the estimated count of a key.
    pub fn estimate(&self, hash: u64) -> Option<Estimate> {
        self.estimate_at(hash, self.now)
    }

    /// Returns the estimated count of a key at a time.
    pub fn estimate_at(&self, hash: u64, now: Micros) -> Option<Estimate> {
        self.kind().estimate(&self.state(), &self.blocks(hash), &self.query(hash, now))
    }

    /// Returns the sum of one of the kind's metrics over all blocks.
    pub fn metric(&self, name: &str) -> u64 {
        let metric = self.kind().metrics().iter().find(|metric| metric.name == name);
        self.machine.parts.sum(metric.unwrap_or_else(|| panic!("no metric {name}")).word)
    }

    /// Passes the key's block in the first bank to `look`.
    pub fn with_block<T>(&self, hash: u64, look: impl FnOnce(&Block<'_>) -> T) -> T {
        look(self.blocks(hash).get(0).expect("a bank"))
    }

    /// What all blocks tell.
    pub fn sample(&self) -> Sample {
        let (state, kind, mut sample) = (self.state(), self.kind(), Sample::default());
        self.each_settled(|slot, copied| {
            let fpr = kind.block_fpr(&state, slot, &copied.block(), &self.moment());
            sample.add(slot, kind.fill(&copied.block()), fpr);
        });
        sample
    }

    /// Advances the filter's time and applies every event that is then due.
    pub fn advance(&mut self, time: Micros) {
        self.now = self.now.max(time);
        for _ in 0..EVENTS_AT_ONCE {
            let moment = Moment { time, ..self.moment() };
            let Some(event) = self.kind().due(&self.state(), self.machine.layout(), &moment) else {
                return;
            };
            self.apply(event);
        }
        panic!("{EVENTS_AT_ONCE} events at one insert, the last {:?}", self.events.last());
    }

    /// Applies one event, as the engine does live and in replay.
    pub fn apply(&mut self, event: Event) {
        let time = OperationTime { time: self.now, stream: true };
        let emitted = write::emit_event(&mut self.machine.parts, &event, time, &mut |_| {});
        emitted.unwrap_or_else(|error| panic!("{event:?}: {error}"));
        self.events.push(event);
    }

    /// Returns whether the key is in the window at the filter's time.
    pub fn contains(&self, hash: u64) -> bool {
        self.contains_at(hash, self.now)
    }

    /// Returns whether the key is in the window at a time, without advancing the filter's time.
    pub fn contains_at(&self, hash: u64, now: Micros) -> bool {
        self.kind().contains(&self.state(), &self.blocks(hash), &self.query(hash, now))
    }

    /// Returns how many distinct keys there are at a time, if the kind knows it.
    ///
    /// # Errors
    /// As [`Machine::distinct`].
    pub fn distinct_at(&self, now: Micros, within: Option<Within>) -> Result<Cardinality> {
        self.machine.distinct(now, within, u64::MAX)
    }

    /// Returns whether the key was seen within a part of the window, at the filter's time.
    pub fn contains_within(&self, hash: u64, within: Within) -> bool {
        self.contains_within_at(hash, self.now, within)
    }

    /// Returns whether the key was seen within a part of the window, at a time.
    pub fn contains_within_at(&self, hash: u64, now: Micros, within: Within) -> bool {
        let Some(ages) = self.kind().ages() else { return self.contains_at(hash, now) };
        ages.contains_within(&self.state(), &self.blocks(hash), &self.query(hash, now), within)
    }

    /// Returns the key's age at the filter's time.
    pub fn age(&self, hash: u64) -> Option<Age> {
        self.age_at(hash, self.now)
    }

    /// Returns the key's age at a time.
    pub fn age_at(&self, hash: u64, now: Micros) -> Option<Age> {
        self.kind().ages()?.age(&self.state(), &self.blocks(hash), &self.query(hash, now))
    }

    /// Returns the evidence of the key's cells about its age at a time; empty for kinds that do not
    /// infer.
    ///
    /// Whatever the cells hold, it must be pieces of ages in order, each with a finite likelihood
    /// from 0 on.
    pub fn evidence_at(&self, hash: u64, now: Micros) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let (blocks, query) = (self.blocks(hash), self.query(hash, now));
        let Some(inference) = self.kind().inference() else { return pieces };
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
        let window = self.kind().inference()?.window(&self.totals());
        let window = window.width();
        let pieces = self.evidence_at(hash, now);
        Some(window_posterior(belief().survival, window, |tell| pieces.into_iter().for_each(tell)))
    }

    /// Returns the distribution of the key's age at a time, and the age from which on it counts as
    /// never inserted.
    pub fn ages_at(&self, hash: u64, now: Micros, belief: &Belief<'_>) -> (AgePosterior, u64) {
        let (blocks, query) = (self.blocks(hash), self.query(hash, now));
        let mut pieces = Vec::new();
        let inference = self.kind().inference().expect("a kind with posteriors");
        inference.evidence(&self.state(), &blocks, &query, belief, &mut |piece| pieces.push(piece));
        let history = inference.history_of(&self.state(), &blocks, &query);
        (AgePosterior::new(belief.survival, u64::MAX, pieces), history)
    }

    /// Returns the logical state: all filter-wide words and every block, settled in a private copy.
    pub fn settled(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.machine.parts.state_words().iter().map(load).collect();
        all.resize(STATE_WORDS, 0);
        self.each_settled(|_, copied| all.extend(copied.words().iter().map(load)));
        all
    }

    /// Visits a settled copy of every block.
    fn each_settled(&self, mut visit: impl FnMut(usize, &BlockCopy)) {
        self.machine.parts.each_block(|slot, block| {
            let copied = BlockCopy::new(self.kind(), block);
            self.kind().settle(&self.state(), slot, &copied.block(), &self.moment());
            visit(slot, &copied);
        });
    }

    fn moment(&self) -> Moment {
        Moment { time: self.now, now: self.now, totals: self.totals() }
    }

    /// Visits every block as it is, with the slot of its bank: one that is behind is not settled.
    pub fn each_block(&self, visit: impl FnMut(usize, Block<'_>)) {
        self.machine.parts.each_block(visit);
    }

    /// Settles every block in place, with the same result as touching each of them.
    pub fn settle_in_place(&mut self) {
        self.machine.parts.allocate_all();
        self.machine.parts.each_block(|slot, block| {
            self.kind().settle(&self.state(), slot, &block, &self.moment());
        });
    }

    /// Returns whether the filter is saturated.
    pub fn is_saturated(&self) -> bool {
        let (layout, sample) = (self.machine.layout(), self.sample());
        self.kind().is_saturated(&self.state(), layout, &self.moment(), &sample)
    }

    /// Returns the false-positive rate that the kind expects now.
    pub fn estimated_fpr(&self) -> f64 {
        let (layout, sample) = (self.machine.layout(), self.sample());
        self.kind().estimated_fpr(&self.state(), layout, &self.moment(), &sample)
    }

    /// Returns the share of `probes` keys, never inserted, that are reported as present.
    pub fn measured_fpr(&self, probes: u64) -> f64 {
        let hits = (0..probes).filter(|&i| self.contains(mix(!i ^ 0x5eed << 48))).count();
        hits as f64 / probes as f64
    }

    /// The filter-wide state.
    pub fn state(&self) -> State<'_> {
        self.machine.parts.state()
    }

    /// The sums over the filter.
    pub fn totals(&self) -> Totals {
        self.machine.parts.totals()
    }

    /// Every event so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns all words of cells, over all banks.
    pub fn words(&self) -> u64 {
        let layout = self.machine.layout();
        self.state().banks().map(|bank| layout.words(bank.geometry)).sum()
    }

    /// Overwrites all blocks and kind words of the state with noise, as a torn read might see them.
    pub fn scramble(&mut self, seed: u64) {
        self.is_torn = true;
        self.machine.parts.allocate_all();
        let mut at = 0;
        self.machine.parts.each_block(|_, block| {
            for word in block.own.iter().chain(block.cells) {
                store(word, mix(seed ^ at));
                at += 1;
            }
        });
        for index in 0..4 {
            self.state().set_own(index, mix(!seed ^ index as u64));
        }
    }

    fn asks(&self) -> Asks {
        Asks { inserts: self.totals().inserts, is_torn: self.is_torn }
    }

    fn query(&self, hash: u64, now: Micros) -> Query {
        Query { hash, now, totals: self.totals() }
    }

    fn blocks(&self, hash: u64) -> Blocks<'_> {
        self.machine.parts.blocks(hash)
    }
}

/// The records of one write.
#[derive(Default)]
struct Log(Vec<Logged>);

impl Log {
    fn add(&mut self, logged: Logged) {
        self.0.push(logged);
        assert!(self.0.len() <= EVENTS_AT_ONCE, "{EVENTS_AT_ONCE} events at one insert");
    }
}

/// Applies an operation; some are interrupted, undone as far as the kind asks for it, and applied
/// again.
fn apply(
    kind: &dyn Kind,
    state: &State<'_>,
    blocks: &Blocks<'_>,
    operation: &Operation,
    (undo, asks): (Undo<'_>, Asks),
) {
    let apply = |blocks: &Blocks<'_>| change(kind, state, blocks, operation, asks);
    let is_one_of = |many: u64| mix(operation.hash ^ asks.inserts).is_multiple_of(many);
    if kind.undo_room() == UndoRoom::None {
        // Rarely, because all blocks of the key are copied, not one.
        let before = is_one_of(200).then(|| all_values(blocks));
        apply(blocks);
        if let Some(before) = before {
            let after = all_values(blocks);
            leave_a_part(blocks, &before, operation.hash ^ asks.inserts);
            apply(blocks);
            assert!(all_values(blocks) == after, "{operation:?} was done again over a part of it");
        }
        return;
    }
    let mut slots = blocks.iter();
    let Some((slot, block)) = slots.next() else { return apply(blocks) };
    assert!(slots.next().is_none(), "{operation:?} touches several blocks");
    let noted = Block { undo, ..*block };
    let noted_blocks = Blocks::One(slot, noted);
    let before = is_one_of(8).then(|| values(&noted));
    undo.begin(noted.number, 0);
    apply(&noted_blocks);
    if let Some(before) = before {
        let after = values(&noted);
        undo.take_back(noted.own, noted.cells);
        // What a kind changes in parts stays.
        let in_parts = matches!(kind.undo_room(), UndoRoom::Notes(_));
        if !in_parts {
            assert_eq!(values(&noted), before, "{operation:?} was taken back");
        }
        apply(&noted_blocks);
        // A torn block may look like one that has changed in part.
        if !(in_parts && asks.is_torn) {
            assert_eq!(values(&noted), after, "{operation:?} was done again");
        }
    }
}

/// Takes the blocks back to what a death in the middle may have left, where nothing is undone: some
/// cells as they are now, the others and the kind's own words as before. (That own words are stored
/// after the cells is not checked.)
fn leave_a_part(blocks: &Blocks<'_>, before: &[Vec<u64>], seed: u64) {
    for ((_, block), before) in blocks.iter().zip(before) {
        let own = block.own.len();
        for (at, (word, &value)) in block.own.iter().chain(block.cells).zip(before).enumerate() {
            if at < own || mix(seed ^ at as u64).is_multiple_of(2) {
                store(word, value);
            }
        }
    }
}

fn all_values(blocks: &Blocks<'_>) -> Vec<Vec<u64>> {
    blocks.iter().map(|(_, block)| values(block)).collect()
}

/// How the answer of an insert is compared with a query's.
#[derive(Clone, Copy)]
struct Asks {
    /// The inserts before it.
    inserts: u64,
    /// Whether blocks hold words that no operation has written: then the answers may differ.
    is_torn: bool,
}

/// Applies an operation, every other one of an insert by the method that also answers, if the kind
/// has it: its answer must be that of a query just before.
fn change(
    kind: &dyn Kind,
    state: &State<'_>,
    blocks: &Blocks<'_>,
    operation: &Operation,
    Asks { inserts, is_torn }: Asks,
) {
    let Operation { hash, time, .. } = *operation;
    let moment = Moment { time, now: time, totals: Totals { inserts, new_bits: 0 } };
    let is_current = kind.step(state, &moment).is_none_or(|step| step == operation.step);
    let checks = kind.checks_on_insert() && operation.change == Change::Insert && is_current;
    if !checks || mix(hash).is_multiple_of(2) {
        return records::change(kind, state, blocks, operation);
    }
    let query = Query { hash, now: time, totals: moment.totals };
    let expected = kind.contains(state, blocks, &query);
    let new_bits = kind.new_bits(state, blocks, operation);
    let found = kind.insert_and_check(state, blocks, operation, new_bits);
    assert!(is_torn || found == expected, "{operation:?} was not answered as a query is");
}

fn values(block: &Block<'_>) -> Vec<u64> {
    block.own.iter().chain(block.cells).map(load).collect()
}
