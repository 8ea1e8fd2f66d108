//! The algorithm as the paper prints it, sections 6.1 to 6.4, with bits: slices of several sizes,
//! which shift when one is full (equations 3 to 5) and whose size follows the rate (6 to 8).

use ebbtide_testkit::random::mix;
use std::collections::VecDeque;
use std::f64::consts::LN_2;

/// A slice: one hash function on an array of bits.
struct Slice {
    bits: Vec<u64>,
    /// `m_i`.
    size: u64,
    /// The number of the slice since the beginning, which selects its hash function.
    number: u64,
    /// `c_i`, the inserts at which half of the bits are set.
    capacity: f64,
    /// `n_i`.
    inserts: f64,
    /// `t_i`, the time of the latest insert.
    updated: u64,
}

impl Slice {
    fn new(size: u64, number: u64, now: u64) -> Self {
        let capacity = (size as f64 * LN_2).floor();
        let bits = vec![0; size.div_ceil(64) as usize];
        Self { bits, size, number, capacity, inserts: 0.0, updated: now }
    }

    /// Returns the place of a key's bit: its word, and its mask.
    fn place(&self, key: u64, functions: u64) -> (usize, u64) {
        let hash = mix(key ^ mix(self.number % functions));
        let at = (u128::from(hash) * u128::from(self.size)) >> 64;
        ((at / 64) as usize, 1 << (at % 64))
    }
}

/// A time-limited filter as printed.
pub struct Printed {
    k: usize,
    l: usize,
    window: u64,
    /// The youngest first.
    slices: VecDeque<Slice>,
    /// `g`, the inserts until the next shift (equation 5), and those made since the last one.
    until: u64,
    made: u64,
    shifted: u64,
    count: u64,
}

impl Printed {
    /// Creates a filter for a window and an expected number of keys in it, at the paper's load.
    pub fn new((k, l): (u32, u32), window: u64, keys: f64) -> Self {
        let (k, l) = (k as usize, l as usize);
        let size = (keys / l as f64 * k as f64 / LN_2).ceil() as u64;
        let all = k + l;
        let slices = (0..all).map(|age| Slice::new(size, (all - 1 - age) as u64, 0)).collect();
        let (until, made, shifted) = (0, 0, 0);
        let mut filter = Self { k, l, window, slices, until, made, shifted, count: all as u64 };
        // As after equally many inserts in each of the first k slices.
        for age in 0..k {
            let slice = &mut filter.slices[age];
            slice.inserts = (slice.capacity * age as f64 / k as f64).floor();
        }
        filter.until = filter.room(0);
        filter
    }

    /// Returns the inserts that the slices from `first` to `k - 1` can take (equations 4 and 5).
    fn room(&self, first: usize) -> u64 {
        let left = |age: usize| {
            let slice = &self.slices[age];
            ((slice.capacity - slice.inserts) / (self.k - age) as f64).ceil().max(0.0) as u64
        };
        (first..self.k).map(left).min().unwrap_or(0).max(1)
    }

    /// Inserts a key.
    pub fn insert(&mut self, key: u64, now: u64) {
        if self.made >= self.until {
            self.shift(now);
        }
        let k = self.k;
        for slice in self.slices.iter_mut().take(k) {
            let (word, mask) = slice.place(key, k as u64);
            slice.bits[word] |= mask;
            slice.inserts += 1.0;
            slice.updated = now;
        }
        self.made += 1;
    }

    /// Adds a slice, and removes those of which nothing was updated in the window (equation 3).
    fn shift(&mut self, now: u64) {
        let lasted = now.saturating_sub(self.shifted).max(1) as f64;
        // Equation 6.
        let target = self.made as f64 * (self.window as f64 / self.l as f64) / lasted;
        let slice = Slice::new(2 * self.k as u64, self.count, now);
        self.slices.push_front(slice);
        let size = self.size_for(target);
        self.slices[0] = Slice::new(size, self.count, now);
        while self.slices.back().is_some_and(|slice| now - slice.updated > self.window) {
            self.slices.pop_back();
        }
        (self.count, self.made, self.shifted) = (self.count + 1, 0, now);
        self.until = self.room(0);
    }

    /// Returns the size of the new slice 0 (equations 7 and 8): it is full when it has taken the
    /// inserts that the slices before it allow, and the target in the shifts after that.
    fn size_for(&self, target: f64) -> u64 {
        let (mut shifts, mut count) = (self.k, 0.0);
        while shifts > 1 {
            let allowed = |age: usize| {
                let slice = &self.slices[age];
                (slice.capacity - slice.inserts - count) / (shifts - age) as f64
            };
            let least = (1..shifts).map(|age| (allowed(age).max(0.0), age));
            let Some((least, age)) = least.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            if target <= least {
                break;
            }
            count += least * (shifts - age) as f64;
            shifts = age;
        }
        let capacity = count + shifts as f64 * target;
        ((capacity / LN_2).ceil() as u64).max(2 * self.k as u64)
    }

    /// Returns whether `k` consecutive slices that are alive contain the key (algorithm 1).
    pub fn contains(&self, key: u64, now: u64) -> bool {
        let mut run = 0;
        self.slices.iter().any(|slice| {
            let (word, mask) = slice.place(key, self.k as u64);
            let is_alive = now - slice.updated <= self.window;
            run = if is_alive && slice.bits[word] & mask != 0 { run + 1 } else { 0 };
            run >= self.k
        })
    }

    /// Returns the bits of all slices.
    pub fn bits(&self) -> u64 {
        self.slices.iter().map(|slice| slice.size).sum()
    }
}
