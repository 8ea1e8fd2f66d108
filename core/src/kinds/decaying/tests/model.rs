//! The paper's listing over the same hash positions, naively: every counter is decayed at every
//! grid point, or every insert is stored.

use super::HalfLife;
use crate::conformance::Model;
use crate::hash::Positions;
use crate::kind::{Estimate, Micros};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the counters of a key among `cells`.
fn counters_of(hash: u64, cells: u32, k: u32) -> BTreeSet<usize> {
    let positions = Positions::new(hash, cells);
    (0..k).map(|function| positions.get(function)).collect()
}

/// Exponential decay. The arithmetic is that of [`HalfLife`], which has tests of its own.
pub(super) struct Listing {
    pub half_life: HalfLife,
    pub epoch: Micros,
    pub k: u32,
    pub counters: Vec<u64>,
    pub decayed_to: u64,
}

impl Listing {
    /// Returns copies of the counters as they are in an epoch.
    fn decayed(&self, epoch: u64) -> Vec<u64> {
        let points = epoch / self.half_life.epochs_per_half_life()
            - self.decayed_to / self.half_life.epochs_per_half_life();
        let mut counters = self.counters.clone();
        for _ in 0..points.min(100) {
            for counter in &mut counters {
                *counter = self.half_life.halve(*counter, 1);
            }
        }
        counters
    }
}

impl Model for Listing {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_weighing(hash, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) {
        let epoch = time / self.epoch;
        self.counters = self.decayed(epoch);
        self.decayed_to = epoch;
        for at in counters_of(hash, self.counters.len() as u32, self.k) {
            self.counters[at] += self.half_life.added(weight, epoch);
        }
    }

    fn estimate(&self, hash: u64, now: Micros) -> Option<Estimate> {
        let counters = self.decayed(now / self.epoch);
        let at = counters_of(hash, counters.len() as u32, self.k);
        let least = at.into_iter().map(|at| counters[at]).min().expect("a counter");
        let count = self.half_life.read(least, now / self.epoch);
        Some(Estimate { count, at_least: false })
    }

    fn contains(&self, hash: u64, now: Micros) -> bool {
        self.estimate(hash, now).is_some_and(|estimate| estimate.count > 0.0)
    }
}

/// Any decay function: the sum added to each counter in each epoch, up to the greatest value of a
/// count.
pub(super) struct Memory {
    pub epoch: Micros,
    pub k: u32,
    pub cells: u32,
    pub most: u64,
    /// The weight of an age in epochs, and the divisor of the sum.
    pub decay: fn(u64) -> u64,
    pub divisor: f64,
    pub added: BTreeMap<(usize, u64), u64>,
}

impl Model for Memory {
    fn insert(&mut self, hash: u64, time: Micros) {
        self.insert_weighing(hash, time, 1);
    }

    fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) {
        for at in counters_of(hash, self.cells, self.k) {
            let count = self.added.entry((at, time / self.epoch)).or_default();
            *count = (*count + u64::from(weight)).min(self.most);
        }
    }

    fn estimate(&self, hash: u64, now: Micros) -> Option<Estimate> {
        let now = now / self.epoch;
        let of_counter = |at| {
            let (mut sum, mut full) = (0, false);
            for (&(_, epoch), &count) in self.added.range((at, 0)..=(at, now)) {
                let weight = (self.decay)(now - epoch);
                sum += count * weight;
                full |= weight > 0 && count == self.most;
            }
            (sum, full)
        };
        let at = counters_of(hash, self.cells, self.k);
        let (sum, at_least) = at.into_iter().map(of_counter).min().expect("a counter");
        Some(Estimate { count: sum as f64 / self.divisor, at_least })
    }

    fn contains(&self, hash: u64, now: Micros) -> bool {
        self.estimate(hash, now).is_some_and(|estimate| estimate.count > 0.0)
    }
}
