//! A filter in memory that takes the operations in a log.

use crate::api::call::AHEAD;
use crate::api::history::commits::{Change, Operation};
use crate::clock::Timestamp;
use crate::error::Result;
use ebbtide_core::kind::{Checked, Kind, Micros, Request};
use ebbtide_core::machine::Machine;
use ebbtide_core::time::OperationTime;

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

/// Returns the time that an operation has in a filter that takes it over, of a kind that uses time
/// or not, whose latest time is `latest`.
pub(super) fn time_in(
    operation: &Operation,
    uses_time: bool,
    latest: OperationTime,
) -> OperationTime {
    let stream = operation.is_stream_time;
    match operation.time.map(Timestamp::as_unix_micros) {
        Some(time) if uses_time => latest.taking_over(OperationTime { time, stream }),
        Some(time) => OperationTime { time, stream },
        // Without a clock.
        None if uses_time && !stream => latest.by_clock(None),
        None => OperationTime { time: 0, stream },
    }
}

/// A filter in memory that is filled from a log.
#[derive(Debug)]
pub(super) struct Refill {
    machine: Machine,
    /// Insertions and removals that the filter has taken.
    pub(super) operations: u64,
    /// The time of the first one that has one.
    pub(super) since: Option<Timestamp>,
}

impl Refill {
    pub(super) fn new(machine: Machine) -> Self {
        Self { machine, operations: 0, since: None }
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
        let kind = self.machine.kind();
        let weighs = kind.weights().is_some();
        let weight = |weight: u32| if weighs { weight.into() } else { 1 };
        let time = time_in(operation, kind.uses_time(), self.machine.latest());
        let request = match operation.change {
            Change::Insert { hash, weight: of } => Request::insert(hash).weighing(weight(of)),
            Change::Remove { hash, weight: of } if kind.removal().is_some() => {
                Request::remove(hash, weight(of))
            }
            Change::Clear => {
                self.machine.clear(time, &mut |_| {});
                return Ok(());
            }
            Change::Remove { .. }
            | Change::Position { .. }
            | Change::Claim { .. }
            | Change::Release { .. } => return Ok(()),
        };
        let request = Request { is_timed: time.stream, ..request };
        let written = self.machine.write(&request, time, &mut |_| {})?;
        self.operations += u64::from(written.checked != Checked::TooLate);
        self.since = self.since.or(operation.time);
        Ok(())
    }
}
