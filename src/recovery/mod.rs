//! Bytes to state, before a handle exists.
//!
//! The newest sound snapshot, then every record of the log from its start, in the order of LSNs, until the log
//! ends. `listing` says what files there are, `eras` reads the log across eras and tells its end from damage,
//! `replay` builds an image, `repair` completes one stripe of a living one, `salvage` finds what a
//! damaged filter still proves, `removal` lets files go so that they cannot come back, `ground` gives back the space of log
//! that no era needs any more. Nothing else here writes to the filter's files but [`eras::History::secure`], which makes durable
//! the ground that a new era will stand on, and repair.

pub mod eras;
pub mod ground;
pub mod listing;
pub mod removal;
pub mod repair;
pub mod replay;
pub mod salvage;

pub use eras::Known;
pub use listing::Listing;
pub use replay::{Recovered, rebuild, replay};
