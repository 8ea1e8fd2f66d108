//! The world around a filter: other users, other programs, limits, mounts, and processes that end
//! without a close.

mod anothers_kept_log;
mod environment;
#[cfg(all(target_os = "linux", not(ebbtide_portable)))]
mod image;
mod killed_lives;
mod machines;
mod replaced;
#[cfg(all(target_os = "linux", not(ebbtide_portable)))]
mod thin_disk;
