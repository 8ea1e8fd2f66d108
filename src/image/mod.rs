//! The shared-memory image: the mapped working memory of a filter.
//!
//! `live_file` is the file `live` (control words, sessions, stripe table, state block), `identity`
//! its header and layout, `previous_image` what an earlier handle left, `unmapped_sessions` what
//! its table of sessions says to those who do not map it, `rare_space` the space of what few
//! filters use, `words` its control words with their orderings, `block_header` the header of a
//! block, `stripe_table` an entry of the table of stripes, `counters` the sums for steps,
//! `state_block` the filter-wide state, `positions` how far sources were read, `claims` which keys
//! are being worked on, `clock_offset` how far the filter's time is ahead of the wall clock. `bank`
//! is a set of blocks, `bank_files` where the banks lie: in `named_banks`, or in the file without a
//! name that `bank_file_holders` have open; `mapped_banks` are those that a process has mapped,
//! `block_growth` gets blocks their space. `seqlock` is the protocol by which blocks are read
//! without a lock, `write_back_check` asks whether the system could write the image back,
//! `mapped_image` is all of it together, `apply_record` applies a record to it. The first opener
//! rebuilds the filter's state from snapshot and log. From the image it takes only how far the log
//! reached, and the times. The image knows kinds only as far as the state block lists the banks. It
//! takes no locks that other processes see.

pub mod apply_record;
pub mod bank;
pub mod bank_file_holders;
pub mod bank_files;
pub mod block_growth;
mod block_header;
pub mod claims;
pub mod clock_offset;
pub mod counters;
pub mod identity;
pub mod live_file;
pub mod mapped_banks;
pub mod mapped_image;
pub mod named_banks;
pub mod positions;
pub mod previous_image;
pub mod rare_space;
pub mod seqlock;
pub mod state_block;
pub mod stripe_table;
pub mod unmapped_sessions;
pub mod words;
pub mod write_back_check;

pub use bank::{Bank, BankForm, BankSet};
pub use live_file::Control;
pub use mapped_image::Image;
pub use stripe_table::Stripe;
