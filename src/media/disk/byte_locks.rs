//! Byte locks of open file descriptions, on a file that children made by `fork` do not keep.

use crate::media::disk::directory::Directory;
use crate::media::{Access, ByteLocks};
use crate::platform::fork::Unshared;
use rustix::fs::{OFlags, fstat};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

// Of another type in each system.
const SHARED: libc::c_short = libc::F_RDLCK as libc::c_short;
const EXCLUSIVE: libc::c_short = libc::F_WRLCK as libc::c_short;
const NONE: libc::c_short = libc::F_UNLCK as libc::c_short;

/// Locks that belong to this open file description and end with it.
#[derive(Debug)]
pub(super) struct DiskLocks {
    file: Unshared,
    access: Access,
    directory: Arc<Directory>,
    name: String,
}

impl DiskLocks {
    /// Opens the file `name` on a description of its own.
    pub(super) fn open(directory: Arc<Directory>, name: &str, access: Access) -> io::Result<Self> {
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::CREATE | OFlags::RDWR,
        };
        let file = Unshared::open(|| directory.open(name, flags))?;
        Ok(Self { file, access, directory, name: name.to_owned() })
    }
}

impl ByteLocks for DiskLocks {
    fn try_lock(&self, byte: u64, access: Access) -> io::Result<bool> {
        let kind = match (access, self.access) {
            (Access::Write, Access::Read) => return Err(io::ErrorKind::PermissionDenied.into()),
            (Access::Write, Access::Write) => EXCLUSIVE,
            (Access::Read, _) => SHARED,
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
        let mut range = lock_range(NONE, byte, 1)?;
        control(self.file.file()?, libc::F_OFD_SETLK, &mut range)
    }

    fn is_held_by_others(&self, bytes: Range<u64>) -> io::Result<bool> {
        if bytes.is_empty() {
            return Ok(false);
        }
        // Queried as for an exclusive lock: the system answers with any conflicting lock of others,
        // and ignores those of this description. The query needs no write permission.
        let mut range = lock_range(EXCLUSIVE, bytes.start, bytes.end - bytes.start)?;
        control(self.file.file()?, libc::F_OFD_GETLK, &mut range)?;
        Ok(range.l_type != NONE)
    }

    fn has_its_name(&self) -> io::Result<bool> {
        let ours = fstat(self.file.file()?)?;
        match self.directory.stat(&self.name) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for DiskLocks {
    fn drop(&mut self) {
        // A child that kept the description would keep its locks. In a child there is no file, and
        // nothing to do.
        if let Ok(file) = self.file.file()
            && let Ok(mut everything) = lock_range(NONE, 0, 0)
        {
            // It can only fail for lack of memory; closing the file has the same effect if no child
            // has it.
            let _ = control(file, libc::F_OFD_SETLK, &mut everything);
        }
    }
}

/// Returns the range of a lock: `bytes` from `start` on, or all for 0.
fn lock_range(kind: libc::c_short, start: u64, bytes: u64) -> io::Result<libc::flock> {
    let offset = |number: u64| {
        libc::off_t::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
    };
    Ok(libc::flock {
        l_type: kind,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(start)?,
        l_len: offset(bytes)?,
        l_pid: 0,
    })
}

/// Calls `fcntl` for locks of this open file description.
#[expect(unsafe_code, reason = "no safe wrapper offers locks of open file descriptions")]
fn control(file: &File, command: libc::c_int, range: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, and `range` is the structure that
    // the lock commands read and write; the kernel keeps no pointer to it.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *range) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
