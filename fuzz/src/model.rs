//! The expected answers of a filter, from the operations on it: exact sets and counts of keys.

use crate::samples::{Promise, Sample};
use ebbtide::{Age, Call};
use std::collections::BTreeMap;

/// The history of a key.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The number of its last insert.
    number: u64,
    /// The time of its last insert.
    time: u64,
    /// It was inserted at least this often, less the possible removals.
    count: u64,
}

/// The operations on a filter.
#[derive(Debug)]
pub struct Model {
    sample: &'static Sample,
    keys: BTreeMap<u8, Known>,
    /// The number of inserts so far, including possibly failed ones: a key among the last N by
    /// this count is also among the last N in fact.
    inserts: u64,
}

impl Model {
    /// Creates an empty model.
    pub fn new(sample: &'static Sample) -> Self {
        Self { sample, keys: BTreeMap::new(), inserts: 0 }
    }

    /// Records an insert that succeeded, or whose result is unknown.
    pub fn inserted(&mut self, key: u8, time: u64, weight: u64, surely: bool) {
        self.inserts += 1;
        if surely {
            let known = self.keys.entry(key).or_default();
            known.number = self.inserts;
            known.time = known.time.max(time);
            known.count += weight;
        }
    }

    /// Returns whether a key can be removed with this weight.
    pub fn has(&self, key: u8, weight: u64) -> bool {
        self.sample.removes && self.keys.get(&key).is_some_and(|known| known.count >= weight)
    }

    /// Records a removal that was tried.
    pub fn removed(&mut self, key: u8, weight: u64) {
        if let Some(known) = self.keys.get_mut(&key) {
            known.count = known.count.saturating_sub(weight);
        }
    }

    /// Returns whether the key must be present, by the promise of the kind.
    fn is_there(&self, known: &Known, now: u64) -> bool {
        match self.sample.promise {
            Promise::Forever => true,
            Promise::Counted | Promise::Undercounted => known.count > 0,
            Promise::Fading => false,
            Promise::Items(window) => self.inserts - known.number < window,
            Promise::Time(window) => now.saturating_sub(known.time) < window,
        }
    }

    /// Compares a filter's answers with the model at this time, which is the filter's latest.
    pub fn check(&self, call: Call<'_>, now: u64) {
        for (&key, known) in &self.keys {
            if !self.is_there(known, now) {
                continue;
            }
            assert!(call.contains([key]).expect("an answer"), "{key} of {self:?} at {now}");
            match self.sample.promise {
                Promise::Counted => {
                    let found = call.estimate([key]).expect("an estimate");
                    let enough = found.at_least || found.count >= known.count as f64;
                    assert!(enough, "{key} of {self:?}: {found:?}");
                }
                Promise::Items(_) => {
                    if let Ok(age) = call.age([key]) {
                        let most = self.inserts - known.number;
                        assert!(matches!(age, Some(Age::Items(age)) if age <= most), "{age:?}");
                    }
                }
                Promise::Time(_) => {
                    let age = call.age([key]).expect("an age");
                    let most = now.saturating_sub(known.time);
                    assert!(age.is_some_and(|age| age.width() <= most), "{age:?}");
                }
                _ => {}
            }
        }
    }
}
