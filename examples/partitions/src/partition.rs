//! A partition that a member works on: its filter, and the shipper of it.

use crate::Result;
use ebbtide::history::{Share, remake};
use ebbtide::{Checked, Durability, Filter, Fingerprint, Keep, KeyHash, Options};
use ebbtide_core::hash::{KeyHasher, Seed};
use ebbtide_ship::{EVERY, ShipOptions, Store, Worker, fetch, fetch_if_empty};
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(3600);
/// The longest time that a batch waits for the store.
const PATIENCE: Duration = Duration::from_secs(60);
/// The source in the filter that holds the sequence of the newest message.
const SEQUENCE: u64 = 0;
/// All filters hash keys in the same way, and so do producers: by it they know the partition.
const SEED: u64 = 20_261_127;

/// The name of a partition: its number, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The number of partitions.
    pub count: u64,
    /// The number of this one, from 0.
    pub number: u64,
}

impl Name {
    /// Returns the partition of a key.
    #[must_use]
    pub fn of(key: &[u8], count: u64) -> Self {
        let hash = KeyHasher::from_seed(KeyHash::default(), Seed(SEED)).hash(key);
        Self { count, number: Share::of(hash, count) }
    }

    /// Returns the partitions that have the keys of this one, if there are `times` as many.
    pub fn parts(self, times: u64) -> impl Iterator<Item = Self> {
        let first = self.number * times;
        (first..first + times).map(move |number| Self { count: self.count * times, number })
    }

    /// Parses what [`Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (count, number) = text.split_once('.')?;
        Some(Self { count: count.parse().ok()?, number: number.parse().ok()? })
    }
}

impl Display for Name {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.count, self.number)
    }
}

fn spec() -> Fingerprint {
    Fingerprint::window(WINDOW).rate(100.0).fpr(0.001)
}

fn options() -> Options {
    let durability = Durability::Interval(Duration::from_secs(1));
    Options::new().durability(durability).keep_log(Keep::For(WINDOW)).hash_seed(SEED)
}

/// Runs work on a store.
fn run<T>(work: impl Future<Output = ebbtide_ship::Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work)?)
}

/// A message of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// The order: any bytes, because one that cannot be read must not hold up those behind it.
    pub order: Vec<u8>,
}

/// A partition that this process works on.
#[derive(Debug)]
pub struct Partition {
    filter: Filter<Fingerprint>,
    worker: Worker,
}

impl Partition {
    /// Takes a partition over, in a new directory. From then on whoever had it before is fenced.
    ///
    /// # Errors
    /// Those of the store and of the filter.
    pub fn assign(place: &str, dir: &Path) -> Result<Self> {
        let store = Store::open(place)?;
        run(fetch_if_empty(&store, dir))?;
        let filter = Filter::open_or_create(dir, spec(), options())?;
        let worker = Worker::start(dir, store, ShipOptions::default(), EVERY)?;
        Ok(Self { filter, worker })
    }

    /// Returns the sequence of the newest message that is recorded; 0 before the first.
    ///
    /// # Errors
    /// Those of the filter.
    pub fn sequence(&self) -> Result<u64> {
        Ok(self.filter.position(SEQUENCE)?.unwrap_or(0))
    }

    /// Records messages and their position in one step. On return whoever is assigned the partition
    /// next knows them. Returns those whose orders are new: only now they are passed on. So each is
    /// passed on at most once: if this process dies before it does that, or the answer of the store
    /// is lost, nobody does.
    ///
    /// # Errors
    /// [`ebbtide_ship::Error::Fenced`] if another process has the partition by now: nothing must be
    /// passed on, it does that.
    pub fn consume(&self, messages: Vec<Message>) -> Result<Vec<Message>> {
        let Some(last) = messages.last().map(|message| message.sequence) else {
            return Ok(messages);
        };
        let orders: Vec<&[u8]> = messages.iter().map(|message| &*message.order).collect();
        let (mut batch, mut answers) = (self.filter.batch(), Vec::new());
        batch.check_and_insert_all(&orders, &mut answers)?;
        batch.set_position(SEQUENCE, last)?;
        batch.commit()?;
        self.filter.sync()?;
        self.worker.flush(PATIENCE)?;
        let found = messages.into_iter().zip(answers);
        let new = found.filter(|(_, answer)| *answer == Checked::New);
        Ok(new.map(|(message, _)| message).collect())
    }

    /// Hands the partition over: all that it has is shipped.
    ///
    /// # Errors
    /// [`ebbtide_ship::Error::Fenced`] if another process has taken it already.
    pub fn revoke(self) -> Result<()> {
        self.filter.sync()?;
        self.worker.stop()?;
        Ok(self.filter.close()?)
    }
}

/// Divides a partition that nobody works on, and of which all messages were consumed: each of the
/// new ones gets its share of the keys. `place` returns where a partition is shipped to.
///
/// # Errors
/// Those of the stores and filters; an error if the log in the store is shorter than the window:
/// then each new partition fetches the whole filter.
pub fn divide(name: Name, times: u64, place: impl Fn(Name) -> String, work: &Path) -> Result<()> {
    fs::create_dir_all(work)?;
    let whole = work.join("whole");
    run(fetch(&Store::open_existing(&place(name))?, &whole, None))?;
    for part in name.parts(times) {
        let dir = work.join(part.to_string());
        let share = Share { number: part.number, count: part.count };
        if !remake(&[&whole], &dir, spec(), options(), Some(share))?.is_whole {
            return Err("the log in the store is shorter than the window".into());
        }
        let store = Store::open(&place(part))?;
        Worker::start(&dir, store, ShipOptions::default(), EVERY)?.stop()?;
    }
    Ok(fs::remove_dir_all(work)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_partition_have_its_keys_and_no_others() {
        for number in 0..1000 {
            let key = format!("order {number}");
            let (whole, part) = (Name::of(key.as_bytes(), 2), Name::of(key.as_bytes(), 6));
            assert!(whole.parts(3).any(|found| found == part), "{key}: {whole} and {part}");
            assert_eq!(Name::parse(&part.to_string()), Some(part));
        }
    }
}
