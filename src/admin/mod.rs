//! Administration of filters: verification, backups, salvage.
//!
//! `inspect` names all that works on a filter's files without a handle. They are as `look` finds
//! them: `verify` checks them, `dump_log` reads the log, `open_handles` finds the processes that
//! have a filter open. `planned_cost` is for a filter that is not there yet. `backup` copies an
//! open filter, `second_copies` has those of a backup's files, `restore` makes a filter of a
//! backup, `restore_at` one that is what a filter was at a moment of its past, `salvage` one of
//! what `provable_state` finds in damaged files. `parts` takes a filter apart for a copy elsewhere,
//! and makes one of parts.

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
pub mod planned_cost;
pub mod provable_state;
#[cfg(not(loom))]
pub mod restore;
#[cfg(not(loom))]
pub mod restore_at;
#[cfg(not(loom))]
pub mod salvage;
mod second_copies;
#[cfg(not(loom))]
pub mod verify;
