//! Snapshots: checksummed files of blocks, from which replay starts.
//!
//! A snapshot is a page with a checked header, followed by frames: the state block, positions,
//! claims, the sums of each stripe, the blocks of each bank. It contains the LSN before its first
//! copy (`start`) and the one after its last (`end`). Replay begins at `start`, and a log that does
//! not reach `end` is damaged. A snapshot does not depend on kinds.
//!
//! `format` is the file's format, `frame_writer` and `frame_reader` are its frames one after the
//! other, `save` copies an image into a snapshot, `load` loads it again.

pub mod format;
pub mod frame_reader;
pub mod frame_writer;
pub mod load;
pub mod save;

#[cfg(fuzzing)]
pub use format::seal_frames;
pub use format::{ChecksumSeed, Content, Frame, SnapshotHeader};
pub use frame_reader::SnapshotReader;
