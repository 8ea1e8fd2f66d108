//! The free counter pool and the lookup table (the paper's `FCP` and `LT`): the digits of counters
//! above their base.
//!
//! A counter that outgrows its base counter continues in digits of 4 bits, the lowest first, as
//! many as its value needs. The paper links them into lists. A link of 12 bits beside a digit of 4
//! would make a digit cost what it saves. Here the digits of a *line* of 16 counters are therefore
//! adjacent, in the order of their counters, and the lookup table has one entry for a line: where
//! its digits begin and how many they are. That leads from a counter to its digits. For the way
//! back, each slot names its digit's counter in the line.
//!
//! Lines lie in the pool in their order, with free slots between them. At first each has its own
//! share of the slots; a line that outgrows its share moves its neighbours by a slot, up to the
//! next free one. All free digits of the block are therefore available to all its counters, as in
//! the paper: the pool is exhausted when, and only when, all digits are in use.
//!
//! * Lines begin in order, and none reaches into the next. Line 0 begins with slot 0.
//! * An entry holds by how much a line begins beyond its share, so a block of zeros is an empty
//!   one.
//! * Digits are freed only by a rebuild of the whole pool, at a half-life: each line is then as
//!   near to its share as the lines before and after it allow. The rebuilt pool thus depends on the
//!   values alone.

use super::shape::{DIGIT_BITS, Parts};
use crate::block::Block;

/// Bits of an entry for the beginning of a line.
const START_BITS: u32 = 16;

/// Slots of a word.
const A_WORD: usize = 8;

/// The greatest number of digits of a counter: those of a value of 64 bits.
pub const MOST_DIGITS: usize = 16;

/// A line's digits: `start..start + digits` among the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    start: usize,
    digits: usize,
}

impl Run {
    fn end(self) -> usize {
        self.start + self.digits
    }
}

/// The digits of one counter: their place, and the number they represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// The slot of the lowest digit, or where it would be.
    first: usize,
    /// The number of digits.
    pub digits: usize,
    /// The number.
    pub number: u64,
}

/// Returns how many digits a number takes.
#[must_use]
#[inline]
pub fn digits_of(number: u64) -> usize {
    (64 - number.leading_zeros()).div_ceil(DIGIT_BITS) as usize
}

/// Returns the largest number of `digits` digits.
#[must_use]
#[inline]
pub fn most_of(digits: usize) -> u64 {
    let bits = digits.min(MOST_DIGITS) as u32 * DIGIT_BITS;
    u64::MAX.checked_shr(64 - bits).unwrap_or(0)
}

/// The pool and the table of one block.
#[derive(Debug, Clone, Copy)]
pub struct Pool<'a> {
    parts: &'a Parts,
    block: &'a Block<'a>,
    /// Slots of a line's share.
    share: usize,
}

impl<'a> Pool<'a> {
    /// Creates the pool among a block's parts, with `share` slots for each line.
    #[must_use]
    #[inline]
    pub fn of(parts: &'a Parts, block: &'a Block<'a>, share: u64) -> Self {
        Self { parts, block, share: share as usize }
    }

    /// Reads the entry of a line. Beyond the last line there is an empty one, at the end of all
    /// slots.
    #[inline]
    fn run(&self, line: usize) -> Run {
        if line >= self.parts.table.cells {
            return Run { start: self.parts.slots.cells, digits: 0 };
        }
        let entry = self.parts.table.get(self.block, line);
        // A line may begin before its share: the number is then stored modulo 2^16.
        let beyond = entry as u16;
        let start = (line * self.share) as u16;
        Run { start: start.wrapping_add(beyond).into(), digits: (entry >> START_BITS) as usize }
    }

    #[inline]
    fn set_run(&self, line: usize, run: Run) {
        let beyond = (run.start as u16).wrapping_sub((line * self.share) as u16);
        let entry = u64::from(beyond) | (run.digits as u64) << START_BITS;
        self.parts.table.set(self.block, line, entry);
    }

    /// Returns the digits of counter `owner` of a line.
    #[must_use]
    #[inline]
    pub fn chain(&self, line: usize, owner: usize) -> Chain {
        let run = self.run(line);
        let mut chain = Chain { first: run.start, digits: 0, number: 0 };
        for slot in run.start..run.end() {
            let held = self.parts.slots.get(self.block, slot);
            let of = (held >> DIGIT_BITS) as usize;
            // More digits than fit in the number occur in torn words only.
            if of > owner || chain.digits == MOST_DIGITS {
                break;
            }
            if of < owner {
                chain.first = slot + 1;
            } else {
                chain.number |= (held & 0xf) << (chain.digits as u32 * DIGIT_BITS);
                chain.digits += 1;
            }
        }
        chain
    }

    /// Sets the digits of a counter to a number that takes as many as it has.
    #[inline]
    pub fn set(&self, owner: usize, chain: &Chain, number: u64) {
        for digit in 0..chain.digits {
            let value = number >> (digit as u32 * DIGIT_BITS) & 0xf;
            self.parts.slots.set(self.block, chain.first + digit, held(owner, value));
        }
    }

    /// Adds one more digit to a counter, a zero above those it has; `None` if no slot is free.
    #[must_use]
    pub fn extend(&self, line: usize, owner: usize, chain: &Chain) -> Option<Chain> {
        let run = self.run(line);
        let place = chain.first + chain.digits;
        let (mut place, mut first) = (place, chain.first);
        let following =
            (line..self.parts.table.cells).find(|&at| self.run(at).end() < self.run(at + 1).start);
        if let Some(last) = following {
            // The slots from here to the free one are contiguous: they move up.
            self.move_up(place, self.run(last).end());
            self.displace(line + 1..last + 1, 1);
            self.set_run(line, Run { digits: run.digits + 1, ..run });
        } else {
            let before = (0..line).rev().find(|&at| self.run(at).end() < self.run(at + 1).start)?;
            self.move_down(self.run(before + 1).start, place);
            (place, first) = (place.checked_sub(1)?, first.checked_sub(1)?);
            self.displace(before + 1..line + 1, -1);
            let run = self.run(line);
            self.set_run(line, Run { digits: run.digits + 1, ..run });
        }
        self.parts.slots.set(self.block, place, held(owner, 0));
        Some(Chain { first, digits: chain.digits + 1, number: chain.number })
    }

    /// Moves the beginnings of lines by a slot.
    fn displace(&self, lines: std::ops::Range<usize>, by: isize) {
        for line in lines {
            let run = self.run(line);
            self.set_run(line, Run { start: run.start.saturating_add_signed(by), ..run });
        }
    }

    /// Moves the slots `from..to` up by one.
    fn move_up(&self, from: usize, to: usize) {
        let to = to.min(self.parts.slots.cells.saturating_sub(1));
        if from >= to {
            return;
        }
        // Downwards, so that a word is read before it is written.
        for word in ((from + 1) / A_WORD..=to / A_WORD).rev() {
            let below = if word == 0 { 0 } else { self.word(word - 1) >> 56 };
            self.blend(word, from + 1..to + 1, self.word(word) << 8 | below);
        }
    }

    /// Moves the slots `from..to` down by one; `from` is not the first.
    fn move_down(&self, from: usize, to: usize) {
        let to = to.min(self.parts.slots.cells);
        if from >= to || from == 0 {
            return;
        }
        for word in (from - 1) / A_WORD..=(to - 2) / A_WORD {
            self.blend(word, from - 1..to - 1, self.word(word) >> 8 | self.word(word + 1) << 56);
        }
    }

    fn word(&self, word: usize) -> u64 {
        self.block.word(self.parts.slots.first + word)
    }

    /// Writes those slots of a word of the pool that lie in a range.
    fn blend(&self, word: usize, range: std::ops::Range<usize>, slots: u64) {
        let begin = range.start.saturating_sub(word * A_WORD);
        let end = (range.end - word * A_WORD).min(A_WORD);
        let below =
            |slot: usize| 1_u64.checked_shl(slot as u32 * 8).map_or(u64::MAX, |bit| bit - 1);
        let mask = below(end) & !below(begin);
        let old = self.word(word);
        let new = old & !mask | slots & mask;
        if new != old {
            self.block.set_word(self.parts.slots.first + word, new);
        }
    }

    /// Rebuilds the whole pool from all its digits.
    pub fn rebuild(&self, digits: &Digits) {
        let slots = self.parts.slots.cells;
        let mut words = vec![0_u64; slots.div_ceil(A_WORD)];
        let (mut end, mut rest) = (0, &digits.slots[..]);
        for (line, &count) in digits.lines.iter().enumerate() {
            let latest = slots.saturating_sub(rest.len());
            let start = (line * self.share).max(end).min(latest);
            // More digits than slots occur in torn words only.
            let (run, after) = rest.split_at(count.min(rest.len()));
            for (slot, &digit) in (start..).zip(run) {
                if let Some(word) = words.get_mut(slot / A_WORD) {
                    *word |= u64::from(digit) << (slot % A_WORD * 8);
                }
            }
            self.set_run(line, Run { start, digits: run.len() });
            (end, rest) = (start + run.len(), after);
        }
        for (at, &new) in words.iter().enumerate() {
            if new != self.word(at) {
                self.block.set_word(self.parts.slots.first + at, new);
            }
        }
    }
}

/// Returns the slot that holds a digit of a counter of its line.
#[inline]
fn held(owner: usize, digit: u64) -> u64 {
    (owner as u64) << DIGIT_BITS | digit
}

/// All digits of a pool, collected in the order of their counters.
#[derive(Debug, Default)]
pub struct Digits {
    slots: Vec<u8>,
    lines: Vec<usize>,
}

impl Digits {
    /// Begins the next line.
    pub fn line(&mut self) {
        self.lines.push(0);
    }

    /// Adds the digits of a counter of the line, as many as its number takes.
    pub fn push(&mut self, owner: usize, number: u64) {
        let digits = digits_of(number);
        for digit in 0..digits {
            let value = number >> (digit as u32 * DIGIT_BITS) & 0xf;
            self.slots.push(held(owner, value) as u8);
        }
        if let Some(line) = self.lines.last_mut() {
            *line += digits;
        }
    }

    /// Returns the number of digits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}
