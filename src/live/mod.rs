//! The live image: the shared, mapped working memory of a filter.
//!
//! `header` is the file `live` (counters, slots, stripe table, block 0), `stripe` an entry of its table, `tally` the sums for steps, `block0` the
//! filter-wide state, `bank` the files of blocks, `version` the protocol by which blocks are read without a lock, `image` all of it together. The image is never
//! trusted by whoever opens a filter first; it is rebuilt from snapshot and log. It knows kinds only as far
//! as block 0 lists the banks, and it takes no locks.

pub mod bank;
pub mod block0;
pub mod header;
pub mod image;
mod lead;
pub mod stripe;
pub mod tally;
pub mod version;

pub use bank::{Bank, BankForm, BankSet};
pub use header::LiveHeader;
pub use image::Image;
pub use stripe::Stripe;
