//! Claims about timing filters' answers; their rates and parameters are tested in the files beside
//! this one.

mod examples;
mod parameters;
mod rates;

use super::*;
use crate::atomic::AtomicU64;
use crate::block::OWN_WORDS;
use crate::conformance::{self, Harness, Model, Step, hash_of};
use crate::hash::mix;
use crate::kind::{Change, Micros};
use crate::kinds::registry;
use crate::state::STATE_WORDS;
use proptest::prelude::*;

const ONE_BLOCK: Layout = Layout { stripes: 1, block_words: 2048 };

/// Returns a filter of the kind with this batch, fully specified, with the fewest bits for this
/// padding.
fn raw(window: u64, batch: u64, padding: u64, timers: u64, k: u32) -> Arc<dyn Kind> {
    let sized = Parameters::new().with("window-items", window).with("padding", padding);
    let sized = sized.with("timers", timers).with("k", k);
    let name = if batch == 1 { NAME } else { BLOCK_NAME };
    let sized = if batch == 1 { sized } else { sized.with("block-size", batch) };
    registry::build(name, &sized).expect("a sound filter")
}

/// The paper's section 3 without its savings: each timer has the full number of the insert that
/// touched it last, and none is ever marked.
struct Naive {
    timers: Vec<Option<u64>>,
    inserts: u64,
    window: u64,
    batch: u64,
    k: u32,
}

impl Naive {
    fn new(window: u64, batch: u64, timers: u64, k: u32) -> Self {
        Self { timers: vec![None; timers as usize], inserts: 0, window, batch, k }
    }

    fn touched(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let positions = Positions::new(hash, self.timers.len() as u32);
        (0..self.k).map(move |function| positions.get(function))
    }

    /// Returns `λ_x`; none if a timer was never touched.
    fn oldest(&self, hash: u64) -> Option<u64> {
        let now = self.inserts / self.batch;
        let ages = self.touched(hash).map(|at| Some(now - self.timers[at]? / self.batch));
        ages.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns whether a batch of this age has an insert among the last `items`, by iterating over
    /// its inserts.
    fn in_window(&self, age: u64, items: u64) -> bool {
        let first = (self.inserts / self.batch - age) * self.batch;
        (first..(first + self.batch).min(self.inserts))
            .any(|number| self.inserts - 1 - number < items)
    }

    fn seen_within(&self, hash: u64, items: u64) -> bool {
        self.oldest(hash).is_some_and(|age| self.in_window(age, items.min(self.window)))
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, _: Micros) {
        self.touched(hash).for_each(|at| self.timers[at] = Some(self.inserts));
        self.inserts += 1;
    }

    fn contains(&self, hash: u64, _: Micros) -> bool {
        self.seen_within(hash, self.window)
    }

    fn age(&self, hash: u64, _: Micros) -> Option<Age> {
        let oldest = self.oldest(hash).filter(|&age| self.in_window(age, self.window))?;
        let last = ((self.inserts / self.batch - oldest + 1) * self.batch).min(self.inserts);
        Some(Age::Items(self.inserts - last))
    }

    fn contains_within(&self, hash: u64, _: Micros, within: Within) -> bool {
        match within {
            Within::Items(items) => self.seen_within(hash, items),
            Within::Time(_) => self.contains(hash, 0),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let within = prop_oneof![
        4 => (0..90_u64).prop_map(Within::Items),
        1 => Just(Within::Items(u64::MAX)),
        1 => any::<u64>().prop_map(Within::micros),
    ];
    let key = prop_oneof![0..4_u8, any::<u8>()];
    let step = prop_oneof![
        (key.clone(), 0..2_u64).prop_map(|(key, later)| Step::Insert(key, later)),
        (key, 0..2_u64, within).prop_map(|(key, later, within)| Step::Ask(key, later, within)),
    ];
    // Half of the cases use few keys only, so that hardly any timer is touched and sweeps do the
    // work.
    (any::<bool>(), prop::collection::vec(step, 1..700)).prop_map(|(few, steps)| {
        let fold = |key: u8| if few { key % 6 } else { key };
        let fewer = |step| match step {
            Step::Insert(key, later) => Step::Insert(fold(key), later),
            Step::Ask(key, later, within) => Step::Ask(fold(key), later, within),
            other => other,
        };
        steps.into_iter().map(fewer).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn one_block_answers_as_full_insert_numbers_do(
        window in prop_oneof![1..4_u64, 1..80_u64],
        batch in prop_oneof![Just(1_u64), 1..12_u64, 1..200_u64],
        padding in prop_oneof![0..3_u64, 0..100_u64],
        timers in prop_oneof![1..60_u64, 60..900_u64],
        k in 1..7_u32,
        steps in steps(),
    ) {
        let mut harness = Harness::new(raw(window, batch, padding, timers, k), ONE_BLOCK);
        let mut model = Naive::new(window, batch, timers, k);
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
    }
}

#[test]
fn timers_of_the_fewest_bits_and_no_padding_go_round_for_long_without_a_wrong_answer() {
    for (window, batch) in [(1, 1), (5, 1), (13, 1), (1, 3), (6, 3), (16, 3), (17, 3), (25, 2)] {
        let kind = raw(window, batch, 0, 200, 3);
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let mut model = Naive::new(window, batch, 200, 3);
        for number in 0..3000_u64 {
            // A hot key, and others that repeat at all distances.
            let key =
                if mix(number) & 3 > 0 { 0 } else { number - mix(!number) % 30.min(number + 1) };
            harness.insert(hash_of(key), 0);
            model.insert(hash_of(key), 0);
            for asked in [0, key, number.saturating_sub(mix(number ^ 7) % 40)] {
                let hash = hash_of(asked);
                assert_eq!(harness.age(hash), model.age(hash, 0), "{window}, {batch}: {number}");
            }
        }
    }
}

#[test]
fn the_timing_filter_knows_each_age_to_the_insert() {
    // With this number of timers no two of these keys share all of them.
    let mut harness = Harness::new(raw(1000, 1, 500, 100_000, 5), ONE_BLOCK);
    for key in 0..5000 {
        harness.insert(hash_of(key), 0);
        for since in [0, 1, 7, 500, 998, 999].into_iter().filter(|&since| since <= key) {
            let hash = hash_of(key - since);
            assert_eq!(harness.age(hash), Some(Age::Items(since)));
            assert!(harness.contains_within(hash, Within::Items(since + 1)));
            assert!(!harness.contains_within(hash, Within::Items(since)));
        }
        assert!(key < 1000 || !harness.contains(hash_of(key - 1000)), "after {key}");
    }
}

#[test]
fn no_key_of_any_window_is_missed_in_many_blocks_one_of_them_hot() {
    let layout = Layout { stripes: 4, block_words: 64 };
    for (window, batch) in [(1000, 1), (1000, 7), (999, 250), (500, 2000)] {
        let asked = Parameters::new().with("window-items", window).with("fpr", 0.01);
        let asked = if batch == 1 { asked } else { asked.with("block-size", batch) };
        let name = if batch == 1 { NAME } else { BLOCK_NAME };
        let mut harness = Harness::new(registry::build(name, &asked).expect("sound"), layout);
        let key_of = |number: u64| if mix(number) % 100 < 97 { 1 << 40 } else { number };
        let mut last = std::collections::HashMap::new();
        for number in 0..20_000_u64 {
            harness.insert(hash_of(key_of(number)), 0);
            last.insert(key_of(number), number);
            let asked = key_of(number - mix(!number) % (number + 1).min(window));
            let since = number - last[&asked];
            let hash = hash_of(asked);
            assert!(harness.contains(hash), "{window} in {batch}: {since} before {number}");
            assert!(harness.contains_within(hash, Within::Items(since + 1)));
            match harness.age(hash) {
                Some(Age::Items(age)) => assert!(age <= since, "{age} of {since}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn an_idle_block_stays_unambiguous_for_any_time() {
    let (own, cells) = (zeros(OWN_WORDS), zeros(64));
    let block = Block::alone(&own, &cells);
    let state_words = zeros(STATE_WORDS);
    let state = State::new(&state_words);
    let kind = raw(6, 2, 1, 300, 3);
    let ask = |hash, inserts| {
        let query = Query { hash, now: 0, totals: Totals { inserts, new_bits: 0 } };
        kind.contains(&state, &Blocks::One(0, block), &query)
    };
    let mut number = 0;
    for idle in [1, 2, 5, 6, 7, 8, 11, 12, 13, 50, 1 << 20, 1 << 62] {
        let before = hash_of(number);
        insert(&kind, &block, before, number);
        for later in 1..=6 {
            assert!(ask(before, number + later));
        }
        number += idle;
        assert!(!ask(before, number + 8), "asked {idle} later");
        insert(&kind, &block, hash_of(number), number);
        // The last insert of the window is in the batch of the key, or after it.
        let present = (number + 1).saturating_sub(6) / 2 <= (number - idle) / 2;
        assert_eq!(ask(before, number + 1), present, "touched {idle} later");
    }
}

#[test]
fn an_insert_with_a_number_read_before_anothers_counts_as_of_the_same_tick() {
    let (own, cells) = (zeros(OWN_WORDS), zeros(64));
    let block = Block::alone(&own, &cells);
    let state_words = zeros(STATE_WORDS);
    let state = State::new(&state_words);
    for batch in [1, 4] {
        let kind = raw(8, batch, 2, 300, 3);
        let age = |hash, inserts| {
            let query = Query { hash, now: 0, totals: Totals { inserts, new_bits: 0 } };
            kind.ages()?.age(&state, &Blocks::One(0, block), &query)
        };
        insert(&kind, &block, hash_of(1), 1005);
        insert(&kind, &block, hash_of(2), 1001);
        assert_eq!((block.own(TICK), age(hash_of(2), 1007)), (1005 / batch, age(hash_of(1), 1007)));
        // Sums that do not count the latest inserts yet.
        assert_eq!(age(hash_of(2), 1000), Some(Age::Items(0)));
        own.iter().chain(&cells).for_each(|word| crate::block::store(word, 0));
    }
}

#[test]
fn they_keep_the_contract_of_all_kinds() {
    let layout = Layout { stripes: 4, block_words: 64 };
    for kind in [raw(700, 1, 300, 20_000, 6), raw(700, 100, 3, 20_000, 6), raw(1, 50, 0, 9000, 1)] {
        conformance::lazy_is_eager(&kind, layout, 4000, 1);
        conformance::events_apply_once(&kind, layout, 2000, 1);
        conformance::survives_torn_words(&kind, layout);
    }
}

#[test]
fn a_settled_block_tells_nothing_of_when_it_was_swept() {
    // Equal last inserts, after others that have all expired.
    let kind = raw(50, 4, 1, 2000, 4);
    let settled = |pauses: bool| {
        let mut harness = Harness::new(kind.clone(), ONE_BLOCK);
        for number in 0..400 {
            harness.insert(hash_of(if number < 300 && pauses { 1 } else { number % 40 }), 0);
        }
        harness.settled()
    };
    assert!(settled(true) == settled(false));
}

fn insert(kind: &Arc<dyn Kind>, block: &Block<'_>, hash: u64, step: u64) {
    let state_words = zeros(STATE_WORDS);
    let operation = Operation { change: Change::Insert, hash, step, time: 0, weight: 1 };
    kind.insert(&State::new(&state_words), &Blocks::One(0, *block), &operation);
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}
