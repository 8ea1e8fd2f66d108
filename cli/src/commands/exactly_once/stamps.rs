//! The times that the system gives to files.

use rustix::fd::BorrowedFd;
use rustix::time::{ClockId, clock_gettime};
use std::fs::Metadata;
use std::path::Path;

/// The clock that stamps files.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::RealtimeCoarse;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Realtime;

/// Returns the time of the clock that stamps files, in nanoseconds.
pub fn now() -> u64 {
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns when the file at this path was created, or that of the descriptor if it is empty, in
/// nanoseconds. 0 if that is another file than the one with this metadata, or its file system does
/// not know it.
#[cfg(target_os = "linux")]
pub fn born(at: BorrowedFd<'_>, path: &Path, metadata: &Metadata) -> u64 {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    use std::os::unix::fs::MetadataExt;
    let wanted = StatxFlags::BTIME | StatxFlags::INO;
    let Ok(found) = statx(at, path, AtFlags::EMPTY_PATH, wanted) else { return 0 };
    let known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    if !known || found.stx_ino != metadata.ino() {
        return 0;
    }
    let seconds = u64::try_from(found.stx_btime.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(found.stx_btime.tv_nsec.into())
}

/// Returns when the file with this metadata was created, in nanoseconds; 0 if its file system does
/// not know it.
#[cfg(not(target_os = "linux"))]
pub fn born(_at: BorrowedFd<'_>, _path: &Path, metadata: &Metadata) -> u64 {
    let born = metadata.created().ok();
    let since = born.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
