//! The correct states of a filter after a power cut: a prefix of the recorded operations that
//! contains every acknowledged one.

use crate::crew::counts;
use crate::notes::STREAMS;
use crate::random::Random;
use crate::scenes::{Crew, Scene};
use ebbtide::media::Memory;
use ebbtide::{Durability, Error, Filter, inspect};
use std::path::Path;
use std::sync::Arc;

type Checked<T> = Result<T, String>;
/// Value and inserts of a digest.
type Hash = (u128, u64);

/// More operations than any recording has.
const MOST: u64 = 100_000;

/// The state found after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No filter, and none was acknowledged.
    Nothing,
    /// A prefix.
    Prefix,
    /// A prefix, and the event before the next insert.
    Stepped,
}

/// The states after the operations of one scene.
pub struct Oracle {
    scene: &'static Scene,
    /// A filter in memory that is never killed.
    filter: Filter,
    /// The digests after each operation of the only stream.
    hashes: Vec<Hash>,
}

fn text(error: Error) -> String {
    error.to_string()
}

fn hash(filter: &Filter) -> Checked<Hash> {
    let digest = filter.digest().map_err(text)?;
    Ok((digest.value, digest.inserts))
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

fn in_memory(scene: &Scene) -> Filter {
    let options = Scene::plain_options().segment_bytes(1 << 20);
    Filter::create_on(Arc::new(Memory::new()), scene.spec(), options).expect("a filter in memory")
}

impl Oracle {
    /// Creates the oracle of a scene.
    pub fn new(scene: &'static Scene) -> Self {
        Self { scene, filter: in_memory(scene), hashes: Vec::new() }
    }

    /// Returns the expected state after this many operations of each stream.
    fn expected(&mut self, counts: [u64; STREAMS]) -> Checked<Hash> {
        if self.scene.crew == Crew::One {
            while self.hashes.len() as u64 <= counts[0] {
                self.hashes.push(hash(&self.filter)?);
                let next = self.hashes.len() as u64 - 1;
                self.scene.operate(&self.filter, 0, next, Durability::Never);
            }
            return Ok(self.hashes[counts[0] as usize]);
        }
        let filter = in_memory(self.scene);
        for (stream, &count) in counts.iter().enumerate() {
            for number in 0..count {
                self.scene.operate(&filter, stream, number, Durability::Never);
            }
        }
        hash(&filter)
    }

    /// Opens the filter after a power cut, compares it with the acknowledgements, and uses it.
    pub fn check(
        &mut self,
        dir: &Path,
        promised: Option<[u64; STREAMS]>,
        random: &mut Random,
    ) -> Checked<Found> {
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
        let mut counts = counts(self.scene, &filter);
        if counts[0] > MOST || counts.iter().zip(promised).any(|(&found, most)| found < most) {
            return Err(format!(
                "{promised:?} operations were acknowledged, {counts:?} are present"
            ));
        }
        let found = hash(&filter)?;
        let mut stepped = false;
        if found != self.expected(counts)? {
            if self.scene.crew != Crew::One {
                return Err(format!("{found:?} is not the digest of the operations {counts:?}"));
            }
            // The log may end between an event and the insert after it: that insert then finds
            // nothing due.
            stepped = true;
            self.proceed(&filter, &mut counts, Durability::Never);
            if hash(&filter)? != self.expected(counts)? {
                return Err(format!("{found:?} matches no number of operations near {counts:?}"));
            }
        }
        for _ in 0..random.below(6) {
            self.proceed(&filter, &mut counts, Durability::Always);
        }
        if random.below(4) == 0 {
            filter.checkpoint().map_err(text)?;
            self.proceed(&filter, &mut counts, Durability::Always);
        }
        filter.close().map_err(text)?;
        self.look_again(dir, counts, random)?;
        Ok(match (nothing, stepped) {
            (true, _) => Found::Nothing,
            (false, true) => Found::Stepped,
            (false, false) => Found::Prefix,
        })
    }

    /// Runs one more operation of each stream.
    fn proceed(&self, filter: &Filter, counts: &mut [u64; STREAMS], durability: Durability) {
        for (stream, count) in counts.iter_mut().enumerate().take(self.scene.streams()) {
            self.scene.operate(filter, stream, *count, durability);
            *count += 1;
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
        if hash(&filter)? == self.expected(counts)? {
            filter.close().map_err(text)
        } else {
            Err(format!("opened again, it differs from the operations {counts:?}"))
        }
    }
}
