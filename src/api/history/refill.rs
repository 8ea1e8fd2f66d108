//! A filter in memory that takes the operations in a log.

use crate::api::call::AHEAD;
use crate::api::history::commits::{Change, Operation};
use crate::clock::Timestamp;
use crate::error::Result;
use ebbtide_core::kind::{Kind, Micros, Request};
use ebbtide_core::machine::Machine;

/// Returns whether a window of this kind has only these newest operations, since a time; the latest
/// is at `latest`. One without a window has all that ever were.
pub(super) fn has_window(
    kind: &dyn Kind,
    operations: u64,
    since: Option<Timestamp>,
    latest: Micros,
) -> bool {
    let parameters = kind.parameters();
    let number = |name| parameters.get(name).and_then(|value| value.parse::<u64>().ok());
    match (number("window-items"), number("window")) {
        (Some(items), _) => operations >= items,
        (None, Some(micros)) => {
            since.is_some_and(|since| since.as_unix_micros().saturating_add(micros) <= latest)
        }
        (None, None) => false,
    }
}

/// A filter in memory that is filled from a log.
#[derive(Debug)]
pub(super) struct Refill {
    machine: Machine,
    /// Whether the times of operations come from a clock; unknown before the first one.
    has_clock: Option<bool>,
    /// The latest time on that clock.
    wall: u64,
    /// Insertions and removals so far.
    pub(super) operations: u64,
    /// The time of the first one that has one.
    pub(super) since: Option<Timestamp>,
}

impl Refill {
    pub(super) fn new(machine: Machine) -> Self {
        Self { machine, has_clock: None, wall: 0, operations: 0, since: None }
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn into_machine(self) -> Machine {
        self.machine
    }

    /// Returns whether all that the filter would have to know is among the operations.
    pub(super) fn has_its_window(&self) -> bool {
        let latest = self.machine.latest().time;
        has_window(self.machine.kind(), self.operations, self.since, latest)
    }

    /// Takes operations, whose cells are prefetched.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) for a weight that the kind does not take.
    pub(super) fn take_all(&mut self, operations: &[Operation]) -> Result<()> {
        for operations in operations.chunks(AHEAD) {
            for operation in operations {
                if let Change::Insert { hash, .. } = operation.change {
                    self.machine.prefetch(hash);
                }
            }
            operations.iter().try_for_each(|operation| self.take(operation))?;
        }
        Ok(())
    }

    /// Takes an operation, at its time. Positions and claims are not of a filter's keys.
    fn take(&mut self, operation: &Operation) -> Result<()> {
        let is_of_keys = matches!(
            operation.change,
            Change::Insert { .. } | Change::Remove { .. } | Change::Clear
        );
        if !is_of_keys {
            return Ok(());
        }
        let time = operation.time.map(Timestamp::as_unix_micros);
        if time.is_some() {
            self.has_clock.get_or_insert(!operation.is_stream_time);
        }
        let has_clock = self.has_clock.unwrap_or(true);
        if let (Some(time), true) = (time, has_clock) {
            self.wall = time;
        }
        let kind = self.machine.kind();
        let weighs = kind.weights().is_some();
        let weight = |weight: u32| if weighs { weight.into() } else { 1 };
        let request = match operation.change {
            Change::Insert { hash, weight: of } => Request::insert(hash).weighing(weight(of)),
            Change::Remove { hash, weight: of } if kind.removal().is_some() => {
                Request::remove(hash, weight(of))
            }
            Change::Clear => {
                let now = self.machine.time(has_clock.then_some(self.wall), None)?;
                self.machine.clear(now, &mut |_| {});
                return Ok(());
            }
            _ => return Ok(()),
        };
        let given = time.filter(|_| operation.is_stream_time || !has_clock);
        let now = self.machine.time(has_clock.then_some(self.wall), given)?;
        self.machine.write(&request, now, &mut |_| {})?;
        self.operations += 1;
        self.since = self.since.or(operation.time);
        Ok(())
    }
}
