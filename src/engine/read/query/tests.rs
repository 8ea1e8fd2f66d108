//! Queries during which events happen.

use crate::clock::Clock;
use crate::engine::read::query::*;
use crate::image::seqlock;
use crate::media::Memory;
use crate::{Any, Durability, Filter, Options, Parameters, Timestamp};
use ebbtide_core::state::SMALL_STATE_WORDS;
use std::cell::Cell;
use std::sync::Arc;

/// Creates a filter of this kind, fed by a stream.
fn made(kind: &str, parameters: &[(&str, &str)]) -> Filter {
    let parameters =
        parameters.iter().fold(Parameters::new(), |all, &(name, value)| all.with(name, value));
    let options = Options::new()
        .hash_seed(5)
        .stripes(3)
        .clock(Clock::stream())
        .durability(Durability::Never)
        .background(false);
    let filter = Filter::create_on(Arc::new(Memory::new()), Any::new(kind, parameters), options);
    filter.expect("a filter")
}

fn insert(filter: &Filter, key: u64) {
    let time = Timestamp::from_unix_millis(1_000_000 + key);
    filter.call().time(time).insert(key.to_le_bytes()).expect("an insert");
}

/// Returns everything that a query can see of a state: the kind's words and the numbers of the
/// banks.
fn words(state: &State<'_>) -> Vec<u64> {
    let own = (0..SMALL_STATE_WORDS / 2).map(|at| state.own(at));
    own.chain(state.banks().map(|bank| bank.id.into())).collect()
}

#[test]
fn a_question_under_which_events_happened_is_asked_again_however_many_there_were() {
    for (kind, parameters) in [
        ("age-partitioned", &[("window-items", "60"), ("fpr", "0.01")][..]),
        ("double-buffering", &[("window-items", "60"), ("fpr", "0.01")]),
        ("time-limited", &[("window", "100000"), ("fpr", "0.01"), ("rate", "100")]),
    ] {
        let filter = made(kind, parameters);
        let (engine, next) = (&filter.engine(), Cell::new(0));
        let one_more = || {
            insert(&filter, next.get());
            next.set(next.get() + 1);
        };
        (0..100).for_each(|_| one_more());
        let state_block = engine.header().state_block();
        // An even number of events leads back to the copy that the query reads.
        for events in 0..=6 {
            let (asked, before) = (Cell::new(0), state_block.version());
            let key = next.get() - 1;
            let hash = engine.shared.hash(&key.to_le_bytes());
            let seen = engine.queries.ask(hash, Given::default(), |_, state, _, _| {
                asked.set(asked.get() + 1);
                let first = words(state);
                // The query is stopped here, the first time.
                let stopped = if asked.get() == 1 { 2000 } else { 0 };
                for _ in (0..stopped).take_while(|_| state_block.version() < before + events) {
                    one_more();
                }
                (first, words(state))
            });
            let happened = state_block.version() - before;
            assert!(happened >= events, "{kind}: {happened} of {events} events");
            let (first, last) = seen.expect("an answer");
            assert_eq!(first, last, "{kind}: the state of one question, after {events} events");
            let now = words(&state_block.state(state_block.version()));
            assert_eq!(first, now, "{kind}: the state that counts, after {events} events");
            let expected = 1 + u32::from(events > 0);
            assert_eq!(asked.get(), expected, "{kind}: asked under {events} events");
        }
    }
}

#[test]
fn a_key_of_the_window_is_found_by_a_question_under_which_two_events_happened() {
    // Of one block and of many, so that in some of the trials the key's own block does not change.
    for window in ["60", "5000"] {
        let filter = made("age-partitioned", &[("window-items", window), ("fpr", "0.001")]);
        let engine = &filter.engine();
        let mut next = 0;
        let state_block = engine.header().state_block();
        while state_block.version() < 40 {
            insert(&filter, next);
            next += 1;
        }
        let next = Cell::new(next);
        for _ in 0..10 {
            let (key, before) = (next.get() - 1, state_block.version());
            let hash = engine.shared.hash(&key.to_le_bytes());
            let found = engine.queries.ask(hash, Given::default(), |kind, state, blocks, query| {
                while state_block.version() < before + 2 {
                    assert!(next.get() < 1_000_000, "no events");
                    insert(&filter, next.get());
                    next.set(next.get() + 1);
                }
                kind.contains(state, blocks, query)
            });
            assert!(found.expect("an answer"), "key {key}, a window of {window}");
        }
    }
}

#[test]
fn a_block_of_a_closed_bank_that_nobody_will_repair_is_read_all_the_same() {
    let parameters = [("window", "100000"), ("fpr", "0.01"), ("rate", "100")];
    let filter = made("time-limited", &parameters);
    insert(&filter, 0);
    let engine = filter.engine();
    let banks = engine.shared.image.keep_banks();
    let ids = || engine.header().state().banks().map(|bank| bank.id).collect::<Vec<_>>();
    let before = ids();
    // As a writer leaves a block that is killed in the middle of an insert.
    for (_, bank) in banks.iter() {
        (0..bank.blocks() as usize).for_each(|at| seqlock::begin(bank.block(at).0.version()));
    }
    filter.clear().expect("a clear");
    assert!(before.iter().all(|bank| !ids().contains(bank)), "{before:?} {:?}", ids());
    let hash = engine.shared.hash(&0_u64.to_le_bytes());
    let asked = engine.queries.read_blocks(&banks, hash, Waits::Always, |_| 7);
    assert_eq!(asked.expect("an answer"), 7);
    assert!(!engine.header().is_poisoned());
}
