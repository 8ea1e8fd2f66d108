//! Plans: shapes, sizes, and what they keep.

use super::super::table::Table;
use super::super::tests::shapes::{by_word, shapes};
use super::super::theory::{bits_a_key, fpr};
use super::super::word::Word;
use super::*;
use crate::block::OWN_WORDS;

fn designed(fpr: f64, items: u64) -> Design {
    let parameters = Parameters::new().with("fpr", fpr);
    Design::from_parameters(&parameters, Some(items), Some(items)).expect("a shape").0
}

/// Returns the bits of memory for each key of the window: cells, headers of blocks, undo areas.
fn bits(fpr: f64, items: u64) -> f64 {
    let design = designed(fpr, items);
    let keys = live_keys(design.shape, items) as f64;
    let room = by_word!(design.shape, undo_room());
    let stripes = stripes_for(design.words(keys), room);
    let layout = Layout { stripes, block_words: BLOCK_WORDS };
    let geometry = design.geometry(layout, keys);
    let blocks = layout.blocks(geometry);
    let undo = room.area_words(OWN_WORDS + geometry.words_per_block as usize) as u64;
    let words = layout.words(geometry) + 8 * blocks + undo * u64::from(stripes);
    words as f64 * 64.0 / items as f64
}

fn undo_room<W: Word>() -> UndoRoom {
    Table::<W, false>::undo_room()
}

#[test]
fn the_common_rates_take_the_planned_bits_a_key() {
    for (rate, shape, most) in [
        (1e-2, (5, 10, 14), 14.25),
        (1e-3, (4, 13, 14), 18.05),
        (1e-4, (3, 16, 36), 23.9),
        (1e-6, (4, 23, 14), 29.9),
        (1e-8, (5, 30, 14), 38.8),
        (1e-9, (4, 33, 14), 42.4),
    ] {
        for items in [1_000_000, 10_000_000] {
            let found = designed(rate, items).shape;
            let bits = bits(rate, items);
            assert_eq!((found.slots, found.bits, found.generations), shape, "{rate}");
            assert!(bits <= most, "{rate} {items}: {bits}");
        }
    }
}

#[test]
fn a_lower_rate_never_takes_less_memory_and_every_plan_keeps_its_rate() {
    for items in [1, 5, 100, 4_000, 50_000, 3_000_000] {
        let mut before = 0;
        for step in 0..90 {
            let rate = 0.5 * 10_f64.powf(-f64::from(step) / 10.0);
            let design = designed(rate, items);
            let keys = live_keys(design.shape, items) as f64;
            let words = design.words(keys);
            // A tenth: narrow buckets are preferred, and generations are whole.
            assert!(words as f64 >= 0.9 * before as f64, "{rate} {items}: {words} after {before}");
            before = words;
            for block_words in [64, 512, 2048, 8192] {
                for stripes in [1, 16] {
                    let layout = Layout { stripes, block_words };
                    let geometry = design.geometry(layout, keys);
                    assert!(design.capacity(layout, geometry) >= keys, "{rate} {items} {layout:?}");
                    let load = keys / design.slots(layout, geometry) as f64;
                    assert!(fpr(design.shape.slots, design.shape.bits, load, 0.0) <= rate);
                }
            }
        }
    }
}

#[test]
fn a_window_of_time_is_refused_where_the_hashes_of_its_rate_exceed_that_of_its_plan() {
    let window = 3_600_000_000;
    let of = |parameters: &Parameters| Design::from_parameters(parameters, Some(window), None);
    let asked = |rate: f64| Parameters::new().with("fpr", 1e-12).with("rate", rate);
    // 18 million keys, as in a window of inserts; with a quarter more for the margin.
    assert!(Design::from_parameters(&asked(0.0), Some(18_000_000), Some(18_000_000)).is_err());
    let error = of(&asked(5000.0)).expect_err("too low").to_string();
    assert!(error.contains("hashes of 64 bits"), "{error}");
    for rate in [0.0, 1.0, 500.0, 2000.0] {
        let (design, fpr) = of(&asked(rate)).expect("a shape");
        let keys = MARGIN * keys_of_rate(design.shape, window, rate);
        let Shape { slots, bits, .. } = design.shape;
        assert!(fpr_of(slots, bits, design.load, 0.0) + same_hash(keys) <= fpr, "{rate}");
        // It opens again as it was created; so does one that was created when nothing was refused.
        let completed = design.parameters(fpr);
        let again = of(&completed.clone().with("rate", rate)).expect("the same");
        assert_eq!(again, (design, fpr));
        assert!(of(&completed.with("rate", 5000.0)).is_ok());
    }
}

#[test]
fn small_windows_have_no_more_generations_than_inserts() {
    for items in 1..200 {
        for shape in shapes() {
            let found = shape.for_items(items);
            let length = items.div_ceil(found.generations.into());
            assert!(found.generations <= shape.generations);
            assert!(u64::from(found.generations) * length >= items);
            assert!(u64::from(found.generations - 1) * length < items, "no generation too many");
            assert_eq!(found.for_items(items), found, "the completed parameters are as given");
        }
    }
}

#[test]
fn sizes_follow_the_formula() {
    // 16 KiB blocks: 2048 buckets of 4 slots.
    let bits = bits_a_key(4, 64, 2048.0, 0.93, 14);
    assert!((bits - 18.5).abs() < 0.05, "{bits}");
    assert!((fpr(4, 13, 0.93, 0.0) - 9.08e-4).abs() < 1e-6);
    assert!((fpr(4, 13, 0.93, 0.001) - 2.908e-3).abs() < 1e-6);
}
