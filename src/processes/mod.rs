//! Who is alive, and who holds what, among the handles on one filter.
//!
//! A slot is proof of life; a stripe lock names a slot. Nothing here knows what a stripe guards, nor how a
//! stripe whose owner died is repaired. For now one handle at a time has a filter open ([`slots`]); the
//! stripe locks already work between processes.

pub mod futex;
pub mod slots;
pub mod stripe_lock;
pub mod stripes;
