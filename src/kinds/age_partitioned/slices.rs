//! Slices as columns of a block: where a bit lies, how rows are read, what catching up clears.
//!
//! Row `p` of a block holds bit `p` of all `n = k+l` slices, in a lane of 16, 32 or 64 bits; lanes are
//! packed into words. The slice made in generation `s` (any integer: a new filter has slices from before
//! generation 0) has column `s mod n` and hash function `s mod k`. At generation `G` the slice of age `a`
//! is the one made in `G-a`; an insert sets a key's bit in those of age below `k`.
//!
//! A block notes in its first own word the generation it has caught up to. Columns recycled since then
//! still hold slices that are gone: an insert clears them first, a query masks them.
//!
//! Nothing here trusts a word that it reads: any content gives an answer, and no panic.

use crate::cells::{Block, load, prefetch, store};
use crate::hash::Positions;
use crate::sync::AtomicU64;
use std::fmt;

/// The most words of a block that are used, so that its rows stay in the range of [`Positions`].
const MOST_BLOCK_WORDS: usize = 1 << 24;

/// The arrangement of the slices of one filter.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Slices {
    k: u32,
    n: u32,
    /// Binary logarithm of lanes in a word.
    lanes_log: u32,
    /// Ages that use one hash function, age 0 as the top bit, by how old the youngest of them is, from
    /// `k-1` down to 0 twice: `k` entries in a row, from the right start, belong to functions 0, 1, ….
    masks: Box<[u64]>,
}

impl fmt::Debug for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The masks follow from these.
        write!(f, "Slices {{ k: {}, n: {}, lanes: {} }}", self.k, self.n, self.lanes())
    }
}

/// Where a generation's slices lie.
#[derive(Clone, Copy)]
struct Place {
    /// The column of the youngest slice.
    column: u32,
    /// The hash function of the youngest slice.
    function: u32,
}

impl Slices {
    /// `k` slices that take inserts and `l` that only age, in rows of `columns` (16, 32 or 64) bits.
    pub(super) fn new(k: u32, l: u32, columns: u32) -> Self {
        let n = k + l;
        assert!(k >= 1 && l >= 1 && n <= columns && matches!(columns, 16 | 32 | 64));
        let ages = (0..n).step_by(k as usize).fold(0, |ages, age| ages | TOP >> age);
        let masks = (0..2 * k - 1).map(|i| ages >> ((2 * k - 1 - i) % k)).collect();
        Self { k, n, lanes_log: (64 / columns).ilog2(), masks }
    }

    /// Lanes in a word.
    pub(super) fn lanes(&self) -> u64 {
        1 << self.lanes_log
    }

    /// The ages, age 0 as the top bit, at which a run of `k` ones starts for this key, at the filter's
    /// generation or the block's own, whichever is later; and that generation.
    #[inline]
    pub(super) fn runs(&self, block: &Block<'_>, generation: u64, hash: u64) -> (u64, u64) {
        let caught_up = caught_up(block);
        let generation = generation.max(caught_up);
        let mut row = self.row(block, self.place(generation), hash);
        // The youngest slices' columns hold what they held before they were recycled.
        row &= u64::MAX.checked_shr(clamped(generation - caught_up)).unwrap_or(0);
        (runs_of(row, self.k), generation)
    }

    /// Sets the key's bits in the slices that take inserts at this generation, or at the block's own if that
    /// is later.
    #[inline]
    pub(super) fn insert(&self, block: &Block<'_>, generation: u64, hash: u64) {
        let generation = generation.max(caught_up(block));
        self.catch_up(block, generation);
        let (words, range) = self.rows_of(block);
        let positions = Positions::new(hash, range);
        let place = self.place(generation);
        let set = |function: u32, position: usize| {
            let Some(word) = words.get(position >> self.lanes_log) else {
                return;
            };
            let bit = self.lane_shift(position) + self.column(place, self.age_of(place, function));
            // Stored even if unchanged: whether it is cannot be predicted, so asking costs more.
            store(word, load(word) | 1 << bit);
        };
        for pair in 0..self.k / 2 {
            let (even, odd) = positions.pair(pair);
            set(2 * pair, even);
            set(2 * pair + 1, odd);
        }
        if self.k % 2 == 1 {
            set(self.k - 1, positions.get(self.k - 1));
        }
    }

    /// Asks for the words of the key's rows.
    #[inline]
    pub(super) fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let (words, range) = self.rows_of(block);
        let positions = Positions::new(hash, range);
        for function in 0..self.k {
            if let Some(word) = words.get(positions.get(function) >> self.lanes_log) {
                prefetch(word);
            }
        }
    }

    /// Clears the columns recycled since the block was last touched.
    #[inline]
    pub(super) fn catch_up(&self, block: &Block<'_>, generation: u64) {
        let caught_up = caught_up(block);
        if caught_up < generation {
            self.recycle(block, caught_up, generation);
        }
    }

    #[cold]
    fn recycle(&self, block: &Block<'_>, caught_up: u64, generation: u64) {
        let place = self.place(generation);
        let recycled = (generation - caught_up).min(self.n.into()) as u32;
        let lane = (0..recycled).fold(0, |lane, age| lane | 1 << self.column(place, age));
        let stride = 64 >> self.lanes_log;
        let word = (0..64).step_by(stride).fold(0_u64, |word, shift| word | lane << shift);
        for cell in block.cells {
            store(cell, load(cell) & !word);
        }
        if let Some(own) = block.own.first() {
            store(own, generation);
        }
    }

    /// The key's bits in all slices by age, age 0 as the top bit.
    #[inline]
    fn row(&self, block: &Block<'_>, place: Place, hash: u64) -> u64 {
        let (words, range) = self.rows_of(block);
        let positions = Positions::new(hash, range);
        let start = (self.k - 1 - place.function) as usize;
        let masks = &self.masks[start..start + self.k as usize];
        let word = |index: usize| words.get(index).map_or(0, load);
        let left = self.n - 1 - place.column;
        if self.n == 64 {
            return gather(positions, masks, |position| word(position).rotate_left(left));
        }
        // The lane is moved to the top, then turned until the youngest slice is the top bit. What the
        // right shift leaves below the `n` bits is cut off.
        let up = 64 - self.n;
        let row = gather(positions, masks, |position| {
            let lane = word(position >> self.lanes_log) >> self.lane_shift(position) << up;
            lane << left | lane >> place.column >> 1
        });
        row >> up << up
    }

    /// The cells in use, and how many rows they hold.
    #[inline]
    fn rows_of<'a>(&self, block: &Block<'a>) -> (&'a [AtomicU64], u32) {
        let words = block.cells.len().min(MOST_BLOCK_WORDS);
        (&block.cells[..words], (words << self.lanes_log) as u32)
    }

    /// Where the lane of a row begins in its word, in bits.
    #[inline]
    fn lane_shift(&self, position: usize) -> u32 {
        let lane = position as u32 & ((1 << self.lanes_log) - 1);
        lane << (6 - self.lanes_log)
    }

    #[inline]
    fn place(&self, generation: u64) -> Place {
        Place {
            column: (generation % u64::from(self.n)) as u32,
            function: (generation % u64::from(self.k)) as u32,
        }
    }

    /// The age, below `k`, of the slice with this hash function.
    #[inline]
    fn age_of(&self, place: Place, function: u32) -> u32 {
        let turn = if function > place.function { self.k } else { 0 };
        place.function + turn - function
    }

    /// The column of the slice of this age, below `n`.
    #[inline]
    fn column(&self, place: Place, age: u32) -> u32 {
        let turn = if age > place.column { self.n } else { 0 };
        place.column + turn - age
    }
}

/// Age 0 in a row.
const TOP: u64 = 1 << 63;

/// The generation that a block has caught up to.
#[inline]
fn caught_up(block: &Block<'_>) -> u64 {
    block.own.first().map_or(0, load)
}

/// A distance as a shift: everything beyond a word is one past it.
#[inline]
fn clamped(distance: u64) -> u32 {
    distance.min(64) as u32
}

/// Joins the lanes of a key, each masked with the ages that use its hash function.
///
/// The loads do not depend on one another: nearly all of the time is their misses, side by side.
#[inline(always)]
fn gather(positions: Positions, masks: &[u64], lane: impl Fn(usize) -> u64) -> u64 {
    let pairs = masks.chunks_exact(2);
    let last = pairs.remainder().first();
    let mut row = last.map_or(0, |mask| lane(positions.get(masks.len() as u32 - 1)) & mask);
    for (pair, masks) in pairs.enumerate() {
        let (even, odd) = positions.pair(pair as u32);
        row |= lane(even) & masks[0] | lane(odd) & masks[1];
    }
    row
}

/// Each bit that begins a run of `k` ones, downwards.
#[inline]
fn runs_of(row: u64, k: u32) -> u64 {
    let (mut runs, mut length) = (row, 1);
    while length < k {
        let more = length.min(k - length);
        runs &= runs << more;
        length += more;
    }
    runs
}
