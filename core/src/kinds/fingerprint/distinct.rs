//! Distinct keys, from live slots.
//!
//! Keys of a block share a slot if they have the same fingerprint and the same pair of buckets:
//! `M = buckets·2^f / 2` classes, all equally likely. A slot has an age of at most `q` just if one
//! of its keys was inserted within it. So the keys are counted as by a bitmap of `M` bits, of which
//! the slots of that age are set.
//!
//! *Closed buckets* have no slots. Where a block has any, only slots are counted whose other bucket
//! is open too, and the result is divided by the share of pairs of open buckets. Such pairs have
//! fewer keys than others, because buckets close where there are many. The deficit was measured,
//! and is corrected ([`DEFICIT`]); half of the closed share is the doubt.
//!
//! *Several banks* (windows of time). A key that comes again gets a slot in the newest bank, and
//! its older slot lives on. So a slot counts only if no coarser bank has a slot that may be the
//! same key's: the same fingerprint, in blocks and buckets whose ranges of the hash overlap. Some
//! slots match by chance. As many are expected as match with a *decoy*: the same fingerprint in
//! other buckets, which no key has set.

use super::items::Items;
use super::moves::other_bucket;
use super::table::{Table, WHOLE};
use super::timed::Timed;
use super::word::Word;
use crate::block::Block;
use crate::kind::distinct_in_block::{Counted, SubWindow};
use crate::kind::{ComparedBanks, CountedGenerations, DistinctKeys, Moment, State};

/// By how much, as a multiple of the share of closed buckets, a pair of open buckets has fewer keys
/// than the mean. Measured at shares from 0.03 to 0.66: 0.4 to 0.5.
const DEFICIT: f64 = 0.45;

impl<W: Word> DistinctKeys for Items<W> {
    /// The depth is the age of the oldest generation.
    fn sub_window(&self, state: &State<'_>, moment: &Moment, width: Option<u64>) -> SubWindow {
        let last = u64::from(self.table.life() - 1).min(CountedGenerations::current(state));
        let began = |age| self.generations.began(state, &moment.totals, age).width();
        SubWindow::reaching(width, last, began)
    }

    fn count(
        &self,
        _: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        _: &Moment,
        depth: u64,
    ) -> Counted {
        let mut sum = Counted::default();
        blocks.iter().for_each(|(_, block)| sum += distinct(&self.table, block, depth));
        sum
    }
}

impl<W: Word> DistinctKeys for Timed<W> {
    /// The depth is the age of the oldest generation.
    fn sub_window(&self, _: &State<'_>, moment: &Moment, width: Option<u64>) -> SubWindow {
        let (open, last) = (moment.now % self.pace, u64::from(self.table.life() - 1));
        let began = |age: u64| age.saturating_mul(self.pace).saturating_add(open);
        SubWindow::reaching(width, last, began)
    }

    fn count(
        &self,
        _: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        _: &Moment,
        depth: u64,
    ) -> Counted {
        let mut sum = Counted::default();
        blocks.iter().for_each(|(_, block)| sum += distinct(&self.table, block, depth));
        sum
    }

    fn compared(&self) -> Option<&dyn ComparedBanks> {
        Some(self)
    }
}

impl<W: Word> ComparedBanks for Timed<W> {
    fn count_only_in(
        &self,
        state: &State<'_>,
        blocks: &[(usize, Block<'_>)],
        others: &[(usize, Block<'_>)],
        moment: &Moment,
        depth: u64,
    ) -> Counted {
        let index = |blocks: &[(usize, Block<'_>)], bits| {
            Index::new(blocks.iter().map(|(_, block)| seen(&self.table, block, depth)), bits)
        };
        let counted = self.count(state, blocks, moment, depth);
        let own = index(blocks, u32::MAX);
        let of_banks = others.chunk_by(|(one, _), (other, _)| one == other);
        let others: Vec<_> = of_banks.map(|bank| index(bank, own.bits)).collect();
        own.only_here(counted, &others)
    }
}

/// Returns how many distinct keys of the last `ages + 1` generations a block has.
fn distinct<W: Word, const BURSTS: bool>(
    table: &Table<W, BURSTS>,
    block: &Block<'_>,
    ages: u64,
) -> Counted {
    let form = table.form(block);
    let buckets = table.buckets(block) as f64;
    let classes = buckets / 2.0 * 2_f64.powi(form.bits() as i32);
    let closed = closed(table, block);
    if closed == 0 {
        let used = table.used_by_age(block);
        let used: u64 = used.iter().take(usize::try_from(ages).unwrap_or(0) + 1).sum();
        let counted = Counted::of_occupied(classes, used as f64, 1.0);
        // Some keys of a block that is closed as a whole have no slot.
        let doubt = if block.own(WHOLE) > 0 { counted.keys / 8.0 } else { counted.doubt };
        return Counted { doubt, ..counted };
    }
    let closed = closed as f64 / buckets;
    let open_pairs = (1.0 - closed).max(0.0).powi(2);
    if open_pairs <= 0.0 {
        // Nothing is known but that there are more keys than slots.
        let keys = buckets * f64::from(form.slots());
        return Counted { keys, variance: keys, doubt: keys };
    }
    let mut used = 0_u64;
    each_slot(table, block, ages, |_, [_, other]| {
        used += u64::from(form.closed_for(form.load(block, other)) == 0);
    });
    let seen = Counted::of_occupied(classes * open_pairs, used as f64, 1.0);
    let share = open_pairs * (1.0 - DEFICIT * closed);
    let keys = seen.keys / share;
    let variance = seen.variance / (share * share) + keys * (1.0 - share) / share;
    Counted { keys, variance, doubt: keys * closed / 2.0 }
}

/// Returns the closed buckets of a block.
fn closed<W: Word, const BURSTS: bool>(table: &Table<W, BURSTS>, block: &Block<'_>) -> usize {
    let form = table.form(block);
    let buckets = 0..table.buckets(block);
    buckets.filter(|&bucket| form.closed_for(form.load(block, bucket)) > 0).count()
}

/// Visits the slots of the last `ages + 1` generations: their fingerprint, and their bucket and
/// its other one.
fn each_slot<W: Word, const BURSTS: bool>(
    table: &Table<W, BURSTS>,
    block: &Block<'_>,
    ages: u64,
    mut visit: impl FnMut(u64, [usize; 2]),
) {
    let form = table.form(block);
    let buckets = table.buckets(block);
    for bucket in 0..buckets {
        let word = form.load(block, bucket);
        if form.closed_for(word) > 0 {
            continue;
        }
        for (fingerprint, life) in (0..form.slots()).map(|slot| form.slot(word, slot)) {
            let age = table.life().checked_sub(life).filter(|_| life > 0);
            if age.is_some_and(|age| u64::from(age) <= ages) {
                visit(fingerprint, [bucket, other_bucket(fingerprint, bucket, buckets)]);
            }
        }
    }
}

/// Returns what the slots of the last `ages + 1` generations say about their keys' hashes.
fn seen<W: Word, const BURSTS: bool>(
    table: &Table<W, BURSTS>,
    block: &Block<'_>,
    ages: u64,
) -> InBlock {
    let (bits, buckets) = (table.form(block).bits(), table.buckets(block) as u64);
    let mut slots = Vec::new();
    each_slot(table, block, ages, |fingerprint, pair| {
        let buckets = pair.map(|bucket| bucket as u64);
        slots.push(Slot { fingerprint, block: block.number, buckets });
    });
    let held = slots.len() as f64;
    let keys = if closed(table, block) == 0 { held } else { distinct(table, block, ages).keys };
    InBlock { slots, keys: keys.max(held), bits, blocks: block.of, buckets }
}

/// A live slot: what is known of its keys' hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    fingerprint: u64,
    block: u64,
    buckets: [u64; 2],
}

/// The slots of one block.
struct InBlock {
    slots: Vec<Slot>,
    /// The keys, if buckets are closed, otherwise the slots.
    keys: f64,
    /// Bits of a fingerprint.
    bits: u32,
    /// Blocks of the bank.
    blocks: u64,
    /// Buckets of a block.
    buckets: u64,
}

/// The slots of a bank, by fingerprint, cut to as many bits as it is compared by, and block.
#[derive(Debug, Default)]
struct Index {
    slots: Vec<Slot>,
    keys: f64,
    bits: u32,
    blocks: u64,
    buckets: u64,
}

/// Returns whether part `a` of `of_a` equal parts of a range overlaps part `b` of `of_b`.
fn overlaps((a, of_a): (u64, u64), (b, of_b): (u64, u64)) -> bool {
    let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
    wide(a, of_b) < wide(b + 1, of_a) && wide(b, of_a) < wide(a + 1, of_b)
}

impl Index {
    fn new(blocks: impl Iterator<Item = InBlock>, most_bits: u32) -> Self {
        let mut all = Self::default();
        for block in blocks {
            (all.blocks, all.buckets) = (block.blocks, block.buckets);
            // Fingerprints are the highest bits of the same hash.
            all.bits = block.bits.min(most_bits);
            let cut = block.bits - all.bits;
            let slots = block.slots.into_iter();
            all.slots
                .extend(slots.map(|slot| Slot { fingerprint: slot.fingerprint >> cut, ..slot }));
            all.keys += block.keys;
        }
        all.slots.sort_unstable();
        all
    }

    /// Returns how many of the `counted` keys of this bank no other bank has.
    fn only_here(&self, counted: Counted, others: &[Self]) -> Counted {
        let slots = self.slots.len() as f64;
        if slots == 0.0 || others.is_empty() {
            return counted;
        }
        let found_in = |slot: &Slot| others.iter().find(|index| index.may_have(self, slot));
        let (mut found, mut with_closed, mut by_chance) = (0.0, 0.0, 0.0);
        for slot in &self.slots {
            if let Some(other) = found_in(slot) {
                found += 1.0;
                with_closed += other.keys / other.slots.len() as f64;
            } else {
                // Of a slot that was found the decoy might find the same one.
                by_chance += f64::from(u8::from(found_in(&self.decoy(slot)).is_some()));
            }
        }
        // Of slots whose key no other bank has, this share matches nevertheless.
        let tried = (slots - found).max(1.0);
        let chance = (by_chance / tried).min(0.9);
        let seen = ((found - slots * chance) / (1.0 - chance)).clamp(0.0, slots);
        // Closed buckets of others have the keys of further ones.
        let both = if found > 0.0 { (seen * with_closed / found).min(slots) } else { 0.0 };
        let keys = counted.keys * (1.0 - both / slots);
        // Matches by chance, and those of the decoys, are both random.
        let random = 2.0 * by_chance.max(1.0) / (1.0 - chance).powi(2);
        let keys_a_slot = counted.keys / slots;
        let variance = counted.variance + random * keys_a_slot * keys_a_slot;
        Counted { keys, variance, doubt: counted.doubt + (both - seen) / 2.0 * keys_a_slot }
    }

    /// Returns a slot that no key of this one has: its fingerprint in other buckets.
    fn decoy(&self, slot: &Slot) -> Slot {
        let buckets = self.buckets.max(1);
        let away = |by: u64| (slot.buckets[0] + by) % buckets;
        let is_near = |bucket: u64| bucket.abs_diff(slot.buckets[1]) <= 1;
        let ways = [buckets / 2, buckets / 4, buckets / 8];
        let bucket = ways.map(away).into_iter().find(|&bucket| !is_near(bucket));
        let bucket = bucket.unwrap_or_else(|| away(1));
        let other = other_bucket(slot.fingerprint, bucket as usize, buckets as usize);
        Slot { buckets: [bucket, other as u64], ..*slot }
    }

    /// Returns whether a slot of this bank may be of the same key as one of another bank, whose
    /// fingerprints have as many bits or more.
    fn may_have(&self, of: &Self, slot: &Slot) -> bool {
        let fingerprint = slot.fingerprint >> (of.bits - self.bits);
        let (blocks, of_blocks) = (u128::from(self.blocks), u128::from(of.blocks.max(1)));
        let first = (u128::from(slot.block) * blocks / of_blocks) as u64;
        let is_same = |own: &&Slot| {
            let pairs = own.buckets.iter().flat_map(|&a| slot.buckets.map(|b| (a, b)));
            let mut pairs = pairs.map(|(a, b)| overlaps((a, self.buckets), (b, of.buckets)));
            pairs.any(|overlap| overlap)
        };
        let from = (fingerprint, first);
        let at = self.slots.partition_point(|own| (own.fingerprint, own.block) < from);
        let mut near = self.slots[at..].iter().take_while(|own| {
            let blocks = overlaps((own.block, self.blocks), (slot.block, of.blocks));
            own.fingerprint == fingerprint && blocks
        });
        near.any(|own| is_same(&own))
    }
}

#[cfg(test)]
mod tests;
