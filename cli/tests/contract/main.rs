//! The contract of the `ebbtide` command, tested on the binary.

#![forbid(unsafe_code)]

mod altered;
mod answers;
mod asking;
mod begun_alike;
mod beside;
mod claims;
mod compressed;
mod copies;
mod counts;
mod dedup;
mod directories;
mod distinct;
mod event_time;
mod every_kind;
mod exact;
mod exactly_once;
mod examples;
mod explain;
mod filters;
mod full_tmpfs;
mod gone;
mod hashes;
mod hidden;
mod history;
mod injected;
mod interruptions;
mod key_parts;
mod lookalikes;
mod looks;
mod messages;
mod nonblocking;
mod operators;
mod outputs;
mod own_output;
mod past;
mod places;
mod posteriors;
mod read_only;
mod readme;
mod real_streams;
mod recipes;
mod remade;
mod rotations;
mod salvage;
#[cfg(feature = "ship")]
mod shipping;
mod stops;
mod support;
mod table_walk;
mod time_field;
mod tour;
mod weights;
