//! SBF on bare arrays, as section 2.2 of the DCF paper describes it: counters of as many bits as
//! they need, slack bits between them, and CV1, CV2 and OV, which give the beginning of each.
//!
//! A counter's field extends to the beginning of the next one, so it contains the slack behind it.
//! A counter that outgrows its field moves the counters behind it up by one bit, as far as to the
//! next slack bit, and the offsets of those that were moved are corrected: a *rebuild* in the
//! paper's sense. Where no slack is near, all counters are written anew, with new slack; the paper
//! does not say what it does then.

use super::bits::{Bits, WIDEST, width};
use super::structure::{Structure, positions};

/// Where the slack bits are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slack {
    /// Between the counters, as the text says.
    Between,
    /// Behind all counters: a counter that grows moves all others behind it, which takes the longer
    /// the more counters there are, as Fig. 6 shows.
    Behind,
}

/// A slack bit follows each second counter: the paper's `ε` of one half.
const COUNTERS_A_SLACK_BIT: usize = 2;

/// The number of counters in which a slack bit is searched.
const NEAR: usize = 256;

/// The counters of a subgroup (SC) and of a chunk of it (SC'): `log N` and `log log N` for `N` =
/// 2^16, and powers of two, so that no division is necessary.
const GROUP: usize = 16;
const CHUNK: usize = 4;

/// The counters, and their beginnings in three levels.
pub struct Spectral {
    cells: usize,
    base: Bits,
    /// The bits of the counters with their slack.
    length: usize,
    /// The bits of a field of CV1: `log N`.
    absolute: usize,
    /// The bits of a field of CV2 and OV: `3·log log N`.
    relative: usize,
    cv1: Bits,
    cv2: Bits,
    ov: Bits,
    /// The bits of a field at first.
    least: usize,
    slack: Slack,
    moves: u64,
    /// The inserts that moved counters, as often as they did.
    moving_inserts: u64,
    spreads: u64,
}

impl Spectral {
    /// Creates the filter with empty counters of `least` bits.
    pub fn new(cells: usize, least: usize, slack: Slack) -> Self {
        let mut made = Self {
            cells,
            base: Bits::new(0),
            length: 0,
            absolute: 0,
            relative: 0,
            cv1: Bits::new(0),
            cv2: Bits::new(0),
            ov: Bits::new(0),
            least,
            slack,
            moves: 0,
            moving_inserts: 0,
            spreads: 0,
        };
        made.write(&vec![0; cells]);
        made
    }

    /// Returns the inserts that moved counters. A key has several, so they are fewer than moves.
    pub fn moving_inserts(&self) -> u64 {
        self.moving_inserts
    }

    /// Returns the bits that a value needs.
    #[inline]
    fn needs(&self, value: u64) -> usize {
        width(value).max(self.least)
    }

    /// Writes all counters with new slack, and their indexes.
    fn write(&mut self, values: &[u64]) {
        let needed: usize = values.iter().map(|&value| self.needs(value)).sum();
        self.length = needed + self.cells.div_ceil(COUNTERS_A_SLACK_BIT);
        self.absolute = width(self.length as u64);
        self.relative = (3.0 * (self.absolute as f64).log2()).ceil() as usize;
        self.base = Bits::new(self.length);
        self.cv1 = Bits::new((self.cells / GROUP + 1) * self.absolute);
        self.cv2 = Bits::new((self.cells / CHUNK + 1) * self.relative);
        self.ov = Bits::new((self.cells + 1) * self.relative);
        let (mut at, mut group, mut chunk) = (0, 0, 0);
        for (number, &value) in values.iter().enumerate() {
            if number.is_multiple_of(GROUP) {
                self.cv1.set(number / GROUP * self.absolute, self.absolute, at as u64);
                group = at;
            }
            if number.is_multiple_of(CHUNK) {
                let relative = (at - group) as u64;
                self.cv2.set(number / CHUNK * self.relative, self.relative, relative);
                chunk = at;
            }
            self.ov.set(number * self.relative, self.relative, (at - chunk) as u64);
            self.base.set(at, width(value), value);
            let is_before_slack = number.is_multiple_of(COUNTERS_A_SLACK_BIT);
            let slack = usize::from(is_before_slack && self.slack == Slack::Between);
            at += self.needs(value) + slack;
        }
    }

    /// Returns the beginning of a counter.
    #[inline]
    fn start(&self, number: usize) -> usize {
        let group = self.cv1.get(number / GROUP * self.absolute, self.absolute);
        let chunk = self.cv2.get(number / CHUNK * self.relative, self.relative);
        (group + chunk + self.ov.get(number * self.relative, self.relative)) as usize
    }

    /// Returns the beginning and the width of a counter's field.
    #[inline]
    fn field(&self, number: usize) -> (usize, usize) {
        let start = self.start(number);
        let next = number + 1;
        let end = if next == self.cells {
            self.length
        } else if next.is_multiple_of(CHUNK) {
            self.start(next)
        } else {
            // The same chunk: only the last level differs.
            let [this, next] =
                [number, next].map(|at| self.ov.get(at * self.relative, self.relative));
            start + (next - this) as usize
        };
        // Behind the last counter there may be more slack than a counter can use.
        (start, (end - start).min(WIDEST))
    }

    /// Stores a value that the counter's field cannot hold.
    fn grow(&mut self, number: usize, value: u64) {
        loop {
            let (start, has) = self.field(number);
            if width(value) <= has {
                return self.base.set(start, has, value);
            }
            let others = match self.slack {
                Slack::Between => number + 1..(number + 1 + NEAR).min(self.cells),
                Slack::Behind => (number + 1).max(self.cells - 1)..self.cells,
            };
            let with_slack = others.into_iter().find_map(|other| {
                let (start, has) = self.field(other);
                let needs = self.needs(self.base.get(start, has));
                (needs < has).then_some((other, start + needs))
            });
            let Some((last, end)) = with_slack else {
                let mut values: Vec<u64> = (0..self.cells).map(|at| self.counter(at)).collect();
                values[number] = value;
                self.spreads += 1;
                return self.write(&values);
            };
            self.base.move_up(start + has, end);
            self.move_starts(number + 1, last);
            self.moves += 1;
        }
    }

    /// Adds one to the beginnings of the counters `first..=last`.
    fn move_starts(&mut self, first: usize, last: usize) {
        let moved = |number: usize| i64::from((first..=last).contains(&number));
        let (from, upto) = (first / GROUP, last / GROUP);
        for group in from..=upto {
            add(&mut self.cv1, group * self.absolute, self.absolute, moved(group * GROUP));
        }
        // Groups between the two move as a whole.
        for group in [from, upto].into_iter().take(1 + usize::from(upto > from)) {
            let begin = group * GROUP;
            for chunk in (begin..(begin + GROUP).min(self.cells)).step_by(CHUNK) {
                let at = chunk / CHUNK * self.relative;
                add(&mut self.cv2, at, self.relative, moved(chunk) - moved(begin));
                for number in chunk..(chunk + CHUNK).min(self.cells) {
                    let by = moved(number) - moved(chunk);
                    add(&mut self.ov, number * self.relative, self.relative, by);
                }
            }
        }
    }
}

/// Adds a number to a field.
#[inline]
fn add(bits: &mut Bits, at: usize, width: usize, by: i64) {
    if by != 0 {
        let value = bits.get(at, width).wrapping_add_signed(by);
        bits.set(at, width, value);
    }
}

impl Structure for Spectral {
    #[inline]
    fn counter(&self, at: usize) -> u64 {
        let (start, width) = self.field(at);
        self.base.get(start, width)
    }

    fn add(&mut self, key: u32, times: u64) {
        let before = self.moves;
        for at in positions(key, self.cells) {
            let (start, has) = self.field(at);
            let value = self.base.get(start, has) + times;
            if width(value) <= has {
                self.base.set(start, has, value);
            } else {
                self.grow(at, value);
            }
        }
        self.moving_inserts += u64::from(self.moves > before);
    }

    fn remove(&mut self, key: u32, times: u64) {
        for at in positions(key, self.cells) {
            let (start, has) = self.field(at);
            let value = self.base.get(start, has) - times;
            self.base.set(start, has, value);
        }
    }

    fn bits(&self) -> usize {
        let indexes = (self.cells / GROUP + 1) * self.absolute
            + (self.cells / CHUNK + 1 + self.cells) * self.relative;
        self.length + indexes
    }

    fn rebuilds(&self) -> u64 {
        self.moves
    }

    fn spreads(&self) -> u64 {
        self.spreads
    }

    /// Fields never become narrower.
    fn keep_width(&mut self, _: u64) {}
}
