//! Filters of [ebbtide](https://docs.rs/ebbtide) in object storage.
//!
//! Where to look: `link` has the bytes of an object, `chain` reads the chain of objects, `ship`
//! puts links at its end (the fence), `beginning` begins a timeline, `snapshot` moves snapshots,
//! `upload` does so beside the log, `retention` removes, `fetch` makes a directory of it, `follow` a
//! copy in memory, `copy` one of the objects, `promote` makes one the writer, `verify` proves it,
//! `worker` is the thread, `standing` how far it is, `shipped` what it has put.

mod beginning;
mod chain;
mod client;
mod copy;
mod download;
mod error;
mod explain;
mod fetch;
mod files;
mod follow;
mod link;
mod log;
mod mark;
mod moment;
mod note;
mod pace;
mod promote;
mod retention;
mod ship;
mod shipped;
mod shown;
mod snapshot;
mod standing;
mod store;
mod target;
mod upload;
mod verify;
mod worker;

pub use error::{Error, Result};
pub use explain::explain;
pub use fetch::{Fetched, assemble, fetch, fetch_if_empty, is_empty};
pub use follow::{Answers, Follower};
pub use pace::Pace;
pub use promote::{following, promote};
pub use ship::{ShipOptions, Shipper};
pub use shipped::Shipped;
pub use standing::Standing;
pub use store::Store;
pub use verify::{Verified, verify};
pub use worker::{EVERY, Status, Worker};
