//! Where the files of a filter live: a trait with two implementations, the disk and memory.
//!
//! This is the only door to the operating system's files. Everything above speaks of names inside
//! one directory, so a simulated medium with crashes and faults can take the disk's place without a
//! change to the engine. A medium knows nothing of what the bytes mean.
//!
//! A mapping is seen as `&[AtomicU64]` only, never as bytes: other threads and processes write it.

// Loom's AtomicU64 is no word of eight bytes, so nothing mapped can be seen as one.
#[cfg(not(loom))]
mod boot;
#[cfg(not(loom))]
mod disk;
mod mapped;
mod memory;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use disk::Disk;
pub(crate) use mapped::Mapped;
pub use memory::Memory;

use crate::sync::AtomicU64;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The refusal to map a file that is not made of words.
fn not_whole_words(bytes: u64) -> io::Error {
    let sentence = format!("expected a length that is a multiple of 8 bytes, found {bytes}");
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

/// How a file is opened and mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Bytes may be read; stores through a mapping are a bug of ours.
    Read,
    /// Bytes may be read and written.
    Write,
}

/// One directory of files: the home of one filter.
pub trait Media: Debug + Send + Sync {
    /// The directory, for messages.
    fn path(&self) -> &Path;

    /// Makes the directory if it is not there, with its parents, so that it survives a power cut.
    ///
    /// # Errors
    /// `Unsupported` on a file system that is not local, where mappings and locks are not the same for
    /// everybody, and the system's refusals.
    fn make(&self) -> io::Result<()>;

    /// The directory that has this one's path now, which may be another. `None` where that cannot be.
    fn at_its_path(&self) -> Option<Arc<dyn Media>> {
        None
    }

    /// The names of all files, in no order; names that are not UTF-8, which are none of ours, left out.
    ///
    /// # Errors
    /// `NotFound` if there is no directory, and the system's other refusals.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file of `bytes` zero bytes whose space is allocated, so that no store through a mapping
    /// meets a full disk. Leaves nothing behind on failure.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken (links are not followed), `StorageFull` without space.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>>;

    /// As [`Media::create`], but only the first `allocated` bytes have their space; the others are a hole, to be filled by
    /// [`MediaFile::allocate`] before anything is stored there. A medium without holes allocates all.
    ///
    /// # Errors
    /// As [`Media::create`].
    fn create_with_hole(
        &self,
        name: &str,
        bytes: u64,
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        let _ = allocated;
        self.create(name, bytes)
    }

    /// Opens a file that is there, without following links.
    ///
    /// # Errors
    /// `NotFound`, `InvalidInput` if the name is that of a link, a directory or something else that is no
    /// regular file, and the system's other refusals.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>>;

    /// Renames within the directory; an existing `to` is replaced in one step.
    ///
    /// # Errors
    /// The system's refusal.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Renames within the directory; an existing `to` stays.
    ///
    /// # Errors
    /// `AlreadyExists` if `to` is there, and the system's other refusals.
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Mappings and open files of it stay usable.
    ///
    /// # Errors
    /// The system's refusal.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals so far survive a power cut.
    ///
    /// # Errors
    /// The system's refusal; what is on the disk is then unknown.
    fn sync(&self) -> io::Result<()>;

    /// Opens the file `name` for byte locks, on a file description of its own. With [`Access::Write`] it is created
    /// if missing; with [`Access::Read`], which needs no permission to write, only shared locks can be taken.
    ///
    /// # Errors
    /// As [`Media::make`] and [`Media::open`].
    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>>;

    /// What distinguishes this run of the machine from the one before a power cut or reboot.
    ///
    /// # Errors
    /// The system's refusal.
    fn boot_id(&self) -> io::Result<u128>;

    /// Where [`Media::boot_id`] comes from.
    fn boot_id_source(&self) -> BootIdSource {
        BootIdSource::Kernel
    }
}

/// What a boot id says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BootIdSource {
    /// It is the kernel's: the same for as long as the kernel runs, in all containers.
    Kernel,
    /// Another file is mounted over it, as container managers do (LXC, `systemd-nspawn`): each start of a container has its own.
    MountedOver,
    /// There is none: `/proc` is not mounted, or without the part that has it.
    Missing,
}

/// Locks on bytes of one file, which need not be there. They are held against all other values of this type on
/// the same file, in this and other processes, until unlocked, or until the value is dropped or its process dies.
/// In a child made by `fork` the value is no longer one: it fails, and dropping it does nothing.
pub trait ByteLocks: Debug + Send + Sync {
    /// Tries to lock a byte: with [`Access::Write`] alone, with [`Access::Read`] shared with others who read. A
    /// byte that this value holds already is then held the new way, or as before if the answer is no.
    ///
    /// # Errors
    /// `PermissionDenied` for a lock alone on what was opened for reading, and the system's refusals.
    fn try_lock(&self, byte: u64, access: Access) -> io::Result<bool>;

    /// Unlocks a byte; nothing happens if it is not locked.
    ///
    /// # Errors
    /// The system's refusal.
    fn unlock(&self, byte: u64) -> io::Result<()>;

    /// Whether others hold any of these bytes, either way. What this value itself holds is never counted.
    ///
    /// # Errors
    /// The system's refusal.
    fn is_held_by_others(&self, bytes: Range<u64>) -> io::Result<bool>;

    /// Whether the file still has its name in the directory that it was opened in. False from the moment on
    /// that it was removed, or another file took the name: then what this value locks concerns nobody else.
    /// True where that cannot happen.
    ///
    /// # Errors
    /// The system's refusal.
    fn has_its_name(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// An open file.
pub trait MediaFile: Debug + Send + Sync {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's refusal.
    fn bytes(&self) -> io::Result<u64>;

    /// Bytes of disk it occupies.
    ///
    /// # Errors
    /// The system's refusal.
    fn allocated_bytes(&self) -> io::Result<u64>;

    /// What distinguishes this file from others of the same name: the inode number.
    ///
    /// # Errors
    /// The system's refusal.
    fn identity(&self) -> io::Result<u64>;

    /// What distinguishes the device that it is on from others that may hold the same file: a snapshot of a volume has its
    /// inode numbers. 0 if that says nothing.
    ///
    /// # Errors
    /// The system's refusal.
    fn device(&self) -> io::Result<u64> {
        Ok(0)
    }

    /// Makes sure that these bytes, which lie in the file, have their space. What they hold stays.
    ///
    /// # Errors
    /// `StorageFull` without space; nothing has changed then.
    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Gives the space of these bytes back where it can; they read as zero then, or as they did. Stores need
    /// [`MediaFile::allocate`] again.
    ///
    /// # Errors
    /// The system's refusal.
    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Reads exactly `buffer.len()` bytes from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end, and the system's refusals.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buffer` at `offset`; the file grows if need be.
    ///
    /// # Errors
    /// The system's refusal; part of the buffer may have been written.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file to so many bytes and gives the space of the rest back; nothing happens if it is not longer. Nobody has
    /// it mapped.
    ///
    /// # Errors
    /// The system's refusal.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes the file's bytes and length survive a power cut, stores through mappings included.
    ///
    /// # Errors
    /// The system's refusal; what is on the disk is then unknown and a second try proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Whether a mapping of this file can be synced by [`Mapping::sync`] when the file itself is closed.
    fn maps_with_sync(&self) -> bool {
        false
    }

    /// Maps the whole file, shared. Its length must be a multiple of eight.
    ///
    /// # Errors
    /// `InvalidData` for other lengths, and the system's refusals.
    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>>;
}

/// A mapped file: words that other threads and processes see at once.
///
/// # Safety
/// [`words`](Mapping::words) gives the same words at every call, and they stay where they are, readable (and writable
/// if mapped so), until the mapping is dropped, whatever happens to the file's name, and wherever the value is moved.
#[expect(unsafe_code, reason = "its users rely on the words staying where they are")]
pub unsafe trait Mapping: Debug + Send + Sync {
    /// The words, little-endian on the disk.
    fn words(&self) -> &[AtomicU64];

    /// As [`MediaFile::sync`] of the file that was mapped, which may be closed: a mapping takes none of the process's
    /// descriptors. For files whose [`MediaFile::maps_with_sync`] says so.
    ///
    /// # Errors
    /// As [`MediaFile::sync`]; failures count from when the file was opened.
    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Asks the system to make the pages of these words present and writable ahead of their use. A hint:
    /// failures are ignored.
    fn populate(&self, words: Range<usize>);

    /// Tells the system that words are used here and there, so that it does not read around them. A file with holes needs that:
    /// where a hole has been read in a large piece, a store beside it would take space for all of the piece. A hint: failures
    /// are ignored.
    fn scatter(&self) {}

    /// Lets go of the pages that lie wholly among these words: what they hold stays in the file, and the next access
    /// brings them back. A sync then need not write-protect them one by one, which interrupts all writers each
    /// time. A hint: failures are ignored.
    fn release(&self, words: Range<usize>);
}
