//! A consumer of a partitioned queue that deduplicates, and whose filters move with the partitions.
//!
//! - Assigned: fetch the filter of the partition into a new directory, begin to ship it (from then
//!   on the consumer before is fenced), continue from the position in it.
//! - Running: keys and position in one batch, which is shipped; then the effects, and the
//!   acknowledgement. So an effect happens at most once: who dies between the two leaves messages
//!   whose effects never come. If each must come at least once, have the effects before the commit;
//!   then one that was thought dead may repeat what its heir does.
//! - Revoked: ship the rest, close.
//! - A zombie, a consumer that was thought dead and wakes up, is fenced at its next
//!   acknowledgement.
//! - More partitions: each new one gets its share of the keys (`repartition`).
//!
//! The queue here is a vector; with a broker, the caller of `consume` commits the offset.
//!
//! `cargo run --example consumer`, `cargo test --example consumer`.

use ebbtide::history::{Share, remake};
use ebbtide::{Checked, Durability, Filter, Fingerprint, Keep, Options};
use ebbtide_ship::{ShipOptions, Store, Worker, fetch, fetch_if_empty};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WINDOW: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(60);
/// The source in the filter that holds the offset in the partition.
const OFFSET: u64 = 0;

fn spec() -> Fingerprint {
    Fingerprint::window(WINDOW).rate(100.0).fpr(0.001)
}

fn options() -> Options {
    let durability = Durability::Interval(Duration::from_secs(1));
    Options::new().durability(durability).keep_log(Keep::For(WINDOW))
}

/// Runs work on a store.
fn run<T>(work: impl Future<Output = ebbtide_ship::Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work)?)
}

fn ship(dir: &Path, store: Store) -> Result<Worker> {
    Ok(Worker::start(dir, store, ShipOptions::default(), ebbtide_ship::EVERY)?)
}

/// A partition that this consumer works on.
pub struct Partition {
    filter: Filter<Fingerprint>,
    worker: Worker,
}

impl Partition {
    /// Takes a partition over, into a directory that is new.
    pub fn assign(url: &str, dir: &Path) -> Result<Self> {
        let store = Store::open(url)?;
        run(fetch_if_empty(&store, dir))?;
        let filter = Filter::open_or_create(dir, spec(), options())?;
        Ok(Self { filter, worker: ship(dir, store)? })
    }

    /// Returns the offset of the first message that is not recorded.
    pub fn next_offset(&self) -> Result<u64> {
        Ok(self.filter.position(OFFSET)?.unwrap_or(0))
    }

    /// Works on messages from this offset on. Returns those that are new; on return they may be
    /// acknowledged: whoever is assigned the partition next knows them.
    pub fn consume<'a>(&self, messages: &'a [String], from: u64) -> Result<Vec<&'a str>> {
        let mut batch = self.filter.batch();
        let mut answers = Vec::new();
        batch.check_and_insert_all(messages, &mut answers)?;
        batch.set_position(OFFSET, from + messages.len() as u64)?;
        batch.commit()?;
        self.filter.sync()?;
        self.worker.flush(PATIENCE)?;
        let new = messages.iter().zip(answers).filter(|(_, answer)| *answer == Checked::New);
        Ok(new.map(|(message, _)| message.as_str()).collect())
    }

    /// Hands the partition over.
    pub fn revoke(self) -> Result<()> {
        self.filter.sync()?;
        self.worker.stop()?;
        Ok(self.filter.close()?)
    }
}

/// Divides a partition that nobody works on: each of the new places gets its share of the keys.
pub fn repartition(url: &str, new: &[String], work: &Path) -> Result<()> {
    let whole = work.join("whole");
    std::fs::create_dir_all(work)?;
    run(fetch(&Store::open_existing(url)?, &whole, None))?;
    for (number, place) in (0_u32..).zip(new) {
        let dir: PathBuf = work.join(number.to_string());
        let share = Share { number: number.into(), count: new.len() as u64 };
        let made = remake(&[&whole], &dir, spec(), options(), Some(share))?;
        if !made.is_whole {
            return Err("the log in the store is shorter than the window: let each new partition \
                        fetch the whole filter instead"
                .into());
        }
        // A snapshot is not needed: its log has everything.
        ship(&dir, Store::open(place)?)?.stop()?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let url = parent.path().join("store").display().to_string();
    let messages: Vec<String> = (0..10).map(|n| format!("order {}", n % 7)).collect();
    let first = Partition::assign(&url, &parent.path().join("a"))?;
    println!("machine a: {} new", first.consume(&messages, 0)?.len());
    // The broker thinks that machine a is dead.
    let second = Partition::assign(&url, &parent.path().join("b"))?;
    println!("machine b continues at {}", second.next_offset()?);
    println!("machine b: {} new", second.consume(&messages, 10)?.len());
    match first.consume(&messages, 10) {
        Ok(_) => println!("machine a was not fenced"),
        Err(error) => println!("machine a: {error}"),
    }
    second.revoke()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(from: u64, upto: u64) -> Vec<String> {
        (from..upto).map(|number| format!("order {number}")).collect()
    }

    fn place() -> (tempfile::TempDir, String) {
        let parent = tempfile::tempdir().expect("a directory");
        let url = parent.path().join("store").display().to_string();
        (parent, url)
    }

    #[test]
    fn a_partition_that_was_handed_over_knows_all_keys_and_its_offset() {
        let (parent, url) = place();
        let first = Partition::assign(&url, &parent.path().join("a")).expect("assigned");
        assert_eq!(first.consume(&messages(0, 500), 0).expect("consumed").len(), 500);
        first.revoke().expect("handed over");
        let second = Partition::assign(&url, &parent.path().join("b")).expect("assigned");
        assert_eq!(second.next_offset().expect("an offset"), 500);
        let new = second.consume(&messages(400, 600), 500).expect("consumed").len();
        assert!((95..=100).contains(&new), "{new}");
    }

    #[test]
    fn a_zombie_that_wakes_up_is_fenced_before_it_acknowledges() {
        let (parent, url) = place();
        let zombie = Partition::assign(&url, &parent.path().join("a")).expect("assigned");
        zombie.consume(&messages(0, 100), 0).expect("consumed");
        let heir = Partition::assign(&url, &parent.path().join("b")).expect("assigned");
        let error = zombie.consume(&messages(100, 200), 100).expect_err("fenced");
        assert!(error.to_string().starts_with("fenced"), "{error}");
        // What it did not acknowledge is new to its heir.
        let new = heir.consume(&messages(100, 200), 100).expect("consumed").len();
        assert!(new >= 95, "{new}");
        drop(zombie);
        assert!(Partition::assign(&url, &parent.path().join("a")).is_err(), "it is refused");
    }

    #[test]
    fn after_a_repartition_each_key_is_known_in_one_new_partition() {
        let (parent, url) = place();
        let whole = Partition::assign(&url, &parent.path().join("a")).expect("assigned");
        whole.consume(&messages(0, 300), 0).expect("consumed");
        whole.revoke().expect("handed over");
        let new: Vec<String> = (0..3).map(|n| format!("{url}-{n}")).collect();
        repartition(&url, &new, &parent.path().join("work")).expect("divided");
        let mut known = vec![0; 300];
        for (number, place) in new.iter().enumerate() {
            let dir = parent.path().join(format!("new-{number}"));
            let part = Partition::assign(place, &dir).expect("assigned");
            for (known, message) in known.iter_mut().zip(messages(0, 300)) {
                *known += u32::from(part.filter.contains(message).expect("an answer"));
            }
        }
        assert!(known.iter().all(|&count| count >= 1), "a key is lost");
        // A false positive may know it as well.
        assert!(known.iter().filter(|&&count| count > 1).count() < 10, "keys are everywhere");
    }
}
