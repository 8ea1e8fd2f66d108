//! The kind against its naive model, for any query at any time.

use super::tests::tiny;
use super::*;
use crate::block::Geometry;
use crate::conformance::{Harness, hash_of};
use crate::hash::Positions;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::HashMap;

/// The algorithm of the papers for a filter of one block a bank: slices with bits of their own,
/// none ever recycled, each expired by the clock alone.
struct Model {
    kind: TimeLimited,
    /// Number, opened, ended.
    generations: Vec<(u64, Micros, Option<Micros>)>,
    /// First generation, words of the block.
    banks: Vec<(u64, u32)>,
    /// The bits of a slice, by bank and slice number.
    slices: HashMap<(usize, u64), Vec<bool>>,
    events: usize,
}

impl Model {
    fn new(kind: &TimeLimited, harness: &Harness) -> Self {
        let first = harness.state().bank(0).expect("the first bank");
        Self {
            kind: kind.clone(),
            generations: vec![(u64::from(kind.plan.k) - 1, 0, None)],
            banks: vec![(0, first.geometry.words_per_block)],
            slices: HashMap::new(),
            events: 0,
        }
    }

    /// Adopts the filter's decisions, after checking that they are allowed.
    fn follow(&mut self, harness: &Harness) {
        for event in &harness.events()[self.events..] {
            match *event {
                Event::Step { step, time, .. } => {
                    let open = self.generations.last_mut().expect("an open generation");
                    let (number, end) =
                        (open.0, time.min(open.1 + self.kind.plan.pace) + self.kind.plan.grace);
                    open.2 = Some(end);
                    // Closed empty, in the silence between.
                    let empty = (number + 1..step).map(|number| (number, end, Some(end)));
                    self.generations.extend(empty);
                    self.generations.push((step, time, None));
                }
                Event::OpenBank { geometry, since, .. } => {
                    self.banks.push((since, geometry.words_per_block));
                }
                Event::CloseBank { .. } => {}
            }
        }
        self.events = harness.events().len();
    }

    fn end(&self, generation: &(u64, Micros, Option<Micros>)) -> Micros {
        generation.2.unwrap_or(generation.1 + self.kind.plan.pace + self.kind.plan.grace)
    }

    /// Returns the key's bit of a slice.
    fn bit(&mut self, generation: u64, slice: u64, hash: u64) -> &mut bool {
        let bank = self.banks.iter().rposition(|&(since, _)| since <= generation).expect("a bank");
        let words = self.banks[bank].1;
        let function = (slice % u64::from(self.kind.plan.k)) as u32;
        let bits = self.slices.entry((bank, slice)).or_insert_with(|| vec![false; words as usize]);
        &mut bits[Positions::new(hash, words).get(function)]
    }

    fn insert(&mut self, hash: u64, time: Micros, now: Micros) -> Decision {
        let open = *self.generations.last().expect("an open generation");
        let ended_later = |g: &&(u64, Micros, Option<Micros>)| self.end(g) > time;
        let of_its_time = self.generations.iter().find(ended_later).copied();
        let into = if time >= now { open } else { of_its_time.unwrap_or(open) };
        // Without a generation of its own, the key's own time counts.
        let own = time >= now || into.1 <= time;
        let until = if own { self.end(&into) } else { time };
        if until + self.kind.plan.window <= now {
            return Decision::TooLate;
        }
        let into = if self.takes(into.0, open.0, hash) { into } else { open };
        for slice in into.0 + 1 - u64::from(self.kind.plan.k)..=into.0 {
            *self.bit(into.0, slice, hash) = true;
        }
        Decision::Insert { step: into.0 }
    }

    /// Returns whether a generation takes a key: the open one, one that contains it, or one whose
    /// slices are not as full as planned.
    fn takes(&mut self, generation: u64, open: u64, hash: u64) -> bool {
        let k = u64::from(self.kind.plan.k);
        let slices = generation + 1 - k..=generation;
        if generation == open || slices.clone().all(|slice| *self.bit(generation, slice, hash)) {
            return true;
        }
        let bank = self.banks.iter().rposition(|&(since, _)| since <= generation).expect("a bank");
        let (since, words_per_block) = self.banks[bank];
        let last = self.banks.get(bank + 1).map_or(open, |&(next, _)| open.min(next - 1));
        let geometry = Geometry { blocks_per_stripe: 1, words_per_block };
        let part = if last < open { bank_sizes::HURRIED } else { 1.0 };
        let each = fills::zeros_left(part * bank_sizes::keys_a_row(&self.kind.plan, geometry));
        let (mut set, mut planned) = (0, 0.0);
        for slice in slices {
            let taken = (slice.max(since)..=last.min(slice + k - 1)).count();
            let looked_at = late::WORDS.min(words_per_block as usize);
            planned += (1.0 - (0..taken).fold(1.0, |zeros, _| zeros * each)) * looked_at as f64;
            let bits = self.slices.get(&(bank, slice)).map_or(&[][..], |bits| &bits[..looked_at]);
            set += bits.iter().filter(|&&bit| bit).count();
        }
        (set as f64) < planned
    }

    /// Returns how long ago the youngest generation ended that contains the key and ended less than
    /// `age` ago.
    fn youngest(&mut self, hash: u64, now: Micros, age: Micros) -> Option<Micros> {
        let k = u64::from(self.kind.plan.k);
        let alive: Vec<_> =
            self.generations.iter().filter(|g| self.end(g) + age > now).copied().collect();
        let found = alive.into_iter().rev().find(|&(generation, ..)| {
            (generation + 1 - k..=generation).all(|slice| *self.bit(generation, slice, hash))
        })?;
        Some(now.saturating_sub(self.end(&found)))
    }
}

/// One step of a test sequence.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// Inserts the second number of keys from the first on, the third number of microseconds later.
    Insert(u16, u16, u64),
    /// Inserts the second number of keys from the first on, with times the third number of
    /// microseconds ago.
    Late(u16, u16, u64),
    /// Queries a key, the second number of microseconds later, and within the third.
    Ask(u16, u64, u64),
}

fn action() -> impl Strategy<Value = Action> {
    let pause = prop_oneof![5 => 0..3_u64, 3 => 0..30_u64, 1 => 0..400_u64];
    let key = 0..400_u16;
    prop_oneof![
        6 => (key.clone(), 1..4_u16, pause.clone()).prop_map(|(a, b, c)| Action::Insert(a, b, c)),
        1 => (key.clone(), 1..120_u16, 0..3_u64).prop_map(|(a, b, c)| Action::Insert(a, b, c)),
        2 => (key.clone(), 1..3_u16, 0..300_u64).prop_map(|(a, b, c)| Action::Late(a, b, c)),
        1 => (key.clone(), 1..200_u16, 0..300_u64).prop_map(|(a, b, c)| Action::Late(a, b, c)),
        6 => (key, pause, 0..300_u64).prop_map(|(a, b, c)| Action::Ask(a, b, c)),
    ]
}

/// Few slices, or nearly as many as there are columns, so that a generation often must stay open.
fn slice_counts() -> impl Strategy<Value = (u32, u32)> {
    let many = (1..6_u32, 0..4_u32).prop_map(|(k, spare)| (k, 64 - k - spare));
    prop_oneof![(1..6_u32, 1..12_u32), many]
}

const ONE: Layout = Layout { stripes: 1, block_words: 1 << 20 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..Default::default()
    })]

    #[test]
    fn answers_as_the_naive_algorithm_does(
        (k, l) in slice_counts(), window in 1..1200_u64, start in 0..1000_u64,
        actions in prop::collection::vec(action(), 1..400),
    ) {
        let kind = tiny(window, k, l, 0.7);
        let mut harness = Harness::new(kind.clone(), ONE);
        let mut model = Model::new(&kind, &harness);
        let mut now = start;
        harness.advance(now);
        model.follow(&harness);
        for action in actions {
            match action {
                Action::Insert(key, count, pause) => {
                    now += pause;
                    for key in key..key + count {
                        let decision = harness.insert(hash_of(key.into()), now);
                        model.follow(&harness);
                        prop_assert_eq!(decision, model.insert(hash_of(key.into()), now, now));
                    }
                }
                Action::Late(key, count, ago) => {
                    let time = now.saturating_sub(ago);
                    for key in key..key + count {
                        let decision = harness.insert(hash_of(key.into()), time);
                        model.follow(&harness);
                        prop_assert_eq!(decision, model.insert(hash_of(key.into()), time, now));
                    }
                }
                Action::Ask(key, later, age) => {
                    let (hash, then) = (hash_of(key.into()), now + later);
                    let expected = model.youngest(hash, then, window);
                    prop_assert_eq!(harness.age_at(hash, then), expected.map(Age::micros));
                    prop_assert_eq!(harness.contains_at(hash, then), expected.is_some());
                    let within = age > 0 && model.youngest(hash, then, age.min(window)).is_some();
                    let found = harness.contains_within_at(hash, then, Within::micros(age));
                    prop_assert_eq!(found, within);
                }
            }
        }
    }
}
