//! Claims about the decaying filter.

mod functions;
mod model;
mod overflow;

use super::*;
use crate::atomic::AtomicU64;
use crate::block::{OWN_WORDS, load};
use crate::conformance::{self, Harness, Step, hash_of};
use crate::hash::mix;
use crate::kind::{MOST_COUNT, MOST_WEIGHT, Within};
use crate::state::STATE_WORDS;
use crate::test_effort::scaled;
use model::{Listing, Memory};
use proptest::prelude::*;
use std::collections::BTreeMap;

const ONE_BLOCK: Layout = Layout { stripes: 1, block_words: 2048 };
const SMALL: Layout = Layout { stripes: 4, block_words: 64 };
const HOUR: Micros = 3_600_000_000;
const YEAR: Micros = 8766 * HOUR;

/// A time of this century.
const TODAY: Micros = 1_790_000_000_000_000;

const LAMBDAS: [f64; 9] = [1e-9, 0.1, 0.5, 0.7, 0.9, 0.99, 0.999, 0.999_999, 1.0 - 1e-12];

fn exponential(lambda: f64) -> Parameters {
    Parameters::new().with("capacity", 1000).with("epoch", 1000).with("lambda", lambda)
}

fn ring(decay: &str, epochs: u64) -> Parameters {
    let parameters = Parameters::new().with("capacity", 1000).with("epoch", 1000);
    parameters.with("decay", decay).with("window-epochs", epochs)
}

fn made(parameters: &Parameters) -> Arc<dyn Kind> {
    build(parameters).expect("a sound filter")
}

/// Steps with pauses from none to many epochs of 1000 microseconds.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![4 => Just(0_u64), 4 => 0..3000_u64, 1 => 0..100_000_u64, 1 => 0..HOUR];
    let weight = prop_oneof![2 => Just(1_u32), 1 => 1..1000_u32];
    let step = (any::<bool>(), 0..12_u8, pause, weight).prop_map(|(insert, key, pause, weight)| {
        if insert {
            Step::InsertWeighing(key, pause, weight)
        } else {
            Step::Ask(key, pause, Within::Items(1))
        }
    });
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn one_block_answers_as_the_papers_listing(
        lambda in prop::sample::select(&LAMBDAS[..]),
        fraction in prop::sample::select(&[0, 1, 8, 20][..]),
        cells in prop::sample::select(&[1_u64, 5, 30, 700][..]),
        k in 1_u32..7,
        steps in steps(),
    ) {
        let parameters = exponential(lambda).with("cells", cells).with("k", k);
        let parameters = parameters.with("fraction-bits", fraction).with("counter-bits", 47);
        let mut harness = Harness::new(made(&parameters), ONE_BLOCK);
        let half_life = HalfLife::new(lambda, fraction).expect("a sound decay");
        let counters = vec![0; cells as usize];
        let mut model = Listing { half_life, epoch: 1000, k, counters, decayed_to: 0 };
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
    }

    #[test]
    fn one_block_of_rings_answers_as_if_it_remembered_every_insert(
        linear in any::<bool>(),
        bits in prop::sample::select(&[1, 7, 16, 40][..]),
        cells in prop::sample::select(&[1_u32, 5, 30, 300][..]),
        k in 1_u32..7,
        steps in steps(),
    ) {
        const EPOCHS: u64 = 5;
        let decay = if linear { ring::LINEAR } else { ring::SLIDING_WINDOW };
        let parameters = ring(decay, EPOCHS).with("cells", cells).with("k", k);
        let mut harness = Harness::new(made(&parameters.with("counter-bits", bits)), ONE_BLOCK);
        let (decay, divisor): (fn(u64) -> u64, _) = match linear {
            true => (|age| EPOCHS.saturating_sub(age), EPOCHS as f64),
            false => (|age| u64::from(age < EPOCHS), 1.0),
        };
        let (most, added) = ((1 << bits) - 1, BTreeMap::new());
        let mut model = Memory { epoch: 1000, k, cells, most, decay, divisor, added };
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
    }
}

/// All inserts, for the exact decayed counts.
#[derive(Default)]
struct Exact(Vec<(u64, u64, u32)>);

impl Exact {
    fn count(&self, key: u64, epoch: u64, lambda: f64) -> f64 {
        let decayed = |(_, from, weight): &(u64, u64, u32)| {
            f64::from(*weight) * (lambda.ln() * (epoch - from) as f64).exp()
        };
        self.0.iter().filter(|(other, ..)| *other == key).map(decayed).sum()
    }
}

/// Returns the greatest error of the floats of [`Exact`].
fn float_error(count: f64) -> f64 {
    count * 1e-9 + 1e-12
}

/// Inserts: the key, the epochs since the previous insert, the epochs by which it is late, and its
/// weight.
fn stream(late: bool) -> impl Strategy<Value = Vec<(u64, u64, u64, u32)>> {
    let pause =
        prop_oneof![3 => Just(0_u64), 3 => 0..4_u64, 1 => 0..100_u64, 1 => 0..1_000_000_u64];
    let weight = prop_oneof![3 => Just(1_u32), 1 => 1..100_u32, 1 => 1..=MOST_WEIGHT];
    let lateness = if late { 0..50_u64 } else { 0..1 };
    prop::collection::vec((0..8_u64, pause, lateness, weight), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_estimate_is_too_small_by_less_than_epsilon_and_too_large_by_what_is_stated(
        lambda in prop::sample::select(&LAMBDAS[..]),
        fraction in prop::sample::select(&[0_u32, 1, 4, 8, 16, 32][..]),
        late in any::<bool>(),
        stream in any::<bool>().prop_flat_map(stream),
        // With 4 counters keys collide; with 2000 each of these 8 keys has its own counters.
        collide in any::<bool>(),
        first in prop::sample::select(&[0_u64, 5, 1_790_000_000][..]),
        pauses in prop::collection::vec(0..40_u64, 1..5),
    ) {
        let parameters = exponential(lambda).with("fraction-bits", fraction).with("k", 3);
        let parameters = parameters.with("counter-bits", 64).with("epoch", 1_000_000);
        let kind = made(&parameters.with("cells", if collide { 4 } else { 2000 }));
        let half_life = HalfLife::new(lambda, fraction).expect("a sound decay");
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let (mut exact, mut now, mut late_ones) = (Exact::default(), first, 0);
        let check = |harness: &Harness, exact: &Exact, epoch: u64, late_ones: u32| {
            for key in 0..8 {
                let told = harness.estimate_at(hash_of(key), epoch * 1_000_000);
                let told = told.expect("an estimate");
                assert!(!told.at_least);
                let count = exact.count(key, epoch, lambda);
                let (least, most) = theory::estimate_bounds(&half_life, count);
                let most = most + 2.0 * half_life.epsilon() * f64::from(late_ones);
                let error = float_error(count);
                assert!(told.count > least - error, "{told:?} for {count} at {epoch}");
                assert!(collide || told.count < most + error, "{told:?} for {count} at {epoch}");
                assert!(told.count > 0.0 || count < half_life.epsilon() + error);
            }
        };
        for (key, pause, lateness, weight) in stream {
            now += pause;
            let epoch = now.saturating_sub(if late { lateness } else { 0 });
            late_ones += u32::from(epoch < now);
            harness.insert_weighing(hash_of(key), now * 1_000_000, 1);
            exact.0.push((key, now, 1));
            harness.insert_weighing(hash_of(key), epoch * 1_000_000, weight);
            exact.0.push((key, epoch, weight));
            check(&harness, &exact, now, late_ones);
        }
        for pause in pauses {
            now += pause;
            check(&harness, &exact, now, late_ones);
        }
    }

    #[test]
    fn late_keys_leave_the_same_state_whenever_blocks_caught_up(
        parameters in prop::sample::select(vec![
            exponential(0.9),
            exponential(0.3).with("counter-bits", 12),
            ring(ring::SLIDING_WINDOW, 6),
            ring(ring::LINEAR, 30),
        ]),
        stream in stream(true),
    ) {
        let kind = made(&parameters);
        let [mut lazy, mut eager] = [0, 1].map(|_| Harness::new(kind.clone(), SMALL));
        let mut now = TODAY / 1000;
        for (key, pause, lateness, weight) in stream {
            now += pause;
            eager.settle_in_place();
            for (hash, epoch) in [(hash_of(key), now), (hash_of(key + 100), now - lateness)] {
                let decided = lazy.insert_weighing(hash, epoch * 1000, weight);
                assert_eq!(eager.insert_weighing(hash, epoch * 1000, weight), decided);
                assert_eq!(lazy.estimate(hash), eager.estimate(hash));
            }
        }
        assert!(lazy.settled() == eager.settled());
    }
}

#[test]
fn it_keeps_the_contract_of_all_kinds() {
    for parameters in [
        exponential(0.9),
        exponential(0.999_999).with("counter-bits", 11),
        exponential(0.01).with("fraction-bits", 0).with("counter-bits", 2),
        exponential(0.5).with("epoch", 1),
        exponential(0.7).with("fraction-bits", 32).with("counter-bits", 64),
        exponential(0.9).with("epoch", YEAR),
        ring(ring::SLIDING_WINDOW, 1),
        ring(ring::LINEAR, 24).with("counter-bits", 3),
        ring(ring::SLIDING_WINDOW, 64).with("counter-bits", 64).with("cells", 100),
        ring(ring::LINEAR, 4096).with("counter-bits", 1).with("cells", 20),
    ] {
        let kind = made(&parameters);
        for pause in [0, 700, 3000, 100_000, 5 * HOUR] {
            conformance::lazy_is_eager(&kind, SMALL, 200, pause);
        }
        conformance::events_apply_once(&kind, SMALL, 100, HOUR);
        conformance::survives_torn_words(&kind, SMALL);
    }
}

#[test]
fn an_idle_key_is_forgotten_within_the_stated_half_lives() {
    for lambda in LAMBDAS {
        let half_life = HalfLife::new(lambda, 8).expect("a sound decay");
        let epochs = half_life.epochs_per_half_life();
        for weight in [1, 100, MOST_WEIGHT] {
            let mut harness = Harness::new(made(&exponential(lambda)), ONE_BLOCK);
            harness.insert_weighing(hash_of(1), TODAY, weight);
            let told = harness.estimate(hash_of(1)).expect("an estimate");
            let after = |epochs: u64| {
                let time = TODAY + epochs.saturating_mul(1000).min(u64::MAX - TODAY);
                harness.estimate_at(hash_of(1), time).expect("an estimate").count
            };
            let gone = theory::epochs_to_zero(&half_life, told.count) as u64;
            let surely = u64::from(theory::half_lives_to_zero(32)) * epochs;
            if surely < u64::MAX / 2000 {
                assert_eq!((after(gone), after(surely)), (0.0, 0.0), "{lambda}: {told:?}");
            }
            // Not before it has decayed below ε, that is, as long as 2^-8 of the weight is left.
            let alive = 256.0_f64.ln() / -lambda.ln() * 0.999;
            assert!(after(alive.floor() as u64) > 0.0, "{lambda}: {told:?}");
        }
    }
}

#[test]
fn between_grid_points_nothing_is_rewritten() {
    // A half-life is 69 epochs of 1000 microseconds each.
    let kind = made(&exponential(0.99));
    let mut harness = Harness::new(kind.clone(), ONE_BLOCK);
    harness.insert(hash_of(1), 69_000);
    let all: Vec<_> = harness.settled().into_iter().map(AtomicU64::new).collect();
    let (own, cells) = all[STATE_WORDS..].split_at(OWN_WORDS);
    let block = Block::alone(own, cells);
    let settled = |now: Micros| {
        let moment = Moment { time: now, now, totals: harness.totals() };
        kind.settle(&harness.state(), 0, &block, &moment);
        all.iter().map(load).collect::<Vec<_>>()
    };
    assert!(settled(137_999) == harness.settled());
    assert!(settled(138_000) != harness.settled());
    let told = |time| harness.estimate_at(hash_of(1), time).expect("an estimate").count;
    assert_eq!(told(69_000), 1.0);
    assert!((told(137_999) - 0.99_f64.powi(68)).abs() < 1e-12);
    // At the grid point it is rounded up to a unit.
    assert_eq!(told(138_000), (256.0 * 0.99_f64.powi(69)).ceil() / 256.0);
}

#[test]
fn a_steady_stream_counts_what_the_paper_says() {
    for lambda in [0.3, 0.9, 0.99, 0.999] {
        let kind = made(&exponential(lambda));
        let normaliser = kind.counts().and_then(|counts| counts.normaliser()).expect("it decays");
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let half_life = HalfLife::new(lambda, 8).expect("a sound decay");
        for epoch in 0..3000 {
            for _ in 0..5 {
                harness.insert(hash_of(1), TODAY + epoch * 1000);
            }
            let told = harness.estimate(hash_of(1)).expect("an estimate").count;
            let exact = theory::count_after(5.0, lambda, (epoch + 1) as f64);
            let (least, most) = theory::estimate_bounds(&half_life, exact);
            assert!(told > least && told < most, "{told} for {exact}");
        }
        let told = harness.estimate(hash_of(1)).expect("an estimate").count;
        // All but λ^3000 of it is present, 5 % for 0.999.
        let steady = theory::steady_count(5.0, lambda);
        assert!((0.94..1.01).contains(&(told / steady)));
        assert!((0.94..1.01).contains(&(told * normaliser / 5.0)));
    }
}

#[test]
fn normalised_rings_give_the_inserts_of_an_epoch() {
    for decay in [ring::SLIDING_WINDOW, ring::LINEAR] {
        let kind = made(&ring(decay, 12));
        let normaliser = kind.counts().and_then(|counts| counts.normaliser()).expect("it decays");
        let mut harness = Harness::new(kind, ONE_BLOCK);
        (0..100_u64).for_each(|epoch| {
            harness.insert_weighing(hash_of(1), epoch * 1000, 7);
        });
        let told = harness.estimate(hash_of(1)).expect("an estimate").count;
        assert!((told * normaliser - 7.0).abs() < 1e-12, "{told}");
    }
}

#[test]
fn keys_older_than_the_window_of_a_ring_are_too_late_and_others_count_in_their_own_epoch() {
    let mut harness = Harness::new(made(&ring(ring::SLIDING_WINDOW, 4)), ONE_BLOCK);
    harness.insert(hash_of(1), 10_999);
    assert_eq!(harness.insert(hash_of(2), 6999), Decision::TooLate);
    assert_eq!(harness.insert(hash_of(2), 7000), Decision::Insert { step: 10 });
    let told = |time| harness.estimate_at(hash_of(2), time).map(|estimate| estimate.count);
    assert_eq!([10_999, 11_000].map(told), [Some(1.0), Some(0.0)]);
}

#[test]
fn a_late_key_counts_what_is_left_of_it_and_a_unit_at_least() {
    // Half-lives of 7 epochs; the filter is in epoch 700.
    let mut harness = Harness::new(made(&exponential(0.9)), ONE_BLOCK);
    harness.insert(hash_of(1), 700_000);
    let mut late = |key, time| {
        harness.insert_weighing(hash_of(key), time, 1000);
        harness.estimate(hash_of(key)).expect("an estimate").count
    };
    assert_eq!(late(2, 700_000), 1000.0);
    for (key, epoch) in [(3, 699), (4, 690), (5, 650)] {
        let exact = 1000.0 * 0.9_f64.powi(700 - epoch);
        let told = late(key, epoch as u64 * 1000);
        assert!(told >= exact && told < exact + 2.0 / 256.0, "{told} for {exact}");
    }
    assert_eq!((late(6, 0), late(7, 0)), (1.0 / 256.0, 1.0 / 256.0));
}

/// Returns the number of hash functions in the completed parameters.
fn functions_of(parameters: &Parameters) -> u64 {
    made(parameters).parameters().required("k", "").expect("completed")
}

#[test]
fn a_full_count_of_a_ring_is_at_least_while_it_is_in_the_window() {
    let parameters = ring(ring::SLIDING_WINDOW, 3).with("counter-bits", 8);
    let mut harness = Harness::new(made(&parameters), ONE_BLOCK);
    harness.insert_weighing(hash_of(1), 0, 1000);
    harness.insert_weighing(hash_of(1), 1000, 3);
    assert_eq!(harness.metric("saturated"), functions_of(&parameters));
    let told = |epoch: u64| harness.estimate_at(hash_of(1), epoch * 1000);
    assert_eq!(told(2), Some(Estimate { count: 258.0, at_least: true }));
    assert_eq!(told(3), Some(Estimate { count: 3.0, at_least: false }));
}

#[test]
fn wide_counters_keep_the_wanted_rate_in_the_default_layout() {
    let probes = scaled(200_000).max(100_000);
    let of = |capacity: u64, epochs: u64, fpr: f64| {
        let parameters = ring(ring::SLIDING_WINDOW, epochs).with("capacity", capacity);
        let kind = made(&parameters.with("fpr", fpr));
        let block_words = kind.default_block_words();
        let layout = Layout { stripes: kind.default_stripes(block_words), block_words };
        let planned = kind.planned_fpr(layout);
        assert!(planned <= fpr, "{capacity} keys, {epochs} epochs, {fpr}: {planned}");
        (kind, layout, planned)
    };
    for capacity in [1, 70, 300, 1000, 100_000] {
        for epochs in [16, 32, 64, 256] {
            for fpr in [0.001, 1e-6] {
                of(capacity, epochs, fpr);
            }
        }
    }
    for capacity in [300, 5000] {
        let (kind, layout, planned) = of(capacity, 256, 0.001);
        let mut harness = Harness::new(kind, layout);
        (0..capacity).for_each(|key| {
            harness.insert(hash_of(key), TODAY);
        });
        let measured = harness.measured_fpr(probes);
        // 100 false positives or more: six standard deviations are below 60 %, and few keys vary as
        // well.
        let tolerance = 8.0 * (0.001 / probes as f64).sqrt();
        assert!((measured - planned).abs() < tolerance, "{measured}, planned {planned}");
    }
}

#[test]
fn the_measured_rate_at_capacity_is_the_planned_one_and_the_estimate_knows_it() {
    for (parameters, layout) in [
        (exponential(0.99), Layout { stripes: 4, block_words: 2048 }),
        (exponential(0.999).with("counter-bits", 16), Layout { stripes: 1, block_words: 512 }),
        (ring(ring::SLIDING_WINDOW, 4), Layout { stripes: 4, block_words: 2048 }),
    ] {
        let kind = made(&parameters.with("capacity", 50_000).with("fpr", 0.01));
        let planned = kind.planned_fpr(layout);
        let mut harness = Harness::new(kind, layout);
        (0..50_000).for_each(|key| {
            harness.insert(hash_of(key), TODAY);
        });
        let (measured, estimated) = (harness.measured_fpr(300_000), harness.estimated_fpr());
        println!(
            "decaying: measured {measured:.6}, estimated {estimated:.6}, planned {planned:.6}"
        );
        // 3,000 false positives: six standard deviations are below 11 %.
        let tolerance = 6.0 * (estimated / 300_000.0).sqrt();
        assert!((measured - estimated).abs() < tolerance, "{measured} against {estimated}");
        // Counters in use at capacity vary by far less than 1 %, the rate by k times that.
        assert!((planned / estimated - 1.0).abs() < 0.05, "planned {planned}");
        // The wider the cells, the fewer a block has; the plan is made for bits.
        assert!(estimated < 0.01 * 1.3);
    }
}

#[test]
fn a_filter_that_is_left_alone_empties_itself_and_its_estimated_rate_falls_to_zero() {
    let kind = made(&exponential(0.9));
    let mut harness = Harness::new(kind, SMALL);
    (0..1000).for_each(|key| {
        harness.insert_weighing(hash_of(key), TODAY, 1 + (mix(key) % 50) as u32);
    });
    assert!(harness.estimated_fpr() > 1e-4);
    // One insert in one block 34 half-lives later: the other blocks are settled, not touched.
    harness.insert(hash_of(5000), TODAY + 34 * 7 * 1000);
    assert!(harness.estimated_fpr() < 1e-12);
    assert!((0..1000).all(|key| !harness.contains(hash_of(key))));
}

#[test]
fn collisions_raise_estimates_no_more_often_than_the_bound_says() {
    let kind = made(&exponential(0.95).with("cells", 8192).with("k", 4));
    let mut harness = Harness::new(kind, ONE_BLOCK);
    let (mut exact, lambda) = (BTreeMap::new(), 0.95_f64);
    for i in 0..40_000_u64 {
        // A skewed choice of 4,000 keys; 100 inserts an epoch, 400 epochs.
        let key = (mix(i) % 4000) * (mix(!i) % 4000) / 4000;
        harness.insert(hash_of(key), TODAY + i / 100 * 1000);
        *exact.entry(key).or_insert(0.0) += lambda.powi(399 - (i / 100) as i32);
    }
    let total: f64 = exact.values().sum();
    assert!((total - theory::steady_count(100.0, lambda)).abs() < 1.0);
    for above in [1.0, 2.0, 4.0] {
        let excess = |&(&key, &count): &(&u64, &f64)| {
            harness.estimate(hash_of(key)).expect("an estimate").count >= count + above
        };
        let share = exact.iter().filter(excess).count() as f64 / exact.len() as f64;
        let bound = theory::chance_of_excess(total, 8192.0, 4, above);
        println!("above {above}: {share:.5}, bound {bound:.5}");
        // Markov's inequality is generous; the share of 3,000 keys varies by 1 % at most.
        assert!(share <= bound + 0.01);
    }
}

#[test]
fn times_from_zero_to_the_end_of_all_time_work() {
    for epoch in [1, YEAR, u64::MAX] {
        for lambda in [0.5, 0.9, 0.999_999] {
            let kind = made(&exponential(lambda).with("epoch", epoch));
            let mut harness = Harness::new(kind, ONE_BLOCK);
            for time in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX, 0] {
                harness.insert_weighing(hash_of(1), time, MOST_WEIGHT);
                assert!(harness.estimate(hash_of(1)).expect("an estimate").count > 0.0);
            }
            assert!(harness.settled() == harness.settled());
        }
        let kind = made(&ring(ring::LINEAR, 5).with("epoch", epoch));
        let mut harness = Harness::new(kind, ONE_BLOCK);
        for time in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            harness.insert(hash_of(1), time);
            assert!(harness.estimate(hash_of(1)).expect("an estimate").count >= 1.0);
        }
    }
}

#[test]
fn weights_are_whole_numbers_that_a_record_holds() {
    let kind = made(&exponential(0.9));
    for weight in [1, 2, 1000, MOST_WEIGHT] {
        assert_eq!(kind.weight(f64::from(weight)).expect("a weight"), u64::from(weight));
    }
    for other in [0.0, -1.0, 0.5, 1.5, MOST_COUNT as f64 + 1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(kind.weight(other), Err(Error::Parameter { .. })), "{other}");
    }
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    for parameters in [
        exponential(0.9),
        exponential(1e-300).with("cells", 1).with("k", 64),
        exponential(1.0_f64.next_down()).with("fraction-bits", 20),
        exponential(0.5).with("fraction-bits", 0).with("counter-bits", 2),
        exponential(0.5).with("fraction-bits", 32),
        exponential(0.5).with("fpr", 1e-9).with("decay", "exponential"),
        ring(ring::SLIDING_WINDOW, 1).with("counter-bits", 1),
        ring(ring::LINEAR, 256),
    ] {
        conformance::parameters_round_trip(NAME, &parameters);
    }
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    for lambda in ["0", "1", "-0.1", "1.1", "NaN", "inf", "x", ""] {
        conformance::refuses(NAME, &exponential(0.5).with("lambda", lambda), "lambda");
    }
    for (name, value) in [
        ("capacity", 0),
        ("k", 65),
        ("cells", 0),
        ("epoch", 0),
        ("fraction-bits", 33),
        ("counter-bits", 9),
        ("counter-bits", 65),
    ] {
        conformance::refuses(NAME, &exponential(0.5).with(name, value), name);
    }
    let sound = ring(ring::LINEAR, 10);
    for (name, value) in [("window-epochs", 0), ("window-epochs", 257), ("counter-bits", 65)] {
        conformance::refuses(NAME, &sound.clone().with(name, value), name);
    }
    conformance::refuses(NAME, &exponential(0.5).with("decay", "polynomial"), "kind");
    conformance::refuses(NAME, &exponential(0.5).with("window-epochs", 3), "kind");
    conformance::refuses(NAME, &sound.with("lambda", 0.5), "kind");
    conformance::refuses(NAME, &Parameters::new().with("capacity", 9).with("epoch", 1), "lambda");
    conformance::refuses(NAME, &Parameters::new().with("capacity", 9).with("lambda", 0.5), "epoch");
}
