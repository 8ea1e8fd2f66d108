//! A block of buckets: questions, inserts, and how a block catches up.
//!
//! Owns: the kind words of a block. Lives count the generations that a slot has left when the
//! block's own generation is as its header states. A question subtracts the generations since; an
//! insert first catches up, which ages all buckets of the block.
//!
//! A block ages in parts, so that few words are noted for undo at a time. Each part stores with its
//! buckets how many are aged, and is kept. Whoever takes the stripe over from an owner that died
//! within a part undoes that part. Then it applies the owner's record again, which ages the rest:
//! to the same generation, because a block changes only after its record is in the log. Nobody else
//! sees a block that has aged in part: its version is odd.
//!
//! Invariants, whatever was inserted:
//! - A fingerprint has at most one live slot in its two buckets.
//! - Each key whose generation is not over has a live slot in one of its two buckets, or one of
//!   them or the whole block is closed, for at least as long as the key lives. (The proof is at the
//!   head of the kind.)

use super::bucket::Form;
use super::moves::{Limits, Path, other_bucket};
use super::plan::is_of_burst;
use super::shape::{MOST_BITS, Shape};
use super::theory::{either, same_hash};
use super::word::Word;
use crate::block::{Block, UndoRoom, prefetch};
use crate::hash::{GOLDEN, mix};
use crate::kind::KindMetric;

/// The kind word of a block with the generation that its lives refer to.
pub(super) const GENERATION: usize = 0;

/// The kind word with the number of live slots.
pub(super) const LIVE: usize = 1;

/// The kind word with the number of closed buckets.
pub(super) const CLOSED: usize = 2;

/// The kind word with the number of times that a bucket was closed.
pub(super) const CLOSINGS: usize = 3;

/// The kind word with the number of buckets that have aged, while a block ages; then 0.
const AGED: usize = 4;

/// The kind word with the number of generations for which the whole block is closed, as a life.
pub(super) const WHOLE: usize = 5;

/// The kind words that may change while a block ages.
const AGEING_WORDS: usize = 5;

/// If more than this part of a block's buckets is closed, the next key that finds no room closes
/// the block as a whole, in filters that close blocks.
const CLOSED_PART: u64 = 8;

/// The words that are noted at a time, where buckets have 8 bytes. With them an undo area takes
/// 512 bytes.
const FEW_NOTES: usize = 30;

/// The same for larger buckets: a chain of moves changes at most nine buckets, each in up to five
/// cells.
const MANY_NOTES: usize = 62;

/// With this number of slots, the size of a generation is known, with a standard error of a sixth.
const ENOUGH: u32 = 32;

/// The metrics of the kind.
pub(super) const METRICS: &[KindMetric] = &[
    KindMetric { name: "closed_buckets", word: CLOSED },
    KindMetric { name: "closings", word: CLOSINGS },
];

/// The buckets of the blocks of a filter. `BURSTS` says whether it may have banks of bursts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table<W, const BURSTS: bool> {
    form: Form<W>,
    /// The form of the buckets in blocks of a burst's banks; see [`is_of_burst`].
    burst: Option<Form<W>>,
    /// The life of a key in its own generation.
    life: u32,
    limits: Limits,
    closes_blocks: bool,
}

/// A key in a block.
#[derive(Debug, Clone, Copy)]
struct Key {
    fingerprint: u64,
    buckets: [usize; 2],
}

/// What a block holds about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// The generation to which the others refer: the one asked for, or the block's own if that is
    /// later.
    pub(super) generation: u64,
    /// The generations that the key's slot has left, this one included; 0 without a slot.
    pub(super) slot: u32,
    /// The generations for which one of its buckets, or the block, is closed, this one included; 0
    /// if none is.
    pub(super) closed: u32,
}

impl Found {
    /// Returns the generations for which the key stays present; 0 if it is absent.
    #[inline(always)]
    pub(super) fn left(&self) -> u32 {
        self.slot.max(self.closed)
    }
}

impl<W: Word, const BURSTS: bool> Table<W, BURSTS> {
    /// Creates the buckets of a shape, with chains of up to `moves` moves.
    pub(super) fn new(shape: Shape, moves: u32) -> Self {
        let (form, limits) = (Form::new(shape), Limits::of(moves));
        Self { form, burst: None, life: shape.generations + 1, limits, closes_blocks: false }
    }

    /// Returns this table for blocks that have room for the keys of a window, but for chance: those
    /// that overflow far are closed as a whole, and recover. Where more keys come than there is
    /// room for, all of them would be closed without end.
    pub(super) fn closing_blocks(self, closes_blocks: bool) -> Self {
        Self { closes_blocks, ..self }
    }

    /// Returns this table with banks of bursts, whose buckets have this shape.
    pub(super) fn with_bursts(self, shape: Shape) -> Self {
        Self { burst: Some(Form::new(shape)), ..self }
    }

    /// Returns the room that undo areas need.
    pub(super) fn undo_room() -> UndoRoom {
        UndoRoom::Notes(Self::notes())
    }

    const fn notes() -> usize {
        if W::BYTES == 8 { FEW_NOTES } else { MANY_NOTES }
    }

    /// Returns the form of the buckets of a block.
    #[inline(always)]
    pub(super) fn form(&self, block: &Block<'_>) -> &Form<W> {
        match &self.burst {
            Some(burst) if BURSTS && is_of_burst(block.cells.len()) => burst,
            _ => &self.form,
        }
    }

    /// Returns the life of a key in its own generation.
    pub(super) fn life(&self) -> u32 {
        self.life
    }

    #[inline(always)]
    fn key(&self, block: &Block<'_>, hash: u64) -> Key {
        let form = self.form(block);
        let buckets = form.buckets(block.cells.len());
        let mixed = mix(hash.wrapping_add(GOLDEN));
        let fingerprint = mixed >> (64 - form.bits());
        // Other bits than the fingerprint's.
        let bits = if form.bits() <= 32 { 32 } else { 64 - MOST_BITS };
        let low = mixed & ((1 << bits) - 1);
        let bucket = ((low * buckets as u64) >> bits) as usize;
        let other = other_bucket(fingerprint, bucket, buckets);
        Key { fingerprint, buckets: [bucket, other] }
    }

    /// Prefetches the key's buckets.
    #[inline]
    pub(super) fn prefetch(&self, block: &Block<'_>, hash: u64) {
        for bucket in self.key(block, hash).buckets {
            self.prefetch_bucket(block, bucket);
        }
    }

    #[inline]
    fn prefetch_bucket(&self, block: &Block<'_>, bucket: usize) {
        let (first, end) = self.form(block).cells_of(bucket);
        if let Some(cell) = block.cells.get(first) {
            prefetch(cell);
        }
        // The second line, of buckets that may reach into one.
        if W::BYTES > 8
            && let Some(cell) = block.cells.get(end - 1)
        {
            prefetch(cell);
        }
    }

    /// Prefetches the buckets that slots of the key's buckets may move to, if both are full: the
    /// search for a move then waits once, not for one bucket after the other.
    pub(super) fn prefetch_moves(&self, block: &Block<'_>, hash: u64) {
        let form = self.form(block);
        let (key, buckets) = (self.key(block, hash), self.buckets(block));
        let words = key.buckets.map(|bucket| form.load(block, bucket));
        if words.iter().any(|&word| form.room(word) > 0) {
            return;
        }
        for (word, bucket) in words.into_iter().zip(key.buckets) {
            for slot in 0..form.slots() {
                let to = other_bucket(form.fingerprint(word, slot), bucket, buckets);
                self.prefetch_bucket(block, to);
            }
        }
    }

    /// Returns whether the block holds a key in this generation.
    ///
    /// As [`Table::find`], but it needs no life in most cases: a slot with another fingerprint than
    /// 0 is live in the block's own generation. Little work follows the loads of the two words, and
    /// no branch depends on which of them holds the key: so the processor begins the next question
    /// while it waits for the words of this one.
    #[inline(always)]
    pub(super) fn contains(&self, block: &Block<'_>, generation: u64, hash: u64) -> bool {
        let form = self.form(block);
        let key = self.key(block, hash);
        let each = form.in_each(key.fingerprint);
        let [one, other] = key.buckets.map(|bucket| form.load(block, bucket));
        let is_closed = form.is_closed(one, other);
        if !is_closed && !form.either_has(one, other, each) {
            return block.own(WHOLE) > 0 && self.lives(block, generation, hash);
        }
        let is_behind = generation > block.own(GENERATION);
        if is_closed || is_behind || key.fingerprint == 0 {
            return self.lives(block, generation, hash);
        }
        true
    }

    #[inline(never)] // rare: its registers are not worth saving for every question
    fn lives(&self, block: &Block<'_>, generation: u64, hash: u64) -> bool {
        self.find(block, generation, hash).left() > 0
    }

    /// Returns what the block holds about a key in this generation.
    #[inline(always)]
    pub(super) fn find(&self, block: &Block<'_>, generation: u64, hash: u64) -> Found {
        let form = self.form(block);
        let own = block.own(GENERATION);
        let generation = generation.max(own);
        let behind = (generation - own).min(u32::MAX.into()) as u32;
        let key = self.key(block, hash);
        let each = form.in_each(key.fingerprint);
        let [one, other] = key.buckets.map(|bucket| form.load(block, bucket));
        let slot = form.find(one, each).1.max(form.find(other, each).1);
        let mut closed = self.whole(block);
        if form.is_closed(one, other) {
            closed = closed.max(form.closed_for(one)).max(form.closed_for(other));
        }
        Found {
            generation,
            slot: slot.saturating_sub(behind),
            closed: closed.saturating_sub(behind),
        }
    }

    /// Inserts a key of this generation; returns whether it was there before. Nothing is done if
    /// the block is so much later that the key's generation is over.
    #[inline]
    pub(super) fn insert(&self, block: &Block<'_>, generation: u64, hash: u64) -> bool {
        let form = self.form(block);
        self.catch_up(block, generation);
        let late = block.own(GENERATION).saturating_sub(generation).min(self.life.into()) as u32;
        let life = self.life - late;
        if life == 0 {
            return self.find(block, generation, hash).left() > 0;
        }
        let key = self.key(block, hash);
        let each = form.in_each(key.fingerprint);
        let words = key.buckets.map(|bucket| form.load(block, bucket));
        let new = (key.fingerprint, life);
        for (word, bucket) in words.into_iter().zip(key.buckets) {
            let (slot, old) = form.find(word, each);
            if old > 0 {
                if old < life {
                    form.store(block, bucket, form.put(form.take(word, slot), new));
                }
                return true;
            }
        }
        let stands_for_it = form.is_closed(words[0], words[1]) || self.whole(block) > 0;
        let [one, other] = words.map(|word| form.room(word));
        let into = usize::from(other > one);
        if one.max(other) > 0 {
            form.store(block, key.buckets[into], form.put(words[into], new));
        } else {
            let mut path = Path::new();
            if !path.find(form, block, key.buckets, self.limits(block)) {
                self.close(block, key, life);
                return stands_for_it;
            }
            path.follow(form, block, new);
        }
        block.set_own(LIVE, block.own(LIVE).wrapping_add(1));
        stands_for_it
    }

    /// Returns how far to search for an empty slot.
    fn limits(&self, block: &Block<'_>) -> Limits {
        let slots = u64::from(self.form(block).slots());
        let closed = block.own(CLOSED).saturating_mul(slots);
        let open = self.slots(block).saturating_sub(closed);
        let is_full = block.own(LIVE).saturating_mul(100) > open * 99;
        if is_full && self.limits.moves > Limits::SHORT.moves { Limits::SHORT } else { self.limits }
    }

    /// Returns for how many generations the whole block is closed.
    #[inline(always)]
    fn whole(&self, block: &Block<'_>) -> u32 {
        block.own(WHOLE).min(self.life.into()) as u32
    }

    /// Closes one of a key's buckets: one that is closed already, or the one whose keys die first.
    ///
    /// If many are closed, closes the block instead. The open buckets take all keys, so they would
    /// overflow ever again, and buckets that are closed be renewed without end. The block renews
    /// none: they open within a window, and then the keys that come have room.
    #[cold]
    fn close(&self, block: &Block<'_>, key: Key, life: u32) {
        let closed = block.own(CLOSED).saturating_mul(CLOSED_PART);
        let whole = self.whole(block);
        if self.closes_blocks && (whole > 0 || closed > self.buckets(block) as u64) {
            return block.set_own(WHOLE, whole.max(life).into());
        }
        let form = self.form(block);
        let words = key.buckets.map(|bucket| form.load(block, bucket));
        let closed = words.map(|word| form.closed_for(word) > 0);
        let [one, other] = words.map(|word| form.longest(word));
        let second = if closed[0] == closed[1] { other < one } else { closed[1] };
        let at = usize::from(second);
        form.store(block, key.buckets[at], form.close(words[at], life));
        if !closed[at] {
            let live = form.live(words[at]);
            block.set_own(LIVE, block.own(LIVE).saturating_sub(live.into()));
            block.set_own(CLOSED, block.own(CLOSED).wrapping_add(1));
        }
        block.set_own(CLOSINGS, block.own(CLOSINGS).wrapping_add(1));
    }

    /// Ages the buckets of a block that is behind this generation.
    #[inline]
    pub(super) fn catch_up(&self, block: &Block<'_>, generation: u64) {
        if generation > block.own(GENERATION) {
            self.age(block, generation);
        }
    }

    #[cold]
    fn age(&self, block: &Block<'_>, generation: u64) {
        if block.own(LIVE) == 0 && block.own(CLOSED) == 0 {
            self.set_generation(block, generation);
            // The last slots may have died in a part before an interruption.
            block.set_own(AGED, 0);
            return;
        }
        while self.age_part(block, generation) {}
    }

    /// Ages some more buckets of a block; returns whether others are left.
    fn age_part(&self, block: &Block<'_>, generation: u64) -> bool {
        let form = self.form(block);
        let behind = generation.saturating_sub(block.own(GENERATION));
        let from = block.own(AGED).min(self.buckets(block) as u64) as usize;
        let to = form.end_of_part(from, Self::notes() - AGEING_WORDS).min(self.buckets(block));
        let (cell, end) = (form.cells_of(from).0, form.cells_of(to.max(from + 1) - 1).1);
        block.note_cells(cell, end - cell);
        let (mut died, mut opened) = (0, 0);
        for bucket in from..to {
            let word = form.load(block, bucket);
            let (later, live) = form.later(word, behind);
            died += u64::from(form.live(word) - live);
            opened += u64::from(form.is_closed(word, word) && !form.is_closed(later, later));
            form.overwrite(block, bucket, later);
        }
        block.set_own(LIVE, block.own(LIVE).saturating_sub(died));
        block.set_own(CLOSED, block.own(CLOSED).saturating_sub(opened));
        let is_left = to < self.buckets(block);
        block.set_own(AGED, if is_left { to as u64 } else { 0 });
        if !is_left {
            self.set_generation(block, generation);
        }
        block.undo.keep();
        is_left
    }

    /// Sets the generation to which the lives of a block refer, its own included.
    fn set_generation(&self, block: &Block<'_>, generation: u64) {
        let behind = generation.saturating_sub(block.own(GENERATION));
        let whole = self.whole(block);
        if whole > 0 {
            block.set_own(WHOLE, u64::from(whole).saturating_sub(behind));
        }
        block.set_own(GENERATION, generation);
    }

    /// Returns the live slots of a block when it has caught up to a generation; all slots of a
    /// bucket that is closed then.
    pub(super) fn live_at(&self, block: &Block<'_>, generation: u64) -> u64 {
        let form = self.form(block);
        let (slots, all) = (u64::from(form.slots()), self.slots(block));
        let behind = generation.saturating_sub(block.own(GENERATION));
        let closed = block.own(CLOSED).saturating_mul(slots);
        if behind == 0 || (block.own(LIVE) == 0 && closed == 0) {
            return block.own(LIVE).saturating_add(closed).min(all);
        }
        if behind >= self.life.into() {
            return 0;
        }
        let live = |bucket| {
            let (word, live) = form.later(form.load(block, bucket), behind);
            if form.closed_for(word) > 0 { slots } else { live.into() }
        };
        (0..self.buckets(block)).map(live).sum()
    }

    /// Returns the slots of a block.
    #[inline]
    pub(super) fn slots(&self, block: &Block<'_>) -> u64 {
        let form = self.form(block);
        u64::from(form.slots()) * self.buckets(block) as u64
    }

    /// Returns the live slots of a block, a closed bucket counting as full, and all slots.
    pub(super) fn fill(&self, block: &Block<'_>) -> (u64, u64) {
        let form = self.form(block);
        let (slots, buckets) = (u64::from(form.slots()), self.buckets(block) as u64);
        let closed = block.own(CLOSED).min(buckets);
        (block.own(LIVE).min(slots * buckets).max(slots * closed), slots * buckets)
    }

    /// Returns the slots of a block by the age of their generation, the block's own first. A closed
    /// bucket counts as full of keys of the youngest generation for which it may be closed.
    pub(super) fn used_by_age(&self, block: &Block<'_>) -> Vec<u64> {
        let form = self.form(block);
        let mut used = vec![0; self.life as usize];
        let mut count = |life: u32, slots: u64| {
            let age = self.life.checked_sub(life).filter(|_| life > 0);
            let used = age.and_then(|age| used.get_mut(age as usize));
            used.into_iter().for_each(|used| *used += slots);
        };
        for bucket in 0..self.buckets(block) {
            let word = form.load(block, bucket);
            match form.closed_for(word) {
                0 => (0..form.slots()).for_each(|slot| count(form.slot(word, slot).1, 1)),
                left => count(left, form.slots().into()),
            }
        }
        used
    }

    /// Returns the share of absent keys that a block at its own generation reports as present.
    pub(super) fn fpr(&self, block: &Block<'_>) -> f64 {
        if self.whole(block) > 0 {
            return 1.0;
        }
        let form = self.form(block);
        let buckets = self.buckets(block).max(1) as f64;
        let (live, closed) = (block.own(LIVE) as f64, block.own(CLOSED) as f64);
        let found = 2.0 * live / buckets / 2_f64.powi(form.bits() as i32);
        // Of all hashes the block has a share of `1 / of`.
        (found + either(closed / buckets) + same_hash(live * block.of as f64)).min(1.0)
    }

    /// Returns the probability that a key has the slot of another key: its block, one of its
    /// buckets, and its fingerprint.
    pub(super) fn hit(&self, block: &Block<'_>) -> f64 {
        let form = self.form(block);
        let fingerprints = 2_f64.powi(form.bits() as i32);
        2.0 / (self.buckets(block).max(1) as f64 * fingerprints * block.of.max(1) as f64)
    }

    /// Returns the probability that another key has a slot of this generation, if it has the block:
    /// two buckets of it, and the fingerprint.
    ///
    /// Counted in as many buckets as have [`ENOUGH`] such slots, or in all.
    pub(super) fn hit_in_generation(&self, block: &Block<'_>, generation: u64) -> f64 {
        let form = self.form(block);
        let age = block.own(GENERATION).checked_sub(generation);
        let life = age.map_or(0, |age| u64::from(self.life).saturating_sub(age)) as u32;
        if life == 0 || block.own(LIVE) == 0 {
            return 0.0;
        }
        let (mut slots, mut seen) = (0_u32, 0_u32);
        for bucket in 0..self.buckets(block) {
            if slots >= ENOUGH {
                break;
            }
            slots += form.of_life(form.load(block, bucket), life);
            seen += 1;
        }
        2.0 * f64::from(slots) / f64::from(seen.max(1)) / 2_f64.powi(form.bits() as i32)
    }

    pub(super) fn buckets(&self, block: &Block<'_>) -> usize {
        self.form(block).buckets(block.cells.len())
    }
}

#[cfg(test)]
mod tests;
