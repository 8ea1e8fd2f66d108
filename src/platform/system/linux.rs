//! The calls of Linux.

use memmap2::{Advice, MmapRaw};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, StatFs, StatxAttributes, StatxFlags, XattrFlags,
    fallocate, fdatasync, fgetxattr, fsetxattr, fstatfs, fsync, ioctl_getflags, ioctl_setflags,
    statx,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::ClockId;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
#[cfg(not(any(loom, miri, shuttle)))]
use {
    crate::platform::Woken,
    rustix::thread::futex::{self, Flags},
    std::sync::atomic::{AtomicU32, AtomicU64},
    std::time::Duration,
};

/// Whether processes can share a file without a name, which images lie in.
pub const HAS_UNNAMED_FILES: bool = true;

/// Where the system says which boot this is.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the text of the UUID of this boot.
///
/// # Errors
/// The system's error.
pub fn boot_id() -> io::Result<String> {
    std::fs::read_to_string(BOOT_ID)
}

/// The wall clock, some milliseconds late and cheaper.
pub const COARSE_WALL: ClockId = ClockId::RealtimeCoarse;
/// The time since the boot, suspends included.
pub const SINCE_BOOT: ClockId = ClockId::Boottime;

/// File systems whose mappings or locks are not the same for all processes (`statfs` types).
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
    (0x7C7C_6673, "Parallels shared folders"),
];

/// `statfs` type of btrfs, where files with random stores must not be copied on write.
const BTRFS: u64 = 0x9123_683E;
/// `statfs` type of overlayfs, whose device number may change at each mount, although the files are
/// the same.
const OVERLAYFS: u64 = 0x794C_7630;
/// `statfs` types of file systems in memory, where a read of a hole through a mapping takes space.
/// The files of an overlay may lie in one.
const FILL_HOLES: [u64; 3] = [0x0102_1994, 0x8584_58F6, OVERLAYFS];

/// Behind the end of every file, so that no write-back in progress is waited for: a page that is
/// being written back is not dropped, and its failure is noted before it counts as clean.
const BEHIND: i64 = 1 << 60;

/// Returns the type in a `statfs` answer. Some are 32-bit numbers with the top bit set, which an
/// `i64` field may contain sign-extended or not.
fn file_system(answer: &StatFs) -> u64 {
    answer.f_type as u64 & 0xFFFF_FFFF
}

/// Returns the name of a file system that is shared with other machines or served by a process;
/// `None` for all others.
pub fn not_local(answer: &StatFs) -> Option<String> {
    name_of_not_local(file_system(answer)).map(str::to_owned)
}

fn name_of_not_local(found: u64) -> Option<&'static str> {
    NOT_LOCAL.iter().find(|(number, _)| *number == found).map(|(_, name)| *name)
}

/// Returns whether a read of a hole of this file through a mapping takes space.
///
/// # Errors
/// The system's error.
pub fn reads_fill_holes(file: &File) -> io::Result<bool> {
    Ok(FILL_HOLES.contains(&file_system(&fstatfs(file)?)))
}

/// Returns whether the device number of this file stays the same.
///
/// # Errors
/// The system's error.
pub fn keeps_its_device(file: &File) -> io::Result<bool> {
    Ok(file_system(&fstatfs(file)?) != OVERLAYFS)
}

/// Returns whether something is mounted at a path, as far as the system says.
pub fn is_mount_root(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Asks that a new file, still empty, is not copied on write. Without it the file system is slower,
/// not wrong: failures are ignored.
///
/// # Errors
/// The system's error, if the type of the file system is unknown.
pub fn write_in_place(file: &File) -> io::Result<()> {
    if file_system(&fstatfs(file)?) == BTRFS
        && let Ok(flags) = ioctl_getflags(file)
    {
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
    Ok(())
}

/// The attribute of a file's access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Returns the extended access control list of a file; `None` if it has none. With one, the
/// permissions of the group are the most that any entry gives, and not those of the group.
///
/// # Errors
/// The system's error.
pub fn access_list(file: &File) -> io::Result<Option<Vec<u8>>> {
    // The longest attribute.
    let mut list = vec![0; 64 << 10];
    match fgetxattr(file, ACCESS_LIST, &mut list[..]) {
        Ok(length) => {
            list.truncate(length);
            Ok(Some(list))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file such a list.
///
/// # Errors
/// The system's error.
pub fn set_access_list(file: &File, list: &[u8]) -> io::Result<()> {
    Ok(fsetxattr(file, ACCESS_LIST, list, XattrFlags::empty())?)
}

/// Allocates space for bytes of a file, whose content stays. The file is lengthened to their end.
pub fn allocate(file: &File, bytes: Range<u64>) -> rustix::io::Result<()> {
    fallocate(file, FallocateFlags::empty(), bytes.start, bytes.end - bytes.start)
}

/// Whether [`allocate`] can give space to a part of a file, so that files may begin with holes.
pub const FILLS_HOLES: bool = true;

/// Frees the space of bytes of a file.
pub fn free(file: &File, bytes: Range<u64>) -> rustix::io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, bytes.start, bytes.end - bytes.start)
}

/// Whether a sync of a mapping makes its stores survive a power cut.
pub const SYNCS_THROUGH_MAPPINGS: bool = true;

/// Makes the bytes of a file, and its length, survive a power cut.
pub fn sync_file(file: &File) -> rustix::io::Result<()> {
    // Of the inode it writes what is needed to find the data, including the length. A retry after
    // an interruption would be a second try, so there is none.
    fdatasync(file)
}

/// Makes the names in a directory survive a power cut.
pub fn sync_directory(directory: impl AsFd) -> rustix::io::Result<()> {
    fsync(directory)
}

/// Fails if a write-back of a store to this file has failed since this description was opened, and
/// it has not received that. Starts no write.
///
/// # Errors
/// The system's error, of the write-back.
pub fn check_written(file: &File) -> io::Result<()> {
    sync_range(file, (BEHIND, 1), libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

/// Begins to write these bytes to the disk, and waits for that if `waits`.
///
/// # Errors
/// The system's error, of the write-back.
pub fn write_out(file: &File, bytes: Range<u64>, waits: bool) -> io::Result<()> {
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

/// Keeps a mapping from forked children: there its addresses are not mapped. Keeps it from core
/// dumps, too: until such a dump of a large filter is written, its process counts as alive.
///
/// # Errors
/// The system's error.
pub fn keep_from_children(map: &MmapRaw) -> io::Result<()> {
    // A system without it dumps more.
    let _ = map.advise(Advice::DontDump);
    map.advise(Advice::DontFork)
}

/// Makes a page of zeros read as zeros again in forked children, if the system supports it.
///
/// # Safety
/// `page` is the start of `bytes` mapped bytes.
#[expect(unsafe_code, reason = "no safe wrapper has pages that the system wipes")]
pub unsafe fn wipe_in_children(page: *mut core::ffi::c_void, bytes: usize) {
    // SAFETY: the caller's promise; the call changes what children see there.
    let _ = unsafe { rustix::mm::madvise(page, bytes, rustix::mm::Advice::LinuxWipeOnFork) };
}

/// Asks for huge pages, before any page is present. A hint: failures are ignored.
pub fn wish_for_huge_pages(map: &MmapRaw) {
    let _ = map.advise(Advice::HugePage);
}

/// Makes the pages of bytes of a mapping present and writable.
///
/// # Errors
/// `InvalidInput` if the system does not have the call, `StorageFull` or `OutOfMemory`.
pub fn make_present(map: &MmapRaw, bytes: Range<usize>) -> io::Result<()> {
    let done = map.advise_range(Advice::PopulateWrite, bytes.start, bytes.end - bytes.start);
    done.map_err(|error| match error.raw_os_error() {
        // A store there would cause a signal.
        Some(libc::EFAULT) => io::ErrorKind::StorageFull.into(),
        _ => error,
    })
}

/// Fills a buffer with random bytes that nobody can predict.
///
/// # Errors
/// The system's error.
pub fn random(buffer: &mut [u8; 16]) -> io::Result<()> {
    // So few bytes are returned whole.
    getrandom(&mut buffer[..], GetRandomFlags::empty())?;
    Ok(())
}

/// Gives the calling thread the ordinary scheduling policy. If refused, it keeps the inherited one.
#[expect(unsafe_code, reason = "no safe wrapper offers scheduling policies")]
pub fn be_ordinary() {
    // SAFETY: numbers only, for which all bits may be zero: priority 0. Some C libraries (musl)
    // have more fields than the priority, which is the first one, and the only one of the kernel.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: plain system calls on the calling thread; the structure is only read. The functions
    // of musl fail always, because POSIX has them for processes.
    unsafe {
        let policy = libc::syscall(libc::SYS_sched_getscheduler, 0);
        if [libc::SCHED_FIFO, libc::SCHED_RR].into_iter().any(|real| policy == real.into()) {
            let (call, other) = (libc::SYS_sched_setscheduler, libc::SCHED_OTHER);
            libc::syscall(call, 0, other, &raw const parameters);
        }
    }
}

/// Sleeps while the low half of `word` is `expected_low`, at most for `timeout`, until a thread of
/// this or another process that maps the same file wakes the sleeper.
#[cfg(not(any(loom, miri, shuttle)))]
pub fn wait(word: &AtomicU64, expected_low: u32, timeout: Duration) -> Woken {
    let timeout = rustix::thread::Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match futex::wait(low_half(word), Flags::empty(), expected_low, Some(&timeout)) {
        Err(Errno::TIMEDOUT | Errno::INTR) => Woken::No,
        _ => Woken::Perhaps,
    }
}

/// Wakes at most `most` threads that sleep on `word`. Returns whether there was one.
#[cfg(not(any(loom, miri, shuttle)))]
pub fn wake(word: &AtomicU64, most: u32) -> bool {
    // An error would mean that no thread can sleep there either.
    futex::wake(low_half(word), Flags::empty(), most).is_ok_and(|threads| threads > 0)
}

/// Returns the address of the low half, for the kernel. Rust code must neither load nor store
/// through it: that would mix atomic accesses of two sizes.
#[cfg(not(any(loom, miri, shuttle)))]
#[expect(unsafe_code, reason = "the kernel takes the address of 32 bits, the protocol needs 64")]
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    const { assert!(cfg!(target_endian = "little"), "the low half must come first") };
    // SAFETY: the first four of the word's eight bytes are aligned for four, and valid for as long
    // as the word is borrowed; any bits are a valid AtomicU32; both types allow changes behind a
    // reference.
    unsafe { &*std::ptr::from_ref(word).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_are_not_local_have_a_name() {
        assert_eq!(name_of_not_local(0x6969), Some("NFS"));
        // ext4, XFS, btrfs, tmpfs, overlayfs, zfs, f2fs, and an unknown one.
        for local in [
            0xEF53,
            0x5846_5342,
            0x9123_683E,
            0x0102_1994,
            0x794C_7630,
            0x2FC1_2FC1,
            0xF2F5_2010,
            0x1234_5678,
        ] {
            assert_eq!(name_of_not_local(local), None, "{local:x}");
        }
    }
}
