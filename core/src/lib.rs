//! The algorithms of forgetting filters, as pure functions over blocks of words.
//!
//! This crate knows no files, threads, clocks, locks or randomness. The crate `ebbtide` keeps
//! filters durable, shares them between threads and processes, and re-exports what its users need
//! from here. Depend on this crate to write a kind of your own, or to keep filters in memory that
//! another program makes durable.
//!
//! [`Machine`](machine::Machine) is a filter in memory with one owner. It emits a record of each
//! change, which the host keeps or sends to a replica, and saves itself as pieces of bytes:
//!
//! ```
//! use ebbtide_core::kinds::registry;
//! use ebbtide_core::machine::{Machine, MachineOptions};
//! use ebbtide_core::{Checked, Parameters, Since};
//!
//! let parameters = Parameters::new().with("window-items", 1_000_000).with("fpr", 0.001);
//! let kind = registry::build("age-partitioned", &parameters)?;
//! let (secret, uuid) = (0x5eed, 4711); // random numbers of the host
//! let mut seen = Machine::create(kind, &MachineOptions::new(), secret, uuid)?;
//!
//! let now = seen.time(Some(1_700_000_000_000_000), None)?;
//! let hash = seen.hash(b"message 4711");
//! let mut log = Vec::new();
//! let mut keep = |record| log.push(record);
//! assert_eq!(seen.check_and_insert(hash, Since::LastSeen, now, &mut keep)?, Checked::New);
//! assert_eq!(log.len(), 1);
//!
//! let saved: Vec<Vec<u8>> = seen.pieces().collect();
//! let restored = Machine::restore(&saved)?;
//! assert!(restored.contains(hash, now.time));
//! assert_eq!(restored.digest(), seen.digest());
//! # Ok::<(), ebbtide_core::Error>(())
//! ```
//!
//! # Where to look
//!
//! [`kind`] is what a filter algorithm must provide, [`kinds`] holds the algorithms and their
//! theory. [`block`] is the memory that a kind works on, [`state`] its filter-wide words, [`event`]
//! the changes of these, [`log_record`] the form of operations and events in the log. [`atomic`]
//! has its words, `text` what messages show, [`mod@error`] the errors, `serial` parameters and
//! answers as text. [`machine`] is a filter in memory. [`identity`] is what never changes of a
//! filter, [`time`] the rules for times of operations, [`claims`] those for keys that somebody
//! works on, [`digest`] the hash of a state. [`inference`] turns what the cells of a key hold into
//! probabilities. [`hash`] maps keys to blocks and cells. [`units`] reads numbers as people write
//! them.
//!
//! # Features
//!
//! - `serde`: answers and parameters can be serialised and deserialised.
//! - `testing`: the module `conformance`, with which tests check a kind; the package
//!   `examples/outside_kind` of the repository is a kind of another crate that passes it.

pub mod atomic;
pub mod block;
pub mod claims;
#[cfg(all(any(test, feature = "testing"), not(loom)))]
pub mod conformance;
pub mod digest;
pub mod error;
pub mod event;
pub mod hash;
pub mod identity;
pub mod inference;
pub mod kind;
pub mod kinds;
pub mod log_record;
#[cfg(not(loom))]
pub mod machine;
#[cfg(feature = "serde")]
mod serial;
pub mod state;
#[cfg(test)]
mod test_effort;
mod text;
pub mod time;
pub mod units;

pub use error::{Error, Result};
pub use hash::KeyHash;
pub use inference::{AgePosterior, Form, Penalty, Prior};
pub use kind::{Admission, Age, Checked, Estimate, Kind, Parameters, Since, Within};
