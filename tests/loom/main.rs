//! Models of the protocols over shared memory. Loom runs them through every interleaving, or, where
//! a model sets `preemption_bound`, through every one with at most two or three preemptions: all
//! models of seven files, and some of `copies`, `slot` and `stripe_lock`.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom
//! ```
//!
//! A model is valid only if it finds a planted bug, so each has a twin that must fail. All actors
//! are spawned threads: with an actor on the main thread loom 0.7 passes vacuously.
#![cfg(loom)]

mod altered;
mod batch;
mod claims;
mod cleared;
mod closed_bank;
mod copies;
mod event_times;
mod growth;
mod seqlock;
mod single_flight;
mod slot;
mod stripe_lock;
mod ticket_list;
mod undo;
