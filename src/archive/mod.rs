//! The log beyond what recovery needs: kept, and read as of any moment.
//!
//! `keep_setting` is the file that says how much is kept. `kept_files` gives segments and snapshots
//! that recovery no longer needs another name instead of removing them, and decides which of them
//! are removed later. `revisions` has the parameters from before an alteration,
//! `log_before_alteration` deals with the files of that time. `with_kept` shows a directory with
//! them under their former names, so that the code of recovery reads them. `past` finds the
//! LSN of a moment, and rebuilds the state as of it.
//!
//! Recovery never reads a kept file.

pub mod keep_setting;
pub mod kept_files;
pub mod log_before_alteration;
pub mod past;
pub mod revisions;
pub mod with_kept;

#[cfg(not(loom))]
pub use past::At;
