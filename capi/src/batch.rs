//! A batch that a C program fills and commits.

use crate::call::{Settings, write};
use crate::failure::Result;
use crate::handle::Handle;
use engine::{Any, Batch, Checked, Entry, Filter, Timestamp};

/// Keys and positions that are written in one atomic step.
#[derive(Debug)]
pub struct Pending {
    filter: &'static Filter<Any>,
    batch: Batch<'static, Any>,
}

// A C program may hand a batch to another thread.
const _: () = {
    const fn sent<T: Send>() {}
    sent::<Pending>();
};

/// Returns a key with its time and weight, if the settings have them.
fn entry<'k>(key: &'k [u8], settings: Option<&Settings>) -> Entry<&'k [u8], Any> {
    let mut entry = Entry::new(key);
    if let Some(time) = settings.and_then(Settings::time) {
        entry = entry.time(Timestamp::from_unix_micros(time));
    }
    if let Some(weight) = settings.and_then(Settings::weight) {
        entry = entry.weight(weight);
    }
    entry
}

impl Pending {
    /// Creates an empty batch of a filter, which must outlive it.
    pub fn new(filter: &'static Handle, settings: Option<&Settings>) -> Result<Self> {
        let filter = filter.writer("batch")?;
        let call = write(filter.call(), settings)?;
        Ok(Self { filter, batch: Batch::new(call) })
    }

    /// Adds the insert of a key.
    pub fn insert(&mut self, key: &[u8], settings: Option<&Settings>) -> Result<()> {
        Ok(self.batch.insert_entry(&entry(key, settings))?)
    }

    /// Answers whether a key is new, and adds its insert.
    pub fn check_and_insert(&mut self, key: &[u8], settings: Option<&Settings>) -> Result<Checked> {
        Ok(self.batch.check_and_insert_entry(&entry(key, settings))?)
    }

    /// Adds the insert of a claimed key, and the end of its claim.
    pub fn confirm(&mut self, (key, token): (&[u8], u64), given: Option<&Settings>) -> Result<()> {
        let lease = self.filter.resume_claim(key, token);
        match given.and_then(Settings::time) {
            Some(time) => self.batch.confirm_at(lease, Timestamp::from_unix_micros(time))?,
            None => self.batch.confirm(lease)?,
        }
        Ok(())
    }

    /// Sets the position of a source.
    pub fn set_position(&mut self, source: u64, position: u64) -> Result<()> {
        Ok(self.batch.set_position(source, position)?)
    }

    /// Writes all of it, or nothing.
    pub fn commit(&mut self) -> Result<()> {
        Ok(self.batch.commit()?)
    }

    /// Forgets what it holds.
    pub fn clear(&mut self) {
        self.batch.clear();
    }
}
