//! What the records of a log mean: operations, and those that happened together.

use crate::clock::Timestamp;
use crate::recovery::batches::Group;
use ebbtide_core::claims::HeldClaim;
use ebbtide_core::log_record::{Op, Record};
use std::time::Duration;

/// Operations that happened together: one, or those of a [`Batch`](crate::Batch).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// The LSN of its last record. As of this LSN it has happened:
    /// [`At::Lsn`](crate::history::At::Lsn), [`Reader::at`](crate::Reader::at).
    pub lsn: u64,
    /// The timeline in which it was written: each opening of a filter that nobody else has open
    /// begins one.
    pub timeline: u64,
    /// What happened, in its order.
    pub operations: Vec<Operation>,
}

/// An operation in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// The LSN of its record.
    pub lsn: u64,
    /// When, by the filter's time (that of claims by the time of leases); `None` for a filter
    /// without a clock, and for positions.
    pub time: Option<Timestamp>,
    /// Whether the time came with the key, and not from a clock.
    pub is_stream_time: bool,
    /// What it changed.
    pub change: Change,
}

/// The change of an operation. A key is its hash, as the filter's hash function gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A key was inserted.
    Insert {
        /// The key's hash.
        hash: u64,
        /// How often, or how important it is; 1 for kinds without weights. A large count has
        /// several operations.
        weight: u32,
    },
    /// A key was removed.
    Remove {
        /// The key's hash.
        hash: u64,
        /// How often.
        weight: u32,
    },
    /// All keys were removed.
    Clear,
    /// A source was read up to a position.
    Position {
        /// The source.
        source: u64,
        /// The position.
        position: u64,
    },
    /// A key was claimed, or its claim extended.
    Claim {
        /// The key's hash.
        hash: u64,
        /// The token of the claim.
        token: u64,
        /// How long it holds from its time on.
        lease: Duration,
    },
    /// A claim ended.
    Release {
        /// The key's hash.
        hash: u64,
        /// The token of the claim.
        token: u64,
    },
}

impl Change {
    /// Returns the change of a record; `None` if it is no operation.
    fn of(record: &Record, weighs: bool) -> Option<Self> {
        let Record { payload: hash, step, argument, .. } = *record;
        let weight = if weighs { argument } else { 1 };
        Some(match record.op {
            Op::Insert => Self::Insert { hash, weight },
            Op::Remove => Self::Remove { hash, weight },
            Op::Clear => Self::Clear,
            Op::Position => Self::Position { source: hash, position: record.time },
            Op::Claim => {
                let claim = HeldClaim::of_record(record);
                let lease = Duration::from_micros(claim.deadline - claim.since);
                Self::Claim { hash, token: step, lease }
            }
            Op::Release => Self::Release { hash, token: step },
            Op::Step
            | Op::OpenBank
            | Op::CloseBank
            | Op::Heartbeat
            | Op::Durable
            | Op::Void
            | Op::Batch => return None,
        })
    }
}

impl Operation {
    /// Returns the operation of a record, if it is one.
    pub(in crate::api) fn of(&(lsn, record): &(u64, Record), weighs: bool) -> Option<Self> {
        let time = (record.op != Op::Position && record.time > 0)
            .then(|| Timestamp::from_unix_micros(record.time));
        let change = Change::of(&record, weighs)?;
        Some(Self { lsn, time, is_stream_time: record.stream, change })
    }
}

impl Commit {
    /// Returns the commit of these records; `None` if there is no operation among them.
    pub(in crate::api) fn of(timeline: u64, group: Group<'_>, weighs: bool) -> Option<Self> {
        let operations = group.iter().filter_map(|of| Operation::of(of, weighs));
        let operations: Vec<_> = operations.collect();
        let lsn = group.last()?.0;
        (!operations.is_empty()).then_some(Self { lsn, timeline, operations })
    }
}
