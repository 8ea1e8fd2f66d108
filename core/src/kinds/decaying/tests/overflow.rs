//! Claims about counters that are full: what was cut off is not forgotten, and belongs to its keys.

use super::functions::{planned_polynomial, polynomial};
use super::*;
use std::sync::atomic::Ordering::Relaxed;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_not_said_to_be_at_least_is_not_too_small_although_counters_were_full(
        lambda in prop::sample::select(&[0.1, 0.5, 0.7, 0.9][..]),
        stream in stream(true),
        pauses in prop::collection::vec(0..60_u64, 1..5),
    ) {
        let parameters = exponential(lambda).with("fraction-bits", 4).with("counter-bits", 10);
        let kind = made(&parameters.with("cells", 6).with("k", 2).with("epoch", 1_000_000));
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let (mut exact, mut now, mut said) = (Exact::default(), 0_u64, 0);
        let mut check = |harness: &Harness, exact: &Exact, epoch: u64| {
            for key in 0..8 {
                let told = harness.estimate_at(hash_of(key), epoch * 1_000_000);
                let told = told.expect("an estimate");
                let count = exact.count(key, epoch, lambda);
                said += u64::from(told.at_least);
                let least = count - 2.0 / 16.0 - float_error(count);
                assert!(told.at_least || told.count > least, "{told:?} for {count} at {epoch}");
            }
        };
        for (key, pause, lateness, weight) in stream {
            now += pause;
            let epoch = now.saturating_sub(lateness);
            harness.insert_weighing(hash_of(key), now * 1_000_000, 1);
            exact.0.push((key, now, 1));
            harness.insert_weighing(hash_of(key), epoch * 1_000_000, weight);
            exact.0.push((key, epoch, weight));
            check(&harness, &exact, now);
        }
        // 80 inserts of 2^24 lose less than 2^36 units; after 37 half-lives of up to 7 epochs
        // nothing is left of them either.
        let end = now + 37 * 7;
        for pause in pauses {
            for key in 0..8 {
                let told = harness.estimate_at(hash_of(key), (end + pause) * 1_000_000);
                assert_eq!(told, Some(Estimate { count: 0.0, at_least: false }));
            }
        }
        assert!(said == 0 || harness.metric("saturated") > 0);
    }

    #[test]
    fn a_sum_that_is_not_said_to_be_at_least_is_not_too_small_within_the_horizon(
        horizon in prop::sample::select(&[1_u64, 5, 20][..]),
        stream in stream(true),
        pauses in prop::collection::vec(0..60_u64, 1..5),
    ) {
        let parameters = planned_polynomial(1.0, horizon).with("cells", 6).with("k", 2);
        let kind = made(&parameters.with("epoch", 1_000_000).with("counter-bits", 20));
        let mut harness = Harness::new(kind, ONE_BLOCK);
        let (mut inserts, mut now) = (Vec::new(), 0_u64);
        let check = |harness: &Harness, inserts: &[(u64, u64, u32)], epoch: u64| {
            for key in 0..8 {
                let told = harness.estimate_at(hash_of(key), epoch * 1_000_000);
                let told = told.expect("an estimate");
                let of_key = inserts.iter().filter(|(other, from, _)| {
                    *other == key && epoch - from <= horizon
                });
                let count: f64 = of_key
                    .map(|(_, from, weight)| f64::from(*weight) / (1 + epoch - from) as f64)
                    .sum();
                let least = count - float_error(count);
                assert!(told.at_least || told.count >= least, "{told:?} for {count} at {epoch}");
                let has = harness.contains_at(hash_of(key), epoch * 1_000_000);
                assert!(has || count == 0.0, "{count} at {epoch}");
            }
        };
        for (key, pause, lateness, weight) in stream {
            now += pause;
            let epoch = now.saturating_sub(lateness);
            for (epoch, weight) in [(now, 1), (epoch, weight)] {
                let decided = harness.insert_weighing(hash_of(key), epoch * 1_000_000, weight);
                if decided != Decision::TooLate {
                    inserts.push((key, epoch, weight));
                }
            }
            check(&harness, &inserts, now);
        }
        for pause in pauses {
            now += pause;
            check(&harness, &inserts, now);
        }
    }
}

#[test]
fn a_full_counter_stays_at_its_end_and_says_so_until_it_would_be_zero() {
    let parameters = exponential(0.5).with("counter-bits", 16).with("cells", 1000);
    let mut harness = Harness::new(made(&parameters), ONE_BLOCK);
    let full = f64::from(u16::MAX) / 256.0;
    harness.insert_weighing(hash_of(1), 0, 255);
    harness.insert_weighing(hash_of(2), 0, 100);
    let told = |harness: &Harness, key, epoch: u64| harness.estimate_at(hash_of(key), epoch * 1000);
    let is = |count, at_least| Some(Estimate { count, at_least });
    assert_eq!(told(&harness, 1, 0), is(255.0, false));
    assert_eq!(harness.metric("saturated"), 0);
    harness.insert_weighing(hash_of(1), 0, MOST_WEIGHT);
    let k: u64 = functions_of(&parameters);
    assert_eq!(harness.metric("saturated"), k);
    assert_eq!(told(&harness, 1, 0), is(full, true));
    assert_eq!(told(&harness, 2, 0), is(100.0, false));
    // Half of it, rounded up, and further down to a unit.
    assert_eq!(told(&harness, 1, 1), is(128.0, true));
    assert_eq!(told(&harness, 2, 1), is(50.0, false));
    assert_eq!(told(&harness, 1, 16), is(1.0 / 256.0, true));
    // One of the 2^32 units that were cut off may still be left, of this key only.
    assert_eq!(told(&harness, 1, 17), is(0.0, true));
    assert_eq!(told(&harness, 1, 32), is(0.0, true));
    assert_eq!(told(&harness, 2, 32), is(0.0, false));
    assert_eq!(told(&harness, 1, 33), is(0.0, false));
    // Filled again after that, it counts as a first time.
    harness.insert_weighing(hash_of(1), 40_000, MOST_WEIGHT);
    harness.insert_weighing(hash_of(2), 40_000, 100);
    assert_eq!(told(&harness, 1, 40), is(full, true));
    assert_eq!(told(&harness, 2, 40), is(100.0, false));
    assert_eq!(harness.metric("saturated"), 2 * k);
}

#[test]
fn a_full_number_of_a_sum_says_at_least_within_the_horizon() {
    let parameters = polynomial(1.0, 10).with("counter-bits", 24).with("cells", 1000).with("k", 3);
    let kind = made(&parameters);
    let fraction: u32 = kind.parameters().required("fraction-bits", "").expect("completed");
    let mut harness = Harness::new(kind, ONE_BLOCK);
    let most = f64::from(1_u32 << (24 - fraction));
    harness.insert_weighing(hash_of(1), 0, 1_000_000);
    harness.insert_weighing(hash_of(2), 0, 3);
    let told = |key, epoch: u64| harness.estimate_at(hash_of(key), epoch * 1000).expect("a count");
    assert!(harness.metric("saturated") > 0);
    for epoch in 0..=10 {
        let exact = 1_000_000.0 / (1.0 + epoch as f64);
        assert!(told(1, epoch).at_least && told(1, epoch).count < 12.0 * most, "{epoch}");
        assert!(told(1, epoch).count <= exact);
        let other = told(2, epoch);
        assert!(other.count >= 3.0 / (1.0 + epoch as f64) && !other.at_least);
    }
    // Inserts before the horizon count no longer.
    assert!([11, 40, 100_000].iter().all(|&epoch| !told(1, epoch).at_least));
    // After that, a block that is touched has no mark left.
    harness.insert(hash_of(3), 100_000_000);
    harness.insert_weighing(hash_of(1), 100_001_000, 5);
    let later = harness.estimate_at(hash_of(1), 100_001_000).expect("a count");
    assert!(!later.at_least && later.count >= 5.0);
}

/// Returns the share of 10,000 keys, none of which was inserted, that are present.
fn absent_ones_present(harness: &Harness, now: Micros) -> f64 {
    let present = (0..10_000).filter(|key| harness.contains_at(hash_of(1_000_000 + key), now));
    present.count() as f64 / 10_000.0
}

#[test]
fn keys_beside_one_that_overflows_again_and_again_are_absent_at_the_planned_rate() {
    let planned = 0.001;
    for parameters in [
        exponential(0.5),
        // Beyond 2^23 in each half-life, counters never decay to their middle.
        exponential(0.5).with("counter-bits", 16),
        exponential(0.9).with("counter-bits", 64).with("fraction-bits", 32),
        polynomial(1.0, 10).with("counter-bits", 24),
        polynomial(2.0, 30).with("counter-bits", 26),
    ] {
        let kind = made(&parameters);
        let mut harness = Harness::new(kind, ONE_BLOCK);
        for round in 0..400 {
            let now = TODAY + round * 7000;
            for _ in 0..300 {
                harness.insert_weighing(hash_of(1), now, MOST_WEIGHT);
            }
            // A light key of each round, which is forgotten soon.
            harness.insert(hash_of(1000 + round), now);
            assert!(harness.contains(hash_of(1)));
            if round % 40 == 39 {
                let told = harness.estimate(hash_of(1)).expect("a count");
                assert!(told.at_least || parameters.get("counter-bits") == Some("64"), "{told:?}");
                let present = absent_ones_present(&harness, now);
                assert!(present <= planned, "{present} in round {round} of {parameters:?}");
                assert!(harness.estimated_fpr() <= planned);
            }
        }
        let now = TODAY + 399 * 7000;
        for key in (0..300).map(|round| hash_of(1000 + round)) {
            assert!(!harness.contains_at(key, now), "{parameters:?}");
        }
    }
}

#[test]
fn a_heavy_key_is_forgotten_when_it_has_decayed_although_another_one_overflows_on() {
    // Counters hold up to 4, so most of a weight of 2^31 is cut off. Units are 2^-32, and an epoch
    // is a half-life: something is left for 62 of them.
    let parameters = exponential(0.5).with("fraction-bits", 32).with("counter-bits", 34);
    for first in 0..130 {
        let mut harness = Harness::new(made(&parameters), ONE_BLOCK);
        for _ in 0..128 {
            harness.insert_weighing(hash_of(2), first * 1000, MOST_WEIGHT);
        }
        let mut gone = None;
        for age in 1..200_u64 {
            harness.insert_weighing(hash_of(1), (first + age) * 1000, 100);
            let has = harness.contains(hash_of(2));
            assert!(has || age > 62, "{age} after {first}");
            gone = gone.or((!has).then_some(age));
        }
        assert!(gone.is_some_and(|age| age <= 130), "{gone:?} after {first}");
    }
}

#[test]
fn a_light_key_whose_counters_are_full_in_part_lacks_nothing() {
    let parameters = exponential(0.5).with("counter-bits", 16).with("cells", 64).with("k", 2);
    let mut in_part = 0;
    for key in 1..200 {
        let mut harness = Harness::new(made(&parameters), ONE_BLOCK);
        harness.insert_weighing(hash_of(0), 0, 255);
        harness.insert_weighing(hash_of(key), 0, 3);
        in_part += u64::from(harness.metric("saturated") == 1);
        if !harness.estimate(hash_of(key)).is_some_and(|told| told.count > 3.0) {
            let told = harness.estimate(hash_of(key));
            assert_eq!(told, Some(Estimate { count: 3.0, at_least: false }));
            // Nothing was cut off the heavy key, either.
            assert!(!harness.contains_at(hash_of(0), 17_000));
        }
    }
    assert!(in_part > 0);
}

#[test]
fn in_a_block_of_an_earlier_build_what_was_cut_off_may_be_of_any_key() {
    for (parameters, words) in [
        // The half-life, additions cut short, the first half-life of those, what they lost.
        (exponential(0.5), [100, 5, 3, 1 << 40, 0, 0]),
        // The epoch, additions cut short, the first epoch of those, their loss, the last epoch.
        (polynomial(1.0, 100).with("counter-bits", 24), [5000, 5, 3, 1 << 40, 4999, 0]),
    ] {
        let mut harness = Harness::new(made(&parameters), SMALL);
        harness.insert(hash_of(1), 0);
        harness.settle_in_place();
        harness.each_block(|_, block| {
            block.own.iter().zip(words).for_each(|(own, word)| own.store(word, Relaxed));
        });
        let end = words[0] + 30;
        for epoch in [words[0], end] {
            assert_eq!(absent_ones_present(&harness, epoch * 1000), 1.0, "{parameters:?}");
        }
        // Keys that are cut now are not the only ones.
        (0..100).for_each(|key| {
            harness.insert_weighing(hash_of(key), words[0] * 1000, MOST_WEIGHT);
            harness.insert_weighing(hash_of(key), words[0] * 1000, MOST_WEIGHT);
        });
        assert!(harness.estimated_fpr() > 0.999);
        assert_eq!(absent_ones_present(&harness, end * 1000), 1.0, "{parameters:?}");
        let later = 1_000_000_000;
        assert_eq!(absent_ones_present(&harness, later), 0.0, "{parameters:?}");
        harness.insert_weighing(hash_of(1), later, MOST_WEIGHT);
        harness.insert_weighing(hash_of(1), later, MOST_WEIGHT);
        assert!(absent_ones_present(&harness, later + 90_000) < 0.001, "{parameters:?}");
    }
}

#[test]
fn the_estimated_rate_counts_keys_that_are_present_because_many_overflow() {
    for heavy in [1, 3, 10, 100] {
        let parameters = exponential(0.5).with("counter-bits", 16).with("cells", 4000);
        let mut harness = Harness::new(made(&parameters), ONE_BLOCK);
        for epoch in 0..60_u64 {
            for key in 0..heavy {
                harness.insert_weighing(hash_of(key), epoch * 1000, MOST_WEIGHT);
            }
        }
        // Their counters are 0 now, but not what they lost.
        let now = 77_000;
        harness.insert(hash_of(5_000_000), now);
        let (measured, estimated) = (absent_ones_present(&harness, now), harness.estimated_fpr());
        println!("{heavy} heavy keys: measured {measured:.4}, estimated {estimated:.4}");
        // Six standard deviations of a binomial variable.
        let tolerance = 6.0 * (estimated.max(1e-4) * (1.0 - estimated) / 10_000.0).sqrt();
        assert!((measured - estimated).abs() <= tolerance, "{measured} against {estimated}");
    }
}
