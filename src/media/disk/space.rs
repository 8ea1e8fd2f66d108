//! Space of files: how it is taken and given back.

use crate::platform::system;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Space is allocated in pieces of this many bytes. On some systems an allocation that a signal
/// interrupts is undone and must be repeated, so a long one may never finish.
pub(super) const PIECE: u64 = 1 << 20;

/// Returns the unit for which the kernel needs space when a word is stored through a mapping. If
/// the file system's blocks are smaller, all blocks of a page must be allocated, or the store
/// causes a signal when the disk is full.
pub(super) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns whether this is more than the file system has for this process: some of its space is for
/// root. To find that out piece by piece would
/// leave other programs without space in the meantime.
pub(super) fn is_beyond_space(file: impl AsFd, bytes: u64) -> bool {
    // A file system without a limit says 0 blocks.
    rustix::fs::fstatvfs(file).is_ok_and(|found| {
        let free = if geteuid().is_root() { found.f_bfree } else { found.f_bavail };
        found.f_blocks > 0 && bytes > free.saturating_mul(found.f_frsize)
    })
}

/// Frees the space of bytes of a file, which are whole pages. Where the file system cannot do that,
/// the file keeps it.
pub(super) fn free(file: &File, bytes: Range<u64>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    match system::free(file, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        done => Ok(done?),
    }
}

/// Allocates space for bytes of a file.
pub(super) fn allocate(file: &File, bytes: Range<u64>) -> rustix::io::Result<()> {
    let mut at = bytes.start;
    while at < bytes.end {
        let piece = PIECE.min(bytes.end - at);
        match system::allocate(file, at..at + piece) {
            Err(Errno::INTR) => {}
            done => {
                done?;
                at += piece;
            }
        }
    }
    Ok(())
}

/// Allocates by writing, if the file system supports no other way.
pub(super) fn write_zeros(file: &File, bytes: Range<u64>) -> io::Result<()> {
    const CHUNK: u64 = 1 << 20;
    let mut offset = bytes.start;
    let zeros = vec![0; CHUNK.min(bytes.end.saturating_sub(offset)) as usize];
    while offset < bytes.end {
        let length = CHUNK.min(bytes.end - offset);
        file.write_all_at(&zeros[..length as usize], offset)?;
        offset += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_allocates_zeros_are_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = File::create_new(directory.path().join("zeros")).expect("a new file");
        write_zeros(&file, 0..(1 << 20) + 5).expect("space for a megabyte");
        assert_eq!(file.metadata().expect("an open file").len(), (1 << 20) + 5);
    }
}
