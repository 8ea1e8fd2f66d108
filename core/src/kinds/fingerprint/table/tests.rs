//! Blocks against a map from keys to their last generations, and the loads that they reach.

use super::super::shape::Shape;
use super::super::tests::shapes::{by_word, shapes};
use super::super::theory::highest_load;
use super::*;
use crate::atomic::AtomicU64;
use crate::block::OWN_WORDS;
use std::collections::HashMap;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// A block of its own, and the last generation of each key that was inserted.
struct Modelled<W> {
    table: Table<W, false>,
    shape: Shape,
    own: Vec<AtomicU64>,
    cells: Vec<AtomicU64>,
    keys: HashMap<u64, u64>,
    /// The generation of the latest insert.
    latest: u64,
}

impl<W: Word> Modelled<W> {
    fn new(shape: Shape, buckets: usize) -> Self {
        let table = Table::new(shape, 8);
        let (own, cells) = (words(OWN_WORDS), words(cells_for(buckets, shape)));
        Self { table, shape, own, cells, keys: HashMap::new(), latest: 0 }
    }

    /// Returns it with blocks that are closed as a whole.
    fn closing_blocks(self) -> Self {
        Self { table: self.table.closing_blocks(true), ..self }
    }

    fn block(&self) -> Block<'_> {
        Block::alone(&self.own, &self.cells)
    }

    fn insert(&mut self, key: u64, generation: u64) {
        self.table.insert(&self.block(), generation, hash(key));
        let last = self.keys.entry(key).or_insert(0);
        *last = generation.max(*last);
        self.latest = self.latest.max(generation);
    }

    /// Returns for how many generations a key is found in this one. The answer alone is the same.
    fn left(&self, key: u64, generation: u64) -> u64 {
        let found = self.table.find(&self.block(), generation, hash(key));
        let has_key = self.table.contains(&self.block(), generation, hash(key));
        assert_eq!(has_key, found.left() > 0, "{key} at {generation}: {found:?}");
        assert_eq!(found.generation, generation.max(self.latest));
        found.left().into()
    }

    /// Checks that no key is missed at this generation, and the rules of the block.
    fn check(&self, generation: u64) {
        let life = u64::from(self.shape.generations) + 1;
        for (&key, &last) in &self.keys {
            let due = (last + life).saturating_sub(generation);
            let left = self.left(key, generation);
            assert!(left >= due, "{key} of {last} at {generation}: {left}, not {due}");
        }
        // Keys that were never inserted, some of which are found.
        for key in 0..16 {
            self.left(1 << 40 | key, generation);
        }
    }

    /// Checks the counts of the header, and that a fingerprint has one slot in its buckets.
    fn check_rules(&self) {
        let (form, block) = (&self.table.form, self.block());
        let buckets = form.buckets(self.cells.len());
        let (mut live, mut closed, mut slots) = (0, 0, HashMap::new());
        for bucket in 0..buckets {
            let word = form.load(&block, bucket);
            live += u64::from(form.live(word));
            closed += u64::from(form.closed_for(word) > 0);
            for slot in 0..form.live(word) {
                let (fingerprint, life) = form.slot(word, slot);
                assert!(life > 0);
                let other = other_bucket(fingerprint, bucket, buckets);
                assert_eq!(other_bucket(fingerprint, other, buckets), bucket);
                let pair = (fingerprint, bucket.min(other), bucket.max(other));
                assert_eq!(slots.insert(pair, bucket), None, "two slots of {pair:?}");
            }
        }
        assert_eq!((block.own(LIVE), block.own(CLOSED)), (live, closed));
    }
}

/// Returns the cells for a number of buckets; there may be room for one or two more.
fn cells_for(buckets: usize, shape: Shape) -> usize {
    (buckets * shape.bytes as usize).div_ceil(8)
}

fn shape_of(number: usize) -> Shape {
    shapes().nth(number).expect("a shape")
}

fn hash(key: u64) -> u64 {
    mix(key ^ 0x51 << 56)
}

/// Calls a function for each shape, and with small and ordinary fingerprints.
fn each_shape(mut each: impl FnMut(Shape)) {
    shapes().for_each(&mut each);
    each(Shape { slots: 4, bits: 4, generations: 3, bytes: 8 });
    each(Shape { slots: 2, bits: 5, generations: 1, bytes: 8 });
}

fn random_history<W: Word>(shape: Shape, buckets: usize, seed: u64) {
    let mut block = Modelled::<W>::new(shape, buckets);
    if seed.is_multiple_of(2) {
        block = block.closing_blocks();
    }
    let life = u64::from(shape.generations) + 1;
    let (mut generation, mut at) = (mix(seed) % 3 * 1000, seed << 32);
    let mut random = |below: u64| {
        at += 1;
        mix(at) % below
    };
    let slots = buckets as u64 * u64::from(shape.slots);
    for _ in 0..6 * slots + 200 {
        generation += match random(4 * slots) {
            0 => 1,
            1 => random(life + 2),
            2 if random(8) == 0 => 1 << 40,
            _ => u64::from(random(slots) == 0),
        };
        let late = if random(4) == 0 { random(life + 2).min(generation) } else { 0 };
        block.insert(random(2 * slots + 3), generation - late);
        if random(8) == 0 {
            let then = block.latest + random(life + 2);
            block.check(then);
        }
        block.check_rules();
    }
    block.check(block.latest);
}

#[test]
fn no_key_is_missed_in_blocks_of_any_size_whatever_comes() {
    each_shape(|shape| {
        for buckets in [1, 2, 3, 4, 5, 7, 8, 16] {
            for seed in 0..4 {
                by_word!(shape, random_history(shape, buckets, seed));
            }
        }
    });
}

/// Every sequence of this many inserts of four keys, in every pattern of generations.
#[test]
fn no_key_is_missed_in_any_short_history_of_the_smallest_blocks() {
    let shape = Shape { slots: 2, bits: 4, generations: 2, bytes: 8 };
    for buckets in [1, 2] {
        for history in 0..1_u64 << 15 {
            let mut block = Modelled::<u64>::new(shape, buckets);
            let mut generation = 5_u64;
            for step in 0..5 {
                let choice = history >> (3 * step) & 7;
                // Keys 0 to 3 a generation later, or a late one.
                generation += u64::from(choice & 1 == 0 && step % 2 == 1);
                block.insert(choice >> 1, generation - (choice & 1) * u64::from(step == 4));
                block.check_rules();
            }
            (0..5).for_each(|later| block.check(block.latest + later));
        }
    }
}

/// Compares questions at each generation after the last insert with a copy of the block that has
/// caught up to it. Nobody writes the block meanwhile.
fn questions_later<W: Word>(block: &Modelled<W>, asked: std::ops::Range<u64>) {
    let (own, cells) = (words(OWN_WORDS), words(block.cells.len()));
    for later in 0..40 {
        let then = block.latest + later;
        let copied = Block::alone(&own, &cells);
        let pairs = own.iter().zip(&block.own).chain(cells.iter().zip(&block.cells));
        pairs.for_each(|(to, from)| crate::block::store(to, crate::block::load(from)));
        block.table.catch_up(&copied, then);
        for key in asked.clone() {
            let (lazy, eager) = [block.block(), copied]
                .map(|block_of| block.table.find(&block_of, then, hash(key)))
                .into();
            assert_eq!(lazy, eager, "{key} {later} generations later");
        }
    }
}

#[test]
fn a_question_counts_the_generations_that_the_block_is_behind() {
    let mut block = Modelled::<u64>::new(shape_of(2), 64);
    for key in 0..250 {
        block.insert(key, key / 20);
    }
    questions_later(&block, 0..300);
}

#[test]
fn a_closed_bucket_that_nobody_writes_answers_until_its_last_key_ends_and_no_longer() {
    for shape in shapes() {
        by_word!(shape, closed_and_left_alone(shape));
    }
}

fn closed_and_left_alone<W: Word>(shape: Shape) {
    let mut block = Modelled::<W>::new(shape, 16);
    let (keys, absent) = (32 * u64::from(shape.slots), 1 << 40..(1 << 40) + 200);
    (0..keys).for_each(|key| block.insert(key, 7));
    let closed = block.block().own(CLOSED);
    assert!(closed > 8, "{shape:?}: twice the slots leave most buckets closed, not {closed}");
    questions_later(&block, 0..keys);
    questions_later(&block, absent.clone());
    let found = |at: u64| absent.clone().filter(|&key| block.left(key, at) > 0).count();
    let life = u64::from(shape.generations) + 1;
    for at in 7..7 + life {
        assert!((0..keys).all(|key| block.left(key, at) == 7 + life - at), "{shape:?} at {at}");
        assert!(found(at) > 100, "{shape:?}: a closed bucket stands for every key, also at {at}");
    }
    for at in [7 + life, 8 + life, 7 + 2 * life, 1 << 40] {
        assert!((0..keys).all(|key| block.left(key, at) == 0), "{shape:?} at {at}");
        assert_eq!(found(at), 0, "{shape:?} at {at}");
    }
}

/// Returns the load of a block when the first insert finds no path.
fn load_at_overflow<W: Word>(shape: Shape, buckets: usize, seed: u64) -> f64 {
    let mut block = Modelled::<W>::new(shape, buckets);
    let slots = u64::from(shape.slots);
    for key in 0.. {
        let live = block.block().own(LIVE);
        block.table.insert(&block.block(), 0, mix(mix(seed) ^ key));
        block.latest = 0;
        if block.block().own(CLOSINGS) > 0 {
            return live as f64 / (buckets as u64 * slots) as f64;
        }
    }
    unreachable!("a block of finite size overflows")
}

#[test]
fn blocks_reach_the_highest_load_before_they_overflow() {
    let mut wrong = Vec::new();
    for shape in shapes() {
        for (buckets, blocks) in [(64, 400), (512, 60), (2048, 10)] {
            let loads =
                (0..blocks).map(|seed| by_word!(shape, load_at_overflow(shape, buckets, seed)));
            let bound = highest_load(shape.slots, shape.bits, buckets as f64);
            let below = loads.filter(|&load| load < bound).count();
            // One percent is expected; the tolerance is three deviations.
            let most = 0.01 * blocks as f64 + 3.0 * (0.01 * blocks as f64).sqrt();
            if below as f64 > most.max(1.0) {
                wrong.push((shape, buckets, below, blocks));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn an_overflow_closes_a_bucket_which_opens_again_after_a_window() {
    for shape in shapes() {
        by_word!(shape, overflow(shape));
    }
}

fn overflow<W: Word>(shape: Shape) {
    let mut block = Modelled::<W>::new(shape, 64);
    let slots = 64 * u64::from(shape.slots);
    let of_generation = |generation: u64| {
        let each = slots * 6 / 5 / u64::from(shape.generations + 1) + 1;
        generation * each..(generation + 1) * each
    };
    // A load of 1.2, for three windows.
    let life = u64::from(shape.generations) + 1;
    for generation in 0..3 * life {
        of_generation(generation).for_each(|key| block.insert(key, generation));
        block.keys.retain(|_, last| *last + life > generation);
        block.check(generation);
    }
    assert!(block.block().own(CLOSED) > 0, "{shape:?}");
    block.check_rules();
    let last = block.latest;
    for later in 0..=life {
        block.check(last + later);
        assert!(later > 0 || block.block().own(CLOSED) > 0);
    }
    block.insert(1 << 40, last + life);
    assert_eq!((block.block().own(CLOSED), block.block().own(LIVE)), (0, 1), "{shape:?}");
}

/// Writes new keys in each generation, as many as reach this load at its end.
fn new_keys<W: Word>(block: &mut Modelled<W>, load: f64, generations: std::ops::Range<u64>) {
    let life = u64::from(block.shape.generations) + 1;
    let slots = block.table.slots(&block.block());
    let each = (load * slots as f64) as u64 / life;
    for generation in generations {
        let first = generation * slots;
        (first..first + each).for_each(|key| block.insert(key, generation));
        block.keys.retain(|_, last| *last + life > generation);
        block.check(generation);
    }
}

#[test]
fn a_block_that_chance_has_overfilled_for_a_window_recovers_at_the_planned_load() {
    let shape = Shape { slots: 4, bits: 13, generations: 14, bytes: 8 };
    let life = u64::from(shape.generations) + 1;
    for (load, is_whole) in [(0.975, false), (0.99, true), (3.0, true)] {
        let mut block = Modelled::<u64>::new(shape, 3144).closing_blocks();
        new_keys(&mut block, 0.9466, 0..life);
        let mut whole = 0;
        for window in 1..4 {
            let load = if window == 1 { load } else { 0.9466 };
            new_keys(&mut block, load, window * life..(window + 1) * life);
            whole = whole.max(block.block().own(WHOLE));
        }
        assert_eq!(whole > 0, is_whole, "{load}");
        new_keys(&mut block, 0.9466, 4 * life..8 * life);
        let own = |word| block.block().own(word);
        assert!(own(WHOLE) == 0 && own(CLOSED) < 3144 / 200, "{load}: {} closed", own(CLOSED));
        block.check_rules();
    }
}

#[test]
fn another_key_has_a_slot_if_block_bucket_and_fingerprint_are_the_same() {
    let shape = shape_of(0);
    let modelled = Modelled::<u128>::new(shape, 16);
    let block = Block { of: 4, ..modelled.block() };
    // One of two buckets of 16, in one of four blocks.
    let expected = 2.0 / 16.0 / 4.0 / 2_f64.powi(shape.bits as i32);
    assert!((modelled.table.hit(&block) / expected - 1.0).abs() < 1e-12);
}

#[test]
fn a_block_whose_last_slots_died_in_an_interrupted_part_ages_whole_again() {
    let mut block = Modelled::<u64>::new(shape_of(3), 64);
    let in_first_part = |block: &Modelled<u64>| {
        block.table.age_part(&block.block(), 1 << 20);
        (block.block().own(AGED) > 0, block.block().own(LIVE) == 0)
    };
    // A key whose only slot lies in the first part.
    let key = (0..).find(|&key| block.table.key(&block.block(), hash(key)).buckets[0] == 0);
    block.insert(key.expect("a key of the first bucket"), 1);
    assert_eq!(in_first_part(&block), (true, true), "interrupted after the last slot has died");
    block.keys.clear();
    for generation in [1 << 20, (1 << 20) + 1, (1 << 20) + 3] {
        (0..60).for_each(|number| block.insert(generation << 32 | number, generation));
        assert_eq!(block.block().own(AGED), 0);
    }
    let first = (1_u64 << 20) << 32;
    let life = u64::from(shape_of(3).generations) + 1;
    let left = (0..60).map(|number| block.left(first | number, (1 << 20) + 3));
    assert!(left.into_iter().filter(|&left| left > life - 3).count() < 4, "all slots age");
    block.check_rules();
}
