//! Claims about posteriors: predicted probabilities equal observed frequencies.

use super::tests::tiny;
use super::*;
use crate::conformance::{Calibration, Harness, hash_of};
use crate::hash::mix;
use crate::inference::{Belief, Distinct, Form, Survival};

const WINDOW: Micros = 10_000_000;
const LAYOUT: Layout = Layout { stripes: 1, block_words: 512 };

/// Returns a number from 0 to 1.
fn uniform(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns the errors of the posteriors of windows of all widths and of ages, after `windows`
/// windows of a stream of `universe` equally likely keys. Inserts are Poisson distributed, 5000 a
/// window on average; `rate` is relative to that, by windows passed.
fn errors(universe: u64, windows: f64, rate: impl Fn(f64) -> f64) -> (f64, f64) {
    let mut harness = Harness::new(tiny(WINDOW, 12, 50, 0.55), LAYOUT);
    let mut last = vec![None; universe as usize];
    let (start, mean) = (1_700_000_000_000_000_u64, 5000.0 / WINDOW as f64);
    let (mut passed, end, mut inserts) = (0.0, windows * WINDOW as f64, 0_u64);
    loop {
        let now = rate(passed / WINDOW as f64);
        // A silence has no inserts.
        passed +=
            if now > 0.0 { -uniform(inserts ^ 0x7 << 40).ln() / (mean * now) } else { 1000.0 };
        if passed >= end {
            break;
        }
        if now > 0.0 {
            inserts += 1;
            let key = mix(inserts ^ 0xfeed << 40) % universe;
            last[key as usize] = Some(start + passed as u64);
            harness.insert(hash_of(key), start + passed as u64);
        }
    }
    let now = start + end as u64;
    let survival = Survival::of_rate(inserts as f64 / end / universe as f64);
    let belief = Belief {
        probability: 1.0 / universe as f64,
        survival,
        distinct: &Distinct::ALL,
        form: Form::Refined,
        width: u64::MAX,
    };
    let (mut windows, mut ages) = (Calibration::default(), Calibration::default());
    for i in 0..4000_u64 {
        let key = mix(i ^ 0xa5c << 40) % universe;
        let age = last[key as usize].map(|at: u64| now - at);
        let (told, history) = harness.ages_at(hash_of(key), now, &belief);
        let within = |width: u64| age.is_some_and(|age| age < width);
        let width = mix(i ^ 0x51de << 40) % (WINDOW * 5 / 4);
        windows.add(told.within(width.min(history)), within(width));
        for part in 0..50 {
            let [from, to] = [part, part + 1].map(|part| (part * WINDOW / 50).min(history));
            ages.add(told.between(from..to), within(to) && !within(from));
        }
    }
    (windows.error(), ages.error())
}

#[test]
fn posteriors_are_calibrated_at_constant_and_at_changing_rates_and_over_silences() {
    let steady = |_: f64| 1.0;
    let waves = |passed: f64| 1.0 + 0.9 * (passed * 10.0).sin();
    let silences = |passed: f64| if passed.fract() < 0.5 { 2.0 } else { 0.0 };
    let rates: [(&str, &dyn Fn(f64) -> f64); 3] =
        [("steady", &steady), ("waves", &waves), ("silences", &silences)];
    for (name, rate) in rates {
        for universe in [1500, 10_000, 100_000] {
            for windows in [0.6, 3.3] {
                let (windows_error, ages) = errors(universe, windows, rate);
                let about = format!("{name} of {universe} after {windows} windows");
                println!("{about}: {windows_error:.4} {ages:.4}");
                // For 4000 keys, including all certain answers; the guarantee is 0.03 and 0.05.
                assert!(windows_error < 0.02, "{about}: windows {windows_error}");
                assert!(ages < 0.015, "{about}: ages {ages}");
            }
        }
    }
}

#[test]
fn a_long_silence_does_not_count_against_what_came_before_it() {
    let mut harness = Harness::new(tiny(WINDOW, 12, 50, 0.55), LAYOUT);
    let start = 1_700_000_000_000_000;
    for i in 0..500 {
        harness.insert(hash_of(i), start + i * 1000);
    }
    // Half a window later, a key that would have been inserted 100 times meanwhile.
    let now = start + WINDOW / 2;
    harness.insert(hash_of(1000), now);
    let survival = Survival::of_rate(100.0 / (WINDOW / 2) as f64);
    let belief = Belief {
        probability: 0.01,
        survival,
        distinct: &Distinct::ALL,
        form: Form::Refined,
        width: u64::MAX,
    };
    let told = harness.ages_at(hash_of(250), now, &belief).0;
    assert!(told.within(WINDOW) > 0.99, "{}", told.within(WINDOW));
    assert!(told.within(WINDOW / 3) < 0.01, "{}", told.within(WINDOW / 3));
}

/// The rows of older banks are the only evidence that these keys are old: those of the youngest
/// bank have none of their bits.
#[test]
fn a_key_that_only_an_older_bank_has_is_not_certain_to_be_in_a_window_younger_than_that() {
    const SECOND: Micros = 1_000_000;
    let parameters = Parameters::new().with("window", 60 * SECOND).with("fpr", 0.1);
    let kind = build(&parameters.with("rate", 100)).expect("a kind");
    let mut harness = Harness::new(kind, Layout { stripes: 1, block_words: 512 });
    let start = 1_700_000_000 * SECOND;
    let old = 40 * 100;
    for key in 0..old {
        harness.insert(hash_of(key), start + key * 10_000);
    }
    // A second bank opens, and takes keys for two seconds.
    let (burst, mut keys, mut after) = (start + 40 * SECOND, 0, 0);
    while after < 2 * 3000 {
        harness.insert(hash_of((1 << 40) + keys), burst + keys * 1000 / 3);
        keys += 1;
        after += u64::from(harness.state().banks().count() > 1);
        assert!(keys < 15 * 3000, "no second bank");
    }
    let now = burst + keys * 1000 / 3;
    let belief = Belief {
        probability: 1e-7,
        survival: Survival::of_rate(1e-7 * 3000.0 / 1e6),
        distinct: &Distinct::ALL,
        form: Form::Refined,
        width: 5 * SECOND,
    };
    let mut both = 0;
    for key in 0..old {
        let told = harness.ages_at(hash_of(key), now, &belief).0;
        let posterior = told.within(belief.width);
        assert!(posterior < 0.5, "key {key}: {posterior}, {told:?}");
        both += u32::from(posterior > 0.0);
    }
    assert!(both > 0, "no key has bits in both banks");
}
