//! The crash disk: a medium in memory whose every possible state after a power cut can be produced,
//! and whose calls can fail.
//!
//! A [`CrashDisk`](disk::CrashDisk) records all writes on a [`Tape`](tape::Tape). A
//! [`Chooser`](choices::Chooser) selects one of the states that a cut may leave. A
//! [`Plan`](fault::Plan) makes calls fail. The [`monitor`] checks the order of writes and syncs
//! while a recording is made.

pub mod choices;
pub mod disk;
pub mod fault;
mod file;
pub mod log;
pub mod monitor;
mod state;
pub mod tape;
