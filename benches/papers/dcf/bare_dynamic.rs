//! DCF on bare arrays, as its section 3 describes it: CBFV, OFV, delayed shrinking by the counter
//! level.

use super::bits::Bits;
use super::structure::{Structure, positions};
use ebbtide::kinds::dynamic_count::threshold;

/// The threshold of delayed shrinking.
const LAMBDA: f64 = 0.5;

/// Two vectors of `m` counters, of `x` and of `y` bits.
pub struct Dynamic {
    cells: usize,
    x: usize,
    y: usize,
    fixed: Bits,
    overflow: Bits,
    /// `T`, and how many counters are not below it.
    threshold: u64,
    not_below: usize,
    rebuilds: u64,
    shrinks: bool,
}

impl Dynamic {
    /// Creates the filter with `x` bits in the first vector.
    pub fn new(cells: usize, x: usize) -> Self {
        Self {
            cells,
            x,
            y: 0,
            fixed: Bits::new(cells * x),
            overflow: Bits::new(0),
            threshold: 0,
            not_below: 0,
            rebuilds: 0,
            shrinks: true,
        }
    }

    /// Gives the second vector another width.
    fn rebuild(&mut self, y: usize) {
        let mut overflow = Bits::new(self.cells * y);
        for at in 0..self.cells {
            // An entry of zero need not be copied.
            let value = self.overflow.get(at * self.y, self.y);
            if value > 0 {
                overflow.set(at * y, y, value);
            }
        }
        (self.overflow, self.y) = (overflow, y);
        self.rebuilds += 1;
        self.threshold = threshold(self.x as u32, y as u32, LAMBDA);
        self.not_below = (0..self.cells).filter(|&at| self.counter(at) >= self.threshold).count();
    }
}

impl Structure for Dynamic {
    #[inline]
    fn counter(&self, at: usize) -> u64 {
        let over = self.overflow.get(at * self.y, self.y);
        over << self.x | self.fixed.get(at * self.x, self.x)
    }

    fn add(&mut self, key: u32, times: u64) {
        for at in positions(key, self.cells) {
            let before = self.counter(at);
            let value = before + times;
            let over = value >> self.x;
            // Before the counter changes: a rebuild counts those that are not below the threshold.
            while over >> self.y > 0 {
                self.rebuild(self.y + 1);
            }
            self.fixed.set(at * self.x, self.x, value & ((1 << self.x) - 1));
            if over != before >> self.x {
                self.overflow.set(at * self.y, self.y, over);
            }
            self.not_below += usize::from(before < self.threshold && value >= self.threshold);
        }
    }

    fn remove(&mut self, key: u32, times: u64) {
        for at in positions(key, self.cells) {
            let (before, value) = (self.counter(at), self.counter(at) - times);
            self.fixed.set(at * self.x, self.x, value & ((1 << self.x) - 1));
            if value >> self.x != before >> self.x {
                self.overflow.set(at * self.y, self.y, value >> self.x);
            }
            if before >= self.threshold && value < self.threshold {
                self.not_below -= 1;
                while self.shrinks && self.y > 0 && self.not_below == 0 {
                    self.rebuild(self.y - 1);
                }
            }
        }
    }

    fn bits(&self) -> usize {
        self.cells * (self.x + self.y)
    }

    fn rebuilds(&self) -> u64 {
        self.rebuilds
    }

    fn spreads(&self) -> u64 {
        0
    }

    fn keep_width(&mut self, most: u64) {
        while most >> self.x >> self.y > 0 {
            self.rebuild(self.y + 1);
        }
        self.shrinks = false;
    }
}
