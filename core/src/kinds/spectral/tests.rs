//! Claims about the spectral Bloom filter.

use super::*;
use crate::conformance::{self, Harness, Model, Step, hash_of};
use crate::hash::{Positions, mix};
use crate::kind::{MOST_COUNT, MOST_WEIGHT, Micros, Within};
use proptest::prelude::*;

const ONE_BLOCK: Layout = Layout { stripes: 1, block_words: 2048 };

fn asked(policy: &str) -> Parameters {
    Parameters::new().with("capacity", 1000).with("policy", policy)
}

fn spectral(policy: &str, capacity: u64, fpr: f64) -> Arc<dyn Kind> {
    let asked = asked(policy).with("capacity", capacity).with("fpr", fpr);
    build(&asked).expect("a sound filter")
}

/// The three methods over vectors of counters, one insert or removal at a time.
struct Naive {
    policy: &'static str,
    k: u32,
    primary: Vec<u64>,
    secondary: Vec<u64>,
}

impl Naive {
    fn new(policy: &'static str, cells: usize, k: u32) -> Self {
        let secondary = if policy == "rm" { cells.div_ceil(2) } else { 0 };
        Self { policy, k, primary: vec![0; cells], secondary: vec![0; secondary] }
    }

    /// Returns the different counters of functions `from` to `from + k - 1`.
    fn places(&self, hash: u64, cells: usize, from: u32) -> Vec<usize> {
        let positions = Positions::new(hash, cells as u32);
        let mut places: Vec<_> = (from..from + self.k).map(|at| positions.get(at)).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn first(&self, hash: u64) -> (Vec<usize>, u64, bool) {
        let places = self.places(hash, self.primary.len(), 0);
        let least = places.iter().map(|&at| self.primary[at]).min().expect("k is at least 1");
        let recurs = places.iter().filter(|&&at| self.primary[at] == least).count() > 1;
        (places, least, recurs)
    }

    fn second(&self, hash: u64) -> (Vec<usize>, u64) {
        let places = self.places(hash, self.secondary.len(), self.k);
        let least = places.iter().map(|&at| self.secondary[at]).min().expect("k is at least 1");
        (places, least)
    }

    fn count(&self, hash: u64) -> u64 {
        let (_, least, recurs) = self.first(hash);
        if self.policy != "rm" || recurs {
            return least;
        }
        match self.second(hash).1 {
            0 => least,
            second => second.min(least),
        }
    }

    fn insert_once(&mut self, hash: u64) {
        let (places, least, _) = self.first(hash);
        for at in places {
            if self.policy != "mi" || self.primary[at] == least {
                self.primary[at] += 1;
            }
        }
        let (_, least, recurs) = self.first(hash);
        if self.policy == "rm" && !recurs {
            let (places, found) = self.second(hash);
            let more = if found > 0 { 1 } else { least };
            places.into_iter().for_each(|at| self.secondary[at] += more);
        }
    }

    fn remove_once(&mut self, hash: u64) {
        let (places, ..) = self.first(hash);
        places.into_iter().for_each(|at| self.primary[at] -= 1);
        if self.policy == "rm" && !self.first(hash).2 {
            let (places, found) = self.second(hash);
            if found > 0 {
                places.into_iter().for_each(|at| self.secondary[at] -= 1);
            }
        }
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_weighing(hash, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, _: Micros, weight: u32) {
        (0..weight).for_each(|_| self.insert_once(hash));
    }

    fn remove(&mut self, hash: u64, weight: u32) -> bool {
        let there = self.count(hash) >= weight.into();
        if there {
            (0..weight).for_each(|_| self.remove_once(hash));
        }
        there
    }

    fn estimate(&self, hash: u64, _: Micros) -> Option<Estimate> {
        Some(Estimate { count: self.count(hash) as f64, at_least: false })
    }

    fn contains(&self, hash: u64, _: Micros) -> bool {
        self.count(hash) > 0
    }
}

fn step(removes: bool) -> impl Strategy<Value = Step> {
    let weight = prop_oneof![4 => 1..5_u32, 1 => 1..3000_u32];
    (0..10_u8, any::<u8>(), weight).prop_map(move |(what, key, weight)| match what {
        0..3 => Step::Insert(key, 1),
        3..5 => Step::InsertWeighing(key, 1, weight),
        5..7 if removes => Step::Remove(key % 64, weight),
        5 => Step::InsertWeighing(key % 8, 1, weight),
        _ => Step::Ask(key, 0, Within::Items(1)),
    })
}

fn one_block_answers_as(policy: &'static str, cells: usize, k: u32, steps: &[Step]) {
    let asked = asked(policy).with("cells", cells).with("k", k);
    let kind = build(&asked).expect("a sound filter");
    let mut harness = Harness::new(kind, ONE_BLOCK);
    let mut model = Naive::new(policy, cells, k);
    conformance::answers_as_the_model(&mut harness, &mut model, steps);
    for key in 0..=255 {
        let hash = hash_of(key);
        assert_eq!(harness.estimate(hash), model.estimate(hash, 0), "{policy}: key {key}");
    }
    let used = model.primary.iter().filter(|&&counter| counter > 0).count();
    assert_eq!(harness.sample().fill(), used as f64 / cells as f64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn minimum_selection_answers_as_a_vector(
        cells in 1..3000_usize,
        k in 1..12_u32,
        steps in prop::collection::vec(step(true), 1..400),
    ) {
        one_block_answers_as("ms", cells, k, &steps);
    }

    #[test]
    fn minimal_increase_answers_as_a_vector(
        cells in 1..3000_usize,
        k in 1..12_u32,
        steps in prop::collection::vec(step(false), 1..400),
    ) {
        one_block_answers_as("mi", cells, k, &steps);
    }

    #[test]
    fn recurring_minimum_answers_as_two_vectors(
        cells in 1..3000_usize,
        k in 1..12_u32,
        steps in prop::collection::vec(step(true), 1..400),
    ) {
        one_block_answers_as("rm", cells, k, &steps);
    }
}

#[test]
fn it_keeps_the_contract_of_all_kinds() {
    let layout = Layout { stripes: 2, block_words: 64 };
    for policy in ["ms", "mi", "rm"] {
        let kind = spectral(policy, 2000, 0.01);
        conformance::lazy_is_eager(&kind, layout, 4000, 1);
        conformance::events_apply_once(&kind, layout, 500, 1);
        conformance::survives_torn_words(&kind, layout);
    }
}

#[test]
fn what_is_inserted_and_removed_in_any_order_leaves_nothing() {
    for policy in ["ms", "rm"] {
        let kind = spectral(policy, 3000, 0.01);
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let count = |key: u64| 1 + (mix(key) >> (44 + key % 20)) as u32 % 100_000;
        for key in 0..3000 {
            harness.insert_weighing(hash_of(key), 0, count(key));
        }
        let order = |key: u64| key * 1009 % 3000;
        let mut left = 0;
        for key in (0..3000).map(order) {
            let (hash, mut count) = (hash_of(key), count(key));
            // A key that `rm` undercounts is removed as often as its estimate says.
            let told = harness.estimate(hash).expect("it counts").count;
            left += u32::from(told < count.into());
            count = count.min(told as u32);
            assert!(count == 0 || harness.remove(hash, count), "{policy}: key {key}");
        }
        if policy == "ms" {
            assert_eq!((left, harness.sample().fill()), (0, 0.0));
        } else {
            // A few are undercounted, as published.
            assert!(left < 60, "{left} undercounted");
        }
    }
}

/// Inserts each of `keys` keys between 1 and 20 times, in a mixed order.
fn fill(harness: &mut Harness, keys: u64) {
    for round in 0..20 {
        for key in (0..keys).filter(|key| mix(*key) % 20 >= round) {
            harness.insert(hash_of(key), 0);
        }
    }
}

/// Returns the shares of keys whose estimate is too high and too low, and the mean excess.
fn errors(harness: &Harness, keys: u64) -> (f64, f64, f64) {
    let (mut high, mut low, mut excess) = (0_u64, 0_u64, 0.0);
    for key in 0..keys {
        let truth = (mix(key) % 20 + 1) as f64;
        let told = harness.estimate(hash_of(key)).expect("it counts").count;
        high += u64::from(told > truth);
        low += u64::from(told < truth);
        excess += (told - truth).max(0.0);
    }
    (high as f64 / keys as f64, low as f64 / keys as f64, excess / keys as f64)
}

#[test]
fn errors_are_as_rare_as_theory_says_and_the_better_methods_err_less() {
    let keys = 50_000_u64;
    // The setting of the DCF paper: k = 3, a false-positive rate of 0.05.
    let told = ["ms", "mi", "rm"].map(|policy| {
        let parameters = asked(policy).with("capacity", keys).with("fpr", 0.05).with("k", 3);
        let kind = build(&parameters).expect("a sound filter");
        let layout = Layout { stripes: 4, block_words: 2048 };
        let planned = kind.planned_fpr(layout);
        let mut harness = Harness::new(kind, layout);
        fill(&mut harness, keys);
        let (high, low, excess) = errors(&harness, keys);
        let (measured, estimated) = (harness.measured_fpr(200_000), harness.estimated_fpr());
        println!(
            "{policy}: too high {high:.4}, too low {low:.5}, excess {excess:.4}; \
             fpr {measured:.4}, estimated {estimated:.4}, planned {planned:.4}"
        );
        // 10,000 false positives: six standard deviations are 6 %.
        assert!((measured / estimated - 1.0).abs() < 0.06, "{policy}: {measured} {estimated}");
        assert!((planned / estimated - 1.0).abs() < 0.03, "{policy}: {planned} {estimated}");
        assert!(planned < 0.0505);
        (high, low, excess)
    });
    let [ms, mi, rm] = told;
    // 2,500 keys: six standard deviations are 12 %.
    assert!((ms.0 / 0.05 - 1.0).abs() < 0.12, "{}", ms.0);
    assert_eq!((ms.1, mi.1), (0.0, 0.0));
    // As measured: half as many for `mi`; for `rm` a quarter less, of which undercounts offset a
    // tenth.
    assert!(mi.0 < 0.6 * ms.0 && mi.2 < 0.4 * ms.2, "{mi:?} {ms:?}");
    assert!(rm.0 + rm.1 < 0.95 * ms.0 && rm.2 < 0.8 * ms.2, "{rm:?} {ms:?}");
    // "A few" keys, as published.
    assert!(rm.1 < 0.01, "{}", rm.1);
}

#[test]
fn the_secondary_part_takes_no_more_keys_than_theory_says() {
    for (k, load) in [(1, 0.3), (3, 0.46), (7, 0.69)] {
        let (keys, cells) = (20_000_u64, (20_000.0 * f64::from(k) / load) as usize);
        let mut model = Naive::new("rm", cells, k);
        (0..keys).for_each(|key| model.insert_once(hash_of(key)));
        let single = (0..keys).filter(|&key| !model.first(hash_of(key)).2).count();
        let (single, bound) =
            (single as f64 / keys as f64, single_minimum(keys as f64, cells as f64, k, 1.0));
        println!("k {k}: {single:.4} single minima, at most {bound:.4}");
        // Six standard deviations of a share of 20,000 are at most 0.022. Keys with equal counts
        // are the worst case for the bound: many wrong minima recur.
        assert!(single < bound + 0.022, "{single} against {bound}");
        assert!(single > 0.4 * bound, "{single} against {bound}");
        let error = overestimate(keys as f64, cells as f64, k, 1.0);
        let wrong = (0..keys).filter(|&key| model.first(hash_of(key)).1 > 1).count();
        assert!((wrong as f64 / keys as f64 - error).abs() < 0.022);
    }
}

#[test]
fn room_follows_the_counts() {
    let kind = spectral("ms", 5000, 0.01);
    let used = |harness: &Harness| harness.metric("rebuilds");
    let mut harness = Harness::new(kind.clone(), Layout { stripes: 1, block_words: 2048 });
    fill(&mut harness, 5000);
    let few = used(&harness);
    for key in 0..5000 {
        harness.insert_weighing(hash_of(key), 0, MOST_WEIGHT);
    }
    assert!(used(&harness) > few);
    assert!((0..5000).all(|key| {
        let told = harness.estimate(hash_of(key)).expect("it counts");
        !told.at_least && told.count >= f64::from(MOST_WEIGHT)
    }));
    assert!(harness.metric("expansions") > 5000 && harness.metric("rewritten_cells") > 50_000);
}

#[test]
fn weights_are_whole_numbers() {
    let kind = spectral("ms", 1000, 0.01);
    assert_eq!(kind.weight(1.0).expect("a count"), 1);
    assert_eq!(kind.weight(f64::from(MOST_WEIGHT)).expect("a count"), MOST_WEIGHT.into());
    for wrong in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY, MOST_COUNT as f64 + 1.0] {
        assert!(matches!(kind.weight(wrong), Err(crate::Error::Parameter { name: "weight", .. })));
    }
}

#[test]
fn only_minimal_increase_refuses_removals() {
    let removes = ["ms", "mi", "rm"].map(|policy| spectral(policy, 1000, 0.01).removal().is_some());
    assert_eq!(removes, [true, false, true]);
}

#[test]
fn a_single_block_has_exactly_the_cells_asked_for() {
    for cells in [1, 5, 28, 29, 1000, 7644] {
        let kind = Spectral { policy: Policy::MinimumSelection, plan: plan(cells, 3) };
        let blocks = ONE_BLOCK.blocks(kind.geometry(ONE_BLOCK));
        assert_eq!((blocks, u64::from(kind.parts(1).primary)), (1, cells));
    }
}

#[test]
fn every_block_fits_and_none_is_larger_than_blocks_may_be() {
    for policy in [Policy::MinimumSelection, Policy::RecurringMinimum] {
        for cells in [1, 1000, 7645, 123_456, 1 << 22, 1 << 33] {
            for stripes in [1, 3, 64] {
                let layout = Layout { stripes, block_words: 2048 };
                let kind = Spectral { policy, plan: plan(cells, 3) };
                let geometry = kind.geometry(layout);
                let parts = kind.parts(layout.blocks(geometry));
                assert!(geometry.words_per_block <= Layout::MOST_BLOCK_WORDS);
                assert!(parts.store.most_words() <= geometry.words_per_block as usize);
                assert!(u64::from(parts.primary) * layout.blocks(geometry) >= cells);
            }
        }
    }
}

fn plan(cells: u64, k: u32) -> Plan {
    Plan { capacity: 1000, fpr: 0.01, cells, k }
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    conformance::parameters_round_trip(NAME, &Parameters::new().with("capacity", 1000));
    for policy in ["ms", "mi", "rm"] {
        conformance::parameters_round_trip(NAME, &asked(policy));
        conformance::parameters_round_trip(NAME, &asked(policy).with("fpr", 1e-9));
        conformance::parameters_round_trip(NAME, &asked(policy).with("k", 64).with("cells", 1));
    }
}

#[test]
fn the_strangest_parameters_still_count() {
    for policy in ["ms", "mi", "rm"] {
        for (cells, k) in [(1, 1), (1, 64), (2, 64), (28, 64), (7644, 64), (100_000, 1)] {
            let parameters = asked(policy).with("cells", cells).with("k", k);
            let kind = build(&parameters).expect("a sound filter");
            let mut harness = Harness::new(kind, ONE_BLOCK);
            for _ in 0..300 {
                harness.insert_weighing(hash_of(7), 0, MOST_WEIGHT);
            }
            let told = harness.estimate(hash_of(7)).expect("it counts").count;
            assert_eq!(told, 300.0 * f64::from(MOST_WEIGHT), "{policy} {cells} {k}");
        }
    }
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    for fpr in ["0", "1", "NaN", "x"] {
        conformance::refuses(NAME, &asked("ms").with("fpr", fpr), "fpr");
    }
    for (name, value) in [("capacity", 0), ("k", 0), ("k", 65), ("cells", 0), ("cells", u64::MAX)] {
        conformance::refuses(NAME, &asked("ms").with(name, value), name);
    }
    conformance::refuses(NAME, &asked("best"), "policy");
    conformance::refuses(NAME, &Parameters::new().with("fpr", 0.01), "capacity");
    conformance::refuses(NAME, &asked("ms").with("window", 3), "kind");
}

#[test]
fn the_bits_of_a_counter_follow_from_its_keys() {
    assert_eq!(mean_bits(0.0, 2.0), 1.0);
    assert_eq!(mean_bits(1e9, 8.0), 33.0);
    // Nearly all have no key or one of these 300, which take 9 bits.
    let rare = mean_bits(0.01, 300.0);
    let [none, one] = [1.0, 0.01].map(|share: f64| share * (-0.01_f64).exp());
    assert!((rare - none - 9.0 * one).abs() < 0.001, "{rare}");
    assert!(mean_bits(499.0, 1.0) - mean_bits(501.0, 1.0) < 0.5);
}
