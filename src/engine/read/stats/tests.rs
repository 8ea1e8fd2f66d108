//! The digest depends on every word of the state, and on nothing else.

use crate::clock::Clock;
use crate::engine::read::stats::*;
use crate::media::Memory;
use crate::primitives::AtomicU64;
use crate::snapshot::save::copy;
use crate::{Any, Durability, Filter, Options, Timestamp};
use ebbtide_core::block::{Block, load, store};
use ebbtide_core::kind::State;
use ebbtide_core::kind::copy::used;
use std::sync::Arc;

/// Small filters of all kinds, some with several parameter sets.
const SAMPLES: [(&str, &[(&str, &str)]); 20] = [
    ("bloom", &[("capacity", "300")]),
    ("counting", &[("capacity", "300"), ("fpr", "0.01"), ("counter-bits", "3")]),
    ("spectral", &[("capacity", "300"), ("fpr", "0.01")]),
    ("spectral", &[("capacity", "300"), ("fpr", "0.01"), ("policy", "mi")]),
    ("spectral", &[("capacity", "300"), ("fpr", "0.01"), ("policy", "rm")]),
    ("dynamic-count", &[("capacity", "300"), ("fpr", "0.01")]),
    ("decaying", DECAYED),
    ("decaying-optimized", DECAYED),
    ("timing", &[("window-items", "200")]),
    ("block-timing", &[("window-items", "200"), ("fpr", "0.01"), ("block-size", "16")]),
    ("age-partitioned", &[("window-items", "200"), ("fpr", "0.01")]),
    ("time-limited", &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")]),
    ("fingerprint", &[("window-items", "200"), ("fpr", "0.01")]),
    ("fingerprint", &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")]),
    ("stable", STABLE),
    ("importance-2c", STABLE),
    ("importance-mc", STABLE),
    ("importance-h", STABLE),
    ("double-buffering", &[("window-items", "200"), ("fpr", "0.01")]),
    ("two-buffer", &[("window-items", "200"), ("fpr", "0.01")]),
];
const DECAYED: &[(&str, &str)] =
    &[("capacity", "300"), ("fpr", "0.01"), ("lambda", "0.7"), ("epoch", "20000")];
const STABLE: &[(&str, &str)] = &[("cells", "2000"), ("max", "7"), ("K", "4"), ("P", "12")];

/// Creates a filter of a sample after some hundred inserts, one per millisecond.
fn made((kind, parameters): (&str, &[(&str, &str)])) -> Filter {
    let parameters =
        parameters.iter().fold(Parameters::new(), |all, &(name, value)| all.with(name, value));
    let options = Options::new()
        .hash_seed(5)
        .stripes(3)
        .block_bytes(512)
        .clock(Clock::stream())
        .durability(Durability::Never)
        .background(false);
    let filter = Filter::create_on(Arc::new(Memory::new()), Any::new(kind, parameters), options);
    let filter = filter.expect("a filter");
    for key in 0..700_u64 {
        let time = Timestamp::from_unix_millis(1_000_000 + key);
        filter.call().time(time).insert(key.to_le_bytes()).expect("an insert");
    }
    filter
}

fn digest(filter: &Filter) -> u128 {
    filter.engine().digest().expect("a digest").value
}

/// Returns whether some bit of this word changes the digest. The word is restored.
fn matters(filter: &Filter, word: &AtomicU64, before: u128) -> bool {
    let value = load(word);
    let changes = |bit: &u32| {
        store(word, value ^ 1 << bit);
        let digest = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| digest(filter)));
        digest.is_ok_and(|digest| digest != before)
    };
    // The highest and lowest bits first: mostly one of them suffices.
    let matters = [0, 63, 32].into_iter().chain(1..63).any(|bit| changes(&bit));
    store(word, value);
    matters
}

/// Visits each block that the state has room for, with its name.
fn each_block(filter: &Filter, mut visit: impl FnMut(&str, &Block<'_>, &dyn Fn())) {
    let engine = &filter.engine();
    let (kind, header) = (engine.shared.kind(), engine.header());
    let (totals, time) = engine.shared.image.sum_stripes();
    let moment = Moment { time: time >> 1, now: time >> 1, totals };
    let (state, banks) = (header.state(), engine.shared.image.banks());
    for entry in state.banks() {
        let bank = banks.get(entry.slot).expect("it is mapped");
        for index in 0..bank.blocks() {
            let block = used(kind, bank.block(index as usize).1);
            let settle = || kind.settle(&state, entry.slot, &block, &moment);
            visit(&format!("block {index} of bank {}", bank.id()), &block, &settle);
        }
    }
}

/// Returns whether settling the block undoes a change of this word, so that the block is unchanged.
fn is_derived(block: &Block<'_>, word: &AtomicU64, settle: &dyn Fn()) -> bool {
    let mut before = Vec::new();
    copy(block, &mut before);
    [0, 32, 63].into_iter().all(|bit| {
        store(word, load(word) ^ 1 << bit);
        settle();
        let mut after = Vec::new();
        copy(block, &mut after);
        for (word, value) in block.own.iter().chain(block.cells).zip(&before) {
            store(word, *value);
        }
        after == before
    })
}

#[test]
fn a_change_of_any_word_of_any_block_changes_the_digest() {
    for sample in SAMPLES {
        let filter = made(sample);
        // Remains of expired cells do not count.
        each_block(&filter, |_, _, settle| settle());
        let before = digest(&filter);
        let (mut counted, mut derived) = (0, 0);
        each_block(&filter, |name, block, settle| {
            for (at, word) in block.own.iter().chain(block.cells).enumerate() {
                if matters(&filter, word, before) {
                    counted += 1;
                } else {
                    let name = format!("{sample:?}: word {at} of {name}, {:#x},", load(word));
                    assert!(is_derived(block, word, settle), "{name} does not count");
                    derived += 1;
                }
            }
        });
        assert!(counted > 100 && counted > 8 * derived, "{sample:?}: {counted}, {derived}");
        assert_eq!(digest(&filter), before, "{sample:?}: all is as it was");
    }
}

#[test]
fn a_change_of_any_word_of_block_0_that_counts_changes_the_digest() {
    for sample in SAMPLES {
        let filter = made(sample);
        let before = digest(&filter);
        let current = filter.engine().header().state_block().current().block();
        // Whatever the meaning of the words: every bit must change the digest, or make the state
        // invalid.
        for (at, word) in current.own.iter().chain(current.cells).enumerate() {
            assert!(matters(&filter, word, before), "{sample:?}: word {at} of block 0");
        }
    }
}

#[test]
fn a_change_of_any_sum_of_any_stripe_changes_the_digest() {
    for sample in SAMPLES {
        let filter = made(sample);
        let (header, before) = (filter.engine().header(), digest(&filter));
        let kind = filter.engine().shared.kind();
        for index in 0..header.stripe_count() {
            let stripe = header.stripe(index);
            let sums = stripe.sums();
            let mut changed = [sums; 3];
            changed[0].inserts ^= 1;
            changed[1].new_bits ^= 1;
            changed[2].time ^= 2;
            let names = ["inserts", "new bits", "time"];
            // A kind that does not use time may keep any time.
            for (name, changed) in
                names.into_iter().zip(changed).take(2 + usize::from(kind.uses_time()))
            {
                stripe.set_sums(&changed);
                assert_ne!(digest(&filter), before, "{sample:?}: {name} of stripe {index}");
            }
            stripe.set_sums(&sums);
            assert_eq!(digest(&filter), before, "{sample:?}: stripe {index} is as it was");
        }
    }
}

#[test]
fn the_copies_that_do_not_count_and_lsns_change_no_digest() {
    for sample in SAMPLES {
        let filter = made(sample);
        let (header, before) = (filter.engine().header(), digest(&filter));
        let state_block = header.state_block();
        let other = state_block.copy(state_block.version() + 1);
        other.block().own.iter().chain(other.block().cells).for_each(|word| store(word, 77));
        assert_eq!(digest(&filter), before, "{sample:?}: the other copy of block 0");
        state_block.current().set_lsn(1 << 20);
        for index in 0..header.stripe_count() {
            let stripe = header.stripe(index);
            let sums = stripe.sums();
            stripe.set_sums(&crate::image::stripe_table::StripeSums { lsn: sums.lsn + 1, ..sums });
        }
        let banks = filter.engine().shared.image.banks();
        for entry in State::banks(&header.state()) {
            let bank = banks.get(entry.slot).expect("it is mapped");
            (0..bank.blocks()).for_each(|index| bank.block(index as usize).0.set_lsn(1 << 20));
        }
        assert_eq!(digest(&filter), before, "{sample:?}: LSNs");
    }
}
