//! The storage of a filter's files: a trait with two implementations, the disk and memory.
//!
//! All access to the operating system's files goes through this module. The layers above use names
//! inside one directory, so a simulated medium with crashes and faults can replace the disk without
//! a change to the engine. A medium does not interpret the bytes.
//!
//! A mapping is seen as `&[AtomicU64]` only, never as bytes, because other threads and processes
//! write it.

// Loom's AtomicU64 is not a word of eight bytes, so mapped memory cannot be viewed as such words.
mod available_memory;
#[cfg(not(loom))]
mod boot_id;
mod directory_in_memory;
#[cfg(not(loom))]
mod disk;
#[cfg(all(test, not(loom)))]
#[path = "../../testkit/src/failing.rs"]
pub(crate) mod failing;
mod mapped;
mod places;
#[cfg(all(test, not(loom)))]
mod tests;

pub use directory_in_memory::Memory;
#[cfg(not(loom))]
pub use disk::Disk;
pub(crate) use mapped::{Mapped, MappedHead};
#[cfg(not(loom))]
pub(crate) use places::BESIDE_LOG_MOST;
pub use places::{BankPlace, Holder, ImagePlace, UnnamedId};

use crate::primitives::AtomicU64;
use std::fmt::{Debug, Display};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Creates the error for mapping a file that does not consist of whole words.
fn not_whole_words(bytes: u64) -> io::Error {
    let sentence = format!("expected a length that is a multiple of 8 bytes, found {bytes}");
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

/// Creates the error for a second name where files have one each.
fn no_links(cause: impl Display) -> io::Error {
    let sentence = format!("a file has one name here, no second one (hard link): {cause}");
    io::Error::new(io::ErrorKind::Unsupported, sentence)
}

/// How a file is opened and mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Bytes may be read; stores through a mapping are a bug.
    Read,
    /// Bytes may be read and written.
    Write,
}

/// Whose the files of a filter are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The permissions, without what an access control list says.
    pub mode: u32,
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

/// One directory of files, which contains one filter.
pub trait Media: Debug + Send + Sync {
    /// Returns the directory, for messages.
    fn path(&self) -> &Path;

    /// Creates the directory if it is missing, with its parents, so that it survives a power cut.
    ///
    /// # Errors
    /// `Unsupported` on a file system that is not local, where mappings and locks are not the same
    /// for all processes, and the system's errors.
    fn make(&self) -> io::Result<()>;

    /// Returns the directory that has this one's path now, which may be a different one. `None` if
    /// that is impossible.
    fn at_its_path(&self) -> Option<Arc<dyn Media>> {
        None
    }

    /// Returns the names of all files, in no order. Names that are not UTF-8 are left out: no file
    /// of a filter has one.
    ///
    /// # Errors
    /// `NotFound` if there is no directory, and the system's other errors.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file of `bytes` zero bytes with allocated space, so that no store through a
    /// mapping meets a full disk. Leaves nothing behind on failure.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken (links are not followed), `StorageFull` without space.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>>;

    /// As [`Media::create`], but with space for only the first `allocated` bytes. The others are a
    /// hole, to be filled by [`MediaFile::allocate`] before anything is stored there. A medium
    /// without holes allocates all.
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

    /// Creates a file as [`Media::create_with_hole`], which [`MediaFile::allocate`] may lengthen up
    /// to `most` bytes. A medium whose files cannot grow under a mapping gives it this length at
    /// once.
    ///
    /// # Errors
    /// As [`Media::create`].
    fn create_to_grow(
        &self,
        name: &str,
        (bytes, most): (u64, u64),
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        let _ = bytes;
        self.create_with_hole(name, most, allocated)
    }

    /// Opens an existing file, without following links.
    ///
    /// # Errors
    /// `NotFound`, `InvalidInput` if the name is that of a link, a directory or anything else that
    /// is not a regular file, and the system's other errors.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>>;

    /// Renames within the directory; an existing `to` is replaced atomically.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Renames within the directory; an existing `to` stays.
    ///
    /// # Errors
    /// `AlreadyExists` if `to` exists, and the system's other errors.
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file a second name, and leaves it the first.
    ///
    /// # Errors
    /// `Unsupported` where files cannot have two names; `AlreadyExists` if `to` exists, and the
    /// system's other errors. Nothing has changed then.
    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        let _ = (from, to);
        Err(no_links(io::ErrorKind::Unsupported))
    }

    /// Removes a name. Mappings and open files of it stay usable.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all creations, renames and removals so far survive a power cut.
    ///
    /// # Errors
    /// The system's error; the content of the disk is then unknown.
    fn sync(&self) -> io::Result<()>;

    /// Opens the file `name` for byte locks, on a file description of its own. With
    /// [`Access::Write`] it is created if missing. With [`Access::Read`], which needs no write
    /// permission, only shared locks can be taken.
    ///
    /// # Errors
    /// As [`Media::make`] and [`Media::open`].
    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>>;

    /// Creates a file without a name for the banks of a new image that may take `bytes`.
    /// `None` if they shall be files of this medium.
    ///
    /// # Errors
    /// `OutOfMemory`, and the system's errors.
    fn create_unnamed(&self, bytes: u64) -> io::Result<Option<Arc<dyn BankStore>>> {
        let _ = bytes;
        Ok(None)
    }

    /// Gets a file without a name from one of these processes, which have the file `live` of this
    /// name open.
    ///
    /// # Errors
    /// `NotFound` if none of them has it any more, `TimedOut` if one of them does not answer.
    fn find_unnamed(
        &self,
        wanted: &UnnamedId,
        (live, holders): (&str, &[Holder]),
        access: Access,
    ) -> io::Result<Arc<dyn BankStore>> {
        let _ = (wanted, live, holders, access);
        Err(io::ErrorKind::NotFound.into())
    }

    /// Returns whether there is space for this many bytes now, as far as the medium can tell.
    ///
    /// # Errors
    /// The system's error.
    fn has_space(&self, bytes: u64) -> io::Result<bool> {
        let _ = bytes;
        Ok(true)
    }

    /// Fails if this process could not have an image of this many bytes beside what it has, as far
    /// as the medium can tell. Nothing is taken. Returns whether its cells would lie beside the
    /// log, where they take [space](Media::has_space).
    ///
    /// # Errors
    /// `OutOfMemory`, and the system's errors.
    fn check_memory(&self, bytes: u64) -> io::Result<bool> {
        let _ = bytes;
        Ok(false)
    }

    /// Returns the permissions of the filter's files; `None` if the medium has none.
    ///
    /// # Errors
    /// The system's error.
    fn mode(&self) -> io::Result<Option<u32>> {
        Ok(None)
    }

    /// Returns whose the filter's files are, for copies of them; `None` if the medium knows no
    /// users.
    ///
    /// # Errors
    /// The system's error.
    fn ownership(&self) -> io::Result<Option<Ownership>> {
        Ok(None)
    }

    /// Returns an identifier of this boot of the machine, different after a power cut or reboot.
    ///
    /// # Errors
    /// The system's error.
    fn boot_id(&self) -> io::Result<u128>;

    /// Returns the source of [`Media::boot_id`].
    fn boot_id_source(&self) -> BootIdSource {
        BootIdSource::Kernel
    }
}

/// The source of a boot id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BootIdSource {
    /// The kernel: the same for as long as the kernel runs, in all containers.
    Kernel,
    /// Another file is mounted over the kernel's, as container managers do (LXC, `systemd-nspawn`):
    /// each start of a container has its own.
    MountedOver,
    /// There is none: `/proc` is not mounted, or without the part that contains it.
    Missing,
}

/// Locks on bytes of one file, which need not exist. They are held against all other values of this
/// type on the same file, in this and other processes, until unlocked, or until the value is
/// dropped or its process dies. In a child made by `fork` the value is invalid: its operations
/// fail, and dropping it does nothing.
pub trait ByteLocks: Debug + Send + Sync {
    /// Tries to lock a byte: exclusively with [`Access::Write`], shared with [`Access::Read`]. If
    /// this value holds the byte already, the lock is converted, or stays as before if the result
    /// is false.
    ///
    /// # Errors
    /// `PermissionDenied` for an exclusive lock on a file opened for reading, and the system's
    /// errors.
    fn try_lock(&self, byte: u64, access: Access) -> io::Result<bool>;

    /// Unlocks a byte; does nothing if it is not locked.
    ///
    /// # Errors
    /// The system's error.
    fn unlock(&self, byte: u64) -> io::Result<()>;

    /// Returns whether others hold any of these bytes, in either way. Locks of this value itself
    /// are never counted.
    ///
    /// # Errors
    /// The system's error.
    fn is_held_by_others(&self, bytes: Range<u64>) -> io::Result<bool>;

    /// Returns whether the file still has its name in the directory that it was opened in. False
    /// once it was removed, or another file took the name: the locks of this value are then
    /// irrelevant to others. True where that cannot happen.
    ///
    /// # Errors
    /// The system's error.
    fn has_its_name(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// The banks of one image, by their numbers. Banks are created and removed by one handle at a time.
pub trait BankStore: Debug + Send + Sync {
    /// Returns the path of a bank, for messages.
    fn path(&self, bank: u32) -> PathBuf;

    /// Creates a bank of `bytes` zero bytes with space for the first `allocated` of them; see
    /// [`Media::create_with_hole`]. One of the same number
    /// is a leftover and is replaced.
    ///
    /// # Errors
    /// `StorageFull` without space, `OutOfMemory` without memory: then nothing was touched.
    fn create(&self, bank: u32, bytes: u64, allocated: u64) -> io::Result<Box<dyn MediaFile>>;

    /// Opens a bank.
    ///
    /// # Errors
    /// `NotFound` if it was removed, and the system's other errors.
    fn open(&self, bank: u32, access: Access) -> io::Result<Box<dyn MediaFile>>;

    /// Removes a bank. Its mappings stay usable, but their content may be lost. Banks that stay are
    /// `others` and those with greater numbers than all of these.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, bank: u32, others: &[u32]) -> io::Result<()>;

    /// Fails if the system could not write back a store to one of these banks; see
    /// [`MediaFile::check_written`].
    ///
    /// # Errors
    /// The system's error, of the write-back.
    fn check_written(&self, banks: &mut dyn Iterator<Item = u32>) -> io::Result<()>;

    /// Returns the file without a name that contains the banks; `None` if each has a name.
    fn unnamed(&self) -> Option<&dyn Unnamed> {
        None
    }
}

/// A file without a name that contains the banks of an image. Processes that attach to the image
/// get it from one that has it.
pub trait Unnamed: Debug + Send + Sync {
    /// Returns what distinguishes the file from all others.
    fn identity(&self) -> UnnamedId;

    /// Returns this process's number in its namespace, and that of its descriptor of the file.
    fn holder(&self) -> (u32, u32);

    /// Returns where the file takes space.
    fn place(&self) -> BankPlace;

    /// Hands the file out to processes that have opened the file `live`, and ask at the name
    /// `name`, until the result is dropped.
    ///
    /// # Errors
    /// The system's error. Other processes of this user can attach nevertheless.
    fn hand_out(&self, name: &str, live: &str) -> io::Result<Box<dyn HandedOut>>;
}

/// Keeps a file without a name available to others.
pub trait HandedOut: Debug + Send + Sync {}

/// An open file.
pub trait MediaFile: Debug + Send + Sync {
    /// Returns the file's length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn bytes(&self) -> io::Result<u64>;

    /// Returns the bytes of disk that the file occupies.
    ///
    /// # Errors
    /// The system's error.
    fn allocated_bytes(&self) -> io::Result<u64>;

    /// Returns where what the file holds ends: all bytes from `from` on and behind that were never
    /// written, and are zeros. At most the file's length, which is right of every file.
    ///
    /// # Errors
    /// The system's error.
    fn data_end(&self, from: u64) -> io::Result<u64> {
        let _ = from;
        self.bytes()
    }

    /// Returns an identifier that distinguishes this file from others of the same name: the inode
    /// number.
    ///
    /// # Errors
    /// The system's error.
    fn identity(&self) -> io::Result<u64>;

    /// Returns an identifier of the device that contains the file, to distinguish it from others
    /// that may contain the same file: a snapshot of a volume has the same inode numbers. 0 if the
    /// device number is unusable.
    ///
    /// # Errors
    /// The system's error.
    fn device(&self) -> io::Result<u64> {
        Ok(0)
    }

    /// Allocates space for these bytes. Their content stays; a shorter file is lengthened.
    ///
    /// # Errors
    /// `StorageFull` without space; then no content has changed, but the file may be longer.
    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Frees the space of these bytes if possible; they then read as zero, or as before. Stores
    /// need [`MediaFile::allocate`] again.
    ///
    /// # Errors
    /// The system's error.
    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Reads exactly `buffer.len()` bytes from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end, and the system's errors.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buffer` at `offset`; the file grows if necessary.
    ///
    /// # Errors
    /// The system's error; part of the buffer may have been written.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;

    /// Truncates the file to `bytes` and frees the space of the rest; does nothing if it is not
    /// longer. No process has it mapped.
    ///
    /// # Errors
    /// The system's error.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes the file's bytes and length survive a power cut, including stores through mappings.
    ///
    /// # Errors
    /// The system's error; the content of the disk is then unknown, and a retry proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Begins to write these bytes to the disk. `waits`: also waits until they are written. That
    /// proves nothing: only [`MediaFile::sync`] makes them durable. It bounds how much a long file
    /// leaves to be written at its end, where all writers of the machine would wait for it.
    ///
    /// # Errors
    /// The system's error, of a write.
    fn write_out(&self, bytes: Range<u64>, waits: bool) -> io::Result<()> {
        let _ = (bytes, waits);
        Ok(())
    }

    /// Fails if the system could not write back a store to this file: the page then counts as
    /// clean, and may later show its older content. A failure is reported once to each opening
    /// that came before it, and to a later one if no other has received it. Starts no write.
    ///
    /// # Errors
    /// The system's error, of the write-back.
    fn check_written(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether a mapping of this file can be synced by [`Mapping::sync`] after the file
    /// itself is closed.
    fn maps_with_sync(&self) -> bool {
        false
    }

    /// Maps the whole file, shared. Its length must be a multiple of eight.
    ///
    /// # Errors
    /// `InvalidData` for other lengths, and the system's errors.
    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>>;

    /// Maps a file made by [`Media::create_to_grow`] with the `most` bytes that it may have. Words
    /// beyond its present end exist once it was lengthened: an access before is a signal.
    ///
    /// # Errors
    /// As [`MediaFile::map`].
    fn map_to_grow(&self, access: Access, most: u64) -> io::Result<Box<dyn Mapping>> {
        let _ = most;
        self.map(access)
    }

    /// Returns whether a read of a hole of this file through a mapping takes space, so that it ends
    /// in a signal where there is none.
    ///
    /// # Errors
    /// The system's error.
    fn reads_fill_holes(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Maps the whole file to be read, so that no read takes space. Where a read of a hole would,
    /// the result is a copy of what the file holds now: later stores are not seen there.
    ///
    /// # Errors
    /// As [`MediaFile::map`], and the errors of a read.
    fn map_for_reading(&self) -> io::Result<Box<dyn Mapping>> {
        self.map(Access::Read)
    }
}

/// A mapped file: words whose changes other threads and processes see at once.
///
/// # Safety
/// [`words`](Mapping::words) returns the same words at every call. They stay in place, readable
/// (and writable if mapped so), until the mapping is dropped, whatever happens to the file's name,
/// and wherever the value is moved.
#[expect(unsafe_code, reason = "its users rely on the words staying where they are")]
pub unsafe trait Mapping: Debug + Send + Sync {
    /// Returns the words, little-endian on the disk.
    fn words(&self) -> &[AtomicU64];

    /// As [`MediaFile::sync`] of the pages with the first `words` of the mapped file, which may be
    /// closed: a mapping needs no descriptor of the process. For files whose
    /// [`MediaFile::maps_with_sync`] returns true.
    ///
    /// # Errors
    /// As [`MediaFile::sync`]; includes failures since the file was opened.
    fn sync(&self, words: usize) -> io::Result<()> {
        let _ = words;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Passes the stores to the first `words` on to the file, for a [`MediaFile::sync`] that would
    /// not find them: of files whose [`MediaFile::maps_with_sync`] returns false.
    ///
    /// # Errors
    /// The system's error, of the write-back.
    fn write_back(&self, words: usize) -> io::Result<()> {
        let _ = words;
        Ok(())
    }

    /// As [`MediaFile::check_written`] of the opening that was mapped for writing: reports what
    /// came after it, whoever else received it. May write a page. Reports nothing of files mapped
    /// for reading.
    ///
    /// # Errors
    /// As [`MediaFile::check_written`].
    fn check_written(&self) -> io::Result<()> {
        Ok(())
    }

    /// Hints to the system to make the pages of these words present and writable ahead of their
    /// use. Failures are ignored.
    fn populate(&self, words: Range<usize>);

    /// Hints to the system that words are used at random, so that it does not read around them. A
    /// file with holes needs that: if a hole was read in a large piece, a store beside it would
    /// take space for the whole piece. Failures are ignored.
    fn advise_random(&self) {}

    /// Unmaps the pages that lie wholly within these words: their content stays in the file, and
    /// the next access brings them back. A sync then need not write-protect them one by one, which
    /// would interrupt all writers each time. A hint: failures are ignored.
    fn release(&self, words: Range<usize>);
}
