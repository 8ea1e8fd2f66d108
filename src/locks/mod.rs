//! Which handles on a filter are alive, and which locks they hold.
//!
//! A session slot is the proof that a handle lives ([`session_slots`]; [`holder_names`] names its
//! process, [`image_in_use`] tells whether any handle uses an image). A stripe's lock contains the
//! owner's slot ([`stripe_lock`]); [`handle_stripes`] are the locks of a handle with what it keeps
//! for each stripe, and [`yielding`] lets others have a stripe between the operations of a busy
//! writer. A single-flight gate ([`single_flight`]) avoids duplicate work. Threads sleep in
//! [`futex`]. Nothing here depends on what a stripe guards, or on how a dead owner's stripe is
//! repaired.

pub mod futex;
pub mod handle_stripes;
pub mod holder_names;
pub mod image_in_use;
pub mod session_slots;
pub mod single_flight;
pub mod stripe_lock;
pub mod yielding;
