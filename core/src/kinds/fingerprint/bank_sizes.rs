//! How many keys the newest bank holds, and the size of the next one.
//!
//! Owns: the kind words of the filter-wide state of time windows. Events alone change them.
//!
//! Each insert records how full its block is, so the growth of that sum over an *interval* of
//! inserts, divided by their number, is the mean load of the newest bank. (Keys that come again
//! renew their slots and add nothing, however often they come.) An interval ends after as many
//! inserts as a 16th of the live keys, or a generation after it began. Its end is a step: it stores
//! the sums, the measured load, and what follows from it:
//! - *Grow*: a bank at nine tenths of its capacity gets a successor, and one younger than half a
//!   window at half of it already if at least twice its capacity is needed. The need is the rate at
//!   which slots were taken over the last eighth of the capacity or the last generation,
//!   extrapolated to a window. A bank is at most eight times as large as the one before, or 4 MiB,
//!   and twice as large if that has served for half a window, because bursts end.
//! - *Grow in a burst*, in a filter that grows by its keys: see `burst`. The successors of banks
//!   younger than half a window then have the form of a burst's banks as well. One of them that has
//!   served that long is replaced by a planned one.
//! - *Shrink*: a bank that stayed below a quarter of its capacity for a whole window gets a
//!   successor for its greatest load in that time, if that is at most half as large.
//! - *Close*: a bank whose keys have all expired.
//!
//! No bank opens beyond the limit of memory. At the limit the newest bank takes all keys, and
//! what it needs is stored as *lacking*.
//!
//! Values that affect the state use only operations that IEEE 754 fixes to the last bit.

use super::burst::{self, FULL_IN_BURST, is_of_burst};
use super::plan::{Designs, MARGIN, MOST_WORDS};
use crate::block::{FEW_BANKS, Layout, MAX_BANKS};
use crate::kind::{BankEntry, Event, Micros, State, Totals};

/// The open interval.
const CURRENT: usize = 0;
/// The sums when it began: inserts, and fills of blocks, 32 bits each.
const SUMS: usize = 1;
/// When it began.
const BEGAN: usize = 2;
/// How many inserts it takes at most.
const LENGTH: usize = 3;
/// When the first interval began.
const FIRST: usize = 4;
/// Whether a bank has opened that takes the inserts of the next interval.
const OPENED: usize = 5;
/// The live keys for which a bank is wanted, with [`IN_BURST`]; 0 if none is.
const WANTED: usize = 6;
/// The number, plus 1, of a bank whose keys have expired; 0 if there is none.
const DEAD: usize = 7;
/// The live keys measured last in the newest bank.
const KEYS: usize = 8;
/// The live keys, plus 1, of the measurement from which the need counts; 0 if there is none.
const BASE: usize = 9;
/// The middle of the interval of that measurement.
const BASE_TIME: usize = 12;
/// The need that was computed last: live keys of a window.
const NEED: usize = 13;
/// When the newest bank opened, or the first interval began.
const SINCE: usize = 14;
/// Since when the newest bank has held few keys.
const LOW_SINCE: usize = 10;
/// The most live keys that were measured since then.
const LOW_KEYS: usize = 11;
/// 1 if a bank is needed that the limit of memory or the number of slots does not allow.
const LACKING: usize = 15;
/// When each bank opened, by its number modulo the slots: of filters with few slots.
const BANKS: usize = 16;
/// 1 if the last interval ended by its time: the burst is over, and the next one measures what
/// comes after it. Of filters with many slots.
const CALM: usize = 16;
/// The same as [`BANKS`] with many slots.
const MANY_BANKS: usize = 32;

/// Words of the first bank if no rate is given: 32 KiB.
pub(super) const FIRST_WORDS: u64 = 4096;

/// Units of the fill of a block: at least half as many are its slots.
const UNITS: u32 = 256;

/// The part of the live keys, or of a 16th of the capacity, that an interval may add.
const INTERVALS: f64 = 16.0;

/// The most inserts of an interval: the sum of their fills has 32 bits.
const MOST_INSERTS: u64 = 1 << 23;

/// The least inserts of an interval that ends by their number.
const LEAST_INSERTS: u64 = 16;

/// The part of its capacity at which a bank gets a successor.
const FULL: f64 = 0.9;

/// That part if more than [`FAR_MORE`] times the capacity is needed.
const HALF: f64 = 0.5;

/// See [`HALF`].
const FAR_MORE: f64 = 2.0;

/// The part of its capacity below which a bank may get a smaller successor.
const LOW: f64 = 0.25;

/// The part of a bank's capacity that must have been taken before the need is computed, or a
/// generation must have passed.
const TAKEN: f64 = 0.125;

/// The greatest factor from the keys of one bank to those of the next.
const MOST_GROWTH: f64 = 8.0;

/// That factor after a bank that has served for half a window: a burst that filled it may be over
/// soon.
const CALM_GROWTH: f64 = 2.0;

/// The least factor of a bank that is full.
const LEAST_GROWTH: f64 = 1.5;

/// The part of its keys by which a bank may be smaller than wanted, again and again, until it fits
/// the limit of memory.
const LESS: f64 = 0.85;

/// The least part of the keys of the newest bank that another one is worth opening for.
const WORTHWHILE: f64 = 0.1;

/// Added to the wanted keys of a bank of a burst.
const IN_BURST: u64 = 1 << 62;

/// The least inserts of an interval that ends as a bank becomes full: fewer would measure little.
const SHORT_INTERVAL: u64 = 64;

/// More keys than any bank holds.
const MOST_KEYS: f64 = (1_u64 << 50) as f64;

/// The size up to which a bank may grow in one step: 4 MiB.
const GROWN_WORDS: u64 = 1 << 19;

/// The event that is due, without its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Due {
    /// The interval ends.
    Interval,
    /// The bank of this number closes.
    Dead(u32),
    /// A bank opens for this many live keys.
    Wanted { keys: f64, in_burst: bool },
}

/// A view of the measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pressure<'a> {
    state: State<'a>,
    designs: &'a Designs,
    window: Micros,
    pace: Micros,
}

impl<'a> Pressure<'a> {
    pub(super) fn new(
        state: &State<'a>,
        designs: &'a Designs,
        (window, pace): (Micros, Micros),
    ) -> Self {
        Self { state: *state, designs, window, pace }
    }

    /// Returns the fill of a block with `live` live slots of `slots`: at least half of [`UNITS`]
    /// stand for all slots, and the others are cut off.
    #[inline]
    pub(super) fn of_block(live: u64, slots: u64) -> u32 {
        (live >> Self::unit(slots)) as u32
    }

    /// Returns the slots of a unit, as a power of two.
    #[inline]
    fn unit(slots: u64) -> u32 {
        (u64::BITS - slots.leading_zeros()).saturating_sub(UNITS.ilog2())
    }

    /// Returns the sums in the form in which a step records them.
    pub(super) fn sums(totals: &Totals) -> u64 {
        totals.inserts << 32 | totals.new_bits & u64::from(u32::MAX)
    }

    /// Returns the open interval.
    #[inline]
    pub(super) fn current(&self) -> u64 {
        self.state.own(CURRENT)
    }

    /// Returns when the first interval began; nothing was inserted earlier, except late keys.
    pub(super) fn beginning(&self) -> Micros {
        self.state.own(FIRST)
    }

    /// Prepares the state of a new filter: the first insert begins an interval.
    pub(super) fn start(&self) {
        self.state.set_own(OPENED, 1);
    }

    /// Returns the event that must come before an insert now.
    #[inline]
    pub(super) fn due(&self, now: Micros, totals: &Totals) -> Option<Due> {
        let state = &self.state;
        let inserts = (totals.inserts as u32).wrapping_sub((state.own(SUMS) >> 32) as u32);
        let over = now >= state.own(BEGAN).saturating_add(self.longest());
        let full = u64::from(inserts) >= state.own(LENGTH);
        let decided = state.own(OPENED) | state.own(WANTED) | state.own(DEAD);
        if !(over || full) && decided == 0 {
            return None;
        }
        if state.own(OPENED) > 0 {
            return Some(Due::Interval);
        }
        if let Some(id) = state.own(DEAD).checked_sub(1) {
            return Some(Due::Dead(id as u32));
        }
        if state.own(WANTED) > 0 {
            let (wanted, in_burst) = (state.own(WANTED), state.own(WANTED) >= IN_BURST);
            return Some(Due::Wanted { keys: (wanted & !IN_BURST) as f64, in_burst });
        }
        Some(Due::Interval)
    }

    /// Applies an event to the state; the table of banks has been updated already.
    pub(super) fn apply(&self, layout: Layout, event: &Event) {
        let state = &self.state;
        match *event {
            Event::Step { step, time, word } if step > self.current() => {
                self.measure(layout, step, time, word);
                state.set_own(CURRENT, step);
                state.set_own(SUMS, word);
                state.set_own(BEGAN, time);
                if state.own(FIRST) == 0 {
                    state.set_own(FIRST, time.max(1));
                }
                self.find_dead(time);
            }
            Event::OpenBank { id, since, time, .. } if since > self.current() => {
                state.set_own(self.opened_at(id), time);
                state.set_own(OPENED, 1);
                state.set_own(WANTED, 0);
                state.set_own(LACKING, 0);
            }
            Event::CloseBank { id, time } if state.own(DEAD) == u64::from(id) + 1 => {
                state.set_own(DEAD, 0);
                if self.designs.burst.is_some() {
                    // The many banks of a burst expire together.
                    self.find_dead(time);
                }
            }
            _ => {}
        }
    }

    /// Returns the longest duration of an interval: shorter where the end of a burst is to be
    /// noticed.
    #[inline]
    fn longest(&self) -> Micros {
        if self.designs.burst.is_some() { self.pace.div_ceil(4) } else { self.pace }
    }

    /// Returns the word that tells when a bank opened.
    fn opened_at(&self, id: u32) -> usize {
        if self.state.slots() == FEW_BANKS {
            BANKS + id as usize % FEW_BANKS
        } else {
            MANY_BANKS + id as usize % MAX_BANKS
        }
    }

    /// Measures the interval that ends, and decides what follows.
    fn measure(&self, layout: Layout, step: u64, time: Micros, word: u64) {
        let state = &self.state;
        let [before, bank] = [self.current(), step].map(|step| state.bank_of_step(step));
        let Some(bank) = bank else { return };
        let capacity = self.designs.capacity(layout, bank.geometry);
        self.set_length(capacity, 0.0);
        let silent = time >= state.own(BEGAN).saturating_add(self.window);
        if state.own(OPENED) > 0 || before.map(|bank| bank.id) != Some(bank.id) {
            state.set_own(OPENED, 0);
            state.set_own(SINCE, time);
            self.forget();
            return self.set_low(time, 0);
        }
        let sums = state.own(SUMS);
        let inserts = ((word >> 32) as u32).wrapping_sub((sums >> 32) as u32);
        if silent || inserts == 0 {
            // A silence of a whole window does not predict the need after it.
            self.forget();
            self.set_low(time, 0);
            return self.end_burst(layout, &bank, time, 0.0);
        }
        let fills = (word as u32).wrapping_sub(sums as u32);
        let keys = self.keys(layout, &bank, f64::from(fills) / f64::from(inserts));
        self.decide(layout, &bank, time, keys);
        if self.designs.burst.is_none() {
            return;
        }
        let lasted = time.saturating_sub(state.own(BEGAN));
        let (was_calm, is_calm) = (state.own(CALM) > 0, lasted >= self.longest());
        if was_calm && is_calm {
            let need = f64::from(inserts) * (self.window + self.pace) as f64 / lasted as f64;
            self.end_burst(layout, &bank, time, need);
        }
        state.set_own(CALM, is_calm.into());
    }

    /// Returns the live keys of a bank whose blocks are filled like this on average.
    fn keys(&self, layout: Layout, bank: &BankEntry, fill: f64) -> f64 {
        let shape = self.designs.of(bank.geometry).shape;
        let slots = u64::from(bank.geometry.words_per_block * 8 / shape.bytes * shape.slots);
        let unit = Self::unit(slots);
        // Of a unit, half is cut off on average.
        let cut = if unit == 0 { 0.0 } else { 0.5 };
        (fill + cut) * (1_u64 << unit) as f64 * layout.blocks(bank.geometry) as f64
    }

    /// Decides from the keys of the newest bank, over the interval that ends at `time`.
    fn decide(&self, layout: Layout, bank: &BankEntry, time: Micros, keys: f64) {
        let state = &self.state;
        let capacity = self.designs.capacity(layout, bank.geometry);
        self.set_length(capacity, keys);
        let began = state.own(BEGAN).min(time);
        let need = self.need(capacity, keys, began + (time - began) / 2);
        state.set_own(KEYS, keys as u64);
        let load = keys / capacity;
        if load >= LOW {
            self.set_low(time, 0);
        } else {
            let most = state.own(LOW_KEYS).max(keys as u64);
            self.set_low(state.own(LOW_SINCE), most);
        }
        if load < FULL {
            state.set_own(LACKING, 0);
        }
        if burst::is_burst(self.designs, need, capacity) {
            if load >= FULL_IN_BURST {
                let next = burst::next_keys(self.designs, state, layout, (bank.id, keys));
                self.want(layout, bank, next, true);
            }
            return;
        }
        let served = self.since_opening(time) >= self.window / 2;
        let hurried = !served && load >= HALF && need >= FAR_MORE * capacity;
        if load >= FULL || hurried {
            let young = (MOST_GROWTH * capacity).max(self.at_once(layout));
            let most = if served { CALM_GROWTH * capacity } else { young };
            let keys = (MARGIN * need).max(LEAST_GROWTH * capacity).min(most);
            return self.want(layout, bank, keys, !served);
        }
        if served && is_of_burst(bank) {
            return self.want(layout, bank, MARGIN * need, false);
        }
        if time.saturating_sub(state.own(LOW_SINCE)) >= self.window.saturating_add(self.pace) {
            self.want_less(layout, bank, MARGIN * state.own(LOW_KEYS) as f64);
        }
    }

    /// Returns the keys that a bank of any size may be followed by: in a filter that grows by its
    /// keys there are none.
    fn at_once(&self, layout: Layout) -> f64 {
        let words = if self.designs.burst.is_some() { 0 } else { GROWN_WORDS };
        self.capacity_of_words(layout, words)
    }

    /// Returns the time since the newest bank opened.
    fn since_opening(&self, time: Micros) -> Micros {
        time.saturating_sub(self.state.own(SINCE))
    }

    /// Requests a bank of the size that is needed after a burst: for `need` live keys of a window,
    /// if that is much less than its newest bank has, or if that has taken too many keys. (Buckets
    /// that are closed stay so as long as keys come to them.)
    fn end_burst(&self, layout: Layout, bank: &BankEntry, time: Micros, need: f64) {
        let capacity = self.designs.capacity(layout, bank.geometry);
        if self.since_opening(time) < self.longest() || self.state.own(WANTED) > 0 {
            return;
        }
        if self.is_lacking() && MARGIN * need < capacity {
            // One that is as small as a first one may be slightly smaller than that.
            let first = self.designs.calm.geometry(layout, self.first_keys(layout));
            let words = layout.words(bank.geometry).max(layout.words(first));
            self.want_within(layout, MARGIN * need, words);
        } else if is_of_burst(bank) && need < LOW * capacity {
            self.want_less(layout, bank, MARGIN * need);
        }
    }

    /// Returns whether the filter needs a bank that the limit of memory, or the number of banks,
    /// does not allow.
    pub(super) fn is_lacking(&self) -> bool {
        self.state.own(LACKING) > 0
    }

    /// Requests a bank for this many keys, but not smaller than a first one, if it is at most half
    /// as large as the newest one.
    fn want_less(&self, layout: Layout, bank: &BankEntry, keys: f64) {
        self.want_within(layout, keys, layout.words(bank.geometry) / 2);
    }

    /// Requests a bank for this many keys, but not smaller than a first one, if it has at most this
    /// many words, and the limit of memory allows it.
    fn want_within(&self, layout: Layout, keys: f64, words: u64) {
        let keys = keys.max(self.first_keys(layout));
        let geometry = self.designs.calm.geometry(layout, keys);
        let bytes = self.designs.memory.of_bank(layout, geometry);
        let has_slot = self.state.banks().count() < self.state.slots();
        let fits = bytes <= self.designs.memory.left(layout, &self.state);
        if layout.words(geometry) <= words && has_slot && fits {
            self.state.set_own(WANTED, keys as u64);
        }
    }

    fn capacity_of_words(&self, layout: Layout, words: u64) -> f64 {
        self.designs.calm.capacity(layout, self.designs.calm.geometry_of(layout, words))
    }

    /// Returns the live keys that a window will have if slots are taken as they were since the base
    /// measurement: those that are new, and those that replace expired ones.
    fn need(&self, capacity: f64, keys: f64, middle: Micros) -> f64 {
        let state = &self.state;
        let (base, then) = (state.own(BASE), state.own(BASE_TIME));
        let Some(base) = base.checked_sub(1) else {
            self.set_base(keys, middle);
            return keys;
        };
        let (base, window) = (base as f64, (self.window + self.pace) as f64);
        let generations = (middle / self.pace).saturating_sub(then / self.pace);
        let expired = base * (generations as f64 * self.pace as f64 / window).min(1.0);
        let taken = (keys + expired - base).max(0.0);
        let passed = middle.saturating_sub(then);
        if taken >= TAKEN * capacity || passed >= self.pace {
            // All in one tick of the caller's clock: any number may follow.
            let need = if passed == 0 { f64::MAX } else { taken * window / passed as f64 };
            state.set_own(NEED, need.min(MOST_KEYS) as u64);
            self.set_base(keys, middle);
        }
        (state.own(NEED) as f64).max(keys)
    }

    /// Sets the inserts of the next interval: a 16th of the live keys, so that the peak of a burst
    /// is measured in a bank of any size.
    fn set_length(&self, capacity: f64, keys: f64) {
        let mut length = (keys.max(capacity / INTERVALS) / INTERVALS) as u64;
        if self.designs.burst.is_some() {
            let free = (FULL_IN_BURST * capacity - keys).max(0.0) as u64;
            length = length.min((free / 2).max(SHORT_INTERVAL));
        }
        self.state.set_own(LENGTH, length.clamp(LEAST_INSERTS, MOST_INSERTS));
    }

    /// Drops the measurements of a bank that takes no more keys, or before a silence.
    fn forget(&self) {
        [KEYS, BASE, NEED].into_iter().for_each(|word| self.state.set_own(word, 0));
    }

    fn set_base(&self, keys: f64, middle: Micros) {
        self.state.set_own(BASE, keys as u64 + 1);
        self.state.set_own(BASE_TIME, middle);
    }

    /// Requests a bank for this many keys, or as many as the limit of memory allows. That keeps the
    /// room, and a slot, for a small bank that takes the keys of calmer times.
    fn want(&self, layout: Layout, bank: &BankEntry, keys: f64, in_burst: bool) {
        let Designs { memory, calm, burst } = self.designs;
        let in_burst = in_burst && burst.is_some();
        let mut keys = keys.min(self.capacity_of_words(layout, MOST_WORDS));
        let least = WORTHWHILE * self.designs.capacity(layout, bank.geometry);
        let small = memory.of_bank(layout, calm.geometry(layout, self.first_keys(layout)));
        let left = memory.left(layout, &self.state).saturating_sub(small);
        let spare = usize::from(in_burst);
        let has_slot = self.state.banks().count() + spare < self.state.slots();
        while has_slot && keys >= least.max(1.0) {
            let geometry = self.designs.geometry(layout, keys, in_burst);
            if memory.of_bank(layout, geometry) <= left {
                let flag = if in_burst { IN_BURST } else { 0 };
                return self.state.set_own(WANTED, flag | keys as u64);
            }
            keys *= LESS;
        }
        self.state.set_own(LACKING, 1);
    }

    fn first_keys(&self, layout: Layout) -> f64 {
        self.capacity_of_words(layout, FIRST_WORDS)
    }

    fn set_low(&self, since: Micros, keys: u64) {
        self.state.set_own(LOW_SINCE, since);
        self.state.set_own(LOW_KEYS, keys);
    }

    /// Finds a bank that is not the newest and whose keys have all expired: they are older than its
    /// successor, or younger by no more than the grace.
    fn find_dead(&self, time: Micros) {
        let state = &self.state;
        let Some(oldest) = state.banks().min_by_key(|bank| (bank.since, bank.id)) else { return };
        let later = state.banks().filter(|bank| bank.id > oldest.id);
        let Some(next) = later.min_by_key(|bank| bank.id) else { return };
        let opened = state.own(self.opened_at(next.id));
        let last = opened.saturating_add(self.pace) / self.pace;
        let generations = u64::from(self.designs.calm.shape.generations);
        if time / self.pace > last.saturating_add(generations) {
            state.set_own(DEAD, u64::from(oldest.id) + 1);
        }
    }
}
