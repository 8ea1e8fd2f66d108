//! Claims about parameters.

use super::*;
use crate::hash::mix;

fn sound() -> Parameters {
    Parameters::new().with("capacity", 1000).with("lambda", 0.9).with("epoch", 60_000_000)
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    conformance::parameters_round_trip(NAME, &sound());
    for (name, value) in [
        ("fpr", "0.2"),
        ("cells", "1"),
        ("k", "1"),
        ("k", "64"),
        ("lambda", "0.999999"),
        ("lambda", "5e-324"),
        ("epoch", "1"),
        ("fraction-bits", "0"),
        ("fraction-bits", "32"),
        ("counter-bits", "12"),
        ("counter-bits", "64"),
        ("front", "plain"),
        ("front", "none"),
        ("front-bits", "1"),
        ("front-k", "3"),
        ("front-keys", "1"),
        ("error", "0.5"),
        ("error", "0.0001"),
        ("fpr", "0.9"),
        ("pool", "0"),
        ("pool", "4"),
        ("pool", "0.07"),
    ] {
        conformance::parameters_round_trip(NAME, &sound().with(name, value));
    }
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    for (name, value) in [
        ("fpr", "1"),
        ("lambda", "1"),
        ("lambda", "0"),
        ("lambda", "NaN"),
        ("epoch", "0"),
        ("epoch", "60s"),
        ("fraction-bits", "33"),
        ("counter-bits", "11"),
        ("counter-bits", "65"),
        ("front", "backwards"),
        ("front-bits", "0"),
        ("front-bits", "99999999"),
        ("front-k", "0"),
        ("front-k", "65"),
        ("front-keys", "0"),
        ("error", "0"),
        ("error", "1"),
        ("error", "x"),
        ("pool", "-0.1"),
        ("pool", "4.1"),
        ("pool", "NaN"),
    ] {
        conformance::refuses(NAME, &sound().with(name, value), name);
    }
    conformance::refuses(NAME, &sound().with("front", "none").with("front-bits", 5), "front-bits");
    conformance::refuses(NAME, &sound().with("front", "none").with("front-k", 5), "front-k");
    conformance::refuses(NAME, &sound().with("decay", "linear"), "kind");
    // No front keeps these rates.
    conformance::refuses(NAME, &sound().with("front-keys", 100_000_000), "fpr");
    conformance::refuses(NAME, &sound().with("fpr", 1e-30).with("error", 0.03), "fpr");
    let missing = |name| {
        let all = [("capacity", "9"), ("lambda", "0.9"), ("epoch", "5")];
        let rest = all.into_iter().filter(|(other, _)| *other != name);
        rest.fold(Parameters::new(), |all, (name, value)| all.with(name, value))
    };
    for name in ["capacity", "lambda", "epoch"] {
        conformance::refuses(NAME, &missing(name), name);
    }
}

#[test]
fn parameters_without_an_error_are_those_of_a_filter_whose_counters_keep_the_rate() {
    // As `meta` of such a filter has them.
    let stored = sound()
        .with("fpr", 0.01)
        .with("cells", 4797)
        .with("k", 7)
        .with("fraction-bits", 8)
        .with("counter-bits", 32)
        .with("front", "swapped")
        .with("front-bits", 4797)
        .with("pool", 0.5);
    let all = registry::build(NAME, &stored).expect("a sound filter").parameters();
    assert!(stored.iter().all(|(name, value)| all.get(name) == Some(value)));
    assert_eq!([all.get("error"), all.get("front-k")], [Some("0.01"), Some("7")]);
}

#[test]
fn without_a_need_for_a_front_there_is_none() {
    let with = |error| registry::build(NAME, &sound().with("error", error)).expect("a filter");
    assert_eq!(with(0.001).parameters().get("front"), Some("none"));
    assert_eq!(with(0.01).parameters().get("front"), Some("swapped"));
    let parts = with(0.01).planned_parts(ONE_BLOCK);
    assert_eq!(parts.iter().map(|part| part.keeps).collect::<Vec<_>>(), ["error", "fpr"]);
    assert!(parts.iter().all(|part| part.bits > 0.0));
    assert!(parts[0].rate <= 0.0101 && parts[1].rate <= 0.00101, "{parts:?}");
}

#[test]
fn weights_are_counts() {
    let kind = registry::build(NAME, &sound()).expect("a sound filter");
    assert_eq!(kind.weight(1.0).expect("a count"), 1);
    assert_eq!(kind.weight(f64::from(MOST_WEIGHT)).expect("a count"), MOST_WEIGHT.into());
    for given in [0.0, 0.5, -1.0, 1.5, f64::NAN, f64::INFINITY, MOST_COUNT as f64 + 1.0] {
        assert!(kind.weight(given).is_err(), "{given}");
    }
    assert_eq!(kind.counts().and_then(|counts| counts.normaliser()), Some(1.0 - 0.9));
}

#[test]
fn filters_of_any_shape_hold_all_their_counters_and_answer() {
    for (cells, front_bits, pool, fraction) in [
        (1, 1, "0", 0),
        (1, 64, "4", 32),
        (17, 1, "0.5", 8),
        (1000, 64_000, "4", 32),
        (30_000, 5, "0.01", 0),
        (100_000, 100_000, "0.5", 8),
    ] {
        let kind = build(
            &sound()
                .with("cells", cells)
                .with("k", 3)
                .with("front-bits", front_bits)
                .with("pool", pool)
                .with("fraction-bits", fraction),
        );
        let kind = kind.expect("a sound filter");
        for layout in [ONE_BLOCK, Layout { stripes: 3, block_words: 64 }] {
            let mut harness = Harness::new(kind.clone(), layout);
            (0..100).for_each(|key| {
                harness.insert_weighing(hash_of(key), key, 40);
            });
            assert!((0..100).all(|key| harness.contains(hash_of(key))));
            assert!(harness.words() >= 64);
            assert!((0.0..=1.0).contains(&kind.planned_fpr(layout)));
            assert!((0.0..=1.0).contains(&harness.estimated_fpr()));
        }
    }
}

#[test]
fn a_block_has_its_share_of_the_counters_where_they_fit() {
    for (cells, pool, fraction, buffers) in
        [(1_u64, 0.5, 8, 2), (777, 0.5, 8, 2), (20_000, 0.3, 0, 1), (5000, 4.0, 32, 0)]
    {
        let front_bits = if buffers == 0 { 0 } else { cells };
        let shape = Shape { cells, front_bits, buffers, pool, base_bits: 4 + fraction };
        let geometry = ONE_BLOCK.geometry(shape.first_words());
        let blocks = ONE_BLOCK.blocks(geometry);
        let parts = shape.parts(geometry.words_per_block as usize, blocks);
        assert_eq!(parts.base.cells as u64, cells.div_ceil(blocks), "{shape:?}: {parts:?}");
        // All parts lie inside the block at any size.
        for words in 64..600 {
            let parts = shape.parts(words, cells.div_ceil(50));
            let end = parts.slots.first as u64
                + crate::block::packed::words_for(parts.slots.cells as u64, parts.slots.bits);
            assert!(end <= words as u64, "{shape:?} in {words}: {parts:?}");
            assert!(parts.pool <= parts.slots.cells as u64);
        }
    }
}

/// Returns how often the places of a key are among those of `keys` others, counted.
fn thrown(keys: u64, places: u64, k: u64) -> f64 {
    const THROWS: u64 = 400_000;
    let mut number = 0;
    let mut place = || {
        number += 1;
        ((u128::from(mix(number)) * u128::from(places)) >> 64) as usize
    };
    let is_found = |_: &u64| {
        let mut used = vec![false; places as usize];
        (0..keys * k).for_each(|_| used[place()] = true);
        (0..k).fold(true, |all, _| all & used[place()])
    };
    (0..THROWS).filter(is_found).count() as f64 / THROWS as f64
}

#[test]
fn filters_of_a_few_keys_are_planned_for_the_rate_that_they_have() {
    for (capacity, fpr) in [(1, 0.001), (2, 0.001), (5, 0.003)] {
        let kind = build(&sound().with("capacity", capacity).with("fpr", fpr)).expect("a filter");
        let parameters = kind.parameters();
        let of = |name| parameters.required::<u64>(name, "").expect("completed");
        let counters = thrown(capacity, of("cells"), of("k"));
        let bits = thrown(of("front-keys"), of("front-bits"), of("front-k"));
        // At least one of two buffers.
        let rate = counters * (1.0 - (1.0 - bits) * (1.0 - bits));
        assert!((0.8..1.05).contains(&(rate / fpr)), "{capacity} keys: {rate} for {fpr}");
        assert!(kind.planned_fpr(ONE_BLOCK) <= fpr, "{capacity}: {}", kind.planned_fpr(ONE_BLOCK));
    }
}
