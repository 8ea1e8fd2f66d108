//! The portable implementation: macOS, and Linux with `--cfg ebbtide_portable` to test it.
//!
//! It does less than Linux's: sleepers poll, the image always lies beside the log, space of removed
//! blocks is not freed, and a failed write-back is only reported by the next sync.

use memmap2::MmapRaw;
use rustix::fd::AsFd;
use rustix::fs::StatFs;
use rustix::io::Errno;
use rustix::time::ClockId;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
#[cfg(not(any(loom, miri, shuttle)))]
use {
    crate::platform::Woken,
    std::sync::atomic::{AtomicU64, Ordering},
    std::time::{Duration, Instant},
};

/// The wall clock.
pub const COARSE_WALL: ClockId = ClockId::Realtime;
/// The time since the boot, suspends included.
#[cfg(target_os = "macos")]
pub const SINCE_BOOT: ClockId = ClockId::Monotonic;
/// The time since the boot, suspends included.
#[cfg(target_os = "linux")]
pub const SINCE_BOOT: ClockId = ClockId::Boottime;

/// Whether processes can share a file without a name, which images lie in.
pub const HAS_UNNAMED_FILES: bool = false;

/// Where the system says which boot this is.
#[cfg(target_os = "linux")]
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the text of the UUID of this boot.
///
/// # Errors
/// The system's error.
#[cfg(target_os = "linux")]
pub fn boot_id() -> io::Result<String> {
    std::fs::read_to_string(BOOT_ID)
}

/// Returns the text of the UUID of this boot.
///
/// # Errors
/// The system's error.
#[cfg(target_os = "macos")]
pub fn boot_id() -> io::Result<String> {
    let mut text = [0_u8; 64];
    let mut length = text.len();
    // SAFETY: the name ends with a zero, and the buffer has `length` bytes, which the call writes
    // and of which it returns the number in `length`.
    #[expect(unsafe_code, reason = "no safe wrapper offers it")]
    let failed = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            text.as_mut_ptr().cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Returns the name of a file system that is shared with other machines; `None` for all others.
#[cfg(target_os = "macos")]
pub fn not_local(answer: &StatFs) -> Option<String> {
    if answer.f_flags & libc::MNT_LOCAL as u32 != 0 {
        return None;
    }
    let name = answer.f_fstypename.iter().take_while(|&&byte| byte != 0);
    Some(name.map(|&byte| char::from(byte as u8)).collect())
}

/// Returns the name of a file system that is shared with other machines; here `None`.
#[cfg(target_os = "linux")]
pub fn not_local(_answer: &StatFs) -> Option<String> {
    None
}

/// Returns whether a read of a hole of this file through a mapping takes space: there are no holes.
///
/// # Errors
/// None.
pub fn reads_fill_holes(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Returns whether the device number of this file stays the same. That is not known.
///
/// # Errors
/// None.
pub fn keeps_its_device(_file: &File) -> io::Result<bool> {
    Ok(cfg!(target_os = "linux"))
}

/// Returns whether something is mounted at a path of the same file system. That is not known.
pub fn is_mount_root(_path: &Path) -> bool {
    false
}

/// Asks that a new file, still empty, is not copied on write: there is no such call.
///
/// # Errors
/// None.
pub fn write_in_place(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Returns the extended access control list of a file; on macOS one does not change the meaning of
/// the permissions.
///
/// # Errors
/// None.
pub fn access_list(_file: &File) -> io::Result<Option<Vec<u8>>> {
    Ok(None)
}

/// Gives a file such a list.
///
/// # Errors
/// Always.
pub fn set_access_list(_file: &File, _list: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Allocates space for bytes of a file: no call of macOS does that within a file. The caller writes
/// zeros.
pub fn allocate(_file: &File, _bytes: Range<u64>) -> rustix::io::Result<()> {
    Err(Errno::NOSYS)
}

/// Whether [`allocate`] can give space to a part of a file: a store into a hole takes it, and is a
/// signal on a full disk.
pub const FILLS_HOLES: bool = false;

/// Frees the space of bytes of a file: there is no such call.
pub fn free(_file: &File, _bytes: Range<u64>) -> rustix::io::Result<()> {
    Err(Errno::NOSYS)
}

/// Whether a sync of a mapping makes its stores survive a power cut: `msync` leaves them in the
/// cache of the disk. Before a sync of the file, it passes them on to the file.
pub const SYNCS_THROUGH_MAPPINGS: bool = false;

/// Makes the bytes of a file, and its length, survive a power cut.
pub fn sync_file(file: &File) -> rustix::io::Result<()> {
    sync_directory(file)
}

/// Makes the names in a directory survive a power cut.
#[cfg(target_os = "macos")]
pub fn sync_directory(directory: impl AsFd) -> rustix::io::Result<()> {
    // `fsync` leaves them in the cache of the disk.
    match rustix::fs::fcntl_fullfsync(&directory) {
        // Not every file system has it.
        Err(Errno::NOTSUP | Errno::INVAL | Errno::NOTTY) => rustix::fs::fsync(directory),
        done => done,
    }
}

/// Makes the names in a directory survive a power cut.
#[cfg(target_os = "linux")]
pub fn sync_directory(directory: impl AsFd) -> rustix::io::Result<()> {
    rustix::fs::fsync(directory)
}

/// Fails if a write-back of a store to this file has failed: that is not known before a sync.
///
/// # Errors
/// None.
pub fn check_written(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Begins to write these bytes to the disk: there is no such call.
///
/// # Errors
/// None.
pub fn write_out(_file: &File, _bytes: Range<u64>, _waits: bool) -> io::Result<()> {
    Ok(())
}

/// Keeps a mapping from forked children: there its addresses are not mapped.
///
/// # Errors
/// The system's error.
#[cfg(target_os = "macos")]
pub fn keep_from_children(map: &MmapRaw) -> io::Result<()> {
    // SAFETY: the bytes are mapped; the call changes what children see there.
    #[expect(unsafe_code, reason = "no safe wrapper offers it")]
    let failed =
        unsafe { libc::minherit(map.as_mut_ptr().cast(), map.len(), libc::VM_INHERIT_NONE) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps a mapping from forked children: there its addresses are not mapped.
///
/// # Errors
/// The system's error.
#[cfg(target_os = "linux")]
pub fn keep_from_children(map: &MmapRaw) -> io::Result<()> {
    map.advise(memmap2::Advice::DontFork)
}

/// Makes a page read as zeros again in forked children: there is no such call.
///
/// # Safety
/// None is needed.
#[expect(unsafe_code, reason = "as on Linux")]
pub unsafe fn wipe_in_children(_page: *mut core::ffi::c_void, _bytes: usize) {}

/// Asks for huge pages: there is no such call.
pub fn wish_for_huge_pages(_map: &MmapRaw) {}

/// Makes the pages of bytes of a mapping present and writable: there is no such call.
///
/// # Errors
/// `InvalidInput`.
pub fn make_present(_map: &MmapRaw, _bytes: Range<usize>) -> io::Result<()> {
    Err(io::ErrorKind::InvalidInput.into())
}

/// Fills a buffer with random bytes that nobody can predict.
///
/// # Errors
/// The system's error.
pub fn random(buffer: &mut [u8; 16]) -> io::Result<()> {
    // SAFETY: the buffer has this many bytes, and is borrowed for the length of the call.
    #[expect(unsafe_code, reason = "no safe wrapper offers it")]
    let failed = unsafe { libc::getentropy(buffer.as_mut_ptr().cast(), buffer.len()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the calling thread the ordinary scheduling policy: threads do not inherit another one.
pub fn be_ordinary() {}

/// Polls while the low half of `word` is `expected_low`, at most for `timeout`.
#[cfg(not(any(loom, miri, shuttle)))]
pub fn wait(word: &AtomicU64, expected_low: u32, timeout: Duration) -> Woken {
    const LONGEST_PAUSE: Duration = Duration::from_millis(1);
    let begun = Instant::now();
    let mut pause = Duration::from_micros(10);
    // Relaxed: only the number counts; callers load again.
    while word.load(Ordering::Relaxed) as u32 == expected_low {
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Woken::No;
        }
        std::thread::sleep(pause.min(left));
        pause = LONGEST_PAUSE.min(2 * pause);
    }
    Woken::Perhaps
}

/// Wakes threads that sleep on `word`: none does. Returns false.
#[cfg(not(any(loom, miri, shuttle)))]
pub fn wake(_word: &AtomicU64, _most: u32) -> bool {
    false
}
