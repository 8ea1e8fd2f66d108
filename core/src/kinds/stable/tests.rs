//! Claims about the Stable Bloom Filter, and about the shared behaviour of all kinds that are
//! decremented.

mod model;
mod rates;

use super::*;
use crate::atomic::AtomicU64;
use crate::block::Blocks;
use crate::block::packed::Packed;
use crate::block::{OWN_WORDS, load};
use crate::conformance::{self, Harness, Step, hash_of};
use crate::error::Error;
use crate::hash::mix;
use crate::kind::{Change, Totals, Within};
use crate::kinds::registry;
use crate::state::STATE_WORDS;
use model::Naive;
use proptest::prelude::*;

/// Every kind that is decremented.
const KINDS: [&str; 4] = [NAME, "importance-2c", "importance-mc", "importance-h"];

const ONE_BLOCK: Layout = Layout { stripes: 1, block_words: 64 };

/// Blocks that rarely receive inserts of the queried key, so that queries replay draws.
const MANY_BLOCKS: Layout = Layout { stripes: 3, block_words: 64 };

fn raw(kind: &str, cells: u64, max: u32, functions: u32, decrements: u64) -> Arc<dyn Kind> {
    let parameters = Parameters::new()
        .with("cells", cells)
        .with("max", max)
        .with("K", functions)
        .with("P", decrements);
    registry::build(kind, &parameters).expect("a sound filter")
}

/// Returns the values that the listings give a key of level `weight`, for a `Max` of 7.
fn value_of_seven(kind: &str) -> fn(u32) -> u64 {
    match kind {
        NAME => |_| 7,
        "importance-2c" => |level| if level >= 4 { 7 } else { 3 },
        _ => |level| level.into(),
    }
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// Returns steps of few keys, of which about every tenth is a query for one of them.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3_u8, any::<u8>(), 1..8_u32).prop_map(|(what, key, weight)| match what {
        0 => Step::Ask(key % 64, 0, Within::Items(1)),
        _ => Step::InsertWeighing(key % 64, 0, weight),
    });
    prop::collection::vec(step, 1..400)
}

fn compare(kind: &str, layout: Layout, cells: u64, rates: (u32, u64), steps: &[Step]) {
    let (functions, decrements) = rates;
    let steps: Vec<_> = steps
        .iter()
        .map(|step| match *step {
            Step::InsertWeighing(key, later, _) if kind == NAME => Step::Insert(key, later),
            step => step,
        })
        .collect();
    let mut harness = Harness::new(raw(kind, cells, 7, functions, decrements), layout);
    let by_value = kind == "importance-h";
    let mut model = Naive::new((layout, cells, 7), rates, by_value, value_of_seven(kind));
    conformance::answers_as_the_model(&mut harness, &mut model, &steps);
    assert_eq!(values(&harness, layout, cells), model.cells().collect::<Vec<_>>(), "{kind}");
    let used = model.cells().filter(|&cell| cell > 0).count() as f64;
    assert_eq!(harness.sample().fill(), used / model.cells().count() as f64, "{kind}");
}

/// Returns all cells of 3 bits, settled.
fn values(harness: &Harness, layout: Layout, cells: u64) -> Vec<u64> {
    let geometry = layout.geometry((cells * 3).div_ceil(64));
    let words = geometry.words_per_block as usize;
    let in_block = (words * 64 / 3).min(cells.div_ceil(layout.blocks(geometry)) as usize);
    let packed = Packed { first: 0, bits: 3, cells: in_block };
    let settled = harness.settled();
    let mut all = Vec::new();
    for block in settled[STATE_WORDS..].chunks(OWN_WORDS + words) {
        let words: Vec<_> = block.iter().map(|&word| AtomicU64::new(word)).collect();
        let (own, cells) = words.split_at(OWN_WORDS);
        let block = Block::alone(own, cells);
        all.extend((0..in_block).map(|cell| packed.get(&block, cell)));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn one_block_is_the_papers_filter(
        kind in prop::sample::select(&KINDS),
        cells in 1_u64..600,
        functions in 1_u32..8,
        decrements in 1_u64..80,
        steps in steps(),
    ) {
        compare(kind, ONE_BLOCK, cells, (functions, decrements), &steps);
    }

    #[test]
    fn many_blocks_are_the_papers_filter_with_draws_from_each_in_turn(
        kind in prop::sample::select(&KINDS),
        cells in 60_u64..6000,
        functions in 1_u32..8,
        // At most 400 · 2000 / 3 draws are pending: each way of replaying is exercised.
        decrements in prop_oneof![1_u64..100, 100_u64..2000],
        steps in steps(),
    ) {
        compare(kind, MANY_BLOCKS, cells, (functions, decrements), &steps);
    }
}

#[test]
fn they_keep_the_contract_of_all_kinds() {
    let layout = Layout { stripes: 4, block_words: 64 };
    for kind in KINDS {
        let kind = raw(kind, 20_000, 7, 5, 10);
        conformance::lazy_is_eager(&kind, layout, 5000, 1);
        conformance::events_apply_once(&kind, layout, 500, 1);
        conformance::survives_torn_words(&kind, layout);
    }
}

#[test]
fn odd_parameters_make_filters_that_hold_their_latest_key() {
    for kind in KINDS {
        for (cells, max, functions, decrements) in [
            (1, 1, 1, 1),
            (1, 255, 64, 1 << 20),
            (2, 1, 64, 1),
            (100_000, 2, 1, 3),
            (70, 255, 2, 70),
        ] {
            let kind = raw(kind, cells, max, functions, decrements);
            assert!(!kind.planned_fpr(ONE_BLOCK).is_nan());
            for layout in [ONE_BLOCK, MANY_BLOCKS] {
                conformance::lazy_is_eager(&kind, layout, 40, 1);
                let mut harness = Harness::new(kind.clone(), layout);
                for key in 0..40 {
                    harness.insert(hash_of(key), 0);
                    assert!(harness.contains(hash_of(key)), "{kind:?}");
                    assert!((0.0..=1.0).contains(&harness.estimated_fpr()));
                }
            }
        }
    }
}

#[test]
fn a_block_left_alone_for_ages_is_all_zeros_and_says_so_at_once() {
    // 200 million inserts without one for this block: only draws that find a cell above zero are
    // made.
    for kind in KINDS {
        let kind = raw(kind, 4000, 7, 5, 1000);
        let (own, words) = (zeros(OWN_WORDS), zeros(64));
        let block = Block { number: 1, of: 3, ..Block::alone(&own, &words) };
        let state_words = zeros(STATE_WORDS);
        let state = State::new(&state_words);
        let blocks = Blocks::One(0, block);
        for step in 0..100 {
            let (change, hash, weight) = (Change::Insert, hash_of(step), 7);
            kind.insert(&state, &blocks, &Operation { change, hash, step, time: 0, weight });
        }
        let totals = Totals { inserts: 200_000_000, new_bits: 0 };
        let query = Query { hash: hash_of(99), now: 0, totals };
        assert!(!kind.contains(&state, &blocks, &query));
        kind.settle(&state, 0, &block, &Moment { time: 0, now: 0, totals });
        assert_eq!(kind.fill(&block).0, 0);
        assert_eq!(block.own(DRAWN), (200_000_000 * 1000 + 1) / 3);
        assert!(words.iter().all(|word| load(word) == 0));
    }
}

#[test]
fn a_question_sees_what_settling_would_write() {
    let filled: u64 = 6000;
    for kind in KINDS {
        let kind = raw(kind, 80_000, 7, 4, 1);
        let (own, words, state_words) = (zeros(OWN_WORDS), zeros(2048), zeros(STATE_WORDS));
        let block = Block { number: 1, of: 2, ..Block::alone(&own, &words) };
        let (state, blocks) = (State::new(&state_words), Blocks::One(0, block));
        for step in 0..filled {
            let (change, hash, weight) = (Change::Insert, hash_of(step), step as u32 % 7 + 1);
            kind.insert(&state, &blocks, &Operation { change, hash, step, time: 0, weight });
        }
        // Draws pending: none, one, as many as the smaller and the larger table hold, and more than
        // they do.
        for pending in [0, 1, 64, 65, 1024, 1025, 5000, 40_000] {
            let totals = Totals { inserts: filled + 2 * pending, new_bits: 0 };
            let copy = |words: &[AtomicU64]| {
                words.iter().map(|word| AtomicU64::new(load(word))).collect::<Vec<_>>()
            };
            let (own, words) = (copy(&own), copy(&words));
            let settled = Block { own: &own, cells: &words, ..block };
            kind.settle(&state, 0, &settled, &Moment { time: 0, now: 0, totals });
            assert_eq!(settled.own(DRAWN) - block.own(DRAWN), pending);
            let keys = filled / 100;
            let asked = (0..keys).map(|key| key * 100 + key % 7).map(|key| {
                let query = Query { hash: hash_of(key), now: 0, totals };
                let [told, expected] = [blocks, Blocks::One(0, settled)]
                    .map(|blocks| kind.contains(&state, &blocks, &query));
                assert_eq!(told, expected, "{kind:?}, {pending} pending, key {key}");
                u64::from(told)
            });
            assert!(asked.sum::<u64>() > keys / 20, "{kind:?}, {pending} pending");
        }
    }
}

#[test]
fn a_damaged_count_of_used_cells_does_not_make_draws_without_end() {
    for kind in KINDS {
        let kind = raw(kind, 1000, 7, 5, 10);
        let (own, words) = (zeros(OWN_WORDS), zeros(64));
        let block = Block::alone(&own, &words);
        words.iter().for_each(|word| crate::block::store(word, u64::MAX));
        block.set_own(cells::USED, u64::MAX);
        let state_words = zeros(STATE_WORDS);
        let totals = Totals { inserts: u64::MAX, new_bits: 0 };
        kind.settle(&State::new(&state_words), 0, &block, &Moment { time: 0, now: 0, totals });
        assert_eq!((block.own(cells::USED), block.own(DRAWN)), (0, u64::MAX));
    }
}

#[test]
fn inserts_that_read_the_same_number_draw_once() {
    let kind = raw(NAME, 1000, 7, 5, 10);
    let mut once = Harness::new(kind.clone(), ONE_BLOCK);
    (0..200).for_each(|key| {
        once.insert(hash_of(key), 0);
    });
    let drawn = once.metric("draws");
    assert_eq!(drawn, 2000);
    let (own, words) = (zeros(OWN_WORDS), zeros(64));
    let block = Block::alone(&own, &words);
    let state_words = zeros(STATE_WORDS);
    for step in [0, 1, 1, 0, 3] {
        let (change, hash) = (Change::Insert, mix(step));
        let operation = Operation { change, hash, step, time: 0, weight: 1 };
        kind.insert(&State::new(&state_words), &Blocks::One(0, block), &operation);
    }
    assert_eq!(block.own(DRAWN), 40);
}

#[test]
fn completed_parameters_give_the_same_kind_back() {
    let asked = Parameters::new().with("cells", 1 << 17);
    for kind in KINDS {
        conformance::parameters_round_trip(kind, &asked);
        conformance::parameters_round_trip(kind, &asked.clone().with("fpr", 0.2));
        conformance::parameters_round_trip(kind, &asked.clone().with("P", 10));
        conformance::parameters_round_trip(kind, &asked.clone().with("P", 10).with("fpr", 0.3));
        conformance::parameters_round_trip(kind, &asked.clone().with("max", 1).with("K", 1));
        conformance::parameters_round_trip(kind, &asked.clone().with("max", 255).with("K", 64));
    }
}

#[test]
fn parameters_that_make_no_filter_are_refused() {
    let sound = Parameters::new().with("cells", 1000).with("max", 7).with("K", 5).with("P", 10);
    for kind in KINDS {
        for (name, value) in [
            ("cells", 0),
            ("cells", 1_u64 << 44),
            ("max", 0),
            ("max", 256),
            ("K", 0),
            ("K", 65),
            ("P", 0),
            ("P", 1 << 21),
        ] {
            conformance::refuses(kind, &sound.clone().with(name, value), name);
        }
        for fpr in ["0", "1", "-0.1", "NaN", "inf", "x", ""] {
            conformance::refuses(kind, &sound.clone().with("fpr", fpr), "fpr");
        }
        conformance::refuses(kind, &Parameters::new().with("P", 10), "cells");
        conformance::refuses(kind, &sound.clone().with("capacity", 3), "kind");
        // A key that sets all cells leaves none to decrement.
        conformance::refuses(kind, &Parameters::new().with("cells", 5), "fpr");
    }
    conformance::refuses(NAME, &sound.with("importance-max", 50), "kind");
}

#[test]
fn a_stable_filter_does_not_weigh() {
    let kind = raw(NAME, 1000, 7, 5, 10);
    assert!(kind.weights().is_none());
    assert!(matches!(kind.weight(3.0), Err(Error::Unsupported { kind: NAME, .. })));
}
