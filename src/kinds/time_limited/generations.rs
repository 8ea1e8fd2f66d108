//! The record of generations, in the kind's own words of the filter-wide state.
//!
//! Owns: which generation is open, when each of the last [`RING`] opened and ended, how many keys it
//! took, and what later decisions about sizes need to have been measured. Changed by events only.
//! Invariants: ends never decrease with the generation; a record is overwritten only when its
//! generation has ended a whole window ago.
//! Knows nothing of blocks and cells.
//!
//! The open generation closes a `pace` after it opened, whether or not an event has said so: so queries at
//! any time see the same closings that the next insert would make. It *ends*, and its keys' last window
//! begins, a `grace` after it closed: an insert that could not wait for the event, or read the state just
//! before it, is safe there.

use super::super::{Micros, State};

/// Generations on record.
pub(super) const RING: u64 = 128;

const CURRENT: usize = 0;
const NOVELTY: usize = 1;
const FULL: usize = 2;
const WATCHED: usize = 3;
const BANK_TIME: usize = 4;
const OPENED: usize = 16;
const ENDED: usize = OPENED + RING as usize;
const KEYS: usize = ENDED + RING as usize;

const _: () = assert!(KEYS + RING as usize <= super::super::state::STATE_OWN_WORDS);

/// A view of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Generations<'a> {
    state: State<'a>,
    /// The longest that a generation stays open.
    pace: Micros,
    /// From its close to its end.
    grace: Micros,
    /// The number of the filter's first generation.
    first: u64,
}

/// What a Step event makes of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// The generation that opens.
    pub(super) generation: u64,
    /// When.
    pub(super) time: Micros,
    /// The sum of novelty then.
    pub(super) novelty: u64,
    /// The keys that the generation before it took.
    pub(super) keys_before: u64,
}

impl<'a> Generations<'a> {
    pub(super) fn new(state: &State<'a>, (pace, grace): (Micros, Micros), first: u64) -> Self {
        Self {
            state: *state,
            pace,
            grace,
            first,
        }
    }

    fn at(ring: usize, generation: u64) -> usize {
        ring + (generation % RING) as usize
    }

    /// The open generation.
    pub(super) fn current(&self) -> u64 {
        self.state.own(CURRENT)
    }

    /// The oldest generation on record.
    pub(super) fn oldest(&self) -> u64 {
        self.current().saturating_sub(RING - 1).max(self.first)
    }

    /// When a generation on record opened.
    pub(super) fn opened(&self, generation: u64) -> Micros {
        self.state.own(Self::at(OPENED, generation))
    }

    /// When the open generation closes at the latest.
    pub(super) fn close(&self) -> Micros {
        self.opened(self.current()).saturating_add(self.pace)
    }

    /// When a generation on record ended, or will have ended at the latest.
    pub(super) fn end(&self, generation: u64) -> Micros {
        if generation < self.current() {
            self.state.own(Self::at(ENDED, generation))
        } else {
            self.close().saturating_add(self.grace)
        }
    }

    /// How long a closed generation was open.
    pub(super) fn lasted(&self, generation: u64) -> Micros {
        let close = self.end(generation).saturating_sub(self.grace);
        close.saturating_sub(self.opened(generation))
    }

    /// The keys that a closed generation on record took.
    pub(super) fn keys(&self, generation: u64) -> u64 {
        self.state.own(Self::at(KEYS, generation))
    }

    /// The sum of novelty when the open generation opened.
    pub(super) fn novelty(&self) -> u64 {
        self.state.own(NOVELTY)
    }

    /// The sum of novelty at which the allowance of the open generation is used.
    pub(super) fn full(&self) -> u64 {
        self.state.own(FULL)
    }

    /// Since when the need has been watched in the newest bank without a silence as long as the window.
    pub(super) fn watched_since(&self) -> Micros {
        self.state.own(WATCHED)
    }

    /// When the newest bank began.
    pub(super) fn bank_time(&self) -> Micros {
        self.state.own(BANK_TIME)
    }

    /// The first generation that ends later than `age` before `now`; the one after the open one if none does.
    ///
    /// Half-open: a generation that ended exactly `age` ago does not count.
    pub(super) fn first_since(&self, now: Micros, age: Micros) -> u64 {
        let (mut low, mut high) = (self.oldest(), self.current().saturating_add(1));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.end(middle).saturating_add(age) > now {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Starts the record: the first generation opens at time 0.
    pub(super) fn start(&self) {
        self.state.set_own(CURRENT, self.first);
    }

    /// Closes the open generation and opens another. Generations skipped between them were empty.
    pub(super) fn open(&self, opening: &Opening, window: Micros) {
        let Opening {
            generation,
            time,
            novelty,
            keys_before,
        } = *opening;
        let before = self.current();
        let end = time.min(self.close()).saturating_add(self.grace);
        self.state.set_own(Self::at(ENDED, before), end);
        self.state.set_own(Self::at(KEYS, before), keys_before);
        let skipped = before
            .saturating_add(1)
            .max(generation.saturating_sub(RING - 1));
        for empty in skipped..generation {
            self.record(empty, end, end);
        }
        self.record(generation, time, 0);
        if time >= end.saturating_add(window) {
            self.state.set_own(WATCHED, time);
        }
        self.state.set_own(NOVELTY, novelty);
        self.state.set_own(CURRENT, generation);
    }

    fn record(&self, generation: u64, opened: Micros, ended: Micros) {
        self.state.set_own(Self::at(OPENED, generation), opened);
        self.state.set_own(Self::at(ENDED, generation), ended);
        self.state.set_own(Self::at(KEYS, generation), 0);
    }

    /// Sets the sum of novelty at which the allowance of the open generation is used.
    pub(super) fn set_full(&self, full: u64) {
        self.state.set_own(FULL, full);
    }

    /// Notes that a bank began. The allowance of the open generation counts as used if its successor is to
    /// be in that bank: so nobody need look at the table of banks to know that a step is due.
    pub(super) fn begin_bank(&self, since: u64, time: Micros) {
        self.state.set_own(WATCHED, time.max(self.watched_since()));
        self.state.set_own(BANK_TIME, time.max(self.bank_time()));
        if since > self.current() {
            self.set_full(0);
        }
    }
}
