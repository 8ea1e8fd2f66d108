//! Slices as bit columns of a block: the place of a bit, reading a key's row, and clearing on
//! catch-up.
//!
//! A key's `k` hash functions lead to `k` rows of its block. Row `p` holds bit `p` of `n` slices in
//! a lane of 16, 32 or 64 bits; lanes are packed into words, lane 0 lowest. The slice made in
//! generation `s` (any integer: a new block has slices from before generation 0) is column
//! `s mod n` and has hash function `s mod k`, both for its whole life. At generation `G` the slice
//! of age `a` is the one made in `G-a`.
//!
//! This is the array of slices of the Time-limited paper, section 5.1 (there they are separate
//! arrays in a ring), with equation 1 as the fill of a column. [`Columns::insert`] is its insert,
//! [`Columns::catch_up`] its shift, and [`Columns::runs`] its query (section 5.3).
//!
//! An insert in generation `g` sets the key's bit in the `k` slices `g-k+1..=g` (Age-Partitioned
//! Bloom Filters; Time-limited Bloom Filter, section 5): `k` consecutive slices have all `k`
//! functions. A query joins the key's rows into one, ordered by age, and searches it for runs of
//! `k` ones.
//!
//! Nothing shifts. The block's first kind word is the generation that it has caught up to; a slice
//! is held until the one `n` generations younger takes its column. Columns of slices made since the
//! block was last touched still hold expired predecessors: a query masks them, an insert clears
//! them first.
//!
//! This module is independent of why generations end. It does not trust the words that it reads:
//! any content gives an answer, and no panic.

use crate::atomic::AtomicU64;
use crate::block::{Block, load, prefetch, store};
use crate::hash::Positions;

/// The greatest number of words of a block that are used, so that its rows stay in the range of
/// [`Positions`].
const MOST_BLOCK_WORDS: usize = 1 << 24;

/// The arrangement of a filter's slices in its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    k: u32,
    n: u32,
    /// Binary logarithm of lanes in a word.
    lanes_log: u32,
    /// At `k - f + i` the ages (age 0 as the top bit) of the slices with hash function `i`, if the
    /// youngest slice has `f`.
    ages: [u64; 128],
}

/// The place of a generation's slices.
#[derive(Clone, Copy)]
struct Place {
    /// The column of the youngest slice.
    column: u32,
    /// The hash function of the youngest slice.
    function: u32,
}

/// Returns the generation that a block has caught up to.
#[inline]
pub(super) fn caught_up(block: &Block<'_>) -> u64 {
    block.own.first().map_or(0, load)
}

impl Columns {
    /// Creates an arrangement of `n` slices, `k` of which take an insert, in lanes of `width` (16,
    /// 32 or 64) bits.
    pub(super) fn new(k: u32, n: u32, width: u32) -> Self {
        assert!(k >= 1 && k < n && n <= width && matches!(width, 16 | 32 | 64));
        let mut ages = [0; 128];
        for (at, ages) in ages.iter_mut().enumerate() {
            let first = (k - at as u32 % k) % k;
            *ages = (first..64).step_by(k as usize).fold(0, |ages, age| ages | 1 << (63 - age));
        }
        Self { k, n, lanes_log: (64 / width).ilog2(), ages }
    }

    /// Returns the number of lanes in a word.
    pub(super) fn lanes(&self) -> u64 {
        1 << self.lanes_log
    }

    /// Returns the ages (age 0 as the top bit) at which a run of `k` ones starts for this key, and
    /// the generation to which they refer: the given one or the block's own, whichever is later.
    #[inline(always)]
    pub(super) fn runs(&self, block: &Block<'_>, generation: u64, hash: u64) -> (u64, u64) {
        let (ones, generation) = self.ones(block, generation, hash);
        (runs_of(ones, self.k), generation)
    }

    /// Returns the key's bits by age (age 0 as the top bit), and the generation to which they
    /// refer: the given one or the block's own, whichever is later.
    #[inline(always)]
    pub(super) fn ones(&self, block: &Block<'_>, generation: u64, hash: u64) -> (u64, u64) {
        let caught_up = caught_up(block);
        let generation = generation.max(caught_up);
        let uncleared = generation - caught_up;
        let held = if uncleared < 64 { u64::MAX >> uncleared } else { 0 };
        (self.row(block, generation, hash) & held, generation)
    }

    /// Returns the ages (age 0 as the top bit) at which a key with these bits can have been
    /// inserted: those where a run of `k` ones starts, or a shorter run that ends with the row.
    #[inline]
    pub(super) fn starts(&self, ones: u64) -> u64 {
        let unused = 64 - self.n;
        let cut_off = (ones >> unused).trailing_ones();
        runs_of(ones, self.k) | u64::MAX.checked_shr(64 - cut_off).unwrap_or(0) << unused
    }

    /// Returns `k` and `n`.
    pub(super) fn shape(&self) -> (u32, u32) {
        (self.k, self.n)
    }

    /// Sets the key's bits in the slices of this generation, except those that a block in a later
    /// generation no longer holds. `since`: see [`catch_up`](Self::catch_up).
    #[inline]
    pub(super) fn insert(&self, block: &Block<'_>, since: u64, generation: u64, hash: u64) {
        self.catch_up(block, since, generation);
        self.each_bit(block, generation, hash, |word, shift, bit| {
            // Stored even if unchanged: a branch on that would be unpredictable and cost more.
            store(word, load(word) | bit << shift);
        });
    }

    /// As [`insert`](Self::insert), visiting the key's rows once; also returns the ages at which a
    /// run of `k` ones started before, as [`runs`](Self::runs) does.
    #[inline]
    pub(super) fn insert_and_read(
        &self,
        block: &Block<'_>,
        since: u64,
        generation: u64,
        hash: u64,
    ) -> u64 {
        if self.n != 64 {
            let (runs, _) = self.runs(block, generation, hash);
            self.insert(block, since, generation, hash);
            return runs;
        }
        self.catch_up(block, since, generation);
        let (place, taken) = (self.place(generation), self.taken(block, generation));
        let (ages, up, mut row) = (self.ages_from(place), place.column + 1, 0);
        // A row of several functions shows each of them the bits of its own slices only.
        self.each_row(block, ages, hash, |word, _, ages| {
            let before = load(word);
            row |= before.rotate_right(up) & ages;
            store(word, before | (ages & taken).rotate_left(up));
        });
        runs_of(row, self.k)
    }

    /// Returns how many bits [`insert`](Self::insert) would newly set.
    pub(super) fn new_bits(&self, block: &Block<'_>, generation: u64, hash: u64) -> u32 {
        let uncleared = generation.saturating_sub(caught_up(block)).min(self.n.into()) as u32;
        let kept = !self.youngest_columns(generation, uncleared);
        let mut new = 0;
        self.each_bit(block, generation, hash, |word, shift, bit| {
            new += u32::from(bit & !(load(word) >> shift & kept) != 0);
        });
        new
    }

    /// Returns how many bits of the slices of this generation are set in the first `words` words of
    /// a block, and how many bits there are.
    pub(super) fn set_in(&self, block: &Block<'_>, generation: u64, words: usize) -> (u64, u64) {
        let mut columns = self.youngest_columns(generation, self.k);
        let uncleared = generation.saturating_sub(caught_up(block));
        if uncleared > 0 {
            columns &= !self.youngest_columns(generation, uncleared.min(self.k.into()) as u32);
        }
        let mask = self.in_lanes(columns);
        let words = &block.cells[..block.cells.len().min(words)];
        let set = words.iter().map(|word| u64::from((load(word) & mask).count_ones())).sum();
        (set, words.len() as u64 * self.lanes() * u64::from(self.k))
    }

    /// Returns the share of set bits in each slice of a block that has caught up to this
    /// generation, by age.
    pub(super) fn fills(&self, block: &Block<'_>, generation: u64) -> impl Iterator<Item = f64> {
        self.set_by_age(block, generation).map(|(set, bits)| set as f64 / bits.max(1) as f64)
    }

    /// Returns how many bits of each slice of a block that has caught up to this generation are
    /// set, and how many there are, by age.
    pub(super) fn set_by_age(
        &self,
        block: &Block<'_>,
        generation: u64,
    ) -> impl Iterator<Item = (u64, u64)> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let width = 64 >> self.lanes_log;
        let mut set = [0_u64; 64];
        for words in block.cells.chunks(usize::from(u8::MAX)) {
            // Byte `b` of the sum at `i` counts how often bit `8·b + i` is set.
            let mut sums = [0_u64; 8];
            for word in words.iter().map(load) {
                sums.iter_mut().enumerate().for_each(|(i, sum)| *sum += word >> i & ONES);
            }
            for bit in 0..64 {
                set[bit % width] += sums[bit % 8] >> (bit / 8 * 8) & u64::from(u8::MAX);
            }
        }
        let place = self.place(generation);
        let bits = block.cells.len() as u64 * self.lanes();
        (0..self.n).map(move |age| (set[self.column(place, age) as usize % 64], bits))
    }

    /// Returns in how many rows of a block that has caught up to this generation a key of the last
    /// `ages + 1` generations has set the bit of one hash function, and how many rows there are.
    ///
    /// The slice made in generation `s` has the keys of `s..s+k`, and those made `k` generations
    /// apart have the same function: together they have all keys since the oldest of them.
    pub(super) fn rows_set(&self, block: &Block<'_>, generation: u64, ages: u64) -> (u64, u64) {
        let place = self.place(generation);
        let oldest = ages.min(u64::from(self.n) - 1) as u32;
        let ages = (0..=oldest).rev().step_by(self.k as usize);
        let columns = ages.fold(0, |columns, age| columns | 1 << self.column(place, age));
        let width = 64 >> self.lanes_log;
        let in_lane = |word: u64| {
            let lanes = (0..64).step_by(width).filter(|lane| word >> lane & columns != 0);
            lanes.count() as u64
        };
        let set = block.cells.iter().map(|word| in_lane(load(word)));
        (set.sum(), block.cells.len() as u64 * self.lanes())
    }

    /// Prefetches the words of the key's rows.
    #[inline]
    pub(super) fn prefetch(&self, block: &Block<'_>, hash: u64) {
        let unused = self.ages_from(self.place(0));
        self.each_row(block, unused, hash, |word, _, _| prefetch(word));
    }

    /// Clears the columns recycled since the block was last touched. A block that has caught up to
    /// no generation from `since` on, the first that writes to it, is still all zero.
    #[inline]
    pub(super) fn catch_up(&self, block: &Block<'_>, since: u64, generation: u64) {
        let caught_up = caught_up(block);
        if caught_up >= generation {
            return;
        }
        if caught_up >= since {
            self.recycle(block, caught_up, generation);
        }
        block.complete(generation);
    }

    #[cold]
    fn recycle(&self, block: &Block<'_>, caught_up: u64, generation: u64) {
        let recycled = (generation - caught_up).min(self.n.into()) as u32;
        let word = self.in_lanes(self.youngest_columns(generation, recycled));
        for cell in block.cells {
            store(cell, load(cell) & !word);
        }
    }

    /// Returns the key's bits in all slices by age, age 0 as the top bit.
    ///
    /// The loads are independent of one another: nearly all of the time is spent in their cache
    /// misses, in parallel.
    #[inline(always)]
    fn row(&self, block: &Block<'_>, generation: u64, hash: u64) -> u64 {
        let place = self.place(generation);
        let ages = self.ages_from(place);
        if self.n == 64 {
            let mut row = 0;
            self.each_row(block, ages, hash, |word, _, ages| {
                row |= load(word).rotate_right(place.column + 1) & ages;
            });
            return row;
        }
        self.row_of_lanes(block, place, ages, hash)
    }

    /// Returns the ages of each hash function's slices, the first function's first.
    #[inline(always)]
    fn ages_from(&self, place: Place) -> &[u64; 64] {
        let first = (self.k - place.function) as usize & 63;
        self.ages[first..].first_chunk().expect("the table is twice as long")
    }

    /// Returns the row as [`row`](Self::row) does where fewer than 64 slices leave room for other
    /// lanes or unused bits. Out of line, so that queries of 64 columns stay small.
    #[inline(never)]
    fn row_of_lanes(&self, block: &Block<'_>, place: Place, ages: &[u64; 64], hash: u64) -> u64 {
        // The lane is moved to the top, then rotated until the youngest slice is the top bit. The
        // final shifts clear the bits below the `n` bits.
        let (up, left) = (64 - self.n, self.n - 1 - place.column);
        let mut row = 0;
        self.each_row(block, ages, hash, |word, shift, ages| {
            let lane = load(word) >> shift << up;
            row |= (lane << left | lane >> place.column >> 1) & ages;
        });
        row >> up << up
    }

    /// Returns a word with these columns in each of its lanes.
    fn in_lanes(&self, columns: u64) -> u64 {
        (0..64).step_by(64 >> self.lanes_log).fold(0, |word, shift| word | columns << shift)
    }

    /// Returns the columns of `count` slices, the youngest of this generation.
    #[cold]
    fn youngest_columns(&self, generation: u64, count: u32) -> u64 {
        let place = self.place(generation);
        (0..count).fold(0, |columns, age| columns | 1 << self.column(place, age))
    }

    /// Visits the key's bits in the slices of this generation: the word, the shift of the lane in
    /// it, and the bit in the lane. The bit is 0 for a slice that a block in a later generation no
    /// longer holds.
    #[inline(always)]
    fn each_bit<'a>(
        &self,
        block: &Block<'a>,
        generation: u64,
        hash: u64,
        mut visit: impl FnMut(&'a AtomicU64, u32, u64),
    ) {
        let (place, taken) = (self.place(generation), self.taken(block, generation));
        let (ages, up) = (self.ages_from(place), place.column + 1);
        if self.n == 64 {
            // A separate loop, since it takes a third of the instructions.
            self.each_row(block, ages, hash, |word, shift, ages| {
                visit(word, shift, (ages & taken).rotate_left(up));
            });
            return;
        }
        let columns = (1 << self.n) - 1;
        self.each_row(block, ages, hash, |word, shift, ages| {
            let bit = (ages & taken) >> (64 - self.n);
            visit(word, shift, (bit << up | bit >> (self.n - up)) & columns);
        });
    }

    /// Returns the ages of the slices that take an insert of this generation, one of each hash
    /// function: the youngest `k`, except those that a block in a later generation no longer holds.
    #[inline]
    fn taken(&self, block: &Block<'_>, generation: u64) -> u64 {
        let behind = caught_up(block).saturating_sub(generation).min(self.n.into()) as u32;
        u64::MAX.checked_shl(64 - self.k.min(self.n - behind)).unwrap_or(0)
    }

    /// Visits the key's rows in the order of hash functions: the word, the shift of the lane in it,
    /// and the function's entry of `ages`. A block without cells has none.
    #[inline(always)]
    fn each_row<'a>(
        &self,
        block: &Block<'a>,
        ages: &[u64; 64],
        hash: u64,
        mut visit: impl FnMut(&'a AtomicU64, u32, u64),
    ) {
        // 64 slices leave one lane in a word: stated here so that the compiler can use it in `row`.
        let lanes_log = if self.n == 64 { 0 } else { self.lanes_log };
        let words = &block.cells[..block.cells.len().min(MOST_BLOCK_WORDS)];
        let positions = Positions::new(hash, (words.len() << lanes_log) as u32);
        // Below 64 (see `new`): stated here so that the compiler can use it.
        let k = (self.k & 63) as usize;
        let mut at = |position: usize, ages: u64| {
            if let Some(word) = words.get(position >> lanes_log) {
                let lane = position as u32 & ((1 << lanes_log) - 1);
                visit(word, lane << (6 - lanes_log), ages);
            }
        };
        // Neither indices nor entries that are read ahead: an insert needs all registers.
        let (pairs, last) = ages[..k].as_chunks::<2>();
        for (pair, (even, odd)) in pairs.iter().zip(positions.pairs()) {
            at(even, pair[0]);
            at(odd, pair[1]);
        }
        if let [last] = last {
            at(positions.get(k as u32 - 1), *last);
        }
    }

    #[inline]
    fn place(&self, generation: u64) -> Place {
        Place {
            // Most filters have 64 columns and need no division.
            column: match self.n {
                64 => generation as u32 % 64,
                n => (generation % u64::from(n)) as u32,
            },
            function: (generation % u64::from(self.k)) as u32,
        }
    }

    /// Returns the column of the slice of this age, below `n`.
    #[inline]
    fn column(&self, place: Place, age: u32) -> u32 {
        let turn = if age > place.column { self.n } else { 0 };
        place.column + turn - age
    }
}

/// Returns each bit at which a run of `k` ones begins, downwards.
#[inline]
fn runs_of(row: u64, k: u32) -> u64 {
    let (mut runs, mut length) = (row, 1);
    while 2 * length <= k {
        runs &= runs << length;
        length *= 2;
    }
    runs & runs << (k - length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn ones(cells: &[AtomicU64]) -> u32 {
        cells.iter().map(|cell| load(cell).count_ones()).sum()
    }

    #[test]
    fn a_column_is_cleared_before_its_next_slice_is_made() {
        let (own, cells) = (words(6), words(64));
        let block = Block::alone(&own, &cells);
        let columns = Columns::new(12, 64, 64);
        for (generation, left) in [(100, 12), (152, 12), (153, 11), (158, 6), (164, 0), (900, 0)] {
            store(&own[0], 0);
            cells.iter().for_each(|cell| store(cell, 0));
            columns.insert(&block, 100, 100, 77);
            assert_eq!(ones(&cells), 12);
            columns.catch_up(&block, 100, generation);
            assert_eq!(ones(&cells), left, "at {generation}");
        }
    }

    #[test]
    fn an_insert_far_behind_its_block_leaves_recycled_columns_alone() {
        let (own, cells) = (words(6), words(64));
        let block = Block::alone(&own, &cells);
        let columns = Columns::new(12, 64, 64);
        columns.catch_up(&block, 0, 200);
        // Of slices 129 to 140 the block still holds those from 137 on.
        assert_eq!(columns.new_bits(&block, 140, 77), 4);
        columns.insert(&block, 0, 140, 77);
        assert_eq!(ones(&cells), 4);
        assert_eq!(caught_up(&block), 200);
    }

    #[test]
    fn new_bits_is_what_an_insert_sets() {
        for (n, width) in [(64, 64), (60, 64), (30, 32), (16, 16)] {
            let (own, cells) = (words(6), words(64));
            let block = Block::alone(&own, &cells);
            let columns = Columns::new(12, n, width);
            for i in 0..5000_u64 {
                let (generation, hash) = (100 + i / 40 - i % 7, crate::hash::mix(i));
                columns.catch_up(&block, 90, 100 + i / 40);
                let (before, new) = (ones(&cells), columns.new_bits(&block, generation, hash));
                columns.insert(&block, 90, generation, hash);
                assert_eq!(ones(&cells) - before, new, "insert {i}");
            }
        }
    }

    #[test]
    fn fills_are_those_of_the_columns_that_a_block_still_holds() {
        for (n, width) in [(64, 64_u64), (60, 64), (30, 32), (16, 16)] {
            let (own, cells) = (words(6), words(400));
            let block = Block::alone(&own, &cells);
            let columns = Columns::new(5, n, width as u32);
            (0..3000).for_each(|i| columns.insert(&block, 90, 90 + i / 30, crate::hash::mix(i)));
            let caught_up = 90 + 2999 / 30;
            let set_in = |slice: u64, words: usize| -> u64 {
                let lanes = (0..64 / width).map(|lane| lane * width + slice % u64::from(n));
                let count = |word| lanes.clone().map(|bit| load(word) >> bit & 1).sum::<u64>();
                cells[..words].iter().map(count).sum()
            };
            let fills: Vec<f64> = columns.fills(&block, caught_up).collect();
            assert_eq!(fills.len(), n as usize);
            let bits = (400 * 64 / width) as f64;
            for (slice, fill) in (0..=caught_up).rev().zip(fills) {
                assert_eq!(fill, set_in(slice, 400) as f64 / bits, "{n}: {slice}");
            }
            for ahead in [0, 2, 5, 90] {
                let newest = caught_up + ahead;
                let held = newest - 4..=caught_up;
                let set: u64 = held.map(|slice| set_in(slice, 64)).sum();
                assert_eq!(columns.set_in(&block, newest, 64), (set, 5 * 64 * 64 / width));
            }
        }
    }

    #[test]
    fn a_queries_view_ahead_of_the_filters_state_misses_no_key() {
        let (own, cells) = (words(6), words(64));
        let block = Block::alone(&own, &cells);
        let columns = Columns::new(3, 8, 16);
        let (first, second) = (crate::hash::mix(1), crate::hash::mix(2));
        columns.insert(&block, 0, 4, first);
        columns.insert(&block, 0, 9, second);
        // The block has caught up to generation 9, while the filter-wide state that was read is at
        // 8. The first key has age 5 now; by generation 8 it would seem expired (or young).
        let (runs, generation) = columns.runs(&block, 8, first);
        assert_eq!(generation, 9);
        assert_eq!(runs.leading_zeros(), 5);
        assert_eq!(columns.runs(&block, 8, second).0.leading_zeros(), 0);
        assert_eq!(columns.runs(&block, 10, first).0, 0);
    }
}
