//! Claims about parameters: derived, completed, read back, refused.

use super::super::theory::{bits_a_key, swept_per_insert, values};
use super::*;

fn planned(window: u64, fpr: f64) -> Plan {
    let parameters = Parameters::new().with("window-items", window).with("fpr", fpr);
    Plan::from_parameters(&parameters, None).expect("a plan")
}

#[test]
fn block_timing_takes_the_memory_that_simulation_found() {
    for (fpr, from, to) in [(0.01, 38.0, 53.0), (0.001, 54.0, 75.0)] {
        for window in [30_000, 1_000_000, 100_000_000] {
            let plan = planned(window, fpr);
            let bits = plan.timers as f64 * f64::from(plan.bits) / window as f64;
            println!("block-timing {window} at {fpr}: {plan:?}, {bits:.1} bits a key");
            assert!((3..=5).contains(&plan.bits), "{plan:?}");
            // Blocks of a few thousand keys cost up to 2 %.
            assert!((from..to * 1.02).contains(&bits), "{bits} bits a key");
        }
    }
}

#[test]
fn timing_takes_what_the_paper_says_of_its_sample() {
    // Section 3.2: w = 2^20, 21 bits of which one is padding, m = 15,112,980, about 303 bits a key.
    let parameters = Parameters::new().with("window-items", 1 << 20);
    let plan = Plan::from_parameters(&parameters, Some(1)).expect("a plan");
    println!("timing: {plan:?}");
    assert_eq!((plan.bits, plan.k), (21, 10));
    // Its 433 keys a block, of 16 KiB, take slightly more than one large array.
    assert!((1.0..1.05).contains(&(plan.timers as f64 / 15_112_980.0)), "{plan:?}");
}

#[test]
fn sweeps_cost_no_more_than_two_timers_a_function() {
    for window in [1, 2, 3, 10, 100, 12_345, 1 << 20, 1 << 30] {
        for fpr in [0.1, 0.01, 0.001, 1e-6] {
            let parameters = Parameters::new().with("window-items", window).with("fpr", fpr);
            for batch in [None, Some(1)] {
                let plan = Plan::from_parameters(&parameters, batch).expect("a plan");
                let swept =
                    swept_per_insert(plan.timers as f64, plan.batch as f64, plan.padding as f64);
                // Half of the timers are in use only approximately: at whole `k`, and less in small
                // blocks and for the few timers of a tiny window.
                let most = if window < 10 { 4.0 } else { 2.7 };
                assert!(swept / f64::from(plan.k) < most, "{swept}: {plan:?}");
                assert!(values(window, plan.batch, plan.padding) <= 1 << plan.bits, "{plan:?}");
            }
        }
    }
}

#[test]
fn what_is_named_is_kept_and_the_rest_fits_it() {
    let asked = |pairs: &[(&str, u64)]| {
        let all = Parameters::new().with("window-items", 100_000).with("fpr", 0.01);
        let all = pairs.iter().fold(all, |all, (name, value)| all.with(name, value));
        Plan::from_parameters(&all, None).expect("a plan")
    };
    let plan = asked(&[("bits", 8)]);
    assert!(plan.bits == 8 && plan.batch < 1100 && plan.padding > 90, "{plan:?}");
    let plan = asked(&[("block-size", 10_000)]);
    assert!(plan.batch == 10_000 && plan.bits == 5 && plan.padding == 19, "{plan:?}");
    let plan = asked(&[("padding", 0), ("block-size", 20_000)]);
    assert_eq!((plan.bits, plan.padding, plan.batch), (3, 0, 20_000));
    let plan = asked(&[("bits", 2)]);
    assert_eq!((plan.bits, plan.padding, plan.batch), (2, 0, 100_000));
    let plan = asked(&[("k", 3)]);
    assert!(plan.k == 3 && plan.timers > asked(&[]).timers, "{plan:?}");
    let plan = asked(&[("timers", 500_000)]);
    // 500,000 timers for up to 133,333 inserts.
    assert!((plan.timers, plan.k) == (500_000, 3), "{plan:?}");
    let plan = asked(&[("block-size", 250_000), ("timers", 7), ("k", 64)]);
    assert_eq!((plan.batch, plan.timers, plan.k), (250_000, 7, 64));
    let plan = asked(&[("padding", 1 << 20)]);
    assert_eq!((plan.bits, plan.padding), (21, 1 << 20), "{plan:?}");
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    for name in [NAME, BLOCK_NAME] {
        let asked = Parameters::new().with("window-items", 20_000);
        conformance::parameters_round_trip(name, &asked);
        for fpr in [0.9, 0.1, 0.003, 1e-12] {
            conformance::parameters_round_trip(name, &asked.clone().with("fpr", fpr));
        }
        for window in [1_u64, 2, 17, 1 << 33] {
            conformance::parameters_round_trip(name, &asked.clone().with("window-items", window));
        }
        let some =
            [("k", 1), ("k", 64), ("timers", 1), ("bits", 40), ("padding", 0), ("padding", 77)];
        for (parameter, value) in some {
            conformance::parameters_round_trip(name, &asked.clone().with(parameter, value));
        }
    }
    let asked = Parameters::new().with("window-items", 20_000);
    for batch in [1_u64, 3, 20_000, 1 << 35] {
        conformance::parameters_round_trip(BLOCK_NAME, &asked.clone().with("block-size", batch));
    }
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    for name in [NAME, BLOCK_NAME] {
        let sound = Parameters::new().with("window-items", 1000).with("fpr", 0.01);
        for fpr in ["0", "1", "NaN", "x", ""] {
            conformance::refuses(name, &sound.clone().with("fpr", fpr), "fpr");
        }
        for (parameter, value) in [
            ("window-items", 0),
            ("window-items", 1 << 40),
            ("k", 0),
            ("k", 65),
            ("timers", 0),
            ("timers", 1 << 46),
            ("bits", 0),
            ("bits", 1),
            ("bits", 41),
            ("padding", u64::MAX),
        ] {
            conformance::refuses(name, &sound.clone().with(parameter, value), parameter);
        }
        conformance::refuses(name, &sound.clone().with("padding", -1), "padding");
        conformance::refuses(name, &Parameters::new(), "window-items");
        conformance::refuses(name, &sound.clone().with("window", 3), "kind");
        let few = sound.clone().with("bits", 9).with("padding", 600);
        conformance::refuses(name, &few, "bits");
    }
    let sound = Parameters::new().with("window-items", 1000);
    conformance::refuses(NAME, &sound.clone().with("block-size", 1), "kind");
    conformance::refuses(NAME, &sound.clone().with("bits", 9), "bits");
    // More than 8 TiB.
    conformance::refuses(NAME, &sound.clone().with("window-items", 1_u64 << 39), "window-items");
    conformance::refuses(BLOCK_NAME, &sound.clone().with("block-size", 0), "block-size");
    // 1000 inserts in batches of 10 take 103 values.
    let batches = sound.with("block-size", 10);
    conformance::refuses(BLOCK_NAME, &batches.clone().with("bits", 6), "bits");
    conformance::parameters_round_trip(BLOCK_NAME, &batches.with("bits", 7));
}

#[test]
fn bits_a_key_are_the_classical_ones_and_a_batch_more() {
    assert!((bits_a_key(3, 7, 3e6, 1e6) - 40.395).abs() < 0.001);
    assert!((bits_a_key(21, 10, 1048576.0, 1.0) - 303.0).abs() < 0.1);
}
