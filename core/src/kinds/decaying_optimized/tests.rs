//! Claims about the optimized time-decaying filter.

mod model;
mod parameters;
mod pool;
mod streams;

use super::*;
use crate::conformance::{self, Harness, Model, Step, hash_of};
use crate::kind::{MOST_COUNT, MOST_WEIGHT, Within};
use crate::kinds::registry;
use model::{Naive, insert_late};
use proptest::prelude::*;

const ONE_BLOCK: Layout = Layout { stripes: 1, block_words: 2048 };

/// Microseconds of an epoch.
const EPOCH: Micros = 10;

/// A filter and its model.
#[derive(Debug, Clone, Copy)]
struct Setting {
    lambda: f64,
    fraction: u32,
    cells: u64,
    k: u32,
    pool: f64,
    mode: Mode,
    front_bits: u64,
}

impl Setting {
    const USUAL: Self = Self {
        lambda: 0.9,
        fraction: 8,
        cells: 500,
        k: 4,
        pool: 0.5,
        mode: Mode::None,
        front_bits: 300,
    };

    fn kind(&self) -> Arc<dyn Kind> {
        let front_bits = if self.mode == Mode::None { 0 } else { self.front_bits };
        let parameters = Parameters::new()
            .with("capacity", 100)
            .with("cells", self.cells)
            .with("k", self.k)
            .with("lambda", self.lambda)
            .with("epoch", EPOCH)
            .with("fraction-bits", self.fraction)
            .with("pool", self.pool)
            .with("front", self.mode.name())
            .with("front-bits", front_bits);
        build(&parameters).expect("a sound filter")
    }

    fn harness(&self) -> Harness {
        Harness::new(self.kind(), ONE_BLOCK)
    }

    fn model(&self, pool: Option<u64>) -> Naive {
        let half_life = HalfLife::new(self.lambda, self.fraction).expect("a sound decay");
        let size = (self.cells as usize, self.k, pool);
        Naive::new((half_life, EPOCH), size, (self.mode, self.front_bits as usize))
    }

    fn digits(&self) -> u64 {
        (self.cells as f64 * self.pool).ceil() as u64
    }
}

/// Returns small blocks with all fronts and pools, so that keys collide, lines outgrow their
/// shares, and pools are exhausted.
fn settings() -> impl Strategy<Value = Setting> {
    let lambda = prop_oneof![Just(0.3), Just(0.5), Just(0.7), Just(0.95)];
    let pool = prop_oneof![Just(0.0), Just(0.1), Just(0.5), Just(4.0)];
    let mode = prop_oneof![Just(Mode::Swapped), Just(Mode::Plain), Just(Mode::None)];
    let size = (1_u64..200, 1_u32..9, 1_u64..300);
    (lambda, 0_u32..12, pool, mode, size).prop_map(
        |(lambda, fraction, pool, mode, (cells, k, front_bits))| {
            let front_bits = front_bits.min(cells * 64);
            Setting { lambda, fraction, cells, k, pool, mode, front_bits }
        },
    )
}

/// Returns steps with weights from one to a quarter of a million, small ones more often, and pauses
/// from none to several lifetimes of the front.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = || (0_u32..14, 0_u64..1).prop_flat_map(|(log, _)| 0..1_u64 << log);
    let insert = (any::<u8>(), pause(), 0_u32..18)
        .prop_flat_map(|(key, pause, log)| (Just(key), Just(pause), 1..=1_u32 << log))
        .prop_map(|(key, pause, weight)| Step::InsertWeighing(key % 64, pause / 8, weight));
    let ask = (any::<u8>(), pause())
        .prop_map(|(key, pause)| Step::Ask(key % 64, pause, Within::Items(1)));
    prop::collection::vec(prop_oneof![2 => insert, 1 => ask], 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn one_block_answers_as_whole_counters_and_a_count_of_their_digits(
        setting in settings(),
        steps in steps(),
    ) {
        let (mut harness, mut model) = (setting.harness(), setting.model(Some(setting.digits())));
        conformance::answers_as_the_model(&mut harness, &mut model, &steps);
        prop_assert_eq!(harness.metric("pool_exhaustions"), model.exhaustions);
        prop_assert_eq!(harness.metric("pool_in_use"), model.in_use());
        let flagged = model.flagged.iter().filter(|&&flagged| flagged).count() as u64;
        prop_assert_eq!(harness.metric("counters_flagged"), flagged);
    }

    #[test]
    fn an_estimate_is_that_of_the_basic_filter_or_says_at_least(
        setting in settings(),
        inserts in prop::collection::vec((0_u64..64, 0_u64..40, 1_u32..500), 1..200),
    ) {
        let setting = Setting { mode: Mode::None, ..setting };
        let (mut harness, mut basic) = (setting.harness(), setting.model(None));
        let mut now = 0;
        for (key, pause, weight) in inserts {
            now += pause;
            harness.insert_weighing(hash_of(key), now, weight);
            basic.insert_weighing(hash_of(key), now, weight);
        }
        for later in [0, 5, 50, 500, 5000] {
            for key in 0..80 {
                let told = harness.estimate_at(hash_of(key), now + later).expect("it counts");
                let whole = basic.estimate(hash_of(key), now + later).expect("it counts");
                if told.at_least {
                    prop_assert!(harness.metric("pool_exhaustions") > 0);
                    prop_assert!(told.count <= whole.count);
                } else {
                    prop_assert_eq!(told.count, whole.count);
                }
            }
        }
    }

    #[test]
    fn late_keys_count_for_what_is_left_of_them(
        setting in settings(),
        inserts in prop::collection::vec((0_u64..64, 0_u64..60, 0_u64..2000, 1_u32..50), 1..100),
    ) {
        let (mut harness, mut model) = (setting.harness(), setting.model(Some(setting.digits())));
        let mut now = 0;
        for (key, pause, late, weight) in inserts {
            now += pause;
            let time = if key % 2 == 0 { now } else { now.saturating_sub(late) };
            insert_late((&mut harness, &mut model), hash_of(key), (time, now), weight);
            prop_assert_eq!(harness.estimate(hash_of(key)), model.estimate(hash_of(key), now));
        }
        for key in 0..80 {
            prop_assert_eq!(harness.estimate(hash_of(key)), model.estimate(hash_of(key), now));
        }
    }

    #[test]
    fn a_no_says_that_the_exact_count_is_below_epsilon_and_an_estimate_keeps_its_bounds(
        setting in settings(),
        inserts in prop::collection::vec((0_u64..40, 0_u64..3000, 1_u32..100), 1..150),
    ) {
        let lambda = setting.lambda;
        let bounds = HalfLife::new(lambda, setting.fraction).expect("a sound decay");
        let mut harness = setting.harness();
        let mut exact = [0.0_f64; 40];
        let mut now = 0;
        for (key, pause, weight) in inserts {
            // Most pauses are short; a few are longer than a lifetime.
            let pause = if pause % 16 == 0 { pause } else { pause % 16 };
            let epochs = ((now + pause) / EPOCH - now / EPOCH) as i32;
            exact.iter_mut().for_each(|count| *count *= lambda.powi(epochs));
            now += pause;
            exact[key as usize] += f64::from(weight);
            harness.insert_weighing(hash_of(key), now, weight);
            for (key, &count) in exact.iter().enumerate() {
                let told = harness.estimate(hash_of(key as u64)).expect("it counts");
                prop_assert!(told.at_least || told.count > count - bounds.epsilon());
                if !harness.contains(hash_of(key as u64)) {
                    prop_assert!(count < theory::epsilon(setting.fraction));
                }
            }
        }
    }
}

#[test]
fn it_keeps_the_contract_of_all_kinds() {
    let layout = Layout { stripes: 4, block_words: 64 };
    for mode in [Mode::Swapped, Mode::Plain, Mode::None] {
        for (lambda, pool) in [(0.4, 0.5), (0.9, 0.02), (0.999, 0.5)] {
            let setting = Setting { cells: 3000, lambda, pool, mode, ..Setting::USUAL };
            for pause in [0, 1, 7, 300] {
                conformance::lazy_is_eager(&setting.kind(), layout, 1000, pause);
            }
            conformance::survives_torn_words(&setting.kind(), layout);
        }
    }
}

#[test]
fn blocks_that_catch_up_late_and_at_once_hold_the_same_when_the_pool_is_short() {
    let setting = Setting { pool: 0.1, cells: 400, mode: Mode::Swapped, ..Setting::USUAL };
    let (mut lazy, mut eager) = (setting.harness(), setting.harness());
    for round in 0..3000_u64 {
        let (key, weight) = (round * round % 97, (round % 37 + 1) as u32);
        let time = round * 3 + round / 500 * 4000;
        lazy.insert_weighing(hash_of(key), time, weight);
        eager.insert_weighing(hash_of(key), time, weight);
        eager.advance(time + 2);
        eager.settle_in_place();
        let [told, settled] =
            [&lazy, &eager].map(|harness| harness.estimate_at(hash_of(key), time + 2));
        assert_eq!(told, settled);
    }
    lazy.advance(2999 * 3 + 5 * 4000 + 2);
    assert!(lazy.metric("pool_exhaustions") > 0, "a pool that is short");
    assert!(lazy.settled() == eager.settled());
}

#[test]
fn an_idle_filter_gives_all_digits_back() {
    let mut harness = Setting { mode: Mode::Swapped, ..Setting::USUAL }.harness();
    (0..50).for_each(|key| {
        harness.insert_weighing(hash_of(key), 5, 1000);
    });
    assert!(harness.metric("pool_in_use") >= 50 * 2);
    // Half-lives of 7 epochs: 1000 · 2^8 takes 19, and two lifetimes of the front 66.
    harness.advance(5 + 67 * 7 * EPOCH);
    assert!((0..50).all(|key| harness.estimate(hash_of(key)).expect("it counts").count == 0.0));
    harness.settle_in_place();
    assert_eq!((harness.metric("pool_in_use"), harness.sample().fill()), (0, 0.0));
    let settled = harness.settled();
    assert_eq!(settled.iter().rev().take(100).max(), Some(&0), "nothing is left");
}

#[test]
fn a_mark_outlives_what_was_lost_and_no_more_than_two_lifetimes() {
    let setting = Setting { pool: 0.0, mode: Mode::None, lambda: 0.5, ..Setting::USUAL };
    let mut harness = setting.harness();
    harness.insert_weighing(hash_of(1), 0, 1 << 20);
    // With λ of one half, half-lives are epochs: a quarter of a thousandth of 2^20 is left after
    // 28.
    for epochs in 0..=28 {
        let told = harness.estimate_at(hash_of(1), epochs * EPOCH).expect("it counts");
        assert!(told.at_least && told.count < 16.0);
        assert!(harness.contains_at(hash_of(1), epochs * EPOCH));
    }
    let lifetime = theory::lifetime(32);
    assert!(harness.contains_at(hash_of(1), (2 * lifetime - 1) * EPOCH));
    assert!(!harness.contains_at(hash_of(1), 2 * lifetime * EPOCH));
    harness.insert(hash_of(2), 2 * lifetime * EPOCH);
    assert_eq!(harness.metric("counters_flagged"), 0);
    assert_eq!(harness.metric("pool_exhaustions"), 4);
}

#[test]
fn a_counter_at_its_largest_says_at_least() {
    let setting = Setting { fraction: 8, k: 1, cells: 10, ..Setting::USUAL };
    let mut harness = setting.harness();
    (0..3).for_each(|_| {
        harness.insert_weighing(hash_of(1), 0, MOST_WEIGHT);
    });
    let told = harness.estimate(hash_of(1)).expect("it counts");
    let most = f64::from(u32::MAX) / 256.0;
    assert!(told.at_least && told.count == most, "{told:?}");
    assert_eq!((harness.metric("saturated"), harness.metric("pool_exhaustions")), (2, 0));
}
