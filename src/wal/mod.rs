//! The write-ahead log: mapped segments of fixed-size records that validate themselves.
//!
//! [`record`] is what a record says and how its 32 bytes tell it; `segment` a file of them; `place` the protocol by
//! which a record gets into its place; `append` a handle's view of all segments; `walk` how those who sync find out
//! how far the log is complete.
//! The log knows nothing of kinds: to it a hash, a time and a step are words.

pub mod append;
pub mod place;
pub mod segment;
pub mod walk;

pub use append::Log;
pub use ebbtide_core::record::{self, Op, Record};
pub use segment::Segment;
