//! A consumer of JetStream or Redis Streams that passes on each message exactly once.
//!
//! Each stream is a [partition](partition): one filter, and one file of output. A batch of the
//! filter remembers the ids of some messages, how far the stream was read, and how long the output
//! is, in one atomic step. After a crash the consumer truncates the output to that length and
//! reads on from that position, so the output is the same as without the crash.
//!
//! [`server`] reads streams, [`partition`] decides and remembers, [`consume`] joins both,
//! [`traffic`] makes messages to try it with. `docs/exactly-once.md` explains the protocol.

pub mod consume;
pub mod failure;
pub mod output;
pub mod partition;
pub mod server;
pub mod traffic;

pub use failure::{Failure, Result};

/// A message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Where the message is in its stream.
    pub position: Position,
    /// What a repetition of the message has in common with it. A message without an id is always
    /// passed on; by its position it is still passed on only once.
    pub id: Option<Vec<u8>>,
    /// What is passed on.
    pub body: Vec<u8>,
}

/// The place of a message in its stream, in the order of the stream.
///
/// A position of the filter is one number. A sequence of JetStream is one; an id of Redis,
/// `milliseconds-sequence`, is two, of 64 bits each. Both are stored as two positions, which a
/// batch sets together. Packing an id of Redis into one number would limit the sequence to the
/// bits that the milliseconds leave, and a producer may choose ids that exceed them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The sequence of JetStream; the milliseconds of an id of Redis.
    pub major: u64,
    /// 0 for JetStream; the sequence of an id of Redis.
    pub minor: u64,
}

/// The example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/exactly-once.md")]
pub struct Page;
