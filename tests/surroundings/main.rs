//! The world around a filter: other users, other programs, limits, mounts, and processes that end
//! without a close.

mod environment;
mod image;
mod killed_lives;
mod machines;
mod replaced;
mod thin_disk;
