//! The life of a handle: it opens a filter, alters it, and is closed.
//!
//! `open` creates and opens filters, `full_disk_at_open` opens one where there is no space,
//! `vacant_directory` checks a directory before a filter is created, `options_match` the options
//! of an existing one. `alter` continues a filter with other parameters, `snapshot_of_memory`
//! writes the new state as a snapshot. `close` waits for operations in progress; `closed_mark` is
//! the mark of a closed handle.

#[cfg(not(loom))]
pub mod alter;
pub mod close;
pub mod closed_mark;
pub mod full_disk_at_open;
pub mod open;
pub mod options_match;
#[cfg(not(loom))]
pub mod snapshot_of_memory;
pub mod vacant_directory;
