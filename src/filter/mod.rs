//! The handle that users hold, and everything it does.
//!
//! `handle`, `abilities` and `call` are the public face, `paths` the ways to it by directory,
//! `spec` what a user asks for, `request` and `entry` what is asked of an operation and of many.
//! Behind it `engine` holds the parts together, `hold` takes stripes and repairs what the dead
//! left, `open` creates, opens and closes, `closing` waits for what is under way, `operate`
//! inserts, `clear` forgets all keys, `query` asks, `infer` asks how sure, `frequencies` takes
//! priors from a filter that counts, `commit` makes durable, `checkpoint` writes snapshots and
//! removes old log, `space` continues where the disk is full, `duties` is the background work of a
//! filter and `background` the threads of the process that do it, `time` is the filter's time,
//! `stat` counts and hashes, `backup` copies. `reader` is the handle of those
//! who may not write, `inspect` looks at a filter's files. This is the only floor that calls the
//! clock.

pub mod abilities;
mod background;
pub mod backup;
pub mod call;
pub mod checkpoint;
pub mod clear;
pub mod closing;
mod commit;
pub mod duties;
pub mod engine;
pub mod entry;
pub mod frequencies;
pub mod handle;
pub mod hold;
pub mod infer;
#[cfg(not(loom))]
pub mod inspect;
pub mod open;
pub mod operate;
#[cfg(not(loom))]
pub mod paths;
pub mod query;
#[cfg(not(loom))]
pub mod reader;
pub mod request;
pub mod space;
pub mod spec;
pub mod stat;
pub mod time;
