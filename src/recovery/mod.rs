//! From files to state, before a handle exists.
//!
//! Recovery takes the newest sound snapshot, then every record of the log from its start, in the
//! order of LSNs, until the log ends. `batches` decides which batches count, `bare_events` which
//! events of older formats do, `listing` lists the files, `log_extent` is what the image says of
//! the log, `log_reader` reads the log across timelines and distinguishes its end from damage,
//! `applying` applies its records on all processors, `replay` builds an image, `repair` completes
//! one stripe of a shared one, `removal` removes files so that they cannot reappear, `trim` frees
//! the space of log that no timeline needs. Only [`log_reader::LogReader::secure`], which makes the
//! base of a new timeline durable, `trim`, `removal` and `repair` write to the filter's files.

pub mod applying;
pub mod bare_events;
pub mod batches;
pub mod listing;
pub mod log_extent;
pub mod log_reader;
pub mod removal;
pub mod repair;
pub mod replay;
pub mod trim;

pub use listing::Listing;
pub use log_extent::LogExtent;
pub use replay::{Recovered, rebuild, replay};
