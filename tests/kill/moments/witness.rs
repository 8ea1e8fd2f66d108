//! The expected filter: the same operations in a filter in memory that is never killed.

use super::child;
use super::scenes::Scene;
use ebbtide::{Any, Error, Filter, inspect};
use ebbtide_testkit::copies::copy_with_newest_damaged;
use ebbtide_testkit::prefix::{Checked, Operations, Oracle, in_memory, state, text};
use std::ops::RangeInclusive;
use std::path::Path;

/// The operations of one thread.
#[derive(Debug)]
pub struct Alone(pub &'static Scene);

impl Operations for Alone {
    fn witness(&self) -> Filter {
        in_memory(self.0.spec(), self.0.reference_options())
    }

    fn operate(&self, filter: &Filter, number: u64) -> Result<(), Error> {
        self.0.operate(filter, 0, number);
        Ok(())
    }
}

/// Checks one thread: its filter contains a number of operations in this range, and nothing else.
pub fn check_exact(
    oracle: &mut Oracle<Alone>,
    dir: &Path,
    range: RangeInclusive<u64>,
) -> Checked<u64> {
    match open(oracle.operations().0, dir)? {
        Some(found) => {
            let prefix = oracle.prefix(&found, range)?;
            found.close().map_err(text)?;
            Ok(prefix)
        }
        None if *range.start() == 0 => Ok(0),
        None => Err(format!("{range:?} operations are expected, and there is no filter")),
    }
}

/// A filter in memory with the expected operations of two threads, which commute.
pub struct Witness {
    scene: &'static Scene,
    filter: Filter,
    /// The number of operations of each thread.
    fed: [u64; 2],
}

impl Witness {
    /// Creates an empty witness.
    pub fn new(scene: &'static Scene) -> Self {
        let filter = in_memory(scene.spec(), scene.reference_options());
        Self { scene, filter, fed: [0; 2] }
    }

    /// Returns how many operations of each thread the filter contained at the last check.
    pub fn fed(&self) -> [u64; 2] {
        self.fed
    }

    fn feed(&mut self, thread: usize, upto: u64) {
        for number in self.fed[thread]..upto {
            self.scene.operate(&self.filter, thread, number);
        }
        self.fed[thread] = self.fed[thread].max(upto);
    }

    fn agree(&self, found: &Filter) -> Checked<()> {
        let found = state(found)?;
        if state(&self.filter)? == found {
            return Ok(());
        }
        Err(format!(
            "with {} inserts its digest differs from that of the operations {:?}",
            found.1, self.fed
        ))
    }

    /// Checks two threads whose operations commute: the noted operations and at most one more of
    /// each.
    pub fn check_unordered(&mut self, dir: &Path, noted: [u64; 2]) -> Checked<()> {
        let Some(found) = open(self.scene, dir)? else {
            return if noted == [0; 2] {
                Ok(())
            } else {
                Err(format!("{noted:?} operations had returned, and there is no filter"))
            };
        };
        let inserts = found.digest().map_err(text)?.inserts;
        for (thread, &count) in noted.iter().enumerate() {
            self.feed(thread, count);
        }
        let Some(more) = inserts.checked_sub(noted[0] + noted[1]) else {
            return Err(format!("{noted:?} operations had returned, {inserts} are present"));
        };
        for (thread, &count) in noted.iter().enumerate() {
            // Keys are never repeated, and false positives are negligible at this fill.
            let there = found.contains(self.scene.key(thread, count));
            if more == 2 || more == 1 && there.map_err(text)? && self.fed == noted {
                self.feed(thread, count + 1);
            }
        }
        self.agree(&found)?;
        found.close().map_err(text)
    }
}

/// Opens the filter of a killed child; returns `None` if it was killed before the filter existed.
fn open(scene: &Scene, dir: &Path) -> Checked<Option<Filter>> {
    match child::patiently(|| Filter::open(dir, scene.options())) {
        Ok(filter) => Ok(Some(filter)),
        Err(Error::NotAFilter { .. }) => Ok(None),
        Err(error) => Err(text(error)),
    }
}

/// Checks two threads with events: recovery from each snapshot, and a second recovery, lead to the
/// same state, which contains every operation noted since the last kill. Returns the number of
/// inserts.
pub fn check_loose(scene: &Scene, dir: &Path, before: [u64; 2], noted: [u64; 2]) -> Checked<u64> {
    let Some(found) = open(scene, dir)? else {
        return Ok(0);
    };
    let before_close = state(&found)?;
    for thread in 0..2 {
        let numbers = if scene.keeps_all() { before[thread]..noted[thread] } else { 0..0 };
        for number in numbers {
            if !found.contains(scene.key(thread, number)).map_err(text)? {
                return Err(format!("operation {number} of thread {thread} is missing"));
            }
        }
    }
    found.close().map_err(text)?;
    let report = child::patiently(|| inspect::verify(dir)).map_err(text)?;
    if !report.is_sound() {
        return Err(format!("{report:?}"));
    }
    if let Some(copy) = copy_with_newest_damaged(dir).map_err(text)? {
        let again = Filter::<Any>::open(copy.path(), scene.options()).map_err(text)?;
        if state(&again)? != before_close {
            return Err("an older snapshot leads to another state".to_owned());
        }
    }
    Ok(before_close.1)
}
