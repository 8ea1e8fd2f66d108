//! A file without a name for the banks of an image: memory that ends with its last process, or a
//! file in a directory that the user names.
//!
//! | bytes | content |
//! |---|---|
//! | 0-15 | the nonce of its identity |
//! | 16-23 | the end: the next bank lies behind it |
//! | 4096- | the table: for bank `n`, entry `n` modulo 131,072: number plus one, start, length |
//! | 6 MiB- | the banks |
//!
//! No place of a bank that was opened is used twice. A process that was stopped may still store
//! into a bank that was removed, and nothing else may lie there then. All space between the banks
//! that are left is freed, also what late stores into removed banks have taken.
//!
//! The file is never mapped as a whole, and can never become shorter.

mod find;
mod hand_out;
mod huge_pages;
mod present_pages;
mod socket;

use crate::media::disk::directory::{Directory, above_standard_streams};
use crate::media::disk::mapping::DiskMapping;
use crate::media::disk::space::{self, allocate, page_bytes};

use crate::media::{Access, Mapping, MediaFile, available_memory};
use crate::media::{
    BESIDE_LOG_MOST, BankPlace, BankStore, HandedOut, Holder, ImagePlace, Unnamed, UnnamedId,
};
use crate::platform::fork::Unshared;
use crate::platform::system;
use crate::primitives::mutex::Mutex;
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fstat, memfd_create,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use find::identity;
use huge_pages::{HUGE_PAGE, may_have_huge_pages};
use present_pages::make_present;

/// The offset of the end.
const END: u64 = 16;
const TABLE: u64 = 4096;
/// Banks that exist at the same time have numbers within a range of this length: a batch of at most
/// 65,536 operations opens fewer ahead.
const ENTRIES: u64 = 1 << 17;
const ENTRY_BYTES: u64 = 24;
/// The offset of the first bank.
const FIRST_BANK: u64 = 3 * HUGE_PAGE;
const _: () = assert!(TABLE + ENTRIES * ENTRY_BYTES <= FIRST_BANK);

/// Space from which on memory is compared with what is available before it is touched.
const COMPARED: u64 = 1 << 20;
const REMEDY: &str = "plan a smaller filter, or let the image lie beside the log \
                      (EBBTIDE_IMAGE=beside-log), where it needs no memory of its own";

/// A file without a name.
#[derive(Debug)]
struct UnnamedFile {
    directory: Arc<Directory>,
    file: Arc<Unshared>,
    identity: UnnamedId,
    place: BankPlace,
    room: Room,
}

/// Where the space of the file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// From the disk of the log: what is removed there makes room for the image.
    OfLog,
    /// From memory, or from another disk.
    Elsewhere,
}

impl Room {
    fn of(directory: &Directory, file: &File) -> io::Result<Self> {
        let is_same = fstat(file)?.st_dev == fstat(directory.descriptor()?)?.st_dev;
        Ok(if is_same { Self::OfLog } else { Self::Elsewhere })
    }

    /// Returns the error of an operation on the file. A disk that is full elsewhere must not look
    /// like a full disk of the log, of which parts would be removed for it.
    fn error(self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                if self == Self::Elsewhere =>
            {
                let sentence = format!("no space where the image lies ({error}); {REMEDY}");
                io::Error::new(io::ErrorKind::OutOfMemory, sentence)
            }
            _ => error,
        }
    }
}

/// Creates the file for the banks of an image that may take `bytes`. `None` if they shall lie in
/// files of the directory.
pub(super) fn create(
    directory: &Arc<Directory>,
    place: Option<&ImagePlace>,
    bytes: u64,
) -> io::Result<Option<Arc<dyn BankStore>>> {
    let made = make(directory, place, bytes)?;
    Ok(made.map(|file| Arc::new(file) as _))
}

/// Gets the file from one of these processes, which have the file `live` open.
pub(super) fn find(
    directory: &Arc<Directory>,
    wanted: &UnnamedId,
    (live, holders): (&str, &[Holder]),
    access: Access,
) -> io::Result<Arc<dyn BankStore>> {
    Ok(Arc::new(UnnamedFile::find(directory, wanted, (live, holders), access)?))
}

/// Fails if this process could not have such a file with this many bytes. It has none afterwards.
/// Returns whether they would lie in files of the directory.
pub(super) fn check_memory(
    directory: &Arc<Directory>,
    place: Option<&ImagePlace>,
    bytes: u64,
) -> io::Result<bool> {
    let Some(file) = make(directory, place, bytes)? else { return Ok(true) };
    file.check_memory(bytes).map(|()| false)
}

fn make(
    directory: &Arc<Directory>,
    place: Option<&ImagePlace>,
    bytes: u64,
) -> io::Result<Option<UnnamedFile>> {
    let opened = match place {
        Some(ImagePlace::BesideLog) => return Ok(None),
        None if bytes <= BESIDE_LOG_MOST || has_limit_of_sizes() => return Ok(None),
        None => match Unshared::open(shared_memory) {
            Err(error) if is_refused(&error) => return Ok(None),
            opened => opened?,
        },
        Some(ImagePlace::Memory) => Unshared::open(shared_memory)?,
        Some(ImagePlace::Directory(path)) => Unshared::open(|| file_in(path))?,
    };
    let file = opened.file()?;
    // Whoever may open `live` may open it, and by the same right, also when its creator has gone.
    directory.adopt(file)?;
    let room = Room::of(directory, file)?;
    begin(file).map_err(|error| room.error(error))?;
    let place = match place {
        Some(ImagePlace::Directory(_)) if system::reads_fill_holes(file)? => {
            BankPlace::MemoryDirectory
        }
        Some(ImagePlace::Directory(_)) => BankPlace::DiskDirectory,
        _ => BankPlace::Memory,
    };
    let identity = identity(file)?;
    let (directory, file) = (directory.clone(), Arc::new(opened));
    Ok(Some(UnnamedFile { directory, file, identity, place, room }))
}

/// Writes the head of a new file.
fn begin(file: &File) -> io::Result<()> {
    let mut nonce = [0; 16];
    system::random(&mut nonce)?;
    file.set_len(FIRST_BANK)?;
    file.write_all_at(&nonce, 0)?;
    file.write_all_at(&FIRST_BANK.to_le_bytes(), END)
}

/// Returns whether the system has no memory without a mount, or a filter of system calls refuses
/// it.
fn is_refused(error: &io::Error) -> bool {
    let refusals = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL];
    error.raw_os_error().is_some_and(|number| refusals.contains(&number))
}

/// Returns whether the process would get a signal for a file that is too long. Places are not used
/// twice, so the file of a filter that changes its banks becomes long, if not large.
fn has_limit_of_sizes() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

fn shared_memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let opened = match memfd_create("ebbtide", flags | MemfdFlags::NOEXEC_SEAL) {
        // Systems before 6.3 do not know that flag.
        Err(Errno::INVAL) => memfd_create("ebbtide", flags),
        opened => opened,
    };
    let file = File::from(above_standard_streams(opened?)?);
    // For all users before, whatever their umask.
    fchmod(&file, Mode::from_raw_mode(0o600))?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// Creates a file without a name in a directory.
fn file_in(path: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600));
    let opened = opened.map_err(|error| {
        let error = io::Error::from(error);
        let sentence = format!("the image cannot lie in {}: {error}", path.display());
        io::Error::new(error.kind(), sentence)
    });
    Ok(File::from(above_standard_streams(opened?)?))
}

/// An entry of the table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u64,
    bytes: u64,
}

impl Entry {
    /// Returns the end of its last page.
    fn end(self) -> u64 {
        self.start.saturating_add(self.bytes.next_multiple_of(page_bytes()))
    }
}

impl UnnamedFile {
    /// Gets the file from one of these processes, which have the file `live` open.
    fn find(
        directory: &Arc<Directory>,
        wanted: &UnnamedId,
        (live, holders): (&str, &[Holder]),
        access: Access,
    ) -> io::Result<Self> {
        let opened = find::find(directory, wanted, (live, holders), access)?;
        let file = opened.file()?;
        let identity = identity(file)?;
        let place = match (system::reads_fill_holes(file)?, rustix::fs::fcntl_get_seals(file)) {
            (true, Ok(seals)) if seals.contains(SealFlags::SHRINK) => BankPlace::Memory,
            (true, _) => BankPlace::MemoryDirectory,
            (false, _) => BankPlace::DiskDirectory,
        };
        let room = Room::of(directory, file)?;
        Ok(Self { directory: directory.clone(), file: Arc::new(opened), identity, place, room })
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.file()?.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns the entry of a bank; `None` if it has none.
    fn entry(&self, bank: u32) -> io::Result<Option<Entry>> {
        let at = TABLE + u64::from(bank) % ENTRIES * ENTRY_BYTES;
        let [number, start, bytes] =
            [self.number(at)?, self.number(at + 8)?, self.number(at + 16)?];
        Ok((number == u64::from(bank) + 1).then_some(Entry { start, bytes }))
    }

    /// Writes the entry of a bank. Where this is interrupted there is no entry, or one of a bank
    /// that has no header.
    fn set_entry(&self, bank: u32, entry: Option<Entry>) -> io::Result<()> {
        let at = TABLE + u64::from(bank) % ENTRIES * ENTRY_BYTES;
        let number = entry.map_or(0, |_| u64::from(bank) + 1);
        let Entry { start, bytes } = entry.unwrap_or(Entry { start: 0, bytes: 0 });
        let words = [number, start, bytes].map(u64::to_le_bytes);
        self.file.file()?.write_all_at(words.as_flattened(), at)
    }

    /// Fails if memory does not have this many bytes more, before any of them is touched: a process
    /// that takes more than there is would be killed.
    fn check_memory(&self, bytes: u64) -> io::Result<()> {
        if bytes < COMPARED {
            return Ok(());
        }
        if self.place != BankPlace::Memory && space::is_beyond_space(self.file.file()?, bytes) {
            return Err(self.room.error(io::ErrorKind::StorageFull.into()));
        }
        if self.place == BankPlace::DiskDirectory {
            return Ok(());
        }
        available_memory::check(bytes, REMEDY)
    }

    /// Makes the part of a new bank.
    fn new_part(&self, bank: u32, bytes: u64, allocated: u64) -> io::Result<Part> {
        let file = self.file.file()?;
        let unit = if bytes < HUGE_PAGE { page_bytes() } else { HUGE_PAGE };
        let before = self.number(END)?;
        let start = before.next_multiple_of(unit);
        let end = start.checked_add(bytes.next_multiple_of(page_bytes()));
        let end = end.ok_or(io::ErrorKind::StorageFull)?;
        // First: the place is taken from here on, wherever this is interrupted.
        file.write_all_at(&end.to_le_bytes(), END)?;
        let entry = Entry { start, bytes };
        let take = || {
            // Of an attempt that failed it may be longer.
            if file.metadata()?.len() < end {
                file.set_len(end)?;
            }
            self.part(entry).with_space(allocated)
        };
        let part = take().inspect_err(|_| {
            // The first error is the one to report.
            let _ = space::free(file, start..end);
            // Nobody has used the place: it is free, unless others lie behind it by now.
            if self.number(END).is_ok_and(|found| found == end) {
                let _ = file.write_all_at(&before.to_le_bytes(), END);
            }
        })?;
        self.set_entry(bank, Some(entry))?;
        Ok(part)
    }

    fn part(&self, entry: Entry) -> Part {
        let (place, room) = (self.place, self.room);
        Part { file: self.file.clone(), entry, place, room, mapped: Mutex::default() }
    }
}

impl BankStore for UnnamedFile {
    fn path(&self, bank: u32) -> PathBuf {
        self.directory.path().join(format!("live (bank {bank})"))
    }

    fn create(&self, bank: u32, bytes: u64, allocated: u64) -> io::Result<Box<dyn MediaFile>> {
        // Of an attempt to open the bank that was not recorded: its space is free again.
        if let Some(leftover) = self.entry(bank)? {
            self.set_entry(bank, None)?;
            space::free(self.file.file()?, leftover.start..leftover.end())?;
        }
        self.check_memory(allocated)?;
        let part = self.new_part(bank, bytes, allocated).map_err(|error| self.room.error(error))?;
        Ok(Box::new(part))
    }

    fn open(&self, bank: u32, _access: Access) -> io::Result<Box<dyn MediaFile>> {
        let entry = self.entry(bank)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(self.part(entry)))
    }

    fn remove(&self, bank: u32, others: &[u32]) -> io::Result<()> {
        let file = self.file.file()?;
        if let Some(entry) = self.entry(bank)? {
            self.set_entry(bank, None)?;
            space::free(file, entry.start..entry.end())?;
        }
        let mut left = Vec::with_capacity(others.len());
        for &other in others {
            left.extend(self.entry(other)?);
        }
        left.sort_by_key(|entry| entry.start);
        let mut from = FIRST_BANK;
        for entry in left {
            space::free(file, from..entry.start)?;
            from = entry.end();
        }
        Ok(())
    }

    fn check_written(&self, _banks: &mut dyn Iterator<Item = u32>) -> io::Result<()> {
        system::check_written(self.file.file()?)
    }

    fn unnamed(&self) -> Option<&dyn Unnamed> {
        Some(self)
    }
}

impl Unnamed for UnnamedFile {
    fn identity(&self) -> UnnamedId {
        self.identity
    }

    fn holder(&self) -> (u32, u32) {
        let descriptor = self.file.file().map_or(0, AsRawFd::as_raw_fd);
        (std::process::id(), descriptor as u32)
    }

    fn place(&self) -> BankPlace {
        self.place
    }

    fn hand_out(&self, name: &str, live: &str) -> io::Result<Box<dyn HandedOut>> {
        Ok(Box::new(hand_out::hand_out(&self.directory, &self.file, name, live)?))
    }
}

/// A bank's part of the file.
#[derive(Debug)]
struct Part {
    file: Arc<Unshared>,
    entry: Entry,
    place: BankPlace,
    room: Room,
    /// Its pages are present in it, huge if the system allows that.
    mapped: Mutex<Option<DiskMapping>>,
}

impl Part {
    /// Takes space for the first bytes.
    fn with_space(self, allocated: u64) -> io::Result<Self> {
        let Entry { start, bytes } = self.entry;
        let file = self.file.file()?;
        // Only a mapping can ask for huge pages. Without them `fallocate` is better: it takes pages
        // that are neighbours in memory, which processors translate together.
        if allocated == bytes && bytes >= HUGE_PAGE && may_have_huge_pages(self.place) {
            let mapping = self.mapping(Access::Write)?;
            match make_present(&mapping, bytes) {
                Ok(()) => {
                    return Ok(Self { mapped: Mutex::new(Some(mapping)), ..self });
                }
                // The system does not have the call.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => return Err(error),
            }
        }
        let last = allocated.next_multiple_of(page_bytes());
        allocate(file, start..start + last)?;
        Ok(self)
    }

    fn mapping(&self, access: Access) -> io::Result<DiskMapping> {
        let Entry { start, bytes } = self.entry;
        if !bytes.is_multiple_of(8) {
            return Err(crate::media::not_whole_words(bytes));
        }
        let mapping = DiskMapping::of_part(self.file.file()?, start, bytes, access)?;
        if self.place != BankPlace::DiskDirectory && bytes >= HUGE_PAGE {
            mapping.wish_for_huge_pages();
        }
        Ok(mapping)
    }
}

impl MediaFile for Part {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.entry.bytes)
    }

    /// Of a kind whose blocks grow, which has one bank at a time.
    fn allocated_bytes(&self) -> io::Result<u64> {
        // The first page, and one of the table.
        let others = 2 * page_bytes();
        let all = self.file.file()?.metadata()?.blocks() * 512;
        Ok(all.saturating_sub(others).min(self.entry.bytes))
    }

    fn identity(&self) -> io::Result<u64> {
        Ok(self.file.file()?.metadata()?.ino())
    }

    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        let start = self.entry.start;
        let page = page_bytes();
        let end = bytes.end.next_multiple_of(page);
        let first = bytes.start / page * page;
        let done = allocate(self.file.file()?, start + first..start + end);
        done.map_err(|error| self.room.error(error.into()))
    }

    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        let page = page_bytes();
        let (first, end) = (bytes.start.next_multiple_of(page), bytes.end / page * page);
        space::free(self.file.file()?, self.entry.start + first..self.entry.start + end)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.file()?.read_exact_at(buffer, self.entry.start + offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.file()?.write_all_at(buffer, self.entry.start + offset)
    }

    fn truncate(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn check_written(&self) -> io::Result<()> {
        system::check_written(self.file.file()?)
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        let taken = self.mapped.lock().take();
        match taken.filter(|_| access == Access::Write) {
            Some(mapping) => Ok(Box::new(mapping)),
            None => Ok(Box::new(self.mapping(access)?)),
        }
    }

    fn reads_fill_holes(&self) -> io::Result<bool> {
        // Memory of no mount has no limit of its own: such a read takes a page, and no signal.
        Ok(self.place == BankPlace::MemoryDirectory)
    }
}
