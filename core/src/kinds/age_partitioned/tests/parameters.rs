//! Claims about parameters: completed, read back, refused.

use super::super::plan::{words_for, words_of};
use super::super::theory::{Phase, fpr};
use super::super::{COLUMNS, NAME, Plan, build, plan};
use crate::block::Layout;
use crate::conformance;
use crate::error::Error;
use crate::kind::Parameters;
use std::f64::consts::LN_2;

#[test]
fn tiny_windows_take_fewer_slices() {
    for items in 1..300 {
        let plan = plan(items, 0.001, None).expect("a plan");
        assert!(u64::from(plan.l) <= items);
        let held = plan.generation * u64::from(plan.l);
        assert!(held >= items && held - items < u64::from(plan.l), "{items}: {plan:?}");
        let load = f64::from(plan.k) * plan.generation as f64
            / (plan.words * u64::from(64 / plan.columns)) as f64;
        assert!(fpr(plan.k, plan.l, load, Phase::WORST) < 0.001, "{items}: {plan:?}");
    }
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    let asked = Parameters::new().with("window-items", 20_000);
    conformance::parameters_round_trip(NAME, &asked);
    for fpr in [0.5, 0.1, 0.003, 1e-9] {
        conformance::parameters_round_trip(NAME, &asked.clone().with("fpr", fpr));
    }
    for window in [1, 2, 17, 1 << 30] {
        conformance::parameters_round_trip(NAME, &asked.clone().with("window-items", window));
    }
    for columns in COLUMNS {
        conformance::parameters_round_trip(NAME, &asked.clone().with("columns", columns));
    }
    let pair = asked.clone().with("k", 14).with("l", 40);
    conformance::parameters_round_trip(NAME, &pair.clone().with("fpr", 0.001));
    conformance::parameters_round_trip(NAME, &pair.clone().with("words", 5));
    conformance::parameters_round_trip(NAME, &pair.with("generation", 777));
    conformance::parameters_round_trip(NAME, &asked.with("k", 1).with("l", 63));
}

#[test]
fn named_slices_take_the_classical_memory_and_their_rate_is_checked() {
    let pair = Parameters::new().with("window-items", 40_000).with("k", 14).with("l", 40);
    let kind = build(&pair.clone().with("fpr", 0.001)).expect("0.00101 is near enough");
    assert_eq!(kind.first_words(), (14.0 * 1000.0 / LN_2).ceil() as u64);
    let kind = build(&pair).expect("without a ceiling");
    let reached: f64 = kind.parameters().required("fpr", "").expect("completed");
    assert!((reached / 0.00101 - 1.0).abs() < 0.006);
    conformance::refuses(NAME, &pair.with("fpr", 0.0009), "fpr");
}

#[test]
fn a_larger_generation_takes_more_words_and_keeps_the_rate() {
    let asked = Parameters::new().with("window-items", 1_000_000);
    let planned = build(&asked).expect("a kind");
    for generation in [20_000, 100_000, 1_000_000] {
        let kind = build(&asked.clone().with("generation", generation)).expect("a kind");
        let layout = Layout { stripes: 8, block_words: 2048 };
        let rate = kind.planned_fpr(layout);
        assert!(rate <= 0.001, "{generation}: {rate}");
        assert!(kind.first_words() > planned.first_words(), "{generation}");
    }
}

#[test]
fn equal_hashes_are_planned_for_the_keys_that_a_filter_holds() {
    let items = 10_000_000_000;
    let planned = plan(items, 1e-9, None).expect("a rate that 1.1 times as many keys leave");
    // The birthday bound of the keys of a window and a generation, over hashes of 64 bits.
    let keys = (f64::from(planned.l) + 1.0) * planned.generation as f64;
    assert!(keys < 1.1 * items as f64 && keys / 2_f64.powi(64) < 1e-9, "{keys}");
    let load = f64::from(planned.k) * planned.generation as f64
        / (planned.words * u64::from(64 / planned.columns)) as f64;
    let of_rows = fpr(planned.k, planned.l, load, Phase::WORST);
    assert!(of_rows + keys / 2_f64.powi(64) <= 1e-9, "{of_rows}");
    let error = plan(20_000_000_000, 1e-9, None).expect_err("no plan");
    assert!(error.to_string().contains("fpr"), "{error}");
}

#[test]
fn a_plan_for_no_items_or_of_another_width_is_an_error() {
    let about = |error: Error| match error {
        Error::Parameter { name, .. } => name,
        other => panic!("{other:?}"),
    };
    let plan = |items, columns| plan(items, 0.001, columns).expect_err("no plan");
    assert_eq!(about(plan(0, None)), "window-items");
    for columns in [0, 8, 48, 65, 128, u32::MAX] {
        assert_eq!(about(plan(1000, Some(columns))), "columns");
        assert_eq!(about(words_for(4, 100, 0.5, columns).expect_err("no words")), "columns");
        let of = Plan { k: 4, l: 4, columns, generation: 100, words: 100 };
        assert_eq!(about(words_of(&of, 50).expect_err("no words")), "columns");
    }
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    let sound = Parameters::new().with("window-items", 1000).with("fpr", 0.01);
    for fpr in ["0", "1", "-0.1", "NaN", "inf", "x", ""] {
        conformance::refuses(NAME, &sound.clone().with("fpr", fpr), "fpr");
    }
    for window in [0, 1 << 45, 1 << 60, u64::MAX] {
        conformance::refuses(NAME, &sound.clone().with("window-items", window), "window-items");
    }
    let certain = sound.clone().with("fpr", 1e-300).with("window-items", 1 << 30);
    conformance::refuses(NAME, &certain, "fpr");
    conformance::refuses(NAME, &sound.clone().with("columns", 8), "columns");
    conformance::refuses(NAME, &sound.clone().with("k", 3), "l");
    conformance::refuses(NAME, &sound.clone().with("l", 3), "k");
    let pair = sound.clone().with("k", 8).with("l", 20);
    for (name, value, about) in [
        ("k", 0, "k"),
        ("l", 0, "l"),
        ("k", 45, "k"),
        ("l", 57, "k"),
        ("k", u64::MAX, "k"),
        ("columns", 16, "k"),
        ("words", 0, "words"),
        ("words", u64::MAX, "words"),
        ("generation", 0, "generation"),
        ("generation", 1001, "generation"),
        ("window-items", 19, "l"),
        ("window-items", 1 << 47, "window-items"),
    ] {
        conformance::refuses(NAME, &pair.clone().with("fpr", 0.5).with(name, value), about);
    }
    let slow = pair.clone().with("fpr", 0.5).with("generation", 49);
    conformance::refuses(NAME, &slow, "generation");
    conformance::refuses(NAME, &Parameters::new().with("fpr", 0.01), "window-items");
    conformance::refuses(NAME, &sound.with("window", 3), "kind");
}
