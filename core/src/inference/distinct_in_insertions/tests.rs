//! Claims about `D(j)`.

use super::*;
use crate::hash::mix;

/// From 1 to 2^44: about 500 values that are no nodes of the table, and whole numbers where they
/// matter.
fn places() -> impl Iterator<Item = f64> {
    let few = (1..64).map(f64::from);
    few.chain((0..440).map(|step| (f64::from(step) * 0.1 + 0.037).exp2()))
}

fn relative(found: f64, expected: f64) -> f64 {
    (found - expected).abs() / expected
}

/// Checks the properties that every `D` has, whatever the keys.
fn is_sound(distinct: &Distinct, universe: f64) {
    assert_eq!(distinct.of(0.0), 0.0);
    assert_eq!(distinct.of(0.25), 0.25);
    assert!((distinct.of(1.0) - 1.0).abs() < 1e-8, "{}", distinct.of(1.0));
    let (mut before, mut rise) = ((1.0, distinct.of(1.0)), f64::INFINITY);
    for step in 1..=2 * STEPS as u32 + 64 {
        let j = (f64::from(step) / 64.0).exp2();
        let d = distinct.of(j);
        assert!(d >= before.1, "it falls at {j}: {} {d}", before.1);
        assert!(d <= j.min(universe) * (1.0 + 1e-8), "D({j}) = {d} of {universe}");
        // Chords of a concave function fall; these may rise by a thousandth, and by a negligible
        // part of the mean rise.
        let (chord, rounding) = ((d - before.1) / (j - before.0), 1e-9 * d / j);
        assert!(chord <= rise * (1.0 + 1e-3) + rounding, "not concave at {j}: {rise} {chord}");
        (before, rise) = ((j, d), chord);
    }
    assert!(distinct.of(f64::INFINITY) >= before.1);
    assert!(distinct.of(f64::INFINITY) <= universe);
    assert_eq!([-1.0, f64::NEG_INFINITY, f64::NAN].map(|j| distinct.of(j)), [0.0; 3]);
}

#[test]
fn d_rises_from_0_over_1_to_all_keys_and_is_concave() {
    for universe in [1, 2, 10, 1 << 16, 1 << 40, 1 << 63, u64::MAX] {
        is_sound(&Distinct::uniform(universe).expect("keys"), universe as f64);
        for exponent in [0.0, 0.7, 1.0, 1.5, 3.0] {
            let distinct = Distinct::power_law(universe, exponent).expect("keys");
            is_sound(&distinct, universe as f64);
        }
    }
    is_sound(&Distinct::ALL, f64::INFINITY);
    is_sound(&Distinct::of_probabilities([0.5, 0.3, 0.2]).expect("keys"), 3.0);
    is_sound(&Distinct::of_probabilities([0.5, 0.0]).expect("keys"), f64::INFINITY);
    is_sound(&Distinct::of_probabilities([]).expect("keys"), f64::INFINITY);
    let points = [(10.0, 9.0), (1000.0, 500.0), (2000.0, 500.0)];
    is_sound(&Distinct::sampled(&points).expect("points"), 500.0);
}

#[test]
fn the_table_is_equation_16_to_four_digits() {
    for universe in [1, 3, 1000, 1 << 16, 1 << 32, 1 << 63] {
        let distinct = Distinct::uniform(universe).expect("keys");
        for j in places() {
            let (found, expected) = (distinct.of(j), uniform(universe, j));
            assert!(relative(found, expected) < 2e-5, "D({j}) of {universe}: {found} {expected}");
        }
    }
}

#[test]
fn equation_16_keeps_its_digits_where_the_printed_form_has_none_left() {
    // 1 - 1/2^63 is 1 in an f64.
    let universe = 1_u64 << 63;
    assert_eq!(uniform(universe, 1.0), 1.0);
    // j - j(j-1)/2|U| + ...
    let j = 2_f64.powi(40);
    assert!(relative(uniform(universe, j), j - j * (j / 2_f64.powi(64))) < 1e-12);
    assert!(
        relative(uniform(universe, 2_f64.powi(63)), 2_f64.powi(63) * (1.0 - (-1_f64).exp()))
            < 1e-12
    );
    assert_eq!((uniform(0, 5.0), uniform(7, 0.0), uniform(1, 3.0)), (0.0, 0.0, 1.0));
}

#[test]
fn differences_are_right_while_there_is_anything_new_to_meet() {
    for universe in [1000_u64, 1 << 16, 1 << 30] {
        let (distinct, keys) = (Distinct::uniform(universe).expect("keys"), universe as f64);
        for since in (0..60).map(|step| keys * f64::from(step) * 0.237) {
            for batch in [1e-4, 0.01, 0.3, 1.0, 3.0].map(|share| share * keys) {
                let exact = keys
                    * met((-1.0 / keys).ln_1p(), batch)
                    * (since * (-1.0 / keys).ln_1p()).exp();
                if exact > 1e-6 * keys {
                    let found = distinct.of(since + batch) - distinct.of(since);
                    assert!(
                        relative(found, exact) < 0.02,
                        "{universe} {since} {batch}: {found} {exact}"
                    );
                }
            }
        }
    }
}

fn zipf(universe: u64, exponent: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=universe).map(|rank| (rank as f64).powf(-exponent)).collect();
    let sum: f64 = weights.iter().rev().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[test]
fn grouped_power_laws_are_the_full_sum() {
    for exponent in [0.0, 0.5, 1.0, 1.3, 2.0, 4.0] {
        let keys = zipf(50_000, exponent);
        let groups = Groups::of_power_law(50_000, exponent);
        let distinct = Distinct::power_law(50_000, exponent).expect("keys");
        assert_eq!(groups.keys(), 50_000.0);
        for j in [1.0, 7.0, 100.0, 3e3, 1e5, 1.7e6, 3e8, 1e12] {
            let expected = of_each(&keys, j);
            let (exactly, tabulated) = (groups.distinct(j), distinct.of(j));
            assert!(relative(exactly, expected) < 1e-3, "{exponent} D({j}): {exactly} {expected}");
            assert!(
                relative(tabulated, exactly) < 2e-4,
                "{exponent} D({j}): {tabulated} {exactly}"
            );
        }
    }
}

#[test]
fn grouped_lists_are_the_full_sum() {
    // Uniform, over twenty octaves, and of two classes.
    let shapes: [fn(f64) -> f64; 3] =
        [|x| x, |x| (20.0 * x).exp2(), |x| if x < 0.1 { 1000.0 } else { 1.0 }];
    for (shape, weight) in shapes.into_iter().enumerate() {
        let random = (0..20_000).map(|key| (mix(key) >> 11) as f64 / (1_u64 << 53) as f64);
        let weights: Vec<f64> = random.map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let keys: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
        let distinct = Distinct::of_probabilities(keys.iter().copied()).expect("probabilities");
        for j in [1.0, 5.0, 333.0, 1e4, 1e5, 1e6, 1e8, 1e11] {
            let (found, expected) = (distinct.of(j), of_each(&keys, j));
            assert!(relative(found, expected) < 1e-3, "{shape} D({j}): {found} {expected}");
        }
    }
}

#[test]
fn what_a_list_lacks_of_1_are_keys_that_never_come_again() {
    let distinct = Distinct::of_probabilities([0.5, 0.25]).expect("probabilities");
    assert!(relative(distinct.of(1000.0), 252.0) < 1e-6, "{}", distinct.of(1000.0));
    let rounded = Distinct::of_probabilities(vec![0.1; 10]).expect("probabilities");
    assert!(relative(rounded.of(1e13), 10.0) < 1e-9);
}

#[test]
fn harmonic_numbers_are_those_of_the_sum() {
    for (universe, exponent) in
        [(1_u32, 1.0), (100, 1.0), (65_536, 1.0), (65_536, 0.5), (9999, 2.5)]
    {
        let sum: f64 = (1..=universe).rev().map(|x| f64::from(x).powf(-exponent)).sum();
        let found = harmonic(u64::from(universe), exponent);
        assert!(relative(found, sum) < 1e-8, "{universe} {exponent}: {found} {sum}");
    }
    // ln n + γ + 1/2n, and no step where the exponent passes 1.
    let expected = 40.0 * std::f64::consts::LN_2 + 0.577_215_664_901_532_9;
    assert!(relative(harmonic(1 << 40, 1.0), expected) < 1e-8);
    assert!(relative(harmonic(1 << 40, 1.0 + 1e-12), expected) < 1e-8);
}

#[test]
fn equation_17_is_near_equation_15_where_it_holds() {
    let (universe, distinct) = (1 << 16, Distinct::power_law(1 << 16, 1.0).expect("keys"));
    let ratio = |j: f64| power_law_approximated(universe, j) / distinct.of(j);
    for j in [10.0, 100.0, 1e3, 1e4, 65_536.0] {
        println!("equation 17 over equation 15 at {j}: {:.4}", ratio(j));
        assert!((ratio(j) - 1.0).abs() < 0.06, "{j}: {}", ratio(j));
    }
    // Outside that range.
    assert!(ratio(1.0) > 1.15);
    assert!(ratio(1e7) < 0.5);
}

#[test]
fn points_are_met_and_joined_as_equation_18_says() {
    // The paper does not print the measured points of its Source IP stream; these have that form.
    let points =
        [(10.0, 9.5), (100.0, 80.0), (1e3, 500.0), (1e4, 2e3), (1e5, 6e3), (262_144.0, 9e3)];
    let distinct = Distinct::sampled(&points).expect("points");
    for (j, d) in points {
        // A point inside a step is slightly cut off.
        assert!(relative(distinct.of(j), d) < 1e-3, "D({j}): {} {d}", distinct.of(j));
    }
    for pair in points.windows(2) {
        let j = (pair[0].0 * pair[1].0).sqrt();
        let expected = (pair[0].1 * pair[1].1).sqrt();
        assert!(relative(interpolated(pair[0], pair[1], j), expected) < 1e-12);
        assert!(relative(distinct.of(j), expected) < 2e-5);
    }
    assert!(relative(distinct.of(3.0), interpolated((1.0, 1.0), points[0], 3.0)) < 2e-5);
    let beyond = interpolated(points[4], points[5], 1e9);
    assert!(relative(distinct.of(1e9), beyond) < 2e-5, "the last slope continues");
    let given = Distinct::sampled(&[(1.0, 1.0), (10.0, 9.5)]).expect("points");
    assert_eq!(given, Distinct::sampled(&[(10.0, 9.5)]).expect("points"));
    // No stream grows faster than j: 1 key in 10 inserts, then 90 in 90.
    let steep = Distinct::sampled(&[(10.0, 1.0), (100.0, 91.0)]).expect("points");
    assert!(relative(steep.of(1000.0), 910.0) < 2e-5, "{}", steep.of(1000.0));
}

#[test]
fn parameters_that_make_no_d_are_refused() {
    let name = |result: Result<Distinct>| match result.expect_err("it makes no D") {
        Error::Parameter { name, .. } => name,
        other => panic!("{other}"),
    };
    assert_eq!(name(Distinct::uniform(0)), "universe");
    assert_eq!(name(Distinct::power_law(0, 1.0)), "universe");
    for exponent in [-0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(name(Distinct::power_law(10, exponent)), "exponent");
    }
    for p in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(name(Distinct::of_probabilities([0.1, p])), "probability");
    }
    assert_eq!(name(Distinct::of_probabilities([0.6, 0.6])), "probabilities");
    let wrong: [&[(f64, f64)]; 12] = [
        &[],
        &[(1.0, 1.0)],
        &[(0.0, 0.0), (10.0, 5.0)],
        &[(1.0, 0.9), (10.0, 5.0)],
        &[(10.0, 0.5)],
        &[(10.0, 11.0)],
        &[(10.0, 5.0), (10.0, 6.0)],
        &[(10.0, 5.0), (9.0, 6.0)],
        &[(10.0, 5.0), (20.0, 4.0)],
        &[(f64::NAN, 5.0)],
        &[(10.0, f64::NAN)],
        &[(f64::INFINITY, 5.0)],
    ];
    for points in wrong {
        assert_eq!(name(Distinct::sampled(points)), "points", "{points:?}");
    }
}
