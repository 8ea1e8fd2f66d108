//! Claims about windows of time; their banks are tested in `scenario_tests`.

use super::*;
use crate::block::Layout;
use crate::conformance::{self, Harness, hash_of};
use crate::hash::mix;
use crate::kind::{Age, Decision, Event, Within};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::HashMap;

const SECOND: Micros = 1_000_000;

fn timed(window: Micros, fpr: f64) -> Arc<dyn Kind> {
    build(&Parameters::new().with("window", window).with("fpr", fpr)).expect("a filter")
}

/// Returns the duration of a generation.
fn pace(kind: &Arc<dyn Kind>, window: Micros) -> Micros {
    window.div_ceil(kind.parameters().required("generations", "").expect("completed"))
}

#[test]
fn it_keeps_the_contract() {
    for fpr in [0.05, 1e-3, 1e-4, 1e-6] {
        for layout in
            [Layout { stripes: 4, block_words: 64 }, Layout { stripes: 1, block_words: 2048 }]
        {
            conformance::keeps_the_contract(&timed(700_000, fpr), layout, 1000);
            // Enough keys that banks open.
            let small = Parameters::new().with("window", 2 * SECOND).with("fpr", fpr);
            let small = build(&small.with("rate", 1)).expect("a filter");
            conformance::keeps_the_contract(&small, layout, 900);
        }
    }
}

/// Returns the keys and times of a stream with all cases: bursts, gaps, silences, late keys.
fn varied(count: u64, window: Micros) -> impl Iterator<Item = (u64, Micros)> {
    let mut now = 5_000_000_000;
    (0..count).map(move |i| {
        now += match mix(i / 3000) % 5 {
            0 => window / 20_000,
            1 => window / 2000,
            2 => 0,
            3 => window / 200,
            _ => mix(i) % (window / 300),
        };
        if mix(i ^ 77).is_multiple_of(997) {
            now += window * (mix(i) % 5) / 3;
        }
        let late = if mix(i ^ 99).is_multiple_of(10) { mix(i) % window } else { 0 };
        // Half of the keys come again.
        (hash_of(if i % 2 == 0 { i } else { mix(i) % (i + 1) }), now - late)
    })
}

#[test]
fn the_planned_rate_is_that_of_a_bank_with_its_capacity_not_of_a_full_one() {
    for fpr in [1e-2, 1e-3, 1e-6] {
        let kind = timed(10 * SECOND, fpr);
        let [slots, bits] = ["slots", "bits"].map(|name| {
            let number: u64 = kind.parameters().required(name, "").expect("completed");
            number as u32
        });
        let planned = kind.planned_fpr(Layout { stripes: 2, block_words: 2048 });
        let full = theory::fpr(slots, bits, 1.0, 0.0);
        println!("{fpr}: {planned} {full}");
        assert!(planned <= fpr && (0.75..0.98).contains(&(planned / full)), "{planned} {full}");
    }
}

#[test]
fn a_key_is_present_for_the_whole_window_and_a_generation_longer_at_most() {
    let window = 10 * SECOND;
    for (fpr, block_words) in [(1e-3, 64), (1e-4, 512), (1e-6, 64)] {
        let small = Parameters::new().with("window", window).with("fpr", fpr).with("rate", 1);
        let kind = build(&small).expect("a filter");
        let pace = pace(&kind, window);
        let mut harness = Harness::new(kind, Layout { stripes: 4, block_words });
        let (mut last, mut now) = (HashMap::new(), 0);
        let (mut gone, mut found, mut refused, mut wrong) = (0_u64, 0_u64, 0_u64, 0_u64);
        for (number, (hash, time)) in varied(60_000, window).enumerate() {
            now = now.max(time);
            match harness.insert(hash, time) {
                Decision::Insert { .. } => {
                    let then = last.entry(hash).or_insert(0);
                    *then = time.max(*then);
                }
                Decision::TooLate => refused += 1,
            }
            assert!(time + window > now || refused > 0);
            if number % 500 != 0 {
                continue;
            }
            for (&hash, &time) in &last {
                if now < time + window {
                    assert!(harness.contains(hash), "at {now} a key of {time} is gone");
                    assert!(harness.contains_within(hash, Within::micros(now - time + 1)));
                    let age = harness.age(hash).expect("an age").width();
                    assert!(age <= now - time);
                    wrong += u64::from(age + pace < now - time);
                } else if now >= time + window + pace {
                    gone += 1;
                    found += u64::from(harness.contains(hash));
                }
            }
            last.retain(|_, time| now < *time + 3 * window);
        }
        let banks = harness.events().iter().filter(|e| matches!(e, Event::OpenBank { .. }));
        let banks = banks.count();
        assert!(banks > 0 && gone > 100_000);
        // Several banks may be full at once.
        assert!(found as f64 <= 3.0 * fpr * gone as f64 + 30.0, "{fpr}: {found} of {gone}");
        assert!(wrong as f64 <= 3.0 * fpr * 60_000.0 * 60.0 + 30.0, "{fpr}: {wrong}");
    }
}

#[test]
fn a_late_key_is_refused_exactly_when_its_window_is_over() {
    let window = 7 * SECOND;
    let mut harness = Harness::new(timed(window, 1e-3), Layout { stripes: 1, block_words: 64 });
    let now = 1000 * SECOND;
    harness.insert(hash_of(0), now);
    assert_eq!(harness.insert(hash_of(1), now - window), Decision::TooLate);
    assert!(!harness.contains(hash_of(1)));
    for late in [window - 1, window / 2, 1] {
        let hash = hash_of(late);
        assert!(matches!(harness.insert(hash, now - late), Decision::Insert { .. }), "{late}");
        assert!(harness.contains(hash));
        let end = now - late + window;
        assert!(harness.contains_at(hash, end - 1));
        assert!(!harness.contains_at(hash, end + pace(&timed(window, 1e-3), window)));
    }
}

#[derive(Debug, Clone, Copy)]
enum Action {
    /// Inserts a key, after a pause.
    Insert(u64, Micros),
    /// Inserts a key of an earlier time.
    Late(u64, Micros),
    /// Queries a key some time later, and within a part of the window.
    Ask(u64, Micros, Micros),
}

fn action() -> impl Strategy<Value = Action> {
    let pause = || prop_oneof![5 => 0..3_u64, 3 => 0..40_u64, 1 => 0..2000_u64];
    let key = || 0..60_u64;
    prop_oneof![
        6 => (key(), pause()).prop_map(|(a, b)| Action::Insert(a, b)),
        2 => (key(), 0..500_u64).prop_map(|(a, b)| Action::Late(a, b)),
        6 => (key(), pause(), 0..500_u64).prop_map(|(a, b, c)| Action::Ask(a, b, c)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..Default::default()
    })]

    /// With fingerprints of 29 bits the few keys never meet.
    #[test]
    fn answers_as_a_map_from_keys_to_generations_does(
        window in 1..600_u64, start in 0..1000_u64,
        actions in prop::collection::vec(action(), 1..300),
    ) {
        let kind = timed(window, 1e-8);
        let pace = pace(&kind, window);
        let generations: u64 = kind.parameters().required("generations", "").expect("completed");
        let mut harness = Harness::new(kind, Layout { stripes: 1, block_words: 64 });
        let (mut last, mut now) = (HashMap::<u64, u64>::new(), start);
        harness.advance(now);
        for action in actions {
            let mut insert = |harness: &mut Harness, key, time: u64, now| {
                let decision = harness.insert(hash_of(key), time);
                let late = time + window <= now;
                assert_eq!(decision == Decision::TooLate, late);
                if !late {
                    let generation = last.entry(key).or_insert(0);
                    *generation = (time / pace).max(*generation);
                }
            };
            match action {
                Action::Insert(key, pause) => {
                    now += pause;
                    insert(&mut harness, key, now, now);
                }
                Action::Late(key, ago) => insert(&mut harness, key, now.saturating_sub(ago), now),
                Action::Ask(key, later, age) => {
                    let (hash, then) = (hash_of(key), now + later);
                    let live = |generation: &u64| then / pace - generation <= generations;
                    let expected = last.get(&key).copied().filter(live);
                    let end = |generation: u64| then.saturating_sub((generation + 1) * pace);
                    prop_assert_eq!(harness.age_at(hash, then), expected.map(end).map(Age::micros));
                    prop_assert_eq!(harness.contains_at(hash, then), expected.is_some());
                    let oldest = (then + 1).saturating_sub(age.min(window)) / pace;
                    let within = expected.is_some_and(|generation| generation >= oldest);
                    let found = harness.contains_within_at(hash, then, Within::micros(age));
                    prop_assert_eq!(found, within);
                }
            }
        }
    }
}

#[test]
fn posteriors_of_present_keys_are_high_and_of_absent_ones_zero() {
    let window = 60 * SECOND;
    let kind = timed(window, 1e-3);
    let mut harness = Harness::new(kind, Layout { stripes: 1, block_words: 512 });
    for key in 0..20_000 {
        harness.insert(hash_of(key), SECOND + key * 6000);
    }
    let now = SECOND + 20_000 * 6000;
    for key in 15_000..20_000 {
        let posterior = harness.posterior_at(hash_of(key), now).expect("it infers");
        assert!(posterior > 0.5, "{key}: {posterior}");
    }
    for key in (0..5_000).chain(1 << 40..(1 << 40) + 5000) {
        let posterior = harness.posterior_at(hash_of(key), now).expect("it infers");
        assert!(posterior == 0.0 || harness.contains(hash_of(key)), "{key}: {posterior}");
    }
}

#[test]
fn parameters_build_the_same_filter_again() {
    for (window, fpr) in [(1, 1e-3), (60 * SECOND, 1e-2), (3600 * SECOND, 1e-4), (1 << 59, 1e-6)] {
        let asked = Parameters::new().with("window", window).with("fpr", fpr);
        conformance::parameters_round_trip(NAME, &asked);
        conformance::parameters_round_trip(NAME, &asked.with("rate", 0));
    }
    conformance::parameters_round_trip(
        NAME,
        &Parameters::new().with("window", SECOND).with("rate", 1e6),
    );
    let time = || Parameters::new().with("window", 60 * SECOND);
    conformance::refuses(NAME, &time().with("window-items", 5), "window-items");
    conformance::refuses(NAME, &time().with("words", 5), "words");
    for rate in ["-1", "NaN", "inf", "1e30"] {
        conformance::refuses(NAME, &time().with("rate", rate), "rate");
    }
    conformance::refuses(NAME, &Parameters::new().with("window", 0), "window");
    let items = Parameters::new().with("window-items", 60);
    conformance::refuses(NAME, &items.with("rate", 5), "rate");
    conformance::refuses(NAME, &Parameters::new(), "window-items");
}
