//! Filters of [ebbtide](https://docs.rs/ebbtide) in object storage.
//!
//! Where to look: `link` has the bytes of an object, `chain` reads the chain of objects, `ship`
//! puts links at its end (the fence), `snapshot` moves snapshots, `retention` removes, `fetch`
//! makes a directory of it, `follow` a copy in memory, `verify` proves it, `worker` is the thread.

mod chain;
mod error;
mod fetch;
mod follow;
mod link;
mod note;
mod retention;
mod ship;
mod snapshot;
mod store;
mod verify;
mod worker;

pub use error::{Error, Result};
pub use fetch::{Fetched, assemble, fetch, fetch_if_empty, is_empty};
pub use follow::{Answers, Follower, promote};
pub use ship::{ShipOptions, Shipped, Shipper};
pub use store::{Store, explain};
pub use verify::{Verified, verify};
pub use worker::{EVERY, Status, Worker};
