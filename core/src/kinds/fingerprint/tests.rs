//! Claims about windows of inserts.

pub(super) mod shapes;

use super::*;
use crate::block::Layout;
use crate::conformance::{self, Harness, hash_of};
use crate::hash::mix;
use crate::kind::{Age, CountedGenerations, Totals, Within};
use crate::test_effort::scaled;
use std::collections::HashMap;

fn items(window: u64, fpr: f64) -> Arc<dyn Kind> {
    build(&Parameters::new().with("window-items", window).with("fpr", fpr)).expect("a filter")
}

/// Rates of buckets of each width and number of slots.
const RATES: [f64; 7] = [0.05, 1e-2, 2e-3, 1e-3, 1e-4, 1e-6, 1e-8];

fn number(kind: &Arc<dyn Kind>, name: &'static str) -> u64 {
    kind.parameters().required(name, "").expect("completed")
}

#[test]
fn it_keeps_the_contract() {
    for fpr in RATES {
        for (window, layout) in [
            (300, Layout { stripes: 1, block_words: 64 }),
            (700, Layout { stripes: 4, block_words: 64 }),
            (40, Layout { stripes: 2, block_words: 2048 }),
        ] {
            conformance::keeps_the_contract(&items(window, fpr), layout, 1);
        }
    }
}

/// Filters that overflow all the time: every insert moves slots, or closes a bucket.
#[test]
fn it_keeps_the_contract_and_all_keys_when_it_is_far_too_small() {
    for (slots, bits, generations) in [(4, 13, 14), (3, 16, 30), (5, 23, 11), (2, 4, 1)] {
        let window = 1000;
        let parameters = Parameters::new().with("fpr", 0.3).with("slots", slots);
        let parameters = parameters.with("bits", bits).with("generations", generations);
        let parameters = parameters.with("words", 64).with("window-items", window);
        let kind = build(&parameters).expect("a filter");
        let layout = Layout { stripes: 1, block_words: 64 };
        conformance::keeps_the_contract(&kind, layout, 1);
        let mut harness = Harness::new(kind, layout);
        for key in 0..3000 {
            harness.insert(hash_of(key), 0);
            let oldest = key.saturating_sub(window);
            assert!(harness.contains(hash_of(oldest + mix(key) % (key - oldest + 1))));
        }
        assert!(harness.metric("closed_buckets") > 0 && harness.metric("closings") > 0);
        assert!(harness.sample().fill() > 0.9 || bits < 8);
    }
}

#[test]
fn a_key_is_present_for_the_whole_window_and_then_gone() {
    for fpr in RATES {
        for block_words in [64, 512] {
            let window = 6_000;
            let kind = items(window, fpr);
            let generations = number(&kind, "generations");
            let gone = (generations + 1) * window.div_ceil(generations);
            let planned = kind.planned_fpr(Layout { stripes: 8, block_words });
            let mut harness = Harness::new(kind, Layout { stripes: 8, block_words });
            let (mut late, mut asked) = (0_u64, 0_u64);
            for key in 0..4 * window {
                harness.insert(hash_of(key), 0);
                // Key i has key - i inserts after it.
                let newest_out = key.saturating_sub(window);
                assert!(harness.contains(hash_of(newest_out)), "{newest_out} of {key}");
                let probe = newest_out + hash_of(key) % (key - newest_out + 1);
                assert!(harness.contains(hash_of(probe)), "{probe} of {key}");
                if key > 2 * window {
                    // Gone one generation later, but for false positives.
                    asked += 1;
                    late += u64::from(harness.contains(hash_of(key - gone)));
                }
            }
            let most = planned * asked as f64;
            assert!(late as f64 <= most + 5.0 * most.sqrt() + 1.0, "{fpr}: {late} of {asked}");
        }
    }
}

#[test]
fn ages_and_sub_windows_are_exact_to_the_generation() {
    for fpr in [1e-4, 1e-6] {
        let window = 5_000;
        let kind = items(window, fpr);
        let generation = window.div_ceil(number(&kind, "generations"));
        let mut harness = Harness::new(kind, Layout { stripes: 4, block_words: 128 });
        let mut renewed = 0;
        for key in 0..4 * window {
            harness.insert(hash_of(key), 0);
            let after = hash_of(key ^ 0xa9e) % window.min(key + 1);
            let asked = key - after;
            let hash = hash_of(asked);
            // Inserts of younger generations than the key's.
            let least = (key / generation - asked / generation) * generation;
            let least = least.saturating_sub(generation - 1 - key % generation);
            let Some(Age::Items(age)) = harness.age(hash) else { panic!("{after} before {key}") };
            assert!(age <= after, "{age} of {after}");
            renewed += u64::from(age != least);
            assert!(harness.contains_within(hash, Within::Items(after + 1)), "{after}, {key}");
            assert!(harness.contains_within(hash, Within::Items(age + 1)));
            let missed = least == age && age > 0;
            assert!(!missed || !harness.contains_within(hash, Within::Items(age)));
            assert!(harness.contains_within(hash, Within::micros(1)));
        }
        // Another key renews a slot with the probability of a false positive.
        assert!(renewed as f64 <= 4.0 * fpr * 4.0 * window as f64 + 3.0, "{fpr}: {renewed}");
    }
}

#[test]
fn a_repeated_key_renews_its_slot_and_takes_no_memory() {
    let window = 4_000;
    let mut harness = Harness::new(items(window, 1e-3), Layout { stripes: 1, block_words: 512 });
    for insert in 0..5 * window {
        harness.insert(hash_of(insert % 500), 0);
    }
    let live = harness.sample().fill() * harness.words() as f64 * 4.0;
    assert!((499.0..=500.5).contains(&live), "{live}");
    assert!((0..500).all(|key| harness.contains(hash_of(key))));
}

/// Inserts keys by their number, whole generations, and returns the next.
fn feed(harness: &mut Harness, from: u64, inserts: u64, of: impl Fn(u64) -> u64) -> u64 {
    (from..from + inserts).for_each(|insert| {
        harness.insert(mix(of(insert) ^ 0xfeed << 40), 0);
    });
    from + inserts
}

#[test]
fn the_measured_rate_is_that_of_the_formula() {
    for (fpr, window, probes) in [
        (0.05, 200_000, 40_000),
        (1e-2, 200_000, 200_000),
        (1e-3, 200_000, 1_000_000),
        (1e-4, 100_000, 3_000_000),
    ] {
        let kind = items(window, fpr);
        let layout = Layout { stripes: 2, block_words: 2048 };
        let planned = kind.planned_fpr(layout);
        let generations = number(&kind, "generations");
        let length = window.div_ceil(generations);
        let mut harness = Harness::new(kind, layout);
        // Just before a shift, in the steady state.
        feed(&mut harness, 0, length * (2 * generations + 1), |key| key);
        let (measured, estimated) = (harness.measured_fpr(probes), harness.estimated_fpr());
        // Some keys find the slot of another, and take none.
        let part = estimated / planned;
        assert!((0.995 - fpr..1.005).contains(&part), "{fpr}: {estimated} {planned}");
        assert!(planned <= fpr);
        let deviation = (planned / probes as f64).sqrt();
        assert!((measured - estimated).abs() < 3.0 * deviation, "{fpr}: {measured} {estimated}");
    }
}

#[test]
fn nothing_drifts_in_many_windows_of_churn() {
    for fpr in [1e-2, 1e-3, 1e-4, 1e-6] {
        let window = 15_000;
        let kind = items(window, fpr);
        let layout = Layout { stripes: 1, block_words: 1024 };
        let planned = kind.planned_fpr(layout);
        let mut harness = Harness::new(kind, layout);
        let mut next = feed(&mut harness, 0, 2 * window, |key| key);
        let mut figures = Vec::new();
        for _ in 0..6 {
            next = feed(&mut harness, next, 10 * window, |key| key);
            figures.push((harness.sample().fill(), harness.estimated_fpr()));
        }
        let fills = figures.iter().map(|figure| figure.0);
        let spread = fills.clone().fold(0.0, f64::max) - fills.fold(1.0, f64::min);
        // At different moments of a generation.
        assert!(spread < 0.08, "{fpr}: {figures:?}");
        assert!(figures.iter().all(|figure| figure.1 < 1.05 * planned), "{fpr}: {figures:?}");
        assert!(harness.metric("closings") <= 2, "{fpr}: {}", harness.metric("closings"));
    }
}

#[test]
fn a_stream_by_the_power_law_takes_part_of_the_slots() {
    let window = 20_000;
    let mut harness = Harness::new(items(window, 1e-3), Layout { stripes: 1, block_words: 2048 });
    let mut last = HashMap::new();
    for insert in 0..6 * window {
        // About 1/x: the key of a uniform logarithm.
        let uniform = (mix(insert) >> 11) as f64 / (1_u64 << 53) as f64;
        let key = (1e6_f64.powf(uniform)) as u64;
        harness.insert(hash_of(key), 0);
        last.insert(key, insert);
        if insert % 997 == 0 {
            let inside = last.iter().filter(|(_, then)| insert - **then < window);
            inside.for_each(|(key, _)| assert!(harness.contains(hash_of(*key)), "{key}"));
        }
    }
    assert!(harness.sample().fill() < 0.5 && harness.metric("closings") == 0);
}

#[test]
fn an_empty_slot_is_no_key_and_fingerprint_zero_is_one() {
    let layout = Layout { stripes: 1, block_words: 64 };
    let mut harness = Harness::new(items(100, 0.05), layout);
    assert!((0..5000).all(|key| !harness.contains(mix(key))));
    // Of fingerprints of 8 bits some are 0.
    for key in 0..2000 {
        harness.insert(mix(key), 0);
        assert!(harness.contains(mix(key)));
    }
}

#[test]
fn an_insert_under_the_next_generation_lives_as_long_as_it_should() {
    let kind = items(140, 1e-4);
    let generations = CountedGenerations { length: 140_u64.div_ceil(number(&kind, "generations")) };
    let layout = Layout { stripes: 1, block_words: 64 };
    let mut harness = Harness::new(kind.clone(), layout);
    (0..50).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    let moment =
        crate::kind::Moment { time: 0, now: 0, totals: Totals { inserts: 50, new_bits: 0 } };
    let events = kind.events().expect("generations");
    let step = events.step_without(&harness.state(), &moment).expect("a step");
    let open = CountedGenerations::current(&harness.state());
    assert_eq!(step, open + 1);
    assert!(generations.length > 0);
    // Inserted under the step after the open one, then under the open one again.
    harness.with_block(hash_of(99), |block| {
        let state = harness.state();
        let operation = |key: u64, step| crate::kind::Operation {
            change: crate::kind::Change::Insert,
            hash: hash_of(key),
            step,
            time: 0,
            weight: 1,
        };
        let blocks = crate::block::Blocks::One(0, *block);
        kind.insert(&state, &blocks, &operation(99, step));
        kind.insert(&state, &blocks, &operation(98, open));
    });
    for key in (0..50).chain([98, 99]) {
        assert!(harness.contains(hash_of(key)), "{key}");
    }
    let life = number(&kind, "generations");
    let after = |steps: u64| open + steps;
    let there = |harness: &Harness, key: u64| harness.contains(hash_of(key));
    for step in 1..=life + 2 {
        let step = after(step);
        harness.apply(crate::kind::Event::Step { step, time: 0, word: 50 + step });
        assert_eq!(there(&harness, 98), step <= open + life, "step {step}");
        assert_eq!(there(&harness, 99), step <= open + 1 + life, "step {step}");
    }
}

#[test]
fn parameters_build_the_same_filter_again() {
    for fpr in RATES {
        for window in [1, 13, 14, 15, 100, 1_000_000, 3_000_000_000_u64] {
            let asked = Parameters::new().with("window-items", window).with("fpr", fpr);
            conformance::parameters_round_trip(NAME, &asked);
        }
    }
    let shape = |slots: &str, bits: &str, generations: &str| {
        let all = Parameters::new().with("window-items", 1000).with("fpr", 0.01);
        all.with("slots", slots).with("bits", bits).with("generations", generations)
    };
    conformance::parameters_round_trip(NAME, &shape("4", "12", "7"));
    conformance::parameters_round_trip(NAME, &shape("4", "12", "7").with("words", 77));
    conformance::refuses(NAME, &shape("4", "12", "7").with("words", 0), "words");
    conformance::refuses(NAME, &shape("1", "12", "7"), "slots");
    conformance::refuses(NAME, &shape("9", "12", "7"), "slots");
    conformance::refuses(NAME, &shape("4", "3", "7"), "bits");
    conformance::refuses(NAME, &shape("4", "33", "7"), "bits");
    conformance::refuses(NAME, &shape("4", "12", "63"), "generations");
    conformance::refuses(NAME, &shape("8", "12", "30"), "generations");
    conformance::refuses(NAME, &shape("8", "16", "7"), "bits");
    conformance::refuses(NAME, &shape("8", "4", "2"), "bits");
    conformance::refuses(NAME, &Parameters::new().with("window-items", 0), "window-items");
    conformance::refuses(
        NAME,
        &Parameters::new().with("window-items", 5).with("fpr", 1e-15),
        "fpr",
    );
    let some = Parameters::new().with("window-items", 5).with("slots", 4);
    conformance::refuses(NAME, &some, "slots");
}

#[test]
fn small_filters_of_low_rates_close_no_bucket() {
    for window in [10, 100, 700] {
        for seed in 0..scaled(40_000 / window) {
            let kind = items(window, 1e-9);
            let block_words = kind.default_block_words();
            let layout = Layout { stripes: kind.default_stripes(block_words), block_words };
            let mut harness = Harness::new(kind, layout);
            let key = |at: u64| mix(seed << 32 | at);
            (0..4 * window).for_each(|at| _ = harness.insert(key(at), 0));
            assert_eq!(harness.metric("closings"), 0, "{window} {seed}");
            let held = (3 * window..4 * window).all(|at| harness.contains(key(at)));
            assert!(held, "{window} {seed}");
            let gone = (0..window).all(|at| !harness.contains(key(at)));
            assert!(gone, "{window} {seed}");
        }
    }
}

#[test]
fn fewer_words_than_the_keys_take_promise_no_rate() {
    let asked = Parameters::new().with("window-items", 4000).with("fpr", 0.01);
    let asked = asked.with("slots", 5).with("bits", 10).with("generations", 14).with("moves", 8);
    // 5 slots in each word, for up to 4290 keys.
    let layout = Layout { stripes: 1, block_words: 2048 };
    for (words, promised, counted) in
        [(800, 1.0..=1.0, 0.1..1.0), (1100, 0.005..=0.01, 0.005..0.011)]
    {
        let kind = build(&asked.clone().with("words", words)).expect("a sound filter");
        let planned = kind.planned_fpr(layout);
        assert!(promised.contains(&planned), "{words}: {planned}");
        let mut harness = Harness::new(kind, layout);
        (0..12_298).for_each(|key| {
            harness.insert(hash_of(key), 0);
        });
        let measured = harness.measured_fpr(200_000);
        assert!(counted.contains(&measured), "{words}: {measured}");
    }
}

#[test]
fn an_absent_key_has_two_chances_to_find_a_closed_bucket() {
    for (closed, rate) in [(0.5, 0.75), (0.75, 0.9375), (1.0, 1.0)] {
        assert!((theory::fpr(4, 12, 0.0, closed) - rate).abs() < 1e-12, "{closed}");
    }
}
