//! The pieces of a timing filter against the theorems as printed, and against sums of the series;
//! extremes.

use super::*;
use proptest::prelude::*;

/// The pieces of a timing filter (lemmas 1 and 2, divided by `F(·)`): `since = (λ-1)B+b` or 0,
/// `inserts = B` or `b`.
fn timer_pieces(since: u64, inserts: u64, likelihood: f64) -> [Piece; 2] {
    let to = since + inserts;
    [Piece { from: since, to, likelihood: 1.0 }, Piece { from: to, to: Piece::ENDLESS, likelihood }]
}

fn window(p: f64, width: u64, pieces: &[Piece]) -> f64 {
    let survival = Survival::of_inserts(p);
    window_posterior(survival, width, |tell| pieces.iter().copied().for_each(tell))
}

/// Equation 23 (theorem 3), as printed.
fn theorem_3(p: f64, w: f64, b: f64, f: f64) -> f64 {
    let q = 1.0 - p;
    1.0 - q.powf(w) / ((1.0 - q.powf(b)) / f + q.powf(b))
}

/// Equation 26 (theorem 4), as printed; `a0 = (λ-1)B+b`.
fn theorem_4(p: f64, w: f64, batch: f64, a0: f64, f: f64) -> f64 {
    let q = 1.0 - p;
    1.0 - q.powf(w - a0) / ((1.0 - q.powf(batch)) / f + q.powf(batch))
}

/// Equation 27 (theorem 5), as printed.
fn theorem_5(p: f64, w: f64, batch: f64, a0: f64, f: f64) -> f64 {
    let q = 1.0 - p;
    (1.0 - q.powf(w - a0)) / (1.0 - q.powf(batch) * (1.0 - f))
}

/// Equation 13 (theorem 1), as printed.
fn theorem_1(p: f64, n: f64, false_positive: f64) -> f64 {
    let q = 1.0 - p;
    1.0 / (1.0 + q.powf(n) * false_positive / (1.0 - q.powf(n)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_window_is_what_theorems_1_and_3_to_5_say(
        (batch, b, age) in (1..200_u64, 0..200_u64, 1..9_u64),
        beyond in 0..2000_u64,
        p in 1e-3..0.4_f64,
        f in 1e-6..1.0_f64,
    ) {
        let b = b % batch;
        let a0 = (age - 1) * batch + b;
        let near = |ours: f64, printed: f64| (ours - printed).abs() < 1e-9;
        let numbers = (batch as f64, a0 as f64);

        let w = a0 + batch + beyond;
        let fourth = theorem_4(p, w as f64, numbers.0, numbers.1, f);
        prop_assert!(near(window(p, w, &timer_pieces(a0, batch, f)), fourth));
        let w = a0 + 1 + beyond % batch;
        let fifth = theorem_5(p, w as f64, numbers.0, numbers.1, f);
        prop_assert!(near(window(p, w, &timer_pieces(a0, batch, f)), fifth));
        if b > 0 {
            let w = b + beyond;
            let third = theorem_3(p, w as f64, b as f64, f);
            prop_assert!(near(window(p, w, &timer_pieces(0, b, f)), third));
        }
        let first = theorem_1(p, batch as f64, f);
        prop_assert!(near(window(p, batch, &timer_pieces(0, batch, f)), first));
    }

    #[test]
    fn the_expected_age_is_the_closed_form_of_each_case(
        (batch, b, age) in (1..200_u64, 1..200_u64, 1..9_u64),
        p in 1e-3..0.4_f64,
        f in 1e-6..1.0_f64,
    ) {
        let b = b % batch;
        let a0 = (age - 1) * batch + b;
        let (q, odds) = (1.0 - p, (1.0 - p) / p);
        let power = |n: u64| q.powi(n as i32);
        let near = |pieces: &[Piece], closed: f64| {
            let survival = Survival::of_inserts(p);
            let posterior = AgePosterior::new(survival, u64::MAX, pieces.iter().copied());
            (posterior.expected() / closed - 1.0).abs() < 1e-7
        };
        // Expired.
        let beyond = Piece { from: a0, to: Piece::ENDLESS, likelihood: 1.0 };
        prop_assert!(a0 == 0 || near(&[beyond], a0 as f64 + odds));
        // λ > 0.
        let length = batch as f64;
        let kept = (1.0 - f) * power(batch);
        let closed = a0 as f64 + (odds - kept * (length + odds)) / (1.0 - kept);
        prop_assert!(near(&timer_pieces(a0, batch, f), closed));
        // λ = 0.
        if b > 0 {
            let tail = power(b) * (b as f64 + odds);
            let closed = (odds - tail + f * tail) / (1.0 - power(b) + f * power(b));
            prop_assert!(near(&timer_pieces(0, b, f), closed));
        }
    }

    /// A young filter: its first insert is younger than most ages. The mean still counts a key that
    /// was never inserted as one from before the first insert, as in a stream without beginning.
    #[test]
    fn the_expected_age_in_a_young_filter_counts_what_lies_beyond_its_first_insert(
        (batch, b, age) in (1..200_u64, 1..200_u64, 1..9_u64),
        history in 0..300_u64,
        p in 1e-3..0.4_f64,
        f in 1e-6..1.0_f64,
    ) {
        let pieces = timer_pieces((age - 1) * batch + b % batch, batch, f);
        let young = AgePosterior::new(Survival::of_inserts(p), history, pieces);
        let (mut mean, mut total, mut beyond, mut prior) = (0.0, 0.0, 0.0, p);
        for at in pieces[0].from..pieces[0].from + 40_000 {
            let likely = if at < pieces[1].from { 1.0 } else { f };
            let weight = likely * prior;
            (mean, total) = (mean + at as f64 * weight, total + weight);
            beyond += if at >= history { weight } else { 0.0 };
            prior *= 1.0 - p;
        }
        let near = |ours: f64, summed: f64| (ours - summed).abs() <= 1e-6 * summed.max(1e-3);
        prop_assert!(near(young.expected(), mean / total), "{} {}", young.expected(), mean / total);
        prop_assert!(near(young.never(), beyond / total), "{} {}", young.never(), beyond / total);
        prop_assert!(near(young.within(u64::MAX), 1.0 - beyond / total));
    }

    #[test]
    fn every_answer_about_an_age_is_what_the_series_sums_to(
        starts in prop::collection::btree_set(0..400_u64, 2..6),
        likelihoods in prop::collection::vec(prop_oneof![Just(0.0), 1e-3..5.0_f64], 6),
        p in prop_oneof![Just(1.0), 1e-2..0.9_f64],
        width in 0..500_u64,
    ) {
        let starts: Vec<u64> = starts.into_iter().collect();
        let ends = starts[1..].iter().copied().chain([Piece::ENDLESS]);
        let mut pieces: Vec<Piece> = starts
            .iter()
            .zip(ends)
            .zip(&likelihoods)
            .map(|((&from, to), &likelihood)| Piece { from, to, likelihood })
            .collect();
        pieces[0].likelihood += 0.1;

        // P(i)·P(R|i), relative to the youngest age, over a range whose rest is negligible.
        let least = pieces[0].from;
        let weight = |age: u64| {
            let piece = pieces.iter().rev().find(|piece| piece.from <= age);
            piece.map_or(0.0, |piece| piece.likelihood) * p * (1.0 - p).powi((age - least) as i32)
        };
        let ages = || least..least + 4000;
        let total: f64 = ages().map(weight).sum();
        let near = |ours: f64, summed: f64| (ours - summed).abs() <= 1e-6 * summed.max(1e-3);

        let posterior = AgePosterior::new(Survival::of_inserts(p), u64::MAX, pieces.clone());
        let inside: f64 = ages().filter(|&age| age < width).map(weight).sum();
        prop_assert!(near(posterior.within(width), inside / total));
        prop_assert!((posterior.within(width) - window(p, width, &pieces)).abs() < 1e-9);
        let mean: f64 = ages().map(|age| age as f64 * weight(age)).sum();
        prop_assert!(near(posterior.expected(), mean / total));
        let best = ages().max_by(|&a, &b| weight(a).total_cmp(&weight(b)).then(b.cmp(&a)));
        prop_assert!(weight(posterior.most_likely()) >= 0.999_999 * weight(best.unwrap()));
        prop_assert!(near(posterior.of(width.max(least)), weight(width.max(least)) / total));
        let spans: f64 = posterior.spans().map(|(_, probability)| probability).sum();
        prop_assert!((spans - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_nan_from_the_rarest_to_the_surest_key_and_in_windows_to_2_to_the_40(
        exponent in 0.0..12.0_f64,
        edge in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(1.0))],
        (since, inserts) in (0..1_u64 << 40, 1..1_u64 << 40),
        width in 0..1_u64 << 41,
        likelihood in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0_f64, Just(1e-300)],
    ) {
        let p = edge.unwrap_or(10_f64.powf(-exponent));
        let pieces = timer_pieces(since, inserts, likelihood);
        let window = window(p, width, &pieces);
        let ages = AgePosterior::new(Survival::of_inserts(p), u64::MAX, pieces);
        let beyond = ages.between(width..u64::MAX);
        for posterior in [window, ages.within(width), ages.of(width), beyond] {
            prop_assert!((0.0..=1.0).contains(&posterior), "{posterior}");
        }
        prop_assert!((window - ages.within(width)).abs() < 1e-9);
        prop_assert!(ages.expected() >= since as f64 * (1.0 - 1e-12), "{}", ages.expected());
    }

    #[test]
    fn the_mean_of_touched_shares_is_a_probability_that_falls_with_more_cells(
        cells in 2.0..1e6_f64,
        k in 1..40_u32,
        blocks in 1.0..1e5_f64,
        distinct in prop_oneof![Just(0.0), 1e-3..1e9_f64],
    ) {
        let scatter = Scatter::new(cells, k, blocks.floor());
        let mut before = 1.0;
        for c in 1..=k {
            let touched = scatter.touched(c, distinct);
            prop_assert!((0.0..=before + 1e-12).contains(&touched), "{touched} after {before}");
            before = touched;
        }
    }
}

/// `Σ_n P(n)·(1 - (1-1/m)^(kn))^c` over the binomial number `n` of a block's keys.
fn touched_by_summing(cells: f64, k: u32, blocks: f64, c: u32, distinct: u32) -> f64 {
    let here = 1.0 / blocks;
    let mut chance = (1.0 - here).powi(distinct as i32);
    let mut sum = 0.0;
    for n in 0..=distinct {
        let share = 1.0 - (1.0 - 1.0 / cells).powf(f64::from(k) * f64::from(n));
        sum += chance * share.powi(c as i32);
        chance *= f64::from(distinct - n) / f64::from(n + 1) * here / (1.0 - here);
    }
    sum
}

#[test]
fn one_and_two_cells_are_touched_as_often_as_the_sum_over_a_blocks_keys_says() {
    for (cells, blocks, distinct) in
        [(100.0, 1.0 + 1e-9, 30), (512.0, 8.0, 100), (4096.0, 64.0, 500), (50.0, 20.0, 3)]
    {
        for k in [1, 4, 10] {
            let scatter = Scatter::new(cells, k, blocks);
            for c in 1..=2 {
                let summed = touched_by_summing(cells, k, blocks, c, distinct);
                let ours = scatter.touched(c, f64::from(distinct));
                assert!(
                    (ours / summed - 1.0).abs() < 1e-6,
                    "{cells} {blocks} {k} {c}: {ours} {summed}"
                );
            }
        }
    }
}

#[test]
fn more_cells_are_touched_together_nearly_as_often_when_blocks_have_ten_keys_and_more() {
    for (cells, blocks, distinct) in [(512.0, 8.0, 100), (4096.0, 16.0, 500), (32768.0, 64.0, 5000)]
    {
        let k = 10;
        let scatter = Scatter::new(cells, k, blocks);
        for c in 3..=k {
            let summed = touched_by_summing(cells, k, blocks, c, distinct);
            let ratio = scatter.touched(c, f64::from(distinct)) / summed;
            assert!((0.8..1.25).contains(&ratio), "{cells} {blocks} {c}: {ratio}");
        }
    }
}

#[test]
fn the_paper_s_form_is_equation_1_and_21() {
    let scatter = Scatter::new(1000.0, 7, 1.0);
    let printed = (1.0 - (1.0 - 1.0 / 1000.0_f64).powf(7.0 * 90.0)).powi(5);
    assert!((scatter.touched_of_all(5, 90.0) / printed - 1.0).abs() < 1e-12);
    assert!((scatter.touched(5, 90.0) / printed - 1.0).abs() < 1e-9, "one block: the same");
}

#[test]
fn no_range_of_ages_reaches_beyond_the_first_insert() {
    let pieces = timer_pieces(10, 20, 0.4);
    let posterior = AgePosterior::new(Survival::of_inserts(0.01), 50, pieces);
    let inside = posterior.within(50);
    assert!((posterior.within(u64::MAX) - inside).abs() < 1e-12);
    assert!((inside - window(0.01, 50, &pieces)).abs() < 1e-12);
    assert!((inside + posterior.never() - 1.0).abs() < 1e-12);
    let spans: Vec<_> = posterior.spans().collect();
    assert_eq!(spans.iter().map(|span| span.0.clone()).collect::<Vec<_>>(), [10..30, 30..50]);
    assert!((spans.iter().map(|span| span.1).sum::<f64>() - inside).abs() < 1e-12);
}

#[test]
fn priors_and_penalties_out_of_bounds_are_errors_that_say_so() {
    for p in [-1e-9, 1.1, f64::NAN, f64::INFINITY] {
        let error = prior::probability(&p, b"key").unwrap_err().to_string();
        assert!(
            error.starts_with("parameter prior: expected a probability from 0 to 1, found"),
            "{error}"
        );
    }
    let error = prior::inserts_per_second(&0.5).unwrap_err().to_string();
    assert!(error.starts_with("parameter rate: expected the inserts a second"), "{error}");
    for rate in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY] {
        let stream = Stream::new(0.5, Distinct::ALL).rate(rate);
        assert!(prior::inserts_per_second(&stream).is_err(), "{rate}");
    }
    for penalty in [-1.0, f64::NAN, f64::INFINITY] {
        let both = [(penalty, 1.0), (1.0, penalty)];
        for (false_positive, false_negative) in both {
            assert!(decide(0.5, Penalty { false_positive, false_negative }).is_err());
        }
    }
    let penalty = Penalty { false_positive: 1.0, false_negative: 1.0 };
    assert!(decide(1.5, penalty).is_err());
    assert!(decide(0.5, penalty).unwrap(), "as in the paper: yes if it costs no more");
}

#[test]
fn a_decision_is_the_answer_with_the_least_expected_penalty() {
    for (posterior, false_positive, false_negative) in
        [(0.2, 1.0, 9.0), (0.2, 1.0, 3.0), (0.9, 9.5, 1.0), (0.0, 0.0, 1.0), (1.0, 5.0, 0.0)]
    {
        let penalty = Penalty { false_positive, false_negative };
        let yes = (1.0 - posterior) * false_positive;
        let no = posterior * false_negative;
        assert_eq!(decide(posterior, penalty).unwrap(), yes <= no);
    }
}
