//! What operations in the log of one kind are in a filter of another.

use crate::api::batch::Weights;
use crate::api::history::operations::{Change, Operation};
use crate::clock::{Clock, Timestamp};
use crate::error::Error;
use ebbtide_core::kind::{Kind, MOST_WEIGHT, Micros};
use ebbtide_core::time::{LATEST, OperationTime};

/// The latest time that operations of a kind without time are taken to have had.
#[derive(Debug, Clone)]
pub(in crate::api) struct LatestByClock {
    clock: Clock,
    /// The latest time that came with a key.
    with_keys: Micros,
}

impl LatestByClock {
    /// By this clock, the system's if it is none, but not before a time that came with a key.
    pub(in crate::api) fn new(clock: Clock, latest: OperationTime) -> Self {
        Self { clock, with_keys: if latest.stream { latest.time } else { 0 } }
    }

    /// Returns a time that a filter of a kind has had, as it is taken over.
    pub(in crate::api) fn of(&self, kind: &dyn Kind, time: OperationTime) -> Micros {
        let is_clock = !kind.uses_time() && !time.stream;
        if is_clock { time.time.min(self.now()) } else { time.time }
    }

    /// Returns it. Clocks advance: to be asked after the operations were read.
    pub(in crate::api) fn now(&self) -> Micros {
        let wall = self.clock.wall().or_else(|| Clock::system().wall());
        wall.unwrap_or(LATEST).max(self.with_keys).min(LATEST)
    }
}

/// Makes of operations in the log of a filter of kind `from` what a filter of kind `to` takes over.
///
/// - Where only one of the two counts, a weight is none: an operation becomes one of weight 1, also
///   if it is a large count, which has several records.
/// - A kind without time records whatever its clock showed. Where that becomes the time of the
///   filter, it is at most that of the clock now: a clock that was ahead would make all keys before
///   older.
pub(in crate::api) fn take_over(
    operations: &mut Vec<Operation>,
    (from, to): (&dyn Kind, &dyn Kind),
    latest: &LatestByClock,
) {
    if from.weights().is_some() && Weights::of(from) != Weights::of(to) {
        leave_weights(operations);
    }
    if to.uses_time() && !from.uses_time() {
        let latest = Timestamp::from_unix_micros(latest.now());
        for operation in operations.iter_mut().filter(|of| !of.is_stream_time) {
            operation.time = operation.time.map(|time| time.min(latest));
        }
    }
}

/// Makes each operation one of weight 1.
fn leave_weights(operations: &mut Vec<Operation>) {
    let mut before: Option<Operation> = None;
    operations.retain_mut(|operation| {
        let continues = before.is_some_and(|before| continues(&before, operation));
        before = Some(*operation);
        if let Change::Insert { weight, .. } | Change::Remove { weight, .. } = &mut operation.change
        {
            *weight = 1;
        }
        !continues
    });
}

/// Returns whether this is a further record of the operation before: all but the last one of a
/// large count have the greatest weight.
fn continues(before: &Operation, operation: &Operation) -> bool {
    let is_part = match (before.change, operation.change) {
        (Change::Insert { hash, weight }, Change::Insert { hash: of, .. })
        | (Change::Remove { hash, weight }, Change::Remove { hash: of, .. }) => {
            hash == of && weight == MOST_WEIGHT
        }
        _ => false,
    };
    is_part && before.time == operation.time && before.is_stream_time == operation.is_stream_time
}

/// Creates the error for a log with removals that the new kind cannot make. `or` is what else may
/// be done.
pub(in crate::api) fn has_removals(kind: &dyn Kind, or: &str) -> Error {
    let expected = format!("one that removes keys, because the log has removals{or}");
    Error::parameter("kind", expected, kind.name())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use ebbtide_core::kind::Parameters;
    use ebbtide_core::kinds::registry;

    #[test]
    fn the_records_of_one_large_count_are_one_operation_and_those_of_several_are_several() {
        let build = |name| registry::build(name, &Parameters::new().with("capacity", 100));
        let [from, to] = ["counting", "bloom"].map(|name| build(name).expect("a kind"));
        let at = |lsn, time, hash, weight| Operation {
            lsn,
            time: Some(Timestamp::from_unix_micros(time)),
            is_stream_time: true,
            change: Change::Insert { hash, weight },
        };
        let most = MOST_WEIGHT;
        let mut operations = vec![
            at(1, 5, 7, most),
            at(2, 5, 7, most),
            at(3, 5, 7, 1),
            at(4, 5, 7, 2),
            at(5, 5, 8, most),
            at(6, 6, 8, 1),
        ];
        let latest = LatestByClock::new(Clock::stream(), OperationTime::default());
        take_over(&mut operations, (&*from, &*to), &latest);
        let left: Vec<_> = operations.iter().map(|of| (of.lsn, of.change)).collect();
        let wanted = [(1, 7), (4, 7), (5, 8), (6, 8)];
        assert_eq!(left, wanted.map(|(lsn, hash)| (lsn, Change::Insert { hash, weight: 1 })));
    }
}
