//! A model of commit, checkpoint and recovery, with the write-back of the live image.
//!
//! [`Protocol`] has the actions of a writer, a checkpoint, the system and the disk, one at a time, in
//! every order. A [`Mistake`] leaves out one rule of the protocol. The model checker must find no
//! wrong state without a mistake, and one with each.
//!
//! | in the model | in the engine |
//! |---|---|
//! | [`Slot`] | a slot of the log: what memory holds, and what the disk holds |
//! | [`Page`] | what memory and the disk hold of a block, or of the state block |
//! | [`State::history`] | what the log should hold: the judge's record, which no failure changes |
//! | [`State::recover`] | `src/recovery/`: the newest snapshot, then every record from its start on |
//!
//! What is atomic here is the subject of other models: an operation under its stripe (`tests/loom`),
//! the steps of checkpoints beside each other (`tests/recovery/protocol`).

mod actions;
mod log;
mod state;

pub use actions::{Action, Bounds, Mistake, Protocol};
pub use log::{Effect, Part, Slot};
pub use state::{Checkpoint, Content, Page, Snapshot, State, Writer, Wrong};
