//! The interface: what its calls promise beside the answers of the kinds.

mod clear;
mod closing;
mod key_hash;
mod one_step;
mod plan;
#[cfg(feature = "serde")]
mod serde;
mod text;
mod tickets;
mod typed;
mod without_waiting;
