//! Operations as records, and records as changes of blocks and sums.
//!
//! Live operation, replay, repair and replicas apply a record by these functions.

use super::{Change, Event, Kind, Operation, State, Totals};
use crate::block::Blocks;
use crate::event;
use crate::log_record::{Op, Record};
use crate::time::OperationTime;

/// Returns the record of an event that comes before an operation at `time`, in a filter whose
/// latest time is `latest`.
#[must_use]
pub fn of_event(event: &Event, time: OperationTime, latest: OperationTime) -> Record {
    let record = event::to_record(event, time.stream);
    // Of a late key: the time is the filter's, and so is its source. Otherwise replay would treat
    // it as a stream's time.
    let stream = if record.time > time.time { latest.stream } else { time.stream };
    Record { stream, ..record }
}

/// Returns the record of an operation on these blocks, which it has not changed yet. `stream`
/// indicates that its time came with the key.
#[must_use]
#[inline]
pub fn of_operation(
    kind: &dyn Kind,
    state: &State<'_>,
    blocks: &Blocks<'_>,
    operation: &Operation,
    stream: bool,
) -> Record {
    let argument = kind.argument(state, blocks, operation);
    let op = match operation.change {
        Change::Insert => Op::Insert,
        Change::Remove => Op::Remove,
    };
    let (payload, time, step) = (operation.hash, operation.time, operation.step);
    Record { op, argument, stream, continues: false, payload, time, step }
}

/// Returns the operation of a record, if it is one.
#[must_use]
#[inline]
pub fn operation(kind: &dyn Kind, record: &Record) -> Option<Operation> {
    let change = match record.op {
        Op::Insert => Change::Insert,
        Op::Remove => Change::Remove,
        _ => return None,
    };
    let weight = if kind.weights().is_some() { record.argument } else { 1 };
    let Record { payload: hash, step, time, .. } = *record;
    Some(Operation { change, hash, step, time, weight })
}

/// Returns the counts of an operation's record, of a kind that weighs its keys or not.
#[must_use]
#[inline]
pub fn counts(weighs: bool, record: &Record) -> Totals {
    match record.op {
        Op::Insert if weighs => Totals { inserts: 1, new_bits: 0 },
        Op::Insert => Totals { inserts: 1, new_bits: record.argument.into() },
        _ => Totals { inserts: 0, new_bits: 1 },
    }
}

/// Applies an operation to its blocks.
#[inline]
pub fn change(kind: &dyn Kind, state: &State<'_>, blocks: &Blocks<'_>, operation: &Operation) {
    match operation.change {
        Change::Insert => kind.insert(state, blocks, operation),
        Change::Remove => kind.remove(blocks, operation),
    }
}
