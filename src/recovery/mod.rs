//! From files to state, before a handle exists.
//!
//! Recovery takes the newest valid snapshot, then every record of the log from its start, in the
//! order of LSNs, until the log ends.
//!
//! - `rebuild` builds an image: `listing` lists the files, `base` chooses the snapshot to begin
//!   from, `log_reader` reads the log across timelines and distinguishes its end from damage,
//!   `make_durable` syncs it, `replay` takes its records, and `parallel` applies them on all
//!   processors.
//! - `known_extent` is what the image says of the log, `batches` decides which batches are
//!   complete, `bare_events` which events of older formats have happened.
//! - `repair_stripe` completes one stripe of a shared image whose owner died.
//! - `removal` removes files so that they cannot reappear, `free_log` frees the space of log that
//!   no timeline needs, `snapshot_on_full_disk` makes room where no image fits.
//!
//! Only `make_durable`, `free_log`, `snapshot_on_full_disk`, `removal` and `repair_stripe` change
//! files that hold state; `rebuild` makes the new image.

pub mod bare_events;
pub mod base;
pub mod batches;
pub mod free_log;
pub mod known_extent;
pub mod listing;
pub mod log_reader;
pub mod make_durable;
mod parallel;
pub mod rebuild;
pub mod removal;
pub mod repair_stripe;
pub mod replay;
pub mod snapshot_on_full_disk;

pub use known_extent::KnownExtent;
pub use listing::Listing;
pub use rebuild::{Recovered, rebuild, rebuild_in_memory};
