//! What a report measures: ages of keys of the kept log, the growth of the log, and how often keys
//! that were never inserted are found.

use super::super::observer::Observer;
use crate::failure::Result;
use ebbtide::inspect::{self, Entry};
use ebbtide::{Age, Any, Error, Reader};
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Keys of the log whose ages are shown.
const KEYS: usize = 4000;
/// Records of the log that are shown.
const POINTS: usize = 300;
/// Keys that were never inserted, and are looked up.
const PROBES: u64 = 400_000;

/// The samples of a report.
#[derive(Default)]
pub struct Samples {
    /// The ages of sampled keys of the log that are present; `None` if the kind knows no ages.
    pub ages: Option<Vec<Age>>,
    /// The sampled keys that have expired, or were removed.
    pub expired: usize,
    /// Unix seconds and LSNs: the growth of the log.
    pub growth: Vec<(f64, f64)>,
    /// The ages at which probes were found; `None` as above.
    pub false_ages: Option<Vec<Age>>,
    /// The number of probes, and how many of them were found.
    pub probes: (u64, u64),
    /// The damage that ended the reading of the log.
    pub damage: Option<String>,
}

/// A sample of a stream, evenly spread: takes every n-th item, and doubles n when it is full.
struct Spread<T> {
    taken: Vec<T>,
    most: usize,
    every: usize,
    passed: usize,
}

impl<T> Spread<T> {
    fn new(most: usize) -> Self {
        Self { taken: Vec::new(), most, every: 1, passed: 0 }
    }

    fn pass(&mut self, item: T) {
        if self.passed.is_multiple_of(self.every) {
            if self.taken.len() == self.most {
                let mut keep = false;
                self.taken.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.every *= 2;
            }
            if self.passed.is_multiple_of(self.every) {
                self.taken.push(item);
            }
        }
        self.passed += 1;
    }
}

impl Samples {
    /// Takes the samples of a filter, of its log only from records below an LSN.
    pub fn take(observer: &Observer, end: u64) -> Result<Self> {
        let mut samples = Self::default();
        let mut keys: Spread<Entry> = Spread::new(KEYS);
        let mut times: Spread<(f64, f64)> = Spread::new(POINTS);
        let read = inspect::wal(observer.dir(), |entry| {
            if entry.lsn >= end {
                return Ok(());
            }
            if entry.operation == "insert" {
                keys.pass(*entry);
            }
            let time = entry.time.as_unix_micros();
            if time > 0 {
                times.pass((time as f64 / 1e6, entry.lsn as f64));
            }
            Ok(())
        });
        if let Err(error) = read {
            match error {
                Error::Damaged { .. } => samples.damage = Some(error.to_string()),
                other => return Err(other.into()),
            }
        }
        let is_moving = times.taken.windows(2).any(|pair| pair[0].0 != pair[1].0);
        samples.growth = if is_moving { times.taken } else { growth_of_files(observer.dir(), end) };
        samples.take_ages(observer.reader(), &keys.taken)?;
        samples.probe(observer.reader())?;
        Ok(samples)
    }

    fn take_ages(&mut self, reader: &Reader<Any>, keys: &[Entry]) -> Result<()> {
        let mut ages = Vec::new();
        for entry in keys {
            match reader.age_of_record(entry) {
                Ok(Some(age)) => ages.push(age),
                Ok(None) => self.expired += 1,
                Err(Error::Unsupported { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.ages = Some(ages);
        Ok(())
    }

    /// Looks up keys that were most likely never inserted.
    fn probe(&mut self, reader: &Reader<Any>) -> Result<()> {
        let key = |number: u64| format!("report probe {number:016x}");
        let mut ages = match reader.age(key(0)) {
            Err(Error::Unsupported { .. }) => None,
            _ => Some(Vec::new()),
        };
        let mut found = 0;
        for number in 0..PROBES {
            found += match &mut ages {
                Some(ages) => {
                    let age = reader.age(key(number))?;
                    ages.extend(age);
                    u64::from(age.is_some())
                }
                None => u64::from(reader.contains(key(number))?),
            };
        }
        (self.false_ages, self.probes) = (ages, (PROBES, found));
        Ok(())
    }
}

/// Returns when the segments of the log were last written, and the first LSN of the next one: the
/// growth of a log whose records have no times. Of segments that begin below an LSN.
fn growth_of_files(dir: &Path, end: u64) -> Vec<(f64, f64)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut segments: Vec<(u64, f64)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (_, first) = name.to_str()?.strip_prefix("wal-")?.split_once('-')?;
            let time = entry.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            let first = first.parse().ok().filter(|first| *first < end)?;
            Some((first, time.as_secs_f64()))
        })
        .collect();
    segments.sort_by_key(|(first, _)| *first);
    segments.windows(2).map(|pair| (pair[0].1, pair[1].0 as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_sample_has_every_nth_item_and_no_more_than_it_may() {
        let mut spread = Spread::new(10);
        (0..1000).for_each(|item| spread.pass(item));
        assert!((5..=10).contains(&spread.taken.len()), "{:?}", spread.taken);
        let steps: Vec<i32> = spread.taken.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(spread.taken[0] == 0 && steps.iter().all(|step| *step == steps[0]), "{steps:?}");
        let mut few = Spread::new(10);
        (0..10).for_each(|item| few.pass(item));
        assert_eq!(few.taken, Vec::from_iter(0..10));
    }
}
