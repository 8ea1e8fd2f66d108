//! Claims about dynamic count filters.

use super::*;
use crate::conformance::{self, Harness, Model, Step, hash_of};
use crate::kind::{Micros, Within};
use proptest::prelude::*;

const ONE_BLOCK: Layout = Layout { stripes: 1, block_words: 2048 };

fn dynamic_count(cells: u64, k: u32, mean_count: f64, lambda: f64) -> Arc<dyn Kind> {
    let parameters = Parameters::new().with("capacity", 100).with("cells", cells).with("k", k);
    build(&parameters.with("mean-count", mean_count).with("lambda", lambda))
        .expect("a sound filter")
}

/// The paper's algorithm on an array of whole values: the OFV's width follows its rules, one step
/// at a time.
struct Naive {
    values: Vec<u64>,
    k: u32,
    x: u32,
    y: u32,
    lambda: f64,
    rebuilds: u64,
}

impl Naive {
    fn cells(&self, hash: u64) -> Vec<usize> {
        let positions = Positions::new(hash, self.values.len() as u32);
        (0..self.k).map(|function| positions.get(function)).collect()
    }

    fn largest_overflow(&self) -> u64 {
        self.values.iter().map(|value| value >> self.x).max().unwrap_or(0)
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_weighing(hash, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, _: Micros, weight: u32) {
        for cell in self.cells(hash) {
            self.values[cell] += u64::from(weight);
        }
        // As wide as the largest value needs, at once.
        let needed = (0..).find(|&y| self.largest_overflow() < 1 << y).expect("64 bits do");
        if needed > self.y {
            self.y = needed;
            self.rebuilds += 1;
        }
    }

    fn remove(&mut self, hash: u64, weight: u32) -> bool {
        let there = self.estimate(hash, 0).expect("it counts").holds(weight.into());
        for cell in self.cells(hash).into_iter().filter(|_| there) {
            self.values[cell] = self.values[cell].saturating_sub(weight.into());
        }
        while there && self.y > 0 {
            let base = 2.0_f64.powi((self.x + self.y) as i32 - 2);
            let threshold = (base + base * self.lambda).floor() as u64;
            if self.values.iter().any(|&value| value >= threshold) {
                break;
            }
            self.y -= 1;
            self.rebuilds += 1;
        }
        there
    }

    fn contains(&self, hash: u64, now: Micros) -> bool {
        self.estimate(hash, now).expect("it counts").count > 0.0
    }

    fn estimate(&self, hash: u64, _: Micros) -> Option<Estimate> {
        let least = self.cells(hash).into_iter().map(|cell| self.values[cell]).min()?;
        Some(Estimate { count: least as f64, at_least: false })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_block_answers_and_rebuilds_as_the_papers_algorithm(
        k in 1_u32..10,
        cells in prop::sample::select(vec![1_u64, 7, 100, 777]),
        mean_count in prop::sample::select(vec![1.0, 3.0, 4.0, 17.0]),
        lambda in prop::sample::select(vec![0.0, 0.3, 0.5, 1.0]),
        steps in prop::collection::vec((0..5_u8, any::<u8>(), 1..3000_u32), 1..300),
    ) {
        let mut harness = Harness::new(dynamic_count(cells, k, mean_count, lambda), ONE_BLOCK);
        let x = fixed_bits(mean_count);
        let values = vec![0; cells as usize];
        let mut model = Naive { values, k, x, y: 0, lambda, rebuilds: 0 };
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(what, key, weight)| match what {
                0 => Step::Insert(key, 0),
                1 => Step::InsertWeighing(key, 0, weight),
                2 | 3 => Step::Remove(key, weight),
                _ => Step::Ask(key, 0, Within::Items(1)),
            })
            .collect();
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
        prop_assert_eq!(harness.metric("rebuilds"), model.rebuilds);
        prop_assert_eq!(harness.metric("rewritten_cells"), model.rebuilds * cells);
        prop_assert_eq!(harness.metric("overflow_bits"), u64::from(model.y) * cells);
    }

    #[test]
    fn a_block_has_room_for_what_comes_and_nothing_beyond_what_it_has(
        steps in prop::collection::vec((any::<bool>(), 0..40_u64, 1..100_000_u32), 1..200),
    ) {
        let kind = dynamic_count(500, 4, 2.0, 0.5);
        let growth = kind.growth().expect("blocks start small");
        let mut harness = Harness::new(kind.clone(), ONE_BLOCK);
        for (insert, key, weight) in steps {
            let hash = hash_of(key);
            let change = if insert { Change::Insert } else { Change::Remove };
            let operation = Operation { change, hash, step: 0, time: 0, weight };
            let room = harness.with_block(hash, |block| growth.room(block, &operation));
            let changed = match change {
                Change::Insert => {
                    harness.insert_weighing(hash, 0, weight);
                    true
                }
                Change::Remove => harness.remove(hash, weight),
            };
            harness.with_block(hash, |block| {
                let used = growth.room_now(block);
                assert!(!changed || used <= room, "{used} words used, {room} were asked for");
                assert!((used..block.cells.len()).all(|word| block.word(word) == 0));
            });
        }
    }
}

#[test]
fn it_keeps_the_contract_of_all_kinds() {
    let kind = dynamic_count(20_000, 5, 2.0, 0.5);
    let layout = Layout { stripes: 4, block_words: 64 };
    conformance::lazy_is_eager(&kind, layout, 2000, 1);
    conformance::survives_torn_words(&kind, layout);
}

#[test]
fn counters_never_end_before_64_bits_and_then_say_so() {
    let mut harness = Harness::new(dynamic_count(10, 1, 1.0, 0.5), ONE_BLOCK);
    let hash = hash_of(1);
    for doublings in 0..200 {
        for _ in 0..10_000 {
            harness.insert_weighing(hash, 0, (1 << 24) - 1);
        }
        let estimate = harness.estimate(hash).expect("it counts");
        let exact = (f64::from(doublings) + 1.0) * 10_000.0 * 16_777_215.0;
        assert_eq!((estimate.count, estimate.at_least), (exact, false));
    }
}

#[test]
fn the_levels_and_thresholds_are_those_of_the_papers_figure_3() {
    // Eight counters, x = 4, λ = 0.5: 0, 2, 7, 31, 9, 28, 17, 60 have these levels.
    let levels = [0, 2, 7, 31, 9, 28, 17, 60].map(|value: u64| level(value >> 4));
    assert_eq!(levels, [0, 0, 0, 1, 0, 1, 1, 2]);
    // Level 1: one below, two above. Level 2: 60 is above.
    assert_eq!(threshold(4, 1, 0.5), 12);
    assert_eq!(threshold(4, 2, 0.5), 24);
    assert_eq!(threshold(4, 2, 1.0), 32);
    assert_eq!(threshold(4, 2, 0.0), 16);
    assert_eq!(threshold(4, 0, 0.5), 0);
    let bits = [0.5, 1.0, 2.0, 3.9, 4.0, 100.0, f64::NAN].map(fixed_bits);
    assert_eq!(bits, [1, 1, 1, 1, 2, 6, 1]);
}

#[test]
fn a_hot_key_widens_the_counters_of_its_block_only() {
    let kind = dynamic_count(100_000, 5, 2.0, 0.5);
    let layout = Layout { stripes: 1, block_words: 64 };
    let mut harness = Harness::new(kind, layout);
    (0..10_000).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    let before = harness.metric("overflow_bits");
    harness.insert_weighing(hash_of(1), 0, 1 << 20);
    let blocks = 100_000_u64.div_ceil(MOST_COUNTERS);
    let added = harness.metric("overflow_bits") - before;
    assert!(added <= 20 * 100_000_u64.div_ceil(blocks), "{added} bits were added");
    assert_eq!(harness.estimate(hash_of(1)).expect("it counts").count, f64::from((1 << 20) + 1));
}

#[test]
fn the_measured_rate_at_capacity_is_the_wanted_one_and_the_estimate_knows_it() {
    let parameters = Parameters::new().with("capacity", 100_000).with("fpr", 0.01);
    let kind = build(&parameters).expect("a sound filter");
    let planned = kind.planned_fpr(ONE_BLOCK);
    let mut harness = Harness::new(kind, ONE_BLOCK);
    (0..100_000).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    let (measured, estimated) = (harness.measured_fpr(500_000), harness.estimated_fpr());
    println!("dynamic-count: measured {measured:.6}, estimated {estimated:.6}");
    // 5,000 false positives: six standard deviations are 8.5 %.
    assert!((measured / estimated - 1.0).abs() < 0.085, "{measured} against {estimated}");
    assert!((planned / estimated - 1.0).abs() < 0.05, "planned {planned}");
    assert!(estimated <= 0.0102);
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    let asked = Parameters::new().with("capacity", 1000);
    conformance::parameters_round_trip(NAME, &asked);
    conformance::parameters_round_trip(NAME, &asked.clone().with("mean-count", 4_294_967_296_u64));
    conformance::parameters_round_trip(NAME, &asked.clone().with("lambda", 0.1));
    conformance::parameters_round_trip(NAME, &asked.with("k", 64).with("cells", 1));
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    let sound = Parameters::new().with("capacity", 1000).with("fpr", 0.01);
    for mean in ["0", "0.5", "-1", "NaN", "1e99", "x"] {
        conformance::refuses(NAME, &sound.clone().with("mean-count", mean), "mean-count");
    }
    for lambda in ["-0.1", "1.1", "NaN"] {
        conformance::refuses(NAME, &sound.clone().with("lambda", lambda), "lambda");
    }
    conformance::refuses(NAME, &sound.with("counter-bits", 4), "kind");
}

#[test]
fn the_largest_of_poisson_variables_is_found_for_any_mean() {
    // Exact: the value that one of the variables exceeds on average, by the tail of the
    // distribution.
    let exact = |mean: f64, variables: f64| {
        let (mut below, mut share, mut value) = (0.0, (-mean).exp(), 0.0);
        while variables * (1.0 - below) > 1.0 {
            below += share;
            value += 1.0;
            share *= mean / value;
        }
        value
    };
    for mean in [0.1, 0.7, 3.0, 30.0] {
        for variables in [10.0, 1e3, 1e6] {
            let (found, exact) = (largest_of_poisson(mean, variables), exact(mean, variables));
            assert!((found - exact).abs() < 1.6, "{mean}, {variables}: {found} for {exact}");
        }
    }
    assert!((1000.0..1050.0).contains(&largest_of_poisson(1000.0, 1.0)));
    assert!((1e15..1.001e15).contains(&largest_of_poisson(1e15, 8128.0)));
    assert!(largest_of_poisson(0.0, 8128.0) <= 1.0);
}
