//! The optimized filter written naively: whole counters, a count of the digits they would take, and
//! fronts of plain bits; everything decays and swaps at its time.

use super::front::Mode;
use crate::conformance::{Harness, Model};
use crate::hash::Positions;
use crate::kind::Estimate;
use crate::kind::{Decision, Micros};
use crate::kinds::decaying::HalfLife;

/// One block, and its parameters.
#[derive(Debug, Clone)]
pub struct Naive {
    pub half_life: HalfLife,
    pub epoch: Micros,
    pub k: u32,
    pub counter_bits: u32,
    pub mode: Mode,
    /// Digits in all; unlimited if `None`: the basic filter.
    pub pool: Option<u64>,
    pub counters: Vec<u64>,
    pub flagged: Vec<bool>,
    fronts: [Vec<bool>; 2],
    number: u64,
    lost: Option<u64>,
    pub exhaustions: u64,
}

impl Naive {
    pub fn new(
        (half_life, epoch): (HalfLife, Micros),
        (cells, k, pool): (usize, u32, Option<u64>),
        (mode, front_bits): (Mode, usize),
    ) -> Self {
        Self {
            half_life,
            epoch,
            k,
            counter_bits: 32,
            mode,
            pool,
            counters: vec![0; cells],
            flagged: vec![false; cells],
            fronts: [vec![false; front_bits], vec![false; front_bits]],
            number: 0,
            lost: None,
            exhaustions: 0,
        }
    }

    fn base_bits(&self) -> u32 {
        4 + self.half_life.fraction_bits()
    }

    fn digits(&self, value: u64) -> u64 {
        let above = u64::BITS - (value >> self.base_bits()).leading_zeros();
        u64::from(above.div_ceil(4))
    }

    pub fn in_use(&self) -> u64 {
        self.counters.iter().map(|&value| self.digits(value)).sum()
    }

    fn at(&self, hash: u64) -> Vec<usize> {
        let positions = Positions::new(hash, self.counters.len() as u32);
        (0..self.k).map(|function| positions.get(function)).collect()
    }

    fn front_at(&self, hash: u64) -> Vec<usize> {
        let positions = Positions::new(hash, self.fronts[0].len() as u32);
        (0..self.k).map(|function| positions.get(64 + function)).collect()
    }

    /// Enters each half-life up to a time.
    fn reach(&mut self, time: Micros) {
        let lifetime = u64::from(self.counter_bits) + 1;
        while self.number < self.half_life.number(time / self.epoch) {
            self.number += 1;
            self.counters.iter_mut().for_each(|value| *value = self.half_life.halve(*value, 1));
            if self.number.is_multiple_of(lifetime) {
                let now = self.number / lifetime;
                if self.mode == Mode::Swapped {
                    self.fronts[(now % 2) as usize].fill(false);
                }
                if self.lost.is_some_and(|lost| now >= lost + 2) {
                    self.flagged.fill(false);
                    self.lost = None;
                }
            }
        }
    }

    /// Inserts a key with the time `time` when the filter is at `now`.
    pub fn insert_late(&mut self, hash: u64, time: Micros, now: Micros, weight: u32) {
        self.reach(now);
        let epoch = time / self.epoch;
        let late = self.number - self.half_life.number(epoch);
        let amount = self.half_life.late(self.half_life.added(weight, epoch), late.min(65) as u32);
        let lifetime = self.number / (u64::from(self.counter_bits) + 1);
        let buffer = if self.mode == Mode::Swapped { (lifetime % 2) as usize } else { 0 };
        if self.mode != Mode::None {
            self.front_at(hash).into_iter().for_each(|bit| self.fronts[buffer][bit] = true);
        }
        let mut done = Vec::new();
        for at in self.at(hash) {
            if done.contains(&at) {
                continue;
            }
            done.push(at);
            let (old, most) = (self.counters[at], u64::MAX >> (64 - self.counter_bits));
            let mut new = old.saturating_add(amount).min(most);
            let mut lost = old.saturating_add(amount) > most;
            let free = self.pool.map_or(u64::MAX, |pool| pool - self.in_use());
            let had = self.digits(old);
            if self.digits(new) - had > free {
                new = (1 << (self.base_bits() + 4 * (had + free) as u32)) - 1;
                lost = true;
                self.exhaustions += 1;
            }
            self.counters[at] = new;
            if lost {
                self.flagged[at] = true;
                self.lost = Some(lifetime);
            }
        }
    }
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_late(hash, time, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) {
        self.insert_late(hash, time, time, weight);
    }

    fn estimate(&self, hash: u64, now: Micros) -> Option<Estimate> {
        let mut then = self.clone();
        then.reach(now);
        let bits = then.front_at(hash);
        let in_front = |front: &Vec<bool>| bits.iter().all(|&bit| front[bit]);
        if self.mode != Mode::None && !then.fronts.iter().any(in_front) {
            return Some(Estimate { count: 0.0, at_least: false });
        }
        let at = then.at(hash);
        let least = |flagged: bool| {
            let some = at.iter().filter(|&&at| then.flagged[at] == flagged);
            some.map(|&at| then.counters[at]).min().unwrap_or(u64::MAX)
        };
        let (sound, short) = (least(false), least(true));
        let count = then.half_life.read(sound.min(short), now / self.epoch);
        Some(Estimate { count, at_least: short < sound })
    }

    fn contains(&self, hash: u64, now: Micros) -> bool {
        self.estimate(hash, now).is_some_and(|told| told.count > 0.0 || told.at_least)
    }
}

/// Inserts a late key into a filter and its model.
pub fn insert_late(
    (harness, model): (&mut Harness, &mut Naive),
    hash: u64,
    (time, now): (Micros, Micros),
    weight: u32,
) {
    harness.advance(now);
    let decision = harness.insert_once(hash, time, weight);
    assert!(matches!(decision, Decision::Insert { .. }), "no key is too late");
    model.insert_late(hash, time, now, weight);
}
