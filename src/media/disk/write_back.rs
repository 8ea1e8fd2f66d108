//! What the system reports about the write-back of a file's stores.
//!
//! If the write-back of a page fails, its stores are lost: the page counts as clean, and when
//! memory is short the system drops it and reads the old content again. The failure belongs to the
//! file. It is reported once to each open file description that existed before, and to a later one
//! only if nobody has received it yet.

use rustix::fd::AsFd;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Behind the end of every file, so that no write-back in progress is waited for: a page that is
/// being written back is not dropped, and its failure is noted before it counts as clean.
const BEHIND: i64 = 1 << 60;

/// Fails if a write-back has failed since this description was opened, and it has not received
/// that. Starts no write.
pub(super) fn check(file: &File) -> io::Result<()> {
    sync_range(file, (BEHIND, 1), libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

/// Begins to write these bytes to the disk, and waits for that if `waits`.
pub(super) fn write_out(file: &File, bytes: Range<u64>, waits: bool) -> io::Result<()> {
    let begin = libc::SYNC_FILE_RANGE_WRITE;
    let waiting = libc::SYNC_FILE_RANGE_WAIT_BEFORE | begin | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let range = (bytes.start as i64, (bytes.end - bytes.start) as i64);
    sync_range(file, range, if waits { waiting } else { begin })
}

fn sync_range(file: &File, (start, length): (i64, i64), flags: u32) -> io::Result<()> {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as the file is borrowed, and the call reads no
    // memory of this process.
    #[expect(unsafe_code, reason = "`rustix` does not have the call")]
    let done = unsafe { libc::sync_file_range(descriptor, start, length, flags) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // The system does not have the call, or a filter of system calls refuses it.
        Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::ESPIPE) => Ok(()),
        _ => Err(error),
    }
}
