//! The state block: the filter-wide state, in two copies.
//!
//! An event changes the inactive copy ([`NextState`]), then flips. Readers therefore never
//! wait, even for a writer that was stopped halfway; a writer that died there has not changed the
//! active one. The version's lowest bit indicates the active copy; see [`seqlock`]. A writer holds
//! stripe 0, or has exclusive access.

use crate::image::seqlock;
use crate::primitives::AtomicU64;
use ebbtide_core::block::{Block, OWN_WORDS, load, load_acquire, store, store_release};
use ebbtide_core::kind::State;

/// Words of a copy before the state: its LSN, a spare one, the kind's words.
const HEAD_WORDS: usize = 2 + OWN_WORDS;
/// The offset of the copies: the version has a cache line of its own.
const COPIES: usize = 8;

/// Returns the words of the state block for a state of this size.
#[must_use]
pub const fn state_block_words(state_words: usize) -> usize {
    COPIES + 2 * (HEAD_WORDS + state_words)
}

/// The state block.
#[derive(Debug, Clone, Copy)]
pub struct StateBlock<'a> {
    version: &'a AtomicU64,
    copies: &'a [AtomicU64],
}

/// One of its copies.
#[derive(Debug, Clone, Copy)]
pub struct StateCopy<'a>(&'a [AtomicU64]);

impl<'a> StateBlock<'a> {
    /// Creates the state block in these words. Their number must be the [`state_block_words`] of
    /// some state.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[inline]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        debug_assert!(words.len() >= state_block_words(0) && words.len().is_multiple_of(2));
        let (version, copies) = words.split_at(COPIES);
        Self { version: &version[0], copies }
    }

    /// Returns the valid version.
    #[must_use]
    #[inline]
    pub fn version(&self) -> u64 {
        seqlock::current(self.version)
    }

    /// Returns the valid version, for a caller that has read a bank: if this version lists the
    /// bank, nothing of what was read had been freed.
    #[must_use]
    pub fn version_after_reads(&self) -> u64 {
        seqlock::current_after_reads(self.version)
    }

    /// Returns whether the data read from the copy of `before` is consistent.
    #[must_use]
    #[inline]
    pub fn unchanged(&self, before: u64) -> bool {
        seqlock::unchanged(self.version, before)
    }

    /// Returns the copy of a version.
    #[must_use]
    #[inline]
    pub fn copy(&self, version: u64) -> StateCopy<'a> {
        let (even, odd) = self.copies.split_at(self.copies.len() / 2);
        StateCopy(if version & 1 == 0 { even } else { odd })
    }

    /// Returns the filter-wide state of a version.
    #[must_use]
    #[inline]
    pub fn state(&self, version: u64) -> State<'a> {
        State::new(&self.copy(version).0[HEAD_WORDS..])
    }

    /// Returns the words of the filter-wide state of a version, copied.
    #[must_use]
    pub fn words_of(&self, version: u64) -> Box<[AtomicU64]> {
        let words = &self.copy(version).0[HEAD_WORDS..];
        words.iter().map(|word| AtomicU64::new(load_acquire(word))).collect()
    }

    /// Returns the active copy.
    #[must_use]
    #[inline]
    pub fn current(&self) -> StateCopy<'a> {
        self.copy(self.version())
    }

    /// Returns the LSN last applied. The copy in which it stands may be written again while it is
    /// read.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        loop {
            let version = self.version();
            let lsn = self.copy(version).lsn();
            if self.unchanged(version) {
                return lsn;
            }
        }
    }

    /// Begins to change the state, for the holder of stripe 0.
    #[must_use]
    pub fn next_state(&self) -> NextState<'a> {
        let next = seqlock::begin_other(self.version);
        let copy = self.copy(next);
        copy.copy_from(&self.copy(next.wrapping_sub(1)));
        NextState { version: self.version, next, copy }
    }

    /// Changes the state up to this LSN, for the holder of stripe 0.
    pub fn change(&self, lsn: u64, change: impl FnOnce(&State<'_>)) {
        let next = self.next_state();
        change(&next.state());
        next.publish(lsn);
    }
}

/// The next state, which nobody else sees yet. To drop it changes nothing.
#[derive(Debug)]
pub struct NextState<'a> {
    version: &'a AtomicU64,
    next: u64,
    copy: StateCopy<'a>,
}

impl<'a> NextState<'a> {
    /// Returns the state to be changed.
    #[must_use]
    #[inline]
    pub fn state(&self) -> State<'a> {
        self.copy.state()
    }

    /// Makes it the valid state, up to this LSN.
    pub fn publish(&self, lsn: u64) {
        self.copy.set_lsn(lsn);
        seqlock::flip(self.version, self.next);
    }
}

impl<'a> StateCopy<'a> {
    /// Returns the LSN last applied.
    #[must_use]
    #[inline]
    pub fn lsn(&self) -> u64 {
        load(&self.0[0])
    }

    /// Sets the LSN last applied, for a caller with exclusive access to the image.
    pub fn set_lsn(&self, lsn: u64) {
        store(&self.0[0], lsn);
    }

    /// Returns the copy as a block: the content of snapshots and digests.
    #[must_use]
    #[inline]
    pub fn block(&self) -> Block<'a> {
        let (own, cells) = self.0[2..].split_at(OWN_WORDS);
        Block::alone(own, cells)
    }

    /// Returns the filter-wide state: its cells.
    #[must_use]
    #[inline]
    pub fn state(&self) -> State<'a> {
        State::new(self.block().cells)
    }

    fn copy_from(&self, from: &Self) {
        self.state().copy_banks(&from.state());
        for (to, from) in self.0.iter().zip(from.0) {
            let value = load(from);
            if load(to) != value {
                // `copy_banks` has stored the numbers of banks already.
                store_release(to, value);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use ebbtide_core::block::Geometry;
    use ebbtide_core::kind::Event;
    use ebbtide_core::state::{STATE_OWN_WORDS, STATE_WORDS};

    fn words() -> Vec<AtomicU64> {
        (0..state_block_words(STATE_WORDS)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_change_keeps_what_it_does_not_touch_and_counts_once_it_is_whole() {
        let words = words();
        let state_block = StateBlock::new(&words);
        state_block.current().set_lsn(3);
        store(&state_block.current().block().own[5], 11);
        let geometry = Geometry { blocks_per_stripe: 2, words_per_block: 64 };
        for lsn in 5..9_u64 {
            let (before, at) = (state_block.version(), lsn as usize);
            let old = state_block.current();
            let (old_lsn, old_own) = (old.lsn(), old.state().own(at));
            state_block.change(lsn, |state| {
                let event = Event::OpenBank { id: lsn as u32, geometry, since: lsn, time: 0 };
                state.apply_banks(&event);
                state.set_own(at, lsn);
                state.set_own(STATE_OWN_WORDS - 1, lsn);
                assert!(state_block.unchanged(before), "it does not count yet");
            });
            assert!(!state_block.unchanged(before) && state_block.unchanged(before + 1));
            assert_eq!(state_block.version(), before + 1);
            assert_eq!((old.lsn(), old.state().own(at)), (old_lsn, old_own), "for who still reads");
            let (now, state) = (state_block.current(), state_block.state(before + 1));
            assert_eq!((now.lsn(), now.block().own(5)), (lsn, 11));
            assert_eq!(now.block().own.len(), OWN_WORDS);
            for state in [state, now.state()] {
                let own: Vec<_> = (5..9).map(|at| state.own(at)).collect();
                let expected: Vec<_> = (5..9).map(|at| if at > lsn { 0 } else { at }).collect();
                assert_eq!((own, state.own(STATE_OWN_WORDS - 1)), (expected, lsn));
                let banks: Vec<_> = state.banks().map(|bank| u64::from(bank.id)).collect();
                assert_eq!(banks, (5..=lsn).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn its_version_and_its_copies_lie_beside_one_another() {
        let words = words();
        let state_block = StateBlock::new(&words);
        for (version, value) in [(0, 1), (1, 2)] {
            state_block.copy(version).0.iter().for_each(|word| store(word, value));
        }
        let count = |value| words.iter().filter(|&word| load(word) == value).count();
        let copy = HEAD_WORDS + STATE_WORDS;
        assert_eq!([count(1), count(2), count(0)], [copy, copy, COPIES]);
        assert_eq!(state_block.version(), 0);
    }
}
