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
//!   and twice as large if that has served for half a window, because bursts end. So memory stays
//!   in proportion to the keys.
//! - *Shrink*: a bank that stayed below a quarter of its capacity for a whole window gets a
//!   successor for its greatest load in that time, if that is at most half as large.
//! - *Close*: a bank whose keys have all expired.
//!
//! Values that affect the state use only operations that IEEE 754 fixes to the last bit.

use super::plan::{Design, MOST_WORDS, geometry_of};
use crate::block::{Layout, MAX_BANKS};
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
/// The live keys for which a bank is wanted; 0 if none is.
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
/// When each bank opened, by its number modulo 8.
const BANKS: usize = 16;

/// Words of the first bank if no rate is given: 32 KiB.
pub(super) const FIRST_WORDS: u64 = 4096;

/// The factor between the capacity of a bank and the live keys that it is expected to hold.
pub(super) const MARGIN: f64 = 1.25;

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
    Wanted(f64),
}

/// A view of the measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pressure<'a> {
    state: State<'a>,
    design: &'a Design,
    window: Micros,
    pace: Micros,
}

impl<'a> Pressure<'a> {
    pub(super) fn new(
        state: &State<'a>,
        design: &'a Design,
        (window, pace): (Micros, Micros),
    ) -> Self {
        Self { state: *state, design, window, pace }
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

    /// Returns the live keys of the newest bank, as measured last; `None` if nothing was measured.
    pub(super) fn live_keys(&self) -> Option<f64> {
        (self.state.own(KEYS) > 0).then(|| self.state.own(KEYS) as f64)
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
        let over = now >= state.own(BEGAN).saturating_add(self.pace);
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
            return Some(Due::Wanted(state.own(WANTED) as f64));
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
                state.set_own(BANKS + id as usize % MAX_BANKS, time);
                state.set_own(OPENED, 1);
                state.set_own(WANTED, 0);
            }
            Event::CloseBank { id, .. } if state.own(DEAD) == u64::from(id) + 1 => {
                state.set_own(DEAD, 0);
            }
            _ => {}
        }
    }

    /// Measures the interval that ends, and decides what follows.
    fn measure(&self, layout: Layout, step: u64, time: Micros, word: u64) {
        let state = &self.state;
        let [before, bank] = [self.current(), step].map(|step| state.bank_of_step(step));
        let Some(bank) = bank else { return };
        let capacity = self.design.capacity(layout, bank.geometry);
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
            return self.set_low(time, 0);
        }
        let fills = (word as u32).wrapping_sub(sums as u32);
        let keys = self.keys(layout, &bank, f64::from(fills) / f64::from(inserts));
        self.decide(layout, &bank, time, keys);
    }

    /// Returns the live keys of a bank whose blocks are filled like this on average.
    fn keys(&self, layout: Layout, bank: &BankEntry, fill: f64) -> f64 {
        let shape = self.design.shape;
        let slots = u64::from(bank.geometry.words_per_block / shape.words() * shape.slots);
        let unit = Self::unit(slots);
        // Of a unit, half is cut off on average.
        let cut = if unit == 0 { 0.0 } else { 0.5 };
        (fill + cut) * (1_u64 << unit) as f64 * layout.blocks(bank.geometry) as f64
    }

    /// Decides from the keys of the newest bank, over the interval that ends at `time`.
    fn decide(&self, layout: Layout, bank: &BankEntry, time: Micros, keys: f64) {
        let state = &self.state;
        let capacity = self.design.capacity(layout, bank.geometry);
        self.set_length(capacity, keys);
        let began = state.own(BEGAN).min(time);
        let need = self.need(capacity, keys, began + (time - began) / 2);
        state.set_own(KEYS, keys as u64);
        let load = keys / capacity;
        let has_room = state.banks().count() < MAX_BANKS;
        if load >= LOW {
            self.set_low(time, 0);
        } else {
            let most = state.own(LOW_KEYS).max(keys as u64);
            self.set_low(state.own(LOW_SINCE), most);
        }
        let served = time.saturating_sub(state.own(SINCE)) >= self.window / 2;
        let hurried = !served && load >= HALF && need >= FAR_MORE * capacity;
        if (load >= FULL || hurried) && has_room {
            let grown = self.design.capacity(layout, geometry_of(layout, GROWN_WORDS));
            let young = (MOST_GROWTH * capacity).max(grown);
            let most = if served { CALM_GROWTH * capacity } else { young };
            let keys = (MARGIN * need).max(LEAST_GROWTH * capacity).min(most);
            return self.want(layout, keys);
        }
        let low =
            time.saturating_sub(state.own(LOW_SINCE)) >= self.window.saturating_add(self.pace);
        if low && has_room {
            let least = self.design.capacity(layout, geometry_of(layout, FIRST_WORDS));
            let keys = (MARGIN * state.own(LOW_KEYS) as f64).max(least.min(capacity));
            let words = |geometry| layout.words(geometry);
            if words(self.design.geometry(layout, keys)) <= words(bank.geometry) / 2 {
                self.want(layout, keys);
            }
        }
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
        let length = keys.max(capacity / INTERVALS) / INTERVALS;
        self.state.set_own(LENGTH, (length as u64).clamp(LEAST_INSERTS, MOST_INSERTS));
    }

    /// Drops the measurements of a bank that takes no more keys, or before a silence.
    fn forget(&self) {
        [KEYS, BASE, NEED].into_iter().for_each(|word| self.state.set_own(word, 0));
    }

    fn set_base(&self, keys: f64, middle: Micros) {
        self.state.set_own(BASE, keys as u64 + 1);
        self.state.set_own(BASE_TIME, middle);
    }

    /// Requests a bank for this many keys, as far as there are such banks.
    fn want(&self, layout: Layout, keys: f64) {
        let keys = keys.min(self.design.capacity(layout, geometry_of(layout, MOST_WORDS)));
        self.state.set_own(WANTED, (keys as u64).max(1));
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
        let opened = state.own(BANKS + next.id as usize % MAX_BANKS);
        let last = opened.saturating_add(self.pace) / self.pace;
        let generations = u64::from(self.design.shape.generations);
        if time / self.pace > last.saturating_add(generations) {
            state.set_own(DEAD, u64::from(oldest.id) + 1);
        }
    }
}
