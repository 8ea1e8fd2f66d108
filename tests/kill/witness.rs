//! The expected filter: the same operations in a filter in memory that is never killed.

use crate::child;
use crate::copies::copy_with_newest_damaged;
use crate::scenes::Scene;
use ebbtide::media::Memory;
use ebbtide::{Any, Error, Filter, inspect};
use std::path::Path;
use std::sync::Arc;

type Checked<T> = Result<T, String>;

/// A filter in memory with the expected operations of the killed one.
pub struct Witness {
    scene: &'static Scene,
    filter: Filter,
    /// The number of operations of each thread.
    fed: [u64; 2],
}

impl Witness {
    /// Creates an empty witness.
    pub fn new(scene: &'static Scene) -> Self {
        let options = scene.reference_options();
        let filter = Filter::create_on(Arc::new(Memory::new()), scene.spec(), options)
            .expect("a filter in memory");
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

    fn same(&self, found: &Filter) -> bool {
        let [ours, theirs] = [&self.filter, found].map(|filter| filter.digest().expect("a digest"));
        (ours.value, ours.inserts) == (theirs.value, theirs.inserts)
    }

    fn agree(&self, found: &Filter) -> Checked<()> {
        if self.same(found) {
            Ok(())
        } else {
            let inserts = found.digest().map_err(text)?.inserts;
            Err(format!(
                "with {inserts} inserts its digest differs from that of the operations {:?}",
                self.fed
            ))
        }
    }

    /// Checks one thread: the noted operations and at most one more, nothing else. Returns true if
    /// the process died after recording the event that the next insert needs.
    pub fn check_exact(&mut self, dir: &Path, noted: u64) -> Checked<bool> {
        let Some(found) = open(self.scene, dir)? else {
            return if noted == 0 {
                Ok(false)
            } else {
                Err(format!("{noted} operations had returned, and there is no filter"))
            };
        };
        let operations = found.stat().map_err(text)?.operations;
        if operations < noted.max(self.fed[0]) || operations > noted + 1 {
            return Err(format!("{noted} operations had returned, {operations} are present"));
        }
        self.feed(0, operations);
        let stepped = !self.same(&found);
        if stepped {
            // The next insert then finds nothing due, and the state is as if the event had occurred
            // with it.
            self.scene.operate(&found, 0, operations);
            self.feed(0, operations + 1);
            self.agree(&found)?;
        }
        found.close().map_err(text)?;
        Ok(stepped)
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

fn text(error: Error) -> String {
    error.to_string()
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
    let digest = found.digest().map_err(text)?;
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
    if let Some(copy) = copy_with_newest_damaged(dir).map_err(|error| error.to_string())? {
        let again = Filter::<Any>::open(copy.path(), scene.options()).map_err(text)?;
        let value = again.digest().map_err(text)?;
        if (value.value, value.inserts) != (digest.value, digest.inserts) {
            return Err("an older snapshot leads to another state".to_owned());
        }
    }
    Ok(digest.inserts)
}
