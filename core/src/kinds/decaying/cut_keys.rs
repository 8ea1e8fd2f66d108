//! The keys of which something was cut off, because all their counters were full.
//!
//! **Whose is what was cut off?** A counter holds at least what is left of a key's own inserts, as
//! long as that was never more than a full counter. If another key fills it, it was full then, and
//! decays as a full one. So nothing of a key is missing until one of its own inserts finds its
//! *least* counter too full. Such keys are few: only those whose estimate alone exceeds a counter.
//!
//! They are kept in two words of the block, each a Bloom filter of 63 bits. Time is divided into
//! *periods*, at least as long as what was cut off can matter. An insert adds its key to the filter
//! of its period, even or odd, and a period ends by clearing the one before it. So a key is in one
//! of the two for as long as it must be, and for two periods after its latest cut at most, however
//! often other keys of the block are cut.
//!
//! Blocks that were written before there were such filters have neither. While something that was
//! cut off matters in them, it may be of any key.

use crate::block::Block;
use crate::hash::mix;

/// The bit that tells a filter with keys from other words.
const FILTER: u64 = 1 << 63;

/// Bits of a filter.
const BITS: u64 = 63;

/// Bits of a key, some of which may be the same: at 6 of 63, another key is taken for an only one
/// with a probability of `10^-6`, for one of four with `10^-3`.
const BITS_OF_KEY: u32 = 6;

/// Bits of a hash that choose one bit.
const CHOICE: u32 = 10;

/// Where a decay function keeps the keys that were cut, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CutKeys {
    /// The kind words of even and of odd periods.
    pub(super) words: [usize; 2],
    /// The length of a period, in the unit of the block's time: something that was cut off matters
    /// no longer after the end of the next period.
    pub(super) period: u64,
}

impl CutKeys {
    fn word_of(&self, period: u64) -> usize {
        self.words[(period % 2) as usize]
    }

    /// Adds a key that was cut at this time, that of the block. `others` says whether something
    /// that was cut off before still matters.
    pub(super) fn add(&self, block: &Block<'_>, hash: u64, time: u64, others: bool) {
        let word = self.word_of(time / self.period);
        let of_any = others && !self.is_known(block);
        let keys = if of_any { u64::MAX } else { block.own(word) | bits_of(hash) };
        block.set_own(word, keys);
    }

    /// Returns whether a key may have been cut so lately that it matters at time `now`; the block
    /// has caught up to `caught_up`, and something that was cut off still matters.
    #[inline]
    pub(super) fn may_have(&self, block: &Block<'_>, hash: u64, caught_up: u64, now: u64) -> bool {
        let bits = bits_of(hash);
        let mut filters = self.filters(block, caught_up, now);
        filters.any(|keys| keys & bits == bits) || !self.is_known(block)
    }

    /// Returns the probability that a key which was not cut seems to be, in a block caught up in
    /// which something that was cut off still matters.
    pub(super) fn rate(&self, block: &Block<'_>) -> f64 {
        if !self.is_known(block) {
            return 1.0;
        }
        let rate = |keys: u64| {
            let used = f64::from((keys & !FILTER).count_ones()) / BITS as f64;
            used.powi(BITS_OF_KEY as i32)
        };
        let filters = self.filters(block, 0, 0);
        1.0 - filters.fold(1.0, |none, keys| none * (1.0 - rate(keys)))
    }

    /// Ends periods, as the block's time goes from one to a later one.
    pub(super) fn catch_up(&self, block: &Block<'_>, from: u64, to: u64) {
        let (from, to) = (from / self.period, to / self.period);
        let ended = to.saturating_sub(from).min(2);
        // Those of the period before, and of this one if the next has ended, too.
        (0..ended).for_each(|period| self.clear_word(block, self.word_of(from ^ 1 ^ period)));
    }

    /// Forgets all keys.
    pub(super) fn clear(&self, block: &Block<'_>) {
        self.words.iter().for_each(|&word| self.clear_word(block, word));
    }

    fn clear_word(&self, block: &Block<'_>, word: usize) {
        if block.own(word) != 0 {
            block.set_own(word, 0);
        }
    }

    /// Returns whether any filter has keys.
    fn is_known(&self, block: &Block<'_>) -> bool {
        self.words.iter().any(|&word| block.own(word) & FILTER != 0)
    }

    /// Returns the filters of the period of `now`, or `caught_up` if that is later, and of the one
    /// before.
    fn filters(&self, block: &Block<'_>, caught_up: u64, now: u64) -> impl Iterator<Item = u64> {
        let caught_up = caught_up / self.period;
        let ended = (now / self.period).saturating_sub(caught_up);
        let is_left = move |age: u64| age + ended < 2;
        let words = [(0, self.word_of(caught_up)), (1, self.word_of(caught_up ^ 1))];
        let keys = words.map(|(age, word)| if is_left(age) { block.own(word) } else { 0 });
        keys.into_iter().filter(|keys| keys & FILTER != 0)
    }
}

/// Returns the bits of a key, with [`FILTER`].
fn bits_of(hash: u64) -> u64 {
    // Mixed, because bits of the hash itself chose the block.
    let choices = mix(hash);
    (0..BITS_OF_KEY).fold(FILTER, |bits, number| {
        let choice = choices >> (number * CHOICE) & ((1 << CHOICE) - 1);
        bits | 1 << ((choice * BITS) >> CHOICE)
    })
}
