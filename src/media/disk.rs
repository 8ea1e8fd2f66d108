//! The disk: a directory of a local file system.
//!
//! Defines how files are opened (private, never through links), allocated, mapped and locked, and
//! which file systems are refused. Every store through a mapping meets allocated space, so that a
//! full disk never causes a signal. Files must not be truncated from outside while mapped, because
//! that does cause one. Nothing here ever does it, and `tests/surroundings` shows the effects if
//! another program does.

#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    path = "disk/banks_in_directory.rs"
)]
mod bank_memory;
mod byte_locks;
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    expect(dead_code, reason = "of `bank_memory`")
)]
mod directory;
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    expect(dead_code, reason = "of `bank_memory`")
)]
mod mapping;
mod space;

use self::byte_locks::DiskLocks;
use self::directory::Directory;
use self::mapping::DiskMapping;
use self::space::{PIECE, allocate, is_beyond_space, page_bytes, write_zeros};
use crate::media::{Access, BootIdSource, ByteLocks, Mapping, Media, MediaFile, boot_id};
use crate::media::{BankStore, Holder, ImagePlace, Ownership, UnnamedId};
use crate::platform::system;
use crate::primitives::AtomicU64;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const _: () = assert!(cfg!(target_endian = "little"), "mapped words are little-endian on the disk");
const _: () = assert!(size_of::<usize>() == 8, "whole files are mapped");
const _: () = assert!(size_of::<AtomicU64>() == 8 && align_of::<AtomicU64>() == 8);

/// A directory on a local file system. All clones of a value share its descriptor.
#[derive(Debug, Clone)]
pub struct Disk {
    directory: Arc<Directory>,
    image: Option<ImagePlace>,
}

impl Disk {
    /// Creates it for the directory at `path`, which need not exist yet. It is opened at its first
    /// use. From then on its files are found wherever it is moved, and a directory that replaces it
    /// is ignored.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { directory: Arc::new(Directory::new(path.into(), None)), image: None }
    }

    /// As [`Disk::new`], for a filter to be created with these permissions of its files (`0o660`:
    /// shared with the group), whatever the umask. Bits other than read and write are ignored.
    /// Files of an existing filter get owner, group and permissions of its `meta`.
    #[must_use]
    pub fn with_mode(path: impl Into<PathBuf>, mode: u32) -> Self {
        Self { directory: Arc::new(Directory::new(path.into(), Some(mode | 0o600))), image: None }
    }

    /// Opens the directory at `path` for a copy of a filter, whose files get the group of the
    /// filter's files and the permissions that these have; if root makes the copy, also their user.
    /// What others may is not copied: a file system that stores no permissions shows the same for
    /// all files.
    pub(crate) fn for_copy_of(path: &Path, of: &dyn Media) -> Self {
        // Without `meta` there is no filter, and no copy of it.
        let Ok(Some(of)) = of.ownership() else {
            return Self::new(path);
        };
        let directory = Directory::of_copy(path.to_path_buf(), of);
        Self { directory: Arc::new(directory), image: None }
    }

    /// Returns it with a place for the banks of a new image; see
    /// [`Options::image`](crate::Options::image) for the default.
    #[must_use]
    pub fn image(mut self, place: ImagePlace) -> Self {
        self.image = Some(place);
        self
    }

    /// Gives a new file its length and the space of its first bytes; if that fails, the caller must
    /// remove its name.
    fn lay_out(file: &File, bytes: u64, allocated: u64) -> io::Result<()> {
        // Must precede the first byte: files have random stores.
        system::write_in_place(file)?;
        if allocated > PIECE && is_beyond_space(file, allocated) {
            return Err(Errno::NOSPC.into());
        }
        if allocated < bytes {
            file.set_len(bytes)?;
        }
        let last = allocated.checked_next_multiple_of(page_bytes()).unwrap_or(bytes).min(bytes);
        let written = if system::FILLS_HOLES { bytes } else { last };
        match allocate(file, 0..last) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, 0..written),
            allocated => Ok(allocated?),
        }
    }
}

impl Media for Disk {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn make(&self) -> io::Result<()> {
        self.directory.make()
    }

    fn at_its_path(&self) -> Option<Arc<dyn Media>> {
        let directory = Arc::new(self.directory.at_its_path());
        Some(Arc::new(Self { directory, image: self.image.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.directory.list()
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
        let file = self.directory.open(name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
        if let Err(error) = Self::lay_out(&file, bytes, allocated) {
            // The first error is the one to report; a leftover is a file that nothing refers to.
            let _ = self.remove(name);
            return Err(error);
        }
        Ok(Box::new(DiskFile { file }))
    }

    fn create_to_grow(
        &self,
        name: &str,
        (bytes, _most): (u64, u64),
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        self.create_with_hole(name, bytes, allocated)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        Ok(Box::new(DiskFile { file: self.directory.open(name, flags)? }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename_new(from, to)
    }

    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.link_new(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        // Each opener of a filter takes a lock first, so this also covers a filter that was moved
        // here.
        self.directory.check_local()?;
        Ok(Box::new(DiskLocks::open(self.directory.clone(), name, access)?))
    }

    fn create_unnamed(&self, bytes: u64) -> io::Result<Option<Arc<dyn BankStore>>> {
        bank_memory::create(&self.directory, self.image.as_ref(), bytes)
    }

    fn find_unnamed(
        &self,
        wanted: &UnnamedId,
        (live, holders): (&str, &[Holder]),
        access: Access,
    ) -> io::Result<Arc<dyn BankStore>> {
        bank_memory::find(&self.directory, wanted, (live, holders), access)
    }

    fn has_space(&self, bytes: u64) -> io::Result<bool> {
        Ok(!is_beyond_space(self.directory.descriptor()?, bytes))
    }

    fn check_memory(&self, bytes: u64) -> io::Result<bool> {
        let image = self.image.as_ref();
        let is_beside = bank_memory::check_memory(&self.directory, image, bytes)?;
        mapping::check(bytes).map(|()| is_beside)
    }

    fn mode(&self) -> io::Result<Option<u32>> {
        self.directory.mode().map(Some)
    }

    fn ownership(&self) -> io::Result<Option<Ownership>> {
        self.directory.ownership().map(Some)
    }

    fn boot_id(&self) -> io::Result<u128> {
        boot_id::id()
    }

    fn boot_id_source(&self) -> BootIdSource {
        boot_id::source()
    }
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
        // `st_blocks` counts units of 512 bytes whatever the file system's block size.
        Ok(self.file.metadata()?.blocks() * 512)
    }

    fn data_end(&self, from: u64) -> io::Result<u64> {
        // Where the system cannot tell, the caller reads all.
        let bytes = self.bytes()?;
        Ok(mapping::data_end(&self.file, from, bytes).unwrap_or(bytes))
    }

    fn identity(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    fn device(&self) -> io::Result<u64> {
        if system::keeps_its_device(&self.file)? { Ok(self.file.metadata()?.dev()) } else { Ok(0) }
    }

    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        let page = page_bytes();
        let end = bytes.end.checked_next_multiple_of(page).unwrap_or(bytes.end);
        let end = end.min(self.bytes()?).max(bytes.end);
        match allocate(&self.file, bytes.start / page * page..end) {
            // If it is unsupported, the present bytes were filled when the file was created.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(&self.file, self.bytes()?..end),
            done => Ok(done?),
        }
    }

    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        // The rest of a page may belong to another block.
        let page = page_bytes();
        let start = bytes.start.next_multiple_of(page);
        let end = if bytes.end == self.bytes()? { bytes.end } else { bytes.end / page * page };
        space::free(&self.file, start..end)
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
        Ok(system::sync_file(&self.file)?)
    }

    fn write_out(&self, bytes: Range<u64>, waits: bool) -> io::Result<()> {
        system::write_out(&self.file, bytes, waits)
    }

    fn check_written(&self) -> io::Result<()> {
        system::check_written(&self.file)
    }

    fn maps_with_sync(&self) -> bool {
        system::SYNCS_THROUGH_MAPPINGS
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        let bytes = self.bytes()?;
        if !bytes.is_multiple_of(8) {
            return Err(crate::media::not_whole_words(bytes));
        }
        Ok(Box::new(DiskMapping::new(&self.file, bytes, access)?))
    }

    fn map_to_grow(&self, access: Access, most: u64) -> io::Result<Box<dyn Mapping>> {
        if !most.is_multiple_of(8) {
            return Err(crate::media::not_whole_words(most));
        }
        Ok(Box::new(DiskMapping::new(&self.file, most, access)?))
    }

    fn reads_fill_holes(&self) -> io::Result<bool> {
        system::reads_fill_holes(&self.file)
    }

    fn map_for_reading(&self) -> io::Result<Box<dyn Mapping>> {
        if !self.reads_fill_holes()? {
            return self.map(Access::Read);
        }
        let bytes = self.bytes()?;
        if !bytes.is_multiple_of(8) {
            return Err(crate::media::not_whole_words(bytes));
        }
        Ok(Box::new(DiskMapping::copy(&self.file, bytes)?))
    }
}
