//! Moments of a filter's past, and the reading of its log, one operation after the other.

use crate::answer::Answer;
use crate::failure::{Failure, Result};
use engine::Timestamp;
use engine::history::{At, Change, Commit, History, Operation};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

/// A moment of a filter's past: after the record with the LSN in number.
pub const EBBTIDE_AT_LSN: u32 = 1;
/// A moment of a filter's past: before the first operation that is later than the time in number,
/// in microseconds since the Unix epoch.
pub const EBBTIDE_AT_TIME: u32 = 2;
/// A moment of a filter's past: before the position of a source passed the one in number.
pub const EBBTIDE_AT_POSITION: u32 = 3;

/// Flag of ebbtide_history_open: operations come before they are on the disk. A power cut may take
/// them back; if that happens to what was returned, the next call fails with EBBTIDE_NOT_KEPT.
pub const EBBTIDE_WITH_UNDURABLE: u32 = 1;

/// Kind of an operation that this version does not distinguish.
pub const EBBTIDE_OPERATION_OTHER: u32 = 0;
/// Kind of an operation: a key was inserted. It has hash and weight.
pub const EBBTIDE_OPERATION_INSERT: u32 = 1;
/// Kind of an operation: a key was removed. It has hash and weight.
pub const EBBTIDE_OPERATION_REMOVE: u32 = 2;
/// Kind of an operation: all keys were removed.
pub const EBBTIDE_OPERATION_CLEAR: u32 = 3;
/// Kind of an operation: a source was read up to a position. It has source and position.
pub const EBBTIDE_OPERATION_POSITION: u32 = 4;
/// Kind of an operation: a key was claimed, or its claim extended. It has hash, token and lease_us.
pub const EBBTIDE_OPERATION_CLAIM: u32 = 5;
/// Kind of an operation: a claim ended. It has hash and token.
pub const EBBTIDE_OPERATION_RELEASE: u32 = 6;

/// Flag of an operation: it has a time.
pub const EBBTIDE_HAS_TIME: u32 = 1;
/// Flag of an operation: the time came with the key, and not from a clock.
pub const EBBTIDE_IS_STREAM_TIME: u32 = 2;

/// A moment of a filter's past. A batch counts as a whole or not at all: as of a moment within one,
/// it has not happened.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// EBBTIDE_AT_LSN, EBBTIDE_AT_TIME or EBBTIDE_AT_POSITION.
    pub at: u32,
    /// The LSN, the time in microseconds since the Unix epoch, or the position.
    pub number: u64,
    /// The source, as in ebbtide_batch_set_position, with EBBTIDE_AT_POSITION; otherwise 0.
    pub source: u64,
}

impl Moment {
    /// Returns the moment in the form of the engine.
    ///
    /// # Errors
    /// A form that does not exist, and a source without its form.
    pub fn check(&self) -> Result<At> {
        let Self { at, number, source } = *self;
        if source != 0 && at != EBBTIDE_AT_POSITION {
            return Err(Failure::argument(
                "source of the moment is set, but not the form EBBTIDE_AT_POSITION",
            ));
        }
        match at {
            EBBTIDE_AT_LSN => Ok(At::Lsn(number)),
            EBBTIDE_AT_TIME => Ok(At::Time(Timestamp::from_unix_micros(number))),
            EBBTIDE_AT_POSITION => Ok(At::Position { source, position: number }),
            other => Err(Failure::argument(format!(
                "form of the moment: expected EBBTIDE_AT_LSN, EBBTIDE_AT_TIME or \
                 EBBTIDE_AT_POSITION, found {other}"
            ))),
        }
    }
}

/// An operation in the log of a filter. Set size to sizeof(struct ebbtide_operation); the library
/// sets the other members, those that the kind does not have to 0. A later version may add members
/// at the end; size then keeps programs built with this one working.
///
/// Operations that happened together, those of a batch, form a commit. They come one after the
/// other, and are all there as soon as the first one is.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Logged {
    /// sizeof(struct ebbtide_operation).
    pub size: usize,
    /// The LSN of its record.
    pub lsn: u64,
    /// The LSN of the last record of its commit. As of this LSN it has happened: continue after it.
    pub commit_lsn: u64,
    /// Each opening of a filter that nobody else has open begins a timeline.
    pub timeline: u64,
    /// How many operations of the same commit come after this one.
    pub left: u64,
    /// When, in microseconds since the Unix epoch by the filter's time (that of claims by the time
    /// of leases), with EBBTIDE_HAS_TIME. A filter without a clock has no times, and a position has
    /// none.
    pub time_us: u64,
    /// The hash of the key: ebbtide_key_hash.
    pub hash: u64,
    /// The source that was read.
    pub source: u64,
    /// The position up to which it was read.
    pub position: u64,
    /// The token of the claim.
    pub token: u64,
    /// For how long the claim holds from time_us on, in microseconds.
    pub lease_us: u64,
    /// One of EBBTIDE_OPERATION_INSERT and so on. A later version may return kinds that this header
    /// does not have.
    pub kind: u32,
    /// EBBTIDE_HAS_TIME and EBBTIDE_IS_STREAM_TIME, joined by |.
    pub flags: u32,
    /// How often the key was inserted or removed, or how important it is; 1 for kinds without
    /// weights. A large count has several operations.
    pub weight: u32,
    /// 0.
    pub reserved: u32,
}

impl Answer for Logged {
    const NAME: &'static str = "ebbtide_operation";
    const FIRST: usize = 104;
}

// The size of the first version, without padding.
const _: () = assert!(size_of::<Logged>() == Logged::FIRST);

impl Logged {
    /// Returns an operation of this commit, after which `left` others come.
    fn of(commit: &Commit, operation: &Operation, left: usize) -> Self {
        let Operation { lsn, time, is_stream_time, change, .. } = *operation;
        let mut of = Self {
            size: size_of::<Self>(),
            lsn,
            commit_lsn: commit.lsn,
            timeline: commit.timeline,
            left: left as u64,
            ..Self::default()
        };
        if let Some(time) = time {
            of.time_us = time.as_unix_micros();
            of.flags = EBBTIDE_HAS_TIME;
            of.flags |= if is_stream_time { EBBTIDE_IS_STREAM_TIME } else { 0 };
        }
        match change {
            Change::Insert { hash, weight } => {
                (of.kind, of.hash, of.weight) = (EBBTIDE_OPERATION_INSERT, hash, weight);
            }
            Change::Remove { hash, weight } => {
                (of.kind, of.hash, of.weight) = (EBBTIDE_OPERATION_REMOVE, hash, weight);
            }
            Change::Clear => of.kind = EBBTIDE_OPERATION_CLEAR,
            Change::Position { source, position } => {
                of.kind = EBBTIDE_OPERATION_POSITION;
                (of.source, of.position) = (source, position);
            }
            Change::Claim { hash, token, lease } => {
                (of.kind, of.hash, of.token) = (EBBTIDE_OPERATION_CLAIM, hash, token);
                of.lease_us = micros(lease);
            }
            Change::Release { hash, token } => {
                (of.kind, of.hash, of.token) = (EBBTIDE_OPERATION_RELEASE, hash, token);
            }
            _ => of.kind = EBBTIDE_OPERATION_OTHER,
        }
        of
    }
}

/// Returns a duration in microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The operations in the log of a filter, from a place in it on.
#[derive(Debug)]
pub struct Log {
    history: History,
    /// The LSN of the first operation of the commit that is being returned.
    begun: u64,
    /// The rest of that commit.
    left: VecDeque<Logged>,
}

// A C program may hand it to another thread.
const _: () = {
    const fn sent<T: Send>() {}
    sent::<Log>();
};

impl Log {
    /// Opens the log of a filter, from its oldest record or after a moment.
    pub fn open(path: &Path, after: Option<&Moment>, flags: u32) -> Result<Self> {
        let after = after.map(Moment::check).transpose()?;
        let unknown = flags & !EBBTIDE_WITH_UNDURABLE;
        if unknown != 0 {
            return Err(Failure::argument(format!(
                "flags of the history: expected EBBTIDE_WITH_UNDURABLE or 0, found {unknown:#x}"
            )));
        }
        let history = History::open(path)?;
        let history = match after {
            Some(after) => history.after(after)?,
            None => history,
        };
        let is_durable = flags & EBBTIDE_WITH_UNDURABLE == 0;
        let history = if is_durable { history } else { history.with_undurable() };
        Ok(Self { history, begun: 0, left: VecDeque::new() })
    }

    /// Returns the next operation, if there is one within this time.
    pub fn next(&mut self, wait: Option<Duration>) -> Result<Option<Logged>> {
        // Also before the rest of a commit is returned.
        self.history.check_process()?;
        if let Some(next) = self.left.pop_front() {
            return Ok(Some(next));
        }
        let found = match wait {
            Some(time) => self.history.wait(time)?,
            None => self.history.read()?,
        };
        let Some(commit) = found else { return Ok(None) };
        let operations = commit.operations.iter().rev().enumerate();
        for (left, operation) in operations {
            self.left.push_front(Logged::of(&commit, operation, left));
            self.begun = operation.lsn;
        }
        Ok(self.left.pop_front())
    }

    /// Returns the LSN at which reading continues: every commit below it was returned as a whole.
    pub fn position(&self) -> u64 {
        if self.left.is_empty() { self.history.next_lsn() } else { self.begun }
    }
}
