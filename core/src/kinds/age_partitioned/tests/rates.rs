//! Claims about false-positive rates: the theory against known values, filters against the theory.

use super::super::theory::{Phase, fpr, fpr_run, sub_window_fpr};
use super::super::{COLUMNS, build, design, plan};
use super::raw;
use crate::block::Layout;
use crate::conformance::{Harness, hash_of};
use crate::kind::Parameters;
use std::f64::consts::LN_2;

#[test]
fn the_dynamic_program_gives_the_papers_rates() {
    for (k, l, rate) in [
        (7, 5, 0.0128),
        (10, 25, 0.0103),
        (13, 23, 0.00103),
        (14, 40, 0.00101),
        (17, 36, 1.01e-4),
        (20, 33, 1.01e-5),
    ] {
        let ours = fpr(k, l, LN_2, Phase::WORST);
        assert!((ours / rate - 1.0).abs() < 0.006, "({k}, {l}): {ours} for {rate}");
    }
}

#[test]
fn the_dynamic_program_counts_runs_exactly() {
    // Against the sum over all 2^10 patterns.
    let fills = [0.1, 0.3, 0.5, 0.45, 0.5, 0.9, 0.2, 0.5, 0.7, 0.5];
    for k in 1..=10 {
        let all = (0_u32..1 << 10).filter(|bits| {
            (0..=10 - k).any(|start| (start..start + k).all(|slice| bits >> slice & 1 == 1))
        });
        let exact: f64 = all
            .map(|bits| {
                let share = |(i, fill)| if bits >> i & 1 == 1 { fill } else { 1.0 - fill };
                fills.iter().copied().enumerate().map(share).product::<f64>()
            })
            .sum();
        let ours = fpr_run(fills, k);
        assert!((ours - exact).abs() < 1e-12, "k = {k}: {ours} for {exact}");
    }
}

#[test]
fn designs_are_the_planned_ones() {
    let table = [
        (0.1, [(5, 11, 0.587, 12.4), (7, 25, 0.712, 12.6), (8, 56, 0.692, 13.2)]),
        (1e-2, [(6, 10, 0.429, 22.4), (8, 24, 0.528, 20.2), (11, 53, 0.677, 19.6)]),
        (1e-3, [(7, 9, 0.356, 35.0), (10, 22, 0.503, 28.9), (12, 52, 0.559, 26.4)]),
        (1e-4, [(8, 8, 0.315, 50.8), (11, 21, 0.431, 38.8), (14, 50, 0.530, 33.8)]),
        (1e-5, [(9, 7, 0.294, 69.9), (12, 20, 0.382, 50.2), (16, 48, 0.511, 41.8)]),
        (1e-6, [(10, 6, 0.288, 92.5), (13, 19, 0.347, 63.1), (17, 47, 0.460, 50.3)]),
    ];
    for (wanted, row) in table {
        for (columns, (k, l, load, bits)) in COLUMNS.into_iter().zip(row) {
            let ours = design(wanted, columns).expect("a design");
            let ours_bits = f64::from(columns * ours.k) / (f64::from(ours.l) * ours.load);
            let about = format!("{wanted} in {columns}: {ours:?} at {ours_bits} bits a key");
            assert_eq!((ours.k, ours.l), (k, l), "{about}");
            assert!((ours.load - load).abs() < 0.0006, "{about}");
            assert!((ours_bits - bits).abs() < 0.06, "{about}");
        }
    }
}

#[test]
fn plans_keep_the_rate_at_little_more_than_the_theory_takes() {
    for (wanted, theory) in [(0.1, 12.4), (1e-2, 19.6), (1e-3, 26.4), (1e-4, 33.8), (1e-6, 50.3)] {
        let items = 1_000_000;
        let plan = plan(items, wanted, None).expect("a plan");
        let bits = plan.words as f64 * 64.0 / items as f64;
        println!("plan {wanted}: {plan:?} {bits:.2} bits a key");
        assert!(bits < theory * 1.02, "{wanted}: {bits} bits a key");
        let cells = plan.words * u64::from(64 / plan.columns);
        let load = f64::from(plan.k) * plan.generation as f64 / cells as f64;
        assert!(fpr(plan.k, plan.l, load, Phase::WORST) < wanted);
    }
}

#[test]
fn the_rate_of_a_sub_window_lies_below_that_of_the_whole() {
    let rates: Vec<_> = (0..=52).map(|j| sub_window_fpr(12, 52, j, 0.559, Phase::WORST)).collect();
    assert!(rates.is_sorted());
    assert_eq!(rates[52], fpr(12, 52, 0.559, Phase::WORST));
    assert!(rates[5] < rates[52] / 20.0, "{}", rates[5]);
}

/// Fills a filter up to a moment and compares the measured rate with the expected one.
fn measure(name: &str, harness: &mut Harness, fed: &mut u64, until: u64, probes: u64) {
    while *fed < until {
        harness.insert(hash_of(*fed), 0);
        *fed += 1;
    }
    let (measured, theory) = (harness.measured_fpr(probes), harness.estimated_fpr());
    println!(
        "{name}: measured {measured:.3e}, theory {theory:.3e}, ratio {:.3}",
        measured / theory
    );
    // The tolerance is 10 %, and four standard deviations of the count.
    let tolerance = 0.1 * theory + 4.0 * (theory / probes as f64).sqrt();
    assert!((measured - theory).abs() < tolerance, "{name}: {measured} for {theory}");
}

#[test]
fn the_measured_rate_is_the_theorys_at_any_moment() {
    let layout = Layout { stripes: 8, block_words: 2048 };
    for (k, l, load) in [(10, 25, LN_2), (14, 40, LN_2), (12, 52, 0.559)] {
        let words = 16 * 2048;
        let generation = (load * words as f64 / f64::from(k)) as u64;
        let n = u64::from(k + l);
        let mut harness = Harness::new(raw(k, l, generation, 64, words), layout);
        let mut fed = 0;
        for (moment, until, probes) in [
            ("warm-up, l/2", u64::from(l / 2) * generation + generation / 3, 500_000),
            ("steady, middle", 2 * n * generation + generation / 2, 500_000),
            ("steady, end", (2 * n + 1) * generation, 1_000_000),
        ] {
            let name = format!("({k}, {l}) {moment}");
            measure(&name, &mut harness, &mut fed, until, probes);
        }
    }
}

#[test]
fn the_rate_measured_on_a_default_filter_is_at_most_the_wanted_one() {
    let window = 200_000;
    let kind = build(&Parameters::new().with("window-items", window)).expect("a sound filter");
    let parameters = kind.parameters();
    let generation: u64 = parameters.required("generation", "").expect("completed");
    let stripes = kind.default_stripes(2048);
    let planned = kind.planned_fpr(Layout { stripes, block_words: 2048 });
    let mut harness = Harness::new(kind, Layout { stripes, block_words: 2048 });
    for key in 0..130 * generation {
        harness.insert(hash_of(key), 0);
    }
    let bits = harness.words() as f64 * 64.0 / window as f64;
    let (measured, expected) = (harness.measured_fpr(1_000_000), harness.estimated_fpr());
    println!("default: measured {measured:.3e}, expected {expected:.3e}, {bits:.2} bits a key");
    assert!(bits <= 27.5, "{bits} bits a key");
    assert!(expected <= 0.001, "{expected}");
    // The last insert of a generation is the worst moment.
    assert!((planned / expected - 1.0).abs() < 1e-9, "{planned}");
    // 1000 false positives: four standard deviations are 13 %.
    assert!(measured <= 0.00113, "{measured}");
}
