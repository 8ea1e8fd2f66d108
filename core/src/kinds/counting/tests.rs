//! Claims about the counting Bloom filter.

use super::*;
use crate::conformance::{self, Harness, Model, Step, hash_of};
use crate::kind::{MOST_COUNT, Micros, Within};
use crate::kinds::bloom::Chain;
use proptest::prelude::*;

fn counting(parameters: &[(&str, &str)]) -> Arc<dyn Kind> {
    let parameters =
        parameters.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value));
    build(&parameters).expect("a sound filter")
}

const ONE_BLOCK: Layout = Layout { stripes: 1, block_words: 2048 };

/// The textbook algorithm: an array of counters.
struct Naive {
    counters: Vec<u64>,
    most: u64,
    k: u32,
}

impl Naive {
    fn cells(&self, hash: u64) -> Vec<usize> {
        let positions = Positions::new(hash, self.counters.len() as u32);
        (0..self.k).map(|function| positions.get(function)).collect()
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_weighing(hash, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, _: Micros, weight: u32) {
        for cell in self.cells(hash) {
            self.counters[cell] = (self.counters[cell] + u64::from(weight)).min(self.most);
        }
    }

    fn remove(&mut self, hash: u64, weight: u32) -> bool {
        let there = self.estimate(hash, 0).expect("it counts").holds(weight.into());
        for cell in self.cells(hash).into_iter().filter(|_| there) {
            if self.counters[cell] < self.most {
                self.counters[cell] = self.counters[cell].saturating_sub(weight.into());
            }
        }
        there
    }

    fn contains(&self, hash: u64, now: Micros) -> bool {
        self.estimate(hash, now).expect("it counts").count > 0.0
    }

    fn estimate(&self, hash: u64, _: Micros) -> Option<Estimate> {
        let least = self.cells(hash).into_iter().map(|cell| self.counters[cell]).min()?;
        Some(Estimate { count: least as f64, at_least: least == self.most })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_block_answers_as_an_array_of_counters(
        k in 1_u32..12,
        bits in 1_u32..=32,
        cells in prop::sample::select(vec![1_u64, 7, 100, 128]),
        steps in prop::collection::vec((0..4_u8, any::<u8>(), 1..20_u32), 1..400),
    ) {
        let parameters = Parameters::new().with("capacity", 10).with("cells", cells);
        let parameters = parameters.with("k", k).with("counter-bits", bits);
        let mut harness = Harness::new(build(&parameters).expect("a sound filter"), ONE_BLOCK);
        let mut model = Naive { counters: vec![0; cells as usize], most: (1 << bits) - 1, k };
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(what, key, weight)| match what {
                0 => Step::Insert(key, 0),
                1 => Step::InsertWeighing(key, 0, weight),
                2 => Step::Remove(key, weight % 4 + 1),
                _ => Step::Ask(key, 0, Within::Items(1)),
            })
            .collect();
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
        let saturated = model.counters.iter().filter(|&&counter| counter == model.most).count();
        prop_assert_eq!(harness.metric("saturated_cells"), saturated as u64);
        let used = model.counters.iter().filter(|&&counter| counter > 0).count();
        prop_assert_eq!(harness.sample().fill(), used as f64 / cells as f64);
    }

    #[test]
    fn what_is_inserted_and_removed_leaves_nothing(
        keys in prop::collection::vec(any::<u64>(), 1..200),
    ) {
        let kind = counting(&[("capacity", "500"), ("fpr", "0.01"), ("counter-bits", "16")]);
        let layout = Layout { stripes: 4, block_words: 64 };
        let (mut harness, empty) = (Harness::new(kind.clone(), layout), Harness::new(kind, layout));
        keys.iter().for_each(|&key| { harness.insert(hash_of(key), 0); });
        for &key in &keys {
            prop_assert!(harness.remove(hash_of(key), 1));
        }
        prop_assert_eq!(harness.settled(), empty.settled());
    }
}

#[test]
fn it_keeps_the_contract_of_all_kinds() {
    let kind = counting(&[("capacity", "1000"), ("fpr", "0.01"), ("counter-bits", "2")]);
    let layout = Layout { stripes: 4, block_words: 64 };
    conformance::lazy_is_eager(&kind, layout, 2000, 1);
    conformance::survives_torn_words(&kind, layout);
}

#[test]
fn no_key_is_ever_undercounted() {
    let kind = counting(&[("capacity", "5000"), ("fpr", "0.01"), ("counter-bits", "8")]);
    let mut harness = Harness::new(kind, Layout { stripes: 4, block_words: 512 });
    (0..5_000).for_each(|key| {
        harness.insert_weighing(hash_of(key), 0, 1 + key as u32 % 9);
    });
    for key in 0..5_000 {
        let estimate = harness.estimate(hash_of(key)).expect("it counts");
        assert!(estimate.count >= (1 + key % 9) as f64, "key {key}");
    }
}

#[test]
fn the_measured_rate_at_capacity_is_the_wanted_one_and_the_estimate_knows_it() {
    for (fpr, bits) in [("0.01", "4"), ("0.001", "8")] {
        let kind = counting(&[("capacity", "100000"), ("fpr", fpr), ("counter-bits", bits)]);
        let layout = Layout { stripes: 4, block_words: 2048 };
        let planned = kind.planned_fpr(layout);
        let mut harness = Harness::new(kind, layout);
        (0..100_000).for_each(|key| {
            harness.insert(hash_of(key), 0);
        });
        let (measured, estimated) = (harness.measured_fpr(500_000), harness.estimated_fpr());
        println!("counting {fpr}: measured {measured:.6}, estimated {estimated:.6}");
        // At least 500 false positives: six standard deviations are below 27 %.
        let tolerance = 6.0 * (estimated / 500_000.0).sqrt();
        assert!((measured - estimated).abs() < tolerance, "{measured} against {estimated}");
        assert!((planned / estimated - 1.0).abs() < 0.05, "planned {planned}");
        let wanted: f64 = fpr.parse().expect("a rate");
        assert!(estimated <= wanted * 1.02, "{estimated} wanted {wanted}");
    }
}

#[test]
fn as_many_counters_saturate_as_theory_says() {
    let (keys, cells, k, bits) = (20_000_u64, 40_000_u64, 4, 3);
    let parameters = Parameters::new().with("capacity", keys).with("cells", cells).with("k", k);
    let kind = build(&parameters.with("counter-bits", bits)).expect("a sound filter");
    let mut harness = Harness::new(kind, ONE_BLOCK);
    (0..keys).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    let expected = overflow(keys as f64, cells as f64, k, bits) * cells as f64;
    let found = harness.metric("saturated_cells") as f64;
    println!("saturated: {found}, expected {expected:.1}");
    // The tolerance is six standard deviations of a count (the blocks' spread adds less than one).
    assert!((found - expected).abs() < 6.0 * expected.sqrt(), "{found} against {expected}");
}

#[test]
fn overflow_is_what_the_literature_says_and_never_not_a_number() {
    // Summary Cache: below 1.37e-15 a counter at 4 bits and the best k (its bound, 16 and more).
    let tail = overflow(1.0, 10.0, 7, 4);
    assert!((1e-17..1.37e-14).contains(&tail), "{tail}");
    assert_eq!(overflow(0.0, 10.0, 7, 4), 0.0);
    // Far above the maximum all counters reach it, and half of them if it is the mean.
    assert_eq!(overflow(1000.0, 1.0, 1, 4), 1.0);
    assert_eq!(overflow(1e12, 1.0, 3, 1), 1.0);
    let half = overflow(65_535.0, 1.0, 1, 16);
    assert!((half - 0.5).abs() < 0.01, "{half}");
    let [at, above] = [15.0, 15.0_f64.next_up()].map(|keys| overflow(keys, 1.0, 1, 4));
    assert!((at - above).abs() < 1e-9, "both sums agree: {at}, {above}");
    for (keys, cells, bits) in [(1e12, 1.0, 1), (1e9, 1.0, 32), (1.0, 1e12, 32), (5.0, 0.0, 4)] {
        assert!((0.0..=1.0).contains(&overflow(keys, cells, 3, bits)), "{keys} {cells} {bits}");
    }
}

#[test]
fn a_key_that_was_removed_in_part_is_not_impossible() {
    let mut harness = Harness::new(counting(&[("capacity", "1000")]), ONE_BLOCK);
    harness.insert_weighing(hash_of(1), 0, 3);
    assert!(harness.remove(hash_of(1), 1));
    assert!(harness.contains(hash_of(1)));
    assert!(harness.posterior_at(hash_of(1), 0).is_some_and(|posterior| posterior > 0.0));
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    let asked = Parameters::new().with("capacity", 1000);
    conformance::parameters_round_trip(NAME, &asked);
    conformance::parameters_round_trip(NAME, &asked.clone().with("counter-bits", 1));
    conformance::parameters_round_trip(NAME, &asked.with("k", 64).with("cells", 1));
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    let sound = Parameters::new().with("capacity", 1000).with("fpr", 0.01);
    for bits in ["0", "33", "-1", "x"] {
        conformance::refuses(NAME, &sound.clone().with("counter-bits", bits), "counter-bits");
    }
    conformance::refuses(NAME, &sound.clone().with("cells", 0), "cells");
    conformance::refuses(NAME, &sound.clone().with("bits", 100), "kind");
    let kind = build(&sound).expect("a sound filter");
    for weight in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY, MOST_COUNT as f64 + 1.0] {
        assert!(kind.weight(weight).is_err(), "{weight}");
    }
    assert_eq!(kind.weight(MOST_COUNT as f64).expect("the most"), MOST_COUNT);
}

#[test]
fn plans_of_a_few_thousand_counters_keep_low_rates() {
    let cases = [(18, 1e-12), (25, 1e-12), (40, 1e-9), (18, 1e-15), (150, 1e-6), (600, 1e-3)];
    for (capacity, fpr) in cases {
        let asked = Parameters::new().with("capacity", capacity).with("fpr", fpr);
        let parameters = build(&asked).expect("a sound filter").parameters();
        let of = |name| parameters.required::<u32>(name, "").expect("completed");
        // Exactly: key after key, as the number of counters that they leave.
        let mut chain = Chain::new(of("cells").into(), of("k"));
        (0..capacity).for_each(|_| chain.add_key(1.0));
        let part = chain.rate() / fpr;
        assert!((0.97..1.0001).contains(&part), "{capacity} keys: {part} of {fpr}");
    }
}
