//! Who is alive, and who holds what, among the handles on one filter.
//!
//! A slot is proof of life ([`slots`]); a stripe lock names a slot ([`stripe_lock`], [`stripes`]); a [`turn`] spares others a
//! duty that somebody is at. Nothing here knows what a stripe guards, nor how a stripe whose owner died is repaired.

pub mod futex;
pub mod slots;
pub mod stripe_lock;
pub mod stripes;
pub mod turn;
