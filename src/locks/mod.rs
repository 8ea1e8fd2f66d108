//! Which handles on a filter are alive, and which locks they hold.
//!
//! A session slot is proof of life ([`session`]); a stripe lock contains the owner's slot
//! ([`robust_word`], [`stripes`]); a leader gate ([`leader_gate`]) avoids duplicate work. Nothing
//! here depends on what a stripe guards, or on how a dead owner's stripe is repaired.

pub mod courtesy;
pub mod futex;
pub mod holders;
pub mod in_use;
pub mod leader_gate;
pub mod robust_word;
pub mod session;
pub mod stripes;
