//! Shared mappings of files or parts of them, and private copies of files with holes.
//!
//! On tmpfs a page of a hole gets its space when it is read through a mapping, and the process gets
//! a signal if there is none. Calls that read (`pread`) return zeros instead. A file that is only
//! looked at is therefore copied there, without its holes.

use crate::media::{Access, Mapping};
use crate::platform::fork::Guard;
use crate::platform::system;
use crate::primitives::AtomicU64;
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The unit in which pages are released, on all systems: 128 records. If pages are larger, each one
/// that the range touches is released: `memmap2` rounds the start down, the kernel the end up.
const PAGE_BYTES: usize = 4096;

/// A shared mapping of a whole file. In a forked child it does not exist, and its addresses may be
/// reused: there it must not be used, and is not.
#[derive(Debug)]
pub(super) struct DiskMapping {
    map: ManuallyDrop<MmapRaw>,
    words: usize,
    /// Whether it maps the file, and is no copy of it.
    is_shared: bool,
    guard: Guard,
}

impl DiskMapping {
    /// Maps the first `bytes` bytes of a file.
    pub(super) fn new(file: &File, bytes: u64, access: Access) -> io::Result<Self> {
        Self::of_part(file, 0, bytes, access)
    }

    /// Maps `bytes` bytes from `start` on, which is the start of a page.
    pub(super) fn of_part(file: &File, start: u64, bytes: u64, access: Access) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(start).len(bytes as usize);
        let map = match access {
            Access::Write => options.map_raw(file)?,
            Access::Read => options.map_raw_read_only(file)?,
        };
        Self::over(map, bytes, true)
    }

    /// Asks for huge pages, before any page is present. A hint: failures are ignored.
    pub(super) fn wish_for_huge_pages(&self) {
        if self.words > 0 && !self.guard.is_foreign() {
            system::wish_for_huge_pages(&self.map);
        }
    }

    /// Makes the pages of these bytes present and writable.
    ///
    /// # Errors
    /// `InvalidInput` if the system does not have the call, `StorageFull` or `OutOfMemory`.
    pub(super) fn make_present(&self, bytes: Range<u64>) -> io::Result<()> {
        system::make_present(&self.map, bytes.start as usize..bytes.end as usize)
    }

    /// Copies the first `bytes` bytes, which are all, of a file. Its holes take no memory.
    pub(super) fn copy(file: &File, bytes: u64) -> io::Result<Self> {
        // An empty mapping is impossible.
        let mut memory = MmapOptions::new().len((bytes as usize).max(1)).map_anon()?;
        let mut at = 0;
        while let Some(data) = next_data(file, at, bytes)? {
            let part = memory.get_mut(data.start as usize..data.end as usize);
            let part = part.ok_or(io::ErrorKind::UnexpectedEof)?;
            file.read_exact_at(part, data.start)?;
            at = data.end;
        }
        Self::over(MmapRaw::from(memory), bytes, false)
    }

    fn over(map: MmapRaw, bytes: u64, is_shared: bool) -> io::Result<Self> {
        // A forked child must not use the filter; it should fault, not corrupt.
        if bytes > 0 {
            system::keep_from_children(&map)?;
        }
        let (map, words) = (ManuallyDrop::new(map), bytes as usize / 8);
        Ok(Self { map, words, is_shared, guard: Guard::new() })
    }
}

/// Fails if this process has no addresses left for a mapping of this many bytes.
pub(super) fn check(bytes: u64) -> io::Result<()> {
    MmapOptions::new().len((bytes as usize).max(1)).no_reserve_swap().map_anon().map(drop)
}

/// Returns where the last bytes of a file from `from` on, and below `end`, end that are no hole.
pub(super) fn data_end(file: &File, from: u64, end: u64) -> io::Result<u64> {
    let mut last = from.min(end);
    while let Some(data) = next_data(file, last, end)? {
        last = data.end;
    }
    Ok(last)
}

/// Returns the next bytes of a file from `at` on, and below `end`, that are no hole.
fn next_data(file: &File, at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    if at >= end {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        // There are only holes.
        Err(Errno::NXIO) => return Ok(None),
        // The system does not distinguish them.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(at..end)),
        start => start?,
    };
    let stop = seek(file, SeekFrom::Hole(start))?.clamp(start, end);
    Ok((start < stop).then_some(start..stop))
}

impl Drop for DiskMapping {
    #[expect(unsafe_code, reason = "in a child the mapping is no longer ours to unmap")]
    fn drop(&mut self) {
        if !self.guard.is_foreign() {
            // SAFETY: dropped only here, and the mapping is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

// SAFETY: the words lie in `map`, which neither moves nor is unmapped before it is dropped.
#[expect(unsafe_code, reason = "the trait asks for a promise")]
unsafe impl Mapping for DiskMapping {
    #[expect(unsafe_code, reason = "a mapping is seen as atomic words here and nowhere else")]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts at a page boundary, so words are aligned, spans at least
        // `words` of them, and lives as long as `self`, which the slice borrows. Every bit pattern
        // is a valid AtomicU64. No reference to its memory of any other type exists in this
        // process, and other processes write whole words. If mapped for reading only, loads of
        // eight bytes are still plain loads on 64-bit machines, and stores do not happen by the
        // contract of `Access::Read`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.words) }
    }

    fn sync(&self, words: usize) -> io::Result<()> {
        if self.guard.is_foreign() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // On Linux `msync(MS_SYNC)` has the effect of `fdatasync` on these pages, through the open
        // file description that the mapping keeps, so that failures since the file was opened are
        // reported here, too.
        self.map.flush_range(0, words.min(self.words) * 8)
    }

    fn write_back(&self, words: usize) -> io::Result<()> {
        if system::SYNCS_THROUGH_MAPPINGS || self.guard.is_foreign() {
            return Ok(());
        }
        // macOS: `F_FULLFSYNC` writes what was written to the file. Nothing documents that it looks
        // for pages that stores to a mapping have changed.
        self.map.flush_range(0, words.min(self.words) * 8)
    }

    fn check_written(&self) -> io::Result<()> {
        if !self.is_shared || self.words == 0 || self.guard.is_foreign() {
            return Ok(());
        }
        // Through the open file description that the mapping keeps, which receives the failure
        // of any page. One page is written, because this call cannot write none.
        self.map.flush_range(0, PAGE_BYTES.min(self.words * 8))
    }

    fn populate(&self, words: Range<usize>) {
        let end = words.end.min(self.words);
        if words.start < end && !self.guard.is_foreign() {
            // Rounded outward to whole pages: the start by memmap2, the end by the kernel.
            let _ = system::make_present(&self.map, words.start * 8..end * 8);
        }
    }

    fn advise_random(&self) {
        if self.words > 0 && !self.guard.is_foreign() {
            let _ = self.map.advise(Advice::Random);
        }
    }

    #[expect(unsafe_code, reason = "the advice would lose data in a private mapping")]
    fn release(&self, words: Range<usize>) {
        let start = (words.start * 8).next_multiple_of(PAGE_BYTES);
        let end = words.end.min(self.words) * 8 / PAGE_BYTES * PAGE_BYTES;
        if start < end && self.is_shared && !self.guard.is_foreign() {
            // SAFETY: the mapping is shared and of a file: its pages are only dropped from the page
            // table, stores to them are in the page cache, and later accesses find them there.
            let _ = unsafe {
                self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }
}
