//! The algorithms of forgetting filters, as pure functions over blocks of words.
//!
//! This crate knows no files, threads, clocks, locks or randomness. The crate `ebbtide` keeps
//! filters durable, shares them between threads and processes, and re-exports what its users need
//! from here. Depend on this crate to write a kind of your own, or to keep filters in memory that
//! another program makes durable.
//!
//! # Where to look
//!
//! [`kind`] is what a filter algorithm must provide, [`kinds`] holds the algorithms and their
//! theory. [`block`] is the memory that a kind works on, [`state`] its filter-wide words, [`event`]
//! the changes of these, [`record`] the form in which operations and events are logged.
//! [`inference`] turns what the cells of a key hold into probabilities. [`hash`] maps keys to
//! blocks and cells.
//!
//! # Features
//!
//! - `serde`: answers and parameters can be serialised and deserialised.
//! - `testing`: the module `conformance`, with which tests check a kind.

pub mod atomic;
pub mod block;
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
#[cfg(not(loom))]
pub mod machine;
pub mod record;
#[cfg(feature = "serde")]
mod serial;
pub mod state;
pub mod time;

pub use error::{Error, Result};
pub use hash::KeyHash;
pub use inference::{AgePosterior, Form, Penalty, Prior};
pub use kind::{Admission, Age, Checked, Estimate, Kind, Parameters, Since, Within};
