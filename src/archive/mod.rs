//! The log beyond what recovery needs: kept, and read as of any moment.
//!
//! `keep_file` is the file that says how much is kept. `kept_files` gives segments and snapshots
//! that recovery no longer needs another name instead of removing them, and decides which of them
//! are removed later. `revisions` has the parameters from before an alteration, `former` deals with
//! the files of that time. `whole` shows a filter's directory with them under their former names,
//! so that the code of recovery reads them. `past` finds the LSN of a moment, and rebuilds the
//! state as of it.
//!
//! Recovery never reads a kept file.

pub mod former;
pub mod keep_file;
pub mod kept_files;
pub mod past;
pub mod revisions;
pub mod whole;

#[cfg(not(loom))]
pub use past::At;
