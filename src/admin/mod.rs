//! Administration of filters: verification, backups, salvage.
//!
//! `inspect` works on a filter's files without a handle, as `look` finds them, `dump_log` reads its
//! log, `open_handles` finds the processes that have a filter open, `backup` copies an open filter,
//! `second` has the second copies of a backup's files, `salvage` recovers what a damaged filter
//! still proves, `restore_at` what a filter was at a moment of its past, `parts` takes a filter
//! apart for a copy elsewhere, and makes one of parts.

pub mod backup;
#[cfg(not(loom))]
pub mod dump_log;
#[cfg(not(loom))]
pub mod inspect;
#[cfg(not(loom))]
pub mod look;
#[cfg(not(loom))]
pub mod open_handles;
#[cfg(not(loom))]
pub mod parts;
#[cfg(not(loom))]
pub mod restore_at;
pub mod salvage;
mod second;
