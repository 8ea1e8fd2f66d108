//! What is made of the records of a log: commits, operations, or the records themselves.

use crate::api::history::operations::{Commit, Operation};
use crate::recovery::batches::Group;
use crate::wal::Record;

/// What was read at once.
pub struct Read<C> {
    pub found: C,
    /// Where the log ended.
    pub stop: u64,
    /// The LSN to continue at: less than `stop` if the log ended within a batch.
    pub next: u64,
    pub timeline: u64,
}

/// What is made of the records of a log.
pub trait Collected: Default {
    /// Records that are read at once; more if a batch is longer.
    const CHUNK: u64;

    /// Adds what happened together.
    fn add(&mut self, timeline: u64, group: Group<'_>, weighs: bool);

    /// Returns whether nothing has happened.
    fn is_empty(&self) -> bool;
}

impl Collected for Vec<Commit> {
    const CHUNK: u64 = 1 << 13;

    fn add(&mut self, timeline: u64, group: Group<'_>, weighs: bool) {
        self.extend(Commit::of(timeline, group, weighs));
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

impl Collected for Vec<Operation> {
    // Takes long compared with a look at the files.
    const CHUNK: u64 = 1 << 14;

    fn add(&mut self, _: u64, group: Group<'_>, weighs: bool) {
        self.extend(group.iter().filter_map(|of| Operation::of(of, weighs)));
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

/// Records as they are, for a copy elsewhere.
#[derive(Default)]
pub struct Raw {
    pub timeline: u64,
    pub records: Vec<(u64, Record)>,
}

impl Collected for Raw {
    const CHUNK: u64 = 1 << 16;

    fn add(&mut self, timeline: u64, group: Group<'_>, _: bool) {
        self.timeline = timeline;
        self.records.extend_from_slice(group);
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
