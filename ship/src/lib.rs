//! Filters of [ebbtide](https://docs.rs/ebbtide) in object storage.
//!
//! Where to look: `link` has the bytes of an object, `chain` reads the chain of objects. `shipper`
//! puts links at its end (the fence), as `ship_options` say; `beginning` begins a timeline,
//! `continuation` says who may continue one; `snapshot` uploads and downloads snapshots,
//! `upload_task` does so beside the log, `retention` removes, `worker` is the thread,
//! `home_process` its process, `status` and `totals` what it has done. `assemble` makes a filter of
//! the objects, `fetch` a directory (`fetch_directory` until it is whole, `fetch_moment` as of a
//! moment), `follow` a copy in memory, `local_copy` one of the objects, `promote` makes one the
//! writer, `verify` proves it. In a directory, `ship_file` and `shipped_file` are the files of a
//! shipper, and `follow_file` that of a follower.
//!
//! What they use: `store` has the objects of a filter by name (`store_directory` where they are
//! files), `client` connects to it, `explain`
//! and `error` say what went wrong there; `download` fetches a snapshot in parts, `log` reads the
//! filter's log, `files` are those of this machine, `place` is what a URL names, `moment` and `pace`
//! are about time.

mod assemble;
mod beginning;
mod chain;
mod client;
mod continuation;
mod download;
mod error;
mod explain;
mod fetch;
mod fetch_directory;
mod fetch_moment;
mod files;
mod follow;
mod follow_file;
mod home_process;
mod link;
mod local_copy;
mod log;
mod moment;
mod pace;
mod place;
mod promote;
mod retention;
mod ship_file;
mod ship_options;
mod shipped_file;
mod shipper;
mod snapshot;
mod status;
mod store;
mod store_directory;
mod totals;
mod upload_task;
mod verify;
mod worker;

pub use assemble::{Fetched, assemble, is_empty};
pub use error::{Error, Result};
pub use explain::explain;
pub use fetch::{fetch, fetch_if_empty};
pub use follow::{Answers, Follower};
pub use pace::Pace;
pub use promote::{following, promote};
pub use ship_options::ShipOptions;
pub use shipped_file::Standing;
pub use shipper::Shipper;
pub use status::Status;
pub use store::Store;
pub use totals::Shipped;
pub use verify::{Verified, verify};
pub use worker::{EVERY, Worker};
