//! The interface: what its calls promise beside the answers of the kinds.

mod batches;
mod claims;
mod clear;
mod closing;
mod distinct;
mod explain;
mod key_hash;
mod long_use;
mod one_step;
mod plan;
#[cfg(feature = "serde")]
mod serde;
mod text;
mod tickets;
mod typed;
mod without_waiting;
