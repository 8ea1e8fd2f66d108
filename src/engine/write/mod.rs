//! Writes of one operation, and what all writes use.
//!
//! `single` inserts and removes one key by one record; `events_first` does so with the events that
//! must come first; `decide_and_apply` is what both decide on, and how a record is applied.
//! `claims` gives keys to workers, `clear` removes all keys, `stripe_0_records` appends heartbeats,
//! clears and records of claims. `writer` is what all of them use, `request` an operation and its
//! outcome, and `full_disk_while_writing` frees space for all of them on a full disk.

pub mod claims;
pub mod clear;
pub mod decide_and_apply;
pub mod events_first;
pub mod full_disk_while_writing;
pub mod request;
pub mod single;
pub mod stripe_0_records;
pub mod writer;
