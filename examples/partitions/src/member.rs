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
    /// Where the filters are while they are here, and nothing else.
    home: PathBuf,
    /// Where they are shipped to: a URL, to which the partition is added.
    places: String,
    held: BTreeMap<Name, Held>,
    /// Directories are never used twice: what is fenced in one stays as it is.
    directories: u64,
    /// Whether those that a former process of this member has left are removed.
    is_swept: bool,
}

/// Returns where a partition is shipped to.
#[must_use]
pub fn place(places: &str, partition: Name) -> String {
    format!("{places}/{partition}")
}

impl Member {
    /// Creates a member that works on nothing yet. `home` is a directory of its own: what a former
    /// process of it has left there is removed.
    #[must_use]
    pub fn new(name: &str, broker: Broker, home: PathBuf, places: &str) -> Self {
        let (name, places) = (name.to_owned(), places.to_owned());
        Self { name, broker, home, places, held: BTreeMap::new(), directories: 0, is_swept: false }
    }

    /// Returns the partitions that it works on.
    pub fn held(&self) -> impl Iterator<Item = Name> + '_ {
        self.held.keys().copied()
    }

    /// Takes over what it is assigned now, and hands over what it is not. A sentence names each
    /// partition that cannot be taken over: the next look tries again.
    ///
    /// # Errors
    /// Those of the broker, of stores and filters, once all partitions had their turn.
    pub fn look(&mut self) -> Result<()> {
        self.sweep()?;
        let mut failed = None;
        let assigned = self.broker.assigned_to(&self.name)?;
        let revoked: Vec<Name> = self.held().filter(|name| !assigned.contains(name)).collect();
        for name in revoked {
            if let Some(held) = self.held.remove(&name) {
                // If its successor was faster, that one has all that was passed on.
                if let Err(error) = held.partition.revoke() {
                    eprintln!("{}: {name} was not handed over: {error}", self.name);
                }
                failed = fs::remove_dir_all(&held.dir).err().map(Into::into).or(failed);
            }
        }
        for name in assigned {
            if !self.held.contains_key(&name)
                && let Err(error) = self.take(name)
            {
                eprintln!("{}: {name} was not taken over: {error}", self.name);
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes what a process of this member has left that was killed: all that it passed on is
    /// shipped.
    fn sweep(&mut self) -> Result<()> {
        if !self.is_swept {
            fs::create_dir_all(&self.home)?;
            for entry in fs::read_dir(&self.home)? {
                fs::remove_dir_all(entry?.path())?;
            }
            self.is_swept = true;
        }
        Ok(())
    }

    fn take(&mut self, name: Name) -> Result<()> {
        self.directories += 1;
        let dir = self.home.join(format!("{name}-{}", self.directories));
        let taken =
            Partition::assign(name, &place(&self.places, name), &dir).and_then(|partition| {
                let messages = self.broker.read(name, partition.sequence()?)?;
                Ok(Held { partition, messages: Some(messages), dir: dir.clone() })
            });
        match taken {
            Ok(held) => {
                self.held.insert(name, held);
                Ok(())
            }
            Err(error) => {
                if dir.exists() {
                    fs::remove_dir_all(&dir)?;
                }
                Err(error)
            }
        }
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
                failed = fs::remove_dir_all(&held.dir).err().map(Into::into).or(failed);
            }
        }
        failed.map_or(Ok(count), Err)
    }
}
