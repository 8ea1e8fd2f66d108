//! What users hold: handles, calls, and the configuration of each kind.
//!
//! `handle` is an open filter, `current` what it uses, also after an alteration; `filter` has the
//! operations that all kinds have, `abilities` those that only some have, `distinct` how many keys
//! there are, `administer` what operators do, `alter` gives a filter other parameters, `remake`
//! makes one from the operations of others, `paths` are the ways to a handle by directory. `config`
//! is what a user asks for, `call` an operation with settings, `batch` many operations that count
//! together, `claim` the right to work on a key, `entry` one of many, `history` the operations in
//! the log, `metrics` the figures for exporters. `reader` is a handle without write permission,
//! `reader::view` what it reads, `count_prior` takes priors from a filter that counts, `explain`
//! sets answers beside the log's records, `ticket` is an operation that is done and becomes durable
//! later, `standby` a filter in memory that follows another one. The protocols are in
//! [`crate::engine`].

pub mod abilities;
pub mod administer;
#[cfg(not(loom))]
pub mod alter;
pub mod batch;
pub mod call;
pub mod claim;
pub mod config;
pub mod count_prior;
mod current;
pub mod distinct;
pub mod entry;
#[cfg(not(loom))]
pub mod explain;
pub mod filter;
pub mod handle;
#[cfg(not(loom))]
pub mod history;
pub mod metrics;
#[cfg(not(loom))]
pub mod paths;
#[cfg(not(loom))]
pub mod reader;
#[cfg(not(loom))]
pub mod remake;
#[cfg(not(loom))]
pub mod standby;
pub mod ticket;
