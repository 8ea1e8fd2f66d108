//! Generations of a fixed number of inserts.

use super::{Age, Event, Events, Moment, State, Totals};
use crate::block::Layout;

/// Generations that end after a number of inserts, duplicates included.
///
/// A step is due before the insert that follows a full generation. It changes two words of the
/// filter-wide state and no block: a kind's blocks catch up when they are next touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedGenerations {
    /// The inserts of a generation.
    pub length: u64,
}

impl CountedGenerations {
    /// The kind word of the filter-wide state that holds the open generation.
    pub const CURRENT: usize = 0;

    /// The kind word that holds the number of inserts when that generation began.
    pub const BEGAN: usize = 1;

    /// Returns the open generation.
    #[must_use]
    #[inline]
    pub fn current(state: &State<'_>) -> u64 {
        state.own(Self::CURRENT)
    }

    /// Returns the inserts into the open generation.
    #[must_use]
    #[inline]
    pub fn open_inserts(state: &State<'_>, totals: &Totals) -> u64 {
        totals.inserts.saturating_sub(state.own(Self::BEGAN))
    }

    /// Returns how many inserts ago the generation began that is `generations` before the open one.
    #[must_use]
    pub fn began(&self, state: &State<'_>, totals: &Totals, generations: u64) -> Age {
        let closed = generations.saturating_mul(self.length);
        let inserts = Self::open_inserts(state, totals).saturating_add(closed);
        Age::Items(inserts.min(totals.inserts))
    }

    /// Returns the number of inserts at which as many generations are full, the open one first.
    #[inline]
    fn full(&self, state: &State<'_>, generations: u64) -> u64 {
        state.own(Self::BEGAN).saturating_add(self.length.saturating_mul(generations))
    }
}

impl Events for CountedGenerations {
    #[inline]
    fn due(&self, state: &State<'_>, _: Layout, moment: &Moment) -> Option<Event> {
        (moment.totals.inserts >= self.full(state, 1)).then(|| Event::Step {
            step: Self::current(state).saturating_add(1),
            time: moment.now,
            word: moment.totals.inserts,
        })
    }

    fn apply(&self, state: &State<'_>, _: Layout, event: &Event) {
        if let Event::Step { step, word, .. } = *event
            && step > Self::current(state)
        {
            state.set_own(Self::CURRENT, step);
            state.set_own(Self::BEGAN, word);
        }
    }

    /// Returns the generation that opens next, for as many inserts as a generation takes. It opens
    /// either at this insert or before and then takes that many more, or after it. In both cases it
    /// is this key's generation or a younger one.
    fn step_without(&self, state: &State<'_>, moment: &Moment) -> Option<u64> {
        let next = Self::current(state).saturating_add(1);
        (moment.totals.inserts < self.full(state, 2)).then_some(next)
    }
}
