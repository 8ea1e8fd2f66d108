//! The disk: a directory of a local Linux file system.
//!
//! Owns how files are opened (private, never through links), allocated, mapped and locked, and which file
//! systems are refused. Every store through a mapping meets allocated space, so that no full disk becomes
//! a signal. Files must not be truncated from outside while mapped, for that becomes one; nothing here ever does it, and
//! `tests/surroundings.rs` says what is left if somebody does.

use super::{Access, BootIdSource, ByteLocks, Mapping, Media, MediaFile, boot};
use crate::fork::{Guard, Unshared};
use crate::planted::Mistake;
use crate::sync::AtomicU64;
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::{
    CWD, FallocateFlags, IFlags, Mode, OFlags, RenameFlags, fallocate, ioctl_getflags,
    ioctl_setflags, renameat_with,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const _: () = assert!(cfg!(target_endian = "little"), "mapped words are little-endian on the disk");
const _: () = assert!(size_of::<usize>() == 8, "whole files are mapped");
const _: () = assert!(size_of::<AtomicU64>() == 8 && align_of::<AtomicU64>() == 8);

/// `statfs` type of btrfs, where files of random stores must not be copied on write.
const BTRFS: u64 = 0x9123_683E;

/// `statfs` type of overlayfs, whose device number may be another at each mount, though the files are the same.
const OVERLAYFS: u64 = 0x794C_7630;

/// File systems whose mappings or locks are not one and the same for everybody (`statfs` types).
const NOT_LOCAL: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFE53_4D42, "SMB2"),
    (0xFF53_4D42, "CIFS"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x786F_4256, "VirtualBox shared folders"),
    (0xBACB_ACBC, "VMware shared folders"),
];

/// A directory on a local file system.
#[derive(Debug, Clone)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// The directory at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Opens a regular file of the directory; whatever else bears the name is refused, unread.
    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // A pipe would hold up its opener without NONBLOCK; for regular files it means nothing.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match rustix::fs::open(self.path.join(name), flags, Mode::RUSR | Mode::WUSR) {
            Ok(descriptor) => File::from(descriptor),
            Err(Errno::LOOP) => return Err(not_a_file("a symbolic link")),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(not_a_file("a directory, pipe or device"));
        }
        Ok(file)
    }

    /// Gives a new file its length and the space of its first bytes; if that fails, its name must go again.
    fn lay_out(file: &File, bytes: u64, allocated: u64) -> io::Result<()> {
        if file_system(&rustix::fs::fstatfs(file)?) == BTRFS {
            // Must come before the first byte. Best effort: without it btrfs is slower, not wrong.
            if let Ok(flags) = ioctl_getflags(file) {
                let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
            }
        }
        let allocated = if Mistake::SpaceNotAllocated.is_planted() { 0 } else { allocated };
        if allocated < bytes {
            file.set_len(bytes)?;
        }
        let last = allocated.checked_next_multiple_of(page_bytes()).unwrap_or(bytes).min(bytes);
        match allocate(file, 0..last) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, bytes),
            allocated => Ok(allocated?),
        }
    }
}

/// What the kernel finds space for at once when something is stored through a mapping. Where the file system's blocks are
/// smaller, all blocks of a page must be there, or the store ends in a signal when the disk is full.
fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Gives bytes of a file their space.
fn allocate(file: &File, bytes: Range<u64>) -> rustix::io::Result<()> {
    let length = bytes.end.saturating_sub(bytes.start);
    if length == 0 {
        return Ok(());
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), bytes.start, length) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

impl Media for Disk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn make(&self) -> io::Result<()> {
        let absolute = std::path::absolute(&self.path)?;
        let missing: Vec<&Path> =
            absolute.ancestors().take_while(|place| !place.exists()).collect();
        let standing = missing.last().and_then(|lowest| lowest.parent()).unwrap_or(&absolute);
        refuse_if_not_local(standing)?;
        // Whoever may write the directory may put other files in the place of ours: nobody else may, whatever the umask.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&absolute)?;
        // A directory outlives a power cut only if the one that names it was synced.
        for place in missing.iter().rev() {
            if let Some(parent) = place.parent() {
                sync_directory(parent)?;
            }
        }
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // No file of ours has a name beyond ASCII.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        self.create_with_hole(name, bytes, bytes)
    }

    fn create_with_hole(
        &self,
        name: &str,
        bytes: u64,
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        let file = self.open_file(name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
        if let Err(error) = Self::lay_out(&file, bytes, allocated) {
            // The first error says what went wrong; a leftover is a file that nothing refers to.
            let _ = self.remove(name);
            return Err(error);
        }
        Ok(Box::new(DiskFile { file }))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        Ok(Box::new(DiskFile { file: self.open_file(name, flags)? }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path.join(from), self.path.join(to));
        match renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => link_new(&from, &to),
            renamed => Ok(renamed?),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        // Whoever opens a filter takes a lock first, so this also covers one that was moved here.
        refuse_if_not_local(&self.path)?;
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::CREATE | OFlags::RDWR,
        };
        let file = Unshared::open(|| self.open_file(name, flags))?;
        Ok(Box::new(DiskLocks { file, access }))
    }

    fn boot_id(&self) -> io::Result<u128> {
        boot::id()
    }

    fn boot_id_source(&self) -> BootIdSource {
        boot::source()
    }
}

fn not_a_file(found: &str) -> io::Error {
    let sentence =
        format!("expected a regular file, found {found}; remove it, it is none of the filter's");
    io::Error::new(io::ErrorKind::InvalidInput, sentence)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The type in a `statfs` answer. Some are 32-bit numbers with the top bit set, which an `i64` field may
/// hold sign-extended or not.
fn file_system(answer: &rustix::fs::StatFs) -> u64 {
    answer.f_type as u64 & 0xFFFF_FFFF
}

fn refuse_if_not_local(directory: &Path) -> io::Result<()> {
    accept(file_system(&rustix::fs::statfs(directory)?))
}

/// Accepts every file system that is not known to be shared with other machines or served by a process.
fn accept(found: u64) -> io::Result<()> {
    let Some((_, name)) = NOT_LOCAL.iter().find(|(number, _)| *number == found) else {
        return Ok(());
    };
    let sentence = format!(
        "it is on {name}; a filter needs a local file system such as ext4, XFS, btrfs or tmpfs"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, sentence))
}

/// Renames without replacing, where the system knows no such call; for a moment both names are there.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from).inspect_err(|_| {
        // The first error says what went wrong.
        let _ = fs::remove_file(to);
    })
}

/// Allocates by writing, where the file system knows no other way.
fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    const CHUNK: u64 = 1 << 20;
    let zeros = vec![0; CHUNK.min(bytes) as usize];
    let mut offset = 0;
    while offset < bytes {
        let length = CHUNK.min(bytes - offset);
        file.write_all_at(&zeros[..length as usize], offset)?;
        offset += length;
    }
    Ok(())
}

/// An open regular file.
#[derive(Debug)]
struct DiskFile {
    file: File,
}

impl MediaFile for DiskFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        // `st_blocks` counts units of 512 bytes whatever the file system's block.
        Ok(self.file.metadata()?.blocks() * 512)
    }

    fn identity(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    fn device(&self) -> io::Result<u64> {
        if file_system(&rustix::fs::fstatfs(&self.file)?) == OVERLAYFS {
            return Ok(0);
        }
        Ok(self.file.metadata()?.dev())
    }

    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        let page = page_bytes();
        let end = bytes.end.checked_next_multiple_of(page).unwrap_or(bytes.end);
        let end = end.min(self.bytes()?).max(bytes.end);
        match allocate(&self.file, bytes.start / page * page..end) {
            // Where it cannot be done the file was filled when it was made.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => Ok(done?),
        }
    }

    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        // The rest of a page may be somebody else's.
        let page = page_bytes();
        let start = bytes.start.next_multiple_of(page);
        let end = if bytes.end == self.bytes()? { bytes.end } else { bytes.end / page * page };
        let length = end.saturating_sub(start);
        if length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, start, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => Ok(done?),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, offset)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        if self.bytes()? > bytes { self.file.set_len(bytes) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        // `fdatasync`: of the inode it writes what finding the data takes, the length included. Retrying
        // after an interruption would be a second try, so there is none.
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn maps_with_sync(&self) -> bool {
        true
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        let bytes = self.bytes()?;
        if !bytes.is_multiple_of(8) {
            return Err(super::not_whole_words(bytes));
        }
        let mut options = MmapOptions::new();
        options.len(bytes as usize);
        let map = match access {
            Access::Read => options.map_raw_read_only(&self.file)?,
            Access::Write => options.map_raw(&self.file)?,
        };
        // A child made by fork has no business with a filter; it shall fault, not corrupt.
        if bytes > 0 {
            map.advise(Advice::DontFork)?;
        }
        let (map, words) = (ManuallyDrop::new(map), bytes as usize / 8);
        Ok(Box::new(DiskMapping { map, words, guard: Guard::new() }))
    }
}

/// The unit in which pages are released; a multiple of smaller pages, refused by systems with larger ones.
const PAGE_BYTES: usize = 4096;

/// A shared mapping of a whole file. In a child made by fork it is not there, and its place may be others': there
/// nothing may be done with it, nor is.
#[derive(Debug)]
struct DiskMapping {
    map: ManuallyDrop<MmapRaw>,
    words: usize,
    guard: Guard,
}

impl Drop for DiskMapping {
    #[expect(unsafe_code, reason = "in a child the mapping is no longer ours to unmap")]
    fn drop(&mut self) {
        if !self.guard.is_foreign() {
            // SAFETY: here and nowhere else, and the mapping is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

// SAFETY: the words lie in `map`, which neither moves nor is unmapped before it is dropped.
#[expect(unsafe_code, reason = "the trait asks for a promise")]
unsafe impl Mapping for DiskMapping {
    #[expect(unsafe_code, reason = "a mapping is seen as atomic words here and nowhere else")]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts at a page boundary, so words are aligned, spans at least `words`
        // of them, and lives as long as `self`, which the slice borrows. Every bit pattern is a valid
        // AtomicU64. No reference to its memory of any other type exists in this process, and other
        // processes write whole words. If mapped for reading only, loads of eight bytes are still plain
        // loads on 64-bit machines, and stores do not happen by the contract of `Access::Read`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.words) }
    }

    fn sync(&self) -> io::Result<()> {
        if self.guard.is_foreign() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // `msync(MS_SYNC)` of the whole mapping: what `fdatasync` does, through the open file description that the mapping
        // keeps, so that failures since the file was opened are told here, too.
        self.map.flush()
    }

    fn populate(&self, words: Range<usize>) {
        let end = words.end.min(self.words);
        if words.start < end && !self.guard.is_foreign() {
            // Rounded outward to whole pages: the start by memmap2, the end by the kernel.
            let length = (end - words.start) * 8;
            let _ = self.map.advise_range(Advice::PopulateWrite, words.start * 8, length);
        }
    }

    fn scatter(&self) {
        if self.words > 0 && !self.guard.is_foreign() {
            let _ = self.map.advise(Advice::Random);
        }
    }

    #[expect(unsafe_code, reason = "the advice would lose data in a private mapping")]
    fn release(&self, words: Range<usize>) {
        let start = (words.start * 8).next_multiple_of(PAGE_BYTES);
        let end = words.end.min(self.words) * 8 / PAGE_BYTES * PAGE_BYTES;
        if start < end && !self.guard.is_foreign() {
            // SAFETY: the mapping is shared and of a file: its pages are dropped from the page table only, stores to them
            // are in the page cache, and later accesses find them there.
            let _ = unsafe {
                self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }
}

/// Locks that belong to this open file description and end with it.
#[derive(Debug)]
struct DiskLocks {
    file: Unshared,
    access: Access,
}

impl ByteLocks for DiskLocks {
    fn try_lock(&self, byte: u64, access: Access) -> io::Result<bool> {
        let kind = match (access, self.access) {
            (Access::Write, Access::Read) => return Err(io::ErrorKind::PermissionDenied.into()),
            (Access::Write, Access::Write) => libc::F_WRLCK,
            (Access::Read, _) => libc::F_RDLCK,
        };
        let mut range = lock_range(kind, byte, 1)?;
        match control(self.file.file()?, libc::F_OFD_SETLK, &mut range) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn unlock(&self, byte: u64) -> io::Result<()> {
        let mut range = lock_range(libc::F_UNLCK, byte, 1)?;
        control(self.file.file()?, libc::F_OFD_SETLK, &mut range)
    }

    fn is_held_by_others(&self, bytes: Range<u64>) -> io::Result<bool> {
        if bytes.is_empty() {
            return Ok(false);
        }
        // Asked as if to lock them alone: the system answers with any lock of others that is in the way, and
        // passes over those of this description. Asking needs no permission to write.
        let mut range = lock_range(libc::F_WRLCK, bytes.start, bytes.end - bytes.start)?;
        control(self.file.file()?, libc::F_OFD_GETLK, &mut range)?;
        Ok(i32::from(range.l_type) != libc::F_UNLCK)
    }
}

impl Drop for DiskLocks {
    fn drop(&mut self) {
        // A child that kept the description would keep its locks. In a child there is no file, and nothing to do.
        if let Ok(file) = self.file.file()
            && let Ok(mut everything) = lock_range(libc::F_UNLCK, 0, 0)
        {
            // It may fail for want of memory only; closing the file does the same if no child has it.
            let _ = control(file, libc::F_OFD_SETLK, &mut everything);
        }
    }
}

/// What locks speak of: so many bytes from `start` on, or all of them for 0.
fn lock_range(kind: libc::c_int, start: u64, bytes: u64) -> io::Result<libc::flock> {
    let offset = |number: u64| {
        libc::off_t::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
    };
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(start)?,
        l_len: offset(bytes)?,
        l_pid: 0,
    })
}

/// A call about locks of this open file description.
#[expect(unsafe_code, reason = "no safe wrapper offers locks of open file descriptions")]
fn control(file: &File, command: libc::c_int, range: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, and `range` is the structure that the commands
    // about locks read and write; the kernel keeps no pointer to it.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *range) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_allocates_zeros_are_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = File::create_new(directory.path().join("zeros")).expect("a new file");
        write_zeros(&file, (1 << 20) + 5).expect("space for a megabyte");
        assert_eq!(file.metadata().expect("an open file").len(), (1 << 20) + 5);
    }

    #[test]
    fn where_renaming_always_replaces_links_do_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [a, b, c] = ["a", "b", "c"].map(|name| directory.path().join(name));
        fs::write(&a, "first").expect("space");
        fs::write(&b, "second").expect("space");
        let refusal = link_new(&a, &b).expect_err("it is there");
        assert_eq!(refusal.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(link_new(&a, &a).expect_err("so is this").kind(), refusal.kind());
        assert_eq!(fs::read(&b).expect("it is there"), b"second");
        link_new(&a, &c).expect("nobody has that name");
        assert!(!a.exists());
        assert_eq!(fs::read(&c).expect("it is there"), b"first");
    }

    #[test]
    fn file_systems_that_are_not_local_are_refused_by_name() {
        let error = accept(0x6969).expect_err("NFS is not local");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("NFS"), "{error}");
        // ext4, XFS, btrfs, tmpfs, overlayfs, zfs, f2fs, and one that nobody knows.
        for local in [
            0xEF53,
            0x5846_5342,
            BTRFS,
            0x0102_1994,
            0x794C_7630,
            0x2FC1_2FC1,
            0xF2F5_2010,
            0x1234_5678,
        ] {
            accept(local).expect("a local file system");
        }
    }
}
