//! Claims about the age-partitioned filter's answers; its rates and parameters are tested in the
//! files beside this one.

mod evidence;
mod parameters;
mod rates;

use super::*;
use crate::block::OWN_WORDS;
use crate::conformance::{self, Harness, Model, Step, hash_of};
use crate::hash::Positions;
use crate::kind::Event;
use crate::kind::Micros;
use crate::state::STATE_WORDS;
use proptest::prelude::*;
use std::collections::VecDeque;

fn raw(k: u32, l: u32, generation: u64, columns: u32, words: u64) -> Arc<dyn Kind> {
    let parameters = Parameters::new()
        .with("window-items", generation * u64::from(l))
        .with("k", k)
        .with("l", l)
        .with("columns", columns)
        .with("words", words);
    build(&parameters).expect("a sound filter")
}

/// The paper's section 5, literally: a row of bit arrays that shift.
struct Naive {
    k: usize,
    l: usize,
    generation: u64,
    /// Slice 0 is the youngest; each has its own hash function for its whole life.
    slices: VecDeque<(usize, Vec<bool>)>,
    in_generation: u64,
}

impl Naive {
    fn new(k: u32, l: u32, generation: u64, rows: usize) -> Self {
        let (k, l) = (k as usize, l as usize);
        // The youngest slice of generation 0 has function 0, the one before it k-1, and so on.
        let slices = (0..k + l).map(|age| ((k - age % k) % k, vec![false; rows])).collect();
        Self { k, l, generation, slices, in_generation: 0 }
    }

    fn bit(&self, slice: usize, hash: u64) -> bool {
        let (function, bits) = &self.slices[slice];
        bits[Positions::new(hash, bits.len() as u32).get(*function as u32)]
    }

    /// Returns the youngest slice at which `k` consecutive ones begin.
    fn youngest_run(&self, hash: u64) -> Option<usize> {
        (0..=self.l).find(|&start| (start..start + self.k).all(|slice| self.bit(slice, hash)))
    }

    fn generation_age(&self, age: usize) -> u64 {
        if age == 0 { 0 } else { self.in_generation + (age as u64 - 1) * self.generation }
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, _: Micros) {
        if self.in_generation == self.generation {
            let (_, oldest) = self.slices.pop_back().expect("k + l slices");
            let function = (self.slices[0].0 + 1) % self.k;
            self.slices.push_front((function, vec![false; oldest.len()]));
            self.in_generation = 0;
        }
        self.in_generation += 1;
        for (function, bits) in self.slices.iter_mut().take(self.k) {
            let position = Positions::new(hash, bits.len() as u32).get(*function as u32);
            bits[position] = true;
        }
    }

    /// The paper's query: from slice `l`, upwards while bits are set, else `k` down.
    fn contains(&self, hash: u64, _: Micros) -> bool {
        let (mut at, mut before, mut count) = (self.l as isize, 0, 0);
        while at >= 0 {
            if self.bit(at as usize, hash) {
                (at, count) = (at + 1, count + 1);
                if before + count == self.k {
                    return true;
                }
            } else {
                (at, before, count) = (at - self.k as isize, count, 0);
            }
        }
        false
    }

    fn age(&self, hash: u64, _: Micros) -> Option<Age> {
        self.youngest_run(hash).map(|age| Age::Items(self.generation_age(age)))
    }

    fn contains_within(&self, hash: u64, now: Micros, within: Within) -> bool {
        match within {
            Within::Time(_) => self.contains(hash, now),
            Within::Items(0) => false,
            Within::Items(items) => self
                .youngest_run(hash)
                .is_some_and(|age| age == 0 || self.generation_age(age) < items),
        }
    }
}

fn any_shape() -> impl Strategy<Value = (u32, u32, u32)> {
    prop::sample::select(COLUMNS.to_vec()).prop_flat_map(|columns| {
        // Full rows, nearly full ones, and small ones all occur.
        let slices = prop_oneof![Just(columns), 2..=columns, 2..=4_u32];
        slices
            .prop_flat_map(move |n| (1..n, Just(n), Just(columns)))
            .prop_map(|(k, n, columns)| (k, n - k, columns))
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let within = prop_oneof![
        (0_u64..200).prop_map(Within::Items),
        Just(Within::Items(u64::MAX)),
        any::<u64>().prop_map(Within::micros),
    ];
    prop_oneof![
        any::<u8>().prop_map(|key| Step::Insert(key, 0)),
        (any::<u8>(), within).prop_map(|(key, within)| Step::Ask(key, 0, within)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_block_answers_as_the_papers_algorithm(
        (k, l, columns) in any_shape(),
        generation in 1_u64..6,
        steps in prop::collection::vec(any_step(), 1..600),
    ) {
        let layout = Layout { stripes: 1, block_words: 64 };
        let mut harness = Harness::new(raw(k, l, generation, columns, 64), layout);
        let mut model = Naive::new(k, l, generation, 64 * 64 / columns as usize);
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
    }
}

#[test]
fn it_keeps_the_contract_of_all_kinds() {
    let layout = Layout { stripes: 4, block_words: 64 };
    for (k, l, columns) in [(1, 1, 16), (7, 5, 16), (10, 22, 32), (12, 52, 64), (10, 25, 64)] {
        let kind = raw(k, l, 13, columns, 1000);
        conformance::lazy_is_eager(&kind, layout, 3000, 1);
        conformance::events_apply_once(&kind, layout, 500, 1);
        conformance::survives_torn_words(&kind, layout);
    }
}

#[test]
fn a_key_is_present_for_the_whole_window_and_then_gone_but_for_ghosts() {
    let window = 20_000;
    for block_words in [64, 512] {
        let kind = build(&Parameters::new().with("window-items", window)).expect("a sound filter");
        let parameters = kind.parameters();
        let number = |name| parameters.required::<u64>(name, "").expect("completed");
        let (k, l, generation) = (number("k"), number("l"), number("generation"));
        let mut harness = Harness::new(kind, Layout { stripes: 8, block_words });
        let (mut ghosts, mut asked) = (vec![0_u64; k as usize + 1], 0_u64);
        for key in 0..6 * window {
            harness.insert(hash_of(key), 0);
            // Key i has key - i inserts after it.
            let newest_out = key.saturating_sub(window);
            assert!(harness.contains(hash_of(newest_out)), "{newest_out} of {key}");
            let probe = newest_out + hash_of(key) % (key - newest_out + 1);
            assert!(harness.contains(hash_of(probe)), "{probe} of {key}");
            if key > 3 * window {
                asked += 1;
                for (expired, hits) in ghosts.iter_mut().enumerate() {
                    let age = (l + 1 + expired as u64) * generation;
                    *hits += u64::from(harness.contains(hash_of(key - age)));
                }
            }
        }
        // A key that expired e generations ago lacks e slices, each at most half full: it is found
        // by chance with at most 2^-e, in addition to the false positives (0.001) of any other key.
        // The tolerance is six deviations and the small blocks' spread (a third).
        for (expired, &hits) in ghosts.iter().enumerate() {
            let share = hits as f64 / asked as f64;
            let bound = 0.5_f64.powi(expired as i32 + 1) * 1.35 + 0.002;
            assert!(share <= bound, "{expired}: {share} above {bound}");
        }
    }
}

#[test]
fn a_shift_comes_before_the_insert_that_follows_a_full_generation() {
    let (k, l, generation) = (5, 7, 10_u64);
    let mut harness =
        Harness::new(raw(k, l, generation, 16, 2048), Layout { stripes: 1, block_words: 2048 });
    harness.insert(hash_of(0), 0);
    let last = u64::from(l + 1) * generation;
    for key in 1..last {
        harness.insert(hash_of(key), 0);
        assert!(harness.contains(hash_of(0)), "after {key} more");
    }
    assert_eq!(harness.state().own(CountedGenerations::CURRENT), u64::from(l));
    harness.insert(hash_of(last), 0);
    assert!(!harness.contains(hash_of(0)));
    assert_eq!(harness.events().len(), l as usize + 1);
    assert_eq!(
        harness.events().last(),
        Some(&Event::Step { step: u64::from(l) + 1, time: 0, word: last })
    );
}

#[test]
fn an_age_is_never_older_than_the_key_and_a_sub_window_misses_none() {
    let window = 5_000;
    let kind = build(&Parameters::new().with("window-items", window)).expect("a sound filter");
    let mut harness = Harness::new(kind, Layout { stripes: 4, block_words: 128 });
    let mut exact = 0;
    for key in 0..4 * window {
        harness.insert(hash_of(key), 0);
        let after = hash_of(key ^ 0xa9e) % window.min(key + 1);
        let hash = hash_of(key - after);
        let Some(Age::Items(age)) = harness.age(hash) else { panic!("{after} before {key}") };
        assert!(age <= after, "{age} of {after}");
        exact += u64::from(after - age < 200);
        assert!(harness.contains_within(hash, Within::Items(after + 1)), "{after} before {key}");
    }
    // Most ages are exact within two generations (97 inserts each).
    assert!(exact > 2 * window, "{exact}");
}

#[test]
fn settling_clears_what_has_been_recycled_and_nothing_else() {
    let (k, l) = (3, 5);
    let layout = Layout { stripes: 1, block_words: 64 };
    let mut harness = Harness::new(raw(k, l, 10, 16, 64), layout);
    (0..10).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    let cells = STATE_WORDS + OWN_WORDS;
    for step in 1..=u64::from(k + l) {
        harness.apply(Event::Step { step, time: 0, word: 10 * step });
        let settled = harness.settled();
        assert_eq!(settled[STATE_WORDS], step);
        // A slice made in generation -2, -1 or 0 is left, of 8 in all.
        let left: u32 = settled[cells..].iter().map(|word| word.count_ones()).sum();
        let slices = (u64::from(k + l) - step).min(3);
        assert!((9 * slices..=10 * slices).contains(&u64::from(left)), "step {step}: {left}");
        assert!((0..10).all(|key| harness.contains(hash_of(key)) == (step <= u64::from(l))));
    }
}

#[test]
fn a_sub_window_misses_no_key_when_the_block_is_ahead_of_the_filters_state() {
    let mut harness = Harness::new(raw(3, 5, 10, 16, 64), Layout { stripes: 1, block_words: 64 });
    (0..91).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    // The state as a query may have read it just before the shift.
    harness.state().set_own(CountedGenerations::CURRENT, 8);
    harness.state().set_own(CountedGenerations::BEGAN, 80);
    assert!(harness.contains_within(hash_of(89), Within::Items(2)));
    assert_eq!(harness.age(hash_of(89)), Some(Age::Items(0)));
    // The newest key is in a generation that the state does not show.
    assert!(harness.posterior_at(hash_of(90), 0).is_some_and(|posterior| posterior > 0.5));
}
