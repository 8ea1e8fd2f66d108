//! The record of generations, in the kind words of the filter-wide state.
//!
//! Owns: which generation is open, when each of the last [`RING`] opened and ended, how many keys
//! it took, and the measures that later decisions about sizes need. Changed by events only.
//! Invariants: ends never decrease with the generation; a record is overwritten only when its
//! generation ended at least a whole window ago. This module is independent of blocks and cells.
//!
//! The open generation closes a `pace` after it opened, whether or not an event has recorded it, so
//! queries at any time see the same closings that the next insert would make. It *ends*, and its
//! keys' last window begins, a `grace` after it closed. This protects an insert that read its step
//! just before another thread's event, and whose time is ahead of the event's by no more than the
//! grace.

use crate::kind::{BankEntry, Micros, State};
use std::ops::Range;

/// Generations on record: those of a window, by time, plus those that bursts may add.
pub(super) const RING: u64 = 224;

const CURRENT: usize = 0;
const NEW_BITS: usize = 1;
const FULL: usize = 2;
const WATCHED: usize = 3;
const BANK_TIME: usize = 4;
const OPENED: usize = 5;
const ENDED: usize = 16;
const TAKEN: usize = ENDED + RING as usize;

const _: () = assert!(TAKEN + RING as usize <= crate::state::STATE_OWN_WORDS);

/// The low bits of a word of [`TAKEN`]: the time for which the generation was open, in units (see
/// [`Generations::unit`]). The bits above are its keys; the largest bank takes 2^36 of them.
const LASTED_BITS: u32 = 24;
const MOST_LASTED: u64 = (1 << LASTED_BITS) - 1;
const MOST_KEYS: u64 = u64::MAX >> LASTED_BITS;

/// A view of the record of generations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Generations<'a> {
    state: State<'a>,
    /// The longest that a generation stays open.
    pace: Micros,
    /// The time from its close to its end.
    grace: Micros,
    /// The number of the filter's first generation.
    first: u64,
}

/// The change that a Step event makes to the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// The generation that opens.
    pub(super) generation: u64,
    /// The time at which it opens.
    pub(super) time: Micros,
    /// The sum of new bits at that time.
    pub(super) new_bits: u64,
    /// The keys that the generation before it took.
    pub(super) keys_before: u64,
}

impl<'a> Generations<'a> {
    pub(super) fn new(state: &State<'a>, (pace, grace): (Micros, Micros), first: u64) -> Self {
        Self { state: *state, pace, grace, first }
    }

    fn at(ring: usize, generation: u64) -> usize {
        ring + (generation % RING) as usize
    }

    /// Returns the open generation.
    pub(super) fn current(&self) -> u64 {
        self.state.own(CURRENT)
    }

    /// Returns the oldest generation on record.
    pub(super) fn oldest(&self) -> u64 {
        self.current().saturating_sub(RING - 1).max(self.first)
    }

    /// Returns the oldest generation on record that took keys, or the open one; and whether it is
    /// the first that did.
    pub(super) fn beginning(&self) -> (u64, bool) {
        let oldest = self.oldest();
        if oldest > self.first {
            return (oldest, false);
        }
        let took = (oldest..self.current()).find(|&generation| self.keys(generation) > 0);
        (took.unwrap_or(self.current()), true)
    }

    /// Returns when a generation on record opened; for a closed one up to a [`Generations::unit`]
    /// too late.
    pub(super) fn opened(&self, generation: u64) -> Micros {
        if generation < self.current() {
            self.closed(generation).saturating_sub(self.lasted(generation))
        } else {
            self.state.own(OPENED)
        }
    }

    /// Returns the unit in which the duration of a generation is recorded: a microsecond, and for
    /// paces above 16 s such that a pace is at most 2^24 units.
    fn unit(&self) -> Micros {
        self.pace.div_ceil(MOST_LASTED).max(1)
    }

    /// Returns when the open generation closes at the latest.
    pub(super) fn close(&self) -> Micros {
        self.opened(self.current()).saturating_add(self.pace)
    }

    /// Returns when a generation on record closed, or will have closed at the latest.
    pub(super) fn closed(&self, generation: u64) -> Micros {
        self.end(generation).saturating_sub(self.grace)
    }

    /// Returns when a generation on record ended, or will have ended at the latest.
    pub(super) fn end(&self, generation: u64) -> Micros {
        if generation < self.current() {
            self.state.own(Self::at(ENDED, generation))
        } else {
            self.close().saturating_add(self.grace)
        }
    }

    /// Returns how long a closed generation was open.
    pub(super) fn lasted(&self, generation: u64) -> Micros {
        let units = self.state.own(Self::at(TAKEN, generation)) & MOST_LASTED;
        units.saturating_mul(self.unit())
    }

    /// Returns the total time for which these generations, which are on record, were open by now,
    /// and how many of them an insert opened (all except the skipped ones). Those that have not
    /// opened count 0.
    #[inline]
    pub(super) fn open_in(&self, generations: Range<u64>, now: Micros) -> (Micros, u64) {
        let current = self.current();
        let end = generations.end.min(current);
        let (mut units, mut opened, mut open) = (0_u64, 0, 0);
        for generation in generations.start.max(end.saturating_sub(RING))..end {
            let taken = self.state.own(Self::at(TAKEN, generation));
            units = units.saturating_add(taken & MOST_LASTED);
            opened += u64::from(taken != 0);
        }
        if generations.contains(&current) {
            open = now.min(self.close()).saturating_sub(self.state.own(OPENED));
            opened += 1;
        }
        (units.saturating_mul(self.unit()).saturating_add(open), opened)
    }

    /// Returns the keys that a closed generation on record took.
    pub(super) fn keys(&self, generation: u64) -> u64 {
        self.state.own(Self::at(TAKEN, generation)) >> LASTED_BITS
    }

    /// Returns whether a closed generation used its allowance so early that the need must have been
    /// above the reduced allowance of the generations that follow such a one (see
    /// `bank_sizes::HURRIED`).
    pub(super) fn early(&self, generation: u64) -> bool {
        self.keys(generation) > 0 && self.lasted(generation) < self.pace / 5 * 4
    }

    /// Returns whether the generation before the open one was [`Generations::early`]; only those
    /// from `since` on count.
    pub(super) fn hurried(&self, since: u64) -> bool {
        let before = self.current().checked_sub(1);
        before.is_some_and(|before| before >= since.max(self.oldest()) && self.early(before))
    }

    /// Returns the sum of new bits when the open generation opened.
    pub(super) fn new_bits(&self) -> u64 {
        self.state.own(NEW_BITS)
    }

    /// Returns the sum of new bits at which the allowance of the open generation is used.
    pub(super) fn full(&self) -> u64 {
        self.state.own(FULL)
    }

    /// Returns the time since which the need has been measured in the newest bank without a silence
    /// as long as the window.
    pub(super) fn watched_since(&self) -> Micros {
        self.state.own(WATCHED)
    }

    /// Returns when the newest bank opened.
    pub(super) fn bank_time(&self) -> Micros {
        self.state.own(BANK_TIME)
    }

    /// Returns the first generation that ends later than `age` before `now`; the one after the open
    /// one if none does.
    ///
    /// Half-open: a generation that ended exactly `age` ago does not count.
    pub(super) fn first_since(&self, now: Micros, age: Micros) -> u64 {
        let current = self.current();
        let is_later = |end: Micros| end.saturating_add(age) > now;
        let (mut low, mut high) = (self.oldest(), current);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_later(self.state.own(Self::at(ENDED, middle))) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if low == current && !is_later(self.end(current)) { current.saturating_add(1) } else { low }
    }

    /// Starts the record: the first generation opens at time 0.
    pub(super) fn start(&self) {
        self.state.set_own(CURRENT, self.first);
    }

    /// Closes the open generation and opens another. Generations skipped between them were empty.
    pub(super) fn open(&self, opening: &Opening, window: Micros) {
        let Opening { generation, time, new_bits, keys_before } = *opening;
        let before = self.current();
        let close = time.min(self.close());
        let lasted = close.saturating_sub(self.opened(before));
        let end = close.saturating_add(self.grace);
        self.record(before, end, lasted, keys_before);
        let skipped = before.saturating_add(1).max(generation.saturating_sub(RING - 1));
        for empty in skipped..generation {
            self.record(empty, end, 0, 0);
        }
        if time >= end.saturating_add(window) {
            self.state.set_own(WATCHED, time);
        }
        self.state.set_own(OPENED, time);
        self.state.set_own(NEW_BITS, new_bits);
        self.state.set_own(CURRENT, generation);
    }

    /// Records a closed generation.
    fn record(&self, generation: u64, ended: Micros, lasted: Micros, keys: u64) {
        let taken = keys.min(MOST_KEYS) << LASTED_BITS | (lasted / self.unit()).min(MOST_LASTED);
        self.state.set_own(Self::at(ENDED, generation), ended);
        self.state.set_own(Self::at(TAKEN, generation), taken);
    }

    /// Sets the sum of new bits at which the allowance of the open generation is used.
    pub(super) fn set_full(&self, full: u64) {
        self.state.set_own(FULL, full);
    }

    /// Records that a bank opened. The allowance of the open generation counts as used if its
    /// successor is to be in that bank, so a due step is detected without reading the table of
    /// banks.
    pub(super) fn begin_bank(&self, since: u64, time: Micros) {
        self.state.set_own(WATCHED, time.max(self.watched_since()));
        self.state.set_own(BANK_TIME, time.max(self.bank_time()));
        if since > self.current() {
            self.set_full(0);
        }
    }
}

/// Returns the last generation that a bank serves; unlimited for the newest.
pub(super) fn last_generation(state: &State<'_>, bank: &BankEntry) -> u64 {
    let later = |other: &BankEntry| (other.since, other.id) > (bank.since, bank.id);
    let next = state.banks().filter(later).map(|other| other.since).min();
    next.map_or(u64::MAX, |since| since.saturating_sub(1))
}
