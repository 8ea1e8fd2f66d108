//! A member of the group of consumers: takes partitions over, works on them, hands them over.

use crate::Result;
use crate::broker::{Broker, Messages};
use crate::partition::{Message, Name, Partition};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The most messages of a batch.
const BATCH: usize = 100;

struct Held {
    partition: Partition,
    /// Missing after an error of the broker.
    messages: Option<Messages>,
    dir: PathBuf,
}

impl Held {
    /// Returns the next messages. After an error they are read anew from the position in the
    /// filter: what was taken before the error is recorded nowhere.
    fn next(&mut self, name: Name, broker: &Broker) -> Result<Vec<Message>> {
        let mut messages = match self.messages.take() {
            Some(messages) => messages,
            None => broker.read(name, self.partition.sequence()?)?,
        };
        let found = broker.next(&mut messages, BATCH)?;
        self.messages = Some(messages);
        Ok(found)
    }
}

/// A member: one process, or thread.
pub struct Member {
    name: String,
    broker: Broker,
    /// Where the filters are while they are here.
    home: PathBuf,
    /// Where they are shipped to: a URL, to which the partition is added.
    places: String,
    held: BTreeMap<Name, Held>,
    /// Directories are never used twice: what is fenced in one stays as it is.
    directories: u64,
}

/// Returns where a partition is shipped to.
#[must_use]
pub fn place(places: &str, partition: Name) -> String {
    format!("{places}/{partition}")
}

impl Member {
    /// Creates a member that works on nothing yet.
    #[must_use]
    pub fn new(name: &str, broker: Broker, home: PathBuf, places: &str) -> Self {
        let (name, places) = (name.to_owned(), places.to_owned());
        Self { name, broker, home, places, held: BTreeMap::new(), directories: 0 }
    }

    /// Returns the partitions that it works on.
    pub fn held(&self) -> impl Iterator<Item = Name> + '_ {
        self.held.keys().copied()
    }

    /// Takes over what it is assigned now, and hands over what it is not.
    ///
    /// # Errors
    /// Those of the broker, of stores and filters.
    pub fn look(&mut self) -> Result<()> {
        let assigned = self.broker.assigned_to(&self.name)?;
        let revoked: Vec<Name> = self.held().filter(|name| !assigned.contains(name)).collect();
        for name in revoked {
            if let Some(held) = self.held.remove(&name) {
                // If its successor was faster, that one has all that was passed on.
                if let Err(error) = held.partition.revoke() {
                    eprintln!("{}: {name} was not handed over: {error}", self.name);
                }
                fs::remove_dir_all(&held.dir)?;
            }
        }
        for name in assigned {
            if !self.held.contains_key(&name) {
                self.take(name)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, name: Name) -> Result<()> {
        self.directories += 1;
        fs::create_dir_all(&self.home)?;
        let dir = self.home.join(format!("{name}-{}", self.directories));
        let partition = Partition::assign(&place(&self.places, name), &dir)?;
        let messages = self.broker.read(name, partition.sequence()?)?;
        self.held.insert(name, Held { partition, messages: Some(messages), dir });
        Ok(())
    }

    /// Works on the next messages of each partition; passes on those that are new. Returns the
    /// number of messages. A partition that another member has by now is abandoned, and a sentence
    /// says so.
    ///
    /// # Errors
    /// Those of the broker and of the filter, once all partitions had their turn. Called again, it
    /// reads the partition from its position on.
    pub fn work(&mut self, mut pass_on: impl FnMut(Name, &Message)) -> Result<usize> {
        let (mut count, mut lost, mut failed) = (0, Vec::new(), None);
        for (name, held) in &mut self.held {
            let messages = match held.next(*name, &self.broker) {
                Ok(messages) => messages,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            count += messages.len();
            match held.partition.consume(messages) {
                Ok(new) => new.iter().for_each(|message| pass_on(*name, message)),
                Err(error) => {
                    eprintln!("{}: {name} is abandoned: {error}", self.name);
                    lost.push(*name);
                }
            }
        }
        for name in lost {
            if let Some(held) = self.held.remove(&name) {
                drop(held.partition);
                fs::remove_dir_all(&held.dir)?;
            }
        }
        failed.map_or(Ok(count), Err)
    }
}
