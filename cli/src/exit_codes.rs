//! The exit codes besides 0, for success, and those of commands that `run` starts. A signal that
//! ends the command does so itself: shells report 128 and its number.

/// The answer is "no".
pub const NO: u8 = 1;

/// A usage or environment error, reported in one sentence on standard error.
pub const ERROR: u8 = 2;

/// A shipper was fenced: it must not be started again as it is.
#[cfg(feature = "ship")]
pub const FENCED: u8 = 3;

/// Somebody else does the work of `run`: `EX_TEMPFAIL`.
pub const IN_PROGRESS: u8 = 75;
