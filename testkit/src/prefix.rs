//! The oracle: after a crash the state of a filter is the result of a prefix of its operations, and
//! the prefix contains every operation that was acknowledged.
//!
//! A witness runs the same operations in memory and never crashes. Its digest after `n` operations
//! is the only correct state with `n` of them.

use ebbtide::media::Memory;
use ebbtide::{Any, Error, Filter, Options};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A result of a check: its error is a sentence.
pub type Checked<T> = Result<T, String>;

/// The value of a digest, and the number of inserts.
pub type State = (u128, u64);

/// Returns the sentence of an error.
pub fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Returns the state of a filter.
pub fn state<K>(filter: &Filter<K>) -> Checked<State> {
    let digest = filter.digest().map_err(text)?;
    Ok((digest.value, digest.inserts))
}

/// Creates a filter in memory.
pub fn in_memory(spec: Any, options: Options) -> Filter {
    Filter::create_on(Arc::new(Memory::new()), spec, options).expect("a filter in memory")
}

/// Operations by number; each leaves one record.
pub trait Operations {
    /// Creates the witness.
    fn witness(&self) -> Filter;

    /// Runs the operation of this number.
    ///
    /// # Errors
    /// What the filter returns.
    fn operate(&self, filter: &Filter, number: u64) -> Result<(), Error>;
}

/// The states after each number of operations.
#[derive(Debug)]
pub struct Oracle<O> {
    operations: O,
    witness: Filter,
    fed: u64,
    states: BTreeMap<u64, State>,
    keeps_all: bool,
}

impl<O: Operations> Oracle<O> {
    /// Creates an oracle that keeps all states, for filters that may contain fewer operations than
    /// an earlier one.
    pub fn keeping_all(operations: O) -> Self {
        Self { keeps_all: true, ..Self::new(operations) }
    }

    /// Creates an oracle that computes the requested states only. They must not descend, except to
    /// the one before.
    pub fn new(operations: O) -> Self {
        let witness = operations.witness();
        Self { operations, witness, fed: 0, states: BTreeMap::new(), keeps_all: false }
    }

    /// Returns the operations.
    pub fn operations(&self) -> &O {
        &self.operations
    }

    /// Returns the state after this many operations.
    ///
    /// # Errors
    /// The state has been passed and was not kept, or the witness fails.
    pub fn state(&mut self, after: u64) -> Checked<State> {
        while self.fed < after {
            if self.keeps_all {
                self.keep()?;
            }
            self.operations.operate(&self.witness, self.fed).map_err(text)?;
            self.fed += 1;
        }
        if self.fed == after {
            self.keep()?;
        }
        let known = self.states.get(&after).copied();
        known.ok_or(format!("the witness is beyond {after} operations"))
    }

    fn keep(&mut self) -> Checked<()> {
        if !self.states.contains_key(&self.fed) {
            self.states.insert(self.fed, state(&self.witness)?);
        }
        Ok(())
    }

    /// Finds the prefix that a filter contains. Returns the number of its operations, which must be
    /// in this range.
    ///
    /// # Errors
    /// Says what the filter contains instead.
    pub fn prefix(&mut self, found: &Filter, range: RangeInclusive<u64>) -> Checked<u64> {
        let operations = found.stat().map_err(text)?.operations;
        let (least, most) = (range.start(), range.end());
        if !range.contains(&operations) {
            return Err(format!("it contains {operations} operations, expected {least} to {most}"));
        }
        if state(found)? == self.state(operations)? {
            return Ok(operations);
        }
        Err(format!(
            "its digest matches no number of operations from {least} to {most}; it counts \
             {operations}"
        ))
    }
}
