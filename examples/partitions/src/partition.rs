//! A partition that a member works on: its filter, and the shipper of it.

use crate::Result;
use ebbtide::history::{Share, remake};
use ebbtide::{Checked, Durability, Filter, Fingerprint, Keep, KeyHash, Options, Reader};
use ebbtide_core::hash::{KeyHasher, Seed};
use ebbtide_ship::{EVERY, ShipOptions, Store, Worker, fetch, fetch_if_empty};
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(3600);
/// The longest time that a batch waits for the store.
const PATIENCE: Duration = Duration::from_secs(60);
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

    /// Returns the source in the filter that holds the sequence of the newest message. It is not
    /// that of partitions of another number: a stream numbers the messages of all of them, and
    /// those of a new partition may have come before the last one of the former.
    const fn source(self) -> u64 {
        self.count
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
    name: Name,
    filter: Filter<Fingerprint>,
    worker: Worker,
}

impl Partition {
    /// Takes a partition over, in a new directory. From then on whoever had it before is fenced.
    ///
    /// # Errors
    /// Those of the store and of the filter.
    pub fn assign(name: Name, place: &str, dir: &Path) -> Result<Self> {
        let store = Store::open(place)?;
        run(fetch_if_empty(&store, dir))?;
        let filter = Filter::open_or_create(dir, spec(), options())?;
        let worker = Worker::start(dir, store, ShipOptions::default(), EVERY)?;
        Ok(Self { name, filter, worker })
    }

    /// Returns the sequence of the newest message that is recorded; 0 before the first.
    ///
    /// # Errors
    /// Those of the filter.
    pub fn sequence(&self) -> Result<u64> {
        Ok(self.filter.position(self.name.source())?.unwrap_or(0))
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
        batch.set_position(self.name.source(), last)?;
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

/// The file that says, in the directory of the work, that a partition is divided.
const DIVIDED: &str = "divided";

/// Divides a partition: each of the new ones gets its share of the keys. `last` is the sequence of
/// its newest message ([`Broker::last`](crate::broker::Broker::last)), `place` returns where a
/// partition is shipped to.
///
/// Nobody works on the partition any more, and nobody publishes to it: what came to it later nobody
/// would read. So first all producers use the new partitions, then the last member consumes the
/// rest, and then it is divided. Messages wait meanwhile in the new partitions, whose members read
/// them from the first on.
///
/// After an error or a kill, call it again with the same `work`, which has the parts that were
/// begun: a place takes one filter only. When the call has succeeded, and all others of the same
/// change, `work` can be removed.
///
/// # Errors
/// Those of the stores and filters; an error if messages are left, and if the log in the store is
/// shorter than the window: then each new partition fetches the whole filter.
pub fn divide(
    name: Name,
    times: u64,
    last: u64,
    place: impl Fn(Name) -> String,
    work: &Path,
) -> Result<()> {
    if work.join(DIVIDED).exists() {
        return Ok(());
    }
    fs::create_dir_all(work)?;
    let whole = work.join("whole");
    // A directory that is there is whole: it has its name only then.
    if !whole.exists() {
        run(fetch(&Store::open_existing(&place(name))?, &whole, None))?;
    }
    check_consumed(name, last, &whole).inspect_err(|_| drop(fs::remove_dir_all(&whole)))?;
    for part in name.parts(times) {
        let dir = work.join(part.to_string());
        if !dir.exists() {
            make_part(part, &whole, &dir)?;
        }
        let store = Store::open(&place(part))?;
        Worker::start(&dir, store, ShipOptions::default(), EVERY)?.stop()?;
    }
    fs::write(work.join(DIVIDED), "")?;
    for dir in name.parts(times).map(|part| part.to_string()).chain(["whole".to_owned()]) {
        fs::remove_dir_all(work.join(dir))?;
    }
    Ok(())
}

/// Checks that all messages of a partition are in its filter.
fn check_consumed(name: Name, last: u64, whole: &Path) -> Result<()> {
    let reader: Reader = Reader::open(whole, Options::new())?;
    let sequence = reader.position(name.source())?.unwrap_or(0);
    if sequence < last {
        let left = format!("{name} has messages up to {last}, and was consumed up to {sequence}");
        return Err(left.into());
    }
    Ok(())
}

/// Makes a part of a filter, in a directory that is there only if it is whole.
fn make_part(part: Name, whole: &Path, dir: &Path) -> Result<()> {
    let share = Share { number: part.number, count: part.count };
    let begun = dir.with_file_name("part");
    if begun.exists() {
        fs::remove_dir_all(&begun)?;
    }
    if !remake(&[whole], &begun, spec(), options(), Some(share))?.is_whole {
        return Err("the log in the store is shorter than the window".into());
    }
    Ok(fs::rename(&begun, dir)?)
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
