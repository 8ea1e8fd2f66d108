//! Claims about distinct keys that only this kind has: closed buckets, several banks, large
//! filters. The claims about all kinds are in `distinct_tests`.

use crate::hash::mix;
use crate::kind::{Parameters, Within};
use crate::kinds::distinct_tests::{ALL_REPEATS, Errors, Watched, off};
use crate::test_effort::scaled;

const NAME: &str = "fingerprint";

fn last(window: u64, fpr: f64) -> Parameters {
    Parameters::new().with("window-items", window).with("fpr", fpr)
}

#[test]
fn standard_errors_are_right_over_many_filters() {
    let window = 20_000;
    for (fpr, least) in [(0.02, 0.8), (0.01, 0.8), (0.001, 0.6)] {
        let mut errors = Errors::default();
        for repeats in ALL_REPEATS {
            for seed in 0..50 {
                let mut watched = Watched::new(NAME, last(window, fpr), 1000 + seed);
                let inserts = window * 5 / 4 + 37 * seed;
                (0..inserts).for_each(|at| watched.insert(repeats.key(seed, at, window), 1 << 40));
                errors.add(watched.ask(None));
            }
        }
        errors.check(&format!("at {fpr}"), least);
    }
}

#[test]
fn large_filters_are_right_to_a_thousandth_in_each_sub_window() {
    let window = 300_000;
    for fpr in [0.01, 0.001] {
        for repeats in ALL_REPEATS {
            let mut watched = Watched::new(NAME, last(window, fpr), 1);
            (0..window * 9 / 4).for_each(|at| watched.insert(repeats.key(1, at, window), 1 << 40));
            for part in [20, 4, 2, 1] {
                let within = Within::Items(window / part);
                let (answer, truth) = watched.ask(Some(within));
                assert!(answer.reach.width() >= window / part, "{answer:?}");
                assert!(answer.reach.width() <= window / part + window.div_ceil(14), "{answer:?}");
                let error = answer.keys / truth - 1.0;
                println!("{fpr} {repeats:?} 1/{part}: {truth} keys, error {error:.6}");
                assert!(error.abs() < 1e-3, "{fpr} {repeats:?}: {answer:?} of {truth}");
            }
        }
    }
}

/// Returns the closed buckets and the buckets of a filter.
fn closed(watched: &Watched) -> (u64, u64) {
    let mut figures = watched.machine.figures().into_iter();
    let closed = figures.find(|(name, _)| *name == "closed_buckets");
    let cells = watched.machine.stat(0, u64::MAX).cells;
    (closed.expect("a metric of this kind").1, cells / 4)
}

#[test]
fn the_keys_of_closed_buckets_are_counted_too() {
    let window = 40_000;
    let plan = super::super::build(&last(window, 0.001)).expect("a filter").first_words();
    for (memory, least_closed, most_error) in
        [(1.0, 0.0, 0.001), (0.96, 0.0, 0.01), (0.93, 0.02, 0.1), (0.8, 0.5, 0.2)]
    {
        for seed in 0..scaled(8) {
            let words = (plan as f64 * memory) as u64;
            let parameters = last(window, 0.001).with("words", words).with("slots", 4);
            let parameters = parameters.with("bits", 13).with("generations", 14).with("moves", 8);
            let mut watched = Watched::new(NAME, parameters, 50 + seed);
            (0..window * 5 / 2 + 100 * seed).for_each(|at| watched.insert(at, 1 << 40));
            let (closed, buckets) = closed(&watched);
            let share = closed as f64 / buckets as f64;
            assert!(share >= least_closed, "{share} of the buckets are closed");
            for part in [1, 2, 5] {
                let answered = watched.ask(Some(Within::Items(window / part)));
                let (answer, truth) = answered;
                let error = answer.keys / truth - 1.0;
                println!(
                    "closed, {memory} 1/{part} {share:.4} {error:.5} {:.2} {:.5}",
                    off(answered),
                    answer.standard_error / truth
                );
                assert!(error.abs() < most_error, "{memory}: {answer:?} of {truth}");
                assert!(off(answered).abs() < 4.0, "{memory}: {answer:?} of {truth}");
            }
        }
    }
}

const SECOND: u64 = 1_000_000;

/// Inserts keys at `a_second`, for some seconds; each key of the last window comes again with this
/// probability.
fn stream(
    watched: &mut Watched,
    (from, now): (&mut u64, &mut u64),
    seconds: u64,
    a_second: u64,
    again: f64,
) {
    for at in 0..seconds * a_second {
        *now += SECOND / a_second;
        let random = mix(at ^ *now);
        let key = match (random >> 11) as f64 / (1_u64 << 53) as f64 {
            share if share < again && *from > 0 => mix(random) % *from,
            _ => {
                *from += 1;
                *from
            }
        };
        watched.insert(key, *now);
    }
}

#[test]
fn a_key_in_several_banks_counts_once() {
    for growth in ["rate", "keys"] {
        let (mut errors, mut summed) = (Errors::default(), 0);
        for seed in 0..10 {
            let parameters = Parameters::new().with("window", 100 * SECOND).with("fpr", 0.001);
            let parameters = parameters.with("growth", growth).with("rate", 20);
            let mut watched = Watched::new(NAME, parameters, 7 + seed);
            let (mut from, mut now) = (0, 1 << 40);
            // The rate rises by far, so that banks open, then falls.
            for (seconds, a_second, again) in
                [(50, 20, 0.3), (20, 300, 0.6), (20, 2000, 0.7), (30, 100, 0.8)]
            {
                for _ in 0..2 {
                    stream(&mut watched, (&mut from, &mut now), seconds / 2, a_second, again);
                    if watched.machine.stat(now, 1).banks < 2 {
                        continue;
                    }
                    for seconds in [10, 30, 60, 100] {
                        let part = Within::micros(seconds * SECOND);
                        let answered = watched.ask(Some(part));
                        errors.add(answered);
                        let (answer, truth) = answered;
                        assert!((answer.keys / truth - 1.0).abs() < 0.01, "{answer:?} of {truth}");
                    }
                    let (_, truth) = watched.ask(None);
                    let slots = watched.machine.stat(now, u64::MAX);
                    let slots = slots.fill * slots.cells as f64;
                    summed += u64::from(slots > 1.1 * truth);
                }
            }
        }
        assert!(summed >= 10, "several banks held many keys twice: {summed}");
        errors.check(&format!("several banks, growth by {growth}"), 0.3);
    }
}
