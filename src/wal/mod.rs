//! The write-ahead log: mapped segments of fixed-size records that validate themselves.
//!
//! `segment` is a file of them; `slot` the protocol by which a record gets into its slot;
//! `synced_mapping` makes a segment durable; `mapped_log` is a handle's view of all segments;
//! `empty_slots` waits until the log is complete, and voids the slots of dead writers. The log
//! knows no kinds: to it a hash, a time and a step are words.

pub mod empty_slots;
pub mod mapped_log;
pub mod segment;
pub mod slot;
mod synced_mapping;

pub use ebbtide_core::log_record::{self, Op, Record};
pub use mapped_log::Log;
pub use segment::Segment;
