//! Claims about the counter store alone, against a plain vector.

use super::header::{GROUP, HEADER_WORDS, MOST_GROUP_WORDS};
use super::store::{EXPANSIONS, REBUILDS, REWRITTEN, Store, Writer, room_now};
use crate::atomic::AtomicU64;
use crate::block::undo_log::Undo;
use crate::block::{Block, Layout, OWN_WORDS, load};
use crate::hash::mix;
use proptest::prelude::*;

/// A block with a store in it; words beyond the room that an operation requested are watched.
struct Stored {
    store: Store,
    own: Vec<AtomicU64>,
    cells: Vec<AtomicU64>,
}

impl Stored {
    fn new(counters: usize, changes: usize) -> Self {
        let store = Store::new(counters, changes);
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { store, own: zeros(OWN_WORDS), cells: zeros(store.most_words()) }
    }

    fn block(&self) -> Block<'_> {
        let (own, cells) = (&self.own[..], &self.cells[..]);
        Block { own, cells, number: 0, of: 1, undo: Undo::NONE }
    }

    fn get(&self, counter: usize) -> u64 {
        self.store.get(&self.block(), counter)
    }

    /// Changes counters as one operation does, within the room that it requested.
    fn change(&self, raise: bool, changes: &[(usize, u64)]) {
        let block = self.block();
        let (room, writer) = if raise {
            (self.store.room(&block), Writer::to_raise(self.store, &block))
        } else {
            (room_now(&block), Writer::to_lower(self.store, &block))
        };
        let mut writer = writer;
        for &(counter, value) in changes {
            let at = self.store.locate(writer.block(), counter);
            writer.set(counter, at, value);
        }
        writer.finish();
        let used = room_now(&self.block());
        assert!(used <= room, "{used} words used, {room} asked for");
        assert!(self.cells[used..].iter().all(|word| load(word) == 0), "words beyond the room");
    }

    /// Returns a copy, in words of its own.
    fn copied(&self) -> Self {
        let copy = |words: &[AtomicU64]| words.iter().map(|w| AtomicU64::new(load(w))).collect();
        Self { store: self.store, own: copy(&self.own), cells: copy(&self.cells) }
    }

    fn figure(&self, own: usize) -> u64 {
        load(&self.own[own])
    }
}

/// Returns a value of at most `bits` bits, all sizes equally likely.
fn sized(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits, any::<u64>())
        .prop_map(|(bits, value)| if bits == 0 { 0 } else { value >> (64 - bits) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn counters_keep_what_they_are_given(
        counters in 1..700_usize,
        bits in 1..=64_u32,
        operations in prop::collection::vec(
            (any::<bool>(), prop::collection::vec((any::<usize>(), sized(64)), 1..12)),
            1..150,
        ),
    ) {
        let stored = Stored::new(counters, 12);
        let mut model = vec![0_u64; counters];
        for (raise, changes) in operations {
            let changes: Vec<_> = changes
                .into_iter()
                .map(|(counter, value)| {
                    let (counter, value) = (counter % counters, value >> (64 - bits));
                    let old = model[counter];
                    let new = if raise { old.max(value) } else { old.min(value) };
                    model[counter] = new;
                    (counter, new)
                })
                .collect();
            stored.change(raise, &changes);
            for (counter, &value) in model.iter().enumerate() {
                prop_assert_eq!(stored.get(counter), value, "counter {}", counter);
            }
        }
    }
}

#[test]
fn the_largest_block_holds_the_largest_counters() {
    let counters = Store::MOST_COUNTERS;
    let stored = Stored::new(counters, 10);
    assert!(stored.store.most_words() <= Layout::MOST_BLOCK_WORDS as usize);
    assert_eq!(stored.store.most_words(), counters / GROUP * (HEADER_WORDS + MOST_GROUP_WORDS));
    for bits in [1, 7, 16, 17, 31, 32, 33, 63, 64] {
        for counter in 0..counters {
            // An odd step visits each of them, in an irregular order.
            let counter = counter * 4099 % counters;
            stored.change(true, &[(counter, u64::MAX >> (64 - bits))]);
        }
        assert!((0..counters).all(|at| stored.get(at) == u64::MAX >> (64 - bits)), "{bits} bits");
    }
    assert_eq!(room_now(&stored.block()), stored.store.most_words());
}

/// Each operation raises counters of as many groups as it may, from narrow to wide: in a block that
/// is nearly full, all of them need more words at once.
#[test]
fn a_nearly_full_block_has_room_for_counters_that_grow_all_at_once() {
    for (groups, changes) in [(12, 12), (40, 10), (100, 12), (Store::MOST_COUNTERS / GROUP, 12)] {
        let stored = Stored::new(groups * GROUP, changes);
        let mut model = vec![0_u64; groups * GROUP];
        for bits in [2, 15, 16, 17, 33, 64] {
            let value = u64::MAX >> (64 - bits);
            for at in 0..GROUP {
                // An odd step, so that the groups of one operation lie apart.
                let spread: Vec<usize> = (0..groups).map(|group| group * 31 % groups).collect();
                for raised in spread.chunks(changes) {
                    let raised: Vec<_> =
                        raised.iter().map(|group| (group * GROUP + at, value)).collect();
                    raised.iter().for_each(|&(counter, value)| model[counter] = value);
                    stored.change(true, &raised);
                }
                let wrong = (0..model.len()).find(|&at| stored.get(at) != model[at]);
                assert_eq!(wrong, None, "{groups} groups, {bits} bits, counter {at} of each");
            }
        }
        assert_eq!(room_now(&stored.block()), stored.store.most_words(), "{groups} groups");
    }
}

#[test]
fn a_block_that_empties_gives_its_room_back() {
    let counters = 5000;
    let stored = Stored::new(counters, 10);
    (0..counters).for_each(|at| stored.change(true, &[(at, 1)]));
    let small = room_now(&stored.block());
    (0..counters).for_each(|at| stored.change(true, &[(at, mix(at as u64) >> 34)]));
    let large = room_now(&stored.block());
    let before = stored.figure(REBUILDS);
    (0..counters).for_each(|at| stored.change(false, &[(at, 1)]));
    stored.change(false, &[(0, 0)]);
    let again = room_now(&stored.block());
    assert!(large > 2 * small && again == small, "{small}, {large}, {again} words");
    // A few rebuilds, not one for each page or each counter, because the size halves.
    assert!(stored.figure(REBUILDS) - before <= 8, "{} rebuilds", stored.figure(REBUILDS));
    assert!((1..counters).all(|at| stored.get(at) == 1) && stored.get(0) == 0);
}

#[test]
fn a_store_takes_the_bits_of_its_counters_and_little_more() {
    let counters = Store::MOST_COUNTERS;
    let stored = Stored::new(counters, 10);
    let mut needed = 0;
    for at in 0..counters {
        // As in a half full Bloom filter: most are 0 or 1.
        let value = u64::from(mix(at as u64).trailing_zeros());
        stored.change(true, &[(at, value)]);
        needed += u64::from(super::header::bits_of(value));
    }
    let bits = room_now(&stored.block()) as f64 * 64.0 / counters as f64;
    println!("{:.2} bits needed, {bits:.2} taken", needed as f64 / counters as f64);
    // 4.6 of the headers, 1.5 needed, rounded up to whole words and to a whole page with an eighth
    // of slack.
    assert!(bits < 9.0, "{bits} bits a counter");
}

#[test]
fn figures_count_what_was_done() {
    let stored = Stored::new(2 * GROUP, 1);
    stored.change(true, &[(3, 1)]);
    assert_eq!([EXPANSIONS, REBUILDS, REWRITTEN].map(|own| stored.figure(own)), [0, 0, 0]);
    // From 1 bit to 2: the counter itself and the 24 of its group behind it are rewritten.
    stored.change(true, &[(3, 2)]);
    assert_eq!([EXPANSIONS, REBUILDS, REWRITTEN].map(|own| stored.figure(own)), [1, 0, 25]);
    stored.change(true, &[(3, 3)]);
    stored.change(false, &[(3, 0)]);
    stored.change(true, &[(3, 3)]);
    assert_eq!([EXPANSIONS, REBUILDS, REWRITTEN].map(|own| stored.figure(own)), [1, 0, 25]);
}

/// One counter after the other grows by two bits; after some steps, on a copy, one in every fifth
/// group grows to 60 bits, all in one operation.
#[test]
fn counters_that_grow_all_at_once_have_room_at_every_fill() {
    const CHANGES: usize = 20;
    let counters = 5 * CHANGES * GROUP;
    let stored = Stored::new(counters, CHANGES);
    let mut values = vec![0_u64; counters];
    for step in 0..20_000 {
        let at = mix(step) as usize % counters;
        values[at] = values[at] << 2 & u64::MAX >> 30 | 1;
        stored.change(true, &[(at, values[at])]);
        if !step.is_multiple_of(7) {
            continue;
        }
        let grown = (0..CHANGES).map(|of| (5 * of * GROUP + step as usize % GROUP, u64::MAX >> 4));
        let grown: Vec<_> = grown.collect();
        let copy = stored.copied();
        copy.change(true, &grown);
        let mut expected = values.clone();
        grown.iter().for_each(|&(counter, value)| expected[counter] = value);
        let found: Vec<_> = (0..counters).map(|counter| copy.get(counter)).collect();
        assert!(found == expected, "after step {step}");
    }
}
