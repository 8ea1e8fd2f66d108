//! The correct states of a filter after a power cut: a prefix of the recorded operations that
//! contains every acknowledged one.

use crate::crew::counts;
use crate::notes::STREAMS;
use crate::scenes::{Crew, Scene};
use ebbtide::{Durability, Error, Filter, inspect};
use ebbtide_testkit::prefix::{self, Checked, Operations, State, in_memory, state, text};
use ebbtide_testkit::random::Random;
use std::path::Path;

/// More operations than any recording has.
const MOST: u64 = 100_000;

/// The only stream of a scene.
struct Alone(&'static Scene);

impl Operations for Alone {
    fn witness(&self) -> Filter {
        witness(self.0)
    }

    fn operate(&self, filter: &Filter, number: u64) -> Result<(), Error> {
        self.0.operate(filter, 0, number, Durability::Never);
        Ok(())
    }
}

/// The states after the operations of one scene.
pub struct Oracle {
    scene: &'static Scene,
    /// The states of a scene with one stream.
    alone: prefix::Oracle<Alone>,
}

fn is_sound(dir: &Path) -> Checked<()> {
    match inspect::verify(dir) {
        Ok(report) if report.is_sound() => Ok(()),
        Ok(report) => Err(format!("damaged: {report:?}")),
        // An opener gets the same error.
        Err(Error::NotAFilter { .. }) => Ok(()),
        Err(error) => Err(text(error)),
    }
}

fn witness(scene: &Scene) -> Filter {
    in_memory(scene.spec(), Scene::plain_options().segment_bytes(1 << 20))
}

impl Oracle {
    /// Creates the oracle of a scene.
    pub fn new(scene: &'static Scene) -> Self {
        Self { scene, alone: prefix::Oracle::keeping_all(Alone(scene)) }
    }

    /// Returns the expected state after this many operations of each stream.
    fn expected(&mut self, counts: [u64; STREAMS]) -> Checked<State> {
        if self.scene.crew == Crew::One {
            return self.alone.state(counts[0]);
        }
        let filter = witness(self.scene);
        for (stream, &count) in counts.iter().enumerate() {
            for number in 0..count {
                self.scene.operate(&filter, stream, number, Durability::Never);
            }
        }
        state(&filter)
    }

    /// Compares a filter with the acknowledgements. Returns the number of operations of each
    /// stream.
    fn identify(&mut self, filter: &Filter, promised: [u64; STREAMS]) -> Checked<[u64; STREAMS]> {
        if self.scene.crew == Crew::One {
            let found = filter.stat().map_err(text)?.operations;
            self.check_batches([found, 0])?;
            return Ok([self.alone.prefix(filter, promised[0]..=MOST)?, 0]);
        }
        let counts = counts(self.scene, filter);
        if counts[0] > MOST || counts.iter().zip(promised).any(|(&found, most)| found < most) {
            return Err(format!(
                "{promised:?} operations were acknowledged, {counts:?} are present"
            ));
        }
        self.check_batches(counts)?;
        let found = state(filter)?;
        if found == self.expected(counts)? {
            Ok(counts)
        } else {
            Err(format!("{found:?} is not the digest of the operations {counts:?}"))
        }
    }

    /// Checks that no batch is there in part.
    fn check_batches(&self, counts: [u64; STREAMS]) -> Checked<()> {
        match counts.into_iter().find(|&count| self.scene.boundary(count) != count) {
            Some(count) => {
                let batch = self.scene.batch(count);
                Err(format!("{count} operations are present, a part of the batch {batch:?}"))
            }
            None => Ok(()),
        }
    }

    /// Opens the filter after a power cut, compares it with the acknowledgements, and uses it.
    /// Returns whether there was one.
    pub fn check(
        &mut self,
        dir: &Path,
        promised: Option<[u64; STREAMS]>,
        random: &mut Random,
    ) -> Checked<bool> {
        if random.below(2) == 0 {
            // Every file was durable before it got its name, so a power cut damages nothing.
            is_sound(dir)?;
        }
        let options = Scene::plain_options();
        let (filter, nothing) = match Filter::open(dir, options.clone()) {
            Err(Error::NotAFilter { .. }) if promised.is_none() => {
                let made = Filter::open_or_create(dir, self.scene.spec(), options.clone());
                (made.map_err(text)?, true)
            }
            other => (other.map_err(text)?, false),
        };
        let promised = promised.unwrap_or_default();
        let mut counts = self.identify(&filter, promised)?;
        for _ in 0..random.below(6) {
            self.proceed(&filter, &mut counts, Durability::Always);
        }
        if random.below(4) == 0 {
            filter.checkpoint().map_err(text)?;
            self.proceed(&filter, &mut counts, Durability::Always);
        }
        filter.close().map_err(text)?;
        self.look_again(dir, counts, random)?;
        Ok(!nothing)
    }

    /// Runs one more operation, or batch, of each stream.
    fn proceed(&self, filter: &Filter, counts: &mut [u64; STREAMS], durability: Durability) {
        for (stream, count) in counts.iter_mut().enumerate().take(self.scene.streams()) {
            *count = self.scene.run(filter, stream, *count, durability);
        }
    }

    fn look_again(
        &mut self,
        dir: &Path,
        counts: [u64; STREAMS],
        random: &mut Random,
    ) -> Checked<()> {
        if random.below(4) == 0 {
            is_sound(dir)?;
        }
        let filter: Filter = Filter::open(dir, Scene::plain_options()).map_err(text)?;
        if state(&filter)? == self.expected(counts)? {
            filter.close().map_err(text)
        } else {
            Err(format!("opened again, it differs from the operations {counts:?}"))
        }
    }
}
