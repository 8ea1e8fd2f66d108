//! Checkpoints: `checkpoint` writes a snapshot, `due` says when, `reclaim_disk` removes what it
//! makes superfluous, and `backpressure` makes writers wait for one.

pub mod backpressure;
pub mod checkpoint;
pub mod due;
pub mod reclaim_disk;
