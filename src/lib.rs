//! A persistent embedded storage engine for forgetting filters.
//!
//! Has this key been seen in the last N minutes, or among the last N items? At least how long ago?
//! The answers take 18 to 34 bits per key, at memory speed, and the state outlives the process.
//! Filters live in memory-mapped files with a write-ahead log and checkpoints, so a restart or a
//! crash resumes the decayed state exactly.
//!
//! ```
//! use ebbtide::{Checked, Filter, Fingerprint, Options};
//! use std::time::Duration;
//! # let parent = tempfile::tempdir()?;
//! # let dir = parent.path().join("seen");
//!
//! let seen = Filter::open_or_create(
//!     &dir,
//!     Fingerprint::window(Duration::from_secs(600)).fpr(0.001),
//!     Options::new(),
//! )?;
//! if seen.check_and_insert("message 4711")? == Checked::New {
//!     println!("not seen in the last ten minutes");
//! }
//! # seen.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//!
//! [`Filter`] is the handle, [`Options`] its settings. [`inspect`] examines filters by their files.
//! [`kinds`] holds the algorithms and their theory, [`machine`] has filters in memory without
//! files. [`media`] abstracts where files live: the disk or something else.
//!
//! A filter's type, or its name with [`Any`], selects its kind:
//!
//! - Windows: [`Fingerprint`], in the least memory; [`AgePartitioned`] and [`TimeLimited`], in
//!   inserts and in time; [`Timing`] and [`BlockTiming`], with more exact ages;
//!   [`DoubleBuffering`] and [`TwoBuffer`], simple baselines; [`Bloom`], which never forgets.
//! - Counts: [`Counting`], [`Spectral`] and [`DynamicCount`], from which keys can be removed;
//!   [`Decaying`] and [`DecayingOptimized`], in which old inserts count less and less.
//! - Random decay: [`Stable`], [`Importance2c`], [`ImportanceMc`] and [`ImportanceH`] forget at
//!   random, at a steady error rate on an endless stream.
//!
//! Methods block; `docs/async.md` in the repository lists which of them wait for the disk, and how
//! to call them from async code.
//!
//! # Features
//!
//! `serde` (off by default): statistics, answers and parameters can be serialised, and all but
//! [`Stat`] deserialised. `metrics` and `tracing` (off by default): durations, counts, spans and
//! events of slow or failed work for a recorder or a subscriber, see [`monitoring`]. Without a
//! feature the crate does not depend on the crate of that name.
//!
//! # Debug builds
//!
//! Without optimisation, checksums and copies are slow. An insert may wait a hundred times longer
//! for a checkpoint than in a release build (a filter of 335 MiB: 20 s instead of 0.2 s). Add this
//! to the `Cargo.toml` of a project that runs debug builds:
//!
//! ```toml
//! [profile.dev.package.ebbtide]
//! opt-level = 3
//! [profile.dev.package.ebbtide-core]
//! opt-level = 3
//! ```
//!
//! # Guarantees
//!
//! - No false negatives within the window, from any number of threads, in all kinds except those
//!   that forget at random.
//! - State is a pure function of the parameters and the log. After a crash of the process it
//!   contains every operation that had returned, exactly once; after a power cut, every one that
//!   its [`Durability`] promises.
//! - Damaged files yield an [`Error`] with the file, the offset, the expected and the found
//!   content. They are never repaired by guessing, and never cause a panic.

#![cfg_attr(loom, expect(dead_code, reason = "loom's atomics cannot be mapped: there is no disk"))]

// For the tools of `testkit/` that unit tests include by their path.
#[cfg(test)]
extern crate self as ebbtide;

mod admin;
mod api;
mod archive;
mod clock;
mod engine;
mod error;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod locks;
pub mod media;
mod meta;
mod options;
mod platform;
mod primitives;
mod recovery;
#[cfg(feature = "serde")]
mod serial;
mod snapshot;
mod telemetry;
mod wal;

/// The filter algorithms and their theory.
pub mod kinds {
    #[doc(inline)]
    pub use ebbtide_core::kind::*;
    #[doc(inline)]
    pub use ebbtide_core::kinds::*;
    #[doc(inline)]
    pub use ebbtide_core::{Error, Result, state};
}

/// Numbers with units as people write them; the text of specs, options and the command line.
pub mod units {
    pub use crate::options::text::parse_durability;
    #[doc(inline)]
    pub use ebbtide_core::units::*;
}

pub use api::claim::{Claim, Lease, OpenClaim};
pub use api::config::*;
pub use api::count_prior::Frequencies;
pub use api::entry::Entry;
#[cfg(not(loom))]
pub use api::explain::{ExaminedLog, Explained, Explanation, KeyBlock, KeyRecord};
pub use api::handle::{Filter, Handle};
pub use api::ticket::Ticket;
pub use api::{batch::Batch, call::Call};
#[cfg(not(loom))]
pub use api::{reader::Reader, standby::Standby};
pub use clock::{Clock, ManualClock, Timestamp};
#[cfg(not(loom))]
#[doc(inline)]
pub use ebbtide_core::machine;
#[doc(inline)]
pub use ebbtide_core::{
    Age, AgePosterior, Estimate, Form, KeyHash, Parameters, Penalty, Prior, Within, inference,
    kind::{Cardinality, GenerationFill},
};
pub use engine::read::details::{BlockFill, Details, HeldStripe};
pub use engine::read::stats::{Digest, Stat};
pub use engine::write::request::{Admission, Checked, Since};
pub use error::{Code, Error, Result};
pub use media::{BankPlace, ImagePlace};
pub use options::{Downtime, Durability, Keep, Options};
#[cfg(not(loom))]
pub use {admin::inspect, api::history};

/// Figures of filters as metrics, and reports of slow work.
///
/// [`metrics`](monitoring::metrics) lists the figures of a filter for any exporter. With the
/// feature `metrics` the library also passes durations and counts to the recorder of the `metrics`
/// facade, with the feature `tracing` spans and events to a subscriber: see `docs/operating.md` in
/// the repository.
///
/// # What a recorder and a subscriber must not do
///
/// They run inside the operation that they measure, at times while it holds a stripe. They must not
/// call a filter, wait for a thread that may call one, or panic. A forked child of a process that
/// has reported is silent, because another thread may have held a lock of the recorder at the fork.
#[cfg_attr(
    feature = "telemetry",
    doc = "[`report_in_child`](monitoring::report_in_child) ends that silence."
)]
pub mod monitoring {
    pub use crate::api::metrics::*;
    #[cfg(feature = "telemetry")]
    pub use crate::telemetry::report_in_child;
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

/// Primitives whose every step is chosen by a schedule of `tests/schedules/`.
#[cfg(shuttle)]
#[doc(hidden)]
pub use primitives::scheduled;

/// The protocols over shared memory, for the models in `tests/loom/`.
#[cfg(loom)]
#[doc(hidden)]
pub mod models {
    pub use crate::engine::log::ticket_list;
    pub use crate::image::{claims, seqlock, stripe_table, words};
    pub use crate::locks::{single_flight, stripe_lock};
    pub mod primitives {
        pub use crate::primitives::{AtomicU64, Ordering, Watermark};
    }
    pub use ebbtide_core::kind::Totals;
    pub mod undo {
        pub use ebbtide_core::block::undo_log::{Begun, Undo, UndoRoom};
    }
    pub use crate::recovery::batches;
    pub use crate::wal::{log_record, slot};
}
