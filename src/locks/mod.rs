//! Which handles are alive, and which of them holds what.
//!
//! A session is the proof that a handle is alive ([`session`]); the lock word of a stripe names a
//! session ([`robust_word`], [`stripes`]); a [`leader_gate`] avoids duplicate work. Nothing here
//! depends on what a stripe guards or how it is repaired after its owner died.

pub mod futex;
pub mod leader_gate;
pub mod robust_word;
pub mod session;
pub mod stripes;
