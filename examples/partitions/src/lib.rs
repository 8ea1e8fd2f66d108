//! Consumers of a partitioned stream of JetStream, whose filters move with the partitions.
//!
//! Orders are published to `orders.<count>.<number>`: partition `number` of `count`, by the hash of
//! the key ([`broker`]). Each partition has one filter, shipped to a place of its own
//! ([`partition`]). Who works on which partition is the newest message of another stream; a
//! [`member`] reads it and takes partitions over, or hands them over. Nothing depends on both sides
//! seeing that at the same time: a member that is late is fenced, and has then neither passed an
//! order on nor moved the position.
//!
//! The position in the partition is in the filter, and nothing is acknowledged to the broker:
//! whoever has the filter continues where it is.

pub mod broker;
pub mod member;
pub mod partition;

/// The result of this package's functions. A program would tell apart what passes and what does
/// not, as `examples/consumer` does.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
