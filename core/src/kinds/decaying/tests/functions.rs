//! Claims about polynomial decay and about tables of weights.

use super::*;
use crate::conformance::Model;
use crate::hash::Positions;
use crate::kinds::decaying::sum_of_exponentials::Terms;
use std::sync::{Mutex, PoisonError};

pub(super) fn polynomial(exponent: f64, horizon: u64) -> Parameters {
    let parameters = Parameters::new().with("capacity", 1000).with("epoch", 1000);
    parameters.with("decay", "polynomial").with("exponent", exponent).with("horizon", horizon)
}

/// The same, with the terms that a filter without them gets. They are searched for once: that takes
/// longer than what a test does with them.
pub(super) fn planned_polynomial(exponent: f64, horizon: u64) -> Parameters {
    static FOUND: Mutex<BTreeMap<(u64, u64), String>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let terms = found.entry((exponent.to_bits(), horizon)).or_insert_with(|| {
        let completed = made(&polynomial(exponent, horizon)).parameters();
        completed.get("terms").expect("completed").to_owned()
    });
    polynomial(exponent, horizon).with("terms", terms)
}

fn weights(table: &[f64]) -> Parameters {
    let table: Vec<_> = table.iter().map(f64::to_string).collect();
    let parameters = Parameters::new().with("capacity", 1000).with("epoch", 1000);
    parameters.with("decay", "weights").with("weights", table.join(","))
}

/// The sum of exponentials, naively: every term of every counter is decayed at every grid point.
struct Naive {
    k: u32,
    cells: u32,
    fraction: u32,
    least: f64,
    terms: Vec<(u64, HalfLife)>,
    /// By counter and term.
    numbers: BTreeMap<(usize, usize), u64>,
    epoch: u64,
}

impl Naive {
    fn new(parameters: &Parameters, cells: u32, k: u32) -> Self {
        let text = |name| parameters.get(name).expect("completed");
        let number = |name| text(name).parse::<f64>().expect("a number");
        let fraction = number("fraction-bits") as u32;
        let terms: Terms = text("terms").parse().expect("terms");
        let decay = |lambda| HalfLife::new(lambda, fraction).expect("a decay");
        let terms = terms.0.iter().map(|term| (term.part, decay(term.lambda))).collect();
        let least = (1.0 + number("horizon")).powf(-number("exponent"));
        Self { k, cells, fraction, least, terms, numbers: BTreeMap::new(), epoch: 0 }
    }

    fn decayed(&self, epoch: u64) -> BTreeMap<(usize, usize), u64> {
        let left = |(&(cell, term), &number): (&(usize, usize), &u64)| {
            let decay = &self.terms[term].1;
            ((cell, term), decay.halve(number, decay.steps(self.epoch, epoch)))
        };
        self.numbers.iter().map(left).collect()
    }

    fn counters_of(&self, hash: u64) -> std::collections::BTreeSet<usize> {
        let positions = Positions::new(hash, self.cells);
        (0..self.k).map(|function| positions.get(function)).collect()
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_weighing(hash, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) {
        let epoch = time / 1000;
        (self.numbers, self.epoch) = (self.decayed(epoch), epoch);
        for cell in self.counters_of(hash) {
            for (number, (part, decay)) in self.terms.iter().enumerate() {
                *self.numbers.entry((cell, number)).or_default() +=
                    decay.added_part(weight, *part, epoch);
            }
        }
    }

    fn estimate(&self, hash: u64, now: Micros) -> Option<Estimate> {
        let (epoch, units) = (now / 1000, f64::from(1_u32 << self.fraction.min(31)));
        let numbers = self.decayed(epoch);
        let total = |cell: usize| {
            let read = |(term, (_, decay)): (usize, &(u64, HalfLife))| {
                decay.read(numbers.get(&(cell, term)).copied().unwrap_or(0), epoch)
            };
            let sum: f64 = self.terms.iter().enumerate().map(read).sum();
            let sum = if sum > 0.0 { sum + self.terms.len() as f64 / units } else { 0.0 };
            if sum < self.least { 0.0 } else { sum }
        };
        let least = self.counters_of(hash).into_iter().map(total).min_by(f64::total_cmp);
        least.map(|count| Estimate { count, at_least: false })
    }

    fn contains(&self, hash: u64, now: Micros) -> bool {
        self.estimate(hash, now).is_some_and(|estimate| estimate.count > 0.0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_block_of_sums_holds_the_terms_that_the_model_decays_one_by_one(
        exponent in prop::sample::select(&[0.5, 1.0, 2.0][..]),
        cells in prop::sample::select(&[1_u32, 5, 30, 100][..]),
        k in 1_u32..7,
        steps in steps(),
    ) {
        let kind = made(&planned_polynomial(exponent, 50).with("cells", cells).with("k", k));
        let mut model = Naive::new(&kind.parameters(), cells, k);
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let mut time = 0;
        for step in steps {
            match step {
                Step::InsertWeighing(key, pause, weight) => {
                    time += pause;
                    harness.insert_weighing(hash_of(key.into()), time, weight);
                    model.insert_weighing(hash_of(key.into()), time, weight);
                }
                Step::Ask(key, pause, _) => {
                    let hash = hash_of(key.into());
                    let told = harness.estimate_at(hash, time + pause).expect("an estimate");
                    let expected = model.estimate(hash, time + pause).expect("an estimate");
                    // The sums of floats differ in their last places.
                    let error = (told.count - expected.count).abs();
                    prop_assert!(error <= 1e-12 * expected.count, "{told:?}, {expected:?}");
                    prop_assert!(!told.at_least);
                    prop_assert_eq!(harness.contains_at(hash, time + pause), told.count > 0.0);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_polynomial_estimate_is_never_below_the_exact_count_and_within_the_excess_above(
        (exponent, horizon) in prop::sample::select(&[(1.0, 8760), (0.5, 300), (2.0, 100)][..]),
        inserts in prop::collection::vec((0..5_u64, 0..400_u64, 1_u32..200), 1..60),
        pauses in prop::collection::vec(0..3000_u64, 1..6),
    ) {
        let kind = made(&planned_polynomial(exponent, horizon).with("cells", 400).with("k", 4));
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let (mut all, mut now): (Vec<(u64, u64, u32)>, u64) = (Vec::new(), 0);
        let check = |harness: &Harness, all: &[(u64, u64, u32)], now: u64| {
            for key in 0..5 {
                let of_key = || all.iter().filter(move |(other, ..)| *other == key);
                let count = |&(_, from, weight): &(u64, u64, u32)| {
                    f64::from(weight) * (1.0 + (now - from) as f64).powf(-exponent)
                };
                let young = |&&(_, from, _): &&(u64, u64, u32)| now - from <= horizon;
                let least: f64 = of_key().filter(young).map(count).sum();
                let most: f64 = of_key().map(count).sum();
                let told = harness.estimate_at(hash_of(key), now * 1000).expect("an estimate");
                assert!(told.count >= least * (1.0 - 1e-12), "{told:?} for {least} at {now}");
                assert!(told.count <= most * 1.03, "{told:?} for {most} at {now}");
            }
        };
        for (key, pause, weight) in inserts {
            now += pause;
            harness.insert_weighing(hash_of(key), now * 1000, weight);
            all.push((key, now, weight));
            check(&harness, &all, now);
        }
        for pause in pauses {
            now += pause;
            check(&harness, &all, now);
        }
    }

    #[test]
    fn a_table_of_weights_answers_as_if_it_remembered_every_insert(
        cells in prop::sample::select(&[1_u32, 5, 30, 300][..]),
        k in 1_u32..7,
        steps in steps(),
    ) {
        const TABLE: [u64; 5] = [16, 12, 12, 3, 1];
        let table = TABLE.map(|weight| weight as f64 / 16.0);
        let parameters = weights(&table).with("cells", cells).with("k", k);
        let mut harness = Harness::new(made(&parameters), ONE_BLOCK);
        let decay = |age| TABLE.get(age as usize).copied().unwrap_or(0);
        let (most, added) = ((1 << 16) - 1, BTreeMap::new());
        let mut model = Memory { epoch: 1000, k, cells, most, decay, divisor: 16.0, added };
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
    }
}

#[test]
fn over_a_year_of_hours_one_insert_is_never_below_and_at_most_three_percent_above() {
    let kind = made(&polynomial(1.0, 8760));
    let terms: Terms = kind.parameters().required("terms", "").expect("completed");
    assert!(terms.0.len() <= 8);
    for first in [0, 777, 495_000] {
        let mut harness = Harness::new(kind.clone(), ONE_BLOCK);
        harness.insert(hash_of(1), first * 1000);
        let mut most = 0.0_f64;
        for age in 0..=8760_u64 {
            let told = harness.estimate_at(hash_of(1), (first + age) * 1000).expect("a count");
            let ratio = told.count * (1.0 + age as f64);
            assert!((1.0 - 1e-12..=1.03).contains(&ratio), "{ratio} at {age}");
            most = most.max(ratio);
        }
        println!("polynomial from {first}: at most {most:.5} of the exact count");
        // Soon after the horizon it is absent.
        assert!(!harness.contains_at(hash_of(1), (first + 8760 + 8760 / 20) * 1000));
    }
}

#[test]
fn all_decay_functions_keep_the_contract_of_all_kinds() {
    for parameters in [
        polynomial(1.0, 100),
        polynomial(2.0, 5).with("counter-bits", 20),
        weights(&[1.0, 0.5, 0.25]),
    ] {
        for pause in [0, 100, 900, 40_000] {
            conformance::keeps_the_contract(
                &made(&parameters.clone().with("fpr", 0.01)),
                SMALL,
                pause,
            );
        }
    }
}

#[test]
fn keys_older_than_the_horizon_are_too_late_and_others_count_what_is_left() {
    let mut harness = Harness::new(made(&polynomial(1.0, 20)), ONE_BLOCK);
    harness.insert(hash_of(1), 100_000);
    assert_eq!(harness.insert(hash_of(2), 79_999), Decision::TooLate);
    for (key, epoch) in [(3, 80), (4, 95), (5, 99)] {
        harness.insert_weighing(hash_of(key), epoch * 1000, 100);
        let exact = 100.0 / (101 - epoch) as f64;
        let told = harness.estimate(hash_of(key)).expect("a count").count;
        assert!(told >= exact && told < exact * 1.05, "{told} for {exact}");
    }
}

#[test]
fn completed_parameters_of_all_functions_give_the_same_kind_back() {
    for parameters in [
        polynomial(1.0, 8760),
        polynomial(0.1, 1).with("excess", 0.5),
        polynomial(2.0, 1000).with("fraction-bits", 32).with("counter-bits", 64),
        polynomial(3.0, 30).with("cells", 1).with("k", 64),
        weights(&[1.0]).with("counter-bits", 1),
        weights(&[1.0, 1.0 / 3.0, 1e-9]),
        weights(&vec![0.1; 256]),
    ] {
        conformance::parameters_round_trip(NAME, &parameters);
    }
}

#[test]
fn parameters_that_describe_no_function_are_refused() {
    let sound = polynomial(1.0, 100);
    for (name, value) in [
        ("exponent", "0"),
        ("exponent", "-1"),
        ("exponent", "9"),
        ("exponent", "NaN"),
        ("exponent", "x"),
        ("horizon", "0"),
        ("horizon", "1048577"),
        ("horizon", "x"),
        ("excess", "0"),
        ("excess", "1"),
        ("terms", "1:0.5"),
        ("terms", "1.9:0.99999"),
        ("terms", ""),
        ("fraction-bits", "8"),
        ("fraction-bits", "33"),
        ("counter-bits", "65"),
        ("counter-bits", "9"),
    ] {
        conformance::refuses(NAME, &sound.clone().with(name, value), name);
    }
    // No sum of twelve is so near, and no counter keeps so small a rest.
    conformance::refuses(NAME, &sound.clone().with("excess", 1e-9), "horizon");
    conformance::refuses(NAME, &polynomial(8.0, 100_000).with("excess", 0.9), "horizon");
    conformance::refuses(NAME, &sound.clone().with("lambda", 0.5), "kind");
    conformance::refuses(NAME, &sound.with("weights", "1"), "kind");
    conformance::refuses(NAME, &polynomial(1.0, 9).with("decay", "polyexponential"), "decay");
    for table in ["", "x", "0", "1,0", "0.5,1", "1.5", "1,,0.5", "NaN", "-1"] {
        conformance::refuses(NAME, &weights(&[1.0]).with("weights", table), "weights");
    }
    conformance::refuses(NAME, &weights(&vec![1.0; 257]), "weights");
    conformance::refuses(NAME, &weights(&[1.0]).with("window-epochs", 1), "kind");
}
